# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Norms, effective attention, gradients and value zeroing of every family, against the model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.attribution import attribution_maps
from flaxattn.kernels.contract import Capture
from flaxattn.models.interventions import Intervention
from flaxattn.models.task_heads import BertForMaskedLM
from flaxattn.pretrained.head_projections import output_projections
from flaxattn.pretrained.pretrained_encoders import PretrainedBert

pytestmark = pytest.mark.slow

TEXT, TARGET = "the cat is sad .", "a b c"
SIDES = {"bert": ["encoder"], "gpt2": ["decoder"], "seq2seq": ["encoder", "decoder", "cross"]}
FAMILIES = ["bert", *(pytest.param(n, marks=pytest.mark.slow) for n in ("gpt2", "seq2seq"))]


def given(family):
    return (TEXT, TARGET) if family == "seq2seq" else (TEXT,)


def traced(model, family, **kept):
    trace = model.trace(*given(family), capture=Capture(weights=True, **kept))
    return trace[0].sides


@pytest.mark.parametrize("family", FAMILIES)
def test_norms_and_effective_attention(request, family):
    model = request.getfixturevalue(family)
    norms = fa.attention_norms(model, *given(family))
    effective = fa.effective_attention(model, *given(family))
    assert list(norms) == list(effective) == SIDES[family]
    projections = output_projections(model)
    for side, attention in traced(model, family, value=True).items():
        weights, value = np.asarray(attention.weights)[:, 0], np.asarray(attention.value)[:, 0]
        vectors = np.einsum("lkhd,lhde->lhke", value, projections[side])
        lengths = np.linalg.norm(weights[..., None] * vectors[:, :, None], axis=-1)
        np.testing.assert_allclose(norms[side][0], lengths, rtol=1e-3, atol=1e-5)
        found = np.einsum("lhqk,lkhd->lqhd", effective[side][0], value)
        np.testing.assert_allclose(found, np.einsum("lhqk,lkhd->lqhd", weights, value), atol=1e-4)


def with_head(bert):
    """The small BERT with the head of a masked language model."""
    module = BertForMaskedLM(bert.config)
    rng = np.random.default_rng(3)
    shapes = jax.eval_shape(module.init, jax.random.key(0), np.ones((1, 2), np.int32))["params"]
    params = jax.tree.map(lambda s: rng.normal(0, 0.3, s.shape).astype(np.float32), shapes)
    return PretrainedBert(module, params, bert.tokenizer, bert.config, "b")


def test_gradients_are_slopes_of_the_loss_in_the_output_of_a_head(bert):
    """Rows of a head add up to the slope in a factor on what it puts out."""
    model = with_head(bert)
    found = fa.attention_gradients(model, TEXT, seed=4)["encoder"][0]
    task = fa.head_task(model, [TEXT], batch=1, seed=4)
    batch = task.batches[0].given

    def loss(mask):
        return task.losses(task.params, batch, {"head_mask": mask}).sum()

    slopes = jax.grad(loss)(jnp.ones((2, 2)))
    np.testing.assert_allclose(found.sum((-1, -2)), slopes, atol=2e-5, rtol=1e-3)
    assert found.shape == (2, 2, 7, 7) and np.abs(found).max() > 1e-4


@pytest.mark.slow
def test_gradients_of_an_encoder_decoder(seq2seq):
    found = fa.attention_gradients(seq2seq, [TEXT, "a"], [TARGET, "b c"])
    task = fa.head_task(seq2seq, [TEXT], [TARGET], batch=1)
    ones = {name: jnp.ones(size) for name, size in task.sizes.items()}

    def loss(masks):
        return task.losses(task.params, task.batches[0].given, masks).sum()

    slopes = jax.grad(loss)(ones)
    names = {
        "encoder": "head_mask",
        "decoder": "decoder_head_mask",
        "cross": "cross_attn_head_mask",
    }
    for side, name in names.items():
        assert len(found[side]) == 2
        np.testing.assert_allclose(found[side][0].sum((-1, -2)), slopes[name], atol=2e-5, rtol=1e-3)
    assert found["cross"][1].shape[-2:] == (3, 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_value_zeroing_is_the_model_with_values_left_out(request, family):
    model = request.getfixturevalue(family)
    found = fa.value_zeroing(model, *given(family))
    assert list(found) == SIDES[family]
    for side, attention in traced(model, family).items():
        (maps,) = found[side]
        layers, _, _, queries, keys = np.shape(attention.weights)
        assert maps.shape == (layers, 1, queries, keys)
        np.testing.assert_allclose(maps.sum(-1), 1, atol=1e-6)
        assert (maps >= 0).all()
        if side == "decoder":
            assert not np.triu(maps[:, 0], 1).any(), "what is not seen cannot be missed"
            np.testing.assert_allclose(maps[:, 0, 0, 0], 1)


def test_zeroing_every_value_of_a_layer_is_silencing_its_heads(bert):
    given_ = bert.read([TEXT]).rows()[0].padded(bert.limit)
    module = bert.module.clone(capture=attribution_maps._OUTPUTS, keep_hidden=True)
    out, state = attribution_maps._run(module, bert.params, given_)
    record = attribution_maps.Trace.from_variables(state).encoder
    lost = Intervention("head_output", -record.head_output[1], layers=(1,), operation="add")
    changed, again = attribution_maps._run(module, bert.params, given_, [lost])
    mask = np.ones((2, 2), np.float32)
    mask[1] = 0
    silent = bert.module.clone(keep_hidden=True).apply(
        {"params": bert.params}, **given_, head_mask=mask
    )
    np.testing.assert_allclose(changed.hidden_states[2], silent.hidden_states[2], atol=1e-5)
    np.testing.assert_allclose(changed.hidden_states[1], out.hidden_states[1], atol=1e-6)
    same = attribution_maps.Trace.from_variables(again).encoder
    np.testing.assert_allclose(same.head_output[0], record.head_output[0], atol=1e-5)
    assert not np.asarray(same.head_output[1]).any(), "the record holds what acted"


@pytest.mark.parametrize("positions", [1, 40, 100])
def test_value_zeroing_in_parts_is_that_of_all_copies_at_once(
    bert, monkeypatch: pytest.MonkeyPatch, positions: int
) -> None:
    text = "the cat and the dog"
    monkeypatch.setattr(attribution_maps, "COPIES", 10**9)
    whole = fa.value_zeroing(bert, text)["encoder"][0]
    monkeypatch.setattr(attribution_maps, "COPIES", positions)
    # Measured: 1.07e-6 where each copy runs alone, in which XLA sums in another order.
    np.testing.assert_allclose(fa.value_zeroing(bert, text)["encoder"][0], whole, atol=5e-6)
