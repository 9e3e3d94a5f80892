# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Patching equals loops of single calls, and what it says where the answer is known."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import numpy as np
import pytest
from small_models import drawn, with_nan

import flaxattn as fa
from flaxattn.attribution import patching
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.task_heads import (
    BertForSequenceClassification,
    ModernBertForSequenceClassification,
)
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder


@pytest.fixture(scope="module")
def lm(gpt2: PretrainedDecoder) -> PretrainedDecoder:
    """The small GPT-2 with its language-model head."""
    config: Any = gpt2.config
    module = DecoderLM(config)
    params = drawn(module, np.ones((1, 2), np.int32))
    return PretrainedDecoder(module, params, gpt2.tokenizer, config, "small")


PAIRS = [
    fa.TextPair("the cat a is the", "the e a is the", "cat", "e"),
    fa.TextPair("a b is very sad", "a c is very sad", "b", "c"),
    fa.TextPair("h d is the", "h g is the", "d", "g"),
]


@functools.partial(jax.jit, static_argnums=0)
def applied(module: Any, variables: Any, ids: np.ndarray) -> Any:
    return module.apply(variables, ids, mutable=["sites"])


def outputs(model: Any, ids: np.ndarray, *changes: fa.Intervention, record: str = "") -> Any:
    """Scores behind the last position of one text without padding, and recorded values."""
    requested = [fa.Intervention(record, operation="record")] if record else []
    variables = fa.with_interventions(model.params, [*changes, *requested])
    out, state = applied(model.module, variables, ids)
    values = fa.site_values(state)["decoder"][record] if record else None
    return np.asarray(out.logits[0, -1], np.float64), values


def ids_of(model: Any, pair: fa.TextPair) -> tuple[np.ndarray, np.ndarray, int, int]:
    clean, corrupted = (model.read(text).given["input_ids"] for text in pair[:2])
    right, wrong = (model.tokenizer.ids([word])[0][-1] for word in (pair.answer, pair.wrong))
    return clean, corrupted, right, wrong


def test_patching_heads_is_a_loop_over_heads(lm: Any) -> None:
    report = fa.patch(lm, PAIRS, batch=2, controls=0)
    (effects,) = report.effects
    for number, pair in enumerate(PAIRS):
        clean, corrupted, right, wrong = ids_of(lm, pair)
        _, values = outputs(lm, clean, record="head_output")
        base, _ = outputs(lm, corrupted)
        assert report.corrupted[number] == pytest.approx(base[right] - base[wrong], abs=1e-4)
        for layer, head in np.ndindex(effects.means.shape[:2]):
            where = np.zeros((len(effects.means), 1, 1, effects.means.shape[1]), bool)
            where[layer, :, :, head] = True
            scores, _ = outputs(lm, corrupted, fa.Intervention("head_output", values, where=where))
            expected = scores[right] - scores[wrong] - (base[right] - base[wrong])
            assert effects.each[layer, head, 0, number] == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_a_path_is_a_run_with_all_others_frozen(lm: Any) -> None:
    request = fa.PatchRequest(
        method="path", receivers=((1, 0),), into=("key",), direction="noise", metric="logit"
    )
    (effects,) = fa.patch(lm, PAIRS, request, controls=0).effects
    for number, pair in enumerate(PAIRS):
        clean, corrupted, right, _ = ids_of(lm, pair)
        base, own = outputs(lm, clean, record="head_output")
        _, other = outputs(lm, corrupted, record="head_output")
        for layer, head in np.ndindex(effects.means.shape[:2]):
            mixed = np.array(own)
            mixed[layer, :, :, head] = other[layer, :, :, head]
            _, keys = outputs(lm, clean, fa.Intervention("head_output", mixed), record="key")
            change = fa.Intervention("key", keys[1], layers=(1,), heads=(0,))
            scores, _ = outputs(lm, clean, change)
            expected = scores[right] - base[right]
            assert effects.each[layer, head, 0, number] == pytest.approx(expected, abs=1e-4)


def test_patching_every_layer_output_recovers_the_clean_answer(lm: Any) -> None:
    request = fa.PatchRequest(site="layer_output", by="layer")
    report = fa.patch(lm, PAIRS, request, controls=0)
    (effects,) = report.effects
    gap = report.clean - report.corrupted
    np.testing.assert_allclose(
        effects.each[:, 0, 0], np.tile(gap, (len(effects.each), 1)), atol=1e-4
    )
    np.testing.assert_allclose(report.shares(effects), 1, atol=1e-4)


