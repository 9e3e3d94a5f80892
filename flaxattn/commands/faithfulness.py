# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn faithfulness`: which attribution ranks the tokens that a prediction depends on.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from flaxattn.commands.head_request import (
    Architecture,
    AsJson,
    LabelColumn,
    Limit,
    Model,
    SecondColumn,
    TextColumn,
    Truncate,
)
from flaxattn.commands.options import named
from flaxattn.commands.report_run import Out, Overwrite, ReportRun

_SMALLEST = 0.001  # p-values below it are printed as below it


def faithfulness(
    context: typer.Context,
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...", help="Texts as for extract; - reads standard input."),
    ],
    out: Out = Path("report-faithfulness"),
    model: Model = "tiny-bert",
    head: Architecture = None,
    kinds: Annotated[
        str | None,
        typer.Option(
            help="Attributions to rank, separated by commas, of attention, rollout, flow, norm, "
            "effective, gradient, zeroing, relevance, chefer, input_gradient, integrated, random; "
            "default all but flow and zeroing, which take long."
        ),
    ] = None,
    text_column: TextColumn = "text",
    pair_column: SecondColumn = None,
    label_column: LabelColumn = None,
    steps: Annotated[int, typer.Option(min=2, help="Number of steps of a curve.")] = 10,
    scale: Annotated[
        str, typer.Option(help="Scale of the curves: probability, or log for log-probability.")
    ] = "probability",
    random_orders: Annotated[
        int, typer.Option(min=1, help="Number of random orders for each text.")
    ] = 5,
    limit: Limit = None,
    truncate: Truncate = False,
    on_error: Annotated[str, typer.Option(help="Rows that cannot be used: fail or skip.")] = "fail",
    seed: Annotated[
        int, typer.Option(help="Random seed of random orders and of the tokens that are predicted.")
    ] = 0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Rank attributions by what is predicted without their tokens.

    Writes faithfulness.json with the ranking of kinds (areas under the curves, bootstrap intervals,
    paired tests against random order corrected by Holm's method), faithfulness.parquet with the
    areas of each kind and text, and faithfulness.png with the curves.

    Example: flaxattn faithfulness corpus.txt --limit 20 -o FAITHFUL

    Example: flaxattn faithfulness corpus.txt --model tiny-gpt2 --kinds attention,random
    """
    from flaxattn.attribution.faithfulness import DEFAULT_KINDS, KINDS
    from flaxattn.commands.ablate import model_head
    from flaxattn.commands.report_run import print_files
    from flaxattn.commands.text_corpus import read_corpus
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.reports.faithfulness import faithfulness_report

    chosen = named(kinds, KINDS, "--kinds") if kinds is not None else list(DEFAULT_KINDS)
    run = ReportRun.begin(context, "faithfulness")
    run.progress("reading texts", 0)
    columns = text_column, pair_column, label_column
    corpus = read_corpus(inputs, columns, limit, on_error, run.path)
    run.progress(f"loading {model}", 0)
    loaded = from_pretrained(model, head=model_head(model, head))
    report = faithfulness_report(
        loaded,
        corpus.texts,
        corpus.second,
        kinds=chosen,
        labels=corpus.labels,
        steps=steps,
        scale=scale,
        random_orders=random_orders,
        truncate=truncate,
        seed=seed,
        data=corpus.source,
    )
    if files := run.finish(report, as_json):
        _print_result(report.facts)
        print_files(files)


def _print_result(facts: Mapping[str, Any]) -> None:
    table = Table(title=f"Faithfulness of attributions: means over {facts['texts']:,} texts")
    for name in ("kind", "gap", "95 % interval", "deletion", "insertion", "p"):
        table.add_column(name, justify="left" if name == "kind" else "right", no_wrap=True)
    for row in facts["ranking"]:
        ends = "" if np.isnan(row["low"]) else f"{row['low']:.3f} to {row['high']:.3f}"
        p = "" if np.isnan(row["p"]) else f"{row['p']:.3f}"
        p = f"<{_SMALLEST}" if row["p"] < _SMALLEST else p
        areas = [f"{row[name]:.3f}" for name in ("deletion", "insertion")]
        table.add_row(row["kind"], f"{row['gap']:.3f}", ends, *areas, p)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    for kind, reason in facts["refused"].items():
        console.print(f"{kind} is left out: {reason}", markup=False)
