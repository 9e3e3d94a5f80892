# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gold pairs: positions that a claim about heads names, and which of them each head hits.

They are read off the sums that a score is made of (`specs`), so that a picture shows the very
weights that the score counts. `PairExamples` keeps the pairs that a head weighs most and least,
while texts come one at a time.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.corpus.bad_rows import Problem
from flaxattn.corpus.texts import Text
from flaxattn.kernels import reductions
from flaxattn.measures.claims import Claim
from flaxattn.measures.scores import side_of
from flaxattn.measures.specs import (
    CAUSAL,
    EVERY_KEY,
    PLAIN,
    SIEVES,
    KeyRange,
    ScoreOptions,
    ScoreSpec,
    Terms,
    recorded_ranges,
)
from flaxattn.measures.terms import terms_for
from flaxattn.pipeline.tokenize_texts import ReadingOptions, label_texts, offsets_in, with_tree
from flaxattn.text.position_labels import PositionLabels, labels_of
from flaxattn.text.tokens import PlaceError
from flaxattn.trace.record import AttentionRecord, layer_weights
from flaxattn.trace.trace import Trace

MISS, HIT, UNJUDGED = range(3)
"""Values of `GoldPairs.hits`; a pair out of sight, or of weights that are NaN, is not judged."""
OUTCOMES = ("miss", "hit", "unjudged")
"""These values in words."""
STRONGEST = "the strongest key of the query is a gold key"
STRONGEST_PLAIN = "the strongest key of the query, special tokens left out, is a gold key"
STRONGEST_WORD = "the strongest key of the word's first token, special tokens left out, is gold"
_BROAD = ("own segment", "block", "other block")
"""Sets of nearly all keys, which are not pairs."""
_TREES = {"governor": "each word and its governor", "dependent": "each word and its dependent"}
_ABOUT = {
    "local": "each token and those up to two positions away",
    "next": "each token and the next one",
    "previous": "each token and the one before it",
    "own": "each token and itself",
    "first": "each token and the first one",
    "cls": "each token and the special token at the beginning",
    "sep": "each token and the separators",
    "delimiter": "each token and the special tokens",
    "end": "each token and the special tokens at the end of the source",
    "punctuation": "each token and the punctuation",
    "duplicate": "each token and the same token elsewhere",
    "induction": "each token and what followed its earlier occurrences",
    "diagonal": "each target token and the source tokens as far along",
    "copy": "each target token and the source tokens that read the same",
    "same token": "each token and all occurrences of it",
    "other text": "each token and the same token in the other text",
    "word": "each token and the other tokens of its word",
    "rare": "each token and the rarest token of the text",
    "dependency": "each word and the words that it is linked to in the tree",
}

Run = tuple[int, int]
"""First and last of adjacent positions."""


class GoldPair(NamedTuple):
    """A query and its gold keys.

    Attributes:
        query: Positions of the query.
        keys: Positions of the keys, any of which is right.
    """

    query: Run
    keys: tuple[Run, ...]


@dataclasses.dataclass(frozen=True)
class GoldPairs:
    """The gold pairs of a claim in one text.

    Attributes:
        name: Name of the claim.
        about: Description of the pairs.
        rule: Condition under which a pair is hit.
        pairs: The P pairs.
        hits: `MISS`, `HIT` or `UNJUDGED` for each head and pair.
    """

    name: str
    about: str
    rule: str
    pairs: Sequence[GoldPair]
    hits: Int[np.ndarray, "L H P"]


def score_pairs(
    name: str, column: ScoreSpec, terms: Terms, record: AttentionRecord, side: str
) -> GoldPairs | None:
    """The gold pairs of a score in one text; None where a score is about no pairs.

    The score of a syntactic role is shown by its hits where these are among the terms: whether the
    strongest key of a word's first token, special tokens left out, lies in the related word.
    """
    if column.kind == "score" and (hit := ScoreSpec("hit", column.name)) in terms.hits:
        column = hit
    reach = CAUSAL if side == "decoder" else EVERY_KEY
    pairs = _pairs(column, terms, reach)
    if pairs is None:
        return None
    plain = column.kind in ("hit", "strongest")
    allowed = np.asarray(terms.labels.labels.key_class) >> PLAIN & 1 == 1 if plain else None
    ranges = () if side == "cross" else recorded_ranges(record, side)
    hits = judged_pairs(pairs, record, allowed, ranges)
    rule = {"hit": STRONGEST_WORD, "strongest": STRONGEST_PLAIN}.get(column.kind, STRONGEST)
    return GoldPairs(name, _about(column.name), rule, pairs, hits)


