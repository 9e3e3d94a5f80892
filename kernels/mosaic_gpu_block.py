# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One block of the grid on a Hopper GPU: its shared memory, its barriers, and its loader.

Tiles that pass go through rings of slots: the memory warpgroup fills a slot when all compute
warpgroups have freed it, they work on it when all its copies have come. Nothing is computed here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from flaxattn.kernels.mosaic_gpu_form import TileOrigin, TileSchedule


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
