# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The evidence of a report: which texts show each claim, as JSON, as a table, and as a page."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flaxattn.corpus.texts import Text
from flaxattn.measures.claims import Claim, covering
from flaxattn.measures.specs import ScoreOptions, ScoreSpec
from flaxattn.reports.report import table_bytes
from flaxattn.views.evidence_page import EvidenceReport, Gold, Numbers, evidence_page
from flaxattn.views.page import Page

if TYPE_CHECKING:
    from flaxattn.measures.gold_pairs import GoldPairs
    from flaxattn.measures.score_source import ScoredCorpus
    from flaxattn.trace.trace import Trace

Traces = Callable[[Sequence[int]], Iterable[Any]]


@dataclasses.dataclass(frozen=True)
class PageOptions:
    """Options of the evidence of a report, and of its page.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> page = fa.PageOptions(evidence=1, sentences=10)
    >>> report = fa.stats_report(model, ["The cat is very sad."], compared=0, page=page)
    >>> len(report.facts["evidence"]["claims"][0]["texts"])
    1

    Attributes:
        evidence: Number of texts kept for each claim and head.
        sentences: Largest number of texts on the page.
        other_reports: Folders of reports on the same model, whose numbers the page of each head
            shows.
    """

    evidence: int = 5
    sentences: int = 40
    other_reports: Sequence[Path] = ()


DEFAULT_PAGE = PageOptions()


def evidence_facts(claims: Sequence[Claim], texts: Mapping[int, Text]) -> dict[str, Any]:
    """Claims with numbers and scores of their texts, and these texts, ready for JSON."""
    used = sorted({shown.text for claim in claims for shown in claim.texts})
    return {
        "claims": [
            claim._asdict() | {"texts": [shown._asdict() for shown in claim.texts]}
            for claim in claims
        ],
        "texts": {str(number): _plain_text(texts[number]) for number in used},
    }


def _plain_text(text: Text) -> dict[str, str]:
    second = {} if text.text_b is None else {"text_b": text.text_b}
    return {"id": text.id, "text": text.text, **second}


def evidence_table(claims: Sequence[Claim]) -> bytes:
    """A Parquet file with a row for each claim and text, without the texts themselves."""
    import pyarrow as pa

    types = {"claim": pa.string(), "side": pa.string(), "layer": pa.int32(), "head": pa.int32()}
    types |= {"value": pa.float64(), "rank": pa.int32(), "text": pa.int64(), "score": pa.float64()}
    rows = [
        (claim.name, claim.side, claim.layer, claim.head, claim.value, rank, *shown)
        for claim in claims
        for rank, shown in enumerate(claim.texts)
    ]
    return table_bytes(types, rows)


def corpus_gold(
    corpus: "ScoredCorpus", columns: Mapping[str, ScoreSpec], options: ScoreOptions
) -> Gold:
    """Make the gold pairs of the texts of a corpus, as a page asks for them."""
    from flaxattn.measures.gold_pairs import text_pairs

    side = corpus.tally.side

    def gold(number: int, trace: "Trace") -> "Mapping[str, Sequence[GoldPairs]]":
        text = corpus.texts[number]
        return {side: text_pairs(columns, trace, text, options, side, corpus.model)}

    return gold


def report_page(
    report: EvidenceReport,
    claims: Sequence[Claim],
    traces: Traces | None,
    most: int,
    gold: Gold | None = None,
    weak: Sequence[Sequence[int]] = (),
) -> Page:
    """The page of a report with the texts that show its claims."""
    room = most // 4 if weak else 0
    best = covering([[shown.text for shown in c.texts] for c in claims], most - room)
    chosen = sorted({*best, *covering(weak, room)})
    found = () if traces is None else traces(chosen)
    return evidence_page(report, claims, chosen, found, gold)


def numbers_of(tally: Any, values: Mapping[str, Any], side: str = "encoder") -> dict[str, Numbers]:
    """Numbers of the heads of a side, as a page takes them."""
    return {side: Numbers(tally.layers, tally.heads, values)}
