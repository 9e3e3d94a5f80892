# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Measures of attribution maps of any kind: shares of the total that a query receives.

Norms, effective attention, gradients and the like have rows that do not sum to one, and entries
below zero: shares are of absolute values. Maps are made elsewhere.
"""

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.kernels.dense import entropies

NAMES = ("own", "previous", "next", "first", "special", "strongest", "entropy", "total")


def map_measures(
    maps: Float[np.ndarray, "*heads Q K"],
    special: Bool[np.ndarray, " K"] | None,
    *,
    square: bool,
) -> dict[str, Float[np.ndarray, "*heads"]]:
    """Measure maps of one text, of whatever kind."""
    maps = np.asarray(maps, np.float64)
    size = np.abs(maps).sum(-1, keepdims=True)
    shares = np.divide(np.abs(maps), size, out=np.zeros_like(maps), where=size > 0)
    counted = size[..., 0] > 0
    count = counted.sum(-1)
    unknown = np.full(maps.shape[:-2], np.nan)

    def mean(rows: np.ndarray) -> np.ndarray:
        total = np.sum(rows, axis=-1, where=counted)
        return np.divide(total, count, out=unknown.copy(), where=count > 0)

    place = np.arange(maps.shape[-1])
    offset = place - np.arange(maps.shape[-2])[:, None]
    found = {
        name: mean(np.sum(shares, axis=-1, where=offset == step)) if square else unknown
        for name, step in (("own", 0), ("previous", -1), ("next", 1))
    }
    found["first"] = mean(shares[..., 0])
    found["special"] = unknown if special is None else mean(shares[..., special].sum(-1))
    found["strongest"] = mean(shares.max(-1))
    found["entropy"] = mean(entropies(shares))
    found["total"] = maps.sum(-1).mean(-1)
    return found
