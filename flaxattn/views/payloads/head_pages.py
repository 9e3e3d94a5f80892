# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of the page of each head in a report: its reading, examples, nearest heads and effects.

Examples are chosen in `flaxattn.measures.gold_pairs`; what a page does with all of it is in
`assets/head_profile.js`.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from flaxattn.measures.claims import Claim
from flaxattn.measures.gold_pairs import OUTCOMES, HeadExamples, PairExample, PairExamples
from flaxattn.measures.head_similarity import MeanDistances, nearest_heads

NEAREST = 5
"""Number of other heads that the page of a head names."""
_DIGITS = 4
_PLACES = {
    "next": "the next token",
    "previous": "the previous token",
    "own": "its own token",
    "cls": "the special token at the beginning",
    "sep": "the separators",
    "first": "the first token",
    "punctuation": "punctuation",
    "delimiter": "special tokens",
    "duplicate": "the same token elsewhere",
    "induction": "the token after an earlier occurrence of its own",
    "diagonal": "the source tokens as far along",
    "end": "the special tokens at the end of the source",
    "copy": "the source tokens that read the same",
}
"""Places that a head may look at, by the name of the share of attention on them."""

Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class MeasuredEffects:
    """Numbers of the heads from other reports, such as effects of ablation or of patching.

    Attributes:
        values: Number, and ends of its 95 % interval, by name, `[L, H]` each; nan where unknown.
        about: What was measured on which texts, in a sentence for each report.
    """

    values: Mapping[str, tuple[Float[np.ndarray, "L H"], ...]]
    about: str


@dataclasses.dataclass(frozen=True)
class Nearness:
    """Distances between all heads of a side.

    Attributes:
        distances: All pairs, condensed as scipy has it; between 0 and 1.
        texts: Number of texts that they are means over.
    """

    distances: Float[np.ndarray, " P"]
    texts: int


@dataclasses.dataclass(frozen=True)
class HeadPages:
    """Part of a report that its pages of single heads show, of one side.

    Attributes:
        texts: Number of texts that were measured.
        shares: Mean share of attention by name of a place, `[L, H]` each; others are passed over.
        intervals: Interval of the number of a claim, by name, layer and head.
        level: Meaning of these intervals.
        examples: Gold pairs of the texts of the page; filled when the page is made.
        broken: Number of texts on which the attention of each head is NaN or infinite, `[L, H]`.
        nearness: Distances between heads; None to measure them on the texts of the page.
        effects: Numbers from other reports; None where none was given.
        command: Command that would measure the effects.
    """

    texts: int
    shares: Mapping[str, Float[np.ndarray, "L H"]]
    intervals: Mapping[tuple[str, int, int], Interval]
    level: str
    examples: PairExamples
    broken: Int[np.ndarray, "L H"]
    nearness: Nearness | None = None
    effects: MeasuredEffects | None = None
    command: str = ""


def reading(
    shares: Mapping[str, Float[np.ndarray, "L H"]], layer: int, head: int
) -> tuple[str, float] | None:
    """Tell where a head looks: the place with the largest mean share of its attention.

    Returns:
        The place in words, and its share; of equal shares the first. None where none is known.
    """
    known = [
        (name, float(values[layer, head]))
        for name in _PLACES
        if (values := shares.get(name)) is not None and math.isfinite(values[layer, head])
    ]
    if not known:
        return None
    name, share = max(known, key=lambda one: one[1])
    return _PLACES[name], share


def pages_payload(
    pages: HeadPages, layers: Sequence[int], heads: Sequence[int], measured: MeanDistances
) -> dict[str, Any]:
    """Return what the pages of heads show beside the claims, as JSON holds it."""
    near = pages.nearness or Nearness(measured.distances, measured.texts)
    count = len(layers) * len(heads)
    nearest: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    if near.texts:
        nearest = nearest_heads(near.distances, count, NEAREST)
    effects = pages.effects
    return {
        "texts": pages.texts,
        "level": pages.level,
        "readings": [[_read(pages, i, j) for j in range(len(heads))] for i in range(len(layers))],
        "broken": np.asarray(pages.broken).tolist(),
        "near_texts": near.texts,
        "nearest": [[[at, _rounded(far)] for at, far in row] for row in nearest],
        "command": pages.command,
        "effects_about": effects.about if effects else "",
        "effects": {
            name: [_table(part) for part in parts]
            for name, parts in (effects.values if effects else {}).items()
        },
    }


def claim_payload(pages: HeadPages, claim: Claim, places: Mapping[int, int]) -> dict[str, Any]:
    """Return the interval and the examples of a claim, as JSON holds them."""
    found = pages.examples.of(claim)
    low, high = pages.intervals.get((claim.name, claim.layer, claim.head), (math.nan, math.nan))
    ends = [_rounded(low), _rounded(high)]
    return {
        "interval": None if None in ends else ends,
        "examples": None if found is None else _examples(found, places),
    }


def _examples(found: HeadExamples, places: Mapping[int, int]) -> dict[str, Any]:
    def example(one: PairExample) -> list[Any]:
        return [places[one.text], one.place, _rounded(one.weight), OUTCOMES[one.outcome]]

    return {
        "best": [example(one) for one in found.best],
        "worst": [example(one) for one in found.worst],
        "candidates": found.candidates,
        "texts": found.texts,
    }


def _read(pages: HeadPages, layer: int, head: int) -> list[Any] | None:
    found = reading(pages.shares, layer, head)
    return None if found is None else [found[0], _rounded(found[1])]


def _table(values: Float[np.ndarray, "L H"]) -> list[list[float | None]]:
    return [[_rounded(float(value)) for value in row] for row in values]


def _rounded(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
