# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a kernel on Hopper: a memory warpgroup brings tiles, compute warpgroups work on them.

The computations are arguments, as functions; no attention is computed here. Each compute warpgroup
of a kernel works on 64 rows of a tile. A `TileSchedule` says which inputs stay in shared memory
while others pass, a `GpuTileLayout` how a warpgroup holds a tile in registers. Which tiles a block
of the grid visits is in mosaic_gpu_grid.py.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from flaxattn.kernels import compat
from flaxattn.kernels.plan import LOG2E, KernelPlan

ROWS = 64
"""Rows of a tile that one warpgroup works on."""

GROUPS = 2
"""Most warpgroups that compute in a block."""

OF_QUERIES = ("q", "d_output", "row_floats", "row_ints")
OF_KEYS = ("k", "v", "key_floats", "key_ints")
OF_PAIRS = ("bias", "weights", "scores")
PACKED = ("row_floats", "row_ints", "key_floats", "key_ints")
NUMBERS = ("threshold", "keep_scale", "ranges")
"""Inputs of few numbers, which are read where they are."""

SHARED_MEMORY = 208 * 1024
"""Bytes of shared memory for tiles: what a block may have on Hopper, less barriers and scratch."""


class TileOrigin(NamedTuple):
    """Index of a tile: batch and head, and positions of its first query and key."""

    batch: Any
    head: Any
    query: Any
    key: Any


