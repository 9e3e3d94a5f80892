# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Edits of scores and weights inside attention, against the formulas in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.kernels import attention as door
from flaxattn.kernels.contract import Capture, Edits, Sieve

OPTIONS = ("causal", "capture", "edits", "implementation")
attention = jax.jit(door.attention, static_argnames=OPTIONS)
Q, K, V = (jax.random.normal(jax.random.key(n), (2, 5, 3, 4)) for n in range(3))
EVERYTHING = Capture(weights=True, scores=True, stats=("lse", "entropy", "max", "argmax", "sink"))


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def plain_scores() -> np.ndarray:
    scores = np.einsum("bqhd,bkhd->bhqk", Q, K).astype(np.float64) / 2
    return np.where(np.tri(5, dtype=bool), scores, -np.inf)


@pytest.mark.slow
def test_an_edit_of_scores_comes_before_the_softmax() -> None:
    output, record = attention(
        Q, K, V, causal=True, capture=EVERYTHING, edits=Edits(scores=lambda s: s.at[:, 1].mul(3))
    )
    scores = plain_scores()
    scores[:, 1] *= 3
    weights = softmax(scores)
    np.testing.assert_allclose(record.weights, weights, atol=1e-6)
    np.testing.assert_allclose(record.scores, scores, atol=1e-5)
    np.testing.assert_allclose(output, np.einsum("bhqk,bkhd->bqhd", weights, V), atol=1e-6)
    assert record.implementation == "reference"


def test_a_score_of_minus_infinity_cuts_an_edge() -> None:
    edits = Edits(scores=lambda s: s.at[:, :, 3, 1].set(-jnp.inf))
    output, record = attention(Q, K, V, causal=True, capture=EVERYTHING, edits=edits)
    mask = jnp.broadcast_to(jnp.tri(5, dtype=bool), (2, 3, 5, 5)).at[:, :, 3, 1].set(False)
    expected, other = attention(Q, K, V, mask=mask, capture=EVERYTHING)
    np.testing.assert_allclose(output, expected, atol=1e-6)
    np.testing.assert_allclose(record.weights, other.weights, atol=1e-6)


def test_an_edit_of_weights_comes_before_the_values() -> None:
    even = np.tri(5) / np.arange(1, 6)[:, None]
    edits = Edits(weights=lambda w: w.at[:, 2].set(even))
    output, record = attention(Q, K, V, causal=True, capture=EVERYTHING, edits=edits)
    weights = softmax(plain_scores())
    weights[:, 2] = even
    np.testing.assert_allclose(output, np.einsum("bhqk,bkhd->bqhd", weights, V), atol=1e-6)
    np.testing.assert_allclose(record.weights, weights, atol=1e-6)
    logs = np.log(np.where(weights > 0, weights, 1))
    np.testing.assert_allclose(record.stats["entropy"], -(weights * logs).sum(-1), atol=1e-5)
    np.testing.assert_allclose(record.stats["lse"], 0, atol=1e-5)


def test_statistics_are_those_of_the_edited_weights_beside_a_sink() -> None:
    sinks = jnp.zeros(3)
    edits = Edits(weights=lambda w: w / 2)
    _, plain = attention(Q, K, V, sinks=sinks, capture=EVERYTHING)
    _, record = attention(Q, K, V, sinks=sinks, capture=EVERYTHING, edits=edits)
    np.testing.assert_allclose(record.stats["max"], plain.stats["max"] / 2, atol=1e-6)
    np.testing.assert_array_equal(record.stats["argmax"], plain.stats["argmax"])
    np.testing.assert_array_equal(record.stats["sink"], plain.stats["sink"])
    assert plain.weights is not None
    expected = np.log(plain.weights.sum(-1) / 2 + plain.stats["sink"])
    np.testing.assert_allclose(record.stats["lse"], expected, atol=1e-5)


def test_windows_pairs_and_sieves_see_edited_weights() -> None:
    capture = Capture(
        weights=True, query_window=(1, 3), stats=(Sieve("previous", offsets=(-1, -1)),)
    )
    edits = Edits(weights=lambda w: jnp.zeros_like(w).at[:, :, 1:].set(jnp.eye(5)[:-1]))
    _, record = attention(Q, K, V, causal=True, capture=capture, edits=edits)
    assert record.weights is not None
    np.testing.assert_array_equal(record.weights[0, 0], np.eye(5)[:2])
    np.testing.assert_array_equal(record.stats["previous"][0, 0], [0, 1, 1, 1, 1])


def test_gradients_flow_through_edits() -> None:
    def total(factor: jax.Array) -> jax.Array:
        return attention(Q, K, V, edits=Edits(weights=lambda w: w * factor))[0].sum()

    np.testing.assert_allclose(jax.grad(total)(1.0), attention(Q, K, V)[0].sum(), rtol=1e-5)


@pytest.mark.slow
def test_an_implementation_without_all_scores_refuses_an_edit() -> None:
    with pytest.raises(NotImplementedError) as raised:
        attention(Q, K, V, edits=Edits(scores=lambda s: s), implementation="xla")
    assert str(raised.value) == (
        "attention: implementation 'xla' cannot run this call: edits change scores or weights, of "
        "which it never holds all at once.\nFix: implementation=None chooses, or name reference."
    )
