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
from interpreted_kernels import attend

from flaxattn.benchmarks import cases
from flaxattn.kernels import choice, devices, dropout
from flaxattn.kernels.call import Call
from flaxattn.kernels.checks import checked
from flaxattn.kernels.contract import NOTHING, Capture

RUNNABLE = ["xla", "reference"]
NAMES = [case.name for case in cases.CASES]
# Asked of every case; statistics by themselves are the subject of test_statistics.py.
SOME = Capture(weights=True, scores=True, stats=("lse", "entropy", "argmax", "received"))
FULL_NAMES = ["few keys", "masked rows", "garbage in padding", "dropout, causal 129"]
FULL_NAMES += ["window, sinks, groups", "soft cap", "decode"]
# The reference only has to be right: compiling it quickly matters more than its speed.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
QUICK = QUICK if jax.default_backend() == "cpu" else {}

# Interpreted in `make test`; `make all` has the others.
OF_TPU = ["seven"]
SHORT = [name for name in NAMES if name != "padded 2048"]
# Each is much like another case; `make all` has them.
ALIKE = {
    "padded 64",
    "padded 127",
    "odd heads and depth",
    *(case.name for case in cases.TODAY),  # test_brute_force.py has xla and the reference
    "causal 128",
    "causal 512",
    "few queries",
    "bias of positions",
    "bias of everything",
    "segments",
    "dropout",
    "dropout, causal 129",
}
SOON = [name for name in SHORT if name not in ALIKE]


def over(names, **soon):
    """Implementations and cases; all but those in ``soon`` are slow."""
    return [
        pytest.param(
            implementation,
            name,
            id=f"{implementation}-{name}",
            # Tests of one case in one process, since they share what they compiled.
            marks=[
                pytest.mark.xdist_group(f"{implementation} {name}"),
                *([] if name in chosen else [pytest.mark.slow]),
            ],
        )
        for implementation, chosen in soon.items()
        for name in names
    ]


