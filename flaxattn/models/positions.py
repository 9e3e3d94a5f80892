# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Positions: tables that follow from a formula or are learned, and T5's relative bias.

The bias of attention scores by relative position is that of Raffel et al. (2020). Near distances
have a bias each, farther ones share one by ranges that grow with the distance. The kernel gets it
as a function of positions, so that no array of queries x keys exists.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from flaxattn.kernels.call import PairBias

UNUSED_ROWS = 2  # at the start of BART's table: position 0 is its row 2


def counted(ids: Int[Array, "B S"]) -> Int[Array, "B S"]:
    """Positions 0, 1, … of every sequence, also of those padded on the left, as published."""
    return jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)


def sinusoids(length: int, width: int) -> Float[np.ndarray, "P E"]:
    """Position table of Vaswani et al. 2017 section 3.5, sines first, then cosines, as in Marian.

    Args:
        length: P, positions.
        width: E; feature i of each half has the period 2 pi 10000^(2i / E).
    """
    rates = 10000.0 ** (-2 * np.arange(width // 2) / width)
    angles = np.arange(length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def learned(params: Any, module: str) -> Float[np.ndarray, "P E"] | None:
    """The position table that a module learned, as it is stored."""
    end = f"{module}/embedding"
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith(end):
            return np.asarray(leaf)
    return None


class BiasTable(nn.Module):
    """The learned biases of a stack of layers.

    Attributes:
        layers: L.
        buckets: Ranges of relative positions with a bias of their own.
        heads: H.
        by_layer: Whether every layer has its own; otherwise one serves all.
        initializer_range: Standard deviation of the initial biases.
    """

    layers: int
    buckets: int
    heads: int
    by_layer: bool = False
    initializer_range: float = 0.02

    @nn.compact
    def __call__(self) -> Float[Array, "L R H"]:
        """The biases of every layer."""
        one = (self.buckets, self.heads)
        shape = (self.layers, *one) if self.by_layer else one
        init = nn.initializers.truncated_normal(self.initializer_range)
        table = self.param("embedding", init, shape)
        return table if self.by_layer else jnp.broadcast_to(table[None], (self.layers, *one))


def relative_bias(
    table: Float[Array, "R H"], max_distance: int, bidirectional: bool = True
) -> PairBias:
    """The bias of pairs of positions, for `flaxattn.kernels.attention.attention`."""
    buckets = buckets_of_offsets(table.shape[0], max_distance, bidirectional)
    by_offset = table[buckets].T

    def bias(queries: Int[Array, "Q 1"], keys: Int[Array, "1 K"]) -> Float[Array, "H Q K"]:
        offset = jnp.clip(keys - queries, -max_distance, max_distance)
        return by_offset[:, offset + max_distance]

    return bias


def buckets_of_offsets(
    count: int, max_distance: int, bidirectional: bool
) -> Int[np.ndarray, " offsets"]:
    """Numbers of the ranges that relative positions, key minus query, belong to."""
    offsets = np.arange(-max_distance, max_distance + 1)
    if not bidirectional:
        return _of_distances(np.maximum(-offsets, 0), count, max_distance)
    half = count // 2
    return _of_distances(np.abs(offsets), half, max_distance) + half * (offsets > 0)


def _of_distances(distance: np.ndarray, count: int, max_distance: int) -> np.ndarray:
    """Ranges of distances, with the logarithm in float32, as published models were trained."""
    near = count // 2
    share = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(near))
    share = share / np.float32(np.log(max_distance / near)) * np.float32(count - near)
    far = np.minimum(near + share.astype(np.int64), count - 1)
    return np.where(distance < near, distance, far)
