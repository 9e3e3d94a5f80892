# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Shared parts of commands that judge heads: the corpus they read and the folder they write.

A report is a JSON file with everything that is needed to get it again, a Parquet table with a row
for each head, and a figure; all of them or none.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from rich.console import Console

from flaxattn import __version__
from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.input_files import find_inputs, fingerprint
from flaxattn.corpus.rows import read_rows, text_of
from flaxattn.errors import InputError
from flaxattn.files import written_whole
from flaxattn.measures.score_terms import ScoreSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

_NAMED = 6  # numbers that are listed where many are missing


class TextCorpus(NamedTuple):
    """Texts that were read from files.

    Attributes:
        texts: At least one.
        second: The second text of each pair, where a column of them was named.
        labels: Number of the class of each, where a column of them was named.
        source: Names, sizes and digests of the files, and how many rows were used.
    """

    texts: list[str]
    second: list[str] | None
    labels: list[int] | None
    source: dict[str, Any]


def read_corpus(
    inputs: Sequence[str],
    columns: Sequence[str | None],
    limit: int | None,
    on_error: str,
) -> TextCorpus:
    """The texts of some files.

    Args:
        inputs: Paths, patterns or folders, as `flaxattn extract` takes them.
        columns: Names of the columns of the text, of the second text and of the label; None for
            none.
        limit: Most texts.
        on_error: What to do with a row that cannot be used: `fail` or `skip`.

    Raises:
        InputError: If a row cannot be used, or there is none.
    """
    text, pair, label = columns
    wanted = [name for name in columns if name is not None]
    files, bad = find_inputs(inputs), BadRows(on_error)
    found: list[tuple[str, str | None, int | None]] = []
    for file in files:
        if len(found) == limit:
            break
        if file.problem:
            bad.report(file.problem)
            continue
        for row in read_rows(file.path, wanted, bad, kind=file.kind):
            values = [text_of(row, name, bad) if name else None for name in (text, pair)]
            number = _label(row, label, bad)
            parts = [values[0], "" if pair is None else values[1], 0 if label is None else number]
            if None in parts:
                continue
            found.append((str(values[0]), values[1], number))
            if len(found) == limit:
                break
    if not found:
        raise InputError(
            f"There is no text in {', '.join(map(str, inputs))}.\nName files with one in each row."
        )
    prints = [mark._asdict() for mark in fingerprint(files)]
    source = {"files": prints, "texts": len(found), "left_out": dict(bad.counts)}
    seconds = None if pair is None else [str(row[1]) for row in found]
    labels = None if label is None else [int(row[2] or 0) for row in found]
    return TextCorpus([row[0] for row in found], seconds, labels, source)


def _label(row: Any, column: str | None, bad: BadRows) -> int | None:
    """The number of a class; CSV and TSV have it as text."""
    if column is None:
        return None
    value = row.values[column]
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    message = "expected the number of a class, from 0"
    bad.report(Problem(row.file, row.line, column, "label", message, excerpt(value)))
    return None


def write_report(
    folder: Path,
    name: str,
    settings: Mapping[str, Any],
    corpus: TextCorpus,
    results: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    figures: Mapping[str, "Figure"],
    beside: Mapping[str, bytes] | None = None,
) -> str:
    """Write NAME.json, NAME.parquet and the figures.

    Args:
        folder: Made where absent; files of these names are replaced, all of them or none.
        name: What the report is of.
        settings: Everything that was asked for, the seed too.
        corpus: What was read.
        results: What was found.
        rows: A row for each head.
        figures: By name of their file.
        beside: Content of other files, by name.

    Returns:
        What is in NAME.json.

    Raises:
        CheckpointError: If it cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    told = {
        "flaxattn": __version__,
        "settings": dict(settings),
        "data": corpus.source,
        **results,
        "heads": [dict(row) for row in rows],
    }
    text = json.dumps(finite(told), indent=2, allow_nan=False) + "\n"
    facts = {"flaxattn": json.dumps(finite({**told, "heads": len(rows)}), allow_nan=False)}
    table = pa.Table.from_pylist([finite(row) for row in rows]).replace_schema_metadata(facts)
    with written_whole(folder, last=f"{name}.json") as draft:
        for file, figure in figures.items():
            figure.savefig(draft / file, dpi=150)
        pq.write_table(table, draft / f"{name}.parquet")
        for file, content in (beside or {}).items():
            (draft / file).write_bytes(content)
        (draft / f"{name}.json").write_text(text, encoding="utf-8")
    return text


def refusals(refused: Mapping[ScoreSpec, str]) -> dict[str, list[str]]:
    """Numbers that a store does not tell, by the request that would have recorded them.

    Args:
        refused: Requests by column.
    """
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
    """Print a report, as JSON or as a table with what to know about it.

    Args:
        said: All of it.
        table: What a person looks at first.
        warnings: What to know before it is believed.
        files: Where it was written.
        as_json: Whether a program reads it.
    """
    if as_json:
        typer.echo(json.dumps(finite(said), indent=2, default=str))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    lengths = said["lengths"]
    console.print(
        f"{said['texts']:,} texts of {lengths['least']:.0f} to {lengths['most']:.0f} positions, "
        f"{lengths['mean']:.1f} on average"
    )
    for count in said["left_out"].items():
        console.print("left out: {}: {}".format(*count))
    for request, names in said["refused"].items():
        some = ", ".join(names[:_NAMED]) + (
            f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)
        )
        console.print(f"not in this store, {request} would hold it: {some}", markup=False)
    for warning in warnings:
        console.print(warning, markup=False)
    for path in files:
        console.print(f"wrote {path.resolve()}", markup=False)


def finite(value: Any) -> Any:
    """The same for JSON, in which nan and infinity are null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return value
