# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Terms of the scores of one text, for each side of a model: which sums make each score.

The sieve bias score of a role is a lift: N times the mass on the set F of keys that the role names,
over its size, averaged over queries; 1 for uniform attention ("The heads hypothesis", Pande et al.
2021, as their public notebooks compute it). For an encoder by itself these are the scores of Clark
et al. (2019), Pande et al. (2021) and Vig (2019).

On other sides a query that sees n keys only is compared with uniform attention over these: its
score is n times the mass on the set F of keys it is expected to look at, over the size of F.
Queries without a choice do not count: they have no key in F, or all they see is in F, as the first
one of a decoder. So uniform attention scores exactly 1 on every role, and a score is again a lift.
Sets named there are

* of self-attention: `local` (two positions to either side), `own`, `previous`, `next` and `first`
  position, `delimiter` (tokens the model adds), `duplicate` (the same token elsewhere, before the
  query in a decoder), `induction` (decoder: what followed the same token before), and relations of
  a tree, in a decoder those whose other word came before;
* of cross-attention: `diagonal` (the source position as far along as the target's, and one to
  either side), `end` (tokens that the model adds after the source), `first`, `copy` (source tokens
  that read as the written one).

The causal baseline, `diagonal` and `copy` are ours; no publication is known to define them so.

Scores of related words (dependencies, unrelated words as far apart, tags) hold on any side whose
queries and keys are the words of a tree. A layer with a window has coefficients of its own: the
sums of both kinds of layers are made for every head, and `by_layer` keeps those meant for it.
"""

import dataclasses
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.kernels import reductions
from flaxattn.measures.specs import (
    CAUSAL,
    EVERY_KEY,
    SETS,
    SIEVES,
    WINDOW,
    KeyRange,
    ScoreOptions,
    ScoreSpec,
    Terms,
    cross_labels,
    self_labels,
)
from flaxattn.text.position_labels import (
    UNIVERSAL_RELATIONS,
    UNIVERSAL_TAGS,
    Arc,
    PositionLabels,
    labels_of,
)
from flaxattn.trace.trace import Trace


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
            words = _visible([ends(arc, side) for arc in arcs], layout, reach)
            if not words:
                continue
            lifts = _lifts(words, layout, place, visible)
            terms.pairs[ScoreSpec("score", role)] = lifts
            terms.pairs[ScoreSpec("mass", role)] = _masses(words, layout, place)
            terms.ceilings[role] = _highest(words, layout, visible)
            if drawn := _visible([ends(arc, side) for arc in others], layout, reach):
                terms.pairs[ScoreSpec("control", role)] = _lifts(drawn, layout, place, visible)
    arcs = layout.linked("any", UNIVERSAL_RELATIONS)
    both = [ends(arc, side) for arc in arcs for side in ("governor", "dependent")]
    known = sum(1 for word in layout.words if word)
    if (linked := _visible(both, layout, reach)) and known:
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


def _visible(
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
        if layout.disjoint(word, word + offset):
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
    """The seven patterns of Vig 2019; what the blog leaves open is decided as `claims` says."""
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


ROWS = ("entropy", "max", "sum_sq")
"""Row statistics whose mean over queries every side has."""
_SELF_MEANS = ("own", "previous", "next", "first", "delimiter")
_SELF = ("local", "own", "previous", "first", "delimiter", "duplicate")
_CROSS = ("diagonal", "end", "first", "copy")


def self_terms(
    layout: PositionLabels, options: ScoreOptions, *, causal: bool, window: KeyRange | None = None
) -> Terms:
    """Scores of self-attention over a text."""
    names = (*_SELF, "induction" if causal else "next")
    reach = window or (CAUSAL if causal else EVERY_KEY)
    terms = Terms(self_labels(layout))
    _add_sets(terms, names, reach.mask(len(layout)))
    _add_side_means(terms, ("distance", *(name for name in _SELF_MEANS if name in names)))
    if options.annotated:
        add_tree(terms, layout, options, reach)
        add_tags(terms, layout)
    return terms


def cross_terms(
    written: Sequence[str], tokens: Sequence[str], special: Bool[np.ndarray, " K"]
) -> Terms:
    """Scores of attention from a target to its source."""
    terms = Terms(cross_labels(written, tokens, special))
    _add_sets(terms, _CROSS, np.ones((len(written), len(tokens)), bool))
    _add_side_means(terms, _CROSS)
    return terms


def _add_sets(terms: Terms, names: Sequence[str], visible: Bool[np.ndarray, "Q K"]) -> None:
    """Scores, masses and ceilings of sets of keys, over the queries that have a choice."""
    counts = visible.sum(1)
    offset = np.arange(visible.shape[1]) - np.arange(visible.shape[0])[:, None]
    for name in names:
        members = np.zeros_like(visible)
        for source in SETS.get(name, (name,)):
            members = members | reductions.inside(SIEVES[source], terms.labels.labels, offset)
        size = (members & visible).sum(1)
        counted = (size > 0) & (size < counts)
        if not counted.any():
            continue
        lift = counted * counts / np.maximum(size, 1) / counted.sum()
        for source in SETS.get(name, (name,)):
            terms.rows[ScoreSpec("score", name), source] = lift
            terms.rows[ScoreSpec("mass", name), source] = counted / counted.sum()
        terms.ceilings[name] = float(lift.sum())


def _add_side_means(terms: Terms, names: Sequence[str]) -> None:
    """Means over all queries, of statistics and of attention to sets of keys."""
    each = np.full(terms.labels.queries, 1 / max(terms.labels.queries, 1))
    for name in (*names, *ROWS):
        for source in SETS.get(name, (name,)):
            terms.rows[ScoreSpec("mean", name), source] = each


def side_terms(metadata: Trace, layout: PositionLabels, side: str, options: ScoreOptions) -> Terms:
    """The scores of one text on a side of a model.

    An encoder that has no decoder beside it has the scores of `terms_of`.
    """
    if side == "cross":
        if not metadata.written or metadata.special is None:
            raise InputError(
                "Roles of cross-attention need the tokens that were written, and which tokens of "
                "the source are special.\nTrace texts with their targets, or give written= and "
                "special= to Trace.from_arrays."
            )
        return cross_terms(
            metadata.written[0], metadata.tokens[0], np.asarray(metadata.special[0], bool)
        )
    if side == "decoder" and metadata.decoder_tokens:
        target = Trace(
            tokens=metadata.decoder_tokens,
            special=metadata.decoder_special,
            words=metadata.decoder_words,
        )
        plain = dataclasses.replace(options, annotated=False)
        return self_terms(labels_of(target), plain, causal=True)
    return self_terms(layout, options, causal=side == "decoder")


def terms_for(
    metadata: Trace,
    layout: PositionLabels,
    side: str,
    options: ScoreOptions,
    *,
    alone: bool,
    windows: Sequence[KeyRange] = (),
) -> Terms:
    """The scores of one text, whichever side of whichever model reads it."""
    made = terms_of(layout, options) if alone else side_terms(metadata, layout, side, options)
    made = made.restricted(options.only)
    if options.pande_parity or not windows:
        return made
    own = {
        window: lifts_within(layout, options, window)
        if alone
        else self_terms(layout, options, causal=True, window=window)
        for window in windows
    }
    return with_windows(made, {w: terms.restricted(options.only) for w, terms in own.items()})


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
