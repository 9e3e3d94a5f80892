# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The pretraining loss against the same formulas in float64 NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.train.objectives import pretraining_loss, pretraining_totals


def log_softmax(scores: np.ndarray) -> np.ndarray:
    shifted = scores - scores.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def test_both_losses_and_accuracies_equal_a_float64_computation() -> None:
    rng = np.random.default_rng(0)
    words, pairs = rng.normal(size=(3, 4, 11)) * 5, rng.normal(size=(3, 2))
    ids, labels = rng.integers(11, size=(3, 4)), np.array([0, 1, 1])
    weights = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]], float)
    loss, metrics = pretraining_loss(
        jnp.asarray(words, jnp.float32),
        jnp.asarray(pairs, jnp.float32),
        jnp.asarray(ids),
        jnp.asarray(weights, jnp.float32),
        jnp.asarray(labels),
        pretraining_totals(np.ones((3, 6), np.int32), weights),
    )
    nll = -np.take_along_axis(log_softmax(words), ids[..., None], -1)[..., 0]
    mlm = (nll * weights).sum() / (weights.sum() + 1e-5)
    nsp = -log_softmax(pairs)[np.arange(3), labels].mean()
    hits = ((words.argmax(-1) == ids) * weights).sum() / (weights.sum() + 1e-5)
    assert float(metrics["mlm_loss"]) == pytest.approx(mlm, rel=1e-6)
    assert float(metrics["nsp_loss"]) == pytest.approx(nsp, rel=1e-6)
    assert float(loss) == pytest.approx(mlm + nsp, rel=1e-6)
    assert float(metrics["mlm_accuracy"]) == pytest.approx(hits, rel=1e-5)
    assert float(metrics["nsp_accuracy"]) == pytest.approx((pairs.argmax(-1) == labels).mean())


@pytest.mark.slow
def test_bfloat16_scores_are_summed_in_float32() -> None:
    scores = jnp.zeros((1, 1, 4096), jnp.bfloat16)
    zeros = jnp.zeros((1, 1), jnp.int32)
    _, metrics = pretraining_loss(
        scores,
        jnp.zeros((1, 2), jnp.bfloat16),
        zeros,
        jnp.ones((1, 1)),
        jnp.zeros(1, jnp.int32),
        pretraining_totals(np.ones((1, 1), np.int32), np.ones((1, 1))),
    )
    assert metrics["mlm_loss"].dtype == jnp.float32
    assert float(metrics["mlm_loss"]) == pytest.approx(np.log(4096), rel=1e-5)