def plain(
    q, k, v, mask=None, bias=None, segment_ids=None, sinks=None, causal=False, drop=None,
    counted=None, window=None, soft_cap=None, query_offset=0,
):  # fmt: skip
    """The formula in the dtype of its inputs, as one would write it in a notebook."""
    k, v = (jnp.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    if soft_cap is not None:
        scores = jnp.tanh(scores / soft_cap) * soft_cap
    if bias is not None:
        scores = scores + bias
    allowed = jnp.ones(scores.shape, bool)
    if mask is not None:
        allowed = allowed & (mask[:, None, None] if mask.ndim == 2 else mask)
    offset = jnp.arange(k.shape[1])[None] - jnp.arange(q.shape[1])[:, None] - query_offset
    left, right = window or (None, None)
    for side in (causal and offset <= 0, left and offset >= -left):
        allowed = allowed if side is False or side is None else allowed & side[None, None]
    if right is not None:
        allowed = allowed & (offset <= right)[None, None]
    if segment_ids is not None:
        of_queries, of_keys = segment_ids
        allowed = allowed & (of_queries[:, None, :, None] == of_keys[:, None, None])
    low = jnp.where(allowed, scores, jnp.finfo(scores.dtype).min)
    if sinks is not None:
        logits = jnp.broadcast_to(sinks[None, :, None, None], (*low.shape[:3], 1))
        low = jnp.concatenate([low, logits.astype(low.dtype)], axis=-1)
    weights = jnp.where(allowed, jax.nn.softmax(low)[..., : k.shape[1]], 0)
    logs = jnp.where(weights > 0, jnp.log(jnp.where(weights > 0, weights, 1)), 0)
    some = allowed.any(-1) | (sinks is not None)
    stats = {
        "lse": jnp.where(some, jax.nn.logsumexp(low, axis=-1), -jnp.inf),
        "entropy": -(weights * logs).sum(-1),
    }
    if counted is not None:
        stats["received"] = (weights * counted[:, None, :, None].astype(weights.dtype)).sum(-2)
    used = weights
    if drop is not None:
        kept = dropout.keep_mask(drop, weights.shape)
        used = jnp.where(kept, weights / (1 - drop.rate), 0)
    output = jnp.einsum("bhqk,bkhd->bqhd", used, v)
    return output, weights, jnp.where(allowed, scores, -jnp.inf), stats


OPTIONS = ("window", "soft_cap", "query_offset")


def plain_arguments(arguments):
    """What `plain` takes; without garbage."""
    expected = ("q", "k", "v", "mask", "bias", "segment_ids", "sinks")
    arrays = {name: arguments[name] for name in expected if name in arguments}
    for name in "kv":
        arrays[name] = jnp.where(jnp.isfinite(arrays[name]), arrays[name], 0)
    return arrays


def run_plain(arguments):
    """(output, weights, scores, statistics) of `plain`."""
    call = functools.partial(
        plain,
        causal=arguments["causal"],
        drop=arguments.get("dropout"),
        counted=arguments["labels"].query_mask,
        **{name: arguments[name] for name in OPTIONS if name in arguments},
    )
    return jax.jit(call, compiler_options=QUICK)(**plain_arguments(arguments))


def total_of(output, stats):
    """A sum with a different weight for each entry of the output and of all float statistics."""
    total = 0
    for name in (None, *sorted(stats)):
        x = output if name is None else stats[name]
        if jnp.issubdtype(x.dtype, jnp.floating):
            x = x.astype(jnp.float32) if x.dtype.itemsize == 2 else x
            pattern = jnp.cos(jnp.arange(x.size, dtype=x.dtype).reshape(x.shape) * 0.7)
            total += (jnp.where(jnp.isfinite(x), x, 0) * pattern).sum()
    return total


def plain_gradients(arguments, requested=()):
    """Gradients of `total_of` through `plain`, of all its statistics or of those named."""
    arrays = plain_arguments(arguments)
    names = [name for name in ("q", "k", "v", "bias", "sinks") if name in arrays]
    options = {name: arrays[name] for name in arrays if name not in names}
    options |= {"causal": arguments["causal"], "drop": arguments.get("dropout")}
    options |= {name: arguments[name] for name in OPTIONS if name in arguments}
    options["counted"] = arguments["labels"].query_mask

    def loss(arrays):
        output, _, _, stats = plain(**arrays, **options)
        return total_of(output, {name: stats[name] for name in requested or stats})

    compiled = jax.jit(jax.grad(loss), compiler_options=QUICK)
    return compiled({name: arrays[name] for name in names})


def measure(arguments, implementation, capture=cases.EVERYTHING):
    """(output, intermediates, gradients of `total_of`), compiled."""
    names = [name for name in ("q", "k", "v", "bias", "sinks") if name in arguments]
    fixed = {name: value for name, value in arguments.items() if name not in names}
    function = attend(implementation)

    def loss(arrays):
        output, captured = function(Call(**arrays, **fixed, capture=capture))
        return total_of(output, captured.stats), (output, captured)

    options = None if implementation == "xla" else QUICK
    compiled = jax.jit(jax.value_and_grad(loss, has_aux=True), compiler_options=options)
    (_, (output, captured)), gradients = compiled({name: arguments[name] for name in names})
    return jax.tree.map(np.asarray, (output, captured, gradients))


@functools.cache
def measured(name, implementation, dtype="float32"):
    """`measure` of a case."""
    capture = cases.EVERYTHING if name in FULL_NAMES else SOME
    return measure(cases.case(name).arguments(dtype), implementation, capture)


@functools.cache
def truth(name, dtype="float32"):
    """The reference in float64, on the numbers that the case has in ``dtype``."""
    arguments = cases.case(name).arguments(dtype)
    capture = cases.EVERYTHING if name in FULL_NAMES else SOME
    with jax.enable_x64(True):
        for key in {"q", "k", "v", "bias", "sinks"} & set(arguments):
            arguments[key] = jnp.asarray(np.asarray(arguments[key], np.float64))
        if dtype != "float32" and "bias" not in arguments:  # its gradient is that of the scores
            arguments["bias"] = jnp.zeros(cases.case(name).shape)
        return measure(arguments, "reference", capture)


def rounded_terms(arguments, gradient_of_scores):
    """Sums of the absolute terms of the gradients of queries and keys."""
    queries, keys = (np.abs(np.asarray(arguments[key], np.float64)) for key in ("q", "k"))
    queries, keys = (np.where(np.isfinite(each), each, 0) for each in (queries, keys))  # masked
    group = queries.shape[2] // keys.shape[2]
    terms = np.abs(gradient_of_scores) / np.sqrt(queries.shape[-1])
    of_keys = np.einsum("bhqk,bqhd->bkhd", terms, queries)
    return {
        "q": np.einsum("bhqk,bkhd->bqhd", terms, np.repeat(keys, group, axis=2)),
        "k": of_keys.reshape(*keys.shape[:3], group, -1).sum(3),
    }


def error(result, expected):
    """Largest absolute difference; infinities and NaN must agree exactly."""
    result, expected = np.asarray(result, np.float64), np.asarray(expected, np.float64)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isfinite(result), finite)
    np.testing.assert_array_equal(result[~finite], expected[~finite])
    return np.abs(result[finite] - expected[finite]).max(initial=0)


