# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tiles that the TPU kernels visit and inputs that they fetch, counted; results where they skip.

That grids follow a band is in test_tpu.py, which ranges are right in test_tile_ranges.py.
"""

import brute_force
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.kernels import fused, reference, tiles, tpu, tpu_grid
from flaxattn.kernels.call import Call
from flaxattn.kernels.checks import checked
from flaxattn.kernels.contract import Capture, Dropout
from flaxattn.kernels.plan import pack
from flaxattn.kernels.tpu_grid import KEYS, PAIRS, QUERIES, GridSchedule, inputs_of

LENGTH, BLOCK = 4096, 512
EIGHT = np.repeat(np.arange(8), LENGTH // 8)[None]
HALF = np.arange(LENGTH)[None] < LENGTH // 2
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def call_of(length=LENGTH, **options):
    q = jnp.zeros((1, length, 1, 8))
    return checked(Call(q, q, q, **options))


def steps_of(outer, passes=1, **options):
    """The schedule of a call, and the indices that it hands to a step of its grid."""
    plan, operands = pack(call_of(**options), BLOCK, BLOCK)
    schedule = GridSchedule(plan, outer, passes)
    ranges = schedule.ranges(inputs_of(plan, operands))
    before = () if ranges is None else (np.asarray(ranges),)
    return schedule, [(*ids, *before) for ids in np.ndindex(*schedule.grid)]


def visits(outer, **options):
    """How many tiles a kernel computes."""
    schedule, steps = steps_of(outer, **options)
    axes = len(schedule.grid)
    return sum(bool(schedule.needed(schedule.place(*ids), *ids[axes:])) for ids in steps)


def moves(name, outer, **options):
    """How often the block of an input changes from step to step: each change is a copy."""
    schedule, steps = steps_of(outer, **options)
    places = [schedule.fetched(*ids, once=name in tpu_grid.FIRST_PASS) for ids in steps]
    side = "query" if name == "q" else "key"
    blocks = [int(getattr(place, side)) for place in places]
    return 1 + sum(a != b for a, b in zip(blocks[1:], blocks, strict=False))


@pytest.mark.parametrize("outer", [QUERIES, KEYS, PAIRS])
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 64),
        ({"causal": True}, 36),
        ({"segment_ids": EIGHT}, 8),
        ({"segment_ids": EIGHT // 2}, 16),
        ({"segment_ids": EIGHT // 4, "causal": True}, 20),
        ({"mask": HALF}, 32),
        ({"mask": HALF, "causal": True}, 26),
        ({"causal": True, "window": (511, 0), "query_offset": np.int32(0)}, 15),
    ],
)
def test_only_tiles_with_pairs_are_visited(outer, options, count):
    assert visits(outer, **options) == count


@pytest.mark.parametrize("outer", [QUERIES, KEYS])
@pytest.mark.parametrize(
    ("options", "count"),
    [({}, 64), ({"segment_ids": EIGHT}, 8), ({"segment_ids": EIGHT // 2}, 16)],
)
def test_tiles_that_are_left_out_are_not_fetched_either(outer, options, count):
    moving = "k" if outer == QUERIES else "q"
    assert moves(moving, outer, **options) == count


def test_values_are_fetched_once_where_maps_take_a_second_pass():
    assert [moves(name, QUERIES, passes=1) for name in "kv"] == [64, 64]
    assert [moves(name, QUERIES, passes=2) for name in "kv"] == [128, 64]


def test_kernels_take_only_what_they_read(monkeypatch):
    taken, run = {}, GridSchedule.call

    def call(self, name, body, inputs, *rest):
        taken[name] = set(inputs)
        return run(self, name, body, inputs, *rest)

    monkeypatch.setattr(GridSchedule, "call", call)
    capture = Capture(weights=True, stats=("received",))

    def loss(q):
        output, captured = fused.attend(
            checked(Call(q, q, q, capture=capture)), tpu.backend(True), 128, 128
        )
        assert captured.weights is not None
        return output.sum() + (captured.weights**2).sum() + (captured.stats["received"] ** 2).sum()

    jax.eval_shape(jax.grad(loss), jnp.zeros((1, 9, 1, 8)))
    takers = {name for name, inputs in taken.items() if "v" in inputs}
    assert takers == {"attention_forward", "attention_grad_queries", "attention_grad_keys"}
    assert set(taken) - takers == {"attention_received", "attention_row_dots"}
    assert "d_output" not in taken["attention_row_dots"]


def run(call):
    return fused.attend(checked(call), tpu.backend(True), 128, 128)


def expect(call):
    return reference.attention(**call._asdict())


def parts(*lengths):
    return np.repeat(np.arange(len(lengths)), lengths).astype(np.int32)


LONG = 200  # two tiles on each side
ROWS = ("lse", "entropy", "max", "argmax", "received")
SEGMENTS = np.stack([parts(128, 40, 32), parts(40, 130, 30)])
PADDED = np.arange(LONG)[None] < [[60], [150]]
SKIPPING = {
    "packed": {"segment_ids": SEGMENTS},
    "packed, causal": {"segment_ids": SEGMENTS, "causal": True},
    "padding at the end": {"mask": PADDED},
    "padding in front": {"mask": ~PADDED},
    "an example of padding": {"mask": PADDED & [[True], [False]], "causal": True},
    "each offset": {"query_offset": np.array([0, -90], np.int32), "window": (60, 0)},
}


def arrays():
    keys = jax.random.split(jax.random.key(0), 3)
    return [
        jax.random.normal(key, (2, LONG, heads, 4))
        for key, heads in zip(keys, (2, 1, 1), strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("options", SKIPPING.values(), ids=SKIPPING)
def test_every_number_is_right_where_tiles_are_left_out(options):
    given = {
        name: x if isinstance(x, bool | tuple) else jnp.asarray(x) for name, x in options.items()
    }
    fixed = {"shape": (2, 2, LONG, LONG)} | options
    fixed["offset"] = fixed.pop("query_offset", 0)
    if "segment_ids" in fixed:
        fixed["segments"] = [fixed.pop("segment_ids")] * 2
    truth = brute_force.attention(*arrays(), **fixed)
    capture = Capture(weights=True, scores=True, stats=ROWS)
    attend = jax.jit(lambda *x: run(Call(*x, **given, capture=capture)), compiler_options=QUICK)
    output, captured = attend(*arrays())
    np.testing.assert_allclose(output, truth["output"], atol=2e-6)
    np.testing.assert_allclose(captured.weights, truth["weights"], atol=2e-6)
    np.testing.assert_allclose(captured.scores, truth["scores"], atol=1e-5)
    for name in ROWS:
        np.testing.assert_allclose(captured.stats[name], truth[name], atol=1e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["packed", "padding in front", "each offset"])
def test_every_gradient_is_right_where_tiles_are_left_out(name):
    options = SKIPPING[name]
    given = {
        name: x if isinstance(x, bool | tuple) else jnp.asarray(x) for name, x in options.items()
    }
    given["dropout"] = Dropout(0.2, jax.random.key(1))
    bias = jax.random.normal(jax.random.key(2), (1, 2, LONG, LONG))

    def loss(attend, *arrays):
        call = Call(
            *arrays[:3], bias=arrays[3], **given, capture=Capture(stats=("entropy", "received"))
        )
        output, captured = attend(call)
        found = (output, *captured.stats.values())
        return sum((x * jnp.cos(jnp.arange(x.size).reshape(x.shape))).sum() for x in found)

    grads = [
        jax.jit(jax.grad(lambda *x, a=attend: loss(a, *x), (0, 1, 2, 3)), compiler_options=QUICK)(
            *arrays(), bias
        )
        for attend in (run, lambda call: expect(checked(call)))
    ]
    for found, truth in zip(*grads, strict=True):
        np.testing.assert_allclose(found, truth, rtol=2e-5, atol=2e-5)


@pytest.mark.slow
def test_a_sink_is_all_that_rows_without_tiles_have():
    q = jnp.ones((1, 9, 2, 4))
    options = {"mask": jnp.zeros((1, 9), bool), "sinks": jnp.asarray([-jnp.inf, 0.5])}
    call = Call(q, q, q, **options, capture=Capture(stats=("lse", "entropy", "sink")))
    output, captured = jax.jit(lambda: run(call), compiler_options=QUICK)()
    assert not np.asarray(output).any()
    of_heads = {name: np.asarray(x)[0, :, 0].tolist() for name, x in captured.stats.items()}
    assert of_heads == {"lse": [-np.inf, 0.5], "entropy": [0, 0], "sink": [0, 1]}


@pytest.mark.slow
def test_kernels_compute_no_tile_outside_of_their_ranges(monkeypatch):
    """With ranges that hold nothing, forward and backward find nothing."""

    def nothing(*_):
        return tiles.TileRanges(*[jnp.zeros((1, 2, 2), jnp.int32)] * 2)

    monkeypatch.setattr(tpu_grid, "tile_ranges", nothing)

    def loss(*arrays):
        capture = Capture(weights=True, stats=("received",))
        output, captured = run(Call(*arrays, segment_ids=jnp.asarray(SEGMENTS), capture=capture))
        return output.sum(), (output, captured.weights, captured.stats["received"])

    of_loss = jax.grad(loss, (0, 1, 2), has_aux=True)
    grads, results = jax.jit(of_loss, compiler_options=QUICK)(*arrays())
    assert not any(np.asarray(x).any() for x in (*grads, *results))


@pytest.mark.slow
def test_examples_of_vmap_have_ranges_of_their_own():
    q = jax.random.normal(jax.random.key(0), (2, 1, LONG, 1, 4))

    def outputs(attend):
        each = jax.vmap(lambda q, ids: attend(Call(q, q, q, segment_ids=ids))[0])
        return jax.jit(each, compiler_options=QUICK)(q, jnp.asarray(SEGMENTS)[:, None])

    found, truth = outputs(run), outputs(lambda call: expect(checked(call)))
    np.testing.assert_allclose(found, truth, atol=2e-6)
