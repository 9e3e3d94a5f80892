# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of positions that are not learned, and how learned ones are laid out."""

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
