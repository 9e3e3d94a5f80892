# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a sweep on Hopper: a memory warpgroup brings tiles, compute warpgroups work on them.

The tiles that pass go through a ring of slots: the memory warpgroup fills a slot when all compute
warpgroups have freed it, they work on it when all its copies have come. What is computed is given
as functions; which tiles there are is in mosaic_gpu_form.py.
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

from flaxattn.kernels.mosaic_gpu_form import ROWS, GpuTileLayout, TileOrigin, TileSchedule, size_of


class ComputeWork(NamedTuple):
    """Work of the compute warpgroups.

    Attributes:
        accumulators: how many matrices [ROWS, D] the tensor cores sum up.
        start: () -> what else is carried from tile to tile.
        step: (accumulators, carried, parts in shared memory, form) -> carried.
        finish: (sums, carried, what stays, place, group, outputs, stages) -> None; stores.
    """

    accumulators: int
    start: Callable[..., Any]
    step: Callable[..., Any]
    finish: Callable[..., None]


class Barriers(NamedTuple):
    """Barriers that the warpgroups wait for.

    Attributes:
        ready: what stays has come.
        full: the tile of a slot has come.
        free: all compute warpgroups are done with a slot.
    """

    ready: Any
    full: Any
    free: Any


class GridBlock(NamedTuple):
    """One block of the grid, as all its warpgroups see it.

    Attributes:
        sweep: what stays and what passes.
        sources: inputs in global memory, by name.
        buffers: their tiles in shared memory, by name.
        barriers: see there.
        slots: tiles that the ring holds.
        first: number of the first tile.
        last: number after the last tile.
        place: of a tile, by its number.
        group: the warpgroup.
    """

    sweep: TileSchedule
    sources: Mapping[str, Any]
    buffers: Mapping[str, Any]
    barriers: Barriers
    slots: int
    first: Any
    last: Any
    place: Callable[[Any], TileOrigin]
    group: Any

    def slot(self, step: Any) -> Any:
        """The slot of a tile."""
        return lax.rem(step - self.first, self.slots)

    def part(self, name: str, slot: Any, group: Any) -> Any:
        """A warpgroup's part of an input in shared memory; ``slot`` only of what passes."""
        index = () if name in self.sweep.staying else (slot,)
        index = (*index, group) if self.sweep.per_group(name) else index
        return self.buffers[name].at[index] if index else self.buffers[name]

    def copy(self, names: Sequence[str], step: Any, barrier: Any) -> None:
        """Starts the copies of a tile's inputs."""
        for name in names:
            for group in range(self.sweep.groups if self.sweep.per_group(name) else 1):
                source = self.sweep.window(name, self.sources[name], self.place(step), group)
                target = self.part(name, self.slot(step), group)
                plgpu.copy_gmem_to_smem(source, target, barrier)

    def bring(self) -> None:
        """Run the memory warpgroup."""
        staying, passing = self.sweep.staying, self.sweep.passing(self.sources)
        self.copy(staying, self.first, self.barriers.ready)

        @pl.loop(self.first, self.last)
        def _(step):
            slot = self.slot(step)

            @pl.when(step - self.first >= self.slots)
            def _():
                plgpu.barrier_wait(self.barriers.free.at[slot])

            self.copy(passing, step, self.barriers.full.at[slot])

    def compute(self, work: ComputeWork, staying: Mapping[str, Any]) -> tuple[list[Array], Any]:
        """Run a compute warpgroup: all tiles, one after the other."""
        passing = self.sweep.passing(self.sources)

        def one_tile(sums, step, carried):
            slot = self.slot(step)
            plgpu.barrier_wait(self.barriers.full.at[slot])
            parts = {name: self.part(name, slot, self.group) for name in passing}
            form = GpuTileLayout(self.sweep, self.place(step), self.group)
            carried = work.step(sums, carried, {**staying, **parts}, form)
            plgpu.wgmma_wait(0)
            # What was read here may be overwritten by TMA: a fence between the two.
            plgpu.commit_smem()
            plgpu.barrier_arrive(self.barriers.free.at[slot])
            return carried

        def all_tiles(*sums):
            step = functools.partial(one_tile, sums)
            carried = lax.fori_loop(self.first, self.last, step, work.start())
            return [total[...] for total in sums], carried

        if not work.accumulators:
            return all_tiles()
        accumulator = plgpu.WGMMAAccumulatorRef((ROWS, self.sweep.plan.depth), jnp.float32)
        return pl.run_scoped(all_tiles, *[accumulator] * work.accumulators)


