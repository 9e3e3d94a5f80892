# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The page of a report: numbers of all heads over a corpus, claims, and the texts that show them.

Claims and texts are chosen elsewhere; what the page does is in `assets/claims.js`.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from flaxattn.measures.claims import Claim
from flaxattn.measures.gold_pairs import GoldPairs
from flaxattn.measures.head_similarity import MeanDistances
from flaxattn.trace.record import layer_weights
from flaxattn.trace.trace import Trace
from flaxattn.views.page import Page, build_page
from flaxattn.views.payloads.page_encoding import ERROR, Blocks, Precision, payload_bytes, visible
from flaxattn.views.payloads.report_payload import (
    FAMILIES,
    OFF,
    HeadPages,
    add_pairs,
    claim_marks,
    claim_payload,
    pages_payload,
)
from flaxattn.views.payloads.side_payload import recorded, shape_input
from flaxattn.views.trace_page import Second, without_vectors

BYTES = 32_000_000
"""Largest size of the attention in a page; texts that do not fit are left out."""

_PRECISION: Precision = "uint8"
_DIGITS = 4
_TEXTS = {"encoder": ("source", "source"), "decoder": ("read", "read")}
_CROSS = ("written", "source")

Traces = Iterable[Trace | tuple[Trace, Trace]]
Gold = Callable[[int, Trace], Mapping[str, Sequence[GoldPairs]]]
"""Makes the gold pairs of a text, by side, of its number and its trace."""


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Numbers of the heads of a side.

    Attributes:
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        values: `[L, H]` by name; nan where nothing is known.
    """

    layers: Sequence[int]
    heads: Sequence[int]
    values: Mapping[str, Float[np.ndarray, "L H"]]


@dataclasses.dataclass(frozen=True)
class EvidenceReport:
    """Texts and numbers of a page beside its claims.

    Attributes:
        title: Title of the page.
        model: Or both models.
        about: What was measured and how, in a sentence or two.
        sides: Numbers by `encoder`, `decoder` and `cross`.
        measured: What the numbers are: `score`, `mean`, ….
        names: What two traces of each text are called, if there are two.
        changes: What is claimed of the heads of two, as `shape_changes` gives it.
        heads: What the page of each head shows, of the first side; None for no such pages.
    """

    title: str
    model: str
    about: str
    sides: Mapping[str, Numbers]
    measured: str = "value"
    names: tuple[str, str] | None = None
    changes: Mapping[str, Any] | None = None
    heads: HeadPages | None = None


def evidence_page(
    report: EvidenceReport,
    claims: Sequence[Claim],
    texts: Sequence[int],
    traces: Traces,
    gold: Gold | None = None,
) -> Page:
    """A page that opens at the claims; each leads to the head and the text that show it."""
    blocks, inputs, places = Blocks(), [], dict[int, int]()
    near = MeanDistances()
    for number, found in zip(texts, traces, strict=False):
        one, other = found if isinstance(found, tuple) else (found, None)
        if _size(one) * (1 if other is None else 2) + blocks.size > BYTES:
            continue
        places[number] = len(inputs)
        shaped = _shaped(report, one, other, blocks, len(inputs))
        found_pairs = {} if gold is None else gold(number, one)
        add_pairs(shaped, found_pairs, one, blocks, len(inputs))
        _add_to_heads(report, number, one, found_pairs, near)
        inputs.append(shaped)
    payloads = [_claim(report, claim, places) for claim in claims]
    first = next(iter(report.sides))
    measure = payloads[0]["name"] if payloads else next(iter(report.sides[first].values))
    if payloads:
        first = payloads[0]["side"]
    start = {
        "level": "claims",
        "sequence": 0,
        "side": first,
        "layer": report.sides[first].layers[0],
        "heads": list(report.sides[first].heads),
        "measure": measure,
        "gold": OFF,
    }
    payload = {
        "model": visible(report.model),
        "precision": _PRECISION,
        "error": ERROR[_PRECISION],
        "levels": _levels(report, inputs),
        "start": start,
        "inputs": inputs or [_blank(report)],
        "blocks": blocks.data,
        "report": {
            "title": report.title,
            "about": report.about,
            "measured": report.measured,
            "lacking": _lacking(claims, places),
            "values": {side: _plain(numbers) for side, numbers in report.sides.items()},
            "claims": payloads,
            "families": FAMILIES,
            "marks": claim_marks(_names(report, claims)),
        },
    }
    if report.heads is not None:
        side, numbers = next(iter(report.sides.items()))
        found = pages_payload(report.heads, numbers.layers, numbers.heads, near)
        payload["report"]["heads"] = {"side": side, **found}
    if not inputs:
        payload["note"] = "No attention travels with this page."
    if report.names and inputs:
        payload["names"] = [visible(name) for name in report.names]
        payload["changes"] = report.changes
        start["compare"] = "together"
    return build_page(
        payload,
        title=f"{report.title} · {report.model}",
        summary=f"{len(claims)} claims, {len(inputs)} texts",
        height=900,
        entry="main_compare_claims.js" if "names" in payload else "main_claims.js",
    )


def _levels(report: EvidenceReport, inputs: Sequence[Any]) -> list[str]:
    profile = [] if report.heads is None else ["profile"]
    return ["claims", *profile, *(["model", "head", "text"] if inputs else [])]


def _add_to_heads(
    report: EvidenceReport,
    number: int,
    one: Trace,
    gold: Mapping[str, Sequence[GoldPairs]],
    near: MeanDistances,
) -> None:
    """Take a text into the pages of heads: its gold pairs, and distances between heads."""
    if report.heads is None:
        return
    side, numbers = next(iter(report.sides.items()))
    record = recorded(one)[side]
    for found in gold.get(side, ()):
        report.heads.examples.add(side, number, found, record)
    if report.heads.nearness is None:
        weights = np.asarray(layer_weights(record, numbers.layers, allow_nan=True))
        heads = [record.heads.index(head) for head in numbers.heads]
        near.add(weights[:, heads].reshape(-1, *weights.shape[2:]))


def _names(report: EvidenceReport, claims: Sequence[Claim]) -> list[str]:
    """Names of all numbers, then of claims: so a claim has its code whether or not it is made."""
    measured = [name for numbers in report.sides.values() for name in numbers.values]
    return [visible(name) for name in (*measured, *(claim.name for claim in claims))]


def _shaped(
    report: EvidenceReport, one: Trace, other: Trace | None, blocks: Blocks, number: int
) -> dict[str, Any]:
    """A text as the page holds it, with the layers and heads of the report."""
    one = without_vectors(one)
    found = {side: record for side, record in recorded(one).items() if side in report.sides}
    layers = {side: list(report.sides[side].layers) for side in found}
    shaped = shape_input(one, found, layers, _PRECISION, blocks, number, likeness=False)
    if other is not None:
        second = Second(without_vectors(other), report.names or ("A", "B"))
        second.add_to(shaped, one, 0, layers, _PRECISION, blocks, number)
    return shaped


def _size(trace: Trace) -> int:
    """Characters that the weights of a text take."""
    shapes = [
        record.weights.shape for record in recorded(trace).values() if record.weights is not None
    ]
    return sum(payload_bytes((layers, *rest), _PRECISION) for layers, _, *rest in shapes)


def _claim(report: EvidenceReport, claim: Claim, places: Mapping[int, int]) -> dict[str, Any]:
    """A claim, with those of its texts that travel."""
    shown = [[places[text], text, _rounded(score)] for text, score in claim.texts if text in places]
    payload = claim._asdict() | {"value": _rounded(claim.value), "shown": shown}
    payload["name"] = visible(claim.name)
    del payload["texts"]
    if report.heads is not None:
        payload |= claim_payload(report.heads, claim, places)
    return payload


def _lacking(claims: Sequence[Claim], places: Mapping[int, int]) -> str:
    """Describe how many texts and claims the page leaves out."""
    every = {shown.text for claim in claims for shown in claim.texts}
    without = sum(not any(shown.text in places for shown in claim.texts) for claim in claims)
    if not claims:
        return "Nothing is claimed of any head."
    if not places:
        return "The page holds no attention: what was read has no maps of these texts."
    held = len(every & places.keys())
    message = f"{held} of the {len(every)} texts that show claims best are in this page."
    if without:
        return f"{message} {without} of {len(claims)} claims have none of them."
    return f"{message} Each claim has one at least; some share it."


def _plain(numbers: Numbers) -> dict[str, list[list[float | None]]]:
    return {
        visible(name): [[_rounded(float(value)) for value in row] for row in np.asarray(table)]
        for name, table in numbers.values.items()
    }


def _rounded(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")


def _blank(report: EvidenceReport) -> dict[str, Any]:
    """A text of no token, of a page without attention."""
    blank = {"tokens": [], "special": [], "boundary": None, "words": None}
    sides = []
    for name, numbers in report.sides.items():
        left, right = _TEXTS.get(name, _CROSS)
        heads = [[{"does": ""} for _ in numbers.heads] for _ in numbers.layers]
        shape = {"layers": list(numbers.layers), "heads": list(numbers.heads), "measures": heads}
        sides.append({"name": name, "left": [left], "right": [right], **shape})
    names = {text for side in sides for text in (*side["left"], *side["right"])}
    return {"truncated": 0, "texts": {name: blank for name in sorted(names)}, "sides": sides}
