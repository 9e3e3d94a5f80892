# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What heads are worth, against losses computed one by one and against difference quotients.

The arithmetic is checked on a task of one line whose answers are known; on models it is compared
with calls under each mask.
"""

import functools
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.attribution.ablation import HeadEffects
from flaxattn.attribution.head_losses import HeadTask, LossBatch
from flaxattn.errors import InputError
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained

SIZES = {"head_mask": (2, 3), "cross_attn_head_mask": (1, 2)}
VALUES = np.array([[1.0, -2, 0, 3, 0.5, -1, 4, 0.25]] * 2) * [[1], [3]]  # of two texts, by head


def linear(params: Any, given: Any, masks: Any) -> Any:
    """The loss of a text is 7 minus what its heads are worth, each times its factor."""
    del params
    rows = []
    for name, size in SIZES.items():
        mask = masks[name]
        mask = jnp.broadcast_to(mask[:, None], (size[0], 2, size[1])) if mask.ndim == 2 else mask
        rows.append(mask.swapaxes(0, 1).reshape(2, -1))
    return 7 - (jnp.concatenate(rows, 1) * given["worth"]).sum(1)


def task(texts: int = 2) -> HeadTask:
    batch = LossBatch({"worth": VALUES.astype(np.float32)}, texts)
    return HeadTask(SIZES, [batch, batch], linear, None)


def flat(values: Any) -> np.ndarray:
    return np.concatenate([values[name].ravel() for name in SIZES])


def test_ablation_shows_by_how_much_the_loss_grows() -> None:
    seen: list[int] = []
    effects = fa.ablate(task(), seen.append)
    np.testing.assert_allclose(flat(effects.means), VALUES.mean(0), atol=1e-5)
    four = np.concatenate([VALUES, VALUES])
    np.testing.assert_allclose(flat(effects.errors), four.std(0, ddof=1) / 2, atol=1e-5)
    assert effects.loss == pytest.approx(7 - VALUES.sum(1).mean(), abs=1e-5)
    assert effects.texts == 4 and seen == [2, 2]
    (best, mean, error), *_, (worst, _, _) = effects.ranked()
    assert best == ("cross_attn_head_mask", 0, 0) and worst == ("head_mask", 0, 1)
    assert mean == pytest.approx(8) and error > 0


def test_importance_is_the_size_of_the_slope_of_each_text() -> None:
    effects = fa.head_importance(task())
    np.testing.assert_allclose(flat(effects.means), np.abs(VALUES).mean(0), atol=1e-5)
    normed = effects.by_layer()
    norms = np.linalg.norm(normed.means["head_mask"], axis=1)
    np.testing.assert_allclose(norms, 1, atol=1e-6)
    ratio = effects.errors["head_mask"] / effects.means["head_mask"].clip(1e-9)
    again = normed.errors["head_mask"] / normed.means["head_mask"].clip(1e-9)
    np.testing.assert_allclose(again[ratio > 0], ratio[ratio > 0])


def test_rows_that_fill_a_batch_do_not_count() -> None:
    effects = fa.ablate(task(texts=1))
    np.testing.assert_allclose(flat(effects.means), VALUES[0], atol=1e-5)
    assert effects.texts == 2
    one = fa.ablate(HeadTask(SIZES, task(texts=1).batches[:1], linear, None))
    assert np.isnan(flat(one.errors)).all()


def test_the_curve_removes_the_least_first() -> None:
    effects = fa.ablate(task())
    points = fa.pruning_curve(task(), effects, share=0.25)
    assert [p.removed for p in points] == [0, 2, 4, 6, 8]
    assert [p.share for p in points] == [0, 0.25, 0.5, 0.75, 1]
    order = np.sort(VALUES.mean(0))
    expected = [effects.loss + order[:n].sum() for n in (0, 2, 4, 6, 8)]
    np.testing.assert_allclose([p.loss for p in points], expected, atol=1e-4)
    heads = [head for head, _, _ in effects.ranked()]
    other = fa.pruning_curve(task(), heads, share=1)
    assert [p.removed for p in other] == [0, 8]


@pytest.mark.slow
@hypothesis.given(st.permutations(range(8)), st.floats(0.01, 1))
def test_any_order_begins_whole_and_ends_with_nothing(order: list[int], share: float) -> None:
    heads = [head for head, _, _ in EFFECTS.ranked()]
    points = fa.pruning_curve(task(), [heads[n] for n in order], share)
    assert points[0].loss == pytest.approx(7 - VALUES.sum(1).mean(), abs=1e-4)
    assert points[-1].loss == pytest.approx(7, abs=1e-4)
    counts = [p.removed for p in points]
    assert counts == sorted(set(counts)) and counts[-1] == 8


EFFECTS = HeadEffects(
    "ablation",
    {name: np.zeros(size) for name, size in SIZES.items()},
    {name: np.zeros(size) for name, size in SIZES.items()},
    loss=0.0,
    texts=1,
)


@pytest.mark.parametrize(
    ("order", "share", "words"),
    [
        ([("head_mask", 0, 0)], 0.1, "each of 8 heads once, received 1"),
        ([("head_mask", 0, 0)] * 8, 0.1, "each of 8 heads once"),
        (EFFECTS, 0.0, "share is 0.0"),
        (EFFECTS, 1.5, "share is 1.5"),
    ],
)
def test_a_curve_that_cannot_be_drawn(order: Any, share: float, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        fa.pruning_curve(task(), order, share)
    assert len(str(caught.value).splitlines()) <= 3


# -- on models ---------------------------------------------------------------------------------

TEXTS = ["the cat is sad", "food", "a dog could not find the food it likes to eat"]


@functools.cache
def model(name: str = "tiny-bert", head: str | None = "BertForMaskedLM") -> Pretrained:
    return fa.from_pretrained(name, head=head)


@pytest.fixture(scope="module")
def masked_lm() -> HeadTask:
    return fa.head_task(model(), TEXTS, batch=2, seed=3)


def test_a_masked_language_model_is_judged_by_what_was_masked(masked_lm: HeadTask) -> None:
    """A seventh of the pieces, at least one and none that the model adds."""
    first = masked_lm.batches[0].given
    tokenizer = model().tokenizer
    assert tokenizer is not None
    plain = np.isin(first["targets"], [tokenizer.cls_id, tokenizer.sep_id, 0], invert=True)
    assert (first["chosen"].sum(1) == 1).all() and plain[first["chosen"]].all()
    assert (first["input_ids"][first["chosen"]] == tokenizer.mask_id).all()
    same = first["input_ids"] == first["targets"]
    np.testing.assert_array_equal(same, ~first["chosen"])
    assert [batch.texts for batch in masked_lm.batches] == [2, 1]
    again = fa.head_task(model(), TEXTS, batch=2, seed=3).batches[0].given
    np.testing.assert_array_equal(again["chosen"], first["chosen"])


def test_effects_are_those_of_calls_one_by_one(masked_lm: HeadTask) -> None:
    """A few heads of the built-in model, each by a call with its mask."""
    effects = fa.ablate(masked_lm)
    base, without = [], {(0, 0): [], (1, 3): [], (3, 2): []}
    for batch in masked_lm.batches:
        base.append(called(batch))
        for head, found in without.items():
            mask = np.ones((4, 4), np.float32)
            mask[head] = 0
            found.append(called(batch, head_mask=mask))
    assert effects.loss == pytest.approx(np.concatenate(base).mean(), abs=1e-4)
    for head, found in without.items():
        expected = (np.concatenate(found) - np.concatenate(base)).mean()
        assert effects.means["head_mask"][head] == pytest.approx(expected, abs=2e-4)


def called(batch: LossBatch, **masks: Any) -> np.ndarray:
    """Losses of the texts of a batch, from a call of the model."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    logits = np.asarray(model()(**{n: batch.given[n] for n in names}, **masks).logits, np.float64)
    logits -= logits.max(-1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    each = -np.take_along_axis(logs, np.asarray(batch.given["targets"])[..., None], -1)[..., 0]
    chosen = np.asarray(batch.given["chosen"])
    return ((each * chosen).sum(1) / chosen.sum(1))[: batch.texts]


@pytest.mark.slow
def test_importance_is_the_difference_quotient(masked_lm: HeadTask) -> None:
    """Through the kernel's backward pass, against losses a little above and below."""
    step, head = 2e-2, (1, 3)
    effects = fa.head_importance(masked_lm)
    slopes = []
    for batch in masked_lm.batches:
        masks = [np.ones((4, 4), np.float32) for _ in range(2)]
        for sign, mask in zip((1, -1), masks, strict=True):
            mask[head] += sign * step
        up, down = (called(batch, head_mask=mask) for mask in masks)
        slopes.append((up - down) / (2 * step))
    expected = np.abs(np.concatenate(slopes)).mean()
    assert effects.means["head_mask"][head] == pytest.approx(expected, rel=2e-2, abs=1e-4)


@pytest.mark.slow
def test_a_language_model_is_judged_by_every_token_after_the_first() -> None:
    whole = model("tiny-gpt2", None)
    judged = fa.head_task(whole, TEXTS[::2], batch=2)
    (batch,) = judged.batches
    ones = {name: jnp.ones(size) for name, size in judged.sizes.items()}
    losses = judged.losses(judged.params, batch.given, ones)
    for row, text in enumerate(TEXTS[::2]):
        assert whole.tokenizer is not None
        ids = np.array(whole.tokenizer.encode(text).input_ids)
        logs = jax.nn.log_softmax(whole(ids).logits[0])
        each = [-float(logs[n, ids[0, n + 1]]) for n in range(ids.shape[1] - 1)]
        assert float(losses[row]) == pytest.approx(np.mean(each), abs=1e-3)


@pytest.mark.slow
def test_a_classifier_is_judged_by_its_labels() -> None:
    whole = classifier()
    judged = fa.head_task(whole, TEXTS, labels=[1, 0, 2], batch=4)
    (batch,) = judged.batches
    ones = {name: jnp.ones(size) for name, size in judged.sizes.items()}
    losses = np.asarray(judged.losses(judged.params, batch.given, ones))[:3]
    names = ("input_ids", "attention_mask", "token_type_ids")
    logits = whole(**{name: batch.given[name] for name in names}).logits[:3]
    expected = -jax.nn.log_softmax(logits)[jnp.arange(3), jnp.array([1, 0, 2])]
    np.testing.assert_allclose(losses, expected, atol=1e-4)


@functools.cache
def classifier() -> PretrainedBert:
    with pytest.warns(UserWarning, match="freshly initialised"):
        return fa.from_pretrained("tiny-bert", "BertForSequenceClassification", num_labels=3)


@pytest.mark.parametrize(
    ("head", "options", "words"),
    [
        ("base", {}, "has no loss"),
        ("BertForMaskedLM", {"labels": [0]}, "labels are for a classifier"),
        ("BertForMaskedLM", {"second": ["a", "b"]}, "1 texts and 2 second texts"),
        ("BertForMaskedLM", {"batch": 0}, "batches of 0"),
        ("classifier", {}, "expected 1, one for each text, received none"),
        ("classifier", {"labels": [3]}, "from 0 to 2, received 3"),
        ("classifier", {"labels": [0.5]}, "received 0.5"),
    ],
)
def test_what_heads_cannot_be_judged_by(head: str, options: dict[str, Any], words: str) -> None:
    whole = classifier() if head == "classifier" else model(head=head)
    with pytest.raises(InputError, match=words) as caught:
        fa.head_task(whole, ["a text"], **options)
    assert len(str(caught.value).splitlines()) <= 3


def test_one_string_and_single_tokens() -> None:
    with pytest.raises(InputError, match="received one text, expected a list"):
        fa.head_task(model(), "a text by itself")
    with pytest.raises(InputError, match=r"Text 1 \(from 0\) is a single token"):
        fa.head_task(model("tiny-gpt2", None), ["two words", "a"])


@pytest.mark.slow
def test_an_encoder_decoder_is_judged_by_its_targets() -> None:
    """Three kinds of heads, each silenced by the mask of its name."""
    whole = fa.from_pretrained("tiny-dates")
    sources, targets = ["May 3, 1999", "12.VII.2010"], ["1999-05-03", "2010-07-12"]
    judged = fa.head_task(whole, sources, targets, batch=2)
    effects, importance = fa.ablate(judged), fa.head_importance(judged)
    assert {name: m.shape for name, m in effects.means.items()} == whole.masks()
    names = ("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask")
    given = {name: judged.batches[0].given[name] for name in names}
    ids, real = np.asarray(given[names[2]])[:, 1:], np.asarray(given[names[3]])[:, 1:]

    def losses(**masks: Any) -> np.ndarray:
        logs = jax.nn.log_softmax(whole(**given, **masks).logits[:, :-1])
        each = -np.take_along_axis(np.asarray(logs), ids[..., None], -1)[..., 0]
        return (each * real).sum(1) / real.sum(1)

    assert effects.loss == pytest.approx(losses().mean(), abs=1e-4)
    for name, (layers, heads) in whole.masks().items():
        mask = np.ones((layers, heads), np.float32)
        mask[1, 2] = 0
        expected = (losses(**{name: mask}) - losses()).mean()
        assert effects.means[name][1, 2] == pytest.approx(expected, abs=1e-3)
        mask[1, 2] = 1.02
        slope = np.abs((losses(**{name: mask}) - losses()) / 0.02).mean()
        assert importance.means[name][1, 2] == pytest.approx(slope, rel=0.2, abs=5e-3)
    with pytest.raises(InputError, match="received sources alone"):
        fa.head_task(whole, sources)
