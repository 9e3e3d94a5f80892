# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Claims about heads, each with its number and the texts that show it best.

The texts with the highest scores are kept while they stream, by their numbers alone. The tests are
in `role_tests`, the patterns in `patterns`.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int

from flaxattn.errors import InputError
from flaxattn.measures.patterns import Label
from flaxattn.measures.role_tests import Roles
from flaxattn.measures.scores import ScoreAccumulator
from flaxattn.measures.specs import ScoreSpec

KEPT = 5
_NONE = np.iinfo(np.int64).max
_FURTHER = 0.25  # what a further text of a claim counts beside its first


class TopText(NamedTuple):
    """A text that shows a claim.

    Attributes:
        text: Its number.
        score: Score of the head in that text.
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
        keep: Number of texts of each claim and head.

    Raises:
        InputError: If `keep` is less than 1.
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
        """Add the scores of some texts."""
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
        """Add everything that another one holds."""
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
    them show counts 4^-k. The first of equal texts is taken, so that the order of claims does not
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


_RANKS = ("the highest", "the second highest", "the third highest")
_ALIKE = 1e-6
_LABELS = {
    "next token": ScoreSpec("pattern", "next"),
    "previous token": ScoreSpec("pattern", "previous"),
    "own token": ScoreSpec("pattern", "own"),
    "same or related token": ScoreSpec("pattern", "same token, score"),
    "same token in the other text": ScoreSpec("pattern", "other text, score"),
    "other tokens of the word": ScoreSpec("pattern", "word, score"),
    "delimiter": ScoreSpec("pattern", "delimiter"),
    "bag of words": ScoreSpec("pattern", "block entropy"),
    "positional: next": ScoreSpec("strongest", "next"),
    "positional: previous": ScoreSpec("strongest", "previous"),
    "rare word": ScoreSpec("strongest", "rare"),
}
_SYNTACTIC, _PATTERN = "syntactic: ", "pattern: "


class Claim(NamedTuple):
    """Something that is said of one head.

    Attributes:
        name: A role, a pattern or a measure.
        layer: Number of the layer.
        head: Number of the head.
        value: What it rests on, a mean over texts.
        detail: What else is known, in words.
        side: `encoder`, `decoder` or `cross`.
        texts: Those that show it best, the best first.
    """

    name: str
    layer: int
    head: int
    value: float
    detail: str = ""
    side: str = "encoder"
    texts: Sequence[TopText] = ()


def role_claims(roles: Roles, evidence: Evidence, side: str = "encoder") -> list[Claim]:
    """Every role that a head was found to have, by role, the highest score first."""
    claims = []
    for name, role in roles.roles.items():
        for i, j in np.argwhere(role.found).tolist():
            message = f"p {role.corrected[i, j]:.1g}"
            if not np.isnan(role.mass[i, j]):
                message += f", {role.mass[i, j]:.0%} of attention"
            if role.beyond is not None:
                message += f", beyond position p {role.beyond[i, j]:.1g}"
            texts = evidence.of(ScoreSpec("score", name), i, j)
            where = roles.layers[i], roles.heads[j]
            claims.append(Claim(name, *where, float(role.score[i, j]), message, side, texts))
    return _sorted(claims)


def measure_claims(
    tally: ScoreAccumulator, labels: Sequence[Label], evidence: Evidence
) -> list[Claim]:
    """Every label that a head earned, and of every measure the three heads with the most of it."""
    claims, side = [], tally.side
    for label in labels:
        column = label_column(label.label)
        if column is None or column not in tally.moments:
            continue
        at = tally.layers.index(label.layer), tally.heads.index(label.head)
        detail = ", ".join(f"{name} {number:.2f}" for name, number in label.evidence.items())
        value = float(tally.moments[column].mean[at])
        where = label.layer, label.head
        texts = evidence.of(column, *at)
        claims.append(Claim(_pattern(label.label), *where, value, detail, side, texts))
    for column, moments in tally.moments.items():
        there = moments.counts > 0
        spread = np.ptp(moments.mean[there]) if there.any() else 0
        if column.kind != "mean" or spread < _ALIKE:
            continue  # of heads that are all alike none has the most
        known = np.where(there, moments.mean, -np.inf)
        for rank, at in zip(_RANKS, np.argsort(-known, axis=None, kind="stable"), strict=False):
            i, j = (int(n) for n in np.unravel_index(at, known.shape))
            if not there[i, j]:
                break  # the rest is known of no text
            where = tally.layers[i], tally.heads[j]
            texts = evidence.of(column, i, j)
            claims.append(Claim(column.name, *where, float(known[i, j]), rank, side, texts))
    return _sorted(claims)


def _pattern(label: str) -> str:
    """The name of a claim, which differs from that of a measure."""
    return label if ":" in label else _PATTERN + label


def label_column(label: str) -> ScoreSpec | None:
    """The scores by which texts show a label; None for a label that has none of its own."""
    label = label.removeprefix(_PATTERN)
    if label.startswith(_SYNTACTIC):
        return ScoreSpec("hit", label.removeprefix(_SYNTACTIC))
    return _LABELS.get(label)


def claim_columns(claims: Sequence[Claim], kind: str) -> dict[str, ScoreSpec]:
    """The score that each claim rests on, by the name of the claim."""
    names = dict.fromkeys(claim.name for claim in claims)
    # Without a colon a name is that of a score: "delimiter" is a role as well as a label.
    labels = {name: label_column(name) for name in names if ":" in name}
    return {name: labels.get(name) or ScoreSpec(kind, name) for name in names}


def _sorted(claims: Sequence[Claim]) -> list[Claim]:
    """Sort claims by name as they first came, then by value, highest first, layer and head."""
    order = {name: n for n, name in enumerate(dict.fromkeys(claim.name for claim in claims))}
    return sorted(claims, key=lambda c: (order[c.name], -c.value, c.layer, c.head))
