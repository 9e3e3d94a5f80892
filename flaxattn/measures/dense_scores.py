# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of heads from whole maps, for stored weights and to check the faster way against.

Definitions are in `terms`; statistics on the device add up the same sums in extraction.
"""

import numpy as np
from jaxtyping import Float, Int

from flaxattn.measures.entropy import entropies
from flaxattn.measures.score_terms import WINDOW, ScoreName, Terms
from flaxattn.text.position_labels import PositionLabels

Map = Float[np.ndarray, "*heads N N"]
Rows = Float[np.ndarray, "*heads N"]


def dense_values(weights: Map, layout: PositionLabels, terms: Terms) -> dict[ScoreName, np.ndarray]:
    """Every number of every head on one text.

    Args:
        weights: Rows that sum to one, of a text without padding; any axes before the last two.
        layout: Of the text.
        terms: The sums wanted, see `terms.terms_of`.

    Returns:
        float64 `[*heads]` by column.
    """
    weights = np.asarray(weights, np.float64)
    rows, received = sources(weights, layout), weights.sum(-2)
    strongest = _strongest(weights, layout)
    found: dict[ScoreName, np.ndarray] = {}
    for (column, source), coefficients in terms.rows.items():
        found[column] = found.get(column, 0) + rows[source] @ coefficients
    for column, coefficients in terms.keys.items():
        found[column] = received @ coefficients
    for column, pairs in terms.pairs.items():
        i, j, c = (np.array(part) for part in zip(*pairs, strict=True)) if pairs else _NONE
        found[column] = weights[..., i, j] @ c
    for column, hits in terms.hits.items():
        i, low, high, c = (np.array(part) for part in zip(*hits, strict=True))
        keys = strongest[..., i]
        found[column] = ((keys >= low) & (keys <= high)) @ c
    return found


_NONE = np.zeros(0, int), np.zeros(0, int), np.zeros(0)


def sources(weights: Map, layout: PositionLabels) -> dict[str, Rows]:
    """The statistics of each query that `terms.SOURCES` names.

    Args:
        weights: Of a text without padding.
        layout: Of the text.
    """
    place = np.arange(weights.shape[-1])
    offset = place - place[:, None]
    own = layout.segments[:, None] == layout.segments
    same = layout.tokens[:, None] == layout.tokens
    plain = np.broadcast_to(layout.plain, own.shape)
    sets = {
        "next": offset == 1,
        "previous": offset == -1,
        "own": offset == 0,
        "local": abs(offset) <= WINDOW,
        "own segment": own,
        "block": own & plain,
        "other block": ~own & plain,
        "special": ~plain,
        "first": np.broadcast_to(layout.first, own.shape),
        "separators": np.broadcast_to(layout.separators, own.shape),
        "same token": same,
        "same token elsewhere": same & ~own,
    }
    found = {name: np.sum(weights, axis=-1, where=keys) for name, keys in sets.items()}
    found["entropy"] = entropies(weights)
    found["distance"] = np.sum(weights * abs(offset), axis=-1)
    found["max"], found["sum_sq"] = weights.max(-1), np.sum(weights**2, axis=-1)
    for block in ("block", "other block"):
        found[f"{block} x entropy"] = found[block] * found["entropy"]
    inside = np.where(sets["block"], weights, 0)
    total = inside.sum(-1, keepdims=True)
    found["entropy in block"] = entropies(inside / np.where(total > 0, total, 1))
    largest, strongest = weights.argmax(-1), _strongest(weights, layout)
    for name, step in (("next", 1), ("previous", -1)):
        found[f"argmax {name}"] = (largest == place + step).astype(float)
        found[f"strongest {name}"] = (strongest == place + step).astype(float)
    found["strongest rare"] = (strongest == layout.rare).astype(float)
    return found


def _strongest(weights: Map, layout: PositionLabels) -> Int[np.ndarray, "*heads N"]:
    """The strongest key of each query, delimiters apart; -1 where there is none."""
    if not layout.plain.any():
        return np.full(weights.shape[:-1], -1)
    return np.where(layout.plain, weights, -1).argmax(-1)
