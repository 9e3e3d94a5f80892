# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Random bits by place: row n of a key is the same whoever asks for it and in which company."""

import hashlib

import numpy as np
from jaxtyping import UInt64

_BLOCK = 4  # numbers per count of Philox's counter


def raw_draws(key: str, first: int, rows: int, width: int) -> UInt64[np.ndarray, "B N"]:
    """Uniform 64-bit numbers of some consecutive rows.

    Counter-based (Philox 4x64, Salmon et al. 2011): nothing has to be drawn before.

    Args:
        key: what the numbers are for; different keys have independent numbers.
        first: number of the first row.
        rows: B.
        width: N, numbers per row; part of what a row is, so the same in every call for a key.
    """
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "little")
    blocks = -(-width // _BLOCK)
    source = np.random.Philox(key=seed, counter=first * blocks)
    return source.random_raw(rows * blocks * _BLOCK).reshape(rows, -1)[:, :width]
