# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs of positions that a claim about heads names, and which of them each head hits: `GoldPairs`.

They are read off the sums that a score is made of (`score_terms`), so that a picture shows the very
weights that the score counts.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.kernels import dense
from flaxattn.measures.key_range import CAUSAL, EVERY_KEY, KeyRange, recorded_ranges
from flaxattn.measures.score_sources import SIEVES
from flaxattn.measures.score_terms import ScoreSpec, Terms
from flaxattn.measures.side_labels import PLAIN
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.selection import layer_weights

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
    return dense.inside(SIEVES[source], terms.labels.labels, offset)


_DERIVED: dict[str, Callable[[np.ndarray, int], Bool[np.ndarray, "#Q K"]]] = {
    "strongest next": lambda offset, rare: offset == 1,
    "strongest previous": lambda offset, rare: offset == -1,
    "argmax next": lambda offset, rare: offset == 1,
    "argmax previous": lambda offset, rare: offset == -1,
    "strongest rare": lambda offset, rare: np.arange(offset.shape[1])[None] == rare,
}
