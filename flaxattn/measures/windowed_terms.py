# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of layers with a window, beside those of layers that see every key.

A score is a lift over uniform attention, and a layer with a window could attend uniformly only to
the keys in it. So its lifts have coefficients of their own: the sums of both kinds of layers are
made for every head, and `by_layer` keeps of each layer those that are meant for it. Queries that
see no key of a set, and related words of which one is out of sight, do not count.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.measures.key_range import KeyRange
from flaxattn.measures.score_sources import WINDOW
from flaxattn.measures.score_terms import ScoreOptions, ScoreSpec, Terms
from flaxattn.measures.side_labels import self_labels
from flaxattn.measures.tree_terms import add_tree
from flaxattn.text.position_labels import PositionLabels

_SEEN = " within "  # between the kind of a score and the number of a window
_LIFTS = ("score", "control")


def with_windows(terms: Terms, windowed: Mapping[KeyRange, Terms]) -> Terms:
    """The sums of a text, and beside them those of layers with a window.

    Args:
        terms: For layers that see every key.
        windowed: For layers with a window, by its range.
    """
    rows, keys, pairs = dict(terms.rows), dict(terms.keys), dict(terms.pairs)
    for number, own in enumerate(windowed.values()):
        rows |= {(_marked(c, number), s): row for (c, s), row in own.rows.items() if _differs(c)}
        keys |= {_marked(c, number): row for c, row in own.keys.items() if _differs(c)}
        pairs |= {_marked(c, number): row for c, row in own.pairs.items() if _differs(c)}
    return dataclasses.replace(terms, rows=rows, keys=keys, pairs=pairs)


def by_layer(
    values: Mapping[ScoreSpec, Float[np.ndarray, "L H"]],
    layers: Sequence[KeyRange],
    windows: Sequence[KeyRange],
) -> dict[ScoreSpec, Float[np.ndarray, "L H"]]:
    """The scores of each layer among those of all kinds of layers.

    Args:
        values: Scores of the sums that `with_windows` made.
        layers: Range of keys of the layer at each index.
        windows: The keys of `windowed`, in their order.
    """
    plain = {c: array for c, array in values.items() if _SEEN not in c.kind}
    found: dict[ScoreSpec, np.ndarray] = {}
    for column in {**plain, **dict.fromkeys(_unmarked(c) for c in values)}:
        gap = np.full(next(iter(values.values())).shape, np.nan)
        array = np.array(plain.get(column, gap), float)
        for number, window in enumerate(windows):
            of_window = [place for place, layer in enumerate(layers) if layer == window]
            own = values.get(_marked(column, number), gap if _is_lift(column) else None)
            if own is not None:
                array[of_window] = own[of_window]
        if not np.isnan(array).all() or column in plain:
            found[column] = array
    return found


def lifts_within(layout: PositionLabels, asked: ScoreOptions, reach: KeyRange) -> Terms:
    """Lifts of an encoder by itself over uniform attention to the keys that a query sees.

    Args:
        layout: Of the text.
        asked: Which roles.
        reach: The keys.
    """
    terms, count = Terms(self_labels(layout)), len(layout)
    seen, plain = reach.mask(count), layout.plain
    offset = np.arange(count) - np.arange(count)[:, None]
    block = (layout.segments[:, None] == layout.segments) & plain
    _add_rows(terms, ScoreSpec("score", "local"), "local", (abs(offset) <= WINDOW) & seen, seen)
    _add_rows(terms, ScoreSpec("score", "block"), "block", block & seen, seen)
    name = "block_entropy"
    _add_rows(terms, ScoreSpec("score", name), "block x entropy", block & seen, seen)
    for role, keys in (
        ("cls", layout.first),
        ("sep", layout.separators),
        ("delimiter", layout.first | layout.separators),
    ):
        _add_pairs(terms, ScoreSpec("score", role), keys & seen, seen)
    same = (layout.tokens[:, None] == layout.tokens) & plain[:, None] & plain & seen
    several = same & (same.sum(1) > 1)[:, None]
    across = same & (layout.segments[:, None] != layout.segments)
    _add_rows(terms, ScoreSpec("pattern", "same token, score"), "same token", several, seen)
    _add_rows(
        terms, ScoreSpec("pattern", "other text, score"), "same token elsewhere", across, seen
    )
    word = (layout.spelt[:, None] == layout.spelt) & (layout.spelt >= 0)[:, None] & (offset != 0)
    _add_pairs(terms, ScoreSpec("pattern", "word, score"), word & seen, seen)
    if asked.annotated:
        add_tree(terms, layout, asked, reach)
    return terms


def _add_rows(
    terms: Terms,
    column: ScoreSpec,
    source: str,
    members: Bool[np.ndarray, "Q K"],
    seen: Bool[np.ndarray, "Q K"],
) -> None:
    lifts = _lifts(members, seen)
    if lifts.any():
        terms.rows[column, source] = lifts


def _add_pairs(
    terms: Terms,
    column: ScoreSpec,
    members: Bool[np.ndarray, "Q K"],
    seen: Bool[np.ndarray, "Q K"],
) -> None:
    lifts = _lifts(members, seen)
    if lifts.any():
        places = zip(*np.nonzero(members), strict=True)
        terms.pairs[column] = [(int(i), int(j), float(lifts[i])) for i, j in places]


def _lifts(
    members: Bool[np.ndarray, "Q K"], seen: Bool[np.ndarray, "Q K"]
) -> Float[np.ndarray, " Q"]:
    """Coefficients of the attention to sets of keys; 0 for queries that see none of theirs."""
    size = members.sum(1)
    counted = size > 0
    return counted * seen.sum(1) / np.maximum(size, 1) / max(counted.sum(), 1)


def _is_lift(column: ScoreSpec) -> bool:
    return column.kind in _LIFTS or (column.kind == "pattern" and column.name.endswith(", score"))


def _differs(column: ScoreSpec) -> bool:
    return _is_lift(column) or column.kind == "mass"


def _marked(column: ScoreSpec, number: int) -> ScoreSpec:
    return ScoreSpec(f"{column.kind}{_SEEN}{number}", column.name)


def _unmarked(column: ScoreSpec) -> ScoreSpec:
    return ScoreSpec(column.kind.partition(_SEEN)[0], column.name)
