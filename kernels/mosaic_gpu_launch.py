# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a kernel on Hopper: a memory warpgroup brings tiles, compute warpgroups work on them.

The computations are arguments, as functions. The tiles are described in mosaic_gpu_form.py and
mosaic_gpu_sweeps.py.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from flaxattn.kernels.mosaic_gpu_form import (
    PACKED,
    ROWS,
    GpuTileLayout,
    TileOrigin,
    TileSchedule,
    size_of,
    whole,
)


class Ring(NamedTuple):
    """Slots of shared memory that tiles of some inputs pass through together.

    Attributes:
        names: of the inputs.
        full: a barrier for each slot: its tile has come.
        free: a barrier for each slot: all compute warpgroups are done with it.
    """

    names: Sequence[str]
    full: Any
    free: Any


class GridBlock(NamedTuple):
    """One block of the grid, as all its warpgroups see it.

    Attributes:
        sweep: what stays and what passes.
        sources: inputs in global memory, by name.
        buffers: their tiles in shared memory, by name.
        outputs: results in global memory, by name.
        stages: shared memory for results, by name.
        registers: shared memory that stands for a matrix in registers, None on a GPU.
        ready: barrier: what stays has come.
        turn: barrier of the compute warpgroups, None unless there are two rings.
        rings: of the inputs that pass, as in `TileSchedule.rings`.
        slots: tiles that each ring holds.
        first: number of the first tile.
        count: number of tiles.
        place: of a tile, by its number.
        group: the warpgroup.
    """

    sweep: TileSchedule
    sources: Mapping[str, Any]
    buffers: Mapping[str, Any]
    outputs: Mapping[str, Any]
    stages: Mapping[str, Any]
    registers: Any
    ready: Any
    turn: Any
    rings: Sequence[Ring]
    slots: int
    first: Any
    count: Any
    place: Callable[[Any], TileOrigin]
    group: Any

    @property
    def origin(self) -> TileOrigin:
        """Place of the first tile."""
        return self.place(self.first)

    def slot(self, step: Any) -> Any:
        """The slot of a tile, by the number of tiles before it in its ring."""
        return lax.rem(step, self.slots)

    def part(self, name: str, slot: Any = None) -> Any:
        """The warpgroup's part of an input in shared memory; ``slot`` only of what passes."""
        index = () if name in self.sweep.staying else (slot,)
        index = (*index, self.group) if self.sweep.per_group(name) else index
        return self.buffers[name].at[index] if index else self.buffers[name]

    def parts(self, names: Sequence[str], slot: Any = None) -> dict[str, Any]:
        """The parts of several inputs, by name."""
        return {name: self.part(name, slot) for name in names}

    def copy(self, names: Sequence[str], tile: Any, slot: Any, barrier: Any) -> None:
        """Start the copies of a tile's inputs, for every warpgroup that has rows of its own."""
        for name in names:
            for group in range(self.sweep.groups if self.sweep.per_group(name) else 1):
                source = self.sweep.window(name, self.sources[name], self.place(tile), group)
                target = self._replace(group=group).part(name, slot)
                plgpu.copy_gmem_to_smem(source, target, barrier)

    def bring(self) -> None:
        """Run the memory warpgroup: what stays, then tile by tile what passes."""
        self.copy(self.sweep.staying, self.first, None, self.ready)
        self._bring_tiles(self.rings, 0)
        if self.sweep.twice:
            self._bring_tiles(self.rings[:1], self.count)

    def _bring_tiles(self, rings: Sequence[Ring], before: Any) -> None:
        """Bring all tiles through some rings, which ``before`` tiles have passed already."""

        @pl.loop(0, self.count)
        def _(step):
            tile, passed = self.first + step, before + step
            for ring in rings:
                self._bring_tile(ring, tile, passed)

    def _bring_tile(self, ring: Ring, tile: Any, passed: Any) -> None:
        slot = self.slot(passed)

        @pl.when(passed >= self.slots)
        def _():
            plgpu.barrier_wait(ring.free.at[slot])

        self.copy(ring.names, tile, slot, ring.full.at[slot])


