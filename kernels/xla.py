# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The everyday implementation in plain jax.numpy: one block of query rows after another.

A block sees all keys, so every statistic is exact without rescaling, and only block rows x K
scores exist at a time; the backward pass computes them again. The weights of given pairs are
computed from products of query rows with their keys. Nothing here is device-specific; fused kernels
have files of their own.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped, UInt32

from flaxattn.kernels import reductions
from flaxattn.kernels.call import Call, PairBias, some_heads
from flaxattn.kernels.contract import Capture, Intermediates, Labels
from flaxattn.kernels.dropout import keep_block, row_words
from flaxattn.kernels.masks import (
    Positions,
    allowed_pairs,
    restricted,
    sanitized,
    sides,
    sieve_block,
)

BLOCK_ROWS = 64
"""Query rows of a block. Measured on CPU: 32 to 128 are equal, 16 and whole matrices slower."""
WHOLE_ROWS = 128
"""Rows up to which one block holds all of them: faster, most of all backward."""
BLOCK_SCORES = 2**25
"""Scores a block may hold, over batch and heads; more makes it shorter (but not below 8 rows)."""
STRIPES, STRIPED = 4, 512
"""Parts of the rows of a causal call that see fewer keys, and rows from which it is worth it."""
TOGETHER = 4
"""Heads from which the masses of several sieves are made in one product."""


class Queries(NamedTuple):
    """The query side of a call: all of it, or one block of rows."""

    q: Float[Array, "B H Q D"]
    place: Positions
    mask: Bool[Array, "#B #H Q #K"] | None
    bias: Float[Array, "#B #H Q #K"] | None
    counted: Bool[Array, "B Q"] | None
    words: UInt32[Array, "2 B H Q"] | None


class Keys(NamedTuple):
    """The key side: all of it, or the keys that a block of rows may attend to."""

    k: Float[Array, "B G K D"]
    v: Float[Array, "B G K Dv"]
    poison: Float[Array, "B H 1 K"] | None
    place: Positions
    mask: Bool[Array, "#B #H 1 #K"] | None
    bias: Float[Array, "#B #H 1 #K"] | None


# Where the positions are in each field.
_OF_PLACE = (1, 1, 1, 1, 1, 2)
_QUERY_AXES = (2, _OF_PLACE, 2, 2, 1, 3)
_KEY_AXES = (2, 2, 3, _OF_PLACE, 3, 3)


def _along(change: Callable[[Array, int], Array], side: Any, axes: tuple[Any, ...]) -> Any:
    """Change every array of a side along its positions."""

    def one(part: Any, axis: Any) -> Any:
        if isinstance(axis, tuple):
            return _along(change, part, axis)
        return None if part is None else change(part, axis)

    return type(side)(*(one(part, axis) for part, axis in zip(side, axes, strict=True)))


