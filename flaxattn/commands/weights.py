# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn weights`: parses, calls, prints. Everything heavy is imported when it runs."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from flaxattn.commands.head_request import (
    Architecture,
    LabelColumn,
    Limit,
    Model,
    SecondColumn,
    TextColumn,
)
from flaxattn.commands.options import named
from flaxattn.commands.report_run import Out, Overwrite, ReportRun, print_files
from flaxattn.reports.report import WEIGHT_KINDS

_DEFAULT = ",".join(WEIGHT_KINDS[:-1])
_SHOWN = ("first", "special", "own", "previous", "next", "entropy")


def weights(
    context: typer.Context,
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...", help="Texts as for extract; - reads standard input."),
    ],
    out: Out = Path("report-weights"),
    model: Model = "tiny-bert",
    head: Architecture = None,
    kinds: Annotated[
        str,
        typer.Option(help=f"Kinds of maps, separated by commas, of {', '.join(WEIGHT_KINDS)}."),
    ] = _DEFAULT,
    text_column: TextColumn = "text",
    pair_column: SecondColumn = None,
    label_column: LabelColumn = None,
    limit: Limit = None,
    on_error: Annotated[str, typer.Option(help="Rows that cannot be used: fail or skip.")] = "fail",
    seed: Annotated[
        int, typer.Option(help="Random seed of the tokens that a masked model has to predict.")
    ] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Compute attribution maps: norms, relevance, rollout.

    Writes weights.json with means over texts and what is not defined for the model, heads.parquet
    with a row for each text, kind, side, layer and head, and weights.png. A head of -1 stands for
    all heads of a layer together, a layer of -1 for all layers.

    Example: flaxattn weights corpus.txt --limit 20 --kinds norm,rollout -o WEIGHTS

    Example: flaxattn weights dev.csv --model RUN/model --label-column label
    """
    from flaxattn.commands.ablate import model_head
    from flaxattn.commands.text_corpus import read_corpus
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.reports import weights as report_weights

    chosen = named(kinds, WEIGHT_KINDS, "--kinds")
    run = ReportRun.begin(context, "weights")
    run.progress("reading texts", 0)
    columns = text_column, pair_column, label_column
    corpus = read_corpus(inputs, columns, limit, on_error, run.path)
    run.progress(f"loading {model}", 0)
    loaded = from_pretrained(model, head=model_head(model, head))
    report = report_weights.weights(
        loaded,
        corpus.texts,
        corpus.second,
        kinds=chosen,
        labels=corpus.labels,
        seed=seed,
        data=corpus.source,
    )
    files = run.save(report)
    _print_result(report.facts["heads"], report.facts["refused"], files)


def _cell(name: str, values: list[float]) -> str:
    if not values:
        return ""
    return f"{np.mean(values):.2f}" if name == "entropy" else f"{np.mean(values):.0%}"


def _print_result(means: list[dict[str, Any]], refused: dict[str, str], files: list[Path]) -> None:
    table = Table(title="Attribution maps: means over heads and texts")
    for name in ("kind", "side", *_SHOWN):
        table.add_column(name, justify="left" if name in ("kind", "side") else "right")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in means:
        groups.setdefault((row["kind"], row["side"]), []).append(row)
    for key, members in groups.items():
        known = {n: [r[n] for r in members if not np.isnan(r[n])] for n in _SHOWN}
        table.add_row(*key, *(_cell(name, known[name]) for name in _SHOWN))
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    for kind, reason in refused.items():
        console.print(f"{kind}: {reason}", markup=False)
    print_files(files)
