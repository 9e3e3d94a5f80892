# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every implementation gets every case right: output, gradients and everything captured.

Tolerance by comparison, as FlashAttention's tests have it: the error against the reference in
float64 may be at most twice the error that the plain formula makes in the same precision. What
the statistics mean is tested in test_statistics.py, not here.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.kernels import attention as door
from flaxattn.kernels import cases
from flaxattn.kernels.contract import NOTHING, Capture

RUNNABLE = [name for name, reason in door.implementations().items() if reason is None]
NAMES = [case.name for case in cases.CASES]
HALF_NAMES = ["padded 127", "garbage in padding"]
# Asked of every case; statistics by themselves are the subject of test_statistics.py.
SOME = Capture(weights=True, scores=True, stats=("lse", "entropy", "argmax", "received"))
FULL_NAMES = ["few keys", "masked rows", "garbage in padding", "dropout, causal 129"]
# The reference only has to be right: compiling it quickly matters more than its speed.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def plain(q, k, v, mask=None, bias=None, segment_ids=None, causal=False):
    """The formula in the dtype of its inputs, as one would write it in a notebook."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias
    allowed = jnp.ones(scores.shape, bool)
    if mask is not None:
        allowed = allowed & (mask[:, None, None] if mask.ndim == 2 else mask)
    if causal:
        allowed = allowed & jnp.tril(jnp.ones(scores.shape[2:], bool))[None, None]
    if segment_ids is not None:
        of_queries, of_keys = segment_ids
        allowed = allowed & (of_queries[:, None, :, None] == of_keys[:, None, None])
    weights = jax.nn.softmax(jnp.where(allowed, scores, jnp.finfo(scores.dtype).min))
    weights = jnp.where(allowed, weights, 0)
    scores = jnp.where(allowed, scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v), weights, scores


def run_plain(arguments):
    """`plain` without garbage, dropout and labels."""
    wanted = ("q", "k", "v", "mask", "bias", "segment_ids")
    arrays = {name: arguments[name] for name in wanted if name in arguments}
    for name in "kv":
        arrays[name] = jnp.where(jnp.isfinite(arrays[name]), arrays[name], 0)
    call = functools.partial(plain, causal=arguments["causal"])
    return jax.jit(call, compiler_options=QUICK)(**arrays)


def pattern(x):
    """Weights between -1 and 1 that differ from entry to entry."""
    return jnp.cos(jnp.arange(x.size, dtype=x.dtype).reshape(x.shape) * 0.7)


def measure(arguments, implementation, capture=cases.EVERYTHING):
    """(output, intermediates, gradients of a loss over output and statistics), compiled."""
    names = [name for name in ("q", "k", "v", "bias") if name in arguments]
    fixed = {name: value for name, value in arguments.items() if name not in names}

    def loss(arrays):
        output, seen = door.attention(
            **arrays, **fixed, capture=capture, implementation=implementation
        )
        floats = [x for x in (output, *seen.stats.values()) if x.dtype == arrays["q"].dtype]
        total = sum((jnp.where(jnp.isfinite(x), x, 0) * pattern(x)).sum() for x in floats)
        return total, (output, seen)

    options = QUICK if implementation == "reference" else None
    compiled = jax.jit(jax.value_and_grad(loss, has_aux=True), compiler_options=options)
    (_, (output, seen)), gradients = compiled({name: arguments[name] for name in names})
    return jax.tree.map(np.asarray, (output, seen, gradients))


@functools.cache
def measured(name, implementation):
    """`measure` of a case in float32."""
    capture = cases.EVERYTHING if name in FULL_NAMES else SOME
    return measure(cases.case(name).arguments(), implementation, capture)


@functools.cache
def truth(name, dtype="float32", capture=None):
    """The reference in float64, on the numbers that the case has in ``dtype``."""
    arguments = cases.case(name).arguments(dtype)
    capture = capture or (cases.EVERYTHING if name in FULL_NAMES else SOME)
    with jax.enable_x64(True):
        for key in {"q", "k", "v", "bias"} & set(arguments):
            arguments[key] = jnp.asarray(np.asarray(arguments[key], np.float64))
        return measure(arguments, "reference", capture)


def error(result, expected):
    """Largest absolute difference; infinities and NaN must agree exactly."""
    result, expected = np.asarray(result, np.float64), np.asarray(expected, np.float64)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isfinite(result), finite)
    np.testing.assert_array_equal(result[~finite], expected[~finite])
    return np.abs(result[finite] - expected[finite]).max(initial=0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("implementation", RUNNABLE)
def test_output_and_captures_in_float32(implementation, name):
    arguments = cases.case(name).arguments()
    output, seen, _ = measured(name, implementation)
    expected_output, expected, _ = truth(name)
    plain_output, plain_weights, plain_scores = run_plain(arguments)
    # An error of a score is that share of its weight, so scores set the scale of what follows.
    slack = 2 * error(plain_scores, expected.scores) + 1e-6
    assert error(seen.scores, expected.scores) <= slack
    assert (
        error(seen.weights, expected.weights) <= 2 * error(plain_weights, expected.weights) + 1e-7
    )
    if "dropout" not in arguments:
        assert error(output, expected_output) <= 2 * error(plain_output, expected_output) + 1e-6
    assert error(output, expected_output) <= 4 * slack
    assert seen.implementation == implementation
    assert list(seen.stats) == list(expected.stats)
    queries, keys = expected.scores.shape[2:]
    scale = {"distance": max(queries, keys), "received": queries, "entropy": 10}
    for key, value in seen.stats.items():
        if value.dtype == np.int32:
            check_indices(value, expected.scores, slack)
        else:
            assert error(value, expected.stats[key]) <= slack * scale.get(key, 2), key


def check_indices(indices, scores, slack):
    """Each index names a key whose score is as good as the best, up to rounding."""
    indices = indices[..., None] if indices.ndim == 3 else indices
    count = indices.shape[-1]
    best = -np.sort(-scores, axis=-1)[..., :count]
    best = np.pad(best, [(0, 0)] * 3 + [(0, count - best.shape[-1])], constant_values=-np.inf)
    named = np.take_along_axis(scores, np.maximum(indices, 0), axis=-1)
    np.testing.assert_array_equal(indices == -1, best == -np.inf)
    assert error(np.where(indices == -1, -np.inf, named), best) <= 2 * slack


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("implementation", [n for n in RUNNABLE if n != "reference"])
def test_gradients_are_as_good_as_those_of_the_reference(implementation, name):
    _, _, found = measured(name, implementation)
    _, _, plain_found = measured(name, "reference")
    _, _, expected = truth(name)
    for key, value in found.items():
        # A broadcast bias sums the gradients of many scores, each with its own rounding.
        terms = np.prod(cases.case(name).shape) / value.size if key == "bias" else 1
        floor = 1e-6 * np.abs(expected[key]).max() + 1e-7 * np.sqrt(terms)
        allowed = 2 * error(plain_found[key], expected[key]) + floor
        assert error(value, expected[key]) <= allowed, key


@pytest.mark.parametrize("name", HALF_NAMES)
@pytest.mark.parametrize(
    ("implementation", "dtype"),
    [("xla", "bfloat16"), ("xla", "float16"), ("reference", "bfloat16")],
)
def test_output_and_captures_in_half_precision(implementation, dtype, name):
    arguments = cases.case(name).arguments(dtype)
    capture = Capture(weights=True, stats=("lse", "entropy", "max", "sum_sq", cases.SIEVES[0]))
    output, seen, _ = measure(arguments, implementation, capture)
    expected_output, expected, _ = truth(name, dtype, capture)
    plain_output, plain_weights, _ = run_plain(arguments)
    assert output.dtype == dtype
    assert error(output, expected_output) <= 2 * error(plain_output, expected_output)
    assert error(seen.weights, expected.weights) <= 2 * error(plain_weights, expected.weights)
    # Statistics are accumulated in float32 whatever the inputs are.
    for key, value in seen.stats.items():
        assert value.dtype == np.float32
        assert error(value, expected.stats[key]) <= 2e-5, key


def run(name, implementation, capture):
    """Forward pass only, compiled."""
    arguments = cases.case(name).arguments()
    options = QUICK if implementation == "reference" else None
    call = functools.partial(
        door.attention,
        causal=arguments.pop("causal"),
        capture=capture,
        implementation=implementation,
    )
    return jax.jit(call, compiler_options=options)(**arguments)


@pytest.mark.parametrize("implementation", RUNNABLE)
def test_asking_changes_no_output(implementation):
    bare, nothing = run("padded 129", implementation, NOTHING)
    asked, _, _ = measured("padded 129", implementation)
    np.testing.assert_allclose(bare, asked, rtol=2e-6, atol=2e-6)
    assert (nothing.weights, nothing.scores, nothing.stats) == (None, None, {})


@pytest.mark.parametrize("implementation", RUNNABLE)
def test_captures_of_some_heads_are_those_heads(implementation):
    heads = (2, 0)
    some = Capture(weights=True, scores=True, stats=cases.STATISTICS, heads=heads)
    _, part = run("garbage in padding", implementation, some)
    _, full, _ = measured("garbage in padding", implementation)
    assert part.weights.shape[1] == 2
    for a, b in zip(jax.tree.leaves(part), jax.tree.leaves(full), strict=True):
        np.testing.assert_allclose(a, b[:, list(heads)], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("implementation", RUNNABLE)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "uint8"])
@pytest.mark.parametrize("name", ["seven", "padded 129"])
def test_weights_come_in_the_dtype_asked(implementation, dtype, name):
    _, seen = run(name, implementation, Capture(weights=True, dtype=dtype))
    assert seen.weights.dtype == dtype
    step = {"float32": 1e-6, "bfloat16": 2**-9, "float16": 2**-12, "uint8": 0.5001 / 255}[dtype]
    weights = np.asarray(seen.weights, np.float64) / (255 if dtype == "uint8" else 1)
    assert error(weights, truth(name)[1].weights) <= step
