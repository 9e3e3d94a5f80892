# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn stats`: parses, calls, prints. Everything heavy is imported when it runs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from flaxattn.commands.head_request import AsJson, Request, StatsRequest
from flaxattn.commands.option_groups import with_options
from flaxattn.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from flaxattn.measures.score_terms import ScoreOptions
    from flaxattn.measures.scored_corpus import ScoredCorpus
    from flaxattn.measures.scores import ScoreAccumulator
    from flaxattn.views.payloads.head_pages import HeadPages

_SHARES = ("next", "previous", "own", "cls", "sep", "punctuation", "own segment", "other segment")
_HEADINGS = {  # shorter ones, for a table of 80 columns
    "previous": "prev.",
    "punctuation": "punct.",
    "delimiter": "delim.",
    "diagonal": "diag.",
}
_SHOWN = ("next", "previous", "own", "cls", "sep", "punctuation")
_OTHER_SIDES = ("first", "delimiter", "diagonal", "end", "copy")
_OTHERS = ("entropy", "distance", "max", "sum_sq")
_DRAWN = (*_SHARES, *_OTHER_SIDES, "dependency")
_EVIDENCE = ("mean", "pattern", "strongest", "hit")


@with_options
def stats(
    context: typer.Context,
    request: StatsRequest,
    seed: Annotated[
        int, typer.Option(help="Random seed of unrelated words and of the bootstrap.")
    ] = 0,
    compared: Annotated[
        int,
        typer.Option(
            min=0, help="Number of texts on which all heads are compared with each other."
        ),
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Measure where every head looks, and how sharply.

    Writes stats.json, heads.parquet with every number and its interval, evidence.parquet with the
    texts that show each claim best, stats.png, and stats.html, a page with these texts and a page
    for each head (stats.html#head=1.0), whose examples are in examples.parquet; of heads beside
    each other likeness.png, a map and their distances, likeness.parquet with places, groups and
    variability, and distances.parquet with the divergence of every two heads.

    Example: flaxattn stats corpus.txt --model tiny-bert -o STATS
    """
    from flaxattn.commands.head_corpus import gathered, rows_of
    from flaxattn.commands.head_facts import examples_table, head_pages
    from flaxattn.commands.head_likeness import compared_heads
    from flaxattn.commands.head_page import evidence_facts, evidence_table
    from flaxattn.commands.head_report import refusals, tell
    from flaxattn.commands.report_files import write_report
    from flaxattn.commands.report_layout import EVIDENCE, EXAMPLES, figure_file, page_file
    from flaxattn.commands.report_run import ReportRun
    from flaxattn.measures.claims import measure_claims
    from flaxattn.measures.patterns import head_patterns
    from flaxattn.measures.score_terms import ScoreOptions

    run = ReportRun.begin(context, "stats")
    asked = ScoreOptions(annotated=request.annotated, seed=seed)
    corpus = gathered(request, asked, run.progress, _EVIDENCE)
    tally = corpus.tally
    means = {column.name: m.mean for column, m in tally.moments.items() if column.kind == "mean"}
    if not means:
        raise InputError(
            f"{request.inputs[0]} holds no statistic whose mean describes a head\n"
            "extract again: --stats entropy,distance,max,sum_sq,received, or --capture weights"
        )
    known = head_patterns(tally) if not corpus.refused else []
    claims = measure_claims(tally, known, corpus.evidence)
    settings = {"limit": request.limit, "lengths": request.range, "annotated": request.annotated}
    likeness = compared_heads(request, corpus, compared, run.progress)
    said = {
        **corpus.facts,
        "seed": seed,
        "likeness": likeness.facts,
        "settings": {**settings, "evidence": request.evidence},
        "labels": [label._asdict() for label in known],
        "refused": refusals(corpus.refused),
        "evidence": evidence_facts(claims, corpus.texts),
    }
    beside = {EVIDENCE: evidence_table(claims), **likeness.files}
    rows = rows_of(corpus, seed=seed)
    if request.page:
        pages = head_pages(request, corpus, claims, "mean", rows, likeness.nearness)
        beside[page_file(run.command)] = _page(request, corpus, means, claims, asked, pages)
        beside[EXAMPLES] = examples_table(claims, pages.examples)
    files = write_report(run, said, rows, {figure_file(run.command): _figure(tally, means)}, beside)
    tell(said, _table(tally, means), _patterns(said["labels"]), files, as_json)


def _page(
    request: Request,
    corpus: "ScoredCorpus",
    means: "dict[str, np.ndarray]",
    claims: list,
    asked: "ScoreOptions",
    pages: "HeadPages",
) -> bytes:
    from flaxattn.commands.head_facts import weakest
    from flaxattn.commands.head_page import corpus_gold, numbers_of, report_page
    from flaxattn.measures.claims import claim_columns, label_column
    from flaxattn.views.evidence_page import EvidenceReport

    tally, said = corpus.tally, corpus.facts
    values = dict(means)
    for name in dict.fromkeys(claim.name for claim in claims):
        column = label_column(name)
        if column is not None and column in tally.moments:
            values[name] = tally.moments[column].mean
    about = (
        f"Means over {said['texts']:,} texts of {said['lengths']['mean']:.1f} positions on average."
        " Claimed are patterns, by our thresholds, and of each number the heads with the most."
    )
    numbers = numbers_of(tally, values, tally.side)
    title, model = "What heads look at", str(said["model"])
    report = EvidenceReport(title, model, about, numbers, "mean", heads=pages)
    gold = corpus_gold(corpus, claim_columns(claims, "mean"), asked)
    weak = weakest(corpus, claims, "mean")
    return report_page(report, claims, corpus.traces, request.sentences, gold, weak)


def _figure(tally: "ScoreAccumulator", means: "dict[str, np.ndarray]") -> Any:
    from flaxattn.views.figures.plot_head_effects import plot_head_values
    from flaxattn.views.figures.plot_roles import plot_head_means

    shares = {name: means[name] for name in _DRAWN if name in means}
    if shares:
        return plot_head_means(tally.layers, tally.heads, shares)
    return plot_head_values({n: means[n] for n in _OTHERS if n in means}, "mean", signed=False)


def _table(tally: "ScoreAccumulator", means: "dict[str, np.ndarray]") -> Table:
    from flaxattn.commands.report_files import cell

    table = Table(
        title="Where heads look: shares of attention, mean over texts",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),  # so that it fits into 80 columns
    )
    table.add_column("head", justify="right", no_wrap=True, min_width=5)
    shares = [name for name in (*_SHOWN, *_OTHER_SIDES) if name in means]
    shown = [*shares, *(name for name in ("entropy", "distance") if name in means)]
    for name in shown:
        heading = _HEADINGS.get(name, name)
        table.add_column(heading, justify="right", overflow="fold", min_width=4)
    for i, layer in enumerate(tally.layers):
        for j, head in enumerate(tally.heads):
            cells = [cell(float(means[n][i, j]), ".0%" if n in shares else ".1f") for n in shown]
            table.add_row(f"{layer}.{head}", *cells)
    return table


def _patterns(labels: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each pattern of attention: the heads that have it, as layer.head."""
    heads: dict[str, list[str]] = {}
    for label in labels:
        heads.setdefault(label["label"], []).append(f"{label['layer']}.{label['head']}")
    return [f"pattern {name}: {' '.join(some)}" for name, some in heads.items()]
