# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The head, token and share of attention that a page opens with where nothing was requested."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from flaxattn.trace.record import AttentionRecord, layer_weights

_MASS = ((24, 100), (64, 90), (256, 80))  # percent up to so many keys
_LONG_MASS = 60


def usual_mass(keys: int) -> int:
    """Percent of each row's attention that is drawn at first: less of long texts."""
    return next((mass for length, mass in _MASS if keys <= length), _LONG_MASS)


def most_telling(
    record: AttentionRecord,
    layers: Sequence[int],
    special: Bool[np.ndarray, " K"] | None,
    *,
    square: bool,
) -> dict[str, Any]:
    """Choose the head whose strongest weights on ordinary keys are largest, and a query of it.

    Ordinary keys are not special tokens, and of self-attention neither the first token nor the
    query itself: attention there says least about the text.
    """
    weights = np.nan_to_num(layer_weights(record, layers, allow_nan=True))
    ordinary = _ordinary(weights.shape[-2:], special, square)
    rows = ordinary.any(-1)
    if square and special is not None:
        rows &= ~special
    if not rows.any():
        return {}
    strongest = np.where(ordinary, weights, 0).max(-1)[..., rows]
    best = strongest.mean(-1)
    layer, head = map(int, np.unravel_index(best.argmax(), best.shape))
    query = np.flatnonzero(rows)[strongest[layer, head].argmax()]
    return {"layer": layers[layer], "heads": [record.heads[head]], "query": int(query)}


def _ordinary(
    shape: tuple[int, int], special: Bool[np.ndarray, " K"] | None, square: bool
) -> Bool[np.ndarray, "Q K"]:
    ordinary = np.ones(shape, bool) if special is None else np.tile(~special, (shape[0], 1))
    if square:
        ordinary &= ~np.eye(*shape, dtype=bool)
        ordinary[:, 0] = False
    return ordinary


def most_divergent(about: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the head in which two traces differ most."""
    found = [
        (measure["divergence"], layer, head)
        for layer, row in zip(about["layers"], about["measures"], strict=True)
        for head, measure in zip(about["heads"], row, strict=True)
        if "divergence" in measure
    ]
    if not found:
        return {}
    _, layer, head = max(found, key=lambda entry: entry[0])
    return {"layer": layer, "heads": [head]}