def judged_pairs(
    pairs: Sequence[GoldPair],
    record: AttentionRecord,
    allowed: Bool[np.ndarray, " K"] | None = None,
    ranges: Sequence[KeyRange] = (),
) -> Int[np.ndarray, "L H P"]:
    """Judge for every head whether the strongest key of each pair's first query is a gold key."""
    weights = np.asarray(layer_weights(record, record.layers, allow_nan=True))
    queries = [pair.query[0] for pair in pairs]
    rows: Float[np.ndarray, "L H P K"] = weights[:, :, queries]
    gold = gold_keys(pairs, weights.shape[-1])
    known = np.isfinite(rows).all(-1)
    free = np.ones(weights.shape[-1], bool) if allowed is None else allowed
    strongest = np.where(free, np.nan_to_num(rows), -1).argmax(-1)
    hits = gold[np.arange(len(pairs)), strongest].astype(np.int8)
    for layer, reach in enumerate(ranges):
        visible = (gold & reach.mask(weights.shape[-1])[queries]).any(-1)
        known[layer] &= visible
    return np.where(known, hits, UNJUDGED).astype(np.int8)


def gold_keys(pairs: Sequence[GoldPair], keys: int) -> Bool[np.ndarray, "P K"]:
    """Mark the gold keys of each pair."""
    gold = np.zeros((len(pairs), keys), bool)
    for row, pair in zip(gold, pairs, strict=True):
        for first, last in pair.keys:
            row[first : last + 1] = True
    return gold


def runs_of(positions: Sequence[int]) -> tuple[Run, ...]:
    """Adjacent positions joined."""
    found: list[Run] = []
    for place in sorted(set(positions)):
        if found and found[-1][1] == place - 1:
            found[-1] = found[-1][0], place
        else:
            found.append((place, place))
    return tuple(found)


def _about(name: str) -> str:
    role, _, relation = name.partition("(")
    if relation:
        which = "any relation" if relation == "any)" else relation.removesuffix(")")
        return f"{_TREES[role]} ({which})"
    return _ABOUT.get(name.removesuffix(", score").removesuffix(", apart"), name)


def _pairs(column: ScoreSpec, terms: Terms, reach: KeyRange) -> list[GoldPair] | None:
    """Pairs of a score, by the kind of sums it is made of; None where it has none."""
    if column in terms.hits:
        return [GoldPair((q, q), ((first, last),)) for q, first, last, _ in terms.hits[column]]
    queries, keys = terms.labels.queries, terms.labels.keys
    sources = {source: row for (own, source), row in terms.rows.items() if own == column}
    members = np.zeros((queries, keys), bool)
    if column in terms.pairs:
        for i, j, coefficient in terms.pairs[column]:
            members[i, j] = coefficient != 0
    elif column in terms.keys:
        members[:] = terms.keys[column] != 0
    elif sources and all(_names_keys(source) for source in sources):
        for source, row in sources.items():
            members |= (np.asarray(row) != 0)[:, None] & _sieve(source, terms)
    else:
        return None
    if queries == keys:
        members &= reach.mask(keys)
    rows = enumerate(np.flatnonzero(row).tolist() for row in members)
    return [GoldPair((query, query), runs_of(found)) for query, found in rows if found]


def _names_keys(source: str) -> bool:
    sieve = SIEVES.get(source)
    if sieve is None:
        return source in _DERIVED
    return sieve.statistic == "mass" and source not in _BROAD


def _sieve(source: str, terms: Terms) -> Bool[np.ndarray, "#Q K"]:
    """Mask of the keys that a source names."""
    queries, keys = terms.labels.queries, terms.labels.keys
    offset = np.arange(keys) - np.arange(queries)[:, None]
    if source in _DERIVED:
        return _DERIVED[source](offset, terms.labels.rare)
    return reductions.inside(SIEVES[source], terms.labels.labels, offset)


_DERIVED: dict[str, Callable[[np.ndarray, int], Bool[np.ndarray, "#Q K"]]] = {
    "strongest next": lambda offset, rare: offset == 1,
    "strongest previous": lambda offset, rare: offset == -1,
    "argmax next": lambda offset, rare: offset == 1,
    "argmax previous": lambda offset, rare: offset == -1,
    "strongest rare": lambda offset, rare: np.arange(offset.shape[1])[None] == rare,
}


if TYPE_CHECKING:
    from flaxattn.pretrained.pretrained_model import Pretrained


def text_pairs(
    columns: Mapping[str, ScoreSpec],
    trace: Trace,
    text: Text,
    options: ScoreOptions,
    side: str,
    model: "Pretrained | None" = None,
) -> list[GoldPairs]:
    """The gold pairs of some claims in one text; claims that name no pairs there are left out."""
    layout = text_layout(trace, text, model)
    alone = trace.decoder is None and trace.cross is None
    terms = terms_for(trace, layout, side, _with_tree(options, layout), alone=alone)
    record = side_of(trace, side)
    found = [score_pairs(name, spec, terms, record, side) for name, spec in columns.items()]
    return [one for one in found if one is not None and one.pairs]


def text_layout(trace: Trace, text: Text, model: "Pretrained | None") -> PositionLabels:
    """Labels of the positions of a text that was traced, with its tree where that is known."""
    layout = labels_of(trace, name=text.id)
    if text.sentence is None:
        return layout
    if model is not None:
        read = label_texts(model, [text], ReadingOptions(truncate=True))
        return read[0].layout if read and len(read[0].layout) == len(layout) else layout
    try:
        offsets = offsets_in(text.sentence.text, trace, layout)
    except PlaceError:
        return layout
    cut = bool(trace.truncated and trace.truncated[0])
    tree = with_tree(layout, text.sentence, offsets, cut)
    return layout if isinstance(tree, Problem) else tree


