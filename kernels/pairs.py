# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Weights of given pairs of positions, from queries, keys and lse: P numbers a head, never Q x K.

The rules of masking are those of contract.py; lse comes from whichever implementation ran.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from flaxattn.kernels.call import Call, PairBias
from flaxattn.kernels.masks import restricted, sanitized
from flaxattn.kernels.parts import some_heads
from flaxattn.kernels.row_products import scaled


def weights_of_pairs(call: Call, lse: Float[Array, "B H Q"]) -> Float[Array, "B H P"]:
    """The weights of ``call.labels.pairs``, 0 for pairs that are none or masked.

    Memory: 2·B·P·H·D numbers for the gathered queries and keys.

    Args:
        call: a checked call with pairs.
        lse: of the heads that are captured.

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
