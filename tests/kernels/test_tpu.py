# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What is particular about the TPU kernels, interpreted: grids, blocks, edges, stored dtypes.

That every case comes out right is in test_conformance.py, that kernels compile in tests/aot.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from flaxattn.benchmarks import cases
from flaxattn.benchmarks.cases import Case
from flaxattn.kernels import fused, reference, tpu, tpu_grid
from flaxattn.kernels.call import Band, Call
from flaxattn.kernels.checks import checked
from flaxattn.kernels.contract import Capture, Dropout
from flaxattn.kernels.plan import KernelPlan
from flaxattn.kernels.tpu_grid import TpuTileLayout, whole_sum

# Finds reads outside of arrays, memory nobody wrote to, and races between copies and steps.
CAREFUL = pltpu.InterpretParams(out_of_bounds_reads="raise", detect_races=True)
BLOCK = 128
# Everything here is small: compiling quickly matters more than speed.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
SOME = Capture(weights=True, scores=True, stats=("entropy", "topk(2)", "received", *cases.SIEVES))
SMALL = Case("small", 5, batch=1, heads=1, depth=8)


def run(call, interpret: Any = True):
    return fused.attend(checked(call), tpu.backend(interpret), BLOCK, BLOCK)


def run_carefully(call):
    return run(call, CAREFUL)


def expect(call):
    return reference.attention(**call._asdict())


def results(attend, call):
    return jax.jit(lambda: attend(call), compiler_options=QUICK)()


def gradient(loss, attend, *arrays):
    """Of all arrays."""
    over = tuple(range(len(arrays)))
    of_loss = jax.grad(lambda *arrays: loss(*arrays, attend), over)
    return jax.jit(of_loss, compiler_options=QUICK)(*arrays)


def agree(found, expected, tolerance=1e-5):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def call_of(length, depth, dtype="float32", **options):
    """A call without numbers, for what only looks at shapes."""
    q: Any = jax.ShapeDtypeStruct((1, length, 1, depth), dtype)
    return Call(q, q, q, **options)


def plan_of(lengths, block_q, block_k, band, offset=0, key_heads=3):
    queries, keys = lengths
    sizes = {"batch": 2, "heads": 3, "queries": queries, "keys": keys, "depth": 8}
    sizes |= {"value_depth": 8, "key_heads": key_heads, "block_q": block_q, "block_k": block_k}
    static = {"dtype": "float32", "scale": 1.0, "soft_cap": None, "sinks": False}
    return KernelPlan(**sizes, **static, band=band, offset=offset)


CAUSAL = Band(None, 0)
BANDS = [
    (Band(), 0),
    (CAUSAL, 0),
    (CAUSAL, 130),
    (Band(-140, 3), 0),
    (Band(-300, 0), 100),
    (Band(20, None), -50),
    (Band(-5, 5), 10_000),
]


def pairs_in(plan, query, key):
    """Whether a tile has a pair inside of the band, counted one by one."""
    rows = np.arange(query * plan.block_q, (query + 1) * plan.block_q) + plan.offset
    offsets = np.arange(key * plan.block_k, (key + 1) * plan.block_k) - rows[:, None]
    low, high = plan.band
    inside = np.ones(offsets.shape, bool)
    inside &= low is None or offsets >= low
    inside &= high is None or offsets <= high
    return bool(inside.any())


