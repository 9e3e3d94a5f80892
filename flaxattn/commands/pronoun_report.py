# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The report of `flaxattn probe --pronouns`: which head knows best whom pronouns mean."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from flaxattn.commands.probe_reader import Files, Reader

if TYPE_CHECKING:
    from flaxattn.heads.coreference import Coreference, Resolver


def report_pronouns(
    reader: Reader, files: tuple[Files, Files], form: str, out: Path, as_json: bool
) -> None:
    """Ask every head whom pronouns mean, write probe.json, heads.parquet and probe.png, and print.

    Args:
        reader: Reads them.
        files: Those to judge on, and those to choose the head on; without, on the same ones.
        form: See `corpus.pronouns.read_pronouns`.
        out: Folder of the report.
        as_json: Whether a program reads what is printed.

    Raises:
        InputError: If there is no pronoun to judge.
    """
    from flaxattn.commands.head_corpus import write_report
    from flaxattn.figures.roles import plot_head_means
    from flaxattn.heads.coreference import Coreference

    other = Coreference.of(reader.pronouns(files[1], form)) if files[1].paths else None
    found = Coreference.of(reader.pronouns(files[0], form))
    best = found.best(other)
    said = {
        "model": reader.name,
        "pronouns": form,
        "data": [each.facts() for each in files],
        "left out": reader.left_out,
        "mean neither": found.neither,
        "heads chosen on": "other pronouns" if other else "the same pronouns, which flatters",
        "groups": [one._asdict() | {"lift": one.lift} for one in best],
    }
    means = {way: found.accuracy(way) for group, way in found.hits if not group}
    figure = plot_head_means(found.layers, found.heads, means, "share of pronouns it is right for")
    written = write_report(out, "probe", said, _rows(found), figure)
    _tell(said, best, written, as_json)


def _rows(found: "Coreference") -> dict[str, list[Any]]:
    """One row per group, direction and head: columns of heads.parquet."""
    names = ("group", "direction", "layer", "head", "count", "accuracy", "baseline")
    rows: dict[str, list[Any]] = {name: [] for name in names}
    for group, direction in found.hits:
        shares, baseline = found.accuracy(direction, group), found.baseline(group)[1]
        for i, j in np.ndindex(shares.shape):
            where = (group, direction, found.layers[i], found.heads[j], found.counts[group])
            for name, value in zip(names, (*where, float(shares[i, j]), baseline), strict=True):
                rows[name].append(value)
    return rows


def _tell(said: dict[str, Any], best: "list[Resolver]", files: list[Path], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(said, indent=2, default=str))
        return
    console = Console(highlight=False, soft_wrap=True)
    one = best[0]
    title = f"Whom pronouns mean by head {one.layer}.{one.head}, {one.direction}"
    table = Table(title=title, caption=f"chosen on {said['heads chosen on']}")
    table.add_column("group", no_wrap=True)
    for name in ("pronouns", "right", "baseline", "lift"):
        table.add_column(name, justify="right")
    for one in best:
        baseline = f"{one.baseline} {one.baseline_accuracy:.1%}"
        name = one.group or "all"
        table.add_row(name, str(one.pronouns), f"{one.accuracy:.1%}", baseline, f"{one.lift:+.1f}")
    console.print(table)
    for count in said["left out"].items():
        console.print("left out: {}: {}".format(*count))
    for path in files:
        console.print(f"wrote {path.resolve()}", markup=False)
