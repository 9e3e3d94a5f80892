# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of tokens from maps of any kind, written out for small arrays."""

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.attribution.faithfulness import MAP_KINDS
from flaxattn.errors import InputError
from flaxattn.trace.trace import Trace

RNG = np.random.default_rng(3)
MAPS = RNG.dirichlet(np.ones(4), (3, 2, 4))  # [L, H, Q, K]
BOTH = {
    "encoder": RNG.dirichlet(np.ones(4), (2, 2, 4)),
    "decoder": RNG.dirichlet(np.ones(3), (2, 2, 3)),
    "cross": RNG.dirichlet(np.ones(4), (2, 2, 3)),
}


def test_the_last_layer_and_sums():
    np.testing.assert_allclose(
        fa.token_scores("attention", {"encoder": MAPS}, 2), MAPS[2, :, 2].mean(0)
    )
    np.testing.assert_allclose(
        fa.token_scores("effective", {"encoder": MAPS}, None), MAPS[2].mean((0, 1))
    )
    np.testing.assert_allclose(
        fa.token_scores("gradient", {"encoder": -MAPS}, 0), -MAPS.sum((0, 1, 2))
    )
    np.testing.assert_allclose(
        fa.token_scores("chefer", {"decoder": MAPS[:, :1]}, 1), MAPS[2, 0, 1]
    )


def test_rollout_is_that_of_the_trace():
    trace = Trace.from_arrays(weights=MAPS[:, None].astype(np.float32), tokens=[list("abcd")])
    found = fa.token_scores("rollout", {"encoder": MAPS}, 3)
    np.testing.assert_allclose(found, fa.rollout(trace)[-1, 3], atol=1e-6)


def test_norms_are_shares_before_they_are_rolled_out():
    found = fa.token_scores("norm", {"encoder": 7 * MAPS}, 3)
    np.testing.assert_allclose(found, fa.token_scores("rollout", {"encoder": MAPS}, 3))


def test_zeroed_values_have_no_residual():
    means = MAPS.mean(1)
    expected = means[2] @ means[1] @ means[0]
    np.testing.assert_allclose(fa.token_scores("zeroing", {"encoder": MAPS}, 0), expected[0])
    silent = np.zeros_like(MAPS)
    np.testing.assert_array_equal(fa.token_scores("zeroing", {"encoder": silent}, 0), np.zeros(4))


def test_an_encoder_decoder_scores_its_source():
    np.testing.assert_allclose(
        fa.token_scores("attention", BOTH, 1), BOTH["cross"][-1, :, 1].mean(0)
    )
    summed = BOTH["encoder"].sum((0, 1, 2)) + BOTH["cross"].sum((0, 1, 2))
    np.testing.assert_allclose(fa.token_scores("relevance", BOTH, 1), summed)


def test_rollout_through_encoder_and_decoder_is_that_of_one_joint_stack():
    """Source and target as one sequence: each half layer is a matrix over all positions."""
    source, target = 4, 3
    state = np.eye(source + target)
    for layer in BOTH["encoder"].mean(1):
        mix = np.eye(source + target)
        mix[:source, :source] = (layer + np.eye(source)) / 2
        state = mix @ state
    for own, across in zip(BOTH["decoder"].mean(1), BOTH["cross"].mean(1), strict=True):
        mix = np.eye(source + target)
        mix[source:, source:] = (own + np.eye(target)) / 2
        state = mix @ state
        mix = np.eye(source + target)
        mix[source:, source:] = np.eye(target) / 2
        mix[source:, :source] = across / 2
        state = mix @ state
    found = fa.token_scores("rollout", BOTH, 2)
    np.testing.assert_allclose(found, state[source + 2, :source])


def test_what_is_not_defined_is_refused():
    with pytest.raises(InputError, match=f"Choose one of {', '.join(MAP_KINDS)}"):
        fa.token_scores("saliency", {"encoder": MAPS}, 0)
    with pytest.raises(InputError, match="Attention flow is that of one stack"):
        fa.token_scores("flow", BOTH, 0)
