# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What weights do to a layer's output, against sums over keys and on a model's own layer."""

import functools
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from flaxattn.attribution.contributions import (
    effective_attention,
    gradient_times_weights,
    norm_weights,
    norm_weights_of_layer,
    value_zeroing,
    weighed_vectors,
)
from flaxattn.errors import InputError
from flaxattn.kernels.attention import attention
from flaxattn.kernels.contract import Capture
from flaxattn.models.bert import Bert, BertLayer
from flaxattn.models.encoder_config import BertConfig
from flaxattn.models.layers import FeedForward
from flaxattn.pretrained.head_projections import output_projections
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.trace.trace import Trace

IDS = np.array([[3, 5, 7, 9, 11, 4]], np.int32)
CONFIG = BertConfig(
    vocab_size=13,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=8,
)


def drawn(seed: int, heads: int = 2, queries: int = 5, depth: int = 3, width: int = 4) -> Any:
    """Weights [H, Q, K], values [K, H, D] and a projection [H, D, E]."""
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.full(queries, 0.5), size=(heads, queries))
    value = random.standard_normal((queries, heads, depth))
    return weights, value, random.standard_normal((heads, depth, width))


@hypothesis.given(st.integers(0, 10**6))
def test_norms_are_those_of_the_vectors_written_out(seed: int) -> None:
    weights, value, projection = drawn(seed)
    vectors = weighed_vectors(value, projection)
    each = np.zeros((2, 5, 5, 4))
    for h, i, j in np.ndindex(2, 5, 5):
        each[h, i, j] = weights[h, i, j] * (value[j, h] @ projection[h])
    lengths = norm_weights(weights, vectors)
    np.testing.assert_allclose(lengths, np.linalg.norm(each, axis=-1), atol=1e-12)
    together = norm_weights_of_layer(weights, vectors)
    np.testing.assert_allclose(together, np.linalg.norm(each.sum(0), axis=-1), atol=1e-6)
    assert (together <= lengths.sum(0) + 1e-6).all(), "heads may cancel, not more"
    np.testing.assert_allclose(norm_weights(weights, 3 * vectors), 3 * lengths)


@hypothesis.given(st.integers(0, 10**6), st.integers(1, 7))
def test_effective_attention_has_the_same_output_and_is_the_smallest(seed: int, depth: int) -> None:
    weights, value, _ = drawn(seed, depth=depth)
    values = value.swapaxes(0, 1)
    found = effective_attention(weights, values)
    np.testing.assert_allclose(found @ values, weights @ values, atol=1e-9)
    assert np.linalg.norm(found) <= np.linalg.norm(weights) + 1e-9
    np.testing.assert_allclose(effective_attention(found, values), found, atol=1e-9)
    for head in range(2):
        nothing = scipy.linalg.null_space(values[head].T)
        assert nothing.shape[1] == max(0, 5 - depth)
        moved = weights[head] + np.random.default_rng(seed).standard_normal(
            (5, nothing.shape[1])
        ) @ (nothing.T)
        again = effective_attention(moved, values[head])
        np.testing.assert_allclose(again, found[head], atol=1e-8)
        np.testing.assert_allclose(found[head] @ nothing, 0, atol=1e-9)


def test_deep_heads_have_nothing_to_leave_out() -> None:
    weights, value, _ = drawn(1, depth=9)
    np.testing.assert_allclose(effective_attention(weights, value.swapaxes(0, 1)), weights)


@pytest.mark.slow
def test_gradient_times_weights_is_that_of_jax() -> None:
    """The gradient of a loss with respect to the weights themselves."""
    weights, value, _ = drawn(4)
    weights, value = jnp.asarray(weights, jnp.float32), jnp.asarray(value, jnp.float32)

    def loss(output: Any) -> Any:
        return (jnp.sin(output) * jnp.arange(1.0 * output.size).reshape(output.shape)).sum()

    def of_weights(weights: Any) -> Any:
        return loss(jnp.einsum("hqk,khd->qhd", weights, value))

    output = jnp.einsum("hqk,khd->qhd", weights, value)
    gradient = jax.grad(loss)(output)
    found = gradient_times_weights(np.asarray(weights), np.asarray(value), np.asarray(gradient))
    np.testing.assert_allclose(found, weights * jax.grad(of_weights)(weights), rtol=2e-4, atol=1e-4)
    slopes = np.asarray((gradient * output).sum(-1)).T
    np.testing.assert_allclose(found.sum(-1), slopes, rtol=1e-3, atol=1e-3)