@pytest.mark.slow
def test_segments_of_positions_partition_the_text(lm: Any) -> None:
    request = fa.PatchRequest(site="layer_input", by="layer", positions="segment")
    report = fa.patch(lm, PAIRS, request, controls=0)
    (effects,) = report.effects
    assert report.positions == ("first", "before", "changed", "after", "answered")
    changed = effects.each[0, 0, report.positions.index("changed")]
    np.testing.assert_allclose(changed, report.clean - report.corrupted, atol=1e-4)
    others = np.delete(effects.each[0, 0], 2, axis=0)
    np.testing.assert_allclose(others, 0, atol=1e-5)


def test_knocking_out_an_edge_is_a_score_of_minus_infinity(lm: Any) -> None:
    pairs = PAIRS[:2]
    request = fa.PatchRequest(method="knockout", positions="token", metric="logit")
    (effects,) = fa.patch(lm, pairs, request, controls=0).effects
    clean, _, right, _ = ids_of(lm, pairs[0])
    base, _ = outputs(lm, clean)
    where = np.zeros((1, 2, clean.shape[1], clean.shape[1]), bool)
    where[:, 1, -1, 2] = True
    change = fa.Intervention("scores", -np.inf, layers=(1,), where=where)
    scores, _ = outputs(lm, clean, change)
    assert effects.each[1, 1, 2, 0] == pytest.approx(scores[right] - base[right], abs=1e-4)


@pytest.mark.slow
def test_attribution_is_the_gradient_times_the_difference(lm: Any) -> None:
    report = fa.patch(lm, PAIRS, fa.PatchRequest(method="attribution", metric="logit"))
    (effects,) = report.effects
    clean, corrupted, right, _ = ids_of(lm, PAIRS[0])
    _, donor = outputs(lm, clean, record="head_output")
    _, base = outputs(lm, corrupted, record="head_output")

    def logit(added: jax.Array) -> jax.Array:
        change = fa.Intervention("head_output", added, operation="add")
        variables = fa.with_interventions(lm.params, change)
        return lm.module.apply(variables, corrupted).logits[0, -1, right]

    slope = jax.grad(logit)(np.zeros_like(base))
    expected = ((np.asarray(donor) - base) * slope).sum((1, 2, 4))
    np.testing.assert_allclose(effects.each[:, :, 0, 0], expected, atol=1e-4)
    assert effects.approximation is not None and effects.approximation.error >= 0


@pytest.mark.slow
def test_mediation_exchanges_attention_weights(lm: Any) -> None:
    request = fa.PatchRequest(method="mediation", metric="logit")
    report = fa.patch(lm, PAIRS, request, controls=0)
    indirect, direct = report.effects
    assert (indirect.kind, direct.kind) == ("indirect", "direct")
    clean, corrupted, right, _ = ids_of(lm, PAIRS[0])
    weights = {}
    for name, ids in (("clean", clean), ("corrupted", corrupted)):
        module = lm.module.clone(capture=Capture(weights=True))
        _, state = module.apply({"params": lm.params}, ids, mutable=["intermediates"])
        weights[name] = fa.Trace.from_variables(state).decoder.weights
    base, _ = outputs(lm, clean)
    for effects, ids, donor in (
        (indirect, clean, weights["corrupted"]),
        (direct, corrupted, weights["clean"]),
    ):
        change = fa.Intervention("weights", donor[1], layers=(1,), heads=(0,))
        scores, _ = outputs(lm, ids, change)
        assert effects.each[1, 0, 0, 0] == pytest.approx(scores[right] - base[right], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["activation", "attribution", "path", "mediation"])
def test_a_call_compiles_one_program(lm: Any, method: Any) -> None:
    request = fa.PatchRequest(method=method, metric="probability")
    programs = patching.patch_batch._cache_size()
    report = fa.patch(lm, PAIRS, request, batch=2, controls=3, alpha=1, correction="none")
    assert patching.patch_batch._cache_size() == programs + 1
    assert all(np.isfinite(one.each).all() for one in report.effects)


@pytest.mark.slow
def test_the_control_patches_the_causal_heads_together(lm: Any) -> None:
    report = fa.patch(lm, PAIRS, controls=4, alpha=0.7, correction="none")
    (effects,) = report.effects
    causal = np.argwhere(effects.causal)
    assert effects.control is not None and effects.control.heads == len(causal) < 4
    joint = []
    for pair in PAIRS:
        clean, corrupted, right, wrong = ids_of(lm, pair)
        _, values = outputs(lm, clean, record="head_output")
        base, _ = outputs(lm, corrupted)
        where = effects.causal[:, None, None, :, 0]
        scores, _ = outputs(lm, corrupted, fa.Intervention("head_output", values, where=where))
        joint.append(scores[right] - scores[wrong] - (base[right] - base[wrong]))
    assert effects.control.effect == pytest.approx(np.mean(joint), abs=1e-4)
    assert len(effects.control.random) == 4
    as_large = (np.abs(effects.control.random) >= abs(effects.control.effect)).sum()
    assert effects.control.p == (1 + as_large) / 5


