# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Statistics of rows that see all their keys: of a block of scores, and of weights that exist.

In a block the weights themselves are never formed: with m the largest score of a row,
e_j = exp(s_j - m) and l = sum_j e_j, every statistic is a sum over e_j divided by l. Online (split
over keys) accumulation is not done here. `statistics` takes the weights of a trace, a store
or somebody else's array, in NumPy and float64, under the definitions of contract.py; no softmax is
here.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.contract import Labels, Sieve

NO_KEY = -1
"""Index that stands for "there is none"."""

GROUP_KEYS = 32
"""Keys of which only the largest score is looked at. Measured on CPU: 16 and 32 are equal."""

KEPT = "flaxattn numbers of rows"
"""Name of what a block keeps for the backward pass, which makes its scores again: sums and largest
scores, a few numbers for each row."""


class RowBlock(NamedTuple):
    """A block of rows after the exponential, all its keys present.

    Attributes:
        scores: -inf where masked.
        shift: Largest score of the row or its sink (0 if fully masked), without gradient.
        exponentials: Exp(scores - shift), 0 where masked.
        total: Their sum, with that of the sink; 0 for a fully masked row without one.
        sink: Exp(logit of the sink - shift), None without sinks.
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
        sinks: Logit of the sink of each head.

    Returns:
        The block, ready for the statistics below.
    """
    shift, sink = jax.lax.stop_gradient(scores).max(axis=-1), None
    if sinks is not None:
        sinks = sinks.astype(scores.dtype)[None, :, None]
        shift = jnp.maximum(shift, jax.lax.stop_gradient(sinks))
    shift = checkpoint_name(jnp.where(shift == -jnp.inf, 0, shift), KEPT)
    exponentials = jnp.exp(scores - shift[..., None])
    total = exponentials.sum(axis=-1)
    if sinks is not None:
        sink = jnp.exp(sinks - shift)
        total = total + sink
    return RowBlock(scores, shift, exponentials, checkpoint_name(total, KEPT), sink)


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
        rows: The block.
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
        rows: The block.
        inside: True for the keys of the sieve.
        statistic: "mass", "entropy" or "argmax".

    Returns:
        A number for each row.
    """
    if statistic == "mass":
        return mass(rows, inside)
    scores = jnp.where(inside, rows.scores, -jnp.inf)
    if statistic == "argmax":
        return _search(scores, 1)[1][..., 0]
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


def _search(scores: Float[Array, "B H Q K"], count: int) -> tuple[Array, Array]:
    """The largest scores of each row, the earlier key first among equals, without gradient.

    Only the group of keys that holds the largest score is looked at again, for what is left in it.
    Keys are `NO_KEY` from where a row has no more scores above minus infinity, and throughout a
    row of NaN.
    """
    groups = _in_groups(jax.lax.stop_gradient(scores))
    tops, (parts, size) = groups.max(axis=-1), groups.shape[-2:]
    numbers, none = _key_positions(tops), parts * size
    value = jnp.full_like(tops[..., 0], jnp.inf)
    key = jnp.full_like(value, NO_KEY, dtype=jnp.int32)
    values, keys = [], []
    for _ in range(count):
        # All that is left comes after the last one: it is smaller, or equal and later.
        last, value = value, tops.max(axis=-1)
        number = jnp.where(tops == value[..., None], numbers, parts - 1).min(axis=-1)
        at = number[..., None, None]
        group = jnp.take_along_axis(groups, at, axis=-2, mode="promise_in_bounds")[..., 0, :]
        positions = number[..., None] * size + _key_positions(group)
        equal = group == value[..., None]
        left = (value < last)[..., None] | (positions > key[..., None])
        key = jnp.where(equal & left, positions, none).min(axis=-1)
        left = (group < value[..., None]) | (equal & (positions > key[..., None]))
        top = jnp.where(left, group, -jnp.inf).max(axis=-1)
        tops = jnp.where(numbers == number[..., None], top[..., None], tops)
        values.append(value)
        # A row of NaN has no hit at all.
        keys.append(jnp.where((key == none) | (value == -jnp.inf), NO_KEY, key))
    found = jnp.stack(values, axis=-1), jnp.stack(keys, axis=-1)
    return checkpoint_name(found, KEPT)


def _in_groups(scores: Float[Array, "B H Q K"]) -> Float[Array, "B H Q N P"]:
    """Neighbouring keys together, the last group filled up with minus infinity."""
    keys = scores.shape[-1]
    size = min(GROUP_KEYS, keys)
    missing = [(0, 0)] * 3 + [(0, -keys % size)]
    scores = jnp.pad(scores, missing, constant_values=-jnp.inf)
    return scores.reshape(*scores.shape[:-1], -1, size)


def _largest(scores: Float[Array, "B H Q K"], count: int) -> tuple[Array, Array]:
    """The largest scores of each row, with their gradients, and the keys that have them."""
    values, indices = _search(scores, count)
    return _scores_of(scores, values, indices), indices


@jax.custom_jvp
def _scores_of(scores: Array, values: Array, keys: Array) -> Array:
    """``values``, known to be the scores of ``keys``: costs nothing forward."""
    del scores, keys
    return values


@_scores_of.defjvp
def _scores_of_jvp(primals, tangents):
    """The gradients go to these keys, all of them in one pass over the scores."""
    scores, values, keys = primals
    positions = _key_positions(scores)
    parts = [
        jnp.where(positions == keys[..., n, None], tangents[0], 0).sum(axis=-1)
        for n in range(keys.shape[-1])
    ]
    return values, jnp.stack(parts, axis=-1)


def topk(rows: RowBlock, k: int) -> tuple[Float[Array, "B H Q R"], Int[Array, "B H Q R"]]:
    """The k largest weights and their keys, the earlier key first among equals.

    Args:
        rows: The block.
        k: Number of keys, R of the result; rows with fewer keys end in weight 0 and index -1.

    Returns:
        Weights and int32 key positions.
    """
    values, indices = _largest(rows.scores, k)
    there = values != -jnp.inf
    shifted = jnp.where(there, values, 0) - rows.shift[..., None]
    weights = jnp.where(there, jnp.exp(shifted), 0) * inverse_total(rows)[..., None]
    return weights, indices


def row_statistics(
    rows: RowBlock, names: Sequence[str], queries: Int[Array, "#B Q"], keys: Int[Array, "#B K"]
) -> dict[str, Float[Array, "B H Q"] | Int[Array, "B H Q"]]:
    """The statistics of rows that need no labels.

    Args:
        rows: The block.
        names: Names of statistics to return; others are ignored.
        queries: Positions, for ``distance``.
        keys: Positions, for ``distance``.

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
        stats["max_score"] = _largest(rows.scores, 1)[0][..., 0]
    if "sink" in names:
        stats["sink"] = sink(rows)
    return {name: stats[name] for name in names if name in stats}


