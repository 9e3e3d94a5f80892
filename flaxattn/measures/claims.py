# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Claims about heads, each with its number and the texts that show it best.

What is tested is in `roles`, what patterns are in `patterns`; how texts are kept, in `evidence`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flaxattn.measures.evidence import Evidence, TopText
from flaxattn.measures.patterns import Label
from flaxattn.measures.role_tests import Roles
from flaxattn.measures.score_terms import ScoreSpec
from flaxattn.measures.scores import ScoreAccumulator

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
    """By name as they first came, the highest value first, then by layer and head."""
    order = {name: n for n, name in enumerate(dict.fromkeys(claim.name for claim in claims))}
    return sorted(claims, key=lambda c: (order[c.name], -c.value, c.layer, c.head))
