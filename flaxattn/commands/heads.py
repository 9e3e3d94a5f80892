# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn heads`: numbers of several reports on the same heads, side by side.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from flaxattn.commands.head_request import Alpha, AsJson, Correction
from flaxattn.commands.report_run import Out, Overwrite, ReportRun, cell, print_files

if TYPE_CHECKING:
    from flaxattn.measures.head_concordance import HeadConcordance

_PRINTED = 12  # pairs of columns


def heads(
    context: typer.Context,
    reports: Annotated[
        list[Path],
        typer.Argument(
            metavar="REPORT...",
            help="Folders of reports of roles, stats, probe, ablate, patch, circuits or weights on "
            "one model.",
        ),
    ],
    out: Out = Path("report-heads"),
    columns: Annotated[
        list[str] | None,
        typer.Option(
            help="Pattern of the columns to compare, such as 'ablate:*'; repeat for more; default "
            "all."
        ),
    ] = None,
    side: Annotated[
        str | None,
        typer.Option(
            help="Attention to compare: encoder, decoder or cross; default the first that all "
            "reports have of cross, encoder and decoder."
        ),
    ] = None,
    draws: Annotated[
        int, typer.Option(min=1, help="Number of bootstrap samples, and of permutations.")
    ] = 1000,
    alpha: Alpha = 0.05,
    correction: Correction = "bh",
    seed: Annotated[int, typer.Option(help="Random seed of samples and permutations.")] = 0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Correlate scores, probes and effects of heads.

    The report is a folder with heads.json, heads.parquet (a row for each head, with all numbers
    side by side), correlations.parquet (a row for each pair of columns), and heads.png.

    Example: flaxattn heads report-roles report-ablate report-patch -o CONCORDANCE

    Example: flaxattn heads report-stats report-ablate --side encoder --draws 5000
    """
    from flaxattn.reports.heads import heads_report

    run = ReportRun.begin(context, "heads")
    run.progress("correlating columns", 0)
    report = heads_report(
        reports,
        columns=columns or (),
        side=side,
        draws=draws,
        alpha=alpha,
        correction=correction,
        seed=seed,
    )
    if files := run.finish(report, as_json):
        _print_result(report.result, alpha)
        print_files(files)


def _print_result(found: "HeadConcordance", alpha: float) -> None:
    """Print the pairs of columns of different reports that agree most."""
    rows = [row for row in found.rows() if not row["same_report"]]
    table = Table(title=f"Agreement of reports on {len(found.heads)} heads of {found.model}")
    for name in ("columns", "heads", "Spearman", "95 % interval", "p", "in layers"):
        table.add_column(name, justify="left" if name == "columns" else "right")
    for row in rows[:_PRINTED]:
        ends = [cell(row[f"spearman_{end}"], "+.2f") for end in ("low", "high")]
        table.add_row(
            f"{row['first']}\n{row['second']}",
            str(row["heads"]),
            cell(row["spearman"], "+.2f"),
            " to ".join(ends) if all(ends) else "",
            cell(row["p_corrected"], ".3f"),
            cell(row["p_within_layers"], ".3f"),
        )
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    if found.left_out:
        message = f"left out, since they do not vary: {', '.join(found.left_out)}"
        console.print(message, markup=False)
    sure = sum(row["p_corrected"] <= alpha for row in rows)
    console.print(
        f"{sure} of {len(rows)} pairs of columns of different reports agree or disagree beyond "
        f"chance (p at most {alpha:g}); in layers: p when heads trade places in their layer only"
    )