Weights = Float[np.ndarray, "*heads Q K"]


def entropies(weights: Float[Any, "... K"]) -> Float[Any, "..."]:
    """Entropy of each row in nats; 0 of a row of zeros.

    Args:
        weights: NumPy or JAX, in whose dtype it is computed.
    """
    space = weights.__array_namespace__()
    # A weight too small for a logarithm adds nothing; this is much faster than a special case.
    return -(weights * space.log(space.maximum(weights, 1e-30))).sum(-1)


def statistics(
    weights: Weights, stats: Sequence[str | Sieve], labels: Labels
) -> dict[str, np.ndarray]:
    """Statistics of dense weights by name.

    Args:
        weights: Weights of one example, 0 where masked; any axes before the last two.
        stats: Names and sieves, as `Capture.stats`; all but "lse" and "topk(k)".
        labels: Labels of that example: arrays without the axis B.

    Returns:
        "[*heads, Q]" each, "received" "[*heads, K]" and "pairs" "[*heads, P]"; float64 but for
        the indices.
    """
    weights = np.asarray(weights, np.float64)
    return {
        item if isinstance(item, str) else item.name: _statistic(weights, item, labels)
        for item in stats
    }


def _statistic(weights: Weights, item: str | Sieve, labels: Labels) -> np.ndarray:
    queries, keys = weights.shape[-2:]
    offset = np.arange(keys) - np.arange(queries)[:, None]
    if isinstance(item, Sieve):
        return _of_sieve(weights, item, np.broadcast_to(inside(item, labels, offset), offset.shape))
    if item == "entropy":
        return entropies(weights)
    if item == "max":
        return weights.max(-1)
    if item == "argmax":
        return _largest_weight(weights)
    if item == "distance":
        return np.sum(weights * abs(offset), axis=-1)
    if item == "sum_sq":
        return np.sum(weights**2, axis=-1)
    if item == "received":
        counted = labels.query_mask
        return weights.sum(-2) if counted is None else weights[..., np.asarray(counted), :].sum(-2)
    if item == "pairs":
        query, key = np.asarray(labels.pairs).reshape(-1, 2).T
        there = (query >= 0) & (key >= 0)
        flat = weights.reshape(*weights.shape[:-2], -1)  # taken from twice as fast as from rows
        return np.where(there, np.take(flat, np.where(there, query * keys + key, 0), -1), 0)
    raise ValueError(f"{item!r} does not follow from weights alone")


def _of_sieve(weights: Weights, sieve: Sieve, members: Bool[np.ndarray, "Q K"]) -> np.ndarray:
    if sieve.statistic == "argmax":
        return _largest_weight(np.where(members, weights, 0))
    if sieve.statistic == "mass":
        return np.sum(weights, axis=-1, where=members)
    chosen = np.where(members, weights, 0)
    mass = chosen.sum(-1, keepdims=True)
    return entropies(chosen / np.where(mass > 0, mass, 1))


def _largest_weight(weights: Weights) -> np.ndarray:
    """The first of the largest weights of each row, -1 where none is above 0."""
    return np.where(weights.max(-1) > 0, weights.argmax(-1), -1)


def inside(sieve: Sieve, labels: Labels, offset: np.ndarray) -> Bool[np.ndarray, "#Q K"]:
    """Mask of the keys in a sieve, for every query of one example.

    Args:
        sieve: The set of keys.
        labels: Arrays without the axis B.
        offset: Key position minus query position, "[Q, K]".
    """
    members = np.ones((1, offset.shape[1]), bool)
    if sieve.key_class is not None:
        members = members & (np.asarray(labels.key_class) >> sieve.key_class & 1 == 1)
    if sieve.offsets is not None:
        members = members & (sieve.offsets[0] <= offset) & (offset <= sieve.offsets[1])
    if sieve.same_segment is not None:
        same = np.asarray(labels.query_segment)[:, None] == np.asarray(labels.key_segment)
        members = members & (same == sieve.same_segment)
    if sieve.same_token is not None:
        same = np.asarray(labels.query_token)[:, None] == np.asarray(labels.key_token)
        members = members & (same == sieve.same_token)
    if sieve.same_label is not None:
        of_queries = np.asarray(labels.query_labels)[sieve.same_label[0]][:, None]
        of_keys = np.asarray(labels.key_labels)[sieve.same_label[1]]
        members = members & (of_queries == of_keys) & (of_queries >= 0)
    return members
