# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn stats`: parses, calls, prints. Everything heavy is imported when it runs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from flaxattn.commands.head_request import AsJson, StatsRequest
from flaxattn.commands.options import with_options

if TYPE_CHECKING:
    from flaxattn.measures.scores import ScoreAccumulator

_HEADINGS = {  # shorter ones, for a table of 80 columns
    "previous": "prev.",
    "punctuation": "punct.",
    "delimiter": "delim.",
    "diagonal": "diag.",
}
_SHOWN = ("next", "previous", "own", "cls", "sep", "punctuation")
_OTHER_SIDES = ("first", "delimiter", "diagonal", "end", "copy")


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
            min=0, help="Number of texts on which heads are compared with each other; 0 skips it."
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

    Example: flaxattn stats STORE --side encoder -o STATS
    """
    from flaxattn.commands.report_run import ReportRun, print_report
    from flaxattn.commands.text_corpus import head_source
    from flaxattn.reports.stats import stats_report

    run = ReportRun.begin(context, "stats")
    source, texts = head_source(request, run.progress)
    report = stats_report(source, texts, seed=seed, compared=compared, **request.reported())
    if files := run.finish(report, as_json):
        print_report(report.facts, _table(report.result), _patterns(report.facts["labels"]), files)


def _table(tally: "ScoreAccumulator") -> Table:
    from flaxattn.commands.report_run import cell

    means = {spec.name: m.mean for spec, m in tally.moments.items() if spec.kind == "mean"}
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
