# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What is particular about the gradients on Hopper: the ring of tiles, tails, blocks of no work.

Interpreted, with the search for races on. That all cases are right is in test_conformance.py,
that nothing spills in tests/aot.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.benchmarks import cases
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
from flaxattn.kernels.contract import Capture
from flaxattn.kernels.plan import pack

INTERPRETER = compat.gpu_interpreter()
BLOCK = 128
# Right is enough here: compiling quickly matters more than speed.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

ALL = Case(
    "all at once", 70, 100, batch=1, heads=2, padding=True, causal=True, segments=2, dropout=0.2
)
SOME = Capture(weights=True, stats=("entropy", "received", cases.SIEVES[3]))
SITUATIONS = {
    # More tiles than slots in shared memory, which the test makes small; odd tails; so narrow
    # tiles that keys and values have kernels of their own.
    "ring": (
        Case("ring", 40, 70, batch=1, heads=1, depth=128, padding=True, dropout=0.1),
        Capture(stats=("entropy",)),
    ),
    "bias of all batches": (replace(ALL, bias="HQK"), SOME),
    # One map for all: each block sums a part of the batches and heads.
    "bias in parts": (Case("parts", 9, 20, batch=2, heads=3, bias="QK"), Capture()),
    # Blocks of keys that no query sees have no tile at all.
    "keys after all queries": (
        Case("late", 9, 200, batch=1, heads=1, causal=True, bias="BK"),
        Capture(),
    ),
}


def run_kernels(call):
    return fused.attend(checked(call), mosaic_gpu.kernels(INTERPRETER), BLOCK, BLOCK)


def run_reference(call):
    return reference.attention(**call._asdict())


def gradients(run, case, capture):
    arguments = case.arguments("float16")
    names = [name for name in ("q", "k", "v", "bias") if name in arguments]
    fixed = {name: value for name, value in arguments.items() if name not in names}

    def loss(arrays):
        leaves = jax.tree.leaves(run(Call(**arrays, **fixed, capture=capture)))
        total = jnp.float32(0)
        for leaf in leaves:
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                x = jnp.where(jnp.isfinite(leaf), leaf.astype(jnp.float32), 0)
                total += (
                    x * jnp.cos(jnp.arange(x.size, dtype=jnp.float32) * 0.7).reshape(x.shape)
                ).sum()
        return total

    compiled = jax.jit(jax.grad(loss), compiler_options=QUICK)
    return compiled({name: arguments[name] for name in names})


LONG = ("ring", "bias of all batches")


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETER is None, reason="jax 0.10 cannot interpret Mosaic GPU kernels")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in SITUATIONS]
)
def test_gradients_equal_those_of_the_reference(name, monkeypatch):
    if name == "ring":
        monkeypatch.setattr(mosaic_gpu_launch, "SHARED_MEMORY", 1)
        for module in (mosaic_gpu_grid, mosaic_gpu_backward):
            monkeypatch.setattr(module, "columns_of", lambda *_: 16)
    found = gradients(run_kernels, *SITUATIONS[name])
    expected = gradients(run_reference, *SITUATIONS[name])
    for key, gradient in found.items():
        assert gradient.dtype == jnp.float16
        scale = np.abs(np.asarray(expected[key], np.float32)).max()
        np.testing.assert_allclose(
            gradient.astype(jnp.float32),
            expected[key].astype(jnp.float32),
            rtol=2e-3,
            atol=2e-3 * max(scale, 1),
            err_msg=key,
        )
    if name == "keys after all queries":
        assert not np.asarray(found["k"][:, 9:]).any() and not np.asarray(found["v"][:, 9:]).any()


def plan_of(case, capture=None, dtype="bfloat16"):
    """(plan, arrays of the backward kernels, not transposed) without numbers."""

    def build():
        arguments = case.arguments(dtype)
        plan, operands = pack(Call(**arguments, capture=capture or Capture()), BLOCK, BLOCK)
        plans.append(plan)
        return mosaic_gpu_grid.inputs(operands, fused.Cotangents(operands.q), False)

    plans = []
    arrays = jax.eval_shape(build)
    return plans[0], arrays


def test_columns_of_a_tile_shrink_with_what_is_computed():
    plan, arrays = plan_of(Case("plain", 512, depth=64))
    columns = mosaic_gpu_grid.columns_of
    assert [columns(plan, transposed, arrays) for transposed in (False, True)] == [128, 128]
    many = replace(plan, row_floats=tuple(f"d sieve {n}" for n in range(8)))
    assert [columns(many, transposed, arrays) for transposed in (False, True)] == [64, 32]
    assert columns(replace(many, depth=128), True, arrays, 2) == 16
    # A tile never reaches beyond the padding of packed vectors.
    odd = replace(plan, queries=190, keys=190, block_q=64, block_k=64)
    assert [columns(odd, transposed, arrays) for transposed in (False, True)] == [64, 64]


def test_the_gradient_of_a_shared_bias_keeps_the_device_busy():
    counts = []
    for bias, batch in (("QK", 8), ("HQK", 8), ("BHQK", 8), ("QK", 1)):
        plan, arrays = plan_of(Case("bert", 512, batch=batch, heads=12, depth=64, bias=bias))
        schedule = mosaic_gpu_launch.TileSchedule(plan, False, 2, 128, ())
        shape = arrays["bias"].shape
        parts = mosaic_gpu_grid.parts_of(schedule, shape)
        grid = mosaic_gpu_grid.walk_heads(schedule, arrays, shape, parts).grid
        assert 8 * 12 % parts == 0
        counts.append(int(np.prod(list(grid.values()))))
    assert counts == [16 * 12, 16 * 12, 16 * 96, 16 * 12]


@pytest.mark.parametrize("depth", [32, 64, 128])
def test_tiles_fit_into_shared_memory(depth):
    plan, arrays = plan_of(Case("full", 512, depth=depth, bias="HQK", dropout=0.1, segments=2))
    maps = jax.ShapeDtypeStruct((2, 3, 512, 512), jnp.float32)
    arrays |= {"weights": maps, "scores": maps}
    for transposed in (False, True):
        tiles = mosaic_gpu_grid.schedule_of(plan, transposed, arrays)
        slots = tiles.slots(arrays)
        buffers = tiles.buffers(arrays, slots).values()
        used = sum(np.prod(x.shape) * jnp.dtype(x.dtype).itemsize for x in buffers)
        assert used <= mosaic_gpu_launch.SHARED_MEMORY and slots >= 1


def test_lengths_become_what_copies_take():
    plan, arrays = plan_of(Case("odd", 131, 77, bias="QK"))
    assert arrays["q"].shape[1] == 136 and arrays["k"].shape[1] == 80
    assert arrays["bias"].shape[2:] == (136, 128)
    assert plan.queries == 131
