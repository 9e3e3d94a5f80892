# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Print reports: a table, what was left out, and the files that were written."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from rich.table import Table

_NAMED = 6  # numbers or heads that are listed where there are many


def tell(
    facts: Mapping[str, Any],
    table: "Table",
    warnings: Sequence[str],
    files: Sequence[Path],
) -> None:
    """Print a report as a table with what to know about it."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    lengths = facts["lengths"]
    console.print(
        f"{facts['texts']:,} texts of {lengths['least']:.0f} to {lengths['most']:.0f} positions, "
        f"{lengths['mean']:.1f} on average"
    )
    print_left_out(facts)
    print_nonfinite(facts)
    for request, names in facts["refused"].items():
        some = ", ".join(names[:_NAMED]) + (
            f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)
        )
        console.print(f"not in this store, {request} would hold it: {some}", markup=False)
    for warning in warnings:
        console.print(warning, markup=False)
    print_files(files)


def cell(value: float, form: str) -> str:
    """A number in a printed table; blank where it is nan or infinite."""
    return format(value, form) if math.isfinite(value) else ""


def print_nonfinite(facts: Mapping[str, Any]) -> None:
    """Print how many heads have blank cells because their attention is NaN or infinite."""
    if broken := facts.get("nonfinite"):
        some = ", ".join(f"{row['layer']}.{row['head']}" for row in broken[:_NAMED])
        more = f" and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
        typer.echo(
            f"the attention of these heads is NaN or infinite on some texts: {some}{more}\n"
            "their numbers leave these texts out; cells are blank where no text is left"
        )


def print_left_out(facts: Mapping[str, Any]) -> None:
    """Print how many texts were left out, by the code of the problem."""
    for code, count in facts["left_out"].items():
        typer.echo(f"left out: {code}: {count}")


def print_files(files: Sequence[Path]) -> None:
    """Print what was written."""
    console = Console(highlight=False, soft_wrap=True)
    for path in files:
        console.print(f"wrote {path.resolve()}", markup=False)