def launch(
    sweep: TileSchedule,
    arrays: Mapping[str, Array],
    results: list[jax.ShapeDtypeStruct],
    grid: Mapping[str, int],
    tiles_of: Callable[[], tuple[Any, Any, Callable[[Any], TileOrigin]]],
    work: ComputeWork,
    staging: list[Any],
    interpret: Any,
) -> list[Array]:
    """Runs a kernel.

    Args:
        sweep: what stays and what passes.
        arrays: the inputs, by name.
        results: shapes of the outputs.
        grid: sizes of the grid, by name.
        tiles_of: inside the kernel, the first and the last step (excluded) of this block, and
            the place of a step's tile.
        work: what is computed.
        staging: shared memory for results, handed to ``work.finish``.
        interpret: False, or how to interpret.

    Returns:
        The outputs.
    """
    slots = sweep.slots(arrays, sum(size_of(stage) for stage in staging))
    fewer, more = _registers(sweep, arrays)

    def kernel(*refs):
        sources = dict(zip(arrays, refs, strict=False))
        outputs = refs[len(arrays) : len(arrays) + len(results)]
        buffers, barriers, stages, registers = refs[len(arrays) + len(results) :]
        group = lax.axis_index("group")
        block = GridBlock(sweep, sources, buffers, Barriers(*barriers), slots, *tiles_of(), group)

        @pl.when(group == sweep.groups)
        def _memory():
            if sweep.groups > 1:
                plgpu.set_max_registers(fewer, action="decrease")
            block.bring()

        @pl.when(group < sweep.groups)
        def _compute():
            if sweep.groups > 1:
                plgpu.set_max_registers(more, action="increase")
            if sweep.staying:
                plgpu.barrier_wait(block.barriers.ready)
            staying = {name: block.part(name, None, group) for name in sweep.staying}
            if "threshold" in sources:
                staying["threshold"] = sources["threshold"]
            if registers:
                staying["registers"] = registers[0].at[group]
            sums, carried = block.compute(work, staying)
            work.finish(sums, carried, staying, block.place(block.first), group, outputs, stages)

    scratch = [sweep.buffers(arrays, slots), _barriers(sweep, arrays, slots), staging]
    scratch.append(
        [plgpu.SMEM((sweep.groups, ROWS, sweep.step), sweep.plan.dtype)] if interpret else []
    )
    return plgpu.kernel(
        kernel,
        out_type=results,
        scratch_types=scratch,
        grid=tuple(grid.values()),
        grid_names=tuple(grid),
        num_threads=sweep.groups + 1,
        thread_name="group",
        compiler_params=plgpu.CompilerParams(approx_math=True),
        interpret=interpret,
    )(*arrays.values())


def _registers(sweep: TileSchedule, arrays: Mapping[str, Array]) -> tuple[int, int]:
    """Registers of a thread that brings, and of one that computes; found by compiling.

    The more addresses the memory warpgroup has to keep, the fewer registers it gives up.
    """
    addresses = len(arrays) + 2 * sweep.plan.skips
    if addresses <= 6:
        return 24, 240
    crowded = addresses > 11 and sweep.plan.depth < 128
    return (56, 224) if crowded else (40, 232)


def _barriers(sweep: TileSchedule, arrays: Mapping[str, Array], slots: int) -> tuple[Any, Any, Any]:
    """See `Barriers`."""
    return (
        plgpu.Barrier(num_arrivals=max(1, sweep.copies(sweep.staying))),
        plgpu.Barrier(num_arrivals=sweep.copies(sweep.passing(arrays)), num_barriers=slots),
        plgpu.Barrier(num_arrivals=sweep.groups, num_barriers=slots),
    )
