# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention on a Hopper GPU, in Pallas' Mosaic GPU: which calls it takes, and in which kernels.

The kernels themselves are in mosaic_gpu_forward.py and mosaic_gpu_backward.py; only the column
sums are here.
"""

import functools
from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

from flaxattn.kernels import compat, fused, mosaic_gpu_backward, mosaic_gpu_grid, tiles
from flaxattn.kernels.call import Call
from flaxattn.kernels.contract import Intermediates, Sieve
from flaxattn.kernels.mosaic_gpu_forward import forward
from flaxattn.kernels.mosaic_gpu_launch import (
    GROUPS,
    ROWS,
    ComputeWork,
    aligned,
    launch,
    products,
    whole,
)
from flaxattn.kernels.plan import KernelPlan, Operands

# jax refuses causal attention of its own Hopper kernel under these versions: their ptxas gets the
# structure wrong that both kernels share, see jax.experimental.pallas.ops.gpu.attention_mgpu.
_MISCOMPILED = range(12080, 12091)
DEPTHS = (32, 64, 128)
"""Depths of a head that the kernels know; others are padded with zeros to the next."""

_CHEAP = {"lse", "max", "max_score", "sink", "received"}
"""Statistics that need no registers beside those of the sums of rows."""

_SUMS = {"entropy", "distance", "sum_sq"}
"""Statistics that are one more sum of each row, as the mass of a sieve is."""


def refusal(call: Call) -> str | None:
    """Why these kernels cannot run a call, whatever the device.

    Args:
        call: A checked call.

    Returns:
        The reason, None when they can.
    """
    if call.q.dtype not in (jnp.bfloat16, jnp.float16):
        return f"its matrices are bfloat16 or float16, q is {call.q.dtype}"
    if (deepest := max(call.q.shape[3], call.v.shape[3])) > DEPTHS[-1]:
        return f"a head may be {DEPTHS[-1]} deep, q or v has depth {deepest}"
    if call.causal and (compat.cuda_version() or 0) in _MISCOMPILED:
        return "its causal kernels are miscompiled by CUDA 12.8.0 to 12.9.0; update CUDA to 12.9.1"
    return fused.refusal(call)


def blocks(call: Call) -> tuple[int, int]:
    """Queries and keys of a tile: small where statistics need the registers.

    Args:
        call: A checked call.

    Returns:
        ``(block_q, block_k)``.
    """
    capture = call.capture
    more = set(capture.stats) - _CHEAP
    wide_maps = capture.scores or (capture.weights and capture.dtype == "float32")
    maps, dropped = capture.weights or capture.scores, call.dropout is not None
    if more and maps and dropped and call.q.shape[3] <= DEPTHS[0]:
        # 64 keys spill here. Deeper heads do not, and their products with v take 64 at least.
        return GROUPS * ROWS, 32
    crowded = bool(more) and (maps or not _fits(call, more))
    return GROUPS * ROWS, 64 if crowded or wide_maps or dropped else 128


def _fits(call: Call, more: set[str | Sieve]) -> bool:
    """Return whether tiles of 128 keys leave registers for statistics; found by compiling."""
    if more <= {"entropy", "argmax"}:
        return True
    sums = all(
        item.statistic == "mass" if isinstance(item, Sieve) else item in _SUMS for item in more
    )
    masks = (call.segment_ids, call.soft_cap, call.sinks)
    given = [x for x in (call.mask, call.bias) if x is not None and not callable(x)]
    of_pairs = [x for x in given if x.shape[2] > 1]
    simple = call.band.whole and not of_pairs and all(x is None for x in masks)
    return simple and sums and len(more) <= 4 and call.q.shape[3] < DEPTHS[-1]


def attend(call: Call, interpret: Any = False) -> tuple[Float[Array, "B Q H D"], Intermediates]:
    """Attention and what was asked of it, in fused kernels.

    Args:
        call: A checked call without `refusal`.
        interpret: False on a GPU, or how to interpret.

    Returns:
        The output in q's dtype and the intermediates.
    """
    depth, factor = call.v.shape[3], call.factor
    wide = next(size for size in DEPTHS if size >= max(depth, call.q.shape[3]))
    q, k, v = (whole(array, 3, wide) for array in (call.q, call.k, call.v))
    call = call._replace(q=q, k=k, v=v, scale=factor)
    output, record = fused.attend(call, kernels(interpret), *blocks(call))
    return output[..., :depth], record


@functools.cache
def kernels(interpret: Any = False) -> fused.Kernels:
    """The kernels of this device.

    Args:
        interpret: False on a GPU, or how to interpret.

    Returns:
        The same object for the same argument.
    """
    backward = mosaic_gpu_backward
    bind = functools.partial
    return fused.Kernels(
        "mosaic_gpu",
        forward=bind(forward, interpret=interpret),
        received=bind(received, interpret=interpret),
        row_dots=bind(backward.row_dots, interpret=interpret),
        grad_queries=bind(backward.grad_queries, interpret=interpret),
        grad_keys=bind(backward.grad_keys, interpret=interpret),
        grad_bias=bind(backward.grad_bias, interpret=interpret),
    )


def received(
    plan: KernelPlan, operands: Operands, interpret: Any = False
) -> Float[Array, "B H Kp"]:
    """Column sums of the weights of the counted queries: keys stay, queries pass.

    Args:
        plan: Plan of the call.
        operands: Packed rows are those of the final sums and "counted".
        interpret: False, or how to interpret.

    Returns:
        Sums of keys.
    """
    arrays = {name: whole(getattr(operands, name), 1, 8) for name in ("q", "k")}
    for name in ("row_floats", "row_ints", "key_floats", "key_ints"):
        arrays[name] = getattr(operands, name)
    if operands.bias is not None:
        arrays["bias"] = aligned(jnp.swapaxes(operands.bias, 2, 3))
    arrays = {name: array for name, array in arrays.items() if array is not None}
    schedule = mosaic_gpu_grid.schedule_of(plan, transposed=True, arrays=arrays)
    registers = plgpu.Layout.WGMMA.reduce(1)

    def start():
        return plgpu.layout_cast(jnp.zeros((ROWS,), jnp.float32), registers)

    def step(_, total, parts, layout):
        rows, keys = layout.vectors(parts, "row"), layout.vectors(parts, "key")
        (score,) = products((parts["k"], parts["q"]))
        scores = tiles.scores(plan, layout, score, rows, keys, layout.pairs(parts, "bias"))
        # reference._statistics: received.
        weights = tiles.rebuilt_weights(layout, scores, rows)
        return total + layout.key_sum(weights * layout.rows(rows["counted"]))

    def finish(block, _, total):
        own, place = block.stages["received"].at[block.group], block.origin
        own[...] = total
        plgpu.commit_smem()
        keys = pl.ds(place.key + block.group * ROWS, ROWS)
        plgpu.copy_smem_to_gmem(own, block.outputs["received"].at[place.batch, place.head, keys])
        plgpu.wait_smem_to_gmem(0)

    shape = mosaic_gpu_grid.vector_shape(schedule)
    results = {"received": compat.result(shape, jnp.float32, arrays)}
    staging = {"received": plgpu.SMEM((schedule.groups, ROWS), jnp.float32)}
    work = ComputeWork(0, start, step, finish)
    name, walked = "attention_received", mosaic_gpu_grid.walk(schedule, arrays)
    found = launch(name, schedule, walked, results, work.run, staging, interpret)
    return found["received"][..., : plan.padded_keys]
