# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The everyday implementation in plain jax.numpy: one block of query rows after another.

A block sees all keys, so every statistic is exact without rescaling, and only block rows x K
scores exist at a time; the backward pass computes them again. Nothing here is device-specific;
fused kernels have files of their own.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32

from flaxattn.kernels import reductions
from flaxattn.kernels.contract import Call, Capture, Intermediates, Labels
from flaxattn.kernels.dropout import keep_block, row_words
from flaxattn.kernels.masks import allowed_pairs, restricted, sanitized, sieve_block
from flaxattn.kernels.parts import some_heads

BLOCK_ROWS = 64
"""Query rows of a block. Measured on CPU: 32 to 128 are equal, 16 and whole matrices slower."""

WHOLE_ROWS = 128
"""Up to here one block is faster, also backward; not taken when only statistics are asked."""

BLOCK_SCORES = 2**25
"""Scores a block may hold, over batch and heads; more makes it shorter (but not below 8 rows)."""


TOGETHER = 4
"""Heads from which the masses of several sieves are made in one product."""


class Queries(NamedTuple):
    """The query side of a call: all of it, or one block of rows."""

    q: Float[Array, "B H Q D"]
    positions: Int[Array, "Q"]
    mask: Bool[Array, "#B #H Q #K"] | None
    bias: Float[Array, "#B #H Q #K"] | None
    segment: Int[Array, "B Q"] | None
    label_segment: Int[Array, "B Q"] | None
    label_token: Int[Array, "B Q"] | None
    labels: Int[Array, "B A Q"] | None
    counted: Bool[Array, "B Q"] | None
    words: UInt32[Array, "2 B H Q"] | None


class Keys(NamedTuple):
    """The key side, the same for every block."""

    k: Float[Array, "B H K D"]
    v: Float[Array, "B H K D"]
    poison: Float[Array, "B H 1 K"] | None
    mask: Bool[Array, "#B #H 1 #K"] | None
    bias: Float[Array, "#B #H 1 #K"] | None


# Where the query dimension is in each field of `Queries`.
_AXES = (2, 0, 2, 2, 1, 1, 1, 2, 1, 3)


