# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Report where every head looks, and which heads are alike: `stats_report`.

Scores of heads, the rows of a report and the page of each head are made here for `roles` too.
Scores are defined in `flaxattn.measures`, pages are made in `flaxattn.views`, and examples are
chosen in `flaxattn.measures.gold_pairs`.
"""

import dataclasses
import functools
import itertools
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.input_files import describe_files
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.claims import (
    Claim,
    Evidence,
    claim_columns,
    head_patterns,
    label_column,
    measure_claims,
)
from flaxattn.measures.gold_pairs import OUTCOMES, PairExamples
from flaxattn.measures.head_roles import (
    Source,
    Texts,
    TextSource,
    Trees,
    open_source,
    resolve_source,
    text_source,
    tree_paths,
)
from flaxattn.measures.head_similarity import (
    Pairs,
    head_map,
    head_pairs,
    likeness_of,
    pairs_of,
    variability,
    variability_interval,
)
from flaxattn.measures.read_report import (
    ReportNumbers,
    check_same_model,
    digests_of,
    read_head_numbers,
    report_labels,
)
from flaxattn.measures.role_tests import Roles
from flaxattn.measures.score_source import ScoredCorpus, ScoreSource, collect
from flaxattn.measures.scores import ScoreAccumulator, intervals
from flaxattn.measures.specs import ScoreOptions, ScoreSpec
from flaxattn.pipeline.progress_reporter import ProgressReporter, reporting
from flaxattn.pipeline.tokenize_texts import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.reports.evidence import (
    DEFAULT_PAGE,
    PageOptions,
    corpus_gold,
    evidence_facts,
    evidence_table,
    numbers_of,
    report_page,
)
from flaxattn.reports.report import (
    DISTANCES,
    EVIDENCE,
    EXAMPLES,
    LIKENESS,
    LIKENESS_MAP,
    Report,
    columns_bytes,
    figure_file,
    table_bytes,
    without_nan,
)
from flaxattn.store.open_store import Store
from flaxattn.trace.trace import Trace
from flaxattn.views.evidence_page import EvidenceReport
from flaxattn.views.figures.plot_head_numbers import plot_head_map, plot_head_values
from flaxattn.views.figures.plot_roles import plot_head_means
from flaxattn.views.page import Page
from flaxattn.views.payloads.report_payload import HeadPages, MeasuredEffects, Nearness

_SHARES = ("next", "previous", "own", "cls", "sep", "punctuation", "own segment", "other segment")
_OTHER_SIDES = ("first", "delimiter", "diagonal", "end", "copy")
_OTHERS = ("entropy", "distance", "max", "sum_sq")

_EVIDENCE = ("mean", "pattern", "strongest", "hit")
_GROUPS = 8
_NEEDS = "Capture(weights=True)"  # of a store


@check_arguments(1)
def stats_report(
    source: Source,
    texts: Texts | TextSource | None = None,
    *,
    side: str | None = None,
    trees: Trees = (),
    seed: int = 0,
    reading: ReadingOptions = DEFAULTS,
    compared: int = 100,
    page: PageOptions = DEFAULT_PAGE,
) -> Report:
    """Report where every head looks and how sharply, with the texts that show it.

    As `flaxattn stats` does. `head_stats` returns the numbers alone.

    Cost: one pass over the texts, one over those on which heads are compared, and one over those
    on the page, once that is made.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> report = fa.stats_report(model, ["The cat is very sad.", "It could not find food."])
    >>> report.result.moments["mean", "next"].mean.shape  # layers, heads
    (4, 4)
    >>> sorted(path.name for path in report.save("STATS"))[-2:]
    ['stats.json', 'stats.png']

    Args:
        source: See `head_stats`.
        texts: See `head_stats`.
        side: `encoder`, `decoder` or `cross`; default cross-attention where there is any.
        trees: CoNLL-U file or files with the trees of a store's texts, in their order.
        seed: Random seed of unrelated words and of the bootstrap.
        reading: How texts are read.
        compared: Number of texts on which all heads are compared with each other; 0 leaves the
            comparison out.
        page: How much evidence is kept, and shown on the page.

    Returns:
        A report with a row for each head and number (mean, standard deviation, 95 % interval), a
        figure, and a page with the texts that show each claim and a page for each head; `result`
        is what `head_stats` returns.

    Raises:
        InputError: See `head_stats`; and for a store without a statistic whose mean describes a
            head.
    """
    with reporting() as shown:
        options = ScoreOptions(seed=seed)
        heads = ReportedHeads.of(source, texts, options, side, trees, reading, shown)
        corpus = heads.scores(_EVIDENCE, page.evidence)
        tally = corpus.tally
        means = {spec.name: m.mean for spec, m in tally.moments.items() if spec.kind == "mean"}
        if not means:
            raise InputError(
                f"{heads.name} holds no statistic whose mean describes a head\n"
                "extract again with weights, or with entropy, distance, max, sum_sq and received"
            )
        known = head_patterns(tally) if not corpus.refused else []
        claims = measure_claims(tally, known, corpus.evidence)
        likeness = _compared(heads, corpus, compared)
    rows = rows_of(corpus, seed=seed)
    pages = head_pages(heads, corpus, claims, "mean", rows, page.other_reports, likeness.nearness)
    annotated = {"annotated": heads.options.annotated}
    facts = {
        **corpus.facts,
        "seed": seed,
        "likeness": likeness.facts,
        "settings": {**heads.settings, **annotated, "evidence": page.evidence},
        "labels": [label._asdict() for label in known],
        "refused": refusals(corpus.refused),
        "evidence": evidence_facts(claims, corpus.texts),
    }
    return Report(
        "stats",
        facts,
        rows,
        {figure_file("stats"): functools.partial(_figure, tally, means), **likeness.figures},
        {EVIDENCE: evidence_table(claims), **likeness.files},
        functools.partial(_page, heads, corpus, means, claims, pages, page.sentences),
        page_files={EXAMPLES: functools.partial(examples_table, claims, pages.examples)},
        result=tally,
    )


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

    source: Pretrained | Store | list[Trace]
    texts: Texts | TextSource | None
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
        opened, files = resolve_source(source), tuple(tree_paths(trees))
        if isinstance(opened, Pretrained) and texts is not None:
            texts = texts if isinstance(texts, TextSource) else text_source(texts)
            options = dataclasses.replace(options, annotated=texts.annotated)
        else:
            options = dataclasses.replace(options, annotated=bool(files))
        reading = dataclasses.replace(reading, watch=progress)
        return cls(opened, texts, options, side, files, reading, progress)

    @property
    def name(self) -> str:
        """Name of the store, or of the model, for messages."""
        if isinstance(self.source, Store):
            return str(self.source.path)
        return self.source.name if isinstance(self.source, Pretrained) else "the traces"

    @property
    def settings(self) -> dict[str, Any]:
        """Options of reading as JSON."""
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
        texts = (
            self.texts.read(reading.problems) if isinstance(self.texts, TextSource) else iter(())
        )
        return texts, reading

    def _describe(self, source: ScoreSource) -> int | None:
        """Add to the facts where scores come from; return the number of texts."""
        limit = self.reading.limit
        if isinstance(self.source, Store):
            data = [{"name": self.source.path.name, "plan_sha256": self.source.plan_sha256}]
            source.facts["data"] = data + describe_files(self.trees)
            source.facts["fingerprint"] = dict(self.source.plan["model"])
            count = len(self.source)
        elif isinstance(self.source, list):
            count = len(self.source)
            source.facts |= {"model": self.source[0].model or "traces", "data": {"texts": count}}
        else:
            assert isinstance(self.texts, TextSource)  # `open_source` refuses a model without texts
            source.facts["data"] = self.texts.describe()
            count = self.texts.count
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


def _page(
    heads: ReportedHeads,
    corpus: ScoredCorpus,
    means: dict[str, np.ndarray],
    claims: list[Claim],
    pages: HeadPages,
    sentences: int,
) -> Page:
    tally, facts = corpus.tally, corpus.facts
    values = dict(means)
    for name in dict.fromkeys(claim.name for claim in claims):
        column = label_column(name)
        if column is not None and column in tally.moments:
            values[name] = tally.moments[column].mean
    about = (
        f"Means over {facts['texts']:,} texts of {facts['lengths']['mean']:.1f} positions on "
        "average. Claims name the patterns that exceed our thresholds, and the heads with the "
        "largest value of each number."
    )
    numbers = numbers_of(tally, values, tally.side)
    title, model = "What heads look at", str(facts["model"])
    report = EvidenceReport(title, model, about, numbers, "mean", heads=pages)
    return claims_page(heads, corpus, claims, report, sentences)


def _figure(tally: ScoreAccumulator, means: dict[str, np.ndarray]) -> Any:
    shares = {name: means[name] for name in _COLUMNS if name in means}
    if shares:
        return plot_head_means(tally.layers, tally.heads, shares)
    return plot_head_values({n: means[n] for n in _OTHERS if n in means}, "mean", signed=False)


class HeadComparison(NamedTuple):
    """Part of a report.

    Attributes:
        facts: Ready for JSON.
        figures: What draws each figure, by file name.
        files: Content of further files, by name.
        nearness: Distances between all heads; None where they were not compared.
    """

    facts: dict[str, Any]
    figures: dict[str, Callable[[], Any]]
    files: dict[str, bytes]
    nearness: Nearness | None = None


def _compared(heads: ReportedHeads, corpus: ScoredCorpus, texts: int) -> HeadComparison:
    """Compare all heads of a side with each other on the first texts of a corpus."""
    if texts and _lacks_maps(heads, corpus.tally.side):
        return HeadComparison({"needs": _NEEDS}, {}, {})
    count = min(texts, heads.reading.limit or texts)
    pairs = _pairs(heads, count, corpus.tally.side) if texts else None
    if pairs is None:
        return HeadComparison({}, {}, {})
    heads.progress("grouping heads", 0)
    return _comparison(pairs)


def _lacks_maps(heads: ReportedHeads, side: str) -> bool:
    """Return whether the heads are those of a store that holds statistics alone."""
    if not isinstance(heads.source, Store):
        return False
    held = heads.source.shard(0).sides
    return side not in held or "weights" not in held[side]["arrays"]


def _pairs(heads: ReportedHeads, texts: int, side: str) -> Pairs | None:
    heads.progress.expect("comparing heads", texts)
    if not isinstance(heads.source, Pretrained):
        return pairs_of(itertools.islice(iter(heads.source), texts), side)
    given, reading = heads.again()
    reading = dataclasses.replace(reading, limit=texts)
    return head_pairs(heads.source, given, side=side, reading=reading)


def _comparison(pairs: Pairs) -> HeadComparison:
    if not np.isfinite(pairs.distances).all():
        return HeadComparison({"lacks": "heads whose attention is NaN or infinite"}, {}, {})
    likeness = likeness_of(pairs.distances, len(pairs.heads), _GROUPS)
    places = head_map(pairs.distances)
    varies = variability(pairs.beginnings)
    low, high = variability_interval(pairs.beginnings)
    without = variability(pairs.beginnings, exclude_first=True)
    rows = {
        "layer": pairs.layers,
        "head": pairs.heads,
        "x": places.points[:, 0],
        "y": places.points[:, 1],
        "group": likeness.groups,
        "place_in_order": np.argsort(likeness.order),
        "variability": varies,
        "low": low,
        "high": high,
        "variability_without_first": without,
    }
    names = [f"{layer}.{head}" for layer, head in zip(pairs.layers, pairs.heads, strict=True)]
    members = [np.flatnonzero(likeness.groups == g) for g in range(likeness.groups.max() + 1)]
    facts = {
        "texts": pairs.texts,
        "divergence_in_nats": pairs.by_layer(),
        "groups": [[names[i] for i in group] for group in members],
        "stress_of_the_map": places.stress,
        "variability": dict(zip(names, np.round(varies, 4).tolist(), strict=True)),
    }
    draw = functools.partial(plot_head_map, pairs.layers, pairs.heads, likeness, places)
    files = {
        name: columns_bytes({column: without_nan(values) for column, values in table.items()})
        for name, table in ((LIKENESS, rows), (DISTANCES, _distances(pairs)))
    }
    nearness = Nearness(pairs.distances, pairs.texts)
    return HeadComparison(facts, {LIKENESS_MAP: draw}, files, nearness)


def _distances(pairs: Pairs) -> dict[str, Any]:
    """One row for every two heads."""
    one, other = np.triu_indices(len(pairs.heads), 1)
    layers, heads = np.array(pairs.layers), np.array(pairs.heads)
    counts, mean, m2 = (part[one, other] for part in pairs.moments)
    spread = np.sqrt(m2 / np.maximum(counts - 1, 1))
    return {
        "layer": layers[one],
        "head": heads[one],
        "other_layer": layers[other],
        "other_head": heads[other],
        "divergence": mean,
        "sd": np.where(counts > 1, spread, np.nan),
        "distance": pairs.distances,
    }


_QUANTILE = 1.959963984540054  # of the normal distribution, for an interval of 95 %
_LOWEST = 2  # texts with the lowest scores that are kept for each claim and head
_BY_BOOTSTRAP = "95 % interval of the mean over texts, by bootstrap"
_NORMAL = "95 % interval of the mean over texts, by the normal approximation"


def refusals(refused: Mapping[ScoreSpec, str]) -> dict[str, list[str]]:
    """Numbers that a store does not tell, by the request that would have recorded them."""
    found: dict[str, list[str]] = {}
    for column, request in refused.items():
        found.setdefault(f"Capture({request})", []).append(f"{column.kind}: {column.name}")
    return found


def rows_of(corpus: ScoredCorpus, roles: Roles | None = None, seed: int = 0) -> dict[str, Any]:
    """One row per head and number: columns of `heads.parquet`."""
    tally = corpus.tally
    rows: dict[str, Any] = dict(tally.to_columns())
    specs = sorted(tally.moments)
    if corpus.scores is None:
        error = _QUANTILE * rows["sd"] / np.sqrt(np.maximum(rows["texts"], 1))
        rows["low"], rows["high"] = rows["mean"] - error, rows["mean"] + error
    else:
        drawn = intervals(corpus.scores, seed=seed)
        for place, name in enumerate(("low", "high")):
            rows[name] = np.concatenate([drawn[spec][place].ravel() for spec in specs])
    if roles is not None:
        tests = [_tests(roles, spec) for spec in specs]
        for name in ("t", "p", "p_corrected", "found", "p_beyond"):
            rows[name] = [value for columns in tests for value in columns[name]]
    return rows


def _tests(roles: Roles, spec: ScoreSpec) -> dict[str, list[Any]]:
    """Results of the tests of a score of all heads; None for a score that is not tested."""
    blank: list[Any] = [None] * (len(roles.layers) * len(roles.heads))
    role = roles.roles.get(spec.name) if spec.kind == "score" else None
    if role is None:
        return dict.fromkeys(("t", "p", "p_corrected", "found", "p_beyond"), blank)
    return {
        "t": role.t.ravel().tolist(),
        "p": role.p.ravel().tolist(),
        "p_corrected": role.corrected.ravel().tolist(),
        "found": role.found.ravel().tolist(),
        "p_beyond": blank if role.beyond is None else role.beyond.ravel().tolist(),
    }


def head_pages(
    heads: ReportedHeads,
    corpus: ScoredCorpus,
    claims: Sequence[Claim],
    kind: str,
    rows: Mapping[str, Any],
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
        level=_NORMAL if corpus.scores is None else _BY_BOOTSTRAP,
        examples=PairExamples(claims),
        broken=tally.broken,
        nearness=nearness,
        effects=effects,
        command=_command(heads, corpus),
    )


def claims_page(
    heads: ReportedHeads,
    corpus: ScoredCorpus,
    claims: Sequence[Claim],
    report: EvidenceReport,
    sentences: int,
) -> Page:
    """The page of a report with the texts that show its claims best and least."""
    columns = claim_columns(claims, report.measured)
    gold = corpus_gold(corpus, columns, heads.options)
    tally, lowest = corpus.tally, corpus.lowest
    weak = [_texts(lowest, columns[claim.name], tally, claim) for claim in claims]
    return report_page(report, claims, corpus.traces, sentences, gold, weak)


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
    given = heads.texts
    texts = given.names if isinstance(given, TextSource) and not given.annotated else "TEXTS"
    model = shlex.quote(str(corpus.facts["model"]))
    return f"flaxattn ablate {texts} --model {model} --out report-ablate"


_COLUMNS = (*_SHARES, *_OTHER_SIDES, "dependency")
