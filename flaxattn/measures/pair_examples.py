# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Examples of what a head does: the gold pairs that it weighs most and least, `PairExamples`.

What gold pairs are is in `gold_pairs`. Texts come one at a time; their pairs are kept, and the
weights of these in the claimed heads.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from flaxattn.measures.claims import Claim
from flaxattn.measures.gold_pairs import UNJUDGED, GoldPair, GoldPairs, gold_keys
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.selection import layer_weights

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
        """Take in the gold pairs of one claim in one text."""
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
