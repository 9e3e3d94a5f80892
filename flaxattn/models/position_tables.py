# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of positions: those that follow from a formula, and how learned ones are laid out."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

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
