# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of positions that are not learned, and how learned ones are laid out."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

UNUSED_ROWS = 2  # at the start of BART's table: position 0 is its row 2


def sinusoids(length: int, width: int) -> Float[np.ndarray, "P E"]:
    """Position table of Vaswani et al. 2017 section 3.5, sines first, then cosines, as in Marian.

    Args:
        length: P, positions.
        width: E; feature i of each half has the period 2 pi 10000^(2i / E).
    """
    rates = 10000.0 ** (-2 * np.arange(width // 2) / width)
    angles = np.arange(length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def learned(params: Any, owner: str) -> Float[np.ndarray, "P E"] | None:
    """The position table that a module learned, as it is stored.

    Args:
        params: Parameters of a model.
        owner: Name of the module that adds positions to word embeddings.

    Returns:
        The table, or None if the module learned none.
    """
    end = f"{owner}/position/embedding"
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith(end):
            return np.asarray(leaf)
    return None
