# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a kernel on Hopper: a memory warpgroup brings tiles, compute warpgroups work on them.

What is computed is given as functions. Which tiles there are is in mosaic_gpu_form.py and
mosaic_gpu_sweeps.py, how they come into shared memory in mosaic_gpu_block.py.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from flaxattn.kernels.mosaic_gpu_block import GridBlock, Ring
from flaxattn.kernels.mosaic_gpu_form import (
    PACKED,
    ROWS,
    GpuTileLayout,
    TileOrigin,
    TileSchedule,
    size_of,
    whole,
)


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
