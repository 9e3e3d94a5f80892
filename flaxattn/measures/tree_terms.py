# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Definitions of scores of related words: dependencies, unrelated words as far apart, tags.

They hold on any side whose queries and keys are the words of a tree; in a decoder a query sees the
keys up to itself, and pairs of words count where the first sees all of the second.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Int

from flaxattn.measures.key_range import CAUSAL, EVERY_KEY, KeyRange
from flaxattn.measures.score_terms import ScoreOptions, ScoreSpec, Terms
from flaxattn.measures.side_labels import self_labels
from flaxattn.text.position_labels import UNIVERSAL_RELATIONS, UNIVERSAL_TAGS, Arc, PositionLabels


def tree_terms(layout: PositionLabels, options: ScoreOptions, *, causal: bool = False) -> Terms:
    """The sums of the tree alone, of a text that has one."""
    terms = Terms(self_labels(layout))
    add_tree(terms, layout, options, CAUSAL if causal else EVERY_KEY)
    return terms


def add_tags(terms: Terms, layout: PositionLabels) -> None:
    """Add the attention to each part of speech, a mean over queries."""
    for tag in UNIVERSAL_TAGS:
        members = [p for w, t in zip(layout.words, layout.tags, strict=True) if t == tag for p in w]
        keys = np.zeros(len(layout))
        keys[members] = 1 / len(layout)
        terms.keys[ScoreSpec("tag", tag)] = keys


def add_tree(
    terms: Terms, layout: PositionLabels, options: ScoreOptions, reach: KeyRange = EVERY_KEY
) -> None:
    """Add scores of related words, of unrelated ones as far apart, and of any dependency."""
    place = _first_occurrences(layout) if options.pande_parity else None
    visible = reach.counts(len(layout)).tolist()
    for name, arcs, others in related(layout, options):
        for side in ("governor", "dependent"):
            role = f"{side}({name})"
            words = _seen([ends(arc, side) for arc in arcs], layout, reach)
            if not words:
                continue
            lifts = _lifts(words, layout, place, visible)
            terms.pairs[ScoreSpec("score", role)] = lifts
            terms.pairs[ScoreSpec("mass", role)] = _masses(words, layout, place)
            terms.ceilings[role] = _highest(words, layout, visible)
            if drawn := _seen([ends(arc, side) for arc in others], layout, reach):
                terms.pairs[ScoreSpec("control", role)] = _lifts(drawn, layout, place, visible)
    arcs = layout.linked("any", UNIVERSAL_RELATIONS)
    both = [ends(arc, side) for arc in arcs for side in ("governor", "dependent")]
    known = sum(1 for word in layout.words if word)
    if (linked := _seen(both, layout, reach)) and known:
        factor = len(linked) / known
        masses = _masses(linked, layout, None)
        terms.pairs[ScoreSpec("mean", "dependency")] = [(i, j, c * factor) for i, j, c in masses]


def add_hits(terms: Terms, name: str, arcs: Sequence[Arc], layout: PositionLabels) -> None:
    """Add whether the strongest key of a word's first token lies in the related word."""
    for side in ("governor", "dependent"):
        role, words = f"{side}({name})", [ends(arc, side) for arc in arcs]
        terms.hits[ScoreSpec("hit", role)] = [
            (layout.words[i][0], layout.words[j][0], layout.words[j][-1], 1 / len(words))
            for i, j in words
        ]
        terms.counts[role] = len(words)
        terms.offsets[role] = [j - i for i, j in words]


def _seen(
    words: Sequence[tuple[int, int]], layout: PositionLabels, reach: KeyRange
) -> list[tuple[int, int]]:
    """Pairs of words of which the first sees the second."""
    return [(i, j) for i, j in words if reach.covers(layout.words[i], layout.words[j])]


def related(
    layout: PositionLabels, options: ScoreOptions
) -> Iterator[tuple[str, list[Arc], list[Arc]]]:
    """Arcs of every relation of a text, and pairs of words as far apart that none links."""
    draws = np.random.default_rng([options.seed, zlib.crc32(layout.name.encode())])
    links = {(arc.dependent, arc.governor) for arc in layout.arcs}
    links |= {(governor, dependent) for dependent, governor in links}
    for name in (*options.relations, "any"):
        if arcs := layout.linked(name, options.relations):
            others = [other for arc in arcs if (other := _unrelated(arc, layout, links, draws))]
            yield name, arcs, others


def ends(arc: Arc, side: str) -> tuple[int, int]:
    """Query word and key word of an arc."""
    if side == "governor":
        return arc.dependent, arc.governor
    return arc.governor, arc.dependent


def _unrelated(
    arc: Arc, layout: PositionLabels, links: set[tuple[int, int]], draws: np.random.Generator
) -> Arc | None:
    """Two words of the text as far apart, in the same order, that no arc links."""
    offset = arc.governor - arc.dependent
    places = range(max(0, -offset), len(layout.words) - max(0, offset))
    free = [word for word in places if (word, word + offset) not in links]
    while free:
        word = free.pop(int(draws.integers(len(free))))
        if layout.apart(word, word + offset):
            return Arc(word, word + offset, "")
    return None


def _first_occurrences(layout: PositionLabels) -> Int[np.ndarray, " N"]:
    """Position at which the token of each position occurs first."""
    _, first, which = np.unique(layout.tokens, return_index=True, return_inverse=True)
    return first[which]


_Place = Int[np.ndarray, " N"] | None


def _lifts(
    words: Sequence[tuple[int, int]],
    layout: PositionLabels,
    place: _Place,
    visible: Sequence[int],
) -> list[tuple[int, int, float]]:
    """Keys seen times the mean weight between the tokens of two words, averaged over the pairs."""
    return _between(words, layout, place, lambda query, i, j: visible[query] / (i * j))


def _masses(
    words: Sequence[tuple[int, int]], layout: PositionLabels, place: _Place
) -> list[tuple[int, int, float]]:
    """Attention of the tokens of a word to all of another, a mean (Clark et al. 2019, 4.1)."""
    return _between(words, layout, place, lambda query, i, j: 1 / i)


def _highest(
    words: Sequence[tuple[int, int]], layout: PositionLabels, visible: Sequence[int]
) -> float:
    """The lift where every token of a word gives all attention to the other word."""
    total = 0.0
    for one, other in words:
        queries = layout.words[one]
        count = sum(visible[query] for query in queries)
        total += count / len(queries) / len(layout.words[other])
    return total / len(words)


def _between(
    words: Sequence[tuple[int, int]],
    layout: PositionLabels,
    place: _Place,
    coefficient: Callable[[int, int, int], float],
) -> list[tuple[int, int, float]]:
    """Pairs of tokens of related words, with a coefficient of the query and of both sizes."""
    found = []
    for one, other in words:
        queries, keys = layout.words[one], layout.words[other]
        for i in queries:
            factor = coefficient(i, len(queries), len(keys)) / len(words)
            for j in keys:
                at = (i, j) if place is None else (int(place[i]), int(place[j]))
                found.append((*at, factor))
    return found
