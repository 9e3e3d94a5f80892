# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn circuits`: what heads copy, match and compose with, from weights alone.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from flaxattn.commands.head_request import AllowNonfinite, Architecture, AsJson, Model
from flaxattn.commands.options import numbers
from flaxattn.commands.report_run import Out, Overwrite, ReportRun, cell, print_files

if TYPE_CHECKING:
    from flaxattn.measures.circuit_scores import HeadCircuits

_SHOWN = ("copying", "matching", "prefix_matching", "previous")
_PRINTED = 8  # pairs of heads


def circuits(
    context: typer.Context,
    out: Out = Path("report-circuits"),
    model: Model = "tiny-gpt2",
    head: Architecture = None,
    distances: Annotated[
        str | None,
        typer.Option(
            help="Distances, query minus key, of rotary positions, such as 0-8,16; "
            "default 0 to 8, 16, 32 and 64."
        ),
    ] = None,
    positions: Annotated[
        int, typer.Option(min=2, help="Number of positions whose preference is measured.")
    ] = 256,
    centred: Annotated[
        bool,
        typer.Option(
            "--centred", help="Take the mean over the vocabulary from the embeddings first."
        ),
    ] = False,
    kind: Annotated[
        str, typer.Option(help="Composition that the figure shows: query, key or value.")
    ] = "key",
    edges: Annotated[
        int, typer.Option(min=1, help="Number of pairs of heads in the figure and the JSON file.")
    ] = 24,
    drawings: Annotated[
        int, typer.Option(min=2, help="Number of pairs of random heads that are compared with.")
    ] = 20,
    seed: Annotated[int, typer.Option(help="Random seed of the pairs.")] = 0,
    allow_nonfinite: AllowNonfinite = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Score copying and composition of heads from their weights.

    No text is read. The report is a folder with circuits.json, circuits.parquet (a row for each
    head), composition.parquet (a row for each pair of heads), circuits.png and composition.png.

    Example: flaxattn circuits --model tiny-gpt2 -o CIRCUITS

    Example: flaxattn circuits --model RUN/model --kind query --centred -o CIRCUITS
    """
    from flaxattn.measures.circuit_scores import KINDS
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.reports.circuits import circuits_report

    if kind not in KINDS:
        raise typer.BadParameter(f"choose one of {', '.join(KINDS)}.", param_hint="--kind")
    chosen = numbers(distances, "--distances", negative=True)
    run = ReportRun.begin(context, "circuits")
    run.progress(f"loading {model}", 0)
    loaded = from_pretrained(model, head=head)
    run.progress("computing circuits", 0)
    report = circuits_report(
        loaded,
        distances=chosen,
        positions=positions,
        centred=centred,
        kind=kind,
        edges=edges,
        drawings=drawings,
        seed=seed,
        allow_nonfinite=allow_nonfinite,
    )
    if files := run.finish(report, as_json):
        _print_result(report.result, report.facts["composition"][kind], kind, files)


def _print_result(
    found: "HeadCircuits", edges: Sequence[Mapping[str, Any]], kind: str, files: Sequence[Path]
) -> None:
    """Print the heads with the highest score of each kind, and the pairs that compose most."""
    console = Console(highlight=False, soft_wrap=True)
    table = Table(title=f"Circuits of {found.model}: the highest scores of heads, from weights")
    for name in ("score", "heads"):
        table.add_column(name)
    rows = found.rows()
    for name in _SHOWN:
        known = [row for row in rows if cell(row[name], ".2f")]
        best = sorted(known, key=lambda row: -row[name])[:_PRINTED]
        heads = (f"{row['side']} {row['layer']}.{row['head']} {row[name]:.2f}" for row in best)
        table.add_row(name.replace("_", " "), ", ".join(heads))
    console.print(table)
    for row in edges[:_PRINTED]:
        ends = (
            f"{row[end]} {row[f'{end}_layer']}.{row[f'{end}_head']}" for end in ("writer", "reader")
        )
        console.print(
            f"{kind} composition {' to '.join(ends)}: {row['score']:.3f}, random "
            f"{found.expected:.3f}"
        )
    print_files(files)
