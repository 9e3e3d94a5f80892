# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What is particular about the forward kernels on Hopper: rings, maps, registers, refusals.

Interpreted, with the search for races on. That all cases are right is in test_conformance.py,
that nothing spills in tests/aot; gradients have test_mosaic_gpu_backward.py.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

from flaxattn.benchmarks import cases, variants
from flaxattn.benchmarks.cases import Case
from flaxattn.kernels import (
    compat,
    fused,
    mosaic_gpu,
    mosaic_gpu_backward,
    mosaic_gpu_grid,
    mosaic_gpu_launch,
    reference,
)
from flaxattn.kernels.call import Call
from flaxattn.kernels.checks import checked
from flaxattn.kernels.contract import NOTHING, Capture, Dropout, Sieve
from flaxattn.kernels.plan import pack

INTERPRETER = compat.gpu_interpreter()

RING = Case("ring", 9, 140, batch=1, heads=1, depth=32, padding=True)
LATE = Case("late", 70, 200, batch=1, heads=1, depth=32, causal=True)
EARLY = Case("early", 130, 40, batch=1, heads=1, depth=32, causal=True, segments=2, dropout=0.2)
SITUATIONS = {
    # More tiles than slots in shared memory, which the test makes small; odd tails.
    "ring": (RING, Capture(stats=("topk(2)", "distance"), weights=True)),
    # Tiles that no query sees are written all the same, through one and through two stages.
    "late keys": (LATE, Capture(weights=True, dtype="uint8")),
    "late keys, two maps": (LATE, Capture(weights=True, scores=True, dtype="float16")),
    "few keys": (EARLY, Capture(weights=True, dtype="bfloat16", stats=("entropy", "received"))),
    # Most tiles do not meet the offsets of a sieve; argmax and distance count positions far out.
    "far": (
        Case("far", 70, 200, batch=1, heads=1, depth=32, offset=100),
        Capture(
            stats=(
                *("argmax", "distance", *cases.SIEVES[:3]),
                Sieve("behind", offsets=(-70, -20), statistic="entropy"),
                Sieve("before", offsets=(5, 60), statistic="argmax"),
            )
        ),
    ),
    "one": (Case("one", 1, batch=1, heads=1, bias="BK"), Capture(stats=("argmax", "sum_sq"))),
}
ROUNDED = {"float32": 2e-3, "bfloat16": 4e-3, "float16": 2e-3, "uint8": 0.51 / 255 + 2e-3}


def close(found, expected, tolerance):
    found, expected = np.asarray(found, np.float32), np.asarray(expected, np.float32)
    scale = max(1.0, np.abs(expected[np.isfinite(expected)]).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


LONG = ("few keys", "ring", "one")


@pytest.mark.float16
@pytest.mark.few("far")
@pytest.mark.skipif(INTERPRETER is None, reason="jax 0.10 cannot interpret Mosaic GPU kernels")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in SITUATIONS]
)
def test_output_and_captures_equal_the_reference(name, monkeypatch):
    case, capture = SITUATIONS[name]
    if name == "ring":
        monkeypatch.setattr(mosaic_gpu_launch, "SHARED_MEMORY", 1)
    call = Call(**case.arguments("float16"), capture=capture)
    output, captured = mosaic_gpu.attend(checked(call), INTERPRETER)
    exact = {key: getattr(call, key).astype(jnp.float32) for key in "qkv"}
    precise = call._replace(**exact, capture=replace(capture, dtype="float32"))
    expected, wanted = jax.jit(lambda: reference.attention(**precise._asdict()))()
    assert output.dtype == jnp.float16
    close(output, expected, 2e-3)
    if capture.weights:
        assert captured.weights.dtype == capture.dtype
        unit = 255 if capture.dtype == "uint8" else 1
        weights = captured.weights.astype(jnp.float32) / unit
        close(weights, wanted.weights, ROUNDED[capture.dtype])
    if capture.scores:
        close(captured.scores, wanted.scores, 2e-3)
    assert captured.stats.keys() == wanted.stats.keys()
    for key, value in captured.stats.items():
        close(value, wanted.stats[key], 2e-3)


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETER is None, reason="jax 0.10 cannot interpret Mosaic GPU kernels")
def test_any_depth_up_to_the_largest():
    arguments = Case("deep", 5, 20, batch=1, heads=1, depth=40).arguments("float16")
    output, _ = mosaic_gpu.attend(checked(Call(**arguments)), INTERPRETER)
    exact = {key: arguments[key].astype(jnp.float32) for key in "qkv"}
    expected, _ = reference.attention(**Call(**(arguments | exact))._asdict())
    assert output.shape == (1, 5, 1, 40)
    close(output, expected, 2e-3)


