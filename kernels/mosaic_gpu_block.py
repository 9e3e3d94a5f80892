# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Shared memory, barriers and loader of one block of queries of the forward kernel.

The memory warpgroup brings queries once, keys and values tile by tile into rings of slots, and
the keys again when maps are written. Nothing is computed here; see mosaic_gpu_forward.py.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from flaxattn.kernels.compat import result
from flaxattn.kernels.mosaic_gpu_form import (
    PACKED,
    ROWS,
    SHARED_MEMORY,
    TileOrigin,
    TileSchedule,
    tile_memory,
)
from flaxattn.kernels.plan import KernelPlan

GROUPS = 2
"""Warpgroups that compute."""

OF_KEYS = ("k", "key_floats", "key_ints", "bias")
"""Inputs that come with a tile of keys; values come by themselves, later."""


class QueryBlock(NamedTuple):
    """Resources that the warpgroups of one block of queries share.

    Attributes:
        sweep: sizes of the tiles.
        sources: inputs in global memory.
        buffers: their tiles in shared memory.
        barriers: ``ready`` for what stays, ``full`` and ``free`` of "k" and "v", ``turn``.
        stages: shared memory for results.
        outputs: results in global memory.
        first: place of the first tile.
        begin: number of the first tile of keys that some query of the block may attend to.
        count: number of such tiles.
        slots: tiles that shared memory holds.
        group: the warpgroup.
    """

    sweep: TileSchedule
    sources: Mapping[str, Any]
    buffers: Mapping[str, Any]
    barriers: Mapping[str, Any]
    stages: Mapping[str, Any]
    outputs: Mapping[str, Any]
    first: TileOrigin
    begin: Any
    count: Any
    slots: int
    group: Any

    def place(self, tile: Any) -> TileOrigin:
        """Place of a tile of keys, by its number."""
        return self.first._replace(key=tile * self.sweep.step)

    def of_keys(self) -> list[str]:
        """Inputs that come with a tile of keys."""
        return [name for name in OF_KEYS if name in self.sources]

    def part(self, name: str, slot: Any) -> Any:
        """The warpgroup's part of an input in shared memory."""
        leading = () if name in self.sweep.staying else (slot,)
        leading = (*leading, self.group) if self.sweep.per_group(name) else leading
        return self.buffers[name].at[leading] if leading else self.buffers[name]

    def copy(self, name: str, tile: Any, slot: Any, barrier: Any) -> None:
        """Starts to bring an input's tile, for every warpgroup that has rows of its own."""
        for own in range(GROUPS if self.sweep.per_group(name) else 1):
            target = self._replace(group=own).part(name, slot)
            source = self.sweep.window(name, self.sources[name], self.place(tile), own)
            plgpu.copy_gmem_to_smem(source, target, barrier)


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
    """Columns of a map: whole tiles of shared memory, see `mosaic_gpu_form.tile_memory`."""
    tile = min(plan.block_k, 128 // jnp.dtype(dtype).itemsize)
    return -(-plan.keys // tile) * tile


def stages_of(plan: KernelPlan) -> dict[str, Any]:
    """Shared memory for results: two tiles of a map, so that one is written while one leaves.

    Two maps have one tile each. The output takes the place of the queries unless a second sweep
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


def tiled(arrays: Mapping[str, Array]) -> list[str]:
    """Inputs that come in tiles; the others are numbers that are read where they are."""
    return [name for name in arrays if name not in ("threshold", "keep_scale")]


def buffer_of(sweep: TileSchedule, name: str, array: Array, slots: int) -> Any:
    """Shared memory for an input: one tile of what stays, ``slots`` of what passes."""
    shape, dtype = sweep.buffer(name, array, slots)
    return tile_memory(shape, dtype, plain=name in PACKED)


def _bytes(memory: Any) -> int:
    size = jnp.dtype(memory.dtype).itemsize
    for length in memory.shape:
        size *= length
    return size


def slots_of(sweep: TileSchedule, arrays: Mapping[str, Array], stages: Mapping[str, Any]) -> int:
    """Number of tiles of keys and values that fit beside what stays: 2 to 4, 1 if need be."""
    sizes = {name: _bytes(buffer_of(sweep, name, arrays[name], 1)) for name in tiled(arrays)}
    fixed = sum(sizes.pop(name, 0) for name in sweep.staying)
    fixed += sum(_bytes(stage) for stage in stages.values())
    return max(1, min(4, (SHARED_MEMORY - fixed) // sum(sizes.values())))


def barriers_of(sweep: TileSchedule, arrays: Mapping[str, Array], slots: int) -> dict[str, Any]:
    """Barriers by name: what stays is ready, turns, and full and free slots of each ring."""
    names = tiled(arrays)
    barriers = {
        "ready": plgpu.Barrier(num_arrivals=sweep.copies([n for n in names if n in sweep.staying])),
        "turn": plgpu.Barrier(num_arrivals=GROUPS),
    }
    copies = {"k": sweep.copies([n for n in names if n in OF_KEYS])}
    if "v" in names:
        copies["v"] = 1
    for name, number in copies.items():
        barriers[f"full {name}"] = plgpu.Barrier(num_arrivals=number, num_barriers=slots)
        barriers[f"free {name}"] = plgpu.Barrier(num_arrivals=GROUPS, num_barriers=slots)
    return barriers


def staying(block: QueryBlock) -> dict[str, Any]:
    """The warpgroup's part of what stays, by name."""
    return {name: block.part(name, None) for name in block.sweep.staying if name in block.sources}


def bring(block: QueryBlock) -> None:
    """Brings the queries, then keys and values tile by tile, then the keys again for maps."""
    barriers, slots = block.barriers, block.slots
    for name in staying(block):
        block.copy(name, 0, None, barriers["ready"])

    def bring(names: Any, ring: str, step: Any, tile: Any) -> None:
        slot = lax.rem(step, slots)

        @pl.when(step >= slots)
        def _():
            plgpu.barrier_wait(barriers[f"free {ring}"].at[slot])

        for name in names:
            block.copy(name, tile, slot, barriers[f"full {ring}"].at[slot])

    @pl.loop(0, block.count)
    def _(step):
        tile = block.begin + step
        bring(block.of_keys(), "k", step, tile)
        if "v" in block.sources:
            bring(["v"], "v", step, tile)

    if block.sweep.plan.weights or block.sweep.plan.scores:

        @pl.loop(0, block.count)
        def _(step):
            bring(block.of_keys(), "k", block.count + step, block.begin + step)
