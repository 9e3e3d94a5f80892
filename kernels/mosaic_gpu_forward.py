# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The forward kernel of Mosaic GPU: output, statistics and maps.

Two warpgroups work on 64 queries each while a third brings keys and values; the two take turns, one
on the tensor cores while the other exponentiates. Captured weights and scores are written in a
second pass over the keys, when the sums of the rows are final. mosaic_gpu.py decides which calls
come here; shared memory and barriers are in mosaic_gpu_launch.py.
"""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from flaxattn.kernels import tiles
from flaxattn.kernels.call import Band
from flaxattn.kernels.compat import result, transposed
from flaxattn.kernels.fused import Forward
from flaxattn.kernels.mosaic_gpu_grid import walk
from flaxattn.kernels.mosaic_gpu_launch import (
    GROUPS,
    ROWS,
    GpuTileLayout,
    GridBlock,
    TileSchedule,
    aligned,
    launch,
    tile_memory,
    whole,
    zeros,
)
from flaxattn.kernels.plan import LOG2E, KernelPlan, Operands
from flaxattn.kernels.tiles import ORIGIN

REGISTERS = (40, 232)
"""Registers of a thread that brings tiles, and of one that computes.

A block of three warpgroups starts with 168 for each thread: 40 + 2 * 232 is all there is, and
a warpgroup that asks for more waits for ever.
"""

CROWDED = (56, 224)
"""The same for more than `MOST_INPUTS` inputs, whose addresses need registers."""

MOST_INPUTS = 9


MOST_RESULTS = 8
"""Results beside a soft cap, sinks or a window that fit into registers; found by compiling."""


def forward(plan: KernelPlan, operands: Operands, interpret: Any = False) -> Forward:
    """Output, statistics and maps in one kernel; some statistics may need one of their own.

    Args:
        plan: Plan of the call.
        operands: Operands of the call.
        interpret: False, or how to interpret.

    Returns:
        See `fused.Forward`.
    """
    plan, *others = _parts(plan)
    named = _launch(plan, operands, interpret, output=True)
    more = [_launch(other, operands, interpret, output=False)["rows"] for other in others]
    named["rows"] = jnp.concatenate([named["rows"], *more], axis=2)
    named["output"] = named["output"][:, : plan.queries]
    for name in ("weights", "scores"):
        if name in named:
            named[name] = named[name][:, :, : plan.queries, : plan.keys]
    return Forward(**named)


def _parts(plan: KernelPlan) -> list[KernelPlan]:
    """The plan; or the plan without what needs too many registers, and one each for that."""
    best = tuple(name for name in plan.results if name.startswith("topk"))
    rest = plan.results[: len(plan.results) - len(best)]
    nothing = {"weights": None, "scores": False, "dropout": False}
    parts = []
    alone = rest == ("lse",) and not (plan.weights or plan.scores or plan.dropout)
    if best and not alone:
        parts.insert(0, replace(plan, results=best, sieves=(), **nothing))
        plan = replace(plan, results=rest, topk=0)
    of_sieves = tuple(name for name in rest if name.startswith("sieve"))
    more = plan.soft_cap is not None or plan.sinks or plan.band.low is not None or plan.depth > 64
    if of_sieves and more and len(rest) > MOST_RESULTS:
        parts.insert(0, replace(plan, results=of_sieves, **nothing))
        plan = replace(plan, results=rest[: len(rest) - len(of_sieves)], sieves=())
    return [plan, *parts]


def _launch(plan: KernelPlan, operands: Operands, interpret: Any, output: bool) -> dict[str, Array]:
    """One kernel: its results by name."""
    matrices = ("q", "k", "v") if output else ("q", "k")
    arrays = {name: whole(getattr(operands, name), 1, 8) for name in matrices}
    fields = ("row_floats", "row_ints", "key_floats", "key_ints", "threshold", "keep_scale")
    arrays |= {name: getattr(operands, name) for name in fields}
    if operands.bias is not None:
        arrays["bias"] = aligned(operands.bias)
    arrays = {name: array for name, array in arrays.items() if array is not None}
    staying = [name for name in ("q", "row_floats", "row_ints") if name in arrays]
    maps = bool(plan.weights or plan.scores)
    schedule = TileSchedule(plan, False, GROUPS, plan.block_k, tuple(staying), ("v",), twice=maps)
    results, stages = result_shapes(plan, arrays), stages_of(plan)
    name, walked = "attention_forward", walk(schedule, arrays)
    registers = CROWDED if len(walked.arrays) > MOST_INPUTS else REGISTERS
    return launch(name, schedule, walked, results, _compute, stages, interpret, registers)


def _compute(block: GridBlock) -> None:
    """The work of a warpgroup: all tiles, the rows, and maps if they are captured."""
    layout = GpuTileLayout(block.schedule, block.origin, block.group)
    rows = layout.lazy_vectors(block.parts(block.schedule.staying), "row")
    total, state = _visit_tiles(block, rows)
    shift, inverse = _store_rows(block, total, state)
    if block.schedule.twice:
        _write_maps(block, rows, shift, inverse)
    plgpu.wait_smem_to_gmem(0)


def _take_turns(block: GridBlock) -> None:
    """Lets the other warpgroup use the tensor cores."""
    plgpu.barrier_arrive(block.turn)
    plgpu.barrier_wait(block.turn)


def _scores(
    block: GridBlock, rows: Any, step: Any, tile: Any, band: Band, turns: bool, unit: float = 1.0
) -> tuple[Any, ...]:
    """Layout, `reference._scores` / unit and key vectors of a tile of keys, once it is there."""
    plan = block.schedule.plan
    plan = replace(plan, band=band, scale=plan.scale if unit == 1.0 else 1 / LOG2E)
    ring, slot = block.rings[0], block.slot(step)
    layout = GpuTileLayout(block.schedule, block.place(tile), block.group)
    here = block.parts(ring.names, slot)
    plgpu.barrier_wait(ring.full.at[slot])

    def multiply(accumulator):
        plgpu.wgmma(accumulator, block.part("q"), transposed(here["k"]))
        if turns:
            _take_turns(block)
        return accumulator[...]

    shape = (ROWS, block.schedule.step)
    score = pl.run_scoped(multiply, plgpu.WGMMAAccumulatorRef(shape, jnp.float32))
    if len(here) == 1:
        plgpu.barrier_arrive(ring.free.at[slot])
    keys = layout.lazy_vectors(here, "key")
    return layout, tiles.scores(plan, layout, score, rows, keys, layout.pairs(here, "bias")), keys


def _free_vectors(block: GridBlock, step: Any) -> None:
    """Gives back the slot of a tile of keys when its vectors have been read into registers."""
    ring = block.rings[0]
    if len(ring.names) > 1:
        # TMA may overwrite what was read: a fence between the two.
        plgpu.commit_smem()
        plgpu.barrier_arrive(ring.free.at[block.slot(step)])


def _visit_tiles(block: GridBlock, rows: Mapping[str, Any]) -> tuple[Any, Any]:
    """The sum of exponentials times values, and the state of the rows, after all tiles."""
    plan = block.schedule.plan
    # Without values there are no two products to take turns with.
    turns = "v" in block.sources
    unit = _unit(block)

    def visit(band: Band, step: Any, carried: Any) -> Any:
        total, state = carried
        tile = block.first + step
        layout, scores, keys = _scores(block, rows, step, tile, band, turns, unit)
        # reference._softmax: exponentials; reference._statistics: sums so far.
        masked = not (_unmasked(block) and band.whole)
        state, exponentials, rescale = tiles.advance(
            plan, layout, state, scores, rows, keys, unit, masked, layout.reach
        )
        _free_vectors(block, step)
        if not turns:
            return total, state
        # reference._output: dropout, and the sum over keys.
        if plan.dropout:
            keep = tiles.keep(layout, rows, block.sources["threshold"][0])
            exponentials = jnp.where(keep, exponentials, 0.0)
        total = total * lax.broadcast_in_dim(rescale, total.shape, [0])
        ring, slot = block.rings[1], block.slot(step)
        plgpu.barrier_arrive(block.turn)
        plgpu.barrier_wait(ring.full.at[slot])
        plgpu.barrier_wait(block.turn)
        total = _add_values(total, exponentials.astype(plan.dtype), block, slot)
        plgpu.barrier_arrive(ring.free.at[slot])
        return total, state

    layout = GpuTileLayout(block.schedule, block.origin, block.group)
    carried = (zeros(plan.depth), tiles.start(plan, layout, rows))
    if turns:
        pl.when(block.group == 1)(functools.partial(_take_turns, block))
    for ends, band in _stretches(block):
        carried = lax.fori_loop(*ends, functools.partial(visit, band), carried)
    if turns:
        pl.when(block.group == 0)(functools.partial(_take_turns, block))
    return carried


def _stretches(block: GridBlock) -> list[tuple[tuple[Any, Any], Band]]:
    """Steps that need the same masks: only tiles at the edges of the band have masked pairs."""
    plan, start, stop = block.schedule.plan, jnp.int32(0), block.count
    if not plan.skips:
        return [((start, stop), plan.band)]
    (low, high), offset, query = plan.band, plan.offset or 0, block.origin.query
    stretches, inner = [], start
    if low is not None:
        last = query + (GROUPS * ROWS - 1 + offset + low)
        inside = lax.div(jnp.maximum(last, 0) + (plan.block_k - 1), plan.block_k)
        inner = jnp.clip(inside - block.first, 0, stop)
        stretches.append(((start, inner), plan.band))
    if high is None:
        return [*stretches, ((inner, stop), Band())]
    inside = lax.div(jnp.maximum(query + (1 + offset + high), 0), plan.block_k)
    edge = jnp.clip(inside - block.first, inner, stop)
    return [*stretches, ((inner, edge), Band()), ((edge, stop), plan.band)]


def _unmasked(block: GridBlock) -> bool:
    """Return whether nothing but the band masks scores."""
    plan = block.schedule.plan
    others = ("bias" in plan.key_floats, "bias" in block.sources, "segment" in plan.row_ints)
    return not any(others)


def _unit(block: GridBlock) -> float:
    """The factor of the scores, when it can be left out of them: nothing is added to them."""
    plan = block.schedule.plan
    factor = plan.scale * LOG2E
    biased = "bias" in plan.key_floats or "bias" in block.sources
    return 1.0 if biased or factor <= 0 or plan.soft_cap is not None else factor


def _add_values(total: Any, weights: Any, block: GridBlock, slot: Any) -> Any:
    """Total + weights · v. Interpreters know no matrices in registers: there it is two steps."""
    v, own = block.part("v", slot), block.registers
    if own is None:

        def add(accumulator):
            plgpu.wgmma(accumulator, weights, v)

        return pl.run_state(add)(plgpu.WGMMAAccumulatorRef.init(total))
    own[...] = weights
    plgpu.commit_smem()

    def fresh(accumulator):
        plgpu.wgmma(accumulator, own, v)
        return accumulator[...]

    return total + pl.run_scoped(fresh, plgpu.WGMMAAccumulatorRef(total.shape, jnp.float32))


def _store_rows(block: GridBlock, total: Any, state: Any) -> tuple[Any, Any]:
    """Stores output and statistics; returns what makes weights of exponentials."""
    plan, stages, place = block.schedule.plan, block.stages, block.origin
    shift, inverse, found = tiles.finish(plan, state)
    rows = pl.ds(place.query + block.group * ROWS, ROWS)
    packed = stages["rows"].at[block.group]
    for number, name in enumerate(plan.results):
        packed[number] = found[name]
    if "output" in block.outputs:
        # reference._output: divided by the sum of the row, and by the share that dropout keeps.
        factor = inverse
        if plan.dropout:
            factor = factor * block.sources["keep_scale"][0]
        output = stages["output"].at[block.group] if "output" in stages else block.part("q")
        output[...] = (total * lax.broadcast_in_dim(factor, total.shape, [0])).astype(plan.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(output, block.outputs["output"].at[place.batch, rows, place.head])
    plgpu.commit_smem()
    target = block.outputs["rows"].at[place.batch, place.head, slice(None), rows]
    plgpu.copy_smem_to_gmem(packed, target)
    return shift, inverse


def _write_maps(block: GridBlock, rows: Mapping[str, Any], shift: Any, inverse: Any) -> None:
    """The second pass: scores again, now with the final sums of their rows."""
    plan = block.schedule.plan
    maps = [name for name in ("weights", "scores") if name in block.stages]
    double = len(maps) == 1

    def store(tile: Any, before: Any, values: Mapping[str, Any]) -> None:
        # Tiles are not written in their order: the stages take turns by the number written before.
        slot = lax.rem(before, 2) if double else 0
        # The stage is free when what was in it before has left: all but the last tile, or all.
        plgpu.wait_smem_to_gmem(1 if double else 0, wait_read_only=True)
        place = block.place(tile)
        queries = pl.ds(place.query + block.group * ROWS, ROWS)
        keys = pl.ds(place.key, plan.block_k)
        for name in maps:
            block.stages[name].at[block.group, slot][...] = values[name]
        plgpu.commit_smem()
        for name in maps:
            target = block.outputs[name].at[place.batch, place.head, queries, keys]
            plgpu.copy_smem_to_gmem(block.stages[name].at[block.group, slot], target)

    def write(step: Any, _: Any) -> None:
        tile = block.first + step
        layout, scores, _keys = _scores(block, rows, block.count + step, tile, plan.band, False)
        _free_vectors(block, block.count + step)
        values = {}
        if plan.weights:
            # reference._softmax, reference._in_dtype.
            exponentials = jnp.exp2(scores - layout.rows(shift))
            values["weights"] = _in_dtype(layout, exponentials, inverse, plan.weights)
        if plan.scores:
            values["scores"] = scores * tiles.LN2
        store(tile, step, values)

    lax.fori_loop(0, block.count, write, None)
    if plan.skips or plan.ranged:
        masked = zeros(plan.block_k)
        values = {"weights": masked.astype(plan.weights or "float32")}
        values["scores"] = masked - jnp.inf

        def fill(tile: Any, _: Any) -> None:
            store(tile, jnp.where(tile < block.first, block.count + tile, tile), values)

        lax.fori_loop(0, block.first, fill, None)
        lax.fori_loop(block.first + block.count, plan.key_blocks, fill, None)


def _in_dtype(layout: GpuTileLayout, exponentials: Any, inverse: Any, dtype: str) -> Any:
    """Weights as they are stored: exponentials times the factor of their row."""
    if dtype != "uint8":
        return (exponentials * layout.rows(inverse)).astype(dtype)
    # Floats around the origin count in steps of 1: adding rounds, and the last byte has the rest.
    rounded = exponentials * layout.rows(inverse * 255.0) + ORIGIN
    return lax.bitcast_convert_type(rounded, jnp.int32).astype(dtype)


def result_shapes(plan: KernelPlan, arrays: Mapping[str, Array]) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of the results; maps have whole tiles of 8 rows, as TMA wants them."""
    shape = (plan.batch, plan.heads, arrays["q"].shape[1])
    rows = (plan.batch, plan.heads, len(plan.results), plan.padded_queries)
    found = {"rows": result(rows, jnp.float32, arrays)}
    if "v" in arrays:
        found["output"] = result(arrays["q"].shape, plan.dtype, arrays)
    if plan.weights:
        found["weights"] = result((*shape, _columns(plan, plan.weights)), plan.weights, arrays)
    if plan.scores:
        found["scores"] = result((*shape, _columns(plan, jnp.float32)), jnp.float32, arrays)
    return found


def _columns(plan: KernelPlan, dtype: Any) -> int:
    """Columns of a map: whole tiles of shared memory, see `mosaic_gpu_launch.tile_memory`."""
    tile = min(plan.block_k, 128 // jnp.dtype(dtype).itemsize)
    return -(-plan.keys // tile) * tile


def stages_of(plan: KernelPlan) -> dict[str, Any]:
    """Shared memory for results: two tiles of a map, so that one is written while one leaves.

    Two maps have one tile each. The output takes the place of the queries unless a second pass
    still needs them.
    """
    stages = {"rows": plgpu.SMEM((GROUPS, len(plan.results), ROWS), jnp.float32)}
    shape = (GROUPS, 1 if plan.weights and plan.scores else 2, ROWS, plan.block_k)
    if plan.weights:
        stages["weights"] = tile_memory(shape, plan.weights)
    if plan.scores:
        stages["scores"] = tile_memory(shape, jnp.float32)
    if len(stages) > 1:
        stages["output"] = tile_memory((GROUPS, ROWS, plan.depth), plan.dtype)
    return stages
