# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What is requested never changes the output: random requests, with and without dropout.

Bit by bit in the reference, in the TPU kernels and in xla wherever it walks over the same blocks
of rows. It takes other parts of causal rows from 512 queries with maps; outputs then agree to
2e-6. Hopper kernels take other tiles of keys for other statistics; their outputs agree to a unit
of bfloat16.

Draws are seeded, so that a failure names its numbers. What is handed back is tested in
test_conformance.py.
"""

import random

import jax
import numpy as np
import pytest
from interpreted_kernels import attend

from flaxattn.benchmarks import cases
from flaxattn.kernels import choice, xla
from flaxattn.kernels.call import Call
from flaxattn.kernels.checks import checked
from flaxattn.kernels.contract import NOTHING, WEIGHT_DTYPES, Capture


def some(draw, values, least=0):
    """Between ``least`` and all of the values, in an order of their own."""
    return tuple(draw.sample(values, draw.randint(least, len(values))))


def part(draw, length):
    """A window of positions, or None for all."""
    start, stop = sorted(draw.sample(range(length + 1), 2))
    return draw.choice([None, (start, stop)])


def request_of(draw, case):
    """A random request for a case."""
    _, heads, queries, keys = case.shape
    stats = tuple(
        f"topk({draw.randint(1, 8)})" if name == "topk(3)" else name
        for name in some(draw, cases.STATISTICS)
    )
    maps = {"weights": draw.random() < 0.5, "scores": draw.random() < 0.3}
    windows = {}
    if any(maps.values()) and draw.random() < 0.4:
        windows = {"query_window": part(draw, queries), "key_window": part(draw, keys)}
    chosen = some(draw, range(heads), 1) if draw.random() < 0.4 else None
    return Capture(stats=stats, **maps, **windows, heads=chosen, dtype=draw.choice(WEIGHT_DTYPES))


def call_of(draw):
    """A random case; what it combines, no case in cases.py does."""
    queries, keys, heads = draw.randint(2, 150), draw.randint(2, 150), draw.choice([2, 4])
    return cases.Case(
        "drawn",
        queries,
        keys=keys,
        batch=2,
        heads=heads,
        depth=16,
        padding=draw.random() < 0.5,
        causal=draw.random() < 0.4,
        segments=draw.choice([0, 0, 2]),
        bias=draw.choice(["", "", "BK", "HQK"]),
        masked_rows=draw.random() < 0.2,
        dropout=draw.choice([0.0, 0.2]),
        groups=draw.choice([heads, heads // 2]),
        window=draw.choice([None, None, (9, 4), (40, None)]),
        soft_cap=draw.choice([None, None, 2.5]),
        sinks=draw.random() < 0.3,
        offset=draw.choice([0, 0, 7]),
    )


def output_of(implementation, case, capture):
    """The output, compiled, and the blocks that xla walks over; None for other implementations."""
    arguments = case.arguments("bfloat16" if implementation == "mosaic_gpu" else "float32")
    options = {name: arguments.pop(name) for name in case.options()}
    function, blocks = attend(implementation), []

    def in_blocks(rest):
        blocks.append((xla.block_rows(rest), xla._striped(rest)))
        return xla.attend(rest)

    def call(arguments):
        whole = Call(**arguments, **options, capture=capture)
        if implementation == "xla":
            return choice.complete(in_blocks, checked(whole))[0]
        return function(whole)[0]

    output = jax.jit(call)(arguments)
    return np.asarray(output, np.float32), blocks


def check(implementation, seed, case=None, requests=2):
    """Outputs of random requests against that of a call that asks for nothing."""
    draw = random.Random(seed)
    case = case or call_of(draw)
    bare, blocks = output_of(implementation, case, NOTHING)
    for _ in range(requests):
        capture = request_of(draw, case)
        output, own = output_of(implementation, case, capture)
        if own == blocks and implementation != "mosaic_gpu":
            np.testing.assert_array_equal(output, bare, err_msg=str(capture))
            continue
        allowed = 2e-6 if implementation == "xla" else 2**-8 * np.abs(bare).max()
        np.testing.assert_allclose(output, bare, rtol=0, atol=allowed, err_msg=str(capture))


@pytest.mark.few("xla-0")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("implementation", ["xla", "reference"])
def test_a_random_request_leaves_the_output_as_it_is(implementation, seed):
    check(implementation, seed, requests=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
@pytest.mark.parametrize("implementation", ["xla", "reference", "tpu"])
def test_many_random_requests_leave_the_output_as_it_is(implementation, seed):
    check(implementation, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in cases.TODAY] + ["dropout"])
@pytest.mark.parametrize("implementation", ["xla", "tpu"])
def test_requests_of_the_calls_of_today_leave_the_output_as_it_is(implementation, name):
    check(implementation, name, cases.case(name))


@pytest.mark.slow
def test_requests_of_a_hopper_kernel_leave_the_output_as_it_is():
    check("mosaic_gpu", 1, cases.case("seven"), requests=1)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("dtype", WEIGHT_DTYPES)
def test_weights_leave_the_output_of_xla_as_it_is(dtype, dropout):
    case = cases.Case("70", 70, depth=16, padding=True, dropout=dropout)
    bare, _ = output_of("xla", case, NOTHING)
    output, _ = output_of("xla", case, Capture(weights=True, dtype=dtype))
    np.testing.assert_array_equal(output, bare)
