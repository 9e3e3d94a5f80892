# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Products of query rows with their keys and values, and the weights of given pairs."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from flaxattn.kernels.call import Call, PairBias, some_heads
from flaxattn.kernels.masks import restricted, sanitized


def per_group(
    product: str, rows: Float[Array, "B H Q _"], of_keys: Float[Array, "B G K D"], dtype: Any
) -> Float[Array, "B H Q _"]:
    """A product of query heads with the keys or values of their group, in ``dtype``.

    The heads of a group are so many more rows: keys are not repeated.

    Args:
        product: the subscripts of an einsum.
        rows: queries or weights.
        of_keys: keys or values.
        dtype: of the result.

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
        call: a checked call.
        products: of queries and keys.

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
        dtype: of the result.
        weights: or exponentials.
        v: values.

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
        dtype: of the result.
        weights: exponentials times inverse.
        exponentials: of a block of rows.
        inverse: of the sums of the rows.
        v: values.

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
