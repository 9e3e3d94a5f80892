# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One shape for all TPU kernels: which tile each step of a grid works on, and what lies in VMEM.

A grid walks over batch, head, the blocks of one side ("outer": a block of queries, or of keys) and,
innermost and in order, over the blocks of the other side. Vectors of the outer side lie as columns
``[n, 1]``, transposed once per outer block; those of the inner side as rows ``[1, n]``, as they
come. Where keys are the outer side tiles are therefore transposed, [keys, queries], and no product
needs a transposed operand. Tiles without a pair that may attend are neither fetched nor computed:
the band says which, or small integer arrays that a kernel reads before its first step. The
computations on a tile are in tpu.py.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Int

from flaxattn.kernels import compat, tiles
from flaxattn.kernels.fused import Cotangents
from flaxattn.kernels.plan import KernelPlan, Operands
from flaxattn.kernels.tiles import tile_ranges

LANES = 128
"""Width of a vector register: packed vectors are cut at multiples of it."""


class TpuTileLayout:
    """`tiles.TileLayout`: vectors lie so that they broadcast with the tile.

    Vectors along the lanes are ``[1, n]``. Those across them are ``[n, 1]`` where they come from
    the packed vectors of a call, and ``[n, LANES]`` where they come from the tile: a maximum stands
    in every lane, a sum is left in parts, one for each lane, which add up to it (`whole_sum`).
    Neither then moves from lane to lane before all tiles are seen.
    """

    def __init__(self, plan: KernelPlan, query: Any, key: Any, transposed: bool):
        self.starts = (query * plan.block_q, key * plan.block_k)
        self.row_axis, self.key_axis = (1, 0) if transposed else (0, 1)
        shape = (plan.block_q, plan.block_k)
        self.shape = shape[::-1] if transposed else shape
        self.row_shape = (1, plan.block_q) if transposed else (plan.block_q, LANES)

    def rows(self, vector: Array) -> Array:
        """Broadcasts with the tile."""
        return self._across(vector)

    def keys(self, vector: Array) -> Array:
        """Broadcasts with the tile."""
        return self._across(vector)

    def _across(self, vector: Array) -> Array:
        if vector.shape[1] != LANES or self.shape[1] == LANES or vector.shape[0] == 1:
            return vector
        return jnp.concatenate([vector] * (self.shape[1] // LANES), axis=1)

    def row_sum(self, tile: Array) -> Array:
        """Sum over the keys."""
        return self._sum(tile, self.key_axis)

    def row_max(self, tile: Array) -> Array:
        """Maximum over the keys."""
        largest = tile.max(axis=self.key_axis, keepdims=True)
        return largest if self.key_axis == 0 else jnp.broadcast_to(largest, self.row_shape)

    def key_sum(self, tile: Array) -> Array:
        """Sum over the rows."""
        return self._sum(tile, self.row_axis)

    def _sum(self, tile: Array, axis: int) -> Array:
        if axis == 0:
            return tile.sum(axis=0, keepdims=True)
        parts = [tile[:, n : n + LANES] for n in range(0, tile.shape[1], LANES)]
        return functools.reduce(jnp.add, parts)

    def row_positions(self) -> Array:
        """Position of the query of each entry."""
        return self.starts[0] + jax.lax.broadcasted_iota(jnp.int32, self.shape, self.row_axis)

    def key_positions(self) -> Array:
        """Position of the key of each entry."""
        return self.starts[1] + jax.lax.broadcasted_iota(jnp.int32, self.shape, self.key_axis)

    def full_row(self, value: float) -> Array:
        """A constant vector."""
        return jnp.full(self.row_shape, value, jnp.float32)

    def tanh(self, tile: Array) -> Array:
        """Hyperbolic tangent of each entry."""
        return jnp.tanh(tile)


def whole_sum(parts: Array) -> Float[Array, "1 n"]:
    """Sums that were left in parts, along the lanes.

    Args:
        parts: ``[n, LANES]``, as `TpuTileLayout` leaves them.

    Returns:
        One number for each row.
    """
    return parts.T.sum(axis=0, keepdims=True)


def fitted(vector: Array, width: int) -> Array:
    """A vector that stands in every lane, beside a matrix of any width.

    Args:
        vector: ``[n, LANES]``.
        width: Width of the matrix.

    Returns:
        ``[n, width]``.
    """
    copies = -(-width // LANES)
    return jnp.concatenate([vector] * copies, axis=1)[:, :width]


def dot(a: Array, b: Array, of_a: int, of_b: int) -> Float[Array, "m n"]:
    """Matrix product over one dimension of each, summed in float32.

    Args:
        a: A matrix.
        b: A matrix of the same dtype; float32 takes several passes of the matrix unit.
        of_a: The dimension of ``a`` to sum over.
        of_b: The same axis of ``b``.

    Returns:
        The product in float32.
    """
    exact = a.dtype == jnp.float32
    return jax.lax.dot_general(
        a,
        b,
        (((of_a,), (of_b,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if exact else jax.lax.Precision.DEFAULT,
        preferred_element_type=jnp.float32,
    )


MOST_RANGES = 2**14
"""Outer blocks of all examples up to which their ranges fit into scalar memory."""

QUERIES, KEYS, PAIRS = "queries", "keys", "pairs"
"""The outer side of a grid. PAIRS: both, with batch and heads innermost."""

_SHAPES = {
    "q": "query matrix",
    "d_output": "query matrix",
    "k": "key matrix",
    "v": "key matrix",
    "row_floats": "query vectors",
    "row_ints": "query vectors",
    "key_floats": "key vectors",
    "key_ints": "key vectors",
    "bias": "tile",
    "d_weights": "tile",
    "d_scores": "tile",
    "threshold": "scalar",
    "keep_scale": "scalar",
}


FIRST_PASS = ("v",)
"""Inputs that a second pass does not read."""


class TileIndex(NamedTuple):
    """Index of a tile: batch and head, and blocks of queries and keys."""

    batch: Any
    head: Any
    query: Any
    key: Any


class KernelResult(NamedTuple):
    """A result of a kernel.

    Attributes:
        kind: "query matrix", "key matrix", "query vectors", "key vectors" or "tile".
        shape: Shape of four dimensions; the last blocks may extend beyond it.
        dtype: Dtype of its entries.
    """

    kind: str
    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class GridSchedule:
    """The order in which a kernel sees the tiles of a call.

    Attributes:
        plan: Plan of the call.
        outer: QUERIES, KEYS or PAIRS.
        passes: Number of passes over the inner side; results of kind "tile" are written in
            the last one.
        shared: Shared for PAIRS, the leading dimensions (1 or full) of the result.
    """

    plan: KernelPlan
    outer: str
    passes: int = 1
    shared: tuple[int, int] = (1, 1)

    @property
    def transposed(self) -> bool:
        """Return whether tiles are [keys, queries]."""
        return self.outer == KEYS

    @property
    def inner_blocks(self) -> int:
        """Number of tiles in one pass; keys meet the queries of every head of their group."""
        plan = self.plan
        return plan.group * plan.query_blocks if self.transposed else plan.key_blocks

    @property
    def grid(self) -> tuple[int, ...]:
        """Sizes, the innermost last."""
        plan = self.plan
        if self.outer == PAIRS:
            batch, heads = self.shared
            repeats = (plan.batch // batch, plan.heads // heads)
            return (batch, heads, plan.query_blocks, plan.key_blocks, *repeats)
        outer = plan.key_blocks if self.transposed else plan.query_blocks
        heads = plan.key_heads if self.transposed else plan.heads
        return (plan.batch, heads, outer, self.passes * self.inner_blocks)

    @property
    def semantics(self) -> tuple[Any, ...]:
        """Dimensions that keep something from step to step are walked in order."""
        ordered = 2 if self.outer == PAIRS else 1
        return ("parallel",) * (len(self.grid) - ordered) + ("arbitrary",) * ordered

    def place(self, *ids: Any) -> TileIndex:
        """The tile of a step."""
        if self.outer == PAIRS:
            batch, head = (ids[n] if self.shared[n] > 1 else ids[n + 4] for n in range(2))
            return TileIndex(batch, head, ids[2], ids[3])
        step = ids[3]
        if self.passes == 2:
            step = jnp.where(step < self.inner_blocks, step, step - self.inner_blocks)
        if not self.transposed:
            return TileIndex(ids[0], ids[1], ids[2], step)
        plan, head = self.plan, ids[1]
        if plan.group > 1:
            head = head * plan.group + step // plan.query_blocks
            step = step % plan.query_blocks
        return TileIndex(ids[0], head, step, ids[2])

    def ranges(self, inputs: Mapping[str, Array]) -> Int[Array, " N"] | None:
        """Tiles that each outer block visits, where masks known at run time leave some out.

        Args:
            inputs: Inputs from `inputs_of`.

        Returns:
            `tile_ranges` of the outer side for every example, flat as scalar memory wants it; None
            where the band says it all.
        """
        plan = self.plan
        blocks = plan.key_blocks if self.transposed else plan.query_blocks
        if not plan.ranged or plan.batch * blocks > MOST_RANGES:
            return None
        found = tile_ranges(plan, inputs, plan.block_q, plan.block_k)
        ends = found.queries if self.transposed else found.keys
        return jnp.broadcast_to(ends, (plan.batch, blocks, 2)).reshape(-1)

    def ends(self, place: TileIndex, ranges: Any = None) -> tuple[Any, Any]:
        """First inner tile that the outer block of a tile visits, and the one after the last.

        Args:
            place: The tile.
            ranges: Ranges from `ranges`, or a reference to them.

        Returns:
            Both are the same where it visits none.
        """
        plan = self.plan
        if ranges is not None:
            block, blocks = (place.query, plan.query_blocks)
            if self.transposed:
                block, blocks = (place.key, plan.key_blocks)
            at = 2 * (place.batch * blocks + block)
            return ranges[at], ranges[at + 1]
        if self.transposed:
            own, size = place.key * plan.block_k, plan.block_q
            first, stop = plan.rows_of(own, own + (plan.block_k - 1))
        else:
            own, size = place.query * plan.block_q, plan.block_k
            first, stop = plan.keys_of(own, own + (plan.block_q - 1))
        return first // size, (stop + (size - 1)) // size

    def needed(self, place: TileIndex, ranges: Any = None) -> Any:
        """False for a tile of which every pair is masked."""
        if not self.plan.skips and ranges is None:
            return True
        (first, stop), inner = (
            self.ends(place, ranges),
            place.query if self.transposed else place.key,
        )
        return (first <= inner) & (inner < stop)

    def fetched(self, *ids: Any, once: bool = False) -> TileIndex:
        """The tile whose inputs a step asks for: the nearest one needed, so nothing else moves.

        Args:
            ids: Indices of the grid, and behind them `ranges` where there are any.
            once: Whether the input is read in the first pass only; it stays where that ended.

        Returns:
            The tile.
        """
        plan, ranges = self.plan, next(iter(ids[len(self.grid) :]), None)
        if once and self.passes == 2:
            ids = (*ids[:3], jnp.minimum(ids[3], self.inner_blocks - 1))
        place = self.place(*ids)
        if self.outer == PAIRS or (not plan.skips and ranges is None):
            return place
        first, stop = self.ends(place, ranges)

        def nearest(block: Any, count: int) -> Any:
            return jnp.clip(jnp.clip(block, first, stop - 1), 0, count - 1)

        if self.transposed:
            return place._replace(query=nearest(place.query, plan.query_blocks))
        return place._replace(key=nearest(place.key, plan.key_blocks))

    def written(self, *ids: Any) -> TileIndex:
        """The tile a step writes to; with two passes the first one waits at its start."""
        place = self.place(*ids)
        if self.passes == 1:
            return place
        return place._replace(key=jnp.maximum(ids[3] - self.inner_blocks, 0))

    def spec(
        self, kind: str, shape: tuple[int, ...], place: Callable[..., TileIndex]
    ) -> pl.BlockSpec:
        """Block of an array that lies in VMEM at a step; a dimension of 1 stands for all.

        Args:
            kind: A kind of `KernelResult`, or "scalar".
            shape: Shape of the array.
            place: Function from the indices of the grid, and what is read before them, to a tile.

        Returns:
            The entry of ``in_specs`` or ``out_specs``.
        """
        if kind == "scalar":
            return pl.BlockSpec(memory_space=pltpu.SMEM)
        block_q, block_k = self.plan.block_q, self.plan.block_k

        def index(*ids):
            at = place(*ids)
            ends = {
                "query matrix": (at.query, 0),
                "key matrix": (at.key, 0),
                "query vectors": (0, at.query),
                "key vectors": (0, at.key),
                "tile": (at.query, at.key),
            }
            batch, head = (0 if n == 1 else x for n, x in zip(shape[:2], at[:2], strict=True))
            if 1 < shape[1] < self.plan.heads:
                head = at.head // self.plan.group
            return batch, head, *ends[kind]

        block = {
            "query matrix": (block_q, shape[3]),
            "key matrix": (block_k, shape[3]),
            "query vectors": (shape[2], block_q),
            "key vectors": (shape[2], block_k),
            "tile": (block_q, block_k),
        }[kind]
        return pl.BlockSpec((None, None, *block), index)

    def call(
        self,
        name: str,
        body: Callable[["GridStep"], None],
        inputs: Mapping[str, Array],
        results: Mapping[str, KernelResult],
        scratch: Mapping[str, tuple[int, int]],
        interpret: Any,
    ) -> dict[str, Array]:
        """Runs a kernel over the grid.

        Args:
            name: Shown by profilers.
            body: Computation of a step.
            inputs: Inputs from `inputs_of`.
            results: Results by name.
            scratch: float32 matrices that live from step to step, by name.
            interpret: Whether the kernel is interpreted, as for ``pl.pallas_call``.

        Returns:
            The results by name.
        """
        ranges = self.ranges(inputs)
        before = () if ranges is None else (ranges,)

        def kernel(*refs):
            *before, given, found, held = refs
            ids = [pl.program_id(axis) for axis in range(len(self.grid))]
            needed = self.needed(self.place(*ids), *before)
            body(GridStep(self, given, found, held, self.place(*ids), ids, needed))

        memory = {key: pltpu.VMEM(shape, jnp.float32) for key, shape in scratch.items()}
        side = "key" if self.transposed else "row"
        length = self.plan.block_k if self.transposed else self.plan.block_q
        for kind, dtype in (("floats", jnp.float32), ("ints", jnp.int32)):
            if f"{side}_{kind}" in inputs:
                width = inputs[f"{side}_{kind}"].shape[2]
                memory[kind] = pltpu.VMEM((length, width), dtype)
        shapes = {key: compat.result(x.shape, x.dtype, inputs) for key, x in results.items()}
        specs = {
            key: self.spec(_SHAPES[key], x.shape, partial(self.fetched, once=key in FIRST_PASS))
            for key, x in inputs.items()
        }
        run = pl.pallas_call(
            kernel,
            out_shape=shapes,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=len(before),
                grid=self.grid,
                in_specs=(specs,),
                out_specs={
                    key: self.spec(x.kind, x.shape, self.written) for key, x in results.items()
                },
                scratch_shapes=(memory,),
            ),
            # Interpreters cannot add the dimension of a vmap to the semantics.
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=None if interpret else self.semantics
            ),
            interpret=interpret,
            name=name,
        )
        return run(*before, dict(inputs))


class GridStep(NamedTuple):
    """State of a kernel at one step of its grid.

    Attributes:
        schedule: The order of the tiles.
        given: Blocks of the inputs, by name.
        found: Blocks of the results, by name.
        held: Matrices that stay from step to step, by name.
        place: The tile.
        ids: Indices of the grid.
        needed: Whether some pair of the tile may attend.
    """

    schedule: GridSchedule
    given: Mapping[str, Any]
    found: Mapping[str, Any]
    held: Mapping[str, Any]
    place: TileIndex
    ids: list[Any]
    needed: Any

    @property
    def of_head(self) -> Any:
        """Number of the tile among those of one query head, in a grid whose keys stay."""
        plan = self.schedule.plan
        return self.ids[3] % plan.query_blocks if plan.group > 1 else self.ids[3]

    @property
    def layout(self) -> TpuTileLayout:
        """Layout of the tile."""
        return TpuTileLayout(
            self.schedule.plan, self.place.query, self.place.key, self.schedule.transposed
        )

    def turn_vectors(self) -> None:
        """Turns the packed vectors of the outer side into columns."""
        side = "key" if self.schedule.transposed else "row"
        for kind in ("floats", "ints"):
            if kind in self.held:
                self.held[kind][...] = self.given[f"{side}_{kind}"][...].T

    def vectors(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Packed vectors of the tile's queries and of its keys, by name."""
        rows, keys = ({}, {})
        for side, found in (("row", rows), ("key", keys)):
            columns = (side == "key") == self.schedule.transposed
            for kind in ("floats", "ints"):
                for n, name in enumerate(getattr(self.schedule.plan, f"{side}_{kind}")):
                    if columns:
                        found[name] = self.held[kind][:, n : n + 1]
                    else:
                        found[name] = self.given[f"{side}_{kind}"][n : n + 1, :]
        return rows, keys

    def tile(self, name: str) -> Array | None:
        """A tile of a pair input as float32, transposed as the grid needs it."""
        if name not in self.given:
            return None
        tile = self.given[name][...].astype(jnp.float32)
        return tile.T if self.schedule.transposed else tile

    def product(self, of_queries: str, of_keys: str) -> Array:
        """Products of all rows of a query matrix with all rows of a key matrix."""
        left, right = self.given[of_queries][...], self.given[of_keys][...]
        return dot(right, left, 1, 1) if self.schedule.transposed else dot(left, right, 1, 1)

    def scores(self, rows: Mapping[str, Array], keys: Mapping[str, Array]) -> Array:
        """Scores of the tile in the kernels' units."""
        # reference._scores
        plan, product = self.schedule.plan, self.product("q", "k")
        return tiles.scores(plan, self.layout, product, rows, keys, self.tile("bias"))


def inputs_of(
    plan: KernelPlan, operands: Operands, cotangents: Cotangents | None = None
) -> dict[str, Array]:
    """The arrays of a call as the kernels read them: heads first, whole blocks, zeros behind.

    Args:
        plan: Plan of the call.
        operands: Operands of the call.
        cotangents: Cotangents for backward kernels.

    Returns:
        By name; what the call does not have is left out.
    """
    arrays = operands._asdict()
    if cotangents is not None:
        arrays |= {
            "d_output": cotangents.output,
            "d_weights": cotangents.weights,
            "d_scores": cotangents.scores,
        }
    queries, keys = plan.padded_queries, plan.padded_keys
    found = {}
    for name, array in arrays.items():
        if array is None:
            continue
        kind = _SHAPES[name]
        if kind.endswith("matrix"):
            length = queries if kind.startswith("query") else keys
            array = _padded(jnp.swapaxes(array, 1, 2), (length, array.shape[3]))
        elif kind == "tile":
            array = _padded(array, (queries, keys))
        elif kind == "scalar":
            # A matrix of one entry stays a whole block when vmap adds a dimension.
            array = array[None]
        found[name] = array
    return found


def _padded(array: Array, shape: tuple[int, int]) -> Array:
    """Zeros behind the last two dimensions."""
    tails = [(0, size - n) for n, size in zip(array.shape[2:], shape, strict=True)]
    return jnp.pad(array, [(0, 0), (0, 0), *tails])
