# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Heads by what they do: Vig's seven patterns, and Voita's positional, syntactic and rare heads.

Vig (2019) names patterns and gives no thresholds; those here are ours, after the code of Clark et
al. 2019 (half of the mass on a position, 0.6 on a special token) and Voita et al. 2019 (the
strongest key of 90% of the queries). A head on its own token is an eighth kind. A head
may have several labels; each comes with the numbers behind it. Scores are defined in
`terms`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.errors import check_arguments
from flaxattn.measures.scores import ScoreAccumulator
from flaxattn.measures.significance import t_test
from flaxattn.measures.specs import ScoreSpec

POSITION, MOST_QUERIES, DELIMITER = 0.5, 0.9, 0.6
LIFT, REPEATED, ELSEWHERE, BLOCK, EVEN, RARE = 3.0, 0.1, 0.3, 0.7, 0.9, 0.5
MARGIN = 0.1
"""Voita's ten points by which a syntactic head is better than the best offset."""
LEAST_PAIRS = 50
"""Fewer related words say nothing about ten points."""


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
