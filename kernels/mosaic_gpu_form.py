# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tiles on a Hopper GPU: where they lie in global memory, shared memory and registers.

Each compute warpgroup of a kernel works on 64 rows of a tile. A `TileSchedule` says which inputs
stay in shared memory while others pass, a `GpuTileLayout` how a warpgroup holds a tile in
registers. Kernels are elsewhere, and no attention is computed here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

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
        plan: of the call.
        transposed: tiles are [keys, queries], so warpgroups share the keys of a block; otherwise
            tiles are [queries, keys] and they share the queries.
        groups: compute warpgroups, `ROWS` rows of a block each.
        step: columns of a tile.
        staying: inputs that are loaded once; all others pass, a tile at a time.
        late: inputs that pass in a ring of their own, because they are needed after the others.
        twice: whether tiles pass a second time, without the inputs that are late.
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
    """`tiles.Form` of a warpgroup's tile in the registers' layout of wgmma."""

    def __init__(self, sweep: TileSchedule, place: TileOrigin, group: Any):
        own = group * ROWS
        self.plan = sweep.plan
        self.row_axis, self.key_axis = (1, 0) if sweep.transposed else (0, 1)
        self.shape = (ROWS, sweep.step)
        self.query = place.query if sweep.transposed else place.query + own
        self.key = place.key + own if sweep.transposed else place.key

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
        layout = plgpu.Layout.WGMMA.reduce(self.key_axis)
        return plgpu.layout_cast(jnp.full((self.shape[self.row_axis],), value, jnp.float32), layout)

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
        pairs: matrices in shared memory, (left, right); all right ones have the same length.

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

    def __init__(self, form: GpuTileLayout, parts: Mapping[str, Any], side: str):
        axis = form.row_axis if side == "row" else form.key_axis
        self.layout = plgpu.Layout.WGMMA.reduce(1 - axis)
        self.places = {}
        for kind in (f"{side}_floats", f"{side}_ints"):
            for number, name in enumerate(getattr(form.plan, kind)):
                self.places[name] = parts[kind].at[number]

    def __getitem__(self, name):
        return compat.load(self.places[name], self.layout)

    def __iter__(self):
        return iter(self.places)

    def __len__(self):
        return len(self.places)

    def __contains__(self, name):
        return name in self.places
