# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Definitions of scores of an encoder by itself (Clark et al. 2019, Pande et al. 2021, Vig 2019).

The sieve bias score of a role is a lift: N times the mass on the set F of keys that the role names,
over its size, averaged over queries; 1 for uniform attention ("The heads hypothesis", Pande et al.
2021, as their public notebooks compute it). Other sides have those of `side_terms`.
"""

import numpy as np

from flaxattn.measures.score_sources import WINDOW
from flaxattn.measures.score_terms import ScoreOptions, ScoreSpec, Terms
from flaxattn.measures.side_labels import self_labels
from flaxattn.measures.tree_terms import add_hits, add_tags, add_tree, related
from flaxattn.text.position_labels import PositionLabels


def terms_of(layout: PositionLabels, options: ScoreOptions) -> Terms:
    """The sums that make up every number of a head on one text."""
    terms = Terms(self_labels(layout))
    _add_means(terms, layout, options)
    _add_window(terms, layout, options)
    _add_delimiters(terms, layout)
    _add_block(terms, layout, options)
    _add_patterns(terms, layout)
    _add_strongest(terms, layout)
    if options.annotated:
        add_tags(terms, layout)
        add_tree(terms, layout, options)
        for name, arcs, _ in related(layout, options):
            add_hits(terms, name, arcs, layout)
    return terms


def _add_means(terms: Terms, layout: PositionLabels, options: ScoreOptions) -> None:
    """Statistics of Clark et al. 2019: means over all queries."""
    each = np.full(len(layout), 1 / len(layout))
    for name in ("entropy", "distance", "max", "sum_sq", "next", "previous", "own", "own segment"):
        terms.rows[ScoreSpec("mean", name), name] = each
    start = np.arange(len(layout)) == 0
    for name, keys in (
        ("first", start),
        ("cls", layout.first),
        ("sep", layout.separators),
        ("punctuation", layout.punctuation),
    ):
        terms.keys[ScoreSpec("mean", name)] = keys * each


def _add_window(terms: Terms, layout: PositionLabels, options: ScoreOptions) -> None:
    count, place = len(layout), np.arange(len(layout))
    size = np.minimum(place + WINDOW, count - 1) + 1 - np.maximum(0, place - WINDOW)
    if options.pande_parity:
        size = np.minimum(place + WINDOW, count) + 1 - np.maximum(0, place - WINDOW)
    terms.rows[ScoreSpec("score", "local"), "local"] = 1 / size
    terms.rows[ScoreSpec("mass", "local"), "local"] = np.full(count, 1 / count)
    terms.ceilings["local"] = float((1 / size).sum())


def _add_delimiters(terms: Terms, layout: PositionLabels) -> None:
    for role, keys in (
        ("cls", layout.first),
        ("sep", layout.separators),
        ("delimiter", layout.first | layout.separators),
    ):
        if keys.any():
            terms.keys[ScoreSpec("score", role)] = keys / keys.sum()
            terms.keys[ScoreSpec("mass", role)] = keys / len(layout)
            terms.ceilings[role] = len(layout) / keys.sum()


def _add_block(terms: Terms, layout: PositionLabels, options: ScoreOptions) -> None:
    """The own text of a query without its delimiters."""
    own, parity = layout.segments.copy(), options.pande_parity
    if parity and not layout.pair:
        return
    moved = np.zeros(len(layout), bool)
    if parity:
        moved[np.flatnonzero(layout.separators)[:1]] = True
    values = np.unique(layout.segments)
    sizes = {int(v): int((layout.plain & (layout.segments == v)).sum()) for v in values}
    if parity:
        own[moved] = values[-1]
    size = np.array([sizes[int(segment)] for segment in own])
    share = np.where(size > 0, 1 / np.maximum(size, 1), 0)
    role = "block" if parity else "block_entropy"
    terms.rows[ScoreSpec("score", role), "block x entropy"] = share * ~moved
    if parity:
        terms.rows[ScoreSpec("score", role), "other block x entropy"] = share * moved
    else:
        terms.rows[ScoreSpec("score", "block"), "block"] = share
        terms.ceilings["block"] = float(share.sum())
    terms.rows[ScoreSpec("mass", "block"), "block"] = ~moved / len(layout)
    if parity:
        terms.rows[ScoreSpec("mass", "block"), "other block"] = moved / len(layout)
    terms.ceilings[role] = float((share * np.log(np.maximum(size, 1))).sum())


def _add_patterns(terms: Terms, layout: PositionLabels) -> None:
    """The seven patterns of Vig 2019; what the blog leaves open is decided as `patterns` says."""
    plain = layout.plain
    before, after = np.roll(plain, 1), np.roll(plain, -1)
    before[0] = after[-1] = False

    def add(name: str, source: str, queries: np.ndarray, factor: np.ndarray | float = 1.0) -> None:
        if queries.any():
            coefficients = queries * factor / queries.sum()
            terms.rows[ScoreSpec("pattern", name), source] = coefficients

    for name, neighbour in (("next", after), ("previous", before)):
        add(name, name, plain & neighbour)
        add(f"{name} strongest", f"argmax {name}", plain & neighbour)
    add("own", "own", plain)
    same = (layout.tokens[:, None] == layout.tokens) & plain[:, None] & plain
    many = same.sum(1)
    terms_of_same = plain & (many > 1)
    add("same token", "same token", terms_of_same)
    add("same token, itself", "own", terms_of_same)
    add("same token, score", "same token", terms_of_same, len(layout) / np.maximum(many, 1))
    across = (same & (layout.segments[:, None] != layout.segments)).sum(1)
    add("other text", "same token elsewhere", across > 0)
    add(
        "other text, score", "same token elsewhere", across > 0, len(layout) / np.maximum(across, 1)
    )
    _add_word_tokens(terms, layout)
    add("delimiter", "special", plain)
    add("block", "block", plain)
    size = ((layout.segments[:, None] == layout.segments) & plain).sum(1)
    many = plain & (size > 1)
    add("block entropy", "entropy in block", many, 1 / np.log(np.maximum(size, 2)))


def _add_word_tokens(terms: Terms, layout: PositionLabels) -> None:
    """Other tokens of the same word, and those of them that are not neighbours."""
    words: dict[int, list[int]] = {}
    for place, word in enumerate(layout.spelt.tolist()):
        words.setdefault(word, []).append(place)
    words.pop(-1, None)
    found = [
        (i, j, 1 / (len(tokens) - 1))
        for tokens in words.values()
        for i in tokens
        for j in tokens
        if i != j
    ]
    if found:
        share = 1 / len({i for i, _, _ in found})
        lift = len(layout) * share
        terms.pairs[ScoreSpec("pattern", "word")] = [(i, j, share) for i, j, _ in found]
        terms.pairs[ScoreSpec("pattern", "word, score")] = [(i, j, lift * c) for i, j, c in found]
        far = [(i, j, share) for i, j, _ in found if abs(i - j) > 1]
        terms.pairs[ScoreSpec("pattern", "word, apart")] = far


def _add_strongest(terms: Terms, layout: PositionLabels) -> None:
    """Add shares of queries by the place of their strongest key (Voita et al. 2019)."""
    each = layout.plain / max(layout.plain.sum(), 1)
    for name in ("next", "previous") + (("rare",) if layout.rare >= 0 else ()):
        terms.rows[ScoreSpec("strongest", name), f"strongest {name}"] = each
