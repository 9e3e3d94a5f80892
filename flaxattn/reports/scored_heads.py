# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of heads for a report, its rows, and the page of each head.

`roles` and `stats` share them. Scores are defined in `flaxattn.measures`, pages are made in
`flaxattn.views`, and examples are chosen in `flaxattn.measures.pair_examples`.
"""

import dataclasses
import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.texts import Text
from flaxattn.measures.claims import Claim, claim_columns
from flaxattn.measures.evidence import Evidence
from flaxattn.measures.gold_pairs import OUTCOMES
from flaxattn.measures.head_roles import (
    Source,
    Texts,
    TextSource,
    Trees,
    open_source,
    single_traces,
    text_source,
    tree_paths,
)
from flaxattn.measures.pair_examples import PairExamples
from flaxattn.measures.report_numbers import (
    ReportNumbers,
    check_same_model,
    digests_of,
    read_head_numbers,
    report_labels,
)
from flaxattn.measures.role_tests import Roles
from flaxattn.measures.score_source import ScoreSource
from flaxattn.measures.score_terms import ScoreOptions, ScoreSpec
from flaxattn.measures.scored_corpus import ScoredCorpus, collect
from flaxattn.measures.scores import ScoreAccumulator, intervals
from flaxattn.pipeline.progress_reporter import ProgressReporter
from flaxattn.pipeline.reading_options import ReadingOptions
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.reports.report import described, table_bytes
from flaxattn.store.open_store import Store, open_store
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.head_pages import HeadPages, MeasuredEffects, Nearness

_QUANTILE = 1.959963984540054  # of the normal distribution, for an interval of 95 %
_LOWEST = 2  # texts with the lowest scores that are kept for each claim and head
_DRAWN = "95 % interval of the mean over texts, by bootstrap"
_NORMAL = "95 % interval of the mean over texts, by the normal approximation"


@dataclasses.dataclass(frozen=True)
class ReportedHeads:
    """Heads to report on, and the texts on which they are scored.

    Attributes:
        source: A model, traces or an opened store.
        texts: What a model reads; None for traces and stores, which have their texts.
        options: What is scored.
        side: `encoder`, `decoder` or `cross`; None for the default of the source.
        trees: Files with the trees of a store's texts.
        reading: How texts are read.
        progress: Shows how far the work is.
    """

    source: Pretrained | Store | Sequence[Trace]
    texts: TextSource | None
    options: ScoreOptions
    side: str | None
    trees: tuple[Path, ...]
    reading: ReadingOptions
    progress: ProgressReporter

    @classmethod
    def of(
        cls,
        source: Source,
        texts: Texts | TextSource | None,
        options: ScoreOptions,
        side: str | None,
        trees: Trees,
        reading: ReadingOptions,
        progress: ProgressReporter,
    ) -> "ReportedHeads":
        """Open what a user gave."""
        if isinstance(source, Trace | Sequence) and not isinstance(source, str):
            source = single_traces(source)
        elif not isinstance(source, Pretrained | Store):
            source = open_store(Path(source))
        if isinstance(source, Pretrained) and texts is not None:
            texts = texts if isinstance(texts, TextSource) else text_source(texts)
        files = tuple(tree_paths(trees))
        annotated = bool(files) if isinstance(source, Store) else _annotated(texts)
        options = dataclasses.replace(options, annotated=annotated)
        reading = dataclasses.replace(reading, watch=progress)
        given: Any = texts
        return cls(source, given, options, side, files, reading, progress)

    @property
    def model(self) -> Pretrained | None:
        """The model; None for what was recorded."""
        return self.source if isinstance(self.source, Pretrained) else None

    @property
    def store(self) -> Store | None:
        """The store, if it is one."""
        return self.source if isinstance(self.source, Store) else None

    @property
    def name(self) -> str:
        """Name of the store, or of the model, for messages."""
        if isinstance(self.source, Store):
            return str(self.source.path)
        return self.source.name if isinstance(self.source, Pretrained) else "the traces"

    @property
    def settings(self) -> dict[str, Any]:
        """How texts were read, ready for JSON."""
        return {"limit": self.reading.limit, "lengths": self.reading.lengths}

    def scores(self, kinds: Sequence[str], best: int) -> ScoredCorpus:
        """Score all heads on all texts, and keep the texts that show claims of some kinds best."""
        source = open_source(
            self.source, self.texts, self.options, self.side, self.trees, self.reading
        )
        count = self._describe(source)
        self.progress.announce(self._cost(source, count))
        self.progress.expect("scoring heads", count)
        return collect(source, kinds, best, self.reading.problems, _LOWEST)

    def again(self) -> tuple[Iterator[Text], ReadingOptions]:
        """Read the texts anew; the pass over all texts has reported those that cannot be used."""
        policy = "fail" if self.reading.problems.policy == "fail" else "skip"
        reading = dataclasses.replace(self.reading, bad=BadRows(policy))
        return (iter(()) if self.texts is None else self.texts.read(reading.problems)), reading

    def _describe(self, source: ScoreSource) -> int | None:
        """Add to the facts where scores come from; return the number of texts."""
        limit = self.reading.limit
        if self.store is not None:
            data = [{"name": self.store.path.name, "plan_sha256": self.store.plan_sha256}]
            source.facts["data"] = data + described(self.trees)
            source.facts["fingerprint"] = dict(self.store.plan["model"])
            count = len(self.store)
        elif self.texts is not None:
            source.facts["data"] = self.texts.data
            count = self.texts.count
        else:
            traces: Any = self.source
            count = len(traces)
            source.facts |= {"model": traces[0].model or "traces", "data": {"texts": count}}
        return count if limit is None or count is None else min(count, limit)

    def _cost(self, source: ScoreSource, count: int | None) -> str:
        """Say what will be done."""
        texts = "all texts" if count is None else f"{count:,} texts"
        if source.model is None:
            return f"{texts}, {self.name}: read once"
        heads = ", ".join(
            f"{layers * heads} heads ({name})"
            for name, (layers, heads) in source.model.masks().items()
        )
        return f"{texts}, {source.model.name}: {heads}; one forward pass over all texts"


def _annotated(texts: Any) -> bool:
    return isinstance(texts, TextSource) and texts.annotated


def refusals(refused: Mapping[ScoreSpec, str]) -> dict[str, list[str]]:
    """Numbers that a store does not tell, by the request that would have recorded them."""
    found: dict[str, list[str]] = {}
    for column, request in refused.items():
        found.setdefault(f"Capture({request})", []).append(f"{column.kind}: {column.name}")
    return found


def rows_of(
    corpus: ScoredCorpus, roles: "Roles | None" = None, seed: int = 0
) -> dict[str, list[Any]]:
    """One row per head and number: columns of `heads.parquet`."""
    tally = corpus.tally
    drawn = None if corpus.scores is None else intervals(corpus.scores, seed=seed)
    names = ("layer", "head", "kind", "name", "texts", "mean", "sd", "low", "high")
    tested = ("t", "p", "p_corrected", "found", "p_beyond") if roles else ()
    rows: dict[str, list[Any]] = {name: [] for name in (*names, *tested)}
    for column, (counts, mean, m2) in sorted(tally.moments.items()):
        deviation = np.sqrt(m2 / np.maximum(counts - 1, 1))
        error = _QUANTILE * deviation / np.sqrt(np.maximum(counts, 1))
        low, high = (mean - error, mean + error) if drawn is None else drawn[column]
        role = roles.roles.get(column.name) if roles and column.kind == "score" else None
        for i, j in np.ndindex(mean.shape):
            spread = deviation[i, j] if counts[i, j] > 1 else np.nan
            numbers = (mean[i, j], spread, low[i, j], high[i, j])
            where = (tally.layers[i], tally.heads[j], *column, int(counts[i, j]))
            values = [*where, *(float(number) for number in numbers)]
            if tested and role is None:
                values += [None] * len(tested)
            elif role is not None:
                beyond = None if role.beyond is None else float(role.beyond[i, j])
                each = (role.t[i, j], role.p[i, j], role.corrected[i, j])
                values += [*(float(n) for n in each), bool(role.found[i, j]), beyond]
            for name, value in zip(rows, values, strict=True):
                rows[name].append(value)
    return rows


def head_pages(
    heads: ReportedHeads,
    corpus: ScoredCorpus,
    claims: Sequence[Claim],
    kind: str,
    rows: Mapping[str, Sequence[Any]],
    other_reports: Sequence[Path] = (),
    nearness: Nearness | None = None,
) -> HeadPages:
    """Gather what the pages of heads show."""
    tally = corpus.tally
    columns = claim_columns(claims, kind)
    names = zip(*(rows[name] for name in ("kind", "name", "layer", "head")), strict=True)
    ends = dict(zip(names, zip(rows["low"], rows["high"], strict=True), strict=True))
    effects = _effects(other_reports, corpus) if other_reports else None
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
        command=_command(heads, corpus),
    )


def weakest(corpus: ScoredCorpus, claims: Sequence[Claim], kind: str) -> list[list[int]]:
    """Numbers of the texts that show each claim least."""
    tally, lowest = corpus.tally, corpus.lowest
    columns = claim_columns(claims, kind)
    return [_texts(lowest, columns[claim.name], tally, claim) for claim in claims]


def _texts(lowest: Evidence, column: Any, tally: ScoreAccumulator, claim: Claim) -> list[int]:
    at = tally.layers.index(claim.layer), tally.heads.index(claim.head)
    return [shown.text for shown in lowest.of(column, *at)]


def examples_table(claims: Sequence[Claim], examples: PairExamples) -> bytes:
    """A Parquet file with a row for each example of the page, in positions, without the texts."""
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


def _shares(tally: ScoreAccumulator) -> dict[str, np.ndarray]:
    """Mean shares of attention by name; those that are scored as roles only, by their mass."""
    found = {}
    for kind in ("mass", "mean"):
        found |= {spec.name: m.mean for spec, m in tally.moments.items() if spec.kind == kind}
    return found


def _effects(folders: Sequence[Path], corpus: ScoredCorpus) -> MeasuredEffects:
    """The numbers that other reports hold for the heads of a side."""
    tally, facts = corpus.tally, corpus.facts
    digests, here = digests_of(facts), Path("this report")
    ours = ReportNumbers("", here, str(facts["model"]), digests, {}, {}, facts)
    values: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
    reports = [read_head_numbers(folder) for folder in folders]
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
        settings, metric = facts["settings"], facts["metric"]
        return (
            f"patch: growth of the {metric['name']} of {len(metric['pairs']):,} pairs where the "
            f"head is patched ({settings['site']}, {settings['direction']}); "
            f"{metric['clean']:.4f} on clean texts, {metric['corrupted']:.4f} on corrupted ones."
        )
    return f"{report.command}: from {report.folder.name}."


def _command(heads: ReportedHeads, corpus: ScoredCorpus) -> str:
    """The command that would measure what heads are worth."""
    texts = "TEXTS" if heads.texts is None or heads.texts.annotated else heads.texts.names
    model = shlex.quote(str(corpus.facts["model"]))
    return f"flaxattn ablate {texts} --model {model} --out report-ablate"