@pytest.mark.few("reference-segments")
@pytest.mark.parametrize(
    ("implementation", "name"), over(NAMES, xla=SOON, reference=SOON, tpu=OF_TPU)
)
def test_output_and_captures_in_float32(implementation, name):
    arguments = cases.case(name).arguments()
    output, record, _ = measured(name, implementation)
    expected_output, expected, _ = truth(name)
    plain_output, plain_weights, plain_scores, _ = run_plain(arguments)
    # An error of a score is that share of its weight, so scores set the scale of what follows.
    slack = 2 * error(plain_scores, expected.scores) + 1e-6
    assert error(record.scores, expected.scores) <= slack
    assert (
        error(record.weights, expected.weights) <= 2 * error(plain_weights, expected.weights) + 1e-7
    )
    assert error(output, expected_output) <= 2 * error(plain_output, expected_output) + 1e-6
    assert record.implementation == implementation
    check_statistics(record, expected, slack)


def check_statistics(captured, expected, slack):
    """Statistics are as good as scores with an error of ``slack``."""
    assert list(captured.stats) == list(expected.stats)
    queries, keys = expected.scores.shape[2:]
    scale = {"distance": max(queries, keys), "received": queries, "entropy": 10}
    scale["entropy in segment"] = scale["entropy"]
    for key, value in captured.stats.items():
        if key == cases.STRONGEST.name:
            check_same_scores(value, expected.stats[key], expected.scores, slack)
        elif value.dtype == np.int32:
            check_indices(value, expected.scores, slack)
        else:
            assert value.dtype == np.float32
            assert error(value, expected.stats[key]) <= slack * scale.get(key, 2), key


def check_same_scores(indices, expected, scores, slack):
    """Each index names a key whose score is that of the expected one, up to rounding."""
    np.testing.assert_array_equal(indices == -1, expected == -1)
    one, other = (
        np.take_along_axis(scores, np.maximum(keys, 0)[..., None], axis=-1)[..., 0]
        for keys in (indices, expected)
    )
    there = expected >= 0
    assert error(one[there], other[there]) <= 2 * slack


def check_indices(indices, scores, slack):
    """Each index names a key whose score is as good as the best, up to rounding."""
    indices = indices[..., None] if indices.ndim == 3 else indices
    count = indices.shape[-1]
    best = -np.sort(-scores, axis=-1)[..., :count]
    best = np.pad(best, [(0, 0)] * 3 + [(0, count - best.shape[-1])], constant_values=-np.inf)
    named = np.take_along_axis(scores, np.maximum(indices, 0), axis=-1)
    np.testing.assert_array_equal(indices == -1, best == -np.inf)
    assert error(np.where(indices == -1, -np.inf, named), best) <= 2 * slack


@pytest.mark.few("xla-segments", "tpu-seven")
@pytest.mark.parametrize(("implementation", "name"), over(NAMES, xla=SOON, tpu=OF_TPU))
def test_gradients_are_as_good_as_those_of_the_reference(implementation, name):
    _, _, found = measured(name, implementation)
    _, _, plain_found = measured(name, "reference")
    _, exact, expected = truth(name)
    # The rounding error of a score is that share of its weight, and so of terms of the gradients.
    largest = np.abs(exact.scores[np.isfinite(exact.scores)]).max(initial=0)
    relative = max(1e-6, float(np.finfo(np.float32).eps * largest))
    for key, value in found.items():
        # A broadcast bias sums the gradients of many scores, each with its own rounding.
        terms = np.prod(cases.case(name).shape) / value.size if key == "bias" else 1
        floor = relative * np.abs(expected[key]).max() + 1e-7 * np.sqrt(terms)
        allowed = 2 * error(plain_found[key], expected[key]) + floor
        assert error(value, expected[key]) <= allowed, key


