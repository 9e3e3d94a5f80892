# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Files of a report: JSON with everything that is needed to get it again, tables and figures."""

import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from flaxattn import __version__
from flaxattn.commands.report_layout import HEADS, facts_file
from flaxattn.commands.report_run import ReportRun
from flaxattn.files import json_digest, sha256_of, written_whole

_NAMED = 6  # heads that are listed where many are broken

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

_ORIGIN = ("model", "settings", "data", "seed")


def write_report(
    report: ReportRun,
    said: Mapping[str, Any],
    rows: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    figures: "Mapping[str, Figure]",
    beside: Mapping[str, bytes] | None = None,
    table: str = HEADS,
) -> list[Path]:
    """Write the report whole, or leave the folder as it was."""
    import matplotlib.pyplot as plt
    import pyarrow as pa
    import pyarrow.parquet as pq

    report.check()
    report.progress("writing the report", 0)
    out, name = report.path, facts_file(report.command)
    facts = {"flaxattn": __version__, **said, "request": report.request}
    origin = {key: facts[key] for key in ("flaxattn", *_ORIGIN) if key in facts}
    if isinstance(rows, Mapping):
        columns = pa.table({column: without_nan(values) for column, values in rows.items()})
    else:
        columns = pa.Table.from_pylist([finite(row) for row in rows])
    columns = columns.replace_schema_metadata({"flaxattn": json_text(origin)})
    with written_whole(out, name, mode=report.mode()) as folder:
        pq.write_table(columns, folder / table, compression="zstd", write_page_checksum=True)
        for file, figure in figures.items():
            figure.savefig(folder / file, dpi=150)
            plt.close(figure)
        for file, content in (beside or {}).items():
            (folder / file).write_bytes(content)
        facts["files"] = {path.name: sha256_of(path) for path in sorted(folder.iterdir())}
        facts["sha256"] = json_digest(json.loads(json_text(facts)))
        (folder / name).write_text(json_text(facts) + "\n", encoding="utf-8")
    report.progress.finish()
    written = [out / file for file in (name, table, *figures, *(beside or {}))]
    report.remove_stale(written)
    return written


def without_nan(values: Any) -> "pa.Array[Any]":
    """A column of a table, in which nan and infinity are null."""
    import numpy as np
    import pyarrow as pa

    column = pa.array(values)
    if not pa.types.is_floating(column.type):
        return column
    numbers = column.to_numpy(zero_copy_only=False)
    return pa.array(numbers, column.type, mask=~np.isfinite(numbers))


def cell(value: float, form: str) -> str:
    """A number in a printed table; blank where it is nan or infinite."""
    return format(value, form) if math.isfinite(value) else ""


def print_nonfinite(said: Mapping[str, Any]) -> None:
    """Print how many heads have blank cells because their attention is NaN or infinite."""
    if broken := said.get("nonfinite"):
        some = ", ".join(f"{row['layer']}.{row['head']}" for row in broken[:_NAMED])
        more = f" and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
        typer.echo(
            f"the attention of these heads is NaN or infinite on some texts: {some}{more}\n"
            "their numbers leave these texts out; cells are blank where no text is left"
        )


def json_text(facts: Any) -> str:
    """Facts as JSON, in which nan and infinity are null."""
    return json.dumps(finite(facts), indent=2, default=str, allow_nan=False)


def finite(value: Any) -> Any:
    """The same for JSON, in which nan and infinity are null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return value


def described(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Name, size and digest of the files that are there, for a report."""
    there = [path for path in paths if path.is_file()]
    return [{"name": p.name, "bytes": p.stat().st_size, "sha256": sha256_of(p)} for p in there]


def print_left_out(said: Mapping[str, Any]) -> None:
    """Print how many texts were left out, by the code of the problem."""
    for code, count in said["left_out"].items():
        typer.echo(f"left out: {code}: {count}")


def print_files(files: Sequence[Path]) -> None:
    """Print what was written."""
    console = Console(highlight=False, soft_wrap=True)
    for path in files:
        console.print(f"wrote {path.resolve()}", markup=False)


def table_bytes(types: Mapping[str, Any], rows: Sequence[Sequence[Any]]) -> bytes:
    """Write rows as a Parquet file with checksums."""
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) or [() for _ in types]
    arrays = [pa.array(c, t) for c, t in zip(columns, types.values(), strict=True)]
    return columns_bytes(dict(zip(types, arrays, strict=True)))


def columns_bytes(columns: Mapping[str, Any]) -> bytes:
    """Write columns as a Parquet file with checksums."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, compression="zstd", write_page_checksum=True)
    return file.getvalue()