@dataclass(frozen=True)
class TileSchedule:
    """Schedule of a kernel: tiles that stay in shared memory, and tiles that pass through it.

    Attributes:
        plan: Plan of the call.
        transposed: Tiles are [keys, queries], so warpgroups share the keys of a block; otherwise
            tiles are [queries, keys] and they share the queries.
        groups: Compute warpgroups, `ROWS` rows of a block each.
        step: Columns of a tile.
        staying: Inputs that are loaded once; all others pass, a tile at a time.
        late: Inputs that pass in a ring of their own, because they are needed after the others.
        twice: Whether tiles pass a second time, without the inputs that are late.
    """

    plan: KernelPlan
    transposed: bool
    groups: int
    step: int
    staying: tuple[str, ...]
    late: tuple[str, ...] = ()
    twice: bool = False

    def per_group(self, name: str) -> bool:
        """Return whether every warpgroup has its own rows of an input."""
        return name in OF_PAIRS or name in (OF_KEYS if self.transposed else OF_QUERIES)

    def tile(self, name: str, array: Any) -> tuple[int, ...]:
        """Shape of one warpgroup's part of an input."""
        length = ROWS if self.per_group(name) else self.step
        if name in OF_PAIRS:
            return ROWS, self.step
        return (array.shape[2], length) if name in PACKED else (length, self.plan.depth)

    def copies(self, names: Any) -> int:
        """Number of copies that bring the inputs."""
        return sum(self.groups if self.per_group(name) else 1 for name in names)

    def rings(self, arrays: Mapping[str, Any]) -> list[list[str]]:
        """The inputs that pass, those together that share a ring of slots."""
        passing = [name for name in arrays if name not in (*self.staying, *NUMBERS)]
        late = [name for name in passing if name in self.late]
        early = [name for name in passing if name not in late]
        return [early, late] if late else [early]

    def slots(self, arrays: Mapping[str, Any], staged: int = 0) -> int:
        """Number of passing tiles that fit beside what stays and ``staged`` bytes: 1 to 4."""
        sizes = {name: size_of(buffer) for name, buffer in self.buffers(arrays, 1).items()}
        staged += sum(sizes.pop(name) for name in self.staying)
        return max(1, min(4, (SHARED_MEMORY - staged) // sum(sizes.values())))

    def buffers(self, arrays: Mapping[str, Any], slots: int) -> dict[str, Any]:
        """Shared memory by input: one tile of what stays, ``slots`` of what passes."""
        return {
            name: self._buffer(name, array, () if name in self.staying else (slots,))
            for name, array in arrays.items()
            if name not in NUMBERS
        }

    def _buffer(self, name: str, array: Any, slots: tuple[int, ...]) -> Any:
        groups = (self.groups,) if self.per_group(name) else ()
        # A product over the columns of a tile takes as many at once as lie together.
        widest = 128 if name in OF_PAIRS else min(128, 2 * self.step)
        shape = (*slots, *groups, *self.tile(name, array))
        return tile_memory(shape, array.dtype, name in PACKED, widest)

    def window(self, name: str, source: Any, place: TileOrigin, group: int) -> Any:
        """The part of an input in global memory that a warpgroup's tile needs."""
        own = group * ROWS
        query, key = (
            (place.query, place.key + own) if self.transposed else (place.query + own, place.key)
        )
        rows, columns = (key, query) if self.transposed else (query, key)
        if name in OF_PAIRS:
            corner = (pl.ds(rows, ROWS), pl.ds(columns, self.step))
            return source.at[(*_leading(source, place), *corner)]
        start = query if name in OF_QUERIES else key
        if not self.per_group(name):
            start = columns
        length = ROWS if self.per_group(name) else self.step
        if name in PACKED:
            return source.at[(*_leading(source, place), slice(None), pl.ds(start, length))]
        head = place.head
        if name in ("k", "v") and self.plan.group > 1:
            head = lax.div(head, self.plan.group)
        return source.at[place.batch, pl.ds(start, length), head]


def _leading(source: Any, place: TileOrigin) -> tuple[Any, Any]:
    """Indices of batch and head; a dimension of 1 stands for all."""
    batch, heads = source.shape[:2]
    return (0 if batch == 1 else place.batch), (0 if heads == 1 else place.head)


def size_of(memory: Any) -> int:
    """Bytes of shared memory."""
    return math.prod(memory.shape) * jnp.dtype(memory.dtype).itemsize


def aligned(array: Array) -> Array:
    """A map of pairs with whole tiles of columns and rows, as TMA wants them."""
    return whole(whole(array, 2, 8), 3, 64)


def whole(array: Array, axis: int, unit: int) -> Array:
    """The array, with zeros at the end of an axis whose length is not a multiple of ``unit``."""
    missing = -array.shape[axis] % unit
    if not missing:
        return array
    tail = [(0, 0)] * array.ndim
    tail[axis] = (0, missing)
    return jnp.pad(array, tail)


def tile_memory(shape: tuple[int, ...], dtype: Any, plain: bool = False, widest: int = 128) -> Any:
    """Shared memory for tiles, laid out for the tensor cores unless plain.

    ``widest`` is the most bytes of a row that lie together.
    """
    if plain:
        return plgpu.SMEM(shape, dtype)
    size = jnp.dtype(dtype).itemsize
    width = min(widest, shape[-1] * size)
    # Typed as abstract in some versions of jax.
    layouts: Any = plgpu
    transforms = (layouts.TilingTransform((8, width // size)), layouts.SwizzleTransform(width))
    return plgpu.SMEM(shape, dtype, transforms=transforms)


class GpuTileLayout:
    """`tiles.TileLayout` of a warpgroup's tile in the registers' layout of wgmma."""

    def __init__(self, schedule: TileSchedule, place: TileOrigin, group: Any):
        own = group * ROWS
        self.plan = schedule.plan
        self.row_axis, self.key_axis = (1, 0) if schedule.transposed else (0, 1)
        self.shape = (ROWS, schedule.step)
        self.query = place.query if schedule.transposed else place.query + own
        self.key = place.key + own if schedule.transposed else place.key

    def rows(self, vector: Array) -> Array:
        """A vector of rows beside the tile."""
        return lax.broadcast_in_dim(vector, self.shape, [self.row_axis])

    def keys(self, vector: Array) -> Array:
        """A vector of keys beside the tile."""
        return lax.broadcast_in_dim(vector, self.shape, [self.key_axis])

    def row_sum(self, tile: Array) -> Array:
        """Sum over the keys of each row."""
        return tile.sum(axis=self.key_axis)

    def row_max(self, tile: Array) -> Array:
        """Maximum over the keys of each row."""
        return tile.max(axis=self.key_axis)

    def key_sum(self, tile: Array) -> Array:
        """Sum over the rows of each key."""
        return tile.sum(axis=self.row_axis)

    def row_positions(self) -> Array:
        """Position of the query of each entry."""
        return self._positions(self.row_axis) + self.query

    def key_positions(self) -> Array:
        """Position of the key of each entry."""
        return self._positions(self.key_axis) + self.key

    def full_row(self, value: float) -> Array:
        """A float32 vector of rows of one value."""
        registers = plgpu.Layout.WGMMA.reduce(self.key_axis)
        return plgpu.layout_cast(
            jnp.full((self.shape[self.row_axis],), value, jnp.float32), registers
        )

    def tanh(self, tile: Array) -> Array:
        """Hyperbolic tangent, accurate to 22 bits; the GPU's own instruction is accurate to 11."""
        divisor = 1.0 + jnp.exp2(tile * (2 * LOG2E))
        return 1.0 - 2.0 * lax.rsqrt(divisor * divisor)

    @property
    def reach(self) -> tuple[Any, Any] | None:
        """Smallest and largest offset of the tile, None where examples have offsets of their own.

        An offset is the position of a key less that of a query.
        """
        if self.plan.offset is None:
            return None
        rows, keys = (self.shape[axis] - 1 for axis in (self.row_axis, self.key_axis))
        between = self.key - self.query - self.plan.offset
        return between - rows, between + keys

    def _positions(self, axis):
        return plgpu.broadcasted_iota(jnp.int32, self.shape, axis, layout=plgpu.Layout.WGMMA)

    def vectors(self, parts: Mapping[str, Any], side: str) -> dict[str, Array]:
        """Packed vectors of the "row" or "key" side of the tile, by name, in registers."""
        return dict(self.lazy_vectors(parts, side))

    def lazy_vectors(self, parts: Mapping[str, Any], side: str) -> Mapping[str, Array]:
        """Vectors that are loaded when they are used, before the slot of their tile is reused."""
        return Vectors(self, parts, side)

    def pairs(self, parts: Mapping[str, Any], name: str) -> Array | None:
        """The tile of an input that has an entry for every pair, None without one."""
        return compat.load(parts[name], plgpu.Layout.WGMMA) if name in parts else None


def products(*pairs: tuple[Any, Any]) -> list[Array]:
    """Left · rightᵀ of each pair, all on the tensor cores before the first is read.

    Args:
        pairs: Matrices in shared memory, (left, right); all right ones have the same length.

    Returns:
        A float32 tile of each pair.
    """

    def multiply(*totals):
        for total, (left, right) in zip(totals, pairs, strict=True):
            plgpu.wgmma(total, left, compat.transposed(right))
        return [total[...] for total in totals]

    accumulator = plgpu.WGMMAAccumulatorRef((ROWS, pairs[0][1].shape[0]), jnp.float32)
    return pl.run_scoped(multiply, *[accumulator] * len(pairs))


def add_product(total: Any, left: Array, right: Any, parts: Mapping[str, Any]) -> None:
    """Adds left · right to an accumulator, left from registers, not waiting for it.

    Interpreters take matrices from shared memory only, so there left goes through it.
    """
    if "registers" in parts:
        parts["registers"][...] = left
        plgpu.commit_smem()
        left = parts["registers"]
    plgpu.wgmma(total, left, right)


def zeros(columns: int) -> Array:
    """A float32 accumulator of a warpgroup."""
    return plgpu.layout_cast(jnp.zeros((ROWS, columns), jnp.float32), plgpu.Layout.WGMMA)


class Vectors(Mapping[str, Array]):
    """Packed vectors in shared memory; each is loaded where it is used, which saves registers."""

    def __init__(self, layout: GpuTileLayout, parts: Mapping[str, Any], side: str):
        axis = layout.row_axis if side == "row" else layout.key_axis
        self.layout = plgpu.Layout.WGMMA.reduce(1 - axis)
        self.places = {}
        for kind in (f"{side}_floats", f"{side}_ints"):
            for number, name in enumerate(getattr(layout.plan, kind)):
                self.places[name] = parts[kind].at[number]

    def __getitem__(self, name):
        return compat.load(self.places[name], self.layout)

    def __iter__(self):
        return iter(self.places)

    def __len__(self):
        return len(self.places)

    def __contains__(self, name):
        return name in self.places


class Ring(NamedTuple):
    """Slots of shared memory that tiles of some inputs pass through together.

    Attributes:
        names: Names of the inputs.
        full: A barrier for each slot: its tile has come.
        free: A barrier for each slot: all compute warpgroups are done with it.
    """

    names: Sequence[str]
    full: Any
    free: Any


class GridBlock(NamedTuple):
    """One block of the grid, as all its warpgroups see it.

    Attributes:
        schedule: Which inputs stay in shared memory and which pass.
        sources: Inputs in global memory, by name.
        buffers: Their tiles in shared memory, by name.
        outputs: Results in global memory, by name.
        stages: Shared memory for results, by name.
        registers: Shared memory that stands for a matrix in registers, None on a GPU.
        ready: Barrier: what stays has come.
        turn: Barrier of the compute warpgroups, None unless there are two rings.
        rings: Rings of the inputs that pass, as in `TileSchedule.rings`.
        slots: Tiles that each ring holds.
        first: Number of the first tile.
        count: Number of tiles.
        place: Function from the number of a tile to its place.
        group: The warpgroup.
    """

    schedule: TileSchedule
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
        index = () if name in self.schedule.staying else (slot,)
        index = (*index, self.group) if self.schedule.per_group(name) else index
        return self.buffers[name].at[index] if index else self.buffers[name]

    def parts(self, names: Sequence[str], slot: Any = None) -> dict[str, Any]:
        """The parts of several inputs, by name."""
        return {name: self.part(name, slot) for name in names}

    def copy(self, names: Sequence[str], tile: Any, slot: Any, barrier: Any) -> None:
        """Start the copies of a tile's inputs, for every warpgroup that has rows of its own."""
        for name in names:
            for group in range(self.schedule.groups if self.schedule.per_group(name) else 1):
                source = self.schedule.window(name, self.sources[name], self.place(tile), group)
                target = self._replace(group=group).part(name, slot)
                plgpu.copy_gmem_to_smem(source, target, barrier)

    def bring(self) -> None:
        """Run the memory warpgroup: what stays, then tile by tile what passes."""
        self.copy(self.schedule.staying, self.first, None, self.ready)
        self._bring_tiles(self.rings, 0)
        if self.schedule.twice:
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
        accumulators: Number of matrices [ROWS, D] that the tensor cores sum up.
        start: () -> what else is carried from tile to tile.
        step: (accumulators, carried, parts in shared memory, layout) -> carried.
        finish: (block, sums, carried) -> None; stores.
    """

    accumulators: int
    start: Callable[..., Any]
    step: Callable[..., Any]
    finish: Callable[..., None]

    def run(self, block: GridBlock) -> None:
        """Run a compute warpgroup: all tiles, one after the other."""
        staying = block.parts(block.schedule.staying)
        if "threshold" in block.sources:
            staying["threshold"] = block.sources["threshold"]
        if block.registers is not None:
            staying["registers"] = block.registers

        def all_tiles(*sums):
            step = functools.partial(self._one_tile, block, staying, sums)
            carried = lax.fori_loop(0, block.count, step, self.start())
            return [total[...] for total in sums], carried

        accumulator = plgpu.WGMMAAccumulatorRef((ROWS, block.schedule.plan.depth), jnp.float32)
        accumulators = [accumulator] * self.accumulators
        found = pl.run_scoped(all_tiles, *accumulators) if accumulators else all_tiles()
        self.finish(block, *found)

    def _one_tile(self, block: GridBlock, staying: Any, sums: Any, step: Any, carried: Any) -> Any:
        (ring,), slot = block.rings, block.slot(step)
        plgpu.barrier_wait(ring.full.at[slot])
        parts = staying | block.parts(ring.names, slot)
        layout = GpuTileLayout(block.schedule, block.place(block.first + step), block.group)
        carried = self.step(sums, carried, parts, layout)
        plgpu.wgmma_wait(0)
        # What was read here may be overwritten by TMA: a fence between the two.
        plgpu.commit_smem()
        plgpu.barrier_arrive(ring.free.at[slot])
        return carried


class Walk(NamedTuple):
    """Inputs of a kernel, the blocks of its grid, and the tiles that each of them visits.

    Attributes:
        arrays: The inputs, by name.
        grid: Sizes of the grid, by name.
        tiles_of: Inside the kernel, from the inputs in global memory: the first tile of this
            block, the number of its tiles, and the place of a tile by its number.
    """

    arrays: Mapping[str, Array]
    grid: Mapping[str, int]
    tiles_of: Callable[[Mapping[str, Any]], tuple[Any, Any, Callable[[Any], TileOrigin]]]


def launch(
    name: str,
    schedule: TileSchedule,
    walk: Walk,
    results: Mapping[str, jax.ShapeDtypeStruct],
    compute: Callable[[GridBlock], None],
    staging: Mapping[str, Any],
    interpret: Any,
    registers: tuple[int, int] | None = None,
) -> dict[str, Array]:
    """Runs a kernel.

    Args:
        name: Name of the kernel, for profilers.
        schedule: Which inputs stay in shared memory and which pass.
        walk: Its inputs, its grid, and which tiles a block visits.
        results: Shapes of the outputs, by name.
        compute: Runs a compute warpgroup, when what stays has come.
        staging: Shared memory for results, by name.
        interpret: False, or how to interpret.
        registers: Registers of a thread that loads, and of one that computes; None for
            `_registers`.

    Returns:
        The outputs, by name.
    """
    arrays, grid = _evened(schedule, walk.arrays), walk.grid
    slots = schedule.slots(arrays, sum(size_of(stage) for stage in staging.values()))
    fewer, more = registers or _registers(schedule, arrays)

    def kernel(*refs):
        block = _block(schedule, slots, arrays, results, staging, walk, refs)

        @pl.when(block.group == schedule.groups)
        def _memory():
            if schedule.groups > 1:
                plgpu.set_max_registers(fewer, action="decrease")
            block.bring()

        @pl.when(block.group < schedule.groups)
        def _compute():
            if schedule.groups > 1:
                plgpu.set_max_registers(more, action="increase")
            if schedule.staying:
                plgpu.barrier_wait(block.ready)
            compute(block)

    kernel.__name__ = name
    scratch = [schedule.buffers(arrays, slots), _barriers(schedule, arrays, slots)]
    matrix = plgpu.SMEM((schedule.groups, ROWS, schedule.step), schedule.plan.dtype)
    found = plgpu.kernel(
        kernel,
        out_type=list(results.values()),
        scratch_types=[*scratch, list(staging.values()), [matrix] if interpret else []],
        grid=tuple(grid.values()),
        grid_names=tuple(grid),
        num_threads=schedule.groups + 1,
        thread_name="group",
        compiler_params=plgpu.CompilerParams(approx_math=True),
        interpret=interpret,
    )(*arrays.values())
    return dict(zip(results, found, strict=True))


def _block(
    schedule: TileSchedule,
    slots: int,
    arrays: Mapping[str, Array],
    results: Mapping[str, Any],
    staging: Mapping[str, Any],
    walk: Walk,
    refs: tuple[Any, ...],
) -> GridBlock:
    """The block of the grid that is being run, from what Pallas hands to a kernel."""
    buffers, barriers, stages, registers = refs[len(arrays) + len(results) :]
    rings = zip(schedule.rings(arrays), barriers["full"], barriers["free"], strict=True)
    group = lax.axis_index("group")
    sources = dict(zip(arrays, refs, strict=False))
    first, count, place = walk.tiles_of(sources)
    return GridBlock(
        schedule,
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


def _evened(schedule: TileSchedule, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs with an even number of packed vectors where narrow tiles need it.

    jax 0.10 copies multiples of 128 bytes only: 16 columns of an even number of vectors.
    """
    if schedule.step > 16:
        return dict(arrays)
    return {name: whole(x, 2, 2) if name in PACKED else x for name, x in arrays.items()}


def _registers(schedule: TileSchedule, arrays: Mapping[str, Array]) -> tuple[int, int]:
    """Registers of a thread that brings, and of one that computes; found by compiling.

    The more addresses the memory warpgroup has to keep, the fewer registers it gives up.
    """
    addresses = sum(name != "ranges" for name in arrays) + 2 * schedule.plan.skips
    if addresses <= 6:
        return 24, 240
    crowded = addresses > 11 and schedule.plan.depth < 128
    return (56, 224) if crowded else (40, 232)


def _barriers(schedule: TileSchedule, arrays: Mapping[str, Array], slots: int) -> dict[str, Any]:
    """Barriers of a `GridBlock`; of "full" and "free" a list, as there may be two rings."""
    rings = schedule.rings(arrays)
    copies = [schedule.copies(names) for names in rings]
    found: dict[str, Any] = {
        "ready": plgpu.Barrier(num_arrivals=max(1, schedule.copies(schedule.staying))),
        "full": [plgpu.Barrier(num_arrivals=number, num_barriers=slots) for number in copies],
        "free": [plgpu.Barrier(num_arrivals=schedule.groups, num_barriers=slots) for _ in rings],
    }
    if len(rings) > 1:
        found["turn"] = plgpu.Barrier(num_arrivals=schedule.groups)
    return found
