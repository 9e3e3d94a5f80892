# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Report where every head looks, and which heads are alike: `stats_report`."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.claims import Claim, label_column, measure_claims
from flaxattn.measures.head_pairs import (
    Pairs,
    head_pairs,
    pairs_of,
    variability,
    variability_interval,
)
from flaxattn.measures.head_roles import Source, Texts, TextSource, Trees
from flaxattn.measures.head_similarity import head_map, likeness_of
from flaxattn.measures.patterns import head_patterns
from flaxattn.measures.score_source import ScoredCorpus
from flaxattn.measures.scores import ScoreAccumulator
from flaxattn.measures.specs import ScoreOptions
from flaxattn.pipeline.progress_reporter import reporting
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.reports.evidence import (
    DEFAULT_PAGE,
    PageOptions,
    evidence_facts,
    evidence_table,
    numbers_of,
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
    without_nan,
)
from flaxattn.reports.scored_heads import (
    ReportedHeads,
    claims_page,
    examples_table,
    head_pages,
    refusals,
    rows_of,
)
from flaxattn.store.open_store import Store
from flaxattn.views.evidence_page import EvidenceReport
from flaxattn.views.figures.plot_head_numbers import plot_head_map, plot_head_values
from flaxattn.views.figures.plot_roles import plot_head_means
from flaxattn.views.page import Page
from flaxattn.views.payloads.head_pages import HeadPages, Nearness

_SHARES = ("next", "previous", "own", "cls", "sep", "punctuation", "own segment", "other segment")
_OTHER_SIDES = ("first", "delimiter", "diagonal", "end", "copy")
_OTHERS = ("entropy", "distance", "max", "sum_sq")
_DRAWN = (*_SHARES, *_OTHER_SIDES, "dependency")
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
    shares = {name: means[name] for name in _DRAWN if name in means}
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
