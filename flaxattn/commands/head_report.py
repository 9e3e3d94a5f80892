# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Printed reports of `flaxattn stats` and `roles`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from flaxattn.commands.report_files import (
    json_text,
    print_files,
    print_left_out,
    print_nonfinite,
)
from flaxattn.measures.score_terms import ScoreSpec

if TYPE_CHECKING:
    from rich.table import Table

_NAMED = 6  # numbers that are listed where many are missing


def refusals(refused: Mapping[ScoreSpec, str]) -> dict[str, list[str]]:
    """Numbers that a store does not tell, by the request that would have recorded them."""
    found: dict[str, list[str]] = {}
    for column, request in refused.items():
        found.setdefault(f"Capture({request})", []).append(f"{column.kind}: {column.name}")
    return found


def tell(
    said: Mapping[str, Any],
    table: "Table",
    warnings: Sequence[str],
    files: Sequence[Path],
    as_json: bool,
) -> None:
    """Print a report, as JSON or as a table with what to know about it."""
    if as_json:
        typer.echo(json_text(said))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    lengths = said["lengths"]
    console.print(
        f"{said['texts']:,} texts of {lengths['least']:.0f} to {lengths['most']:.0f} positions, "
        f"{lengths['mean']:.1f} on average"
    )
    print_left_out(said)
    print_nonfinite(said)
    for request, names in said["refused"].items():
        some = ", ".join(names[:_NAMED]) + (
            f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)
        )
        console.print(f"not in this store, {request} would hold it: {some}", markup=False)
    for warning in warnings:
        console.print(warning, markup=False)
    print_files(files)
