# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients of attention on a Hopper GPU: the backward kernels of Mosaic GPU.

Every kernel has one schedule (see mosaic_gpu_launch.py): some tiles stay in shared memory, others
pass.
Weights are rebuilt from the final LSE, nothing of size Q·K is stored, and every sum has one order:
there are no atomics. The forward kernel is in mosaic_gpu_forward.py.
"""

import functools
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

from flaxattn.kernels import compat, tiles
from flaxattn.kernels.fused import Cotangents
from flaxattn.kernels.mosaic_gpu_grid import (
    NARROWEST,
    columns_of,
    groups_of,
    inputs,
    parts_of,
    schedule_of,
    vector_shape,
    walk,
    walk_heads,
)
from flaxattn.kernels.mosaic_gpu_launch import (
    ROWS,
    ComputeWork,
    GpuTileLayout,
    TileSchedule,
    add_product,
    launch,
    products,
    tile_memory,
    zeros,
)
from flaxattn.kernels.plan import KernelPlan, Operands


def tile_weights(
    schedule: TileSchedule, parts: dict[str, Any], layout: GpuTileLayout, score: Array
) -> tuple[Any, ...]:
    """Scores and weights of a tile, and which of them dropout keeps (None for all).

    Args:
        schedule: Sweep of the kernel; transposed tiles are [keys, queries].
        parts: The tile's part of every input, in shared memory.
        layout: Layout of the tile.
        score: q·k.

    Returns:
        Two float32 tiles, a bool tile.
    """
    plan, rows, keys = (
        schedule.plan,
        layout.lazy_vectors(parts, "row"),
        layout.lazy_vectors(parts, "key"),
    )
    # reference._scores.
    scores = tiles.scores(plan, layout, score, rows, keys, layout.pairs(parts, "bias"))
    # reference._softmax: weights, from the sums of the rows.
    weights = tiles.rebuilt_weights(layout, scores, rows)
    # reference._output: dropout.
    keep = tiles.keep(layout, rows, parts["threshold"][0]) if plan.dropout else None
    return scores, weights, keep


def tile_gradient(
    schedule: TileSchedule, parts: dict[str, Any], layout: GpuTileLayout
) -> tuple[Array, Array, Array]:
    """The weights of a tile after dropout, and the gradients of its scores and of its products.

    Args:
        schedule: Sweep of the kernel; transposed tiles are [keys, queries].
        parts: The tile's part of every input, in shared memory.
        layout: Layout of the tile.

    Returns:
        Three float32 tiles.
    """
    rows, keys = layout.lazy_vectors(parts, "row"), layout.lazy_vectors(parts, "key")
    # q·k, and the weights' gradient of reference._output: dO·v.
    if schedule.transposed:
        pairs = (parts["k"], parts["q"]), (parts["v"], parts["d_output"])
    else:
        pairs = (parts["q"], parts["k"]), (parts["d_output"], parts["v"])
    score, cotangent = products(*pairs)
    scores, weights, keep = tile_weights(schedule, parts, layout, score)
    dropped = weights
    if keep is not None:
        cotangent, dropped = jnp.where(keep, cotangent, 0.0), jnp.where(keep, weights, 0.0)
    d_weights = layout.pairs(parts, "weights")
    if d_weights is not None:
        cotangent = cotangent + d_weights
    d_scores = layout.pairs(parts, "scores")
    gradient = tiles.score_gradient(
        schedule.plan, layout, scores, weights, cotangent, rows, keys, d_scores
    )
    return dropped, gradient, tiles.product_gradient(schedule.plan, layout, score, gradient)


def grad_queries(
    plan: KernelPlan, operands: Operands, cotangents: Cotangents, interpret: Any = False
) -> Float[Array, "B Q H D"]:
    """Gradient of the queries: a block of queries stays, keys pass.

    Args:
        plan: Plan of the call.
        operands: Operands with the backward's packed rows.
        cotangents: Cotangents of output, statistics and maps.
        interpret: False, or how to interpret.

    Returns:
        In q's dtype.
    """
    arrays = inputs(operands, cotangents, transposed=False)
    schedule = schedule_of(plan, False, arrays)
    if plan.depth == 128 and schedule.step == NARROWEST:
        schedule = replace(schedule, groups=1)  # alone, a warpgroup has a few registers more

    def step(sums, _, parts, layout):
        _, _, of_product = tile_gradient(schedule, parts, layout)
        add_product(sums[0], of_product.astype(plan.dtype), parts["k"], parts)
        return ()

    def finish(block, sums, _):
        own, place = block.part("q"), block.origin
        own[...] = (sums[0] * plan.scale).astype(plan.dtype)
        plgpu.commit_smem()
        rows = pl.ds(place.query + block.group * ROWS, ROWS)
        plgpu.copy_smem_to_gmem(own, block.outputs["q"].at[place.batch, rows, place.head])
        plgpu.wait_smem_to_gmem(0)

    work = ComputeWork(1, tuple, step, finish)
    results = {"q": compat.result(arrays["q"].shape, plan.dtype, arrays)}
    name, walked = "attention_grad_queries", walk(schedule, arrays)
    found = launch(name, schedule, walked, results, work.run, {}, interpret)
    return found["q"][:, : plan.queries]


def grad_keys(
    plan: KernelPlan,
    operands: Operands,
    cotangents: Cotangents,
    of_bias: bool,
    interpret: Any = False,
) -> tuple[Float[Array, "B K G D"], Float[Array, "B K G D"], Float[Array, "B H Kp"] | None]:
    """Gradients of keys and values: a block of keys stays, queries pass, tiles are transposed.

    Heads that share a key head are summed afterwards, in float32.

    Args:
        plan: Plan of the call.
        operands: Operands with the backward's packed rows.
        cotangents: Cotangents of output, statistics and maps.
        of_bias: Whether to sum the gradient of the scores of each key.
        interpret: False, or how to interpret.

    Returns:
        dk and dv in k's dtype, and the sums, None unless ``of_bias``.
    """
    arrays = inputs(operands, cotangents, transposed=True)
    wanted = ("k", "v", "bias") if of_bias else ("k", "v")
    if plan.depth == 128 and columns_of(plan, True, arrays, 2) == NARROWEST:
        # Two accumulators leave too few registers for so much: one after the other.
        values = {name: x for name, x in arrays.items() if name not in ("weights", "scores")}
        found = _sums_of_keys(plan, values, ("v",), interpret)
        for name in wanted[::2]:
            found |= _sums_of_keys(plan, arrays, (name,), interpret)
    else:
        found = _sums_of_keys(plan, arrays, wanted, interpret)
    dk, dv = (_of_groups(plan, found[name][:, : plan.keys]) for name in ("k", "v"))
    return dk, dv, found.get("bias")


def _of_groups(plan: KernelPlan, sums: Float[Array, "B K H D"]) -> Float[Array, "B K G D"]:
    """Sums over the query heads that share a key head."""
    if plan.group == 1:
        return sums
    parts = sums.reshape(*sums.shape[:2], plan.key_heads, plan.group, -1).astype(jnp.float32)
    return parts.sum(axis=3).astype(plan.dtype)


def _sums_of_keys(
    plan: KernelPlan, arrays: dict[str, Array], wanted: tuple[str, ...], interpret: Any
) -> dict[str, Array]:
    """Sums over the queries, those that are wanted of "k" (dk), "v" (dv) and "bias"."""
    matrices = [name for name in wanted if name != "bias"]
    schedule = schedule_of(plan, True, arrays, max(1, len(matrices)))
    if len(matrices) < 2:
        # Alone, a warpgroup has a few registers more.
        schedule = replace(schedule, groups=1)
    if "bias" in wanted:
        # The sum over queries is one more thing to carry.
        schedule = replace(schedule, step=min(schedule.step, 64))

    def start():
        registers = plgpu.Layout.WGMMA.reduce(1)
        zero = functools.partial(jnp.zeros, (ROWS,), jnp.float32)
        return [plgpu.layout_cast(zero(), registers)] if "bias" in wanted else []

    def step(sums, totals, parts, layout):
        sums = dict(zip(matrices, sums, strict=True))
        if wanted == ("v",):
            (score,) = products((parts["k"], parts["q"]))
            _, weights, keep = tile_weights(schedule, parts, layout, score)
            dropped = weights if keep is None else jnp.where(keep, weights, 0.0)
            add_product(sums["v"], dropped.astype(plan.dtype), parts["d_output"], parts)
            return totals
        dropped, gradient, of_product = tile_gradient(schedule, parts, layout)
        if "v" in wanted:
            add_product(sums["v"], dropped.astype(plan.dtype), parts["d_output"], parts)
        if "k" in wanted:
            add_product(sums["k"], of_product.astype(plan.dtype), parts["q"], parts)
        return [total + layout.key_sum(gradient) for total in totals]

    def finish(block, sums, totals):
        place = block.origin
        keys = pl.ds(place.key + block.group * ROWS, ROWS)
        for name, total in zip(matrices, sums, strict=True):
            total = total * plan.scale if name == "k" else total
            block.part(name)[...] = total.astype(plan.dtype)
        for total in totals:
            block.stages["bias"][block.group] = total
        plgpu.commit_smem()
        for name in matrices:
            target = block.outputs[name].at[place.batch, keys, place.head]
            plgpu.copy_smem_to_gmem(block.part(name), target)
        if "bias" in wanted:
            target = block.outputs["bias"].at[place.batch, place.head, keys]
            plgpu.copy_smem_to_gmem(block.stages["bias"].at[block.group], target)
        plgpu.wait_smem_to_gmem(0)

    matrix = (plan.batch, arrays["k"].shape[1], plan.heads, plan.depth)
    results = {name: compat.result(matrix, plan.dtype, arrays) for name in matrices}
    staging = {}
    if "bias" in wanted:
        results["bias"] = compat.result(vector_shape(schedule), jnp.float32, arrays)
        staging["bias"] = plgpu.SMEM((schedule.groups, ROWS), jnp.float32)
    work = ComputeWork(len(matrices), start, step, finish)
    name, walked = "attention_grad_keys", walk(schedule, arrays)
    found = launch(name, schedule, walked, results, work.run, staging, interpret)
    if "bias" in wanted:
        found["bias"] = found["bias"][..., : plan.padded_keys]
    return found


def row_dots(
    plan: KernelPlan, operands: Operands, cotangents: Cotangents, interpret: Any = False
) -> Float[Array, "B H Qp"]:
    """For each query, the sum over keys of weight times what reaches it, but for the output.

    Args:
        plan: Plan of the call.
        operands: Packed rows are those of the final sums and, for ``received``, "counted".
        cotangents: Only those of captured weights are used.
        interpret: False, or how to interpret.

    Returns:
        Sums of rows.
    """
    arrays = inputs(operands, cotangents, False)
    arrays = {name: x for name, x in arrays.items() if name not in ("v", "d_output", "scores")}
    schedule = schedule_of(plan, False, arrays)
    registers = plgpu.Layout.WGMMA.reduce(1)

    def start():
        return plgpu.layout_cast(jnp.zeros((ROWS,), jnp.float32), registers)

    def step(_, total, parts, layout):
        rows, keys = layout.lazy_vectors(parts, "row"), layout.lazy_vectors(parts, "key")
        (score,) = products((parts["q"], parts["k"]))
        scores, weights, _ = tile_weights(schedule, parts, layout, score)
        cotangent = tiles.weights_gradient(plan, layout, scores, weights, rows, keys)
        d_weights = layout.pairs(parts, "weights")
        return total + layout.row_sum(
            weights * (cotangent if d_weights is None else cotangent + d_weights)
        )

    def finish(block, _, total):
        own, place = block.stages["dots"].at[block.group], block.origin
        own[...] = total
        plgpu.commit_smem()
        rows = pl.ds(place.query + block.group * ROWS, ROWS)
        plgpu.copy_smem_to_gmem(own, block.outputs["dots"].at[place.batch, place.head, rows])
        plgpu.wait_smem_to_gmem(0)

    results = {"dots": compat.result(vector_shape(schedule), jnp.float32, arrays)}
    staging = {"dots": plgpu.SMEM((schedule.groups, ROWS), jnp.float32)}
    work = ComputeWork(0, start, step, finish)
    name, walked = "attention_row_dots", walk(schedule, arrays)
    found = launch(name, schedule, walked, results, work.run, staging, interpret)
    return found["dots"][..., : plan.padded_queries]


def grad_bias(
    plan: KernelPlan, operands: Operands, cotangents: Cotangents, interpret: Any = False
) -> Float[Array, "#B #H Q K"]:
    """Gradient of the pair bias: every tile of it sums over the batches and heads that share it.

    Where that is too few blocks for the device, each sums a part of them, and the parts are added.

    Args:
        plan: Plan of the call.
        operands: Operands with the backward's packed rows.
        cotangents: Cotangents of output, statistics and maps.
        interpret: False, or how to interpret.

    Returns:
        In float32, in the shape of the bias.
    """
    arrays = inputs(operands, cotangents, False)
    schedule = TileSchedule(
        plan, False, groups_of(plan.queries), columns_of(plan, False, arrays), ()
    )
    shape = (*arrays["bias"].shape[:2], arrays["q"].shape[1], -(-plan.keys // 64) * 64)
    parts = parts_of(schedule, shape)

    def step(_, total, parts, layout):
        return total + tile_gradient(schedule, parts, layout)[1]

    def finish(block, _, total):
        own, place = block.stages["bias"].at[block.group], block.origin
        own[...] = total
        plgpu.commit_smem()
        rows = pl.ds(place.query + block.group * ROWS, ROWS)
        keys = pl.ds(place.key, schedule.step)
        batch = lax.axis_index("part") * shape[0] + (0 if shape[0] == 1 else place.batch)
        here = (batch, 0 if shape[1] == 1 else place.head)
        plgpu.copy_smem_to_gmem(own, block.outputs["bias"].at[(*here, rows, keys)])
        plgpu.wait_smem_to_gmem(0)

    sums = (parts * shape[0], *shape[1:])
    results = {"bias": compat.result(sums, jnp.float32, arrays)}
    staging = {"bias": tile_memory((schedule.groups, ROWS, schedule.step), jnp.float32)}
    work = ComputeWork(0, functools.partial(zeros, schedule.step), step, finish)
    name, walked = "attention_grad_bias", walk_heads(schedule, arrays, shape, parts)
    found = launch(name, schedule, walked, results, work.run, staging, interpret)
    bias = found["bias"].reshape(parts, *shape).sum(axis=0)
    return bias[:, :, : plan.queries, : plan.keys]