SOURCES = [
    fa.TextPair("the cat a is", "the e a is", "cat", "e", prefix="the a b c d e"),
    fa.TextPair("a b is very", "a c is very", "b", "c", prefix="a a b c the is"),
]


def target_scores(model: Any, pair: fa.TextPair, *changes: fa.Intervention, of: int = 0) -> Any:
    """Scores behind the prefix of a pair's target, of its clean text or the other one."""
    given = dict(model.read([pair[of]], [f"{pair.prefix} {pair.answer}"]).given)
    given.pop("key_classes", None)
    variables = fa.with_interventions(model.params, list(changes))
    out = model.module.apply(variables, **given)
    return np.asarray(out.logits[0, len(pair.prefix.split())], np.float64)


@pytest.mark.slow
def test_heads_of_targets_longer_than_their_sources_are_patched_everywhere(seq2seq: Any) -> None:
    request = fa.PatchRequest(donor="zero", metric="logit")
    report = fa.patch(seq2seq, SOURCES, request, controls=0)
    assert [effects.side for effects in report.effects] == ["encoder", "decoder", "cross"]
    for effects, (number, pair) in ((e, p) for e in report.effects for p in enumerate(SOURCES)):
        right = seq2seq.tokenizer.ids([pair.answer])[0][0]
        base = target_scores(seq2seq, pair, of=1)[right]
        for layer, head in np.ndindex(effects.means.shape[:2]):
            change = fa.Intervention(
                "head_output", 0.0, layers=(layer,), heads=(head,), side=effects.side
            )
            changed = target_scores(seq2seq, pair, change, of=1)[right]
            assert effects.each[layer, head, 0, number] == pytest.approx(changed - base, abs=1e-4)


@pytest.mark.slow
def test_segments_of_the_source_are_knocked_out_of_cross_attention(seq2seq: Any) -> None:
    request = fa.PatchRequest(method="knockout", positions="segment", metric="logit")
    (effects,) = fa.patch(seq2seq, SOURCES, request, controls=0).effects
    assert effects.side == "cross"
    right = seq2seq.tokenizer.ids([SOURCES[0].answer])[0][0]
    base = target_scores(seq2seq, SOURCES[0])[right]
    where = np.zeros((1, 1, 8, 5), bool)
    where[..., len(SOURCES[0].prefix.split()), 1] = True  # the word that differs
    change = fa.Intervention("scores", -np.inf, heads=(2,), where=where, side="cross")
    expected = target_scores(seq2seq, SOURCES[0], change)[right] - base
    assert effects.each[0, 2, 2, 0] == pytest.approx(expected, abs=1e-5) != 0