@pytest.mark.parametrize(
    ("dtype", "depth", "reason"),
    [
        ("float32", 64, "its matrices are bfloat16 or float16, q is float32"),
        ("bfloat16", 129, "a head may be 128 deep, q or v has depth 129"),
        ("float16", 128, None),
    ],
)
def test_refusals_say_why(dtype, depth, reason):
    q = jnp.zeros((1, 2, 1, depth), dtype)
    assert mosaic_gpu.refusal(checked(Call(q, q, q))) == reason


def test_what_needs_registers_gets_smaller_tiles():
    arguments = Case("any", 2, depth=32).arguments("bfloat16")
    dropped = {"dropout": Dropout(0.1, jax.random.key(0))}

    def keys(capture, **others):
        return mosaic_gpu.blocks(checked(Call(**(arguments | others), capture=capture)))[1]

    assert keys(NOTHING) == 128 and keys(Capture(weights=True, dtype="uint8")) == 128
    assert keys(Capture(weights=True)) == 64 and keys(Capture(scores=True)) == 64
    assert keys(NOTHING, **dropped) == 64 and keys(Capture(stats=("topk(2)",))) == 64
    free = Capture(stats=("lse", "max", "received", "max_score", "sink"))
    assert keys(free) == keys(Capture(stats=variants.ROWS)) == 128
    few, many = Capture(stats=cases.SIEVES[:3]), Capture(stats=cases.SIEVES[:5])
    assert keys(few) == 128 and keys(few, causal=True) == 64 and keys(many) == 64
    both = Capture(weights=True, dtype="uint8", stats=("entropy",))
    assert keys(both) == 64 and keys(both, **dropped) == 32


@pytest.mark.slow
def test_what_is_late_passes_in_a_ring_of_its_own():
    def arrays(names, plan):
        vectors = jax.ShapeDtypeStruct((1, 1, 3, plan.padded_keys), jnp.float32)
        matrix = jax.ShapeDtypeStruct(call.k.shape, plan.dtype)
        return {name: matrix if name in "qkv" else vectors for name in names}

    call = checked(Call(**Case("any", 512, depth=128, batch=1, heads=1).arguments("bfloat16")))
    plan, _ = pack(call, *mosaic_gpu.blocks(call))
    given = arrays(("q", "k", "v", "key_floats", "threshold", "keep_scale"), plan)
    schedule = mosaic_gpu_launch.TileSchedule(plan, False, 2, 128, ("q",))
    assert schedule.rings(given) == [["k", "v", "key_floats"]]
    late = replace(schedule, late=("v",))
    assert late.rings(given) == [["k", "key_floats"], ["v"]]
    assert late.rings(arrays(("q", "k"), plan)) == [["k"]]
    # Both rings have as many slots, so it does not matter for memory who waits where.
    assert late.slots(given) == schedule.slots(given) == 2


def foreign_call(**options):
    """Two blocks of queries; the tiles of keys 0 and 2 are theirs, tile 1 is of nobody."""
    queries = jnp.repeat(jnp.array([3, 5]), 128)[None]
    keys = jnp.repeat(jnp.array([3, 4, 5]), 128)[None]
    arguments = Case("foreign", 256, 384, batch=1, heads=1).arguments("float16")
    return checked(Call(**arguments, segment_ids=(queries, keys), **options))


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETER is None, reason="jax 0.10 cannot interpret Mosaic GPU kernels")
def test_tiles_of_foreign_segments_are_not_computed():
    """NaN in a tile that nobody needs would reach every sum that the tile is added to."""
    call = foreign_call(capture=Capture(weights=True, dtype="float16"))
    plan, operands = pack(call, 128, 128)
    kernels = mosaic_gpu.kernels(INTERPRETER)

    def attend(k, v):
        found = fused._run(kernels, plan, operands._replace(k=k, v=v), None)
        return found.output, found.weights

    def all_of(k, v):
        results, pullback = jax.vjp(attend, k, v)
        return results, pullback((jnp.ones_like(results[0]), jnp.zeros_like(results[1])))

    garbage = [x.at[:, 128:256].set(jnp.nan) for x in (operands.k, operands.v)]
    (output, weights), gradients = all_of(*garbage)
    expected = all_of(operands.k, operands.v)
    np.testing.assert_array_equal(output, expected[0][0])
    np.testing.assert_array_equal(weights, expected[0][1])
    assert not np.asarray(weights[..., 128:256]).any()
    # Queries are staying rows as well as passing ones: both ways to walk are in these.
    jax.tree.map(np.testing.assert_array_equal, gradients, expected[1])
    assert np.isfinite(output).all() and np.asarray(output).any()


