# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Definitions of scores of heads, as sums over the attention of one text: `Terms`.

The definitions of research for an encoder by itself are here, those of other sides in
`side_terms`; they are evaluated in `score_sums`. A score is one of four kinds of sums:

* rows: coefficients times a statistic of each query, see `score_sources`;
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
from flaxattn.measures.score_sources import WINDOW
from flaxattn.measures.side_labels import SideLabels, self_labels
from flaxattn.text.position_labels import UNIVERSAL_RELATIONS, UNIVERSAL_TAGS, Arc, PositionLabels

SIDE_ROLES = (
    *("own", "previous", "next", "first", "duplicate", "induction"),
    *("diagonal", "end", "copy"),
)
"""Roles of decoders, of their encoders and of cross-attention, which `sieves` defines."""
PAPER_RELATIONS = ("nsubj", "obj", "amod", "advmod")
"""Those of the paper; Universal Dependencies call its dobj obj."""


class ScoreName(NamedTuple):
    """Name of a score of a head: `("score", "local")`.

    The kinds are `mean` (statistics, averaged over queries), `tag` (mass on a part of speech),
    `score` and `mass` of a role (lift, and share of attention), `control` (the score of pairs of
    unrelated words as far apart), `beyond` (the difference of the two), `pattern`, `strongest`
    (shares of queries) and `hit` (share of related words).
    """

    kind: str
    name: str


@dataclasses.dataclass(frozen=True)
class ScoreOptions:
    """Roles to look for, and how they are defined.

    Attributes:
        relations: Of dependency trees, each a role in either direction.
        annotated: Whether the texts have trees.
        seed: Of the unrelated words that related ones are compared with.
        pande_parity: Whether to repeat the public notebooks of "The heads hypothesis", errors
            included: the last two bands counted one key too large, block scores times the row's
            entropy, the first separator a query of the second block, no block in single texts,
            pieces found at their first occurrence.
        only: Scores to evaluate; None for all. What is left out costs nothing.
    """

    relations: tuple[str, ...] = PAPER_RELATIONS
    annotated: bool = True
    seed: int = 0
    pande_parity: bool = False
    only: tuple[ScoreName, ...] | None = None

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
        labels: Labels of the text's positions, which the statistics read.
        rows: Row statistic and coefficients per query; some scores have two.
        keys: Coefficients per key.
        pairs: Query, key and coefficient of single weights.
        hits: Query, first and last key, and coefficient.
        ceilings: The highest score that a head could have, by role.
        counts: How many pairs of words a syntactic role has.
        offsets: Words between them, key minus query.
    """

    labels: SideLabels
    rows: dict[tuple[ScoreName, str], Float[np.ndarray, " Q"]] = dataclasses.field(
        default_factory=dict
    )
    keys: dict[ScoreName, Float[np.ndarray, " K"]] = dataclasses.field(default_factory=dict)
    pairs: dict[ScoreName, list[tuple[int, int, float]]] = dataclasses.field(default_factory=dict)
    hits: dict[ScoreName, list[tuple[int, int, int, float]]] = dataclasses.field(
        default_factory=dict
    )
    ceilings: dict[str, float] = dataclasses.field(default_factory=dict)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    offsets: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return self.labels.keys

    @property
    def columns(self) -> set[ScoreName]:
        """The scores that have a value."""
        rows = {column for column, _ in self.rows}
        return rows | self.keys.keys() | self.pairs.keys() | self.hits.keys()

    def restricted(self, only: Sequence[ScoreName] | None) -> "Terms":
        """The terms of some scores, and of those that they are differences of.

        Args:
            only: The scores; None for all.
        """
        if only is None:
            return self
        wanted = {*only}
        wanted |= {
            ScoreName(kind, name) for own, name in only if own == "beyond" for kind in _APART
        }
        wanted |= {_OWN} if _OTHER in wanted else set()
        return dataclasses.replace(
            self,
            rows={key: row for key, row in self.rows.items() if key[0] in wanted},
            keys={key: row for key, row in self.keys.items() if key in wanted},
            pairs={key: row for key, row in self.pairs.items() if key in wanted},
            hits={key: row for key, row in self.hits.items() if key in wanted},
        )


_APART = ("score", "control")  # `beyond` is their difference
_OWN, _OTHER = ScoreName("mean", "own segment"), ScoreName("mean", "other segment")


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
    terms = Terms(self_labels(layout))
    _add_means(terms, layout, asked)
    _add_window(terms, layout, asked)
    _add_delimiters(terms, layout)
    _add_block(terms, layout, asked)
    _add_patterns(terms, layout)
    _add_strongest(terms, layout)
    if asked.annotated:
        add_tags(terms, layout)
        add_tree(terms, layout, asked)
        for name, arcs, _ in related(layout, asked):
            _add_hits(terms, name, arcs, layout)
    return terms


def tree_terms(layout: PositionLabels, asked: ScoreOptions, *, causal: bool = False) -> Terms:
    """The sums of the tree alone, of a text that has one.

    Args:
        layout: Of the text.
        asked: Which relations.
        causal: Whether a query sees the keys up to itself only.
    """
    terms = Terms(self_labels(layout))
    add_tree(terms, layout, asked, causal=causal)
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


def add_tags(terms: Terms, layout: PositionLabels) -> None:
    """Add the attention to each part of speech, a mean over queries.

    Args:
        terms: Of the text; changed.
        layout: Of the text, with annotated words.
    """
    for tag in UNIVERSAL_TAGS:
        members = [p for w, t in zip(layout.words, layout.tags, strict=True) if t == tag for p in w]
        keys = np.zeros(len(layout))
        keys[members] = 1 / len(layout)
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
    """Add shares of queries by the place of their strongest key (Voita et al. 2019)."""
    each = layout.plain / max(layout.plain.sum(), 1)
    for name in ("next", "previous") + (("rare",) if layout.rare >= 0 else ()):
        terms.rows[ScoreName("strongest", name), f"strongest {name}"] = each


def add_tree(
    terms: Terms, layout: PositionLabels, asked: ScoreOptions, *, causal: bool = False
) -> None:
    """Add scores of related words, of unrelated ones as far apart, and of any dependency.

    Args:
        terms: Of the text; changed.
        layout: Of the text, with a tree.
        asked: Which relations, and the seed of unrelated words.
        causal: Whether a query sees the keys up to itself only: pairs of words count where the
            first sees all of the second.
    """
    place = _first_occurrences(layout) if asked.pande_parity else None
    count = len(layout)
    visible = np.arange(1, count + 1) if causal else np.full(count, count)
    for name, arcs, others in related(layout, asked):
        for side in ("governor", "dependent"):
            role = f"{side}({name})"
            words = _seen([ends(arc, side) for arc in arcs], layout, causal)
            if not words:
                continue
            lifts = _lifts(words, layout, place, visible)
            terms.pairs[ScoreName("score", role)] = lifts
            terms.pairs[ScoreName("mass", role)] = _masses(words, layout, place)
            terms.ceilings[role] = _highest(words, layout, visible)
            if drawn := _seen([ends(arc, side) for arc in others], layout, causal):
                terms.pairs[ScoreName("control", role)] = _lifts(drawn, layout, place, visible)
    arcs = layout.linked("any", UNIVERSAL_RELATIONS)
    both = [ends(arc, side) for arc in arcs for side in ("governor", "dependent")]
    known = sum(1 for word in layout.words if word)
    if (linked := _seen(both, layout, causal)) and known:
        factor = len(linked) / known
        masses = _masses(linked, layout, None)
        terms.pairs[ScoreName("mean", "dependency")] = [(i, j, c * factor) for i, j, c in masses]


def _add_hits(terms: Terms, name: str, arcs: Sequence[Arc], layout: PositionLabels) -> None:
    """Return whether the strongest key of a word's first piece lies in the related word."""
    for side in ("governor", "dependent"):
        role, words = f"{side}({name})", [ends(arc, side) for arc in arcs]
        terms.hits[ScoreName("hit", role)] = [
            (layout.words[i][0], layout.words[j][0], layout.words[j][-1], 1 / len(words))
            for i, j in words
        ]
        terms.counts[role] = len(words)
        terms.offsets[role] = [j - i for i, j in words]