@pytest.mark.slow
def test_paths_of_a_decoder_leave_its_cross_attention_as_it_was(seq2seq: Any) -> None:
    request = fa.PatchRequest(method="path", side="cross", metric="logit", freeze_feed_forward=True)
    (effects,) = fa.patch(seq2seq, SOURCES, request, controls=0).effects
    assert np.isfinite(effects.each).all() and np.abs(effects.each).max() > 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"metric": "accuracy"},
            "There is no metric 'accuracy'.\nChoose one of logit-diff,",
        ),
        ({"method": "guess"}, "There is no method 'guess'.\nChoose one of activation,"),
        ({"site": "layer_output"}, "layer_output has no heads, so it cannot be patched by head."),
        (
            {"method": "knockout", "site": "value"},
            "The method knockout has the site scores; received 'value'.\nLeave site out, or choose",
        ),
        (
            {"positions": "word"},
            "There is no kind of positions 'word'.\nChoose one of all, segment",
        ),
        ({"window": 2}, "window is 2 layers, expected an odd number from 1 on."),
        ({"receivers": ((0, 0),)}, "receivers are heads that paths end in; the method is act"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        fa.PatchRequest(**change)
    assert str(raised.value).startswith(message)
    assert len(str(raised.value).splitlines()) <= 3


def test_pairs_that_do_not_fit_are_refused(lm: Any) -> None:
    longer = fa.TextPair("the cat is", "the cat is sad", "cat", "d", source="pairs.csv:3")
    with pytest.raises(InputError) as raised:
        fa.patch(lm, [PAIRS[0], longer])
    first, second = str(raised.value).splitlines()
    assert first.startswith("pairs.csv:3: the clean text has ")
    assert second == "Patching goes position by position: choose words of as many tokens."
    with pytest.raises(InputError, match="Patching needs two pairs or more"):
        fa.patch(lm, PAIRS[:1])
    with pytest.raises(InputError, match=r"There is no head 9\.0 to receive a path"):
        fa.patch(lm, PAIRS, fa.PatchRequest(method="path", receivers=((9, 0),)))
    with pytest.raises(
        InputError, match=r"^alpha is 1\.5, expected a number above 0 and at most 1\.$"
    ):
        fa.patch(lm, PAIRS, alpha=1.5)
    with pytest.raises(InputError, match=r"^controls are -1 random sets, expected 0 or more\.$"):
        fa.patch(lm, PAIRS, controls=-1)
    with pytest.raises(InputError, match=r"^There is no correction 'fdr'\.\nChoose one of none, b"):
        fa.patch(lm, PAIRS, correction="fdr")


def test_a_model_with_nan_is_refused_by_its_parameter(lm: Any) -> None:
    broken = dataclasses.replace(lm, params=with_nan(lm).params)
    with pytest.raises(InputError) as raised:
        fa.patch(broken, PAIRS)
    first, second = str(raised.value).splitlines()
    assert first == "'small': the metric of pair 0 is NaN or infinite"
    assert "of layer 1 holds NaN or infinity" in second


def test_raw_and_corrected_p_values_are_those_of_all_signs(lm: Any) -> None:
    (effects,) = fa.patch(lm, PAIRS, controls=0, correction="bonferroni", alpha=0.9).effects
    signs = np.array(list(itertools.product((1, -1), repeat=len(PAIRS))))
    flipped = np.abs(np.einsum("st,lhpt->slhp", signs, effects.each))
    p = (flipped >= flipped[0] * (1 - 1e-9)).mean(0)
    np.testing.assert_allclose(effects.p, p, rtol=1e-6)
    np.testing.assert_allclose(effects.p_corrected, np.minimum(p * p.size, 1), rtol=1e-6)
    assert (effects.causal == (effects.p_corrected <= 0.9)).all()


@pytest.mark.slow
def test_an_encoder_that_answers_nothing_is_not_knocked_out(seq2seq: Any) -> None:
    with pytest.raises(InputError) as raised:
        fa.patch(seq2seq, SOURCES, fa.PatchRequest(method="knockout", side="encoder"))
    first, second = str(raised.value).splitlines()
    assert first == "'s' answers from its decoder; no query of the encoder answers."
    assert second == "Choose side cross or decoder."


def classifier(model: Any, kind: Any, **settings: Any) -> Any:
    """The small encoder with two labels."""
    names = {"architectures": (kind.__name__,), **settings}
    config = dataclasses.replace(model.config, **names)
    module = kind(config)
    params = drawn(module, np.ones((1, 2), np.int32))
    return dataclasses.replace(model, module=module, params=params, config=config)


LABELLED = [fa.TextPair("the cat is", "the b is", "0", "1"), fa.TextPair("a b", "a c", "1", "0")]


@pytest.mark.slow
def test_an_encoder_reads_its_label_from_the_first_position(bert: Any) -> None:
    model = classifier(bert, BertForSequenceClassification)
    request = fa.PatchRequest(method="knockout", metric="logit")
    (effects,) = fa.patch(model, LABELLED, request, controls=0).effects
    given = dict(model.read([LABELLED[0].clean]).given)
    given.pop("key_classes", None)

    def logit(*changes: fa.Intervention) -> Any:
        return model.module.apply(fa.with_interventions(model.params, changes), **given).logits

    change = fa.Intervention("scores", -np.inf, layers=(0,), heads=(1,), positions=(0,))
    expected = float(logit(change)[0, 0] - logit()[0, 0])
    assert effects.each[0, 1, 0, 0] == pytest.approx(expected, abs=1e-5) != 0


@pytest.mark.slow
def test_an_encoder_that_reads_its_label_everywhere_has_no_query_to_knock_out(modern: Any) -> None:
    kind = ModernBertForSequenceClassification
    model = classifier(modern, kind, classifier_pooling="mean")
    request = fa.PatchRequest(method="knockout", metric="logit")
    with pytest.raises(InputError) as raised:
        fa.patch(model, [LABELLED[1], LABELLED[1]], request)
    first, second = str(raised.value).splitlines()
    assert first == "'m' answers from the mean of all positions, not from one of them."
    assert second == "Choose another method."
    request = fa.PatchRequest(positions="segment", by="layer", metric="logit")
    report = fa.patch(model, [LABELLED[1], LABELLED[1]], request, controls=0)
    assert (report.effects[0].each[..., report.positions.index("answered"), :] == 0).all()
