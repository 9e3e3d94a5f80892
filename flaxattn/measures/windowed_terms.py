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
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.measures.key_range import KeyRange
from flaxattn.measures.score_sources import WINDOW
from flaxattn.measures.score_terms import ScoreOptions, ScoreSpec, Terms
from flaxattn.measures.side_labels import self_labels
from flaxattn.measures.tree_terms import add_tree
from flaxattn.text.position_labels import PositionLabels

_SEEN = " within "  # between the kind of a score and the number of a window
_LIFTS = ("score", "control")


def with_windows(terms: Terms, windowed: Mapping[KeyRange, Terms]) -> Terms:
    """The sums of a text, and beside them those of layers with a window."""
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
    """The scores of each layer among those of all kinds of layers."""
    if not windows:
        return dict(values)
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


def lifts_within(layout: PositionLabels, options: ScoreOptions, reach: KeyRange) -> Terms:
    """Lifts of an encoder by itself over uniform attention to the keys that a query sees."""
    terms, band = Terms(self_labels(layout)), _Band.of(reach, len(layout))
    plain, keys = layout.plain, band.keys

    def same(labels: np.ndarray) -> Bool[np.ndarray, "Q W"]:
        return band.visible & (labels[:, None] == labels[keys])

    block = same(layout.segments) & plain[keys]
    band.add_rows(terms, ScoreSpec("score", "local"), "local", band.visible & band.near)
    band.add_rows(terms, ScoreSpec("score", "block"), "block", block)
    band.add_rows(terms, ScoreSpec("score", "block_entropy"), "block x entropy", block)
    for role, members in (
        ("cls", layout.first),
        ("sep", layout.separators),
        ("delimiter", layout.first | layout.separators),
    ):
        band.add_pairs(terms, ScoreSpec("score", role), band.visible & members[keys])
    token = same(layout.tokens) & plain[:, None] & plain[keys]
    several = token & (token.sum(1) > 1)[:, None]
    across = token & ~same(layout.segments)
    for name, source, members in (
        ("same token, score", "same token", several),
        ("other text, score", "same token elsewhere", across),
    ):
        band.add_rows(terms, ScoreSpec("pattern", name), source, members)
    word = same(layout.spelt) & (layout.spelt >= 0)[:, None] & ~band.own
    band.add_pairs(terms, ScoreSpec("pattern", "word, score"), word)
    if options.annotated:
        add_tree(terms, layout, options, reach)
    return terms


class _Band(NamedTuple):
    """The keys in the window of each query: W for each, in place of all keys of the text.

    Attributes:
        keys: Their positions; any where the window reaches beyond the text.
        visible: False there.
        offset: Position of each relative to the query.
    """

    keys: Int[np.ndarray, "Q W"]
    visible: Bool[np.ndarray, "Q W"]
    offset: Int[np.ndarray, " W"]

    @classmethod
    def of(cls, reach: KeyRange, length: int) -> "_Band":
        left = length - 1 if reach.left is None else min(reach.left, length - 1)
        right = length - 1 if reach.right is None else min(reach.right, length - 1)
        offset = np.arange(-left, right + 1)
        keys = np.arange(length)[:, None] + offset
        return cls(np.clip(keys, 0, length - 1), (keys >= 0) & (keys < length), offset)

    @property
    def near(self) -> Bool[np.ndarray, " W"]:
        """Keys that count as local."""
        return abs(self.offset) <= WINDOW

    @property
    def own(self) -> Bool[np.ndarray, " W"]:
        """The query itself."""
        return self.offset == 0

    def lifts(self, members: Bool[np.ndarray, "Q W"]) -> Float[np.ndarray, " Q"]:
        """Coefficients of the attention to sets of keys; 0 for queries that see none of theirs."""
        size = members.sum(1)
        counted = size > 0
        return counted * self.visible.sum(1) / np.maximum(size, 1) / max(counted.sum(), 1)

    def add_rows(
        self, terms: Terms, column: ScoreSpec, source: str, members: Bool[np.ndarray, "Q W"]
    ) -> None:
        """Add a score of a row statistic, where a query sees a key of its set."""
        if members.any():
            terms.rows[column, source] = self.lifts(members)

    def add_pairs(self, terms: Terms, column: ScoreSpec, members: Bool[np.ndarray, "Q W"]) -> None:
        """Add a score of single weights, where a query sees a key of its set."""
        if members.any():
            lifts, (queries, places) = self.lifts(members), np.nonzero(members)
            keys, factors = self.keys[queries, places].tolist(), lifts[queries].tolist()
            terms.pairs[column] = list(zip(queries.tolist(), keys, factors, strict=True))


def _is_lift(column: ScoreSpec) -> bool:
    return column.kind in _LIFTS or (column.kind == "pattern" and column.name.endswith(", score"))


def _differs(column: ScoreSpec) -> bool:
    return _is_lift(column) or column.kind == "mass"


def _marked(column: ScoreSpec, number: int) -> ScoreSpec:
    return ScoreSpec(f"{column.kind}{_SEEN}{number}", column.name)


def _unmarked(column: ScoreSpec) -> ScoreSpec:
    return ScoreSpec(column.kind.partition(_SEEN)[0], column.name)
