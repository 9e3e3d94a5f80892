# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of one tile, forwards and backwards, and which tiles a kernel has to visit.

Forwards: layout, sieves, scores, online softmax and statistics. Backwards: weights from the final
sums of rows, and gradients.

Padding, packed sequences and query offsets come as arrays, so the kernels read from small integer
arrays which tiles they need. These are computed here, outside of the kernels, from the packed
vectors of a call. A tile that is left out has no pair of a query and a key that may attend; one
that is visited may have none, since every block visits a range without gaps.
"""

import functools
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int

from flaxattn.kernels import dropout
from flaxattn.kernels.contract import Sieve
from flaxattn.kernels.plan import LOG2E, KernelPlan

ORIGIN = np.float32(1.5 * 2**23)
"""Floats around this one count in steps of 1: the bits of one more are larger by 1."""
Tile = Any
"""float32 [queries, keys] of a tile, or [keys, queries] where the layout is transposed."""
Vector = Any
"""One number for each row, or each key, of a tile, as the layout keeps it."""


class TileLayout(Protocol):
    """Layout of the vectors that belong to a tile on a device."""

    def rows(self, vector: Vector) -> Tile:
        """A vector of rows, so that it broadcasts with a tile."""

    def keys(self, vector: Vector) -> Tile:
        """A vector of keys, so that it broadcasts with a tile."""

    def row_sum(self, tile: Tile) -> Vector:
        """Sum over the keys of each row."""

    def row_max(self, tile: Tile) -> Vector:
        """Maximum over the keys of each row."""

    def key_sum(self, tile: Tile) -> Vector:
        """Sum over the rows for each key."""

    def row_positions(self) -> Tile:
        """Position of the query of each entry, int32."""

    def key_positions(self) -> Tile:
        """Position of the key of each entry, int32."""

    def full_row(self, value: float) -> Vector:
        """A float32 vector of rows of one value."""

    def tanh(self, tile: Tile) -> Tile:
        """Hyperbolic tangent of each entry, to the accuracy of float32."""


def query_positions(
    plan: KernelPlan, layout: TileLayout, rows: Mapping[str, Vector], more: int = 0
) -> Tile:
    """Position of the query of each entry, plus ``more``."""
    if plan.offset is None:
        return layout.rows(rows["position"]) + more
    shift = plan.offset + more
    return layout.row_positions() + shift if shift else layout.row_positions()


def gap(plan: KernelPlan, layout: TileLayout, rows: Mapping[str, Vector]) -> Tile:
    """Distance between the key and the query of each entry, float32."""
    of_queries = counted(query_positions(plan, layout, rows))
    return jnp.abs(counted(layout.key_positions()) - of_queries)


def counted(positions: Tile) -> Tile:
    """Convert positions to float32, plus `ORIGIN`, by an addition where conversions are slow.

    Args:
        positions: int32, of less than 2**22, before or after 0.

    Returns:
        The exact sum.
    """
    return lax.bitcast_convert_type(positions + int(ORIGIN.view(np.int32)), jnp.float32)


def first_key(layout: TileLayout, tile: Tile, value: Vector) -> Vector:
    """Position, as float32, of the first key of each row whose score is ``value``."""
    backwards = counted(-layout.key_positions())
    return ORIGIN - layout.row_max(jnp.where(tile == layout.rows(value), backwards, -jnp.inf))


@dataclass(frozen=True)
class SieveTile:
    """A sieve and the part of the keys that a tile has of it.

    Attributes:
        plan: Plan of the call.
        sieve: The set of keys.
        layout: Layout of the tile.
        rows: Packed vectors of the tile's queries.
        keys: Packed vectors of the tile's keys.
    """

    plan: KernelPlan
    sieve: Sieve
    layout: TileLayout
    rows: Mapping[str, Vector]
    keys: Mapping[str, Vector]

    def sums(
        self, tile: Tile, exponentials: Tile, logs: Tile, reach: tuple[Any, Any] | None
    ) -> tuple[Vector, ...]:
        """Take the statistic of the sieve over the keys of the tile.

        Args:
            tile: Scores.
            exponentials: Exponentials of the scores, relative to the shift of their row.
            logs: Their logarithms, finite.
            reach: Smallest and largest offset of the tile, None to look at all of its pairs.

        Returns:
            For "mass" the sum of the exponentials, for "entropy" the sum of exponentials times
            logarithms and that of exponentials, for "argmax" the largest score and its first key.
        """

        def compute() -> tuple[Vector, ...]:
            return self._sums(tile, exponentials, logs)

        if reach is None or self.sieve.offsets is None:
            return compute()
        (low, high), (least, most) = self.sieve.offsets, reach
        return lax.cond((most >= low) & (least <= high), compute, self._nothing)

    def _sums(self, tile: Tile, exponentials: Tile, logs: Tile) -> tuple[Vector, ...]:
        sieve, layout = self.sieve, self.layout
        if sieve.statistic == "mass" and _of_class(sieve):
            # 1.0 or 0.0 for each key, found once for all rows: a product takes no choice.
            members = jnp.where(_class_bit(sieve, self.keys) != 0, 1.0, 0.0)
            return (layout.row_sum(exponentials * layout.keys(members)),)
        members = inside(self.plan, sieve, layout, self.rows, self.keys)
        if sieve.statistic == "argmax":
            among = jnp.where(members, tile, -jnp.inf)
            value = layout.row_max(among)
            return value, first_key(layout, among, value)
        kept = jnp.where(members, exponentials, 0.0)
        if sieve.statistic == "mass":
            return (layout.row_sum(kept),)
        return layout.row_sum(logs * kept), layout.row_sum(kept)

    def _nothing(self) -> tuple[Vector, ...]:
        """Statistics of a tile without any key in the sieve."""
        values = {"mass": (0.0,), "entropy": (0.0, 0.0), "argmax": (-jnp.inf, -1.0)}
        return tuple(self.layout.full_row(value) for value in values[self.sieve.statistic])


def inside(
    plan: KernelPlan,
    sieve: Sieve,
    layout: TileLayout,
    rows: Mapping[str, Vector],
    keys: Mapping[str, Vector],
) -> Tile:
    """Mask of the entries of a tile that are in a sieve: `reference._inside`.

    Args:
        plan: Plan of the call.
        sieve: The set of keys.
        layout: Layout of the tile.
        rows: Packed vectors of the tile's queries.
        keys: Packed vectors of the tile's keys.

    Returns:
        A bool tile.
    """
    conditions = []
    if sieve.key_class is not None:
        conditions.append(layout.keys(_class_bit(sieve, keys)) != 0)
    if sieve.offsets is not None:
        low, high = sieve.offsets
        offset = layout.key_positions() - query_positions(plan, layout, rows)
        conditions += [offset >= low, offset <= high]
    for wanted, name in ((sieve.same_segment, "segment"), (sieve.same_token, "token")):
        if wanted is not None:
            of_rows, of_keys = (
                layout.rows(rows[f"label_{name}"]),
                layout.keys(keys[f"label_{name}"]),
            )
            conditions.append(of_rows == of_keys if wanted else of_rows != of_keys)
    if sieve.same_label is not None:
        of_rows = layout.rows(rows[f"label {sieve.same_label[0]}"])
        of_keys = layout.keys(keys[f"label {sieve.same_label[1]}"])
        conditions += [of_rows == of_keys, of_keys >= 0]
    return functools.reduce(operator.and_, conditions)


def _of_class(sieve: Sieve) -> bool:
    """Return whether the class of keys is the only condition of a sieve."""
    return [each is not None for each in sieve.conditions] == [True, False, False, False, False]


def _class_bit(sieve: Sieve, keys: Mapping[str, Vector]) -> Vector:
    """Keys whose class is that of a sieve: other than 0."""
    assert sieve.key_class is not None
    bit = 1 << sieve.key_class
    return keys["class"] & (bit - 2**32 if bit >= 2**31 else bit)


LN2 = 1 / LOG2E
NEVER = -1000.0
"""Below this exponent exp2 is 0 in float32; keeps 0 * -inf out of sums."""


def scores(
    plan: KernelPlan,
    layout: TileLayout,
    product: Tile,
    rows: Mapping[str, Vector],
    keys: Mapping[str, Vector],
    bias: Tile | None = None,
) -> Tile:
    """Scores in the kernels' units, -inf where masked: `reference._scores`.

    Args:
        plan: Plan of the call.
        layout: Layout of the tile.
        product: q·k in float32.
        rows: Packed vectors of the tile's queries.
        keys: Packed vectors of the tile's keys.
        bias: The tile of the pair bias.

    Returns:
        A tile.
    """
    factor = plan.scale * plan.nat
    if plan.soft_cap is not None:
        tile = layout.tanh(product * (plan.scale / plan.soft_cap)) * (plan.soft_cap * plan.nat)
    else:
        tile = product if factor == 1.0 else product * factor
    if "bias" in keys:
        tile = tile + layout.keys(keys["bias"])
    if bias is not None:
        tile = tile + bias.astype(jnp.float32) * plan.nat
    low, high = plan.band
    if high is not None:
        last = query_positions(plan, layout, rows, high)
        tile = jnp.where(layout.key_positions() <= last, tile, -jnp.inf)
    if low is not None:
        first = query_positions(plan, layout, rows, low)
        tile = jnp.where(layout.key_positions() >= first, tile, -jnp.inf)
    if "segment" in rows:
        same = layout.rows(rows["segment"]) == layout.keys(keys["segment"])
        tile = jnp.where(same, tile, -jnp.inf)
    return tile


def start(plan: KernelPlan, layout: TileLayout, rows: Mapping[str, Vector]) -> dict[str, Vector]:
    """The state of rows that have seen no key: largest score, sums, best keys.

    Args:
        plan: Plan of the call.
        layout: Layout of the tiles.
        rows: Packed vectors of the queries; a "sink" is seen before all keys.

    Returns:
        Vectors of rows by name; "shift" and "total" always, others as asked.
    """
    if plan.sinks:
        # A sink of -inf is nothing, also for rows that visit no tile.
        nothing = rows["sink"] == -jnp.inf
        total = jnp.where(nothing, layout.full_row(0.0), layout.full_row(1.0))
        state = {"shift": rows["sink"] * plan.nat, "total": total}
    else:
        state = {"shift": layout.full_row(-jnp.inf), "total": layout.full_row(0.0)}
    if plan.sinks and not {"max_score", "argmax"}.isdisjoint(plan.results):
        state["max_score"] = layout.full_row(-jnp.inf)  # the shift may be that of the sink
    for name in ("entropy", "distance", "sum_sq"):
        if name in plan.results:
            state[name] = layout.full_row(0.0)
    if "argmax" in plan.results:
        state["argmax"] = layout.full_row(-1.0)
    for rank in range(plan.topk):
        state[f"topk score {rank}"] = layout.full_row(-jnp.inf)
        state[f"topk index {rank}"] = layout.full_row(-1.0)
    for number, sieve in enumerate(plan.sieves):
        name = f"sieve {number}"
        state[name] = layout.full_row(-1.0 if sieve.statistic == "argmax" else 0.0)
        if sieve.statistic == "argmax":
            state[f"{name} score"] = layout.full_row(-jnp.inf)
        if sieve.statistic == "entropy":
            state[f"{name} mass"] = layout.full_row(0.0)
    return state


def advance(
    plan: KernelPlan,
    layout: TileLayout,
    state: Mapping[str, Vector],
    tile: Tile,
    rows: Mapping[str, Vector],
    keys: Mapping[str, Vector],
    unit: float = 1.0,
    masked: bool = True,
    reach: tuple[Any, Any] | None = None,
) -> tuple[dict[str, Vector], Tile, Vector]:
    """Takes one more tile of scores into the state of its rows (online softmax).

    Args:
        plan: Plan of the call.
        layout: Layout of the tile.
        state: State of the rows so far.
        tile: Scores in the kernels' units; tiles come in the order of their keys.
        rows: Packed vectors of the tile's queries.
        keys: Packed vectors of the tile's keys.
        unit: Positive factor still missing in the scores; the largest of a row is found without
            it, and it joins the subtraction.
        masked: False where no score of the tile is -inf.
        reach: Smallest and largest offset between a key and a query of the tile; sieves of other
            offsets are then left out at run time.

    Returns:
        The new state; the exponentials of the tile, relative to the new shift; and the factor
        that brings what was summed before to the new shift.
    """
    largest = layout.row_max(tile)
    new = {"shift": jnp.maximum(state["shift"], largest * unit)}
    base = _finite(new["shift"])
    rescale = exponential(plan, state["shift"] - base)
    shifted = tile * unit - layout.rows(base)
    exponentials = exponential(plan, shifted)
    logs = jnp.maximum(shifted, NEVER) if masked else shifted
    new["total"] = state["total"] * rescale + layout.row_sum(exponentials)
    if "entropy" in state:
        moved = (_finite(state["shift"]) - base) * state["total"]
        terms = logs * exponentials
        new["entropy"] = (state["entropy"] + moved) * rescale + layout.row_sum(terms)
    if "distance" in state:
        gaps = gap(plan, layout, rows)
        new["distance"] = state["distance"] * rescale + layout.row_sum(exponentials * gaps)
    if "sum_sq" in state:
        squares = layout.row_sum(exponentials * exponentials)
        new["sum_sq"] = state["sum_sq"] * (rescale * rescale) + squares
    best = state["max_score"] if "max_score" in state else state["shift"]
    if "max_score" in state:
        new["max_score"] = jnp.maximum(best, largest * unit)
    if "argmax" in state:
        first = first_key(layout, tile, largest)
        new["argmax"] = jnp.where(largest * unit > best, first, state["argmax"])
    moved = _finite(state["shift"]) - base
    for number, sieve in enumerate(plan.sieves):
        name = f"sieve {number}"
        parts = SieveTile(plan, sieve, layout, rows, keys).sums(tile, exponentials, logs, reach)
        if sieve.statistic == "argmax":
            value, first = parts
            better = value * unit > state[f"{name} score"]
            new[name] = jnp.where(better, first, state[name])
            new[f"{name} score"] = jnp.where(better, value * unit, state[f"{name} score"])
        elif sieve.statistic == "mass":
            new[name] = state[name] * rescale + parts[0]
        else:
            mass = state[f"{name} mass"]
            new[name] = (state[name] + moved * mass) * rescale + parts[0]
            new[f"{name} mass"] = mass * rescale + parts[1]
    if plan.topk:
        new |= _advance_topk(plan.topk, layout, state, tile * unit)
    return new, exponentials, rescale


def exponential(plan: KernelPlan, tile: Tile) -> Tile:
    """Exp of a tile, or vector, of differences of scores."""
    return jnp.exp(tile) if plan.nat == 1.0 else jnp.exp2(tile)


def _finite(shift: Vector) -> Vector:
    """The shift, 0 for rows that have seen no attendable key."""
    return jnp.where(shift == -jnp.inf, 0.0, shift)


def _advance_topk(
    k: int, layout: TileLayout, state: Mapping[str, Vector], tile: Tile
) -> dict[str, Vector]:
    """Merges the k best of a tile into the k best so far; earlier keys stay ahead of equals."""
    values = [state[f"topk score {rank}"] for rank in range(k)]
    indices = [state[f"topk index {rank}"] for rank in range(k)]
    positions = layout.key_positions().astype(jnp.float32)
    for _ in range(k):
        value = layout.row_max(tile)
        index = first_key(layout, tile, value)
        tile = jnp.where(positions == layout.rows(index), -jnp.inf, tile)
        for rank in range(k):
            better = value > values[rank]
            values[rank], value = _swap(better, values[rank], value)
            indices[rank], index = _swap(better, indices[rank], index)
    found = {f"topk score {rank}": value for rank, value in enumerate(values)}
    return found | {f"topk index {rank}": index for rank, index in enumerate(indices)}


def _swap(condition: Vector, a: Vector, b: Vector) -> tuple[Vector, Vector]:
    return jnp.where(condition, b, a), jnp.where(condition, a, b)


def finish(
    plan: KernelPlan, state: Mapping[str, Vector]
) -> tuple[Vector, Vector, dict[str, Vector]]:
    """The statistics of rows that have seen all their keys.

    Args:
        plan: Plan of the call.
        state: State after the last tile.

    Returns:
        The final shift; the factor that turns exponentials relative to it into weights (0 for a
        fully masked row); and `KernelPlan.results` by name, indices as float32.
    """
    total, shift = state["total"], _finite(state["shift"])
    none = total == 0.0
    inverse = jnp.where(none, 0.0, 1.0 / jnp.where(none, 1.0, total))
    log_total = jnp.log(jnp.where(none, 1.0, total))
    found = {"lse": jnp.where(none, -jnp.inf, shift / plan.nat + log_total)}
    if "shift" in plan.results:
        found |= {"shift": shift, "log total": jnp.where(none, jnp.inf, log_total * plan.nat)}
    if "entropy" in state:
        found["entropy"] = log_total - state["entropy"] * inverse / plan.nat
    if "max" in plan.results:
        found["max"] = inverse
    if "max_score" in plan.results:
        found["max_score"] = (state.get("max_score", state["shift"])) / plan.nat
    if "sum_sq" in state:
        found["sum_sq"] = state["sum_sq"] * (inverse * inverse)
    if "argmax" in state:
        found["argmax"] = state["argmax"]
    for rank in range(plan.topk):
        value = exponential(plan, state[f"topk score {rank}"] - shift)
        found[f"topk weight {rank}"] = value * inverse
        found[f"topk index {rank}"] = state[f"topk index {rank}"]
    if "distance" in state:
        found["distance"] = state["distance"] * inverse
    for number, sieve in enumerate(plan.sieves):
        name = f"sieve {number}"
        if sieve.statistic == "argmax":
            found[name] = state[name]
        elif sieve.statistic == "mass":
            found[name] = state[name] * inverse
        else:
            mass = state[f"{name} mass"]
            empty = mass == 0.0
            some = jnp.where(empty, 1.0, mass)
            found[name] = jnp.where(empty, 0.0, jnp.log(some) - state[name] / some / plan.nat)
            found[f"{name} mass"] = mass * inverse
    return shift, inverse, found


def keep(layout: TileLayout, rows: Mapping[str, Vector], threshold: Any) -> Tile:
    """Mask of the weights of a tile that dropout keeps: `dropout.keep_mask`.

    Args:
        layout: Layout of the tile.
        rows: Packed vectors with the words of the tile's queries.
        threshold: A scalar, `dropout.threshold`.

    Returns:
        A bool tile.
    """
    first, second = layout.rows(rows["word0"]), layout.rows(rows["word1"])
    return dropout.pair_bits(first, second, layout.key_positions()) >= threshold


_LOWEST, _HIGHEST = np.iinfo(np.int32).min, np.iinfo(np.int32).max


class TileRanges(NamedTuple):
    """First tile that each block visits and the one after its last, both 0 where it visits none.

    Attributes:
        keys: Tiles of keys that a block of queries visits.
        queries: Tiles of queries that a block of keys visits.
    """

    keys: Int[Array, "#B I 2"]
    queries: Int[Array, "#B J 2"]


def tile_ranges(
    plan: KernelPlan, vectors: Mapping[str, Array | None], block_q: int, block_k: int
) -> TileRanges:
    """Ranges of tiles that the blocks of a kernel visit.

    Args:
        plan: Plan of a call; `KernelPlan.ranged` says whether the ranges can be shorter than those
            of its band.
        vectors: The packed vectors of the call by their names in `plan.Operands`.
        block_q: Queries of a tile; tiles cover the padded queries.
        block_k: Keys of a tile; tiles cover the padded keys.

    Returns:
        int32 arrays; a batch dimension of 1 stands for all examples.
    """
    needed = needed_tiles(plan, vectors, block_q, block_k)
    return TileRanges(_ends(needed), _ends(jnp.swapaxes(needed, 1, 2)))


def needed_tiles(
    plan: KernelPlan, vectors: Mapping[str, Array | None], block_q: int, block_k: int
) -> Bool[Array, "#B I J"]:
    """False for tiles of which every pair is masked by padding, segments or the band.

    Args:
        plan: Plan of a call.
        vectors: Packed vectors, as for `tile_ranges`.
        block_q: Queries of a tile.
        block_k: Keys of a tile.

    Returns:
        One bool for each tile, the same for all heads. True as well for some tiles without pairs:
        those of unsorted segments, and of masks that differ between queries.
    """
    rows = _blocks(jnp.arange(plan.padded_queries)[None] < plan.queries, block_q)
    keys = _blocks(_usable(plan, vectors), block_k)
    needed = rows.any(2)[:, :, None] & keys.any(2)[:, None]
    if "segment" in plan.row_ints:
        of_rows = _blocks(_vector(plan.row_ints, vectors["row_ints"], "segment"), block_q)
        of_keys = _blocks(_vector(plan.key_ints, vectors["key_ints"], "segment"), block_k)
        of_some_row = _meets(of_rows, rows, *_interval(of_keys, keys))
        of_some_key = _meets(of_keys, keys, *_interval(of_rows, rows))
        needed = needed & of_some_row & jnp.swapaxes(of_some_key, 1, 2)
    low, high = plan.band
    positions = jnp.arange(plan.padded_keys)[None]
    first_key, last_key = _interval(_blocks(positions, block_k), keys)
    first_row, last_row = _interval(_blocks(_row_positions(plan, vectors), block_q), rows)
    if high is not None:
        needed = needed & (first_key[:, None] - high <= last_row[:, :, None])
    if low is not None:
        needed = needed & (last_key[:, None] - low >= first_row[:, :, None])
    return needed


def _usable(plan: KernelPlan, vectors: Mapping[str, Array | None]) -> Bool[Array, "#B Kp"]:
    """False for keys that no query of any head may attend to."""
    inside = jnp.arange(plan.padded_keys)[None] < plan.keys
    if "bias" not in plan.key_floats:
        return inside
    packed = vectors["key_floats"]
    assert packed is not None
    return inside & (packed[:, :, plan.key_floats.index("bias")] != -jnp.inf).any(1)


def _row_positions(plan: KernelPlan, vectors: Mapping[str, Array | None]) -> Int[Array, "#B Qp"]:
    if plan.offset is None:
        return _vector(plan.row_ints, vectors["row_ints"], "position")
    return jnp.arange(plan.padded_queries)[None] + plan.offset


def _vector(names: tuple[str, ...], packed: Array | None, name: str) -> Int[Array, "#B S"]:
    """A packed vector that is the same for all heads."""
    assert packed is not None
    return packed[:, 0, names.index(name)]


def _blocks(vector: Array, size: int) -> Array:
    """``[B, S]`` as ``[B, blocks, size]``, with zeros or False behind the end."""
    padded = jnp.pad(vector, [(0, 0), (0, -vector.shape[1] % size)])
    return padded.reshape(vector.shape[0], -1, size)


def _interval(
    values: Int[Array, "B N size"], valid: Bool[Array, "#B N size"]
) -> tuple[Int[Array, "B N"], Int[Array, "B N"]]:
    """Smallest and largest valid value of each block; an empty interval where none is valid."""
    least = jnp.where(valid, values, _HIGHEST).min(2)
    return least, jnp.where(valid, values, _LOWEST).max(2)


def _meets(
    values: Int[Array, "B N size"],
    valid: Bool[Array, "#B N size"],
    least: Int[Array, "B M"],
    most: Int[Array, "B M"],
) -> Bool[Array, "B N M"]:
    """Return whether any valid value of a block lies in the interval of another."""
    each, least, most = values[..., None], least[:, None, None], most[:, None, None]
    inside = (each >= least) & (each <= most)
    return (inside & valid[..., None]).any(2)


def _ends(needed: Bool[Array, "B N M"]) -> Int[Array, "B N 2"]:
    """First True of each row and the place after the last one."""
    places = jnp.arange(needed.shape[2], dtype=jnp.int32)
    stop = jnp.where(needed, places + 1, 0).max(2)
    first = jnp.where(needed, places, needed.shape[2]).min(2)
    return jnp.stack([jnp.minimum(first, stop), stop], axis=2)


def rebuilt_weights(layout: TileLayout, tile: Tile, rows: Mapping[str, Vector]) -> Tile:
    """The weights of a tile from the final sums of their rows, for the passes after the first.

    Args:
        layout: Layout of the tile.
        tile: Scores in the kernels' units.
        rows: Packed vectors with "lse2", or "shift" and "log total" where one float32 would lose
            digits of scores that are huge; +inf for rows without keys.

    Returns:
        A tile.
    """
    logs = _log_weights(layout, tile, rows)
    return jnp.exp2(logs) if "lse2" in rows else jnp.exp(logs)


def _log_weights(layout: TileLayout, tile: Tile, rows: Mapping[str, Vector]) -> Tile:
    if "lse2" in rows:
        return tile - layout.rows(rows["lse2"])
    return (tile - layout.rows(rows["shift"])) - layout.rows(rows["log total"])


def score_gradient(
    plan: KernelPlan,
    layout: TileLayout,
    tile: Tile,
    weights: Tile,
    weights_bar: Tile,
    rows: Mapping[str, Vector],
    keys: Mapping[str, Vector],
    scores_bar: Tile | None = None,
) -> Tile:
    """The gradient with respect to the (natural) scores of a tile.

    With G the gradient that reaches a weight, p (G - sum_j p_j G_j); the sum over the row is
    ``rows["delta"]``. Gradients of statistics join G; see `weights_gradient`.

    Args:
        plan: Plan of the call.
        layout: Layout of the tile.
        tile: Scores in the kernels' units.
        weights: Weights of the tile.
        weights_bar: Gradient from the output and captured weights: keep * (dO·v), plus theirs.
        rows: Packed vectors of the tile's queries, with "delta" and the gradients of statistics.
        keys: Packed vectors of the tile's keys.
        scores_bar: Gradient of captured scores.

    Returns:
        A tile.
    """
    of_statistics = weights_gradient(plan, layout, tile, weights, rows, keys)
    total = weights_bar if isinstance(of_statistics, float) else weights_bar + of_statistics
    result = weights * (total - layout.rows(rows["delta"]))
    if "d max_score" in rows:
        chosen = _is_key(layout, rows["argmax"])
        result = result + jnp.where(chosen, layout.rows(rows["d max_score"]), 0.0)
    if scores_bar is not None:
        result = result + jnp.where(tile == -jnp.inf, 0.0, scores_bar)
    return result


def weights_gradient(
    plan: KernelPlan,
    layout: TileLayout,
    tile: Tile,
    weights: Tile,
    rows: Mapping[str, Vector],
    keys: Mapping[str, Vector],
) -> Tile | float:
    """Gradient of row statistics with respect to each weight of a tile.

    Args:
        plan: Plan of the call.
        layout: Layout of the tile.
        tile: Scores in the kernels' units.
        weights: Weights of the tile.
        rows: Packed vectors; "d NAME" is the gradient of the result NAME.
        keys: Packed vectors; "d received" likewise.

    Returns:
        A tile, or 0 when no statistic has a gradient.
    """
    terms = _terms(plan, layout, tile, weights, rows, keys)
    # Not a sum that begins with 0.0, which costs an addition for each weight. Each term is added
    # before the next is computed: registers hold one at a time.
    first = next(terms, None)
    return 0.0 if first is None else functools.reduce(operator.add, terms, first)


def _terms(
    plan: KernelPlan,
    layout: TileLayout,
    tile: Tile,
    weights: Tile,
    rows: Mapping[str, Vector],
    keys: Mapping[str, Vector],
) -> Iterator[Tile]:
    """Gradients of the statistics with respect to each weight, one by one."""
    if "d entropy" in rows:
        # d(-p log p): the constant -1 drops out, since weights sum to 1.
        logs = jnp.maximum(_log_weights(layout, tile, rows), NEVER)
        yield layout.rows(rows["d entropy"] * (-1 / plan.nat)) * logs
    if "d sum_sq" in rows:
        yield layout.rows(rows["d sum_sq"] * 2.0) * weights
    if "d distance" in rows:
        yield layout.rows(rows["d distance"]) * gap(plan, layout, rows)
    ranks = [("d max", "argmax")]
    ranks += [(f"d topk weight {rank}", f"topk index {rank}") for rank in range(plan.topk)]
    for name, index in ranks:
        if name in rows:
            yield jnp.where(_is_key(layout, rows[index]), layout.rows(rows[name]), 0.0)
    for number, sieve in enumerate(plan.sieves):
        if f"d sieve {number}" in rows:
            of_sieve = layout.rows(rows[f"d sieve {number}"])
            if sieve.statistic == "entropy":
                # -(log p + offset) / mass, where p = weight and offset = entropy - log mass.
                logs = jnp.maximum(_log_weights(layout, tile, rows), NEVER) * (1 / plan.nat)
                of_sieve = -of_sieve * (logs + layout.rows(rows[f"offset {number}"]))
            yield jnp.where(inside(plan, sieve, layout, rows, keys), of_sieve, 0.0)
    if "d received" in keys:
        yield layout.rows(rows["counted"]) * layout.keys(keys["d received"])


def _is_key(layout: TileLayout, index: Vector) -> Tile:
    """Mask of the entries whose key is that of their row."""
    return layout.key_positions() == layout.rows(index.astype(jnp.int32))


def product_gradient(plan: KernelPlan, layout: TileLayout, product: Tile, gradient: Tile) -> Tile:
    """The gradient with respect to the scaled product, from that of the scores of a tile.

    Args:
        plan: Plan of the call.
        layout: Layout of the tile.
        product: q·k in float32.
        gradient: Gradient with respect to the scores.

    Returns:
        The same tile where no soft cap is between them.
    """
    if plan.soft_cap is None:
        return gradient
    share = layout.tanh(product * (plan.scale / plan.soft_cap))
    return gradient * (1.0 - share * share)
