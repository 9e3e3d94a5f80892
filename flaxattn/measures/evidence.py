# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Evidence for claims about heads: the texts with the highest scores, kept while they stream.

Numbers of texts are kept, never texts. What a claim is, and whether it holds, is decided elsewhere.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int

from flaxattn.errors import InputError

KEPT = 5
_NONE = np.iinfo(np.int64).max
_FURTHER = 0.25  # what a further text of a claim counts beside its first


class TopText(NamedTuple):
    """A text that shows a claim.

    Attributes:
        text: Its number.
        score: Of the head in that text.
    """

    text: int
    score: float


class _Best(NamedTuple):
    """The best texts of every head, the best first; -inf and `_NONE` where there are fewer."""

    scores: Float[np.ndarray, "K L H"]
    texts: Int[np.ndarray, "K L H"]


class Evidence:
    """For every claim and head, the texts with the highest scores; of equal ones the first.

    Parts of a corpus may be taken in and merged in any order: what is kept is the same. Memory: 16
    bytes per claim, head and text that is kept.

    Args:
        keep: How many texts of each claim and head.

    Raises:
        InputError: If that is none.
    """

    def __init__(self, keep: int = KEPT) -> None:
        if keep < 1:
            raise InputError(f"evidence of {keep} texts was requested\nkeep one at least")
        self.keep = keep
        self._best: dict[Hashable, _Best] = {}

    def add(
        self,
        claim: Hashable,
        scores: Float[np.ndarray, "T L H"],
        texts: Int[np.ndarray, " T"] | Sequence[int],
    ) -> None:
        """Take in what some texts say."""
        order = np.argsort(texts)
        numbers = np.asarray(texts, np.int64)[order]
        left = np.asarray(scores, np.float64)[order]
        left[np.isnan(left)] = -np.inf
        found = []
        for _ in range(min(self.keep, len(numbers))):
            at = left.argmax(0)[None]  # the first of equal ones
            score = np.take_along_axis(left, at, 0)[0]
            found.append((score, np.where(np.isneginf(score), _NONE, numbers[at[0]])))
            np.put_along_axis(left, at, -np.inf, 0)
        if found:
            self._put(claim, _Best(*(np.stack(part) for part in zip(*found, strict=True))))

    def merge(self, other: Self) -> None:
        """Take in all that another one took in."""
        for claim, best in other._best.items():
            self._put(claim, best)

    def _put(self, claim: Hashable, best: _Best) -> None:
        known = self._best.get(claim)
        if known is not None:
            best = _Best(*(np.concatenate(parts) for parts in zip(known, best, strict=True)))
        order = np.lexsort((best.texts, -best.scores), axis=0)[: self.keep]
        self._best[claim] = _Best(*(np.take_along_axis(part, order, 0) for part in best))

    def of(self, claim: Hashable, layer: int, head: int) -> list[TopText]:
        """The texts of a claim about a head, the best first."""
        best = self._best.get(claim)
        if best is None:
            return []
        pairs = zip(best.texts[:, layer, head], best.scores[:, layer, head], strict=True)
        return [TopText(int(text), float(score)) for text, score in pairs if text != _NONE]

    def texts(self) -> set[int]:
        """Numbers of all texts that are kept for anything."""
        found = [np.unique(best.texts) for best in self._best.values()]
        return {int(text) for texts in found for text in texts} - {_NONE}


def covering(evidence: Sequence[Sequence[int]], most: int) -> list[int]:
    """A few texts that show as many claims as can be, and then show them more often.

    The next text is the one with the most claims that none of the others shows; a claim that k of
    them show counts 4^-k. Of equal texts the first is taken, so that the order of claims does not
    matter.
    """
    claims: dict[int, list[int]] = {}
    for claim, texts in enumerate(evidence):
        for text in texts:
            claims.setdefault(text, []).append(claim)
    weights = np.ones(len(evidence))
    chosen: list[int] = []
    while claims and len(chosen) < most:
        gains = {text: float(weights[members].sum()) for text, members in claims.items()}
        best = min(gains, key=lambda text: (-gains[text], text))
        weights[claims.pop(best)] *= _FURTHER
        chosen.append(best)
    return sorted(chosen)
