# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks of the grid of a kernel on a Hopper GPU, and the tiles that each of them visits.

The sizes of tiles of gradients follow from what has to be in registers and shared memory; the
limits were found by compiling (tests/aot), not by timing. The kernels are in mosaic_gpu_backward.py
and mosaic_gpu_forward.py.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from flaxattn.kernels.fused import Cotangents
from flaxattn.kernels.mosaic_gpu_launch import (
    GROUPS,
    OF_PAIRS,
    ROWS,
    TileOrigin,
    TileSchedule,
    Walk,
    aligned,
    whole,
)
from flaxattn.kernels.plan import KernelPlan, Operands
from flaxattn.kernels.tiles import tile_ranges

CORES = 132
"""Multiprocessors of a Hopper GPU."""


def inputs(operands: Operands, cotangents: Cotangents, transposed: bool) -> dict[str, Array]:
    """The arrays that a backward kernel reads, by name; those of pairs [K, Q] if transposed."""
    matrices = {name: getattr(operands, name) for name in ("q", "k", "v")}
    matrices["d_output"] = cotangents.output
    arrays = {name: whole(array, 1, 8) for name, array in matrices.items()}
    for name in ("row_floats", "row_ints", "key_floats", "key_ints", "threshold"):
        arrays[name] = getattr(operands, name)
    maps = {"bias": operands.bias, "weights": cotangents.weights, "scores": cotangents.scores}
    for name, array in maps.items():
        if array is not None:
            arrays[name] = aligned(jnp.swapaxes(array, 2, 3) if transposed else array)
    return {name: array for name, array in arrays.items() if array is not None}


def groups_of(length: int) -> int:
    """Compute warpgroups of a block: `GROUPS` unless one is enough for all rows.

    Rows after the padding of packed vectors read zeros there; what they give is not stored.
    """
    return GROUPS if length > ROWS else 1


NARROWEST = 16
"""Columns of a tile where the registers hold no more."""


def columns_of(
    plan: KernelPlan, transposed: bool, arrays: Mapping[str, Array], sums: int = 1
) -> int:
    """Columns of a tile: as many as the registers of a warpgroup hold without spilling.

    The limits come from compiling; see the report of ptxas in tests/aot. ``sums`` counts the
    accumulators [ROWS, D].
    """
    names = (*plan.row_floats, *plan.key_floats)
    load = sum(name.startswith("d ") for name in names)
    load += sum(arrays[name].dtype.itemsize / 2 for name in OF_PAIRS if name in arrays)
    load += plan.dropout + ("segment" in plan.row_ints)
    load += sum(end is not None for end in plan.band) / 2 + (plan.soft_cap is not None)
    load += (plan.ranged and plan.skips) / 2 + (not transposed and "d max_score" in names) / 2
    if transposed:
        limits = {128: 0, 64: 2, 32: 8} if plan.depth * sums <= 128 else {64: 0, 32: 4}
    else:
        limits = {128: 1, 64: 8, 32: 12} if plan.depth * sums <= 64 else {64: 8}
    length = plan.padded_queries if transposed else plan.padded_keys
    fitting = (n for n, limit in limits.items() if load <= limit and length % n == 0)
    return next(fitting, NARROWEST)


def schedule_of(
    plan: KernelPlan, transposed: bool, arrays: Mapping[str, Array], sums: int = 1
) -> TileSchedule:
    """The schedule of a kernel whose queries stay, or, if transposed, whose keys do."""
    length = plan.keys if transposed else plan.queries
    staying = ("k", "v", "key_floats", "key_ints")
    if not transposed:
        staying = ("q", "d_output", "row_floats", "row_ints")
    staying = tuple(name for name in staying if name in arrays)
    return TileSchedule(
        plan, transposed, groups_of(length), columns_of(plan, transposed, arrays, sums), staying
    )


