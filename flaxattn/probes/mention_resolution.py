# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Single heads as judges of what a mention means: the candidate with more attention wins.

A pronoun has people it may mean, a mention of a document all mentions before it. Attention is read
both ways, from the mention and to it. Where the texts come from is not known here; baselines of
documents, which need their words, are in `antecedents`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.probes.head_counts import HeadCounts

FROM_MENTION = "from mention"
"""What the mention gives to each candidate."""
TO_MENTION = "to mention"
"""What each candidate gives to the mention."""
NEAREST, FIRST = "nearest", "first"
POOLINGS = ("sum", "max")


class MentionScores(NamedTuple):
    """Scores of the heads for one mention with C candidates.

    Attributes:
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        scores: Attention between it and each candidate, by direction.
        right: Numbers of the right candidates; none if none is.
        simple: Number of the candidate that each baseline takes; None if it takes none.
        group: What results are split by.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    scores: Mapping[str, Float[np.ndarray, "C L H"]]
    right: tuple[int, ...]
    simple: Mapping[str, int | None]
    group: str = ""


def pronoun_scores(
    weights: Float[np.ndarray, "L H N N"],
    pronoun: Sequence[int],
    candidates: Sequence[Sequence[int]],
    right: int | None,
    *,
    group: str = "",
    layers: tuple[int, ...] | None = None,
    heads: tuple[int, ...] | None = None,
    pooling: str = "sum",
) -> MentionScores:
    """Attention between a pronoun and those whom it may mean."""
    if pooling not in POOLINGS:
        raise InputError(f"pooling {pooling!r} is unknown\nchoose one of {', '.join(POOLINGS)}")
    if not pronoun or len(candidates) < 2 or not all(candidates):
        raise InputError(
            f"A pronoun of {len(pronoun)} tokens and candidates of {[*map(len, candidates)]} "
            "cannot be judged.\nGive a pronoun and at least two candidates, each with a token."
        )
    weights = np.asarray(weights, np.float32)

    def between(queries: Sequence[int], keys: Sequence[int]) -> np.ndarray:
        block = weights[:, :, list(queries)][..., list(keys)]
        return block.max((2, 3)) if pooling == "max" else block.sum(3).mean(2)

    away = [min(abs(i - j) for i in pronoun for j in positions) for positions in candidates]
    first = int(np.argmin([positions[0] for positions in candidates]))
    return MentionScores(
        tuple(range(weights.shape[0])) if layers is None else layers,
        tuple(range(weights.shape[1])) if heads is None else heads,
        {
            FROM_MENTION: np.stack([between(pronoun, positions) for positions in candidates]),
            TO_MENTION: np.stack([between(positions, pronoun) for positions in candidates]),
        },
        () if right is None else (right,),
        {NEAREST: int(np.argmin(away)), FIRST: first},
        group,
    )


class Resolver(NamedTuple):
    """The head that resolves mentions best.

    Attributes:
        group: Of the mentions; empty for all.
        direction: Where attention is read off.
        layer: Number of its layer.
        head: Its number.
        mentions: How many there were.
        accuracy: Share of them for which it is right.
        baseline: The best one.
        baseline_accuracy: Its share.
    """

    group: str
    direction: str
    layer: int
    head: int
    mentions: int
    accuracy: float
    baseline: str
    baseline_accuracy: float

    @property
    def lift(self) -> float:
        """Percentage points above the baseline."""
        return 100 * (self.accuracy - self.baseline_accuracy)


class Coreference(HeadCounts[MentionScores]):
    """Counts of right answers of each head; added up mention by mention, in any order.

    Attributes:
        hits: Mentions for which each head is right, by group and direction; a tie of C candidates
            counts for the share of them that is right. The empty group is all of them.
        simple: Mentions for which a baseline is right, by group and name.
        counts: How many there were, by group.
        neither: How many had no right candidate; they count nowhere else.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hits: dict[tuple[str, str], Float[np.ndarray, "L H"]] = {}
        self.simple: dict[tuple[str, str], int] = {}
        self.counts: dict[str, int] = {}
        self.neither = 0

    def add(self, item: MentionScores) -> None:
        """Take in a mention."""
        self.of_heads(item.layers, item.heads)
        if not item.right:
            self.neither += 1
            return
        for group in dict.fromkeys(("", item.group)):
            self.counts[group] = self.counts.get(group, 0) + 1
            for name, answer in item.simple.items():
                right = int(answer in item.right)
                self.simple[group, name] = self.simple.get((group, name), 0) + right
            for direction, scores in item.scores.items():
                top = scores == scores.max(0)
                tied = np.where(top.any(0), top.sum(0), np.nan)  # none where scores are nan
                share = top[list(item.right)].sum(0) / tied
                self.hits[group, direction] = self.hits.get((group, direction), 0) + share

    def accuracy(self, direction: str, group: str = "") -> Float[np.ndarray, "L H"]:
        """Share of mentions for which each head is right."""
        return self.hits[group, direction] / self.counts[group]

    def baseline(self, group: str = "") -> tuple[str, float]:
        """The best baseline, and how often it is right."""
        shares = self.baselines(group)
        name = max(shares, key=lambda one: shares[one])
        return name, shares[name]

    def baselines(self, group: str = "") -> dict[str, float]:
        """Accuracy of each baseline, by its name."""
        found = [(name, right) for (part, name), right in self.simple.items() if part == group]
        return {name: right / self.counts[group] for name, right in found}

    def best(self, chosen_on: Self | None = None) -> list[Resolver]:
        """The best head, for all mentions and each group of them."""
        other = self if chosen_on is None else chosen_on
        if not (self.counts and other.counts):
            raise InputError(
                f"No head can be chosen: none of {self.neither + other.neither} mentions means a "
                "candidate.\nGive texts in which what they mean is marked."
            )
        known = {
            way: np.nan_to_num(other.accuracy(way), nan=-1) for way in (FROM_MENTION, TO_MENTION)
        }
        direction = max(known, key=lambda way: known[way].max())
        chosen = known[direction]
        at = np.unravel_index(int(chosen.argmax()), chosen.shape)
        where = direction, self.layers[at[0]], self.heads[at[1]]
        return [
            Resolver(
                *(group, *where, self.counts[group]),
                float(self.accuracy(direction, group)[at]),
                *self.baseline(group),
            )
            for group in sorted(self.counts)
        ]
