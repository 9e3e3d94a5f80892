# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Layout of a tile and its vectors on a device, and positions of its queries and keys.

The arithmetic of attention is in tiles.py.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jax import lax

from flaxattn.kernels.plan import KernelPlan

ORIGIN = np.float32(1.5 * 2**23)
"""Floats around this one count in steps of 1: the bits of one more are larger by 1."""

Tile = Any
"""float32 [queries, keys] of a tile, or [keys, queries] where the form is transposed."""

Vector = Any
"""One number for each row, or each key, of a tile, as the form keeps it."""


class TileLayout(Protocol):
    """Layout of the vectors that belong to a tile on a device."""

    def rows(self, vector: Vector) -> Tile:
        """A vector of rows, so that it broadcasts with a tile."""

    def keys(self, vector: Vector) -> Tile:
        """A vector of keys, so that it broadcasts with a tile."""

    def row_sum(self, tile: Tile) -> Vector:
        """Sum over the keys of each row."""

    def row_max(self, tile: Tile) -> Vector:
        """Maximum over the keys of each row."""

    def key_sum(self, tile: Tile) -> Vector:
        """Sum over the rows for each key."""

    def row_positions(self) -> Tile:
        """Position of the query of each entry, int32."""

    def key_positions(self) -> Tile:
        """Position of the key of each entry, int32."""

    def full_row(self, value: float) -> Vector:
        """A float32 vector of rows of one value."""

    def tanh(self, tile: Tile) -> Tile:
        """Hyperbolic tangent of each entry, to the accuracy of float32."""


def query_positions(
    plan: KernelPlan, form: TileLayout, rows: Mapping[str, Vector], more: int = 0
) -> Tile:
    """Position of the query of each entry, plus ``more``."""
    if plan.offset is None:
        return form.rows(rows["position"]) + more
    shift = plan.offset + more
    return form.row_positions() + shift if shift else form.row_positions()


def gap(plan: KernelPlan, form: TileLayout, rows: Mapping[str, Vector]) -> Tile:
    """Distance between the key and the query of each entry, float32."""
    of_queries = counted(query_positions(plan, form, rows))
    return jnp.abs(counted(form.key_positions()) - of_queries)


def counted(positions: Tile) -> Tile:
    """Convert positions to float32, plus `ORIGIN`, by an addition where conversions are slow.

    Args:
        positions: int32, of less than 2**22, before or after 0.

    Returns:
        The exact sum.
    """
    return lax.bitcast_convert_type(positions + int(ORIGIN.view(np.int32)), jnp.float32)


def first_key(form: TileLayout, tile: Tile, value: Vector) -> Vector:
    """Position, as float32, of the first key of each row whose score is ``value``."""
    backwards = counted(-form.key_positions())
    return ORIGIN - form.row_max(jnp.where(tile == form.rows(value), backwards, -jnp.inf))