@pytest.mark.parametrize("key_heads", [3, 1])
@pytest.mark.parametrize(("band", "offset"), BANDS)
@pytest.mark.parametrize("outer", [tpu_grid.QUERIES, tpu_grid.KEYS])
@pytest.mark.parametrize(
    ("lengths", "block_q", "block_k"), [((900, 600), 256, 128), ((300, 1000), 128, 384)]
)
def test_a_grid_fetches_what_is_needed_and_no_more(
    lengths, block_q, block_k, outer, band, offset, key_heads
):
    plan = plan_of(lengths, block_q, block_k, band, offset, key_heads)
    schedule = tpu_grid.GridSchedule(plan, outer)
    calls = []
    for ids in np.ndindex(*schedule.grid):
        place, fetched = schedule.place(*ids), schedule.fetched(*ids)
        assert 0 <= fetched.query < schedule.plan.query_blocks
        assert 0 <= fetched.key < schedule.plan.key_blocks
        if schedule.needed(place):
            assert fetched == place
            calls.append(tuple(int(n) for n in fetched))
    every = np.ndindex(2, 3, plan.query_blocks, plan.key_blocks)
    assert sorted(calls) == [ids for ids in every if pairs_in(plan, *ids[2:])]


def test_a_window_visits_a_small_part_of_the_tiles():
    counts = []
    for band in (Band(), CAUSAL, Band(-511, 0)):
        schedule = tpu_grid.GridSchedule(plan_of((8192, 8192), 512, 512, band), tpu_grid.QUERIES)
        places = [schedule.place(0, 0, i, j) for i, j in np.ndindex(16, 16)]
        counts.append(sum(bool(schedule.needed(place)) for place in places))
    assert counts == [256, 136, 31]


def test_a_grid_with_two_passes_writes_each_tile_in_the_second_one():
    schedule = tpu_grid.GridSchedule(
        plan_of((300, 400), 128, 128, CAUSAL), tpu_grid.QUERIES, passes=2
    )
    for step in range(8):
        written = schedule.written(1, 2, 0, step)
        assert written.key == max(0, step - 4)
        assert schedule.place(1, 2, 0, step).key == step % 4


