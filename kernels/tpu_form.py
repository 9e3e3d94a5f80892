# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Vectors beside a tile on a TPU, and its matrix product.

Where tiles come from is in tpu_sweep.py, what is computed with them in tiles.py.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from flaxattn.kernels.plan import KernelPlan

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
        width: of the matrix.

    Returns:
        ``[n, width]``.
    """
    copies = -(-width // LANES)
    return jnp.concatenate([vector] * copies, axis=1)[:, :width]


def dot(a: Array, b: Array, of_a: int, of_b: int) -> Float[Array, "m n"]:
    """Matrix product over one dimension of each, summed in float32.

    Args:
        a: a matrix.
        b: a matrix of the same dtype; float32 takes several passes of the matrix unit.
        of_a: the dimension of ``a`` to sum over.
        of_b: that of ``b``.

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
