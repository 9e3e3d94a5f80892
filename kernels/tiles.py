# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of one tile: scores, online softmax and statistics.

One text for every fused kernel. A tile holds the scores of some queries with some keys, in base-2
units or, for float32 inputs, in nats (`KernelPlan.nat`). Rows see one tile after another, so sums
are kept relative to the largest score so far and rescaled when that grows. Only elementwise
operations and float32 maxima and sums are used: every device has them. Where a vector lies beside a
tile is the business of a `TileLayout`. Gradients are in tile_gradients.py. Loading and storing is
not done here.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import jax.numpy as jnp

from flaxattn.kernels import dropout
from flaxattn.kernels.contract import Sieve
from flaxattn.kernels.plan import LOG2E, KernelPlan

LN2 = 1 / LOG2E

NEVER = -1000.0
"""Below this exponent exp2 is 0 in float32; keeps 0 * -inf out of sums."""

Tile = Any
"""float32 [queries, keys] of a tile, or [keys, queries] where the form is transposed."""

Vector = Any
"""One number for each row, or each key, of a tile, as the form keeps it."""


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


def scores(
    plan: KernelPlan,
    form: TileLayout,
    product: Tile,
    rows: Mapping[str, Vector],
    keys: Mapping[str, Vector],
    bias: Tile | None = None,
) -> Tile:
    """Scores in the kernels' units, -inf where masked: `reference._scores`.

    Args:
        plan: of the call.
        form: of the tile.
        product: q·k in float32.
        rows: packed vectors of the tile's queries.
        keys: packed vectors of the tile's keys.
        bias: the tile of the pair bias.

    Returns:
        A tile.
    """
    factor = plan.scale * plan.nat
    if plan.soft_cap is not None:
        tile = jnp.tanh(product * (plan.scale / plan.soft_cap)) * (plan.soft_cap * plan.nat)
    else:
        tile = product if factor == 1.0 else product * factor
    if "bias" in keys:
        tile = tile + form.keys(keys["bias"])
    if bias is not None:
        tile = tile + bias.astype(jnp.float32) * plan.nat
    low, high = plan.band
    if high is not None:
        last = _query_positions(plan, form, rows, high)
        tile = jnp.where(form.key_positions() <= last, tile, -jnp.inf)
    if low is not None:
        first = _query_positions(plan, form, rows, low)
        tile = jnp.where(form.key_positions() >= first, tile, -jnp.inf)
    if "segment" in rows:
        same = form.rows(rows["segment"]) == form.keys(keys["segment"])
        tile = jnp.where(same, tile, -jnp.inf)
    return tile


def _query_positions(
    plan: KernelPlan, form: TileLayout, rows: Mapping[str, Vector], more: int = 0
) -> Tile:
    """Position of the query of each entry, plus ``more``."""
    if plan.offset is None:
        return form.rows(rows["position"]) + more
    shift = plan.offset + more
    return form.row_positions() + shift if shift else form.row_positions()


def gap(plan: KernelPlan, form: TileLayout, rows: Mapping[str, Vector]) -> Tile:
    """Distance between the key and the query of each entry, float32."""
    offsets = form.key_positions() - _query_positions(plan, form, rows)
    return jnp.abs(offsets).astype(jnp.float32)


def start(plan: KernelPlan, form: TileLayout, rows: Mapping[str, Vector]) -> dict[str, Vector]:
    """The state of rows that have seen no key: largest score, sums, best keys.

    Args:
        plan: of the call.
        form: of the tiles.
        rows: packed vectors of the queries; a "sink" is seen before all keys.

    Returns:
        Vectors of rows by name; "shift" and "total" always, others as asked.
    """
    if plan.sinks:
        state = {"shift": rows["sink"] * plan.nat, "total": form.full_row(1.0)}
    else:
        state = {"shift": form.full_row(-jnp.inf), "total": form.full_row(0.0)}
    if plan.sinks and not {"max_score", "argmax"}.isdisjoint(plan.results):
        state["max_score"] = form.full_row(-jnp.inf)  # the shift may be that of the sink
    for name in ("entropy", "distance", "sum_sq"):
        if name in plan.results:
            state[name] = form.full_row(0.0)
    if "argmax" in plan.results:
        state["argmax"] = form.full_row(-1.0)
    for rank in range(plan.topk):
        state[f"topk score {rank}"] = form.full_row(-jnp.inf)
        state[f"topk index {rank}"] = form.full_row(-1.0)
    for number, sieve in enumerate(plan.sieves):
        name = f"sieve {number}"
        state[name] = form.full_row(-1.0 if sieve.statistic == "argmax" else 0.0)
        if sieve.statistic == "argmax":
            state[f"{name} score"] = form.full_row(-jnp.inf)
        if sieve.statistic == "entropy":
            state[f"{name} mass"] = form.full_row(0.0)
    return state


