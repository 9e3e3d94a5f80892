# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Vectors beside a tile on a TPU, and its matrix product.

Where tiles come from is in tpu_sweep.py, what is computed with them in tiles.py.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from flaxattn.kernels.plan import KernelPlan


class TpuTileLayout:
    """`tiles.Form`: vectors as ``[n, 1]`` or ``[1, n]``, whichever broadcasts with the tile."""

    def __init__(self, plan: KernelPlan, query: Any, key: Any, turned: bool):
        self.starts = (query * plan.block_q, key * plan.block_k)
        self.row_axis, self.key_axis = (1, 0) if turned else (0, 1)
        shape = (plan.block_q, plan.block_k)
        self.shape = shape[::-1] if turned else shape
        self.row_shape = (1, plan.block_q) if turned else (plan.block_q, 1)

    def rows(self, vector: Array) -> Array:
        """Broadcasts as it is."""
        return vector

    def keys(self, vector: Array) -> Array:
        """Broadcasts as it is."""
        return vector

    def row_sum(self, tile: Array) -> Array:
        """Sum over the keys."""
        return tile.sum(axis=self.key_axis, keepdims=True)

    def row_max(self, tile: Array) -> Array:
        """Maximum over the keys."""
        return tile.max(axis=self.key_axis, keepdims=True)

    def key_sum(self, tile: Array) -> Array:
        """Sum over the rows."""
        return tile.sum(axis=self.row_axis, keepdims=True)

    def row_positions(self) -> Array:
        """Position of the query of each entry."""
        return self.starts[0] + jax.lax.broadcasted_iota(jnp.int32, self.shape, self.row_axis)

    def key_positions(self) -> Array:
        """Position of the key of each entry."""
        return self.starts[1] + jax.lax.broadcasted_iota(jnp.int32, self.shape, self.key_axis)

    def full_row(self, value: float) -> Array:
        """A constant vector."""
        return jnp.full(self.row_shape, value, jnp.float32)


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