def _with_tree(options: ScoreOptions, layout: PositionLabels) -> ScoreOptions:
    """Options without the scores of trees where a text has no tree."""
    return dataclasses.replace(options, annotated=options.annotated and bool(layout.words))


SHOWN = 10
"""Number of the best examples of a claim, and of the worst."""


class PairExample(NamedTuple):
    """A gold pair as one head weighs it.

    Attributes:
        text: Number of the text.
        place: Place of the pair among those of its claim in that text.
        pair: Query and gold keys.
        weight: Share of the query's attention on the gold keys, added up; of a query of several
            positions, that of the first.
        outcome: `HIT` or `MISS` of `gold_pairs`.
    """

    text: int
    place: int
    pair: GoldPair
    weight: float
    outcome: int


class HeadExamples(NamedTuple):
    """Examples of one claim about one head.

    Attributes:
        best: The pairs with the largest weights, the largest first; of equal ones the first.
        worst: The pairs with the smallest weights, the smallest first; none that is among the best.
        candidates: Number of pairs that these were chosen from.
        texts: Number of texts that the candidates are from.
    """

    best: list[PairExample]
    worst: list[PairExample]
    candidates: int
    texts: int


class _Weighed(NamedTuple):
    """Gold pairs of a claim in a text, with the N heads of which it is claimed."""

    text: int
    pairs: tuple[GoldPair, ...]
    weights: Float[np.ndarray, "N P"]
    hits: Int[np.ndarray, "N P"]


class PairExamples:
    """Weights of gold pairs in the heads that something is claimed of.

    Takes 5 bytes for each claim, head and pair.

    Args:
        claims: Claims to show by examples.
        shown: Number of the best examples, and of the worst.
    """

    def __init__(self, claims: Iterable[Claim], shown: int = SHOWN) -> None:
        self.shown = shown
        self._heads: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for claim in claims:
            self._heads.setdefault((claim.side, claim.name), []).append((claim.layer, claim.head))
        self._weighed: dict[tuple[str, str], list[_Weighed]] = {}

    def add(self, side: str, text: int, gold: GoldPairs, record: AttentionRecord) -> None:
        """Add the gold pairs of one claim in one text."""
        heads = self._heads.get((side, gold.name))
        if not heads or not gold.pairs:
            return
        layers = [record.layers.index(layer) for layer, _ in heads]
        columns = [record.heads.index(head) for _, head in heads]
        found = gold_weights(gold, record)[layers, columns]
        hits = np.asarray(gold.hits)[layers, columns]
        one = _Weighed(text, tuple(gold.pairs), found, hits)
        self._weighed.setdefault((side, gold.name), []).append(one)

    def of(self, claim: Claim) -> HeadExamples | None:
        """Choose the examples of a claim."""
        every = self._weighed.get((claim.side, claim.name), [])
        if not every:
            return None
        place = self._heads[claim.side, claim.name].index((claim.layer, claim.head))
        judged = [np.flatnonzero(~np.isnan(one.weights[place])) for one in every]
        at = [(one, int(p)) for one, some in zip(every, judged, strict=True) for p in some]
        if not at:
            return None
        weights = np.array([one.weights[place, p] for one, p in at])
        best, worst = choose_ends(weights, self.shown)

        def example(index: int) -> PairExample:
            one, p = at[index]
            weight, outcome = float(one.weights[place, p]), int(one.hits[place, p])
            return PairExample(one.text, p, one.pairs[p], weight, outcome)

        texts = sum(len(some) > 0 for some in judged)
        return HeadExamples([*map(example, best)], [*map(example, worst)], len(at), texts)


def gold_weights(gold: GoldPairs, record: AttentionRecord) -> Float[np.ndarray, "L H P"]:
    """Add up the weights of each pair's gold keys in the row of its first query.

    Shares between 0 and 1; NaN for a pair that is not judged, such as one whose row is NaN.
    """
    weights = np.asarray(layer_weights(record, record.layers, allow_nan=True))
    rows = weights[:, :, [pair.query[0] for pair in gold.pairs]]
    marked = gold_keys(gold.pairs, weights.shape[-1])
    shares = np.where(marked, rows, 0).sum(-1, dtype=np.float32)
    return np.where(np.asarray(gold.hits) == UNJUDGED, np.float32(np.nan), shares)


def choose_ends(weights: Float[np.ndarray, " N"], most: int) -> tuple[list[int], list[int]]:
    """Choose the largest weights, and of the others the smallest; of equal ones the first.

    Returns:
        Indices of the largest, the largest first, and of the smallest, the smallest first.
    """
    best = np.argsort(-weights, kind="stable")[:most].tolist()
    others = np.setdiff1d(np.arange(len(weights)), best)
    worst = others[np.argsort(weights[others], kind="stable")][:most].tolist()
    return best, worst