def advance(
    plan: KernelPlan,
    form: TileLayout,
    state: Mapping[str, Vector],
    tile: Tile,
    rows: Mapping[str, Vector],
    keys: Mapping[str, Vector],
    unit: float = 1.0,
) -> tuple[dict[str, Vector], Tile, Vector]:
    """Takes one more tile of scores into the state of its rows (online softmax).

    Args:
        plan: of the call.
        form: of the tile.
        state: of the rows so far.
        tile: scores in the kernels' units; tiles come in the order of their keys.
        rows: packed vectors of the tile's queries.
        keys: packed vectors of the tile's keys.
        unit: positive factor still missing in the scores; the largest of a row is found without
            it, and it joins the subtraction.

    Returns:
        The new state; the exponentials of the tile, relative to the new shift; and the factor
        that brings what was summed before to the new shift.
    """
    largest = form.row_max(tile)
    new = {"shift": jnp.maximum(state["shift"], largest * unit)}
    base = _finite(new["shift"])
    rescale = exponential(plan, state["shift"] - base)
    shifted = tile * unit - form.rows(base)
    exponentials = exponential(plan, shifted)
    new["total"] = state["total"] * rescale + form.row_sum(exponentials)
    if "entropy" in state:
        moved = (_finite(state["shift"]) - base) * state["total"]
        terms = jnp.maximum(shifted, NEVER) * exponentials
        new["entropy"] = (state["entropy"] + moved) * rescale + form.row_sum(terms)
    if "distance" in state:
        gaps = gap(plan, form, rows)
        new["distance"] = state["distance"] * rescale + form.row_sum(exponentials * gaps)
    if "sum_sq" in state:
        squares = form.row_sum(exponentials * exponentials)
        new["sum_sq"] = state["sum_sq"] * (rescale * rescale) + squares
    best = state["max_score"] if "max_score" in state else state["shift"]
    if "max_score" in state:
        new["max_score"] = jnp.maximum(best, largest * unit)
    if "argmax" in state:
        first = _first_key(form, tile, largest)
        new["argmax"] = jnp.where(largest * unit > best, first, state["argmax"])
    for number, sieve in enumerate(plan.sieves):
        name, members = f"sieve {number}", inside(plan, sieve, form, rows, keys)
        if sieve.statistic == "argmax":
            among = jnp.where(members, tile, -jnp.inf)
            value = form.row_max(among)
            better = value * unit > state[f"{name} score"]
            first = _first_key(form, among, value)
            new[name] = jnp.where(better, first, state[name])
            new[f"{name} score"] = jnp.where(better, value * unit, state[f"{name} score"])
            continue
        kept = jnp.where(members, exponentials, 0.0)
        if sieve.statistic == "mass":
            new[name] = state[name] * rescale + form.row_sum(kept)
            continue
        mass = state[f"{name} mass"]
        moved = (_finite(state["shift"]) - base) * mass
        terms = jnp.maximum(shifted, NEVER) * kept
        new[name] = (state[name] + moved) * rescale + form.row_sum(terms)
        new[f"{name} mass"] = mass * rescale + form.row_sum(kept)
    if plan.topk:
        new |= _advance_topk(plan.topk, form, state, tile * unit)
    return new, exponentials, rescale


def exponential(plan: KernelPlan, tile: Tile) -> Tile:
    """Exp of a tile, or vector, of differences of scores."""
    return jnp.exp(tile) if plan.nat == 1.0 else jnp.exp2(tile)


def _finite(shift: Vector) -> Vector:
    """The shift, 0 for rows that have seen no attendable key."""
    return jnp.where(shift == -jnp.inf, 0.0, shift)


def _first_key(form: TileLayout, tile: Tile, value: Vector) -> Vector:
    """Position, as float32, of the first key of each row whose score is ``value``."""
    backwards = -form.key_positions().astype(jnp.float32)
    return -form.row_max(jnp.where(tile == form.rows(value), backwards, -jnp.inf))


def _advance_topk(
    k: int, form: TileLayout, state: Mapping[str, Vector], tile: Tile
) -> dict[str, Vector]:
    """Merges the k best of a tile into the k best so far; earlier keys stay ahead of equals."""
    values = [state[f"topk score {rank}"] for rank in range(k)]
    indices = [state[f"topk index {rank}"] for rank in range(k)]
    positions = form.key_positions().astype(jnp.float32)
    for _ in range(k):
        value = form.row_max(tile)
        index = _first_key(form, tile, value)
        tile = jnp.where(positions == form.rows(index), -jnp.inf, tile)
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
        plan: of the call.
        state: after the last tile.

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


def inside(
    plan: KernelPlan,
    sieve: Sieve,
    form: TileLayout,
    rows: Mapping[str, Vector],
    keys: Mapping[str, Vector],
) -> Tile:
    """Mask of the entries of a tile that are in a sieve: `reference._inside`.

    Args:
        plan: of the call.
        sieve: the set of keys.
        form: of the tile.
        rows: packed vectors of the tile's queries.
        keys: packed vectors of the tile's keys.

    Returns:
        A bool tile.
    """
    conditions = []
    if sieve.key_class is not None:
        bit = 1 << sieve.key_class
        bit = bit - 2**32 if bit >= 2**31 else bit
        conditions.append(form.keys(keys["class"] & bit) != 0)
    if sieve.offsets is not None:
        low, high = sieve.offsets
        offset = form.key_positions() - _query_positions(plan, form, rows)
        conditions += [offset >= low, offset <= high]
    for wanted, name in ((sieve.same_segment, "segment"), (sieve.same_token, "token")):
        if wanted is not None:
            of_rows, of_keys = form.rows(rows[f"label_{name}"]), form.keys(keys[f"label_{name}"])
            conditions.append(of_rows == of_keys if wanted else of_rows != of_keys)
    if sieve.same_label is not None:
        of_rows = form.rows(rows[f"label {sieve.same_label[0]}"])
        of_keys = form.keys(keys[f"label {sieve.same_label[1]}"])
        conditions += [of_rows == of_keys, of_keys >= 0]
    result = conditions[0]
    for condition in conditions[1:]:
        result = result & condition
    return result


def keep(form: TileLayout, rows: Mapping[str, Vector], threshold: Any) -> Tile:
    """Mask of the weights of a tile that dropout keeps: `dropout.keep_mask`.

    Args:
        form: of the tile.
        rows: packed vectors with the words of the tile's queries.
        threshold: a scalar, `dropout.threshold`.

    Returns:
        A bool tile.
    """
    first, second = form.rows(rows["word0"]), form.rows(rows["word1"])
    return dropout.pair_bits(first, second, form.key_positions()) >= threshold
