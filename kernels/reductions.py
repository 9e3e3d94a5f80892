# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Statistics of a block of query rows that sees all its keys, from scores and exponentials.

The weights themselves are never formed: with m the largest score of a row, e_j = exp(s_j - m) and
l = sum_j e_j, every statistic is a sum over e_j divided by l. Online (split over keys)
accumulation is not done here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

NO_KEY = -1
"""Index that stands for "there is none"."""


class RowBlock(NamedTuple):
    """A block of rows after the exponential, all its keys present.

    Attributes:
        scores: -inf where masked.
        shift: largest score of the row or its sink (0 if fully masked), without gradient.
        exponentials: exp(scores - shift), 0 where masked.
        total: their sum, with that of the sink; 0 for a fully masked row without one.
        sink: exp(logit of the sink - shift), None without sinks.
    """

    scores: Float[Array, "B H Q K"]
    shift: Float[Array, "B H Q"]
    exponentials: Float[Array, "B H Q K"]
    total: Float[Array, "B H Q"]
    sink: Float[Array, "B H Q"] | None = None


def exponentiate(
    scores: Float[Array, "B H Q K"], sinks: Float[Array, " H"] | None = None
) -> RowBlock:
    """Shifts by the row maximum and exponentiates; safe for fully masked rows.

    Args:
        scores: -inf where masked.
        sinks: logit of the sink of each head.

    Returns:
        The block, ready for the statistics below.
    """
    largest = jax.lax.stop_gradient(scores).max(axis=-1)
    if sinks is None:
        shift = jnp.where(largest == -jnp.inf, 0, largest)
        exponentials = jnp.exp(scores - shift[..., None])
        return RowBlock(scores, shift, exponentials, exponentials.sum(axis=-1))
    sinks = sinks.astype(scores.dtype)[None, :, None]
    shift = jnp.maximum(largest, jax.lax.stop_gradient(sinks))
    shift = jnp.where(shift == -jnp.inf, 0, shift)
    exponentials, sink = jnp.exp(scores - shift[..., None]), jnp.exp(sinks - shift)
    return RowBlock(scores, shift, exponentials, exponentials.sum(axis=-1) + sink, sink)


def inverse_total(rows: RowBlock) -> Float[Array, "B H Q"]:
    """1 / l, and 0 for a fully masked row, so that products with it are 0 there."""
    some = rows.total != 0
    return jnp.where(some, 1 / jnp.where(some, rows.total, 1), 0)


def lse(rows: RowBlock) -> Float[Array, "B H Q"]:
    """M + log l, -inf for a fully masked row."""
    some = rows.total != 0
    return jnp.where(some, rows.shift + jnp.log(jnp.where(some, rows.total, 1)), -jnp.inf)


def entropy(rows: RowBlock) -> Float[Array, "B H Q"]:
    """Log l - (sum_j (s_j - m) e_j) / l: the shifted form, which does not cancel."""
    shifted = jnp.where(rows.scores == -jnp.inf, 0, rows.scores - rows.shift[..., None])
    mean = (shifted * rows.exponentials).sum(axis=-1) * inverse_total(rows)
    log_total = jnp.log(jnp.where(rows.total != 0, rows.total, 1))
    if rows.sink is not None:  # weights of keys sum to less than 1
        log_total = log_total * rows.exponentials.sum(axis=-1) * inverse_total(rows)
    return log_total - mean


def sum_sq(rows: RowBlock) -> Float[Array, "B H Q"]:
    """(sum_j e_j^2) / l^2."""
    return (rows.exponentials**2).sum(axis=-1) * inverse_total(rows) ** 2


def mass(rows: RowBlock, inside: Bool[Array, "#B #H #Q #K"]) -> Float[Array, "B H Q"]:
    """(sum of e_j over a set of keys) / l."""
    return jnp.where(inside, rows.exponentials, 0).sum(axis=-1) * inverse_total(rows)


def masses(
    rows: RowBlock, inside: Sequence[Bool[Array, "#B 1 #Q K"]]
) -> Sequence[Float[Array, "B H Q"]]:
    """`mass` of several sets of keys, by one product: faster than one sum after the other.

    Args:
        rows: the block.
        inside: True for the keys of each set.

    Returns:
        The masses, in the order of the sets. Memory: a number for each set, query and key.
    """
    batch, _, queries, keys = rows.exponentials.shape
    shape = batch, 1, queries, keys
    members = jnp.stack([jnp.broadcast_to(each, shape)[:, 0] for each in inside], 1)
    members = members.astype(rows.exponentials.dtype)
    exact = jax.lax.Precision.HIGHEST
    sums = jnp.einsum("bhqk,bsqk->sbhq", rows.exponentials, members, precision=exact)
    return list(sums * inverse_total(rows)[None])