class ComputeWork(NamedTuple):
    """Work of the compute warpgroups that visit every tile once, from a single ring.

    Attributes:
        accumulators: how many matrices [ROWS, D] the tensor cores sum up.
        start: () -> what else is carried from tile to tile.
        step: (accumulators, carried, parts in shared memory, form) -> carried.
        finish: (block, sums, carried) -> None; stores.
    """

    accumulators: int
    start: Callable[..., Any]
    step: Callable[..., Any]
    finish: Callable[..., None]

    def run(self, block: GridBlock) -> None:
        """Run a compute warpgroup: all tiles, one after the other."""
        staying = block.parts(block.sweep.staying)
        if "threshold" in block.sources:
            staying["threshold"] = block.sources["threshold"]
        if block.registers is not None:
            staying["registers"] = block.registers

        def all_tiles(*sums):
            step = functools.partial(self._one_tile, block, staying, sums)
            carried = lax.fori_loop(0, block.count, step, self.start())
            return [total[...] for total in sums], carried

        accumulator = plgpu.WGMMAAccumulatorRef((ROWS, block.sweep.plan.depth), jnp.float32)
        accumulators = [accumulator] * self.accumulators
        found = pl.run_scoped(all_tiles, *accumulators) if accumulators else all_tiles()
        self.finish(block, *found)

    def _one_tile(self, block: GridBlock, staying: Any, sums: Any, step: Any, carried: Any) -> Any:
        (ring,), slot = block.rings, block.slot(step)
        plgpu.barrier_wait(ring.full.at[slot])
        parts = staying | block.parts(ring.names, slot)
        form = GpuTileLayout(block.sweep, block.place(block.first + step), block.group)
        carried = self.step(sums, carried, parts, form)
        plgpu.wgmma_wait(0)
        # What was read here may be overwritten by TMA: a fence between the two.
        plgpu.commit_smem()
        plgpu.barrier_arrive(ring.free.at[slot])
        return carried


class Walk(NamedTuple):
    """Inputs of a kernel, the blocks of its grid, and the tiles that each of them visits.

    Attributes:
        arrays: the inputs, by name.
        grid: sizes of the grid, by name.
        tiles_of: inside the kernel, from the inputs in global memory: the first tile of this
            block, the number of its tiles, and the place of a tile by its number.
    """

    arrays: Mapping[str, Array]
    grid: Mapping[str, int]
    tiles_of: Callable[[Mapping[str, Any]], tuple[Any, Any, Callable[[Any], TileOrigin]]]


def launch(
    name: str,
    sweep: TileSchedule,
    walk: Walk,
    results: Mapping[str, jax.ShapeDtypeStruct],
    compute: Callable[[GridBlock], None],
    staging: Mapping[str, Any],
    interpret: Any,
    registers: tuple[int, int] | None = None,
) -> dict[str, Array]:
    """Runs a kernel.

    Args:
        name: of the kernel, for profilers.
        sweep: what stays and what passes.
        walk: its inputs, its grid, and which tiles a block visits.
        results: shapes of the outputs, by name.
        compute: runs a compute warpgroup, when what stays has come.
        staging: shared memory for results, by name.
        interpret: False, or how to interpret.
        registers: of a thread that brings, and of one that computes; None for `_registers`.

    Returns:
        The outputs, by name.
    """
    arrays, grid = _evened(sweep, walk.arrays), walk.grid
    slots = sweep.slots(arrays, sum(size_of(stage) for stage in staging.values()))
    fewer, more = registers or _registers(sweep, arrays)

    def kernel(*refs):
        block = _block(sweep, slots, arrays, results, staging, walk, refs)

        @pl.when(block.group == sweep.groups)
        def _memory():
            if sweep.groups > 1:
                plgpu.set_max_registers(fewer, action="decrease")
            block.bring()

        @pl.when(block.group < sweep.groups)
        def _compute():
            if sweep.groups > 1:
                plgpu.set_max_registers(more, action="increase")
            if sweep.staying:
                plgpu.barrier_wait(block.ready)
            compute(block)

    kernel.__name__ = name
    scratch = [sweep.buffers(arrays, slots), _barriers(sweep, arrays, slots)]
    matrix = plgpu.SMEM((sweep.groups, ROWS, sweep.step), sweep.plan.dtype)
    found = plgpu.kernel(
        kernel,
        out_type=list(results.values()),
        scratch_types=[*scratch, list(staging.values()), [matrix] if interpret else []],
        grid=tuple(grid.values()),
        grid_names=tuple(grid),
        num_threads=sweep.groups + 1,
        thread_name="group",
        compiler_params=plgpu.CompilerParams(approx_math=True),
        interpret=interpret,
    )(*arrays.values())
    return dict(zip(results, found, strict=True))