def check_half(implementation, dtype, name):
    """Everything of a case with half-precision inputs, accumulated in float32."""
    arguments = cases.case(name).arguments(dtype)
    output, record, found = measured(name, implementation, dtype)
    expected_output, expected, expected_gradients = truth(name, dtype)
    plain_output, plain_weights, _, _ = run_plain(arguments)
    assert (output.dtype, record.implementation) == (dtype, implementation)
    assert error(output, expected_output) <= 2 * error(plain_output, expected_output)
    assert error(record.weights, expected.weights) <= 2 * error(plain_weights, expected.weights)
    # Products are exact and summed in float32: scores are as good as those of float32 inputs.
    exact = {key: arguments[key].astype(np.float32) for key in ("q", "k", "v")}
    exact |= {"bias": arguments["bias"].astype(np.float32)} if "bias" in arguments else {}
    _, _, plain_scores, _ = run_plain(arguments | exact)
    slack = 2 * error(plain_scores, expected.scores) + 2e-6
    assert error(record.scores, expected.scores) <= slack
    check_statistics(record, expected, slack)
    comparable = plain_gradients(arguments) if name not in FULL_NAMES else {}
    alone = "bias" not in arguments
    terms = rounded_terms(arguments, expected_gradients["bias"]) if alone else {}
    for key, value in found.items():
        assert value.dtype == dtype
        # The result is rounded once, and so is each gradient of a score that it is a sum of.
        largest = np.abs(expected_gradients[key]).max()
        summed = np.max(terms[key]) if key in terms else largest
        allowed = float(jnp.finfo(dtype).eps) / 2 * (largest + summed) + 1e-6
        if key in comparable:
            allowed = max(allowed, 2 * error(comparable[key], expected_gradients[key]))
        assert error(value, expected_gradients[key]) <= allowed, key


@pytest.mark.slow
@pytest.mark.parametrize(
    ("implementation", "name"),
    over(["padded 127", "garbage in padding"], xla=SHORT, reference=[])
    + over(["seven", "garbage in padding"], tpu=[])
    + over(NAMES, mosaic_gpu=[]),
)
def test_bfloat16(implementation, name):
    check_half(implementation, "bfloat16", name)


# Scores of 1e4 leave the range of the plain formula in float16.
@pytest.mark.parametrize(
    ("implementation", "name"),
    over(["garbage in padding", "padded 127"], xla=[], mosaic_gpu=[]),
)
def test_float16(implementation, name):
    check_half(implementation, "float16", name)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("implementation", ["mosaic_gpu", "xla"])
def test_on_the_gpu(implementation, dtype, name):
    reason = choice.device_refusal("mosaic_gpu", devices.current(jnp.zeros(())))
    if reason:
        pytest.skip(f"this Python's jax finds no Hopper GPU: {reason}")
    if (dtype, name) != ("float16", "huge scores"):
        check_half(implementation, dtype, name)


# cuDNN hands back less than the others.
OF_CUDNN = Capture(stats=("lse", "entropy"))
TAKEN_BY_CUDNN = [
    *("one", "seven", "padded 64", "padded 127", "causal 128", "few queries"),
    *("garbage in padding", "huge scores", "odd heads and depth"),
]


@pytest.mark.slow
def test_cudnn_takes_the_cases_that_are_tried_on_a_gpu():
    taken = []
    for case in cases.CASES:

        def note(case=case):
            call = checked(Call(**case.arguments("bfloat16"), capture=OF_CUDNN))
            if choice.call_refusal("cudnn", call) is None:
                taken.append(case.name)

        jax.eval_shape(note)
    assert sorted(taken) == sorted(TAKEN_BY_CUDNN)


@pytest.mark.gpu
@pytest.mark.parametrize("name", TAKEN_BY_CUDNN)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_cudnn_on_the_gpu(dtype, name):
    reason = choice.device_refusal("cudnn", devices.current(jnp.zeros(())))
    if reason:
        pytest.skip(f"this Python's jax finds no GPU with cuDNN: {reason}")
    if (dtype, name) != ("float16", "huge scores"):
        check_cudnn(dtype, name)