def sieve_statistic(
    rows: RowBlock, inside: Bool[Array, "#B #H #Q #K"], statistic: str
) -> Float[Array, "B H Q"] | Int[Array, "B H Q"]:
    """The statistic of a sieve: `contract.Sieve.statistic`.

    Args:
        rows: the block.
        inside: True for the keys of the sieve.
        statistic: "mass", "entropy" or "argmax".

    Returns:
        A number for each row.
    """
    if statistic == "mass":
        return mass(rows, inside)
    scores = jnp.where(inside, rows.scores, -jnp.inf)
    if statistic == "argmax":
        value, first = _largest(scores)
        return jnp.where(value == -jnp.inf, NO_KEY, first)
    return entropy(exponentiate(scores))


def distance(
    rows: RowBlock, queries: Int[Array, "#B Q"], keys: Int[Array, "#B K"]
) -> Float[Array, "B H Q"]:
    """(sum_j |i - j| e_j) / l, in tokens, from the positions of both sides."""
    gap = jnp.abs(queries[:, None, :, None] - keys[:, None, None]).astype(rows.scores.dtype)
    return (rows.exponentials * gap).sum(axis=-1) * inverse_total(rows)


def sink(rows: RowBlock) -> Float[Array, "B H Q"]:
    """Weight of the sink, 0 without one."""
    if rows.sink is None:
        return jnp.zeros_like(rows.total)
    return rows.sink * inverse_total(rows)


def received(rows: RowBlock, counted: Bool[Array, "B Q"] | None) -> Float[Array, "B H K"]:
    """Sum of the weights that each key gets from the counted rows of this block."""
    factor = inverse_total(rows)
    exponentials = rows.exponentials
    if counted is not None:
        factor = jnp.where(counted[:, None], factor, 0)
        exponentials = jnp.where(counted[:, None, :, None], exponentials, 0)
    return jnp.einsum("bhq,bhqk->bhk", factor, exponentials)


def _key_positions(scores: Float[Array, "B H Q K"]) -> Int[Array, "B H Q K"]:
    return jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)


def _largest(scores: Float[Array, "B H Q K"]) -> tuple[Array, Array]:
    """The largest score of each row and the first key that has it."""
    fixed = jax.lax.stop_gradient(scores)
    value = fixed.max(axis=-1)
    keys, none = _key_positions(scores), scores.shape[-1]
    first = jnp.where(fixed == value[..., None], keys, none).min(axis=-1)
    # A row with NaN has no hit at all.
    first = jnp.where(first == none, NO_KEY, first)
    return _score_of(scores, value, first), first


@jax.custom_jvp
def _score_of(scores: Array, value: Array, key: Array) -> Array:
    """``value``, known to be the score of ``key``: costs nothing forward."""
    del scores, key
    return value


@_score_of.defjvp
def _score_of_jvp(primals, tangents):
    """The gradient goes to that one key."""
    scores, value, key = primals
    chosen = _key_positions(scores) == key[..., None]
    return value, jnp.where(chosen, tangents[0], 0).sum(axis=-1)


def topk(rows: RowBlock, k: int) -> tuple[Float[Array, "B H Q R"], Int[Array, "B H Q R"]]:
    """The k largest weights and their keys, the earlier key first among equals.

    Args:
        rows: the block.
        k: how many, R of the result; rows with fewer keys end in weight 0 and index -1.

    Returns:
        Weights and int32 key positions.
    """
    remaining, weights, indices = rows.scores, [], []
    keys = _key_positions(rows.scores)
    for _ in range(k):
        value, index = _largest(remaining)
        there = value != -jnp.inf
        value = jnp.where(there, value, 0) - rows.shift
        weights.append(jnp.where(there, jnp.exp(value), 0) * inverse_total(rows))
        indices.append(jnp.where(there, index, NO_KEY))
        remaining = jnp.where(keys == index[..., None], -jnp.inf, remaining)
    return jnp.stack(weights, axis=-1), jnp.stack(indices, axis=-1)


def row_statistics(
    rows: RowBlock, names: Sequence[str], queries: Int[Array, "#B Q"], keys: Int[Array, "#B K"]
) -> dict[str, Float[Array, "B H Q"] | Int[Array, "B H Q"]]:
    """The statistics of rows that need no labels.

    Args:
        rows: the block.
        names: those wanted; others are ignored.
        queries: positions, for ``distance``.
        keys: positions, for ``distance``.

    Returns:
        Statistics by name.
    """
    stats = {}
    if "lse" in names:
        stats["lse"] = lse(rows)
    if "entropy" in names:
        stats["entropy"] = entropy(rows)
    if "max" in names or "argmax" in names:
        weight, index = topk(rows, 1)
        stats |= {"max": weight[..., 0], "argmax": index[..., 0]}
    if "distance" in names:
        stats["distance"] = distance(rows, queries, keys)
    if "sum_sq" in names:
        stats["sum_sq"] = sum_sq(rows)
    if "max_score" in names:
        stats["max_score"] = _largest(rows.scores)[0]
    if "sink" in names:
        stats["sink"] = sink(rows)
    return {name: stats[name] for name in names if name in stats}