def attend(call: Call) -> tuple[Float[Array, "B Q H Dv"], Intermediates]:
    """Attention and what was asked of it, in blocks of query rows.

    Args:
        call: A checked call.

    Returns:
        The output in q's dtype and the intermediates.
    """
    queries, keys = _sides(call)
    length = call.q.shape[1]
    size = block_rows(call)
    count = -(-length // size)
    if count == 1:
        rows, maps, received = _block(call, queries, keys)
    elif (span := block_keys(call, size)) < call.k.shape[1]:
        rows, maps, received = _blocks(call, queries, keys, size, count, span)
    elif _striped(call):
        rows, maps, received = _stripes(call, queries, keys, size, count)
    else:
        rows, maps, received = _blocks(call, queries, keys, size, count)
    output, stats = rows
    output = jnp.swapaxes(output, 1, 2).astype(call.q.dtype)
    if received is not None:
        stats["received"] = received
    return output, Intermediates(
        weights=maps.get("weights"),
        scores=maps.get("scores"),
        stats={name: stats[name] for name in call.capture.keys},
        implementation="xla",
    )


def captured_window(call: Call) -> dict[str, Shaped[Array, "B H Q K"]]:
    """Weights and scores of a window, whatever implementation makes the output.

    The rows of the window are worked out whole, block by block, and only their part is kept: the
    weights are those that asking for all would give, and S x S never exists.

    Args:
        call: A checked call with a window; its dropout, labels and statistics are not looked at.

    Returns:
        "weights" and "scores", those that were asked, with the sizes of the window for Q and K.
    """
    capture = call.capture
    if capture.heads is not None:
        call = some_heads(call, capture.heads)
    call = call._replace(dropout=None, labels=Labels(), capture=replace(capture, heads=None))
    start, stop = capture.query_window or (0, call.q.shape[1])
    queries, keys = _sides(call)
    queries = _along(
        lambda array, axis: jax.lax.slice_in_dim(array, start, stop, axis=axis),
        queries,
        _QUERY_AXES,
    )
    size = block_rows(call._replace(q=call.q[:, start:stop]))
    count = -(-(stop - start) // size)
    if count == 1:
        return _window_block(call, queries, keys)
    # Inside a loop nothing can be merged across forward and backward, so no barriers are needed.
    one = jax.checkpoint(lambda block: _window_block(call, block, keys), prevent_cse=False)
    maps = jax.lax.map(one, _split_all(queries, size, count))
    return {name: _join(array, stop - start) for name, array in maps.items()}


def _window_block(call: Call, queries: Queries, keys: Keys) -> dict[str, Array]:
    """One block of the rows of a window: the columns of the window."""
    capture, columns = call.capture, slice(*call.capture.key_window or (None,))
    rows = reductions.exponentiate(_scores(call, queries, keys), call.sinks)
    maps = {}
    if capture.weights:
        weights = rows.exponentials[..., columns] * reductions.inverse_total(rows)[..., None]
        maps["weights"] = _in_dtype(weights, capture)
    if capture.scores:
        maps["scores"] = rows.scores[..., columns]
    return maps


def block_rows(call: Call) -> int:
    """Rows of a block: no more than these rows x K exist at a time when no maps are requested.

    Args:
        call: A checked call.

    Returns:
        A divisor of Q when there is one of at least half the limit, else nearly equal parts.
    """
    batch, length, heads, _ = call.q.shape
    limit = WHOLE_ROWS if length <= WHOLE_ROWS else BLOCK_ROWS
    limit = min(limit, max(8, BLOCK_SCORES // (batch * heads * call.k.shape[1])))
    divisors = [n for n in range(limit, limit // 2, -1) if length % n == 0]
    return divisors[0] if divisors else -(-length // -(-length // limit))


def block_keys(call: Call, rows: int) -> int:
    """Keys that a block of rows may attend to, where a window bounds them on both sides.

    Args:
        call: A checked call.
        rows: Rows of a block.

    Returns:
        K when it is not worth it to take less.
    """
    keys, band = call.k.shape[1], call.band
    if band.low is None or band.high is None or jnp.ndim(call.query_offset):
        return keys
    span = rows + band.high - band.low
    return min(keys, span + -span % 16)


def _striped(call: Call) -> bool:
    """Return whether rows are run in parts, each with the keys that it may attend to.

    Not with maps, which would have to be copied to be put together.
    """
    maps = call.capture.weights or call.capture.scores
    known = call.static_offset is not None and call.band.high is not None
    return known and not maps and call.q.shape[1] >= STRIPED


def _stripes(call: Call, queries: Queries, keys: Keys, size: int, count: int):
    """Runs `_blocks` on parts of the rows, with the keys up to the last row of each."""
    length, wide = call.q.shape[1], call.k.shape[1]
    first_masked = (call.band.high or 0) + (call.static_offset or 0) + 1
    found, total, start = [], None, 0
    for part in range(STRIPES):
        stop = min(length, size * -(-count * (part + 1) // STRIPES))
        last = max(1, min(wide, stop - 1 + first_masked))

        some = _along(functools.partial(_part, start=start, stop=stop), queries, _QUERY_AXES)
        front = functools.partial(_part, start=0, stop=last)
        pairs = {"mask": some.mask, "bias": some.bias}
        pairs = {name: front(x, 3) for name, x in pairs.items() if x is not None}
        some, near = some._replace(**pairs), _along(front, keys, _KEY_AXES)
        rows, _, received = _blocks(call, some, near, size, -(-(stop - start) // size))
        found.append(rows)
        if received is not None:
            received = jnp.pad(received, [(0, 0), (0, 0), (0, wide - last)])
            total = received if total is None else total + received
        start = stop
    rows = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=2), *found)
    return rows, {}, total


def _part(array: Array, axis: int, start: int, stop: int) -> Array:
    """Some positions of an array; all of one that has an entry for all of them."""
    if array.shape[axis] == 1:
        return array
    return jax.lax.slice_in_dim(array, start, stop, axis=axis)


def _sides(call: Call) -> tuple[Queries, Keys]:
    """Heads before positions, and what varies with the query apart from what does not."""
    k, v, poison = call.k, call.v, None
    if restricted(call):
        k, v, poison = sanitized(k, v)
    q, k, v = (jnp.swapaxes(array, 1, 2) for array in (call.q, k, v))
    if poison is not None:
        poison = jnp.repeat(poison, call.group, axis=1)
    bias = None if callable(call.bias) else call.bias
    words, (of_queries, of_keys) = None, sides(call)
    if call.dropout is not None:
        rows = jnp.arange(q.shape[2], dtype=jnp.int32)
        words = row_words(call.dropout, q.shape[0], q.shape[1], rows)
    queries = Queries(
        q,
        of_queries,
        call.mask if _has_rows(call.mask) else None,
        bias if _has_rows(bias) else None,
        call.labels.query_mask,
        words,
    )
    keys = Keys(
        k,
        v,
        poison,
        of_keys,
        None if _has_rows(call.mask) else call.mask,
        None if _has_rows(bias) else bias,
    )
    return queries, keys


def _has_rows(array: Array | None) -> bool:
    return array is not None and array.shape[2] > 1


def _blocks(call: Call, queries: Queries, keys: Keys, size: int, count: int, span: int = 0):
    """Runs `_block` over all blocks; maps are written in place, received is summed.

    With a ``span``, each block sees so many keys only.
    """
    length, wide = queries.q.shape[2], keys.k.shape[2]
    if "received" in call.capture.names and queries.counted is None:
        queries = queries._replace(counted=jnp.ones((call.q.shape[0], length), bool))
    blocks = _split_all(queries, size, count)

    def at_block(index: Array, block: Queries, keys: Keys):
        start = _first_key(call, index * size, span) if span else 0
        if span:
            block, keys = _some_keys(block, keys, start, span)
        return _block(call, block, keys), start

    # Inside a scan nothing can be merged across forward and backward, so no barriers are needed.
    keep = jax.checkpoint_policies.save_only_these_names(reductions.KEPT)
    one = jax.checkpoint(at_block, prevent_cse=False, policy=keep)
    first = jax.tree.map(lambda array: array[0], blocks)
    (_, maps, received), _ = jax.eval_shape(one, jnp.int32(0), first, keys)
    # full_like, not full: under shard_map it varies over the same mesh axes as the blocks.
    full = {
        name: jnp.full_like(
            block,
            -jnp.inf if name == "scores" else 0,
            shape=(*block.shape[:2], size * count, wide),
        )
        for name, block in maps.items()
    }
    total = (
        None if received is None else jnp.zeros_like(received, shape=(*received.shape[:2], wide))
    )

    def step(carry, index_and_block):
        (full, total), (index, block) = carry, index_and_block
        (rows, maps, received), start = one(index, block, keys)
        corner = [jnp.asarray(n, jnp.int32) for n in (0, 0, index * size, start)]
        full = {name: jax.lax.dynamic_update_slice(full[name], maps[name], corner) for name in full}
        return (full, None if total is None else _added(total, received, start)), rows

    (full, total), rows = jax.lax.scan(
        step, (full, total), (jnp.arange(count, dtype=jnp.int32), blocks)
    )
    rows = jax.tree.map(lambda array: _join(array, length), rows)
    return rows, {name: array[:, :, :length] for name, array in full.items()}, total


def _added(total: Array, received: Array, start: Array | int) -> Array:
    """The sums of all keys with those of a block added."""
    if received.shape == total.shape:
        return total + received
    there = jax.lax.dynamic_slice_in_dim(total, start, received.shape[2], 2)
    return jax.lax.dynamic_update_slice_in_dim(total, there + received, start, 2)


def _first_key(call: Call, row: Array, span: int) -> Array:
    """The first of the ``span`` keys that the block from a row on may attend to."""
    position = row + jnp.asarray(call.query_offset, jnp.int32).reshape(())
    return jnp.clip(position + (call.band.low or 0), 0, call.k.shape[1] - span)


def _some_keys(block: Queries, keys: Keys, start: Array | int, span: int) -> tuple[Queries, Keys]:
    """A block of rows with some of the keys."""

    def cut(array: Array, axis: int) -> Array:
        if array.shape[axis] == 1:
            return array
        return jax.lax.dynamic_slice_in_dim(array, start, span, axis)

    of_pairs = {
        name: cut(array, 3)
        for name, array in (("mask", block.mask), ("bias", block.bias))
        if array is not None
    }
    return block._replace(**of_pairs), _along(cut, keys, _KEY_AXES)


def _split_all(queries: Queries, size: int, count: int) -> Queries:
    """The query side in blocks, on a new leading dimension."""
    return _along(lambda array, axis: _split(array, axis, size, count), queries, _QUERY_AXES)


def _split(array: Array, axis: int, size: int, count: int) -> Array:
    """[.., Q, ..] -> [count, .., size, ..], padded with zeros."""
    padding = [(0, 0)] * array.ndim
    padding[axis] = (0, size * count - array.shape[axis])
    array = jnp.pad(array, padding)
    shape = (*array.shape[:axis], count, size, *array.shape[axis + 1 :])
    return jnp.moveaxis(array.reshape(shape), axis, 0)


def _join(array: Array, length: int) -> Array:
    """[count, B, H, size, ..] -> [B, H, Q, ..]."""
    array = jnp.moveaxis(array, 0, 2)
    array = array.reshape(*array.shape[:2], -1, *array.shape[4:])
    return array[:, :, :length]


def _block(call: Call, queries: Queries, keys: Keys):
    """One block: ((output, row statistics), maps, received)."""
    capture = call.capture
    rows = reductions.exponentiate(_scores(call, queries, keys), call.sinks)
    inverse = reductions.inverse_total(rows)[..., None]
    weights = rows.exponentials * inverse
    # Dividing after the sum is cheaper, and the same whatever is asked. Backward, weights are
    # cheaper where they are captured anyway, or where the sum would be made again.
    exponentials = _kept(call, queries, keys, rows.exponentials)
    again = queries.q.shape[2] != call.q.shape[1]
    if again or (capture.weights and capture.heads is None):
        kept = _kept(call, queries, keys, weights)
        output = weighted_values(call.dtype, kept, exponentials, inverse, keys.v)
    else:
        output = values_sum(call.dtype, exponentials, keys.v) * inverse
    if capture.heads is not None:
        chosen = list(capture.heads)
        rows = jax.tree.map(lambda array: array[:, chosen], rows)
    places = queries.place.at, keys.place.at
    stats = reductions.row_statistics(rows, capture.names, *places)
    if capture.topk:
        stats["topk_weights"], stats["topk_indices"] = reductions.topk(rows, capture.topk)
    stats |= _sieves(call, queries, keys, rows)
    stats = _positions_of(stats, call, keys)
    received = None
    if "received" in capture.names:
        received = reductions.received(rows, queries.counted)
    maps = {}
    if capture.weights:
        maps["weights"] = _in_dtype(weights, capture)
    if capture.scores:
        maps["scores"] = rows.scores
    return (output, stats), maps, received


def _positions_of(stats: dict[str, Array], call: Call, keys: Keys) -> dict[str, Array]:
    """Statistics whose indices count from the first key of the call, not of the block."""
    if keys.k.shape[2] == call.k.shape[1]:
        return stats
    first = keys.place.at[0, 0]
    indices = {"argmax", "topk_indices"}
    indices |= {s.name for s in call.capture.sieves if s.statistic == "argmax"}
    return {
        name: jnp.where(array < 0, array, array + first) if name in indices else array
        for name, array in stats.items()
    }


def _sieves(
    call: Call, queries: Queries, keys: Keys, rows: reductions.RowBlock
) -> dict[str, Array]:
    """The statistics of sieves; many masses are made together."""
    sieves = call.capture.sieves
    inside = {sieve.name: sieve_block(sieve, queries.place, keys.place) for sieve in sieves}
    summed = [sieve.name for sieve in sieves if sieve.statistic == "mass"]
    # So many sets take no more memory than the exponentials of all heads.
    most = rows.exponentials.shape[1]
    found = {}
    for start in range(0, len(summed) if most >= TOGETHER else 0, most):
        some = summed[start : start + most]
        masses = reductions.masses(rows, [inside[name] for name in some])
        found |= zip(some, masses, strict=True)
    rest = [sieve for sieve in sieves if sieve.name not in found]
    return found | {
        sieve.name: reductions.sieve_statistic(rows, inside[sieve.name], sieve.statistic)
        for sieve in rest
    }


def _scores(call: Call, queries: Queries, keys: Keys) -> Float[Array, "B H Q K"]:
    """Scaled, capped and biased scores, -inf where masked, in float32."""
    dtype = call.dtype
    scores = scaled(call, per_group("bgqd,bgkd->bgqk", queries.q, keys.k, dtype))
    bias = keys.bias if queries.bias is None else queries.bias
    if callable(call.bias):
        bias = _pair_bias(call.bias, queries.place.at, keys.place.at)
    if bias is not None:
        scores = scores + bias.astype(dtype)
    mask = keys.mask if queries.mask is None else queries.mask
    allowed = allowed_pairs(call.band, mask, queries.place, keys.place)
    if allowed is None or keys.poison is None:
        return scores
    return jnp.where(allowed, scores + keys.poison.astype(dtype), -jnp.inf)


def _pair_bias(bias: PairBias, queries: Array, keys: Array) -> Float[Array, "#B #H #Q #K"]:
    """The bias of a block, from the positions of its queries and keys."""
    return jax.vmap(lambda rows: bias(rows[:, None], keys))(queries)


def _kept(call: Call, queries: Queries, keys: Keys, weights: Array) -> Array:
    """Weights after dropout: keep_j w_j / (1 - rate)."""
    if call.dropout is None or queries.words is None:
        return weights
    keep = keep_block(call.dropout.rate, queries.words, keys.place.at[0])
    return jnp.where(keep, weights / (1 - call.dropout.rate), 0)


def _in_dtype(weights: Array, capture: Capture) -> Array:
    """The captured heads, in the dtype asked."""
    if capture.heads is not None:
        weights = weights[:, list(capture.heads)]
    if capture.dtype == "uint8":
        weights = jnp.round(255 * weights)
    return weights.astype(capture.dtype)


def per_group(
    product: str, rows: Float[Array, "B H Q _"], of_keys: Float[Array, "B G K D"], dtype: Any
) -> Float[Array, "B H Q _"]:
    """A product of query heads with the keys or values of their group, in ``dtype``.

    The heads of a group are so many more rows: keys are not repeated.

    Args:
        product: The subscripts of an einsum.
        rows: Queries or weights.
        of_keys: Keys or values.
        dtype: Dtype of the result.

    Returns:
        The product, with the heads of ``rows``.
    """
    batch, heads, length, depth = rows.shape
    shape = (batch, of_keys.shape[1], -1, depth)
    result = jnp.einsum(product, rows.reshape(shape), of_keys, preferred_element_type=dtype)
    return result.reshape(batch, heads, length, result.shape[-1])


def scaled(call: Call, products: Float[Array, "..."]) -> Float[Array, "..."]:
    """Products of queries and keys times the factor of a call, within its soft cap.

    Args:
        call: A checked call.
        products: Products of queries and keys.

    Returns:
        Scores before the bias.
    """
    scores = products * call.factor
    if call.soft_cap is None:
        return scores
    return call.soft_cap * jnp.tanh(scores / call.soft_cap)


def values_sum(
    dtype: Any, weights: Float[Array, "B H Q K"], v: Float[Array, "B G K Dv"]
) -> Float[Array, "B H Q Dv"]:
    """Sum over keys of w_j v_j.

    Args:
        dtype: Dtype of the result.
        weights: Or exponentials.
        v: Values.

    Returns:
        The sums.
    """
    return per_group("bgqk,bgkd->bgqd", weights.astype(v.dtype), v, dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def weighted_values(
    dtype: Any,
    weights: Float[Array, "B H Q K"],
    exponentials: Float[Array, "B H Q K"],
    inverse: Float[Array, "B H Q 1"],
    v: Float[Array, "B G K Dv"],
) -> Float[Array, "B H Q Dv"]:
    """The output from exponentials, its gradient from the weights that they are divided into.

    Args:
        dtype: Dtype of the result.
        weights: Exponentials times inverse.
        exponentials: Exponentials of a block of rows.
        inverse: Inverse of the sums of the rows.
        v: Values.

    Returns:
        The same as without weights, bit by bit.
    """
    del weights
    return values_sum(dtype, exponentials, v) * inverse


@weighted_values.defjvp
def _weighted_values_jvp(dtype: Any, primals: Any, tangents: Any) -> tuple[Array, Array]:
    """The sum that would be made of the weights themselves is differentiated."""
    weights, _, _, v = primals
    change, _, _, v_change = tangents
    tangent = values_sum(dtype, change, v) + values_sum(dtype, weights, v_change)
    return weighted_values(dtype, *primals), tangent


def weights_of_pairs(call: Call, lse: Float[Array, "B H Q"]) -> Float[Array, "B H P"]:
    """The weights of ``call.labels.pairs``, 0 for pairs that are none or masked.

    Memory: 2·B·P·H·D numbers for the gathered queries and keys.

    Args:
        call: A checked call with pairs.
        lse: LSE of the heads that are captured.

    Returns:
        Weights before dropout, float32 (float64 if q is), with gradients.
    """
    if call.capture.heads is not None:
        call = some_heads(call, call.capture.heads)
    pairs = jnp.asarray(call.labels.pairs)
    there = (pairs >= 0).all(axis=-1)
    query, key = (jnp.maximum(pairs[..., n], 0) for n in (0, 1))
    k, poison = call.k, None
    if restricted(call):
        k, _, poison = sanitized(call.k, call.v)
    q, k = (_rows(array, at).astype(call.dtype) for array, at in ((call.q, query), (k, key)))
    products = (q * jnp.repeat(k, call.group, axis=2)).sum(axis=-1)
    scores = scaled(call, jnp.swapaxes(products, 1, 2))
    positions = jnp.broadcast_to(call.query_positions, call.q.shape[:2])
    position = jnp.take_along_axis(positions, query, axis=1)
    if callable(call.bias):
        scores = scores + _bias_of_pairs(call.bias, position, key).astype(call.dtype)
    elif call.bias is not None:
        scores = scores + _entries(call.bias, query, key).astype(call.dtype)
    allowed = _allowed(call, query, key, position) & there[:, None]
    if poison is not None:
        of_heads = jnp.repeat(poison, call.group, axis=1)
        scores = scores + _entries(of_heads, query, key).astype(call.dtype)
    total = jnp.take_along_axis(lse, query[:, None], axis=2)
    allowed = allowed & (total != -jnp.inf)
    logs = jnp.where(allowed, scores - jnp.where(allowed, total, 0), -jnp.inf)
    return jnp.exp(logs)


def _rows(array: Float[Array, "B S H D"], at: Array) -> Float[Array, "B P H D"]:
    return jnp.take_along_axis(array, at[:, :, None, None], axis=1)


def _entries(array: Array, query: Array, key: Array) -> Array:
    """Entries ``[#B, #H, P]`` of an array ``[#B, #H, #Q, #K]``."""
    array = jnp.broadcast_to(array, (query.shape[0], *array.shape[1:]))
    query = jnp.minimum(query, array.shape[2] - 1)
    key = jnp.minimum(key, array.shape[3] - 1)
    return jax.vmap(lambda one, i, j: one[:, i, j])(array, query, key)


def _bias_of_pairs(bias: PairBias, position: Array, key: Array) -> Float[Array, "B #H P"]:
    """The bias of single pairs, from a function of positions."""

    def one(row: Array, column: Array) -> Array:
        return bias(row[None, None], column[None, None])[:, 0, 0]

    return jnp.swapaxes(jax.vmap(jax.vmap(one))(position, key), 1, 2)


def _allowed(call: Call, query: Array, key: Array, position: Array) -> Bool[Array, "#B #H P"]:
    allowed = jnp.ones((1, 1, 1), bool)
    if call.mask is not None:
        allowed = allowed & _entries(call.mask, query, key)
    if call.band.high is not None:
        allowed = allowed & (key <= position + call.band.high)[:, None]
    if call.band.low is not None:
        allowed = allowed & (key >= position + call.band.low)[:, None]
    if isinstance(call.segment_ids, tuple):
        of_queries, of_keys = (
            jnp.take_along_axis(ids, at, axis=1)
            for ids, at in zip(call.segment_ids, (query, key), strict=True)
        )
        allowed = allowed & (of_queries == of_keys)[:, None]
    return allowed
