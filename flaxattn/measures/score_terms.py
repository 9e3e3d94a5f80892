# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What every score of a head is, as sums over the weights of one text: `Terms`.

The definitions of research are here and nowhere else; adding up is done elsewhere, from whole maps
in `dense` and from statistics on the device in extraction. A score is one of four kinds of sums:

* rows: coefficients times a statistic of each query (`SOURCES`);
* keys: coefficients times what each key receives from all queries;
* pairs: coefficients times single weights;
* hits: coefficients times whether a query's strongest key, delimiters apart, lies in a range.

The sieve bias score of a role is a lift: N times the mass on the set F of keys that the role names,
over its size, averaged over queries; 1 for uniform attention ("The heads hypothesis", Pande et al.
2021, as their public notebooks compute it).
"""

import dataclasses
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from flaxattn.errors import InputError
from flaxattn.text.position_labels import UNIVERSAL_RELATIONS, UNIVERSAL_TAGS, Arc, PositionLabels

SOURCES = (
    *("entropy", "distance", "max", "sum_sq", "next", "previous", "own", "local"),
    *("own segment", "block", "other block", "special", "first", "separators"),
    *("same token", "same token elsewhere", "block x entropy", "other block x entropy"),
    *("entropy in block", "argmax next", "argmax previous"),
    *("strongest next", "strongest previous", "strongest rare"),
)
"""Statistics of a query that rows are sums of; `dense.sources` defines each."""

WINDOW = 2  # positions to either side that are local, as in the notebooks
SIDE_ROLES = (
    *("own", "previous", "next", "first", "duplicate", "induction"),
    *("diagonal", "end", "copy"),
)
"""Roles of decoders, of their encoders and of cross-attention, which `sieves` defines."""
PAPER_RELATIONS = ("nsubj", "obj", "amod", "advmod")
"""Those of the paper; Universal Dependencies call its dobj obj."""


class ScoreName(NamedTuple):
    """Which number of a head: `("score", "local")`.

    The kinds are `mean` (statistics, averaged over queries), `tag` (mass on a part of speech),
    `score` and `mass` of a role (lift, and share of attention), `control` (the score of pairs of
    unrelated words as far apart), `beyond` (the difference of the two), `pattern`, `strongest`
    (shares of queries) and `hit` (share of related words).
    """

    kind: str
    name: str


@dataclasses.dataclass(frozen=True)
class ScoreOptions:
    """Which roles are looked for, and how they are defined.

    Attributes:
        relations: Of dependency trees, each a role in either direction.
        annotated: Whether the texts have trees.
        seed: Of the unrelated words that related ones are compared with.
        pande_parity: Whether to repeat the public notebooks of "The heads hypothesis", errors
            included: the last two bands counted one key too large, block scores times the row's
            entropy, the first separator a query of the second block, no block in single texts,
            pieces found at their first occurrence.
    """

    relations: tuple[str, ...] = PAPER_RELATIONS
    annotated: bool = True
    seed: int = 0
    pande_parity: bool = False

    @property
    def syntactic(self) -> list[str]:
        """Roles of a tree: from a word to its governor, and to a dependent."""
        names = [*self.relations, "any"] if self.annotated else []
        return [f"{side}({name})" for name in names for side in ("governor", "dependent")]

    @property
    def roles(self) -> list[str]:
        """Every role that may have a score; which ones do depends on the side of the model."""
        block = ["block"] if self.pande_parity else ["block", "block_entropy"]
        return ["local", "cls", "sep", "delimiter", *block, *SIDE_ROLES, *self.syntactic]


@dataclasses.dataclass
class Terms:
    """The sums of one text. A column that is not there has no value for it: no such words.

    Attributes:
        rows: Statistic and coefficients per query; some columns have two.
        keys: Coefficients per key.
        pairs: Query, key and coefficient of single weights.
        hits: Query, first and last key, and coefficient.
        ceilings: The highest score that a head could have, by role.
        counts: How many pairs of words a syntactic role has.
        offsets: Words between them, key minus query.
    """

    rows: dict[tuple[ScoreName, str], Float[np.ndarray, " N"]]
    keys: dict[ScoreName, Float[np.ndarray, " N"]]
    pairs: dict[ScoreName, list[tuple[int, int, float]]]
    hits: dict[ScoreName, list[tuple[int, int, int, float]]]
    ceilings: dict[str, float]
    counts: dict[str, int]
    offsets: dict[str, list[int]]

    @property
    def columns(self) -> set[ScoreName]:
        """Those that have a value."""
        rows = {column for column, _ in self.rows}
        return rows | self.keys.keys() | self.pairs.keys() | self.hits.keys()


def check_relations(relations: Sequence[str]) -> tuple[str, ...]:
    """Relations that can be asked for; `all` stands for every universal one.

    Raises:
        InputError: For one that is none of Universal Dependencies, whatever its subtype, or none.
    """
    if list(relations) == ["all"]:
        return UNIVERSAL_RELATIONS
    for relation in relations:
        if relation.split(":")[0] not in UNIVERSAL_RELATIONS:
            raise InputError(
                f"{relation!r} is no relation between words in Universal Dependencies\n"
                f"choose of {', '.join(UNIVERSAL_RELATIONS)}, or all"
            )
    if not relations:
        raise InputError("no relation is named\nname nsubj, say, or all")
    return tuple(dict.fromkeys(relations))


def terms_of(layout: PositionLabels, asked: ScoreOptions) -> Terms:
    """The sums that make up every number of a head on one text.

    Args:
        layout: Of the text.
        asked: Which roles.
    """
    terms = Terms({}, {}, {}, {}, {}, {}, {})
    _add_means(terms, layout, asked)
    _add_window(terms, layout, asked)
    _add_delimiters(terms, layout)
    _add_block(terms, layout, asked)
    _add_patterns(terms, layout)
    _add_strongest(terms, layout)
    if asked.annotated:
        _add_tree(terms, layout, asked)
    return terms


def tree_terms(layout: PositionLabels, asked: ScoreOptions) -> Terms:
    """Those of the tree alone, of a text that has one.

    Args:
        layout: Of the text.
        asked: Which relations.
    """
    terms = Terms({}, {}, {}, {}, {}, {}, {})
    _add_tree(terms, layout, asked)
    return terms


def _add_means(terms: Terms, layout: PositionLabels, asked: ScoreOptions) -> None:
    """Statistics of Clark et al. 2019: means over all queries."""
    each = np.full(len(layout), 1 / len(layout))
    for name in ("entropy", "distance", "max", "sum_sq", "next", "previous", "own", "own segment"):
        terms.rows[ScoreName("mean", name), name] = each
    start = np.arange(len(layout)) == 0
    for name, keys in (
        ("first", start),
        ("cls", layout.first),
        ("sep", layout.separators),
        ("punctuation", layout.punctuation),
    ):
        terms.keys[ScoreName("mean", name)] = keys * each
    if asked.annotated:
        for tag in UNIVERSAL_TAGS:
            members = [
                p for w, t in zip(layout.words, layout.tags, strict=True) if t == tag for p in w
            ]
            keys = np.zeros(len(layout))
            keys[members] = each[0]
            terms.keys[ScoreName("tag", tag)] = keys


def _add_window(terms: Terms, layout: PositionLabels, asked: ScoreOptions) -> None:
    count, place = len(layout), np.arange(len(layout))
    size = np.minimum(place + WINDOW, count - 1) + 1 - np.maximum(0, place - WINDOW)
    if asked.pande_parity:
        size = np.minimum(place + WINDOW, count) + 1 - np.maximum(0, place - WINDOW)
    terms.rows[ScoreName("score", "local"), "local"] = 1 / size
    terms.rows[ScoreName("mass", "local"), "local"] = np.full(count, 1 / count)
    terms.ceilings["local"] = float((1 / size).sum())


def _add_delimiters(terms: Terms, layout: PositionLabels) -> None:
    for role, keys in (
        ("cls", layout.first),
        ("sep", layout.separators),
        ("delimiter", layout.first | layout.separators),
    ):
        if keys.any():
            terms.keys[ScoreName("score", role)] = keys / keys.sum()
            terms.keys[ScoreName("mass", role)] = keys / len(layout)
            terms.ceilings[role] = len(layout) / keys.sum()


def _add_block(terms: Terms, layout: PositionLabels, asked: ScoreOptions) -> None:
    """The own text of a query without its delimiters."""
    own, parity = layout.segments.copy(), asked.pande_parity
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
    terms.rows[ScoreName("score", role), "block x entropy"] = share * ~moved
    if parity:
        terms.rows[ScoreName("score", role), "other block x entropy"] = share * moved
    else:
        terms.rows[ScoreName("score", "block"), "block"] = share
        terms.ceilings["block"] = float(share.sum())
    terms.rows[ScoreName("mass", "block"), "block"] = ~moved / len(layout)
    if parity:
        terms.rows[ScoreName("mass", "block"), "other block"] = moved / len(layout)
    terms.ceilings[role] = float((share * np.log(np.maximum(size, 1))).sum())


def _add_patterns(terms: Terms, layout: PositionLabels) -> None:
    """The seven patterns of Vig 2019; what the blog leaves open is decided as `patterns` says."""
    plain = layout.plain
    before, after = np.roll(plain, 1), np.roll(plain, -1)
    before[0] = after[-1] = False

    def add(name: str, source: str, queries: np.ndarray, factor: np.ndarray | float = 1.0) -> None:
        if queries.any():
            coefficients = queries * factor / queries.sum()
            terms.rows[ScoreName("pattern", name), source] = coefficients

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
    _add_pieces(terms, layout)
    add("delimiter", "special", plain)
    add("block", "block", plain)
    size = ((layout.segments[:, None] == layout.segments) & plain).sum(1)
    many = plain & (size > 1)
    add("block entropy", "entropy in block", many, 1 / np.log(np.maximum(size, 2)))


def _add_pieces(terms: Terms, layout: PositionLabels) -> None:
    """Other pieces of the same word, and those of them that are no neighbours."""
    words: dict[int, list[int]] = {}
    for place, word in enumerate(layout.spelt.tolist()):
        words.setdefault(word, []).append(place)
    words.pop(-1, None)
    found = [
        (i, j, 1 / (len(pieces) - 1))
        for pieces in words.values()
        for i in pieces
        for j in pieces
        if i != j
    ]
    if found:
        share = 1 / len({i for i, _, _ in found})
        lift = len(layout) * share
        terms.pairs[ScoreName("pattern", "word")] = [(i, j, share) for i, j, _ in found]
        terms.pairs[ScoreName("pattern", "word, score")] = [(i, j, lift * c) for i, j, c in found]
        far = [(i, j, share) for i, j, _ in found if abs(i - j) > 1]
        terms.pairs[ScoreName("pattern", "word, apart")] = far


def _add_strongest(terms: Terms, layout: PositionLabels) -> None:
    """Where the strongest key is, delimiters apart (Voita et al. 2019)."""
    each = layout.plain / max(layout.plain.sum(), 1)
    for name in ("next", "previous") + (("rare",) if layout.rare >= 0 else ()):
        terms.rows[ScoreName("strongest", name), f"strongest {name}"] = each


def _add_tree(terms: Terms, layout: PositionLabels, asked: ScoreOptions) -> None:
    place = _first_occurrences(layout) if asked.pande_parity else None
    for name, arcs, others in related(layout, asked):
        for side in ("governor", "dependent"):
            role = f"{side}({name})"
            words = [ends(arc, side) for arc in arcs]
            pairs = _lifts(words, layout, place)
            terms.pairs[ScoreName("score", role)] = pairs
            terms.pairs[ScoreName("mass", role)] = _masses(words, layout, place)
            if others:
                drawn = [ends(arc, side) for arc in others]
                terms.pairs[ScoreName("control", role)] = _lifts(drawn, layout, place)
            terms.hits[ScoreName("hit", role)] = [
                (layout.words[i][0], layout.words[j][0], layout.words[j][-1], 1 / len(words))
                for i, j in words
            ]
            sizes = [len(layout.words[j]) for _, j in words]
            terms.ceilings[role] = float(np.mean([len(layout) / size for size in sizes]))
            terms.counts[role] = len(words)
            terms.offsets[role] = [j - i for i, j in words]
    whole = [arc for arc in layout.linked("any", UNIVERSAL_RELATIONS)]
    both = [ends(arc, side) for arc in whole for side in ("governor", "dependent")]
    known = sum(1 for word in layout.words if word)
    if both and known:
        factor = len(both) / known
        masses = _masses(both, layout, None)
        terms.pairs[ScoreName("mean", "dependency")] = [(i, j, c * factor) for i, j, c in masses]


def related(
    layout: PositionLabels, asked: ScoreOptions
) -> Iterator[tuple[str, list[Arc], list[Arc]]]:
    """Arcs of every relation of a text, and pairs of words as far apart that none links.

    Args:
        layout: Of the text.
        asked: Which relations, and the seed of the other pairs.

    Yields:
        Name of the relation, or `any`; its arcs; the others, one for each where there is one.
    """
    draws = np.random.default_rng([asked.seed, zlib.crc32(layout.name.encode())])
    links = {(arc.dependent, arc.governor) for arc in layout.arcs}
    links |= {(governor, dependent) for dependent, governor in links}
    for name in (*asked.relations, "any"):
        if arcs := layout.linked(name, asked.relations):
            others = [other for arc in arcs if (other := _unrelated(arc, layout, links, draws))]
            yield name, arcs, others


def ends(arc: Arc, side: str) -> tuple[int, int]:
    """Query word and key word of an arc.

    Args:
        arc: A word and its governor.
        side: The key word: `governor` or `dependent`.
    """
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
    """Where the piece of each position occurs first."""
    _, first, which = np.unique(layout.tokens, return_index=True, return_inverse=True)
    return first[which]


_Place = Int[np.ndarray, " N"] | None


def _lifts(
    words: Sequence[tuple[int, int]], layout: PositionLabels, place: _Place
) -> list[tuple[int, int, float]]:
    """N times the mean weight between the pieces of two words, averaged over pairs of words."""
    return _between(words, layout, place, lambda i, j: len(layout) / (i * j))


def _masses(
    words: Sequence[tuple[int, int]], layout: PositionLabels, place: _Place
) -> list[tuple[int, int, float]]:
    """What pieces of a word give to all of another, on average (Clark et al. 2019, section 4.1)."""
    return _between(words, layout, place, lambda i, j: 1 / i)


def _between(
    words: Sequence[tuple[int, int]],
    layout: PositionLabels,
    place: _Place,
    coefficient: Callable[[int, int], float],
) -> list[tuple[int, int, float]]:
    found = []
    for one, other in words:
        queries, keys = layout.words[one], layout.words[other]
        factor = coefficient(len(queries), len(keys)) / len(words)
        for i in queries:
            for j in keys:
                at = (i, j) if place is None else (int(place[i]), int(place[j]))
                found.append((*at, factor))
    return found
