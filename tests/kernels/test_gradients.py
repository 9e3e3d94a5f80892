# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients through the output and through every statistic agree with finite differences.

All in float64, with dropout, masks and a bias at once. Gradients in float32 are compared with
those of the reference in test_conformance.py.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.benchmarks import cases
from flaxattn.kernels import attention as door
from flaxattn.kernels.contract import Capture, Dropout

# 66 rows make two blocks of 33 in the chunked path.
CASE = cases.Case("gradients", 66, batch=1, heads=2, depth=4, padding=True, bias="HQK", sinks=True)
INDICES = ("argmax", cases.STRONGEST)
CAPTURE = Capture(stats=tuple(item for item in cases.STATISTICS if item not in INDICES))
RESULTS = sorted({"output", *CAPTURE.keys} - {"topk_indices"})
STEP = 1e-5


def results(arrays, fixed, implementation):
    """One number for the output and for every statistic: [R], ordered as RESULTS."""
    output, captured = door.attention(
        **arrays, **fixed, capture=CAPTURE, implementation=implementation
    )
    named = {**captured.stats, "output": output}
    flat = [named[name].ravel() for name in RESULTS]
    return jnp.stack([x @ jnp.cos(jnp.arange(x.size, dtype=x.dtype)) for x in flat])


@functools.cache
def derivatives(implementation):
    """Analytic and numeric derivatives of RESULTS along one direction of each input."""
    with jax.enable_x64(True):
        arguments = CASE.arguments("float64")
        fixed = {key: arguments[key] for key in ("mask", "causal", "labels")}
        fixed["dropout"] = Dropout(0.2, jax.random.key(3))
        point = {key: arguments[key] for key in ("q", "k", "v", "bias", "sinks")}
        rng = np.random.default_rng(0)
        ways = {key: jnp.asarray(rng.normal(size=x.shape)) for key, x in point.items()}
        call = jax.jit(lambda arrays: results(arrays, fixed, implementation))
        jacobian = jax.jit(jax.jacrev(lambda arrays: results(arrays, fixed, implementation)))(point)
        analytic, numeric = {}, {}
        for key, way in ways.items():
            analytic[key] = np.asarray((jacobian[key] * way[None]).reshape(len(RESULTS), -1).sum(1))
            ahead = call({**point, key: point[key] + STEP * way})
            behind = call({**point, key: point[key] - STEP * way})
            numeric[key] = np.asarray((ahead - behind) / (2 * STEP))
        return analytic, numeric


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("implementation", ["xla", "reference"])
def test_gradient_equals_finite_difference(implementation, name):
    analytic, numeric = derivatives(implementation)
    row = RESULTS.index(name)
    unmoved = {("sinks", "max_score"), ("sinks", "entropy in segment")}
    for key in ("q", "k", "v", "bias", "sinks"):
        if (key != "v" or name == "output") and (key, name) not in unmoved:
            assert abs(numeric[key][row]) > 1e-4, "the direction does not move this result"
        np.testing.assert_allclose(
            analytic[key][row], numeric[key][row], rtol=1e-6, atol=2e-7, err_msg=key
        )


def grad_of(name, bias, implementation, **options):
    """Gradient of one statistic's first row with respect to the scores."""

    def value(bias):
        q = jnp.zeros((1, bias.shape[2], 1, 4))
        _, captured = door.attention(
            q,
            q,
            q,
            bias=bias,
            capture=Capture(stats=(name,)),
            implementation=implementation,
            **options,
        )
        key = "topk_weights" if name.startswith("topk") else name
        return captured.stats[key][0, 0, 0].sum()

    return np.asarray(jax.jit(jax.grad(value))(bias))[0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["xla", "reference"])
def test_the_first_of_equal_scores_gets_the_gradient_of_max(implementation):
    found = grad_of("max", jnp.zeros((1, 1, 4, 4)), implementation)
    np.testing.assert_allclose(found, np.array([3, -1, -1, -1]) / 16, atol=1e-7)
    found = grad_of("topk(2)", jnp.zeros((1, 1, 4, 4)), implementation)
    np.testing.assert_allclose(found, np.array([1, 1, -1, -1]) / 8, atol=1e-7)


@pytest.mark.few("entropy-xla")
@pytest.mark.parametrize("implementation", ["xla", "reference"])
@pytest.mark.parametrize("name", ["lse", "entropy", "max", "topk(2)", "distance", "sum_sq"])
def test_a_fully_masked_row_has_gradient_zero(implementation, name):
    mask = jnp.zeros((1, 4), bool)
    found = grad_of(name, jnp.ones((1, 1, 4, 4)), implementation, mask=mask)
    np.testing.assert_array_equal(found, 0)


@pytest.mark.few("xla")
@pytest.mark.parametrize("implementation", ["xla", "reference"])
def test_garbage_behind_the_mask_reaches_no_gradient(implementation):
    case = cases.Case("garbage", 66, padding=True, garbage=True, depth=4)
    arguments = case.arguments()
    fixed = {key: arguments[key] for key in ("mask", "causal", "labels")}

    @jax.jit
    def gradients(arrays):
        return jax.grad(lambda arrays: results(arrays, fixed, implementation).sum())(arrays)

    found = gradients({key: arguments[key] for key in "qkv"})
    masked = ~np.asarray(arguments["mask"])
    for key in "kv":
        assert masked.any() and not np.asarray(found[key])[masked].any(), key
    assert all(np.isfinite(value).all() for value in found.values())
