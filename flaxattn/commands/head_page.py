# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The evidence of a report: which texts show each claim, as JSON, as a table, and as a page.

Claims come in with their texts. Pages are made in `flaxattn.views.evidence_page`.
"""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flaxattn.corpus.texts import Text
from flaxattn.measures.claims import Claim
from flaxattn.measures.evidence import covering
from flaxattn.measures.gold_pairs import GoldPair
from flaxattn.views.evidence_page import EvidenceReport, Numbers, evidence_page

Traces = Callable[[Sequence[int]], Iterable[Any]]
GoldPairs = Callable[[Sequence[int]], Sequence[Mapping[str, Sequence[GoldPair]]]]


def evidence_facts(claims: Sequence[Claim], texts: Mapping[int, Text]) -> dict[str, Any]:
    """Claims with numbers and scores of their texts, and these texts, ready for JSON.

    Args:
        claims: With their texts.
        texts: By number.
    """
    used = sorted({shown.text for claim in claims for shown in claim.texts})
    return {
        "claims": [
            claim._asdict() | {"texts": [shown._asdict() for shown in claim.texts]}
            for claim in claims
        ],
        "texts": {str(number): _told(texts[number]) for number in used},
    }


def _told(text: Text) -> dict[str, str]:
    second = {} if text.text_b is None else {"text_b": text.text_b}
    return {"id": text.id, "text": text.text, **second}


def evidence_table(claims: Sequence[Claim]) -> bytes:
    """A Parquet file with a row for each claim and text, without the texts themselves.

    Args:
        claims: With their texts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"claim": pa.string(), "side": pa.string(), "layer": pa.int32(), "head": pa.int32()}
    types |= {"value": pa.float64(), "rank": pa.int32(), "text": pa.int64(), "score": pa.float64()}
    rows = [
        (claim.name, claim.side, claim.layer, claim.head, claim.value, rank, *shown)
        for claim in claims
        for rank, shown in enumerate(claim.texts)
    ]
    columns = list(zip(*rows, strict=True)) or [() for _ in types]
    arrays = [pa.array(c, t) for c, t in zip(columns, types.values(), strict=True)]
    file = io.BytesIO()
    table = pa.table(dict(zip(types, arrays, strict=True)))
    pq.write_table(table, file, compression="zstd", write_page_checksum=True)
    return file.getvalue()


def report_page(
    report: EvidenceReport,
    claims: Sequence[Claim],
    traces: Traces | None,
    most: int,
    pairs: GoldPairs | None = None,
) -> bytes:
    """The page of a report with the texts that show its claims.

    Args:
        report: What the page tells; its claims are those given here.
        claims: With their texts.
        traces: Weights of texts by number, in their order; None where there are none.
        most: Texts that travel with the page.
        pairs: Gold pairs of texts by number, by claim; None where none are known.
    """
    chosen = covering([[shown.text for shown in c.texts] for c in claims], most)
    found = () if traces is None else traces(chosen)
    gold = () if pairs is None else pairs(chosen)
    return evidence_page(report, claims, chosen, found, gold).html.encode()


def numbers_of(tally: Any, values: Mapping[str, Any], side: str = "encoder") -> dict[str, Numbers]:
    """Numbers of the heads of a side, as a page takes them.

    Args:
        tally: Tells layers and heads.
        values: `[L, H]` by name.
        side: `encoder`, `decoder` or `cross`.
    """
    return {side: Numbers(tally.layers, tally.heads, values)}
