# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Products of query rows with the keys and values of their groups, and scores before the bias.

Bias, masks, softmax and statistics are not made here.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from flaxattn.kernels.call import Call


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