@functools.cache
def seen() -> Any:
    """A model whose every parameter matters, and the trace of a text."""
    module = Bert(CONFIG)
    params = jax.jit(module.init)(jax.random.key(0), IDS)["params"]
    noisy = jax.tree.map(
        lambda a: a + 0.3 * np.random.RandomState(a.size).standard_normal(a.shape).astype("f"),
        params,
    )
    model = PretrainedBert(module, noisy, None, CONFIG, "small")
    capture = Capture(weights=True, value=True, head_output=True)
    module = module.clone(capture=capture, keep_hidden=True)
    apply = jax.jit(functools.partial(module.apply, mutable=["intermediates"]))
    out, state = apply({"params": noisy}, IDS)
    return model, out, Trace.from_variables(state).encoder


@pytest.mark.slow
def test_vectors_of_a_model_add_up_to_what_its_attention_puts_out() -> None:
    model, _, record = seen()
    projections = output_projections(model)["encoder"]
    assert projections.shape == (2, 4, 4, 16)
    vectors = weighed_vectors(np.asarray(record.value), projections[:, None])
    summed = np.einsum("lbhqk,lbhke->lbqe", record.weights, vectors)
    output = model.params["encoder"]["layers"]["attention"]["output"]["kernel"]
    heads = np.asarray(record.head_output).reshape(2, 1, 6, 16)
    np.testing.assert_allclose(summed, np.einsum("lbqi,lie->lbqe", heads, output), atol=1e-4)


@pytest.mark.slow
def test_projections_of_heads_that_are_gone_are_zero() -> None:
    model, _, _ = seen()
    whole, less = (output_projections(m)["encoder"] for m in (model, model.prune([(0, 2)])))
    assert not less[0, 2].any()
    less[0, 2] = whole[0, 2]
    np.testing.assert_array_equal(less, whole)


def test_value_zeroing_is_the_layer_with_a_value_of_zero() -> None:
    """Against the layer run anew for every key, its values set to zero in the attention itself."""
    model, out, record = seen()
    projections = output_projections(model)["encoder"][0]
    layer = jax.tree.map(lambda leaf: leaf[0], model.params["encoder"]["layers"])
    x = out.hidden_states[0]
    bias = layer["attention"]["output"]["bias"][None]

    @jax.jit
    def finish(attended: Any) -> Any:
        y = normed(x[0] + attended, layer["attention_norm"])
        fed = FeedForward(24, "gelu").apply({"params": layer["feed_forward"]}, y)
        return normed(y + fed, layer["feed_forward_norm"])

    def layer_with(kept: Any) -> Any:
        parts = (layer["attention"][name] for name in ("query", "key", "value"))
        q, k, v = ((x[0] @ p["kernel"] + p["bias"][None]).reshape(1, 6, 4, 4) for p in parts)
        heads, _ = attention(q, k, v * kept[None, :, None, None], implementation="reference")
        return finish(jnp.einsum("bqhd,hde->qe", heads, projections) + bias)

    block = jax.jit(BertLayer(CONFIG).apply)({"params": layer}, x)
    kept = np.concatenate([np.ones((1, 6)), 1 - np.eye(6)]).astype(np.float32)
    whole, *without = jax.jit(jax.vmap(layer_with))(kept)
    np.testing.assert_allclose(whole, block[0], atol=2e-5)
    distances = np.stack([1 - cosine(block[0], one) for one in without], 1)
    vectors = weighed_vectors(np.asarray(record.value)[0, 0], projections)
    attended = np.einsum("hqk,hke->qe", record.weights[0, 0], vectors) + bias
    found = value_zeroing(np.asarray(record.weights[0, 0]), vectors, np.asarray(attended), finish)
    expected = distances / distances.sum(-1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=5e-3)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)


def normed(x: Any, params: Any) -> Any:
    x = x - x.mean(-1, keepdims=True)
    return (
        x / jnp.sqrt((x**2).mean(-1, keepdims=True)) * params["scale"][None] + params["bias"][None]
    )


def cosine(a: Any, b: Any) -> Any:
    lengths = jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1)
    return np.asarray((a * b).sum(-1) / lengths)


def test_values_that_nobody_attends_to_change_nothing() -> None:
    weights, value, projection = drawn(2)
    weights[..., 3] = 0
    vectors = weighed_vectors(value, projection)
    attended = np.einsum("hqk,hke->qe", weights, vectors)
    found = value_zeroing(weights, vectors, attended, lambda y: y + 1)
    assert (found[:, 3] < 1e-9).all() and (found[:, 2] > 1e-3).all()
    assert not value_zeroing(weights * 0, vectors, attended, lambda y: y + 1).any()


def test_what_does_not_fit() -> None:
    weights, value, projection = drawn(0)
    vectors = weighed_vectors(value, projection)
    calls = {
        "the projection has": lambda: weighed_vectors(value, projection[:, :2]),
        "not of the same heads and keys": lambda: norm_weights(weights[..., :3], vectors),
        "expected|Expected": lambda: effective_attention(weights[:1], vectors),
    }
    for words, call in calls.items():
        with pytest.raises(InputError, match=words) as caught:
            call()
        assert len(str(caught.value).splitlines()) <= 3