@pytest.mark.parametrize("length", [1, 127, 128, 129, 384, 512, 640, 2048, 2049, 16384])
def test_blocks_are_whole_registers_and_waste_little(length):
    for capture in (Capture(), Capture(weights=True), Capture(stats=("topk(8)",))):
        for size in tpu.blocks(call_of(length, 8, capture=capture)):
            assert size % 128 == 0 and 0 < size <= 512
            padded = -(-length // size) * size
            assert padded <= length + max(127, length / 5)


@pytest.mark.parametrize(
    ("dtype", "depth", "reason"),
    [("float16", 64, "float16"), ("float64", 64, "float64"), ("float32", 257, "257")],
)
def test_what_cannot_run_is_refused_with_the_reason(dtype, depth, reason):
    assert reason in (tpu.refusal(call_of(3, depth, dtype)) or "")
    assert tpu.refusal(call_of(3, 20, "bfloat16")) is None


def test_float16_weights_are_rounded_like_everywhere_else():
    steps = np.arange(0x3C01, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (steps[1:] + steps[:-1]) / 2
    above = np.nextafter(between, np.float32(2))
    weights = np.concatenate([steps, between, above, np.array([0, 1e-30, np.nan], np.float32)])
    found = np.asarray(tpu._half_bits(jnp.asarray(weights))).astype(np.uint16).view(np.float16)
    np.testing.assert_array_equal(found, weights.astype(np.float16))


@pytest.mark.parametrize("transposed", [False, True])
def test_rows_keep_maxima_in_every_lane_and_sums_in_parts(transposed):
    plan = plan_of((256, 384), 256, 384, Band())
    layout = TpuTileLayout(plan, 0, 0, transposed)
    tile = jax.random.normal(jax.random.key(0), layout.shape)
    largest, parts = layout.row_max(tile), layout.row_sum(tile)
    assert (
        largest.shape == parts.shape == layout.row_shape == ((1, 256) if transposed else (256, 128))
    )
    truth = tile.T if transposed else tile
    across = largest.T if transposed else largest
    np.testing.assert_array_equal(across, jnp.broadcast_to(truth.max(1)[:, None], across.shape))
    whole = parts if transposed else whole_sum(parts)
    np.testing.assert_allclose(whole[0], truth.sum(1), atol=1e-4)
    assert layout.rows(largest).shape == ((1, 256) if transposed else (256, 384))


@pytest.mark.slow
def test_maps_over_edges_and_diagonals_are_complete():
    arguments = Case("edges", 131, keys=270, batch=1, heads=1, depth=8, causal=True).arguments()
    for dtype in ("float16", "uint8"):
        capture = Capture(weights=True, scores=True, dtype=dtype)
        call = Call(**arguments, capture=capture)
        (_, found), (_, expected) = results(run, call), results(expect, call)
        assert found.weights.dtype == dtype
        step = 1 if dtype == "uint8" else 1e-3
        agree(found.weights.astype(jnp.float32), expected.weights.astype(jnp.float32), step)
        agree(found.scores, expected.scores)


@pytest.mark.slow
def test_nothing_is_read_outside_of_arrays_and_no_step_races():
    case = replace(SMALL, queries=131, keys=129, causal=True, padding=True, bias="QK", dropout=0.1)
    call = Call(**case.arguments(), capture=SOME)
    agree(results(run_carefully, call), results(expect, call), 2e-5)


@pytest.mark.slow
def test_gradients_read_nothing_outside_of_arrays():
    case = replace(SMALL, queries=3, keys=130, bias="K", masked_rows=True, depth=4)
    arguments = case.arguments()
    capture = Capture(stats=("received",))

    def loss(q, k, v, bias, attend):
        call = Call(**(arguments | {"q": q, "k": k, "v": v, "bias": bias}), capture=capture)
        output, captured = attend(call)
        return (output**2).sum() + (captured.stats["received"] ** 2).sum()

    arrays = [arguments[name] for name in ("q", "k", "v", "bias")]
    found = gradient(loss, run_carefully, *arrays)
    agree(found, gradient(loss, expect, *arrays), 5e-5)


@pytest.mark.slow
@pytest.mark.parametrize("letters", ["QK", "HQK"])
def test_the_gradient_of_a_bias_is_summed_where_it_is_shared(letters):
    case = replace(SMALL, queries=130, batch=2, heads=2, bias=letters)
    arguments = case.arguments()
    bias = arguments.pop("bias")

    def loss(bias, attend):
        output, _ = attend(Call(**arguments, bias=bias))
        return jnp.sum(output * jnp.cos(jnp.arange(output.size)).reshape(output.shape))

    agree(gradient(loss, run, bias), gradient(loss, expect, bias), 2e-6)


def test_examples_of_vmap_have_their_own_dropout():
    q = jax.random.normal(jax.random.key(0), (3, 1, 9, 2, 8))
    rates, keys = jnp.array([0.1, 0.4, 0.7]), jax.random.split(jax.random.key(1), 3)

    def outputs(attend):
        one = jax.vmap(lambda q, *drop: attend(Call(q, q, q, dropout=Dropout(*drop)))[0])
        return jax.jit(one, compiler_options=QUICK)(q, rates, keys)

    agree(outputs(run), outputs(expect))


@pytest.mark.slow
def test_results_vary_over_the_mesh_like_their_inputs():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
    q = jax.random.normal(jax.random.key(0), (2, 9, 1, 8))
    bias = jax.random.normal(jax.random.key(1), (1, 1, 9, 9))

    def loss(q, bias, attend):
        output, captured = attend(Call(q, q, q, bias=bias, capture=Capture(stats=("max",))))
        return (output**2).sum() + (captured.stats["max"] ** 2).sum()

    def of_shard(q, bias):
        total = loss(q, bias, lambda call: run(call, pltpu.InterpretParams()))
        return jax.lax.psum(total, "data")

    sharded = jax.shard_map(of_shard, mesh=mesh, in_specs=(P("data"), P()), out_specs=P())
    found = jax.jit(jax.grad(sharded, (0, 1)))(q, bias)
    agree(found, gradient(loss, expect, q, bias), 2e-5)
