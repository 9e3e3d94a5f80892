# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Relevance of tokens, heads and weights to predictions, and the slopes it is made of."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_decoders import write_decoder

import flaxattn as fa
from flaxattn.attribution.relevance import (
    TokenScore,
    iterate_relevance,
    predictions,
    recorded,
    slopes_of,
)
from flaxattn.errors import InputError

TEXT, TARGET = "the cat is very sad .", "a b c d"


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    return fa.from_pretrained(write_decoder(tmp_path_factory.mktemp("models") / "gemma"))


FAMILIES = ["modern", *(pytest.param(n, marks=pytest.mark.slow) for n in ("gemma", "t5"))]


def given_texts(family):
    return (TEXT, TARGET) if family == "t5" else (TEXT,)


def explained(model, family):
    first, *second = ([text] for text in given_texts(family))
    return predictions(model, first, *second)[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_inputs_add_up_to_the_logit_and_weights_to_half_of_their_head(request, family):
    model = request.getfixturevalue(family)
    (found,) = fa.relevance(model, *given_texts(family))
    inputs = sum(one.sum() for one in found.tokens.values())
    assert inputs + sum(found.absorbed.values()) == pytest.approx(found.score, abs=1e-3)
    one = found.prediction
    out = jax.jit(model.module.apply)({"params": model.params}, **one.row.given)
    scores = np.asarray(out.logits)[0, one.position]
    assert scores.argmax() == one.target and found.score == pytest.approx(scores.max(), rel=1e-4)
    # Values have the other half, which a factor on what the head puts out counts too.
    for side, maps in found.maps.items():
        assert maps.shape[-2:] == tuple(len(found.tokens[s]) for s in sides_of(side))
        np.testing.assert_allclose(2 * maps.sum((-1, -2)), found.heads[side], rtol=1e-5)


def sides_of(side):
    return ("decoder", "encoder") if side == "cross" else (side, side)


@pytest.mark.slow
def test_heads_have_the_slope_of_a_factor_on_their_output_behind_the_last_attention(modern):
    """Of the last layer, whose heads feed norms and products alone, under the rules."""
    from flaxattn.attribution.relevance import relevance_rules

    (found,) = fa.relevance(modern, TEXT)
    given, score = found.prediction.given(modern.limit), TokenScore(modern.module)

    def logit(mask):
        with relevance_rules():
            return score(modern.params, given, {"head_mask": mask})[0]

    slopes = jax.grad(logit)(jnp.ones((3, 2)))
    np.testing.assert_allclose(found.heads["encoder"], slopes, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_inputs_have_the_slope_of_a_factor_on_them(modern):
    """Without rules: input times gradient is the derivative in a factor on the input."""
    one, score = explained(modern, "modern"), TokenScore(modern.module, log=True)
    given = one.given(modern.limit)
    trace = recorded(modern.module, modern.params, given)
    plain = slopes_of(score, modern.params, given, trace)
    step = 1e-2
    rows = {name: np.repeat(array, 2, axis=0) for name, array in given.items()}
    factors = np.array([1 + step, 1 - step], np.float32)
    up, down = slopes_of(score, modern.params, rows, None, scale=factors).score
    slope = (float(up) - float(down)) / (2 * step)
    assert float(np.sum(plain.tokens["encoder"])) == pytest.approx(slope, rel=2e-2, abs=1e-3)


@pytest.mark.slow
def test_weights_of_a_text_have_the_relevance_to_its_likelihood(modern):
    (maps,) = iterate_relevance(modern, TEXT, seed=4)
    assert list(maps) == ["encoder"] and maps["encoder"].shape[:2] == (3, 2)
    gradients = fa.attention_gradients(modern, TEXT, seed=4)["encoder"][0]
    assert maps["encoder"].shape == gradients.shape
    assert np.abs(maps["encoder"] + gradients / 2).max() > 1e-4  # rules are not derivatives


def test_predictions_of_each_kind_of_model(modern, gemma, seq2seq):
    masked = predictions(modern, [TEXT, TEXT], seed=1)
    assert masked[0].row.metadata.tokens[0][masked[0].position] == "[MASK]"
    assert not masked[0].removable[[0, masked[0].position, -1]].any()
    assert masked[0].position != masked[1].position or masked[0].target == masked[1].target
    after = predictions(gemma, [TEXT])[0]
    assert not after.removable[after.position :].any() and after.removable.sum() >= 2
    source = predictions(seq2seq, [TEXT], [TARGET])[0]
    assert len(source.removable) == len(source.row.metadata.tokens[0])
    assert not source.removable[-1] and source.removable[:-1].all()  # the end of the text stays


def test_what_predicts_nothing_is_refused(bert, modern, rnn):
    with pytest.raises(InputError, match="'b' is a BertModel, which predicts no class or token"):
        fa.relevance(bert, TEXT)
    with pytest.raises(InputError, match="which predicts no class or token"):
        fa.relevance(rnn, TEXT)
    with pytest.raises(InputError, match="labels: expected a class of 0 for each of 1 texts"):
        fa.relevance(modern, TEXT, labels=[1])
    with pytest.raises(InputError, match="2 texts and 1 second texts"):
        predictions(modern, [TEXT, TEXT], [TEXT])
    with pytest.raises(InputError, match="received one text, expected a list"):
        predictions(modern, TEXT)
    with pytest.raises(InputError, match="text 1 is empty"):
        predictions(modern, [TEXT, ""])


@pytest.mark.slow
def test_a_classifier_is_explained_by_its_class(bert):
    from flaxattn.models.task_heads import BertForSequenceClassification

    config = dataclasses.replace(bert.config, architectures=("BertForSequenceClassification",))
    module = BertForSequenceClassification(config)
    rng = np.random.default_rng(7)
    shapes = jax.eval_shape(module.init, jax.random.key(0), np.ones((1, 2), np.int32))["params"]
    params = jax.tree.map(lambda s: rng.normal(0, 0.3, s.shape).astype(np.float32), shapes)
    model = dataclasses.replace(bert, module=module, params=params, config=config)
    (own,) = fa.relevance(model, TEXT)
    (other,) = fa.relevance(model, TEXT, labels=[1 - own.prediction.target])
    assert own.score > other.score and own.prediction.position == 0
    for one in (own, other):
        total = one.tokens["encoder"].sum() + sum(one.absorbed.values())
        assert total == pytest.approx(one.score, abs=1e-3)