@pytest.mark.slow
@pytest.mark.parametrize("transposed", [False, True])
def test_packing_and_padding_visit_a_part_of_the_tiles(transposed):
    """Tiles of 128 x 128: 4 packed sequences, and an example of which a quarter is real."""
    ids = jnp.repeat(jnp.arange(4), 256)[None]
    padding = jnp.arange(1024)[None] < 256
    counts = []
    for options in ({"segment_ids": ids}, {"segment_ids": ids, "causal": True}, {"mask": padding}):
        call = Call(**Case("long", 1024, batch=1, heads=1).arguments("bfloat16"))
        plan, operands = pack(checked(call._replace(**options)), 128, 128)
        arrays = mosaic_gpu_grid.inputs(operands, fused.Cotangents(operands.q), transposed)
        schedule = mosaic_gpu_launch.TileSchedule(plan, transposed, 2, 128, ())
        walk = mosaic_gpu_grid.walk(schedule, arrays)
        assert walk.grid["block"] == walk.arrays["ranges"].shape[1] == 8
        counts.append(int(jnp.diff(walk.arrays["ranges"]).sum()))
    assert counts == [16, 12, 16]  # of 64


@pytest.mark.parametrize("name", ["plain", "tails", "weights uint8", "everything, depth 32"])
def test_no_warpgroup_waits_for_registers_that_nobody_gives_up(name, monkeypatch):
    """A block starts with registers shared out evenly; asking for more than that hangs."""
    requested = {"decrease": [], "increase": []}
    original = plgpu.set_max_registers

    def record(number, *, action):
        requested[action].append(number)
        return original(number, action=action)

    monkeypatch.setattr(plgpu, "set_max_registers", record)
    variant = variants.variant(name)
    jax.make_jaxpr(variant.function(mosaic_gpu.attend))(variant.arguments())
    even = 65536 // (3 * 128) // 8 * 8
    assert requested["decrease"]
    for of_memory, of_compute in zip(requested["decrease"], requested["increase"], strict=True):
        assert of_memory + 2 * of_compute <= 3 * even


@pytest.mark.float16
@pytest.mark.parametrize("keys", [65, 140])
def test_numbers_of_rows_are_stored_in_whole_blocks(keys, monkeypatch):
    # A GPU does not clip the copy of a vector at the end of its row, as the interpreter does.
    stored = []

    def launch(name, schedule, walked, results, *arguments, original=mosaic_gpu_launch.launch):
        block = schedule.groups * mosaic_gpu_launch.ROWS
        stored.extend((name, x.shape[-1] % block) for x in results.values() if len(x.shape) == 3)
        return original(name, schedule, walked, results, *arguments)

    for module in (mosaic_gpu, mosaic_gpu_backward):
        monkeypatch.setattr(module, "launch", launch)
    capture = Capture(stats=("received", "entropy"), weights=True)
    case = Case("short", 70, keys, bias="BK", dropout=0.2, depth=32)
    arguments = case.arguments("float16")

    def total(bias):
        call = checked(Call(**arguments | {"bias": bias}, capture=capture))
        output, captured = mosaic_gpu.attend(call)
        return output.astype(jnp.float32).sum() + captured.stats["received"].sum()

    jax.eval_shape(jax.grad(total), arguments["bias"])
    names = {"attention_received", "attention_grad_keys", "attention_row_dots"}
    assert {name for name, _ in stored} == names
    assert all(beyond == 0 for _, beyond in stored), stored