def attend(call: Call) -> tuple[Float[Array, "B Q H D"], Intermediates]:
    """Attention and what was asked of it, in blocks of query rows.

    Args:
        call: a checked call.

    Returns:
        The output in q's dtype and the intermediates.
    """
    queries, keys = _sides(call)
    length = call.q.shape[1]
    size = block_rows(call)
    count = -(-length // size)
    if count == 1:
        rows, maps, received = _block(call, queries, keys)
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


def window(call: Call) -> dict[str, Shaped[Array, "B H Q K"]]:
    """Weights and scores of a window, whatever implementation makes the output.

    The rows of the window are worked out whole, block by block, and only their part is kept: the
    weights are those that asking for all would give, and S x S never exists.

    Args:
        call: a checked call with a window; its dropout, labels and statistics are not looked at.

    Returns:
        "weights" and "scores", those that were asked, with the sizes of the window for Q and K.
    """
    capture = call.capture
    if capture.heads is not None:
        call = some_heads(call, capture.heads)
    call = call._replace(dropout=None, labels=Labels(), capture=replace(capture, heads=None))
    start, stop = capture.query_window or (0, call.q.shape[1])
    queries, keys = _sides(call)
    queries = Queries._make(
        array if array is None else jax.lax.slice_in_dim(array, start, stop, axis=axis)
        for array, axis in zip(queries, _AXES, strict=True)
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
    rows = reductions.exponentiate(_scores(call, queries, keys))
    maps = {}
    if capture.weights:
        weights = rows.exponentials[..., columns] * reductions.inverse_total(rows)[..., None]
        maps["weights"] = _in_dtype(weights, capture)
    if capture.scores:
        maps["scores"] = rows.scores[..., columns]
    return maps


def block_rows(call: Call) -> int:
    """Rows of a block, so that S x S never exists when only statistics are asked.

    Args:
        call: a checked call.

    Returns:
        A divisor of Q when there is one of at least half the limit, else nearly equal parts.
    """
    batch, length, heads, _ = call.q.shape
    capture = call.capture
    whole = capture.weights or capture.scores or not capture.stats
    limit = WHOLE_ROWS if whole and length <= WHOLE_ROWS else BLOCK_ROWS
    limit = min(limit, max(8, BLOCK_SCORES // (batch * heads * call.k.shape[1])))
    divisors = [n for n in range(limit, limit // 2, -1) if length % n == 0]
    return divisors[0] if divisors else -(-length // -(-length // limit))


def _sides(call: Call) -> tuple[Queries, Keys]:
    """Heads before positions, and what varies with the query apart from what does not."""
    k, v, poison = call.k, call.v, None
    if restricted(call):
        k, v, poison = sanitized(k, v)
    q, k, v = (jnp.swapaxes(array, 1, 2) for array in (call.q, k, v))
    per_row = {name: _has_rows(getattr(call, name)) for name in ("mask", "bias")}
    positions = jnp.arange(call.q.shape[1], dtype=jnp.int32)
    words = None
    if call.dropout is not None:
        words = row_words(call.dropout, q.shape[0], q.shape[1], positions)
    queries = Queries(
        q,
        positions,
        call.mask if per_row["mask"] else None,
        call.bias if per_row["bias"] else None,
        None if call.segment_ids is None else call.segment_ids[0],
        call.labels.query_segment,
        call.labels.query_token,
        call.labels.query_labels,
        call.labels.query_mask,
        words,
    )
    keys = Keys(
        k,
        v,
        poison,
        None if per_row["mask"] else call.mask,
        None if per_row["bias"] else call.bias,
    )
    return queries, keys


def _has_rows(array: Array | None) -> bool:
    return array is not None and array.shape[2] > 1


def _blocks(call: Call, queries: Queries, keys: Keys, size: int, count: int):
    """Runs `_block` over all blocks; maps are written in place, received is summed."""
    length = call.q.shape[1]
    if "received" in call.capture.names and queries.counted is None:
        queries = queries._replace(counted=jnp.ones((call.q.shape[0], length), bool))
    blocks = _split_all(queries, size, count)
    # Inside a scan nothing can be merged across forward and backward, so no barriers are needed.
    one = jax.checkpoint(lambda block, keys: _block(call, block, keys), prevent_cse=False)
    first = jax.tree.map(lambda array: array[0], blocks)
    _, maps, received = jax.eval_shape(one, first, keys)
    # zeros_like, not zeros: under shard_map it varies over the same mesh axes as the blocks.
    full = {
        name: jnp.zeros_like(block, shape=(*block.shape[:2], size * count, block.shape[3]))
        for name, block in maps.items()
    }
    total = None if received is None else jnp.zeros_like(received)

    def step(carry, index_and_block):
        (full, total), (index, block) = carry, index_and_block
        rows, maps, received = one(block, keys)
        full = {
            name: jax.lax.dynamic_update_slice_in_dim(full[name], maps[name], index * size, 2)
            for name in full
        }
        return (full, None if total is None else total + received), rows

    (full, total), rows = jax.lax.scan(
        step, (full, total), (jnp.arange(count, dtype=jnp.int32), blocks)
    )
    rows = jax.tree.map(lambda array: _join(array, length), rows)
    return rows, {name: array[:, :, :length] for name, array in full.items()}, total


def _split_all(queries: Queries, size: int, count: int) -> Queries:
    """The query side in blocks, on a new leading dimension."""
    return Queries._make(
        array if array is None else _split(array, axis, size, count)
        for array, axis in zip(queries, _AXES, strict=True)
    )


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
    scores = _scores(call, queries, keys)
    rows = reductions.exponentiate(scores)
    weights = rows.exponentials * reductions.inverse_total(rows)[..., None]
    # Weights that are written anyway also make the output; else dividing after the sum is cheaper.
    if capture.weights and capture.heads is None:
        output = _output(call, queries, keys, weights)
    else:
        output = _output(call, queries, keys, rows.exponentials)
        output = output * reductions.inverse_total(rows)[..., None]
    if capture.heads is not None:
        chosen = list(capture.heads)
        rows = jax.tree.map(lambda array: array[:, chosen], rows)
    stats = reductions.row_statistics(rows, capture.names, queries.positions)
    if capture.topk:
        stats["topk_weights"], stats["topk_indices"] = reductions.topk(rows, capture.topk)
    stats |= _sieves(call, queries, rows)
    received = None
    if "received" in capture.names:
        received = reductions.received(rows, queries.counted)
    maps = {}
    if capture.weights:
        maps["weights"] = _in_dtype(weights, capture)
    if capture.scores:
        maps["scores"] = rows.scores
    return (output, stats), maps, received


def _sieves(call: Call, queries: Queries, rows: reductions.RowBlock) -> dict[str, Array]:
    """The statistics of sieves; many masses are made together."""
    labels = queries.label_segment, queries.label_token, queries.labels
    sieves = call.capture.sieves
    inside = {s.name: sieve_block(s, call, queries.positions, *labels) for s in sieves}
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
    """The scores scale q·k + bias, -inf where masked, in float32."""
    dtype = call.dtype
    scores = jnp.einsum("bhqd,bhkd->bhqk", queries.q, keys.k, preferred_element_type=dtype)
    scores = scores * call.factor
    bias = keys.bias if queries.bias is None else queries.bias
    if bias is not None:
        scores = scores + bias.astype(dtype)
    mask = keys.mask if queries.mask is None else queries.mask
    allowed = allowed_pairs(call, queries.positions, mask, queries.segment)
    if allowed is None or keys.poison is None:
        return scores
    return jnp.where(allowed, scores + keys.poison.astype(dtype), -jnp.inf)


def _output(call: Call, queries: Queries, keys: Keys, weights: Array) -> Array:
    """Sum over keys of keep_j w_j v_j / (1 - rate)."""
    if call.dropout is not None and queries.words is not None:
        columns = jnp.arange(weights.shape[-1], dtype=jnp.int32)
        keep = keep_block(call.dropout.rate, queries.words, columns)
        weights = jnp.where(keep, weights / (1 - call.dropout.rate), 0)
    return jnp.einsum(
        "bhqk,bhkd->bhqd", weights.astype(keys.v.dtype), keys.v, preferred_element_type=call.dtype
    )


def _in_dtype(weights: Array, capture: Capture) -> Array:
    """The captured heads, in the dtype asked."""
    if capture.heads is not None:
        weights = weights[:, list(capture.heads)]
    if capture.dtype == "uint8":
        weights = jnp.round(255 * weights)
    return weights.astype(capture.dtype)
