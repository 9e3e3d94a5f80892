# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Deletion and insertion curves: how a number falls and rises with the tokens that scores rank.

Which tokens stay is decided here, and areas are taken; what a model makes of them is in
`flaxattn.attribution.faithfulness`.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.errors import InputError


class RemovalMasks(NamedTuple):
    """Tokens that stay at each step, K + 1 of them.

    Attributes:
        deletion: From all tokens to none, those with the largest scores go first.
        insertion: From none to all, those with the largest scores come first.
    """

    deletion: Bool[np.ndarray, "K S"]
    insertion: Bool[np.ndarray, "K S"]


def removal_masks(
    scores: Float[np.ndarray, " S"], removable: Bool[np.ndarray, " S"], steps: int
) -> RemovalMasks:
    """Return which tokens stay as those that are ranked are removed and added, in equal steps."""
    places = np.flatnonzero(removable)
    if not np.isfinite(scores[places]).all():
        raise InputError(
            "Scores of tokens are NaN or infinite, so they rank nothing.\n"
            "Look at the parameters of the model."
        )
    order = places[np.argsort(-scores[places], kind="stable")]
    counts = np.round(np.linspace(0, len(order), steps + 1)).astype(int)
    kept = np.ones((2, steps + 1, len(scores)), bool)
    for step, count in enumerate(counts):
        kept[0, step, order[:count]] = False
        kept[1, step, order[count:]] = False
    return RemovalMasks(kept[0], kept[1])


def curve_areas(
    deletion: Float[np.ndarray, "... K"], insertion: Float[np.ndarray, "... K"]
) -> dict[str, Float[np.ndarray, "..."]]:
    """Numbers that sum up curves whose K values are at equal steps from 0 to 1."""
    below, above = _area(deletion), _area(insertion)
    whole = deletion[..., :1]
    return {
        "deletion": below,
        "insertion": above,
        "gap": above - below,
        "comprehensiveness": (whole - deletion[..., 1:-1]).mean(-1),
        "sufficiency": (whole - insertion[..., 1:-1]).mean(-1),
    }


def _area(curve: Float[np.ndarray, "... K"]) -> Float[np.ndarray, "..."]:
    return ((curve[..., 1:] + curve[..., :-1]) / 2).mean(-1)