def _block(
    sweep: TileSchedule,
    slots: int,
    arrays: Mapping[str, Array],
    results: Mapping[str, Any],
    staging: Mapping[str, Any],
    walk: Walk,
    refs: tuple[Any, ...],
) -> GridBlock:
    """The block of the grid that is being run, from what Pallas hands to a kernel."""
    buffers, barriers, stages, registers = refs[len(arrays) + len(results) :]
    rings = zip(sweep.rings(arrays), barriers["full"], barriers["free"], strict=True)
    group = lax.axis_index("group")
    sources = dict(zip(arrays, refs, strict=False))
    first, count, place = walk.tiles_of(sources)
    return GridBlock(
        sweep,
        sources=sources,
        buffers=buffers,
        outputs=dict(zip(results, refs[len(arrays) :], strict=False)),
        stages=dict(zip(staging, stages, strict=True)),
        registers=registers[0].at[group] if registers else None,
        ready=barriers["ready"],
        turn=barriers.get("turn"),
        rings=[Ring(*ring) for ring in rings],
        slots=slots,
        first=first,
        count=count,
        place=place,
        group=group,
    )


def _evened(sweep: TileSchedule, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs with an even number of packed vectors where narrow tiles need it.

    jax 0.10 copies multiples of 128 bytes only: 16 columns of an even number of vectors.
    """
    if sweep.step > 16:
        return dict(arrays)
    return {name: whole(x, 2, 2) if name in PACKED else x for name, x in arrays.items()}


def _registers(sweep: TileSchedule, arrays: Mapping[str, Array]) -> tuple[int, int]:
    """Registers of a thread that brings, and of one that computes; found by compiling.

    The more addresses the memory warpgroup has to keep, the fewer registers it gives up.
    """
    addresses = sum(name != "ranges" for name in arrays) + 2 * sweep.plan.skips
    if addresses <= 6:
        return 24, 240
    crowded = addresses > 11 and sweep.plan.depth < 128
    return (56, 224) if crowded else (40, 232)


def _barriers(sweep: TileSchedule, arrays: Mapping[str, Array], slots: int) -> dict[str, Any]:
    """Barriers of a `GridBlock`; of "full" and "free" a list, as there may be two rings."""
    rings = sweep.rings(arrays)
    copies = [sweep.copies(names) for names in rings]
    found: dict[str, Any] = {
        "ready": plgpu.Barrier(num_arrivals=max(1, sweep.copies(sweep.staying))),
        "full": [plgpu.Barrier(num_arrivals=number, num_barriers=slots) for number in copies],
        "free": [plgpu.Barrier(num_arrivals=sweep.groups, num_barriers=slots) for _ in rings],
    }
    if len(rings) > 1:
        found["turn"] = plgpu.Barrier(num_arrivals=sweep.groups)
    return found
