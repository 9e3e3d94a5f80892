# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A window of weights is that part of all weights, costs no more, and changes nothing else."""

import functools
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flaxattn.benchmarks.cases import SIEVES, Case
from flaxattn.kernels import attention as door
from flaxattn.kernels import choice
from flaxattn.kernels.call import Call
from flaxattn.kernels.checks import checked
from flaxattn.kernels.contract import Capture
from flaxattn.kernels.devices import Device

CASES = (
    Case("segments, causal, padded", 21, depth=8, segments=2, causal=True, padding=True),
    Case("masked rows", 14, keys=11, depth=8, masked_rows=True, bias="HQK"),
    Case("garbage in padding", 13, depth=8, padding=True, garbage=True, bias="BK"),
    Case("blocks, causal", 150, heads=2, depth=8, causal=True, dropout=0.2),
)
STATISTICS = ("lse", "entropy", "received", *SIEVES)


def run(case, capture, implementation="xla"):
    """A call, compiled as one."""
    call = Call(**case.arguments())
    arrays = {name: getattr(call, name) for name in "qkv"}

    def attend(arrays):
        given = call._replace(**arrays, capture=capture)
        return door.attention(**given._asdict(), implementation=implementation)

    return jax.jit(attend)(arrays)


@functools.cache
def everything(case, implementation):
    return run(case, Capture(weights=True, scores=True), implementation)


@st.composite
def windows(draw, length):
    """A window of a length, or None."""
    start = draw(st.integers(0, length - 1))
    return draw(st.none() | st.just((start, draw(st.integers(start + 1, length)))))


@st.composite
def requests(draw):
    """A case and a request for a window of it."""
    case = draw(st.sampled_from(CASES))
    queries, keys = (draw(windows(length)) for length in case.shape[2:])
    heads = draw(st.none() | st.permutations(range(case.heads)).map(lambda h: tuple(h[:2])))
    windowed = {"query_window": queries, "key_window": keys, "heads": heads}
    return case, Capture(weights=True, scores=draw(st.booleans()), **windowed)


@pytest.mark.slow
@settings(max_examples=4)
@given(request=requests(), implementation=st.sampled_from(["xla", "xla", "reference"]))
def test_a_window_is_that_part_of_everything(request, implementation):
    case, capture = request
    output, captured = run(case, capture, implementation)
    whole_output, whole = everything(case, implementation)
    heads = list(capture.heads or range(case.heads))
    requested = (capture.query_window, capture.key_window)
    rows, columns = (slice(*window or (None,)) for window in requested)
    expected = whole.weights[:, heads, rows, columns]
    assert captured.weights.shape == expected.shape
    np.testing.assert_allclose(captured.weights, expected, rtol=2e-6, atol=1e-7)
    if capture.scores:
        expected = whole.scores[:, heads, rows, columns]
        np.testing.assert_allclose(captured.scores, expected, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(output, whole_output, rtol=2e-6, atol=2e-6)


WINDOW = Capture(weights=True, query_window=(3, 7), key_window=(0, 5))


@pytest.mark.slow
def test_asking_for_a_window_changes_no_number():
    bare_output, bare = run(CASES[0], Capture(stats=STATISTICS))
    output, captured = run(CASES[0], replace(WINDOW, stats=STATISTICS))
    np.testing.assert_array_equal(output, bare_output)
    jax.tree.map(np.testing.assert_array_equal, dict(captured.stats), dict(bare.stats))
    assert captured.implementation == "xla"
    assert hash(WINDOW) == hash(replace(WINDOW, query_window=[3, np.int64(7)]))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "uint8"])
def test_a_window_comes_in_the_requested_dtype(dtype):
    _, captured = run(CASES[0], replace(WINDOW, dtype=dtype))
    _, whole = run(CASES[0], Capture(weights=True, dtype=dtype))
    np.testing.assert_array_equal(captured.weights, whole.weights[..., 3:7, :5])
    assert captured.weights.dtype == dtype


@pytest.mark.slow
def test_gradients_reach_through_a_window_and_the_output_keeps_its_own():
    arguments = CASES[3].arguments()
    arrays = {name: arguments.pop(name) for name in "qkv"}

    def gradient(capture, part):
        def loss(arrays):
            output, captured = door.attention(**arrays, **arguments, capture=capture)
            # The window by other numbers than the output, so that neither can stand for the other.
            maps = 0 if part is None else jnp.sin(3 * part(captured.weights)).sum()
            return jnp.cos(output).sum() + 7 * maps

        return jax.jit(jax.grad(loss))(arrays)

    wide = Capture(weights=True, query_window=(3, 140), key_window=(0, 5))
    of_window = gradient(wide, lambda weights: weights)
    of_part = gradient(Capture(weights=True), lambda weights: weights[..., 3:140, :5])
    of_output, beside = gradient(Capture(), None), gradient(wide, None)
    for name in arrays:
        np.testing.assert_allclose(of_window[name], of_part[name], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(beside[name], of_output[name])
    assert np.abs(of_window["q"] - of_output["q"]).max() > 0.01


@pytest.mark.parametrize(
    ("device", "name"),
    [
        (Device("gpu", "NVIDIA A100", (8, 0)), "cudnn"),
        (Device("gpu", "NVIDIA H200", (9, 0)), "cudnn"),
        (Device("tpu", "TPU v5 lite"), "tpu"),
        (Device("cpu", "cpu"), "xla"),
    ],
)
def test_asking_for_a_window_changes_no_implementation(device, name):
    q = jnp.zeros((1, 256, 2, 64), jnp.bfloat16)
    call = checked(Call(q, q, q, capture=WINDOW))
    assert choice.choose(call, device).name == name


@pytest.mark.parametrize(("name", "platform"), [("mosaic_gpu", "cuda"), ("tpu", "tpu")])
def test_a_fused_kernel_and_its_window_are_one_program(name, platform):
    q = jnp.zeros((1, 256, 2, 64), jnp.bfloat16)
    run = functools.partial(door.attention, implementation=name, capture=WINDOW)
    traced = jax.jit(run).trace(q, q, q)
    _, captured = traced.out_info
    assert (captured.weights.shape, captured.implementation) == ((1, 2, 4, 5), name)
    assert traced.lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.slow
def test_a_window_of_16384_positions_needs_no_square():
    length, heads = 16_384, 12
    array = jax.ShapeDtypeStruct((1, length, heads, 64), jnp.float32)
    capture = Capture(
        weights=True, stats=("entropy",), query_window=(8000, 8128), key_window=(0, 256)
    )
    run = functools.partial(door.attention, causal=True, capture=capture)
    memory = jax.jit(run).lower(array, array, array).compile().memory_analysis()
    peak = memory.temp_size_in_bytes + memory.output_size_in_bytes + memory.argument_size_in_bytes
    assert peak < 2**30  # all weights are 13 GB
    assert memory.output_size_in_bytes < 1.1 * 4 * heads * (length * 65 + 128 * 256)


@pytest.mark.slow
def test_a_long_context_runs_within_four_gigabytes(repository):
    script = repository / "benchmarks" / "long_context.py"
    command = [sys.executable, "-P", script, "--lengths", "16384", "--heads", "2"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    peaks = [float(line.split()[-2]) for line in run.stdout.splitlines() if line.endswith("GB")]
    assert len(peaks) == 2
    assert max(peaks) < 4
