# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Single heads as judges of whom a pronoun means: the candidate with more attention wins.

Attention is read both ways, from the pronoun and to it. The baselines need no model: the nearest
candidate, and the first one. Where the texts come from is not known here.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError

FROM_PRONOUN = "from pronoun"
"""What the pronoun gives to each candidate."""
TO_PRONOUN = "to pronoun"
"""What each candidate gives to the pronoun."""
NEAREST, FIRST = "nearest", "first"
POOLINGS = ("sum", "max")


class PronounScores(NamedTuple):
    """What the heads say of one pronoun with C candidates.

    Attributes:
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        scores: Attention between it and each candidate, by direction.
        nearest: Number of the candidate that is nearest.
        first: Number of the candidate that comes first.
        right: Number of the right one; None if none is.
        group: What results are split by.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    scores: dict[str, Float[np.ndarray, "C L H"]]
    nearest: int
    first: int
    right: int | None
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
) -> PronounScores:
    """Attention between a pronoun and those whom it may mean.

    Args:
        weights: Of the N positions of a text without padding.
        pronoun: Positions of its pieces.
        candidates: Of the pieces of each mention.
        right: Number of the right one; None if none is.
        group: What results are split by.
        layers: Number of the layer at each index; default counted from 0.
        heads: Number of the head at each index; likewise.
        pooling: What becomes of several pieces. `sum`: rows are averaged and columns summed, as for
            words, so that longer names get more from the pronoun; `max`: the strongest one counts.

    Raises:
        InputError: If a pronoun or candidate has no pieces, there are fewer than two candidates,
            or for an unknown pooling.
    """
    if pooling not in POOLINGS:
        raise InputError(f"pooling {pooling!r} is unknown\nchoose one of {', '.join(POOLINGS)}")
    if not pronoun or len(candidates) < 2 or not all(candidates):
        raise InputError(
            f"A pronoun of {len(pronoun)} pieces and candidates of {[*map(len, candidates)]} "
            "cannot be judged.\nGive a pronoun and at least two candidates, each with a piece."
        )
    weights = np.asarray(weights, np.float32)

    def between(queries: Sequence[int], keys: Sequence[int]) -> np.ndarray:
        block = weights[:, :, list(queries)][..., list(keys)]
        return block.max((2, 3)) if pooling == "max" else block.sum(3).mean(2)

    away = [min(abs(i - j) for i in pronoun for j in pieces) for pieces in candidates]
    return PronounScores(
        tuple(range(weights.shape[0])) if layers is None else layers,
        tuple(range(weights.shape[1])) if heads is None else heads,
        {
            FROM_PRONOUN: np.stack([between(pronoun, pieces) for pieces in candidates]),
            TO_PRONOUN: np.stack([between(pieces, pronoun) for pieces in candidates]),
        },
        int(np.argmin(away)),
        int(np.argmin([pieces[0] for pieces in candidates])),
        right,
        group,
    )


class Resolver(NamedTuple):
    """The head that resolves pronouns best.

    Attributes:
        group: Of the pronouns; empty for all.
        direction: Where attention is read off.
        layer: Number of its layer.
        head: Its number.
        pronouns: How many there were.
        accuracy: Share of them for which it is right.
        baseline: The better of `nearest` and `first`.
        baseline_accuracy: Its share.
    """

    group: str
    direction: str
    layer: int
    head: int
    pronouns: int
    accuracy: float
    baseline: str
    baseline_accuracy: float

    @property
    def lift(self) -> float:
        """Percentage points above the baseline."""
        return 100 * (self.accuracy - self.baseline_accuracy)


class Coreference:
    """How often each head is right; added up pronoun by pronoun, in any order.

    Attributes:
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        hits: Pronouns for which each head is right, by group and direction; a tie of C candidates
            counts 1 / C. The empty group is all of them.
        simple: Pronouns for which a baseline is right, by group and name.
        counts: How many there were, by group.
        neither: How many had no right candidate; they count nowhere else.
    """

    def __init__(self) -> None:
        self.layers: tuple[int, ...] = ()
        self.heads: tuple[int, ...] = ()
        self.hits: dict[tuple[str, str], Float[np.ndarray, "L H"]] = {}
        self.simple: dict[tuple[str, str], int] = {}
        self.counts: dict[str, int] = {}
        self.neither = 0

    @classmethod
    def of(cls, pronouns: Iterable[PronounScores]) -> Self:
        """That of some pronouns.

        Args:
            pronouns: Of one model.
        """
        found = cls()
        for pronoun in pronouns:
            found.add(pronoun)
        return found

    def add(self, pronoun: PronounScores) -> None:
        """Take in a pronoun.

        Args:
            pronoun: Of the same model.

        Raises:
            InputError: If it is of a model with other heads.
        """
        if self.layers and (pronoun.layers, pronoun.heads) != (self.layers, self.heads):
            raise InputError(
                "Heads of two models cannot be added up: this pronoun was read by others.\n"
                "Keep one Coreference for each model."
            )
        self.layers, self.heads = pronoun.layers, pronoun.heads
        if pronoun.right is None:
            self.neither += 1
            return
        for group in dict.fromkeys(("", pronoun.group)):
            self.counts[group] = self.counts.get(group, 0) + 1
            for name, answer in ((NEAREST, pronoun.nearest), (FIRST, pronoun.first)):
                right = int(answer == pronoun.right)
                self.simple[group, name] = self.simple.get((group, name), 0) + right
            for direction, scores in pronoun.scores.items():
                top = scores == scores.max(0)
                share = top[pronoun.right] / top.sum(0)
                self.hits[group, direction] = self.hits.get((group, direction), 0) + share

    def accuracy(self, direction: str, group: str = "") -> Float[np.ndarray, "L H"]:
        """Share of pronouns for which each head is right.

        Args:
            direction: `FROM_PRONOUN` or `TO_PRONOUN`.
            group: One of `counts`; default all.
        """
        return self.hits[group, direction] / self.counts[group]

    def baseline(self, group: str = "") -> tuple[str, float]:
        """The better of the nearest and the first candidate, and how often it is right.

        Args:
            group: One of `counts`; default all.
        """
        name = max((NEAREST, FIRST), key=lambda one: self.simple[group, one])
        return name, self.simple[group, name] / self.counts[group]

    def best(self, chosen_on: Self | None = None) -> list[Resolver]:
        """The best head, for all pronouns and each group of them.

        Args:
            chosen_on: Other pronouns, on all of which head and direction are chosen; default on all
                of the same ones, which flatters: the best of many heads is partly luck.

        Raises:
            InputError: If no pronoun has a right candidate.
        """
        other = self if chosen_on is None else chosen_on
        if not (self.counts and other.counts):
            raise InputError(
                f"No head can be chosen: none of {self.neither + other.neither} pronouns means a "
                "candidate.\nGive pronouns whose candidates are marked."
            )
        direction = max((FROM_PRONOUN, TO_PRONOUN), key=lambda way: other.accuracy(way).max())
        chosen = other.accuracy(direction)
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