def check_cudnn(dtype, name):
    """Output, log-sum-exp, entropy and gradients with half-precision inputs."""
    arguments = cases.case(name).arguments(dtype)
    output, captured, found = measure(arguments, "cudnn", OF_CUDNN)
    exact = dict(arguments)
    with jax.enable_x64(True):
        for key in "qkv":
            exact[key] = jnp.asarray(np.asarray(exact[key], np.float64))
        expected_output, expected, slopes = measure(exact, "reference", OF_CUDNN)
    plain_output, _, _, plain_stats = run_plain(arguments)
    assert (output.dtype, captured.implementation) == (dtype, "cudnn")
    unit = float(jnp.finfo(dtype).eps)
    assert error(output, expected_output) <= 2 * error(plain_output, expected_output) + unit
    for key, value in captured.stats.items():
        allowed = 2 * error(plain_stats[key], expected.stats[key]) + 1e-4
        assert error(value, expected.stats[key]) <= allowed, key
    comparable = plain_gradients(arguments, OF_CUDNN.keys)
    for key, value in found.items():
        allowed = unit * np.abs(slopes[key]).max() + 1e-6
        allowed = max(allowed, 2 * error(comparable[key], slopes[key]))
        assert error(value, slopes[key]) <= allowed, key


@pytest.mark.parametrize(
    ("implementation", "dtype", "depth", "reason"),
    [
        ("mosaic_gpu", "float32", 64, "bfloat16 or float16"),
        ("mosaic_gpu", "bfloat16", 160, "depth 160"),
        ("tpu", "float16", 64, "float16"),
        ("tpu", "float32", 300, "300"),
        ("cudnn", "float32", 64, "float32"),
    ],
)
def test_what_is_not_supported_says_so(implementation, dtype, depth, reason):
    q = jnp.zeros((1, 8, 1, depth), dtype)
    assert reason in (choice.call_refusal(implementation, checked(Call(q, q, q))) or "")


def run(name, implementation, capture):
    """Forward pass only, compiled."""
    arguments = cases.case(name).arguments()
    options = None if implementation == "xla" else QUICK
    static = {"causal", *OPTIONS} & arguments.keys()
    fixed = {name: arguments.pop(name) for name in static} | {"capture": capture}
    function = attend(implementation)

    def call(arguments):
        return function(Call(**arguments, **fixed))

    return jax.jit(call, compiler_options=options)(arguments)


@pytest.mark.parametrize("implementation", RUNNABLE)
def test_asking_changes_no_output(implementation):
    bare, nothing = run("padded 129", implementation, NOTHING)
    requested, _, _ = measured("padded 129", implementation)
    np.testing.assert_allclose(bare, requested, rtol=2e-6, atol=2e-6)
    assert (nothing.weights, nothing.scores, nothing.stats) == (None, None, {})


SLOWLY = [pytest.param(name, marks=pytest.mark.slow) for name in ("tpu", "mosaic_gpu")]


@pytest.mark.few("heads0")
@pytest.mark.parametrize("heads", [(0,), (1,), (1, 0)])
@pytest.mark.parametrize("implementation", [*RUNNABLE, *SLOWLY])
def test_asking_for_some_heads_drops_the_same_weights(implementation, heads):
    bare, _ = run("dropout", implementation, NOTHING)
    some = Capture(weights=True, stats=("lse",), heads=heads)
    output, _ = run("dropout", implementation, some)
    np.testing.assert_allclose(output, bare, rtol=2e-6, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", [*RUNNABLE, pytest.param("tpu", marks=pytest.mark.slow)])
def test_captures_of_some_heads_are_those_heads(implementation):
    heads = (2, 0)
    some = Capture(weights=True, scores=True, stats=cases.STATISTICS, heads=heads)
    _, part = run("garbage in padding", implementation, some)
    _, full, _ = measured("garbage in padding", implementation)
    assert part.weights.shape[1] == 2
    for a, b in zip(jax.tree.leaves(part), jax.tree.leaves(full), strict=True):
        np.testing.assert_allclose(a, b[:, list(heads)], rtol=1e-5, atol=1e-5)


@pytest.mark.few("uint8", "bfloat16-xla")
@pytest.mark.parametrize(
    ("implementation", "name"),
    over(["seven", "padded 129"], xla=SHORT, reference=SHORT, tpu=["seven"]),
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "uint8"])
def test_weights_come_in_the_requested_dtype(implementation, dtype, name):
    _, captured = run(name, implementation, Capture(weights=True, dtype=dtype))
    assert captured.weights.dtype == dtype
    step = {"float32": 1e-6, "bfloat16": 2**-9, "float16": 2**-12, "uint8": 0.5001 / 255}[dtype]
    weights = np.asarray(captured.weights, np.float64) / (255 if dtype == "uint8" else 1)
    assert error(weights, truth(name)[1].weights) <= step