def _seen(
    words: Sequence[tuple[int, int]], layout: PositionLabels, causal: bool
) -> list[tuple[int, int]]:
    """Pairs of words of which the first sees the second."""
    return [(i, j) for i, j in words if not causal or layout.words[j][-1] <= layout.words[i][0]]


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
    """Position at which the token of each position occurs first."""
    _, first, which = np.unique(layout.tokens, return_index=True, return_inverse=True)
    return first[which]


_Place = Int[np.ndarray, " N"] | None


def _lifts(
    words: Sequence[tuple[int, int]],
    layout: PositionLabels,
    place: _Place,
    visible: Int[np.ndarray, " N"],
) -> list[tuple[int, int, float]]:
    """Keys seen times the mean weight between the tokens of two words, averaged over the pairs."""
    return _between(words, layout, place, lambda query, i, j: int(visible[query]) / (i * j))


def _masses(
    words: Sequence[tuple[int, int]], layout: PositionLabels, place: _Place
) -> list[tuple[int, int, float]]:
    """Attention of the tokens of a word to all of another, a mean (Clark et al. 2019, 4.1)."""
    return _between(words, layout, place, lambda query, i, j: 1 / i)


def _highest(
    words: Sequence[tuple[int, int]], layout: PositionLabels, visible: Int[np.ndarray, " N"]
) -> float:
    """The lift where every token of a word gives all attention to the other word."""
    each = [
        visible[list(layout.words[one])].mean() / len(layout.words[other]) for one, other in words
    ]
    return float(np.mean(each))


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
