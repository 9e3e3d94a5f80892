# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Claims about heads, each with its number and the texts that show it best; patterns of heads.

The texts with the highest scores are kept while they stream, by their numbers alone. Roles are
tested in `role_tests`.

Patterns are Vig's seven (2019), and the heads of Voita et al. (2019): positional, syntactic and
rare. Vig gives no thresholds; those here are ours, after the code of Clark et al. 2019 (half of the
mass on a position, 0.6 on a special token) and Voita et al. 2019 (the strongest key of 90 % of the
queries). A head on its own token is an eighth kind. A head may have several labels; each comes with
the numbers behind it. Scores are defined in `terms`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.role_tests import Roles
from flaxattn.measures.scores import ScoreAccumulator
from flaxattn.measures.significance import t_test
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


class Label(NamedTuple):
    """One label that a head earned.

    Attributes:
        layer: Number of the layer.
        head: Number of the head.
        label: Such as `next token` or `syntactic: governor(nsubj)`.
        evidence: What it earned it by, by name.
    """

    layer: int
    head: int
    label: str
    evidence: dict[str, float]


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


POSITION, MOST_QUERIES, DELIMITER = 0.5, 0.9, 0.6
LIFT, REPEATED, ELSEWHERE, BLOCK, EVEN, RARE = 3.0, 0.1, 0.3, 0.7, 0.9, 0.5
MARGIN = 0.1
"""Voita's ten points by which a syntactic head is better than the best offset."""
LEAST_PAIRS = 50
"""Fewer related words say nothing about ten points."""

Means = Mapping[str, Float[np.ndarray, "L H"]]


@check_arguments()
def head_patterns(tally: ScoreAccumulator, *, alpha: float = 0.05) -> list[Label]:
    """The patterns that each head shows, with their evidence, by layer and then by head.

    >>> import flaxattn as fa
    >>> tally = fa.head_stats(fa.from_pretrained("tiny-bert"), ["The cat is very sad."] * 2)
    >>> [one.label for one in fa.head_patterns(tally) if (one.layer, one.head) == (3, 1)]
    ['delimiter']

    Args:
        tally: Scores on texts, from `fa.head_stats`; of an encoder, for other sides have none of
            these patterns.
        alpha: Level of the t-tests that lifts exceed 3, without correction.

    Returns:
        One `Label` per head and pattern: `layer`, `head`, `label`, and `evidence`, the shares of
        attention or lifts (multiples of uniform attention) that it was earned by.

    Raises:
        InputError: If `tally` is not a `ScoreAccumulator`.
    """
    means = {c.name: m.mean for c, m in tally.moments.items() if c.kind == "pattern"}
    lifted = {
        name: t_test(tally.moments[column], LIFT)[1] < alpha
        for name in ("same token", "other text", "word")
        if (column := ScoreSpec("pattern", f"{name}, score")) in tally.moments
    }
    found: list[Label] = []

    def add(label: str, fires: Bool[np.ndarray, "L H"], evidence: Means) -> None:
        for i, j in np.argwhere(fires).tolist():
            numbers = {name: round(float(values[i, j]), 4) for name, values in evidence.items()}
            found.append(Label(tally.layers[i], tally.heads[j], label, numbers))

    if means:
        _add_patterns(means, lifted, add)
    _add_strongest(tally, add)
    _add_syntactic(tally, add)
    return sorted(found, key=lambda label: label[:2])


_Add = Callable[[str, Bool[np.ndarray, "L H"], Means], None]


def _add_patterns(means: Means, lifted: Mapping[str, Bool[np.ndarray, "L H"]], add: _Add) -> None:
    for name in ("next", "previous"):
        if name in means:
            mass, queries = means[name], means[f"{name} strongest"]
            fires = (mass > POSITION) | (queries >= MOST_QUERIES)
            add(f"{name} token", fires, {"mass": mass, "strongest": queries})
    add("own token", means["own"] > POSITION, {"mass": means["own"]})
    for name, label, least in (
        ("same token", "same or related token", REPEATED),
        ("other text", "same token in the other text", ELSEWHERE),
        ("word", "other tokens of the word", REPEATED),
    ):
        if name in lifted:
            mass = means[name]
            if name == "same token":
                mass = mass - means["same token, itself"]
            evidence = {"lift": means[f"{name}, score"], "mass_on_others": mass}
            if name == "word":  # neighbours are mostly tokens of one word
                evidence["mass_on_no_neighbours"] = means["word, apart"]
            add(label, lifted[name] & (mass > least), evidence)
    add("delimiter", means["delimiter"] > DELIMITER, {"mass": means["delimiter"]})
    if "block entropy" in means:
        mass, entropy = means["block"], means["block entropy"]
        fires = (mass >= BLOCK) & (entropy >= EVEN)
        add("bag of words", fires, {"mass": mass, "relative_entropy": entropy})


def _add_strongest(tally: ScoreAccumulator, add: _Add) -> None:
    """Voita's positional and rare-word heads: shares of queries, delimiters apart."""
    for name in ("next", "previous", "rare"):
        moments = tally.moments.get(ScoreSpec("strongest", name))
        if moments is not None:
            label = "rare word" if name == "rare" else f"positional: {name}"
            least = RARE if name == "rare" else MOST_QUERIES
            add(label, moments.mean >= least, {"queries": moments.mean})


def _add_syntactic(tally: ScoreAccumulator, add: _Add) -> None:
    """Voita's syntactic heads: the strongest key of a word's first token lies in the related word.

    Compared with always guessing the commonest offset between related words, over all pairs.
    """
    for role, (hits, count) in tally.hits.items():
        if count < LEAST_PAIRS:
            continue
        accuracy, baseline = hits / count, best_offset(tally, role)[1]
        evidence = {
            "accuracy": accuracy,
            "best_offset": np.full(accuracy.shape, baseline),
            "pairs": np.full(accuracy.shape, count),
        }
        add(f"syntactic: {role}", accuracy >= baseline + MARGIN, evidence)


def best_offset(tally: ScoreAccumulator, role: str) -> tuple[int, float]:
    """The commonest offset from a word to its related word, and how often it is right."""
    offset, count = tally.offsets[role].most_common(1)[0]
    return offset, count / tally.offsets[role].total()