def vector_shape(schedule: TileSchedule) -> tuple[int, int, int]:
    """Shape of a result with one number for each row that stays, padded to whole blocks.

    The copy of a contiguous vector to global memory is clipped only at the end of the array. With
    shorter rows, the last block of a head would overwrite the first numbers of the next head.
    """
    plan, block = schedule.plan, schedule.groups * ROWS
    length = plan.padded_keys if schedule.transposed else plan.padded_queries
    return plan.batch, plan.heads, -(-length // block) * block


def walk(schedule: TileSchedule, arrays: Mapping[str, Array]) -> Walk:
    """The walk of a kernel with one block for each group of rows.

    Args:
        schedule: Which inputs stay in shared memory and which pass.
        arrays: The inputs, by name.

    Returns:
        The walk; its inputs have the ranges of tiles that masks known at run time leave.
    """
    plan, block = schedule.plan, schedule.groups * ROWS
    length = plan.padded_keys if schedule.transposed else plan.padded_queries
    grid = {"head": plan.heads, "block": -(-length // block), "batch": plan.batch}
    # Ranges need registers, which the narrowest tiles have none to spare of.
    ranged = plan.ranged and not (plan.depth == 128 and schedule.step == NARROWEST)
    if ranged:
        sizes = (schedule.step, block) if schedule.transposed else (block, schedule.step)
        ranges = tile_ranges(plan, arrays, *sizes)
        arrays = {**arrays, "ranges": ranges.queries if schedule.transposed else ranges.keys}

    def tiles_of(sources):
        index = lax.axis_index("block")
        if plan.skips and plan.band.low is None and not schedule.transposed:
            # The last queries see the most keys: the longest blocks begin first.
            index = grid["block"] - 1 - index
        start = index * block
        batch, head = lax.axis_index("batch"), lax.axis_index("head")
        if ranged:
            ends = sources["ranges"]
            here = (0 if ends.shape[0] == 1 else batch, index)
            first, stop = ends[(*here, 0)], ends[(*here, 1)]
        else:
            first, stop = _band_tiles(schedule, start, start + (block - 1))

        def place(step):
            passed = step * schedule.step
            return TileOrigin(
                batch, head, *((passed, start) if schedule.transposed else (start, passed))
            )

        return first, jnp.maximum(stop - first, 0), place

    return Walk(arrays, grid, tiles_of)


def _band_tiles(schedule: TileSchedule, first: Any, last: Any) -> tuple[Any, Any]:
    """Tiles in the band of the rows that stay: the first and the one after the last."""
    plan = schedule.plan
    # reference._allowed: keys in the band of the block's queries, or queries in that of keys.
    if schedule.transposed:
        (begin, stop), length = plan.rows_of(first, last), plan.queries
    else:
        (begin, stop), length = plan.keys_of(first, last), plan.keys
    stop = jnp.minimum(jnp.int32(stop), length)
    return lax.div(jnp.int32(begin), schedule.step), lax.div(
        stop + (schedule.step - 1), schedule.step
    )


def parts_of(schedule: TileSchedule, shape: tuple[int, ...]) -> int:
    """Number of parts in which `grad_bias` sums batches and heads: enough blocks for all cores."""
    plan = schedule.plan
    repeats = plan.batch * plan.heads // (shape[0] * shape[1])
    tiles = -(-plan.keys // schedule.step) * -(-plan.queries // (schedule.groups * ROWS))
    wanted = min(repeats, -(-CORES // (tiles * shape[0] * shape[1])))
    return next(parts for parts in range(wanted, repeats + 1) if repeats % parts == 0)


def walk_heads(
    schedule: TileSchedule, arrays: Mapping[str, Array], shape: tuple[int, ...], parts: int
) -> Walk:
    """The walk of `grad_bias`: a block has a tile for each batch and head of its part of them."""
    plan, block = schedule.plan, schedule.groups * ROWS
    grid = {
        "key": -(-plan.keys // schedule.step),
        "query": -(-plan.queries // block),
        "map": shape[0] * shape[1],
        "part": parts,
    }
    batches, heads = plan.batch // shape[0], plan.heads // shape[1]
    count = batches * heads // parts

    def tiles_of(_):
        batch, head = (
            lax.div(lax.axis_index("map"), shape[1]),
            lax.rem(lax.axis_index("map"), shape[1]),
        )
        query, key = lax.axis_index("query") * block, lax.axis_index("key") * schedule.step

        def place(step):
            return TileOrigin(batch + lax.div(step, heads), head + lax.rem(step, heads), query, key)

        return lax.axis_index("part") * count, jnp.int32(count), place

    return Walk(arrays, grid, tiles_of)
