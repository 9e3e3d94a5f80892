# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Contents of the page of each head in `flaxattn roles` and `stats`, and the table of its examples.

Pages are made in `flaxattn.views`; examples are chosen in `flaxattn.measures.pair_examples`.
"""

import itertools
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flaxattn.commands.head_request import Request
from flaxattn.commands.report_files import table_bytes
from flaxattn.measures.claims import Claim, claim_columns
from flaxattn.measures.pair_examples import PairExamples
from flaxattn.measures.report_numbers import (
    ReportNumbers,
    check_same_model,
    digests_of,
    read_head_numbers,
    report_labels,
)
from flaxattn.views.payloads.head_pages import HeadPages, MeasuredEffects, Nearness

if TYPE_CHECKING:
    from flaxattn.measures.evidence import Evidence
    from flaxattn.measures.scored_corpus import ScoredCorpus
    from flaxattn.measures.scores import ScoreAccumulator

_DRAWN = "95 % interval of the mean over texts, by bootstrap"
_NORMAL = "95 % interval of the mean over texts, by the normal approximation"


def head_pages(
    request: Request,
    corpus: "ScoredCorpus",
    claims: Sequence[Claim],
    kind: str,
    rows: Mapping[str, Sequence[Any]],
    nearness: Nearness | None = None,
) -> HeadPages:
    """Gather what the pages of heads show."""
    tally = corpus.tally
    columns = claim_columns(claims, kind)
    names = zip(*(rows[name] for name in ("kind", "name", "layer", "head")), strict=True)
    ends = dict(zip(names, zip(rows["low"], rows["high"], strict=True), strict=True))
    effects = _effects(request, corpus) if request.facts else None
    return HeadPages(
        texts=int(corpus.facts["texts"]),
        shares=_shares(tally),
        intervals={
            (claim.name, claim.layer, claim.head): found
            for claim in claims
            if (found := ends.get((*columns[claim.name], claim.layer, claim.head))) is not None
        },
        level=_NORMAL if corpus.scores is None else _DRAWN,
        examples=PairExamples(claims),
        broken=tally.broken,
        nearness=nearness,
        effects=effects,
        command=_command(request, corpus),
    )


def weakest(corpus: "ScoredCorpus", claims: Sequence[Claim], kind: str) -> list[list[int]]:
    """Numbers of the texts that show each claim least."""
    tally, lowest = corpus.tally, corpus.lowest
    columns = claim_columns(claims, kind)
    return [_texts(lowest, columns[claim.name], tally, claim) for claim in claims]


def _texts(lowest: "Evidence", column: Any, tally: "ScoreAccumulator", claim: Claim) -> list[int]:
    at = tally.layers.index(claim.layer), tally.heads.index(claim.head)
    return [shown.text for shown in lowest.of(column, *at)]


def examples_table(claims: Sequence[Claim], examples: PairExamples) -> bytes:
    """A Parquet file with a row for each example of the page, in positions, without the texts."""
    import pyarrow as pa

    from flaxattn.measures.gold_pairs import OUTCOMES

    run = pa.list_(pa.int32())
    types = {"claim": pa.string(), "side": pa.string(), "layer": pa.int32(), "head": pa.int32()}
    types |= {"end": pa.string(), "rank": pa.int32(), "text": pa.int64(), "query": run}
    types |= {"keys": pa.list_(run), "weight": pa.float64(), "outcome": pa.string()}
    rows = []
    for claim in claims:
        found = examples.of(claim)
        for end in ("best", "worst") if found is not None else ():
            for rank, one in enumerate(getattr(found, end)):
                pair = [*one.pair.query], [[*keys] for keys in one.pair.keys]
                where = claim.name, claim.side, claim.layer, claim.head, end, rank, one.text
                rows.append((*where, *pair, one.weight, OUTCOMES[one.outcome]))
    return table_bytes(types, rows)


def _shares(tally: "ScoreAccumulator") -> dict[str, np.ndarray]:
    """Mean shares of attention by name; those that are scored as roles only, by their mass."""
    found = {}
    for kind in ("mass", "mean"):
        found |= {spec.name: m.mean for spec, m in tally.moments.items() if spec.kind == kind}
    return found


def _effects(request: Request, corpus: "ScoredCorpus") -> MeasuredEffects:
    """The numbers that other reports hold for the heads of a side."""
    tally, facts = corpus.tally, corpus.facts
    ours = ReportNumbers("", request.out, str(facts["model"]), digests_of(facts), {}, {}, facts)
    values: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
    reports = [read_head_numbers(folder) for folder in request.facts or ()]
    for report, label in zip(reports, report_labels(reports), strict=True):
        check_same_model(ours, report)
        for name, column in report.columns.items():
            ends = report.intervals.get(name, {})
            table = np.full((3, len(tally.layers), len(tally.heads)), np.nan)
            for (i, layer), (j, head) in itertools.product(
                enumerate(tally.layers), enumerate(tally.heads)
            ):
                place = tally.side, layer, head
                table[:, i, j] = column.get(place, np.nan), *ends.get(place, (np.nan, np.nan))
            if np.isfinite(table[0]).any():
                values[f"{label}: {name}"] = table[0], table[1], table[2]
    return MeasuredEffects(values, " ".join(map(_about, reports)))


def _about(report: ReportNumbers) -> str:
    """A sentence that says what the numbers of a report are."""
    facts = report.facts
    if report.command == "ablate":
        loss = facts.get("loss")
        known = "" if loss is None else f" (mean loss {loss:.4f})"
        return (
            f"ablate: growth of the loss{known} without the head; importance is the size of its "
            "slope."
        )
    if report.command == "patch":
        asked, metric = facts["settings"], facts["metric"]
        return (
            f"patch: growth of the {metric['name']} of {len(metric['pairs']):,} pairs where the "
            f"head is patched ({asked['site']}, {asked['direction']}); {metric['clean']:.4f} on "
            f"clean texts, {metric['corrupted']:.4f} on corrupted ones."
        )
    return f"{report.command}: from {report.folder.name}."


def _command(request: Request, corpus: "ScoredCorpus") -> str:
    """The command that would measure what heads are worth."""
    files = "TEXTS" if request.store or request.annotated else shlex.join(map(str, request.inputs))
    model = shlex.quote(str(corpus.facts["model"]))
    return f"flaxattn ablate {files} --model {model} --out report-ablate"
