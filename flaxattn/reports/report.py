# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A report: what was measured over texts, as facts, a table, figures and a page.

The JSON file, the figure and the page of a report are named after it; the names of its other files
are here. `flaxattn.measures.read_report` reads the JSON file again.
"""

import dataclasses
import functools
import io
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flaxattn import __version__
from flaxattn.errors import InputError
from flaxattn.files import json_digest, sha256_of, written_whole
from flaxattn.measures.read_report import is_report
from flaxattn.trace.result_table import ResultTable

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from flaxattn.views.page import Page

HEADS, LAYERS = "heads.parquet", "layers.parquet"
SCORES, EVIDENCE, EXAMPLES = "scores.parquet", "evidence.parquet", "examples.parquet"
LIKENESS, DISTANCES, LIKENESS_MAP = "likeness.parquet", "distances.parquet", "likeness.png"
COMPOSITION, COMPOSED = "composition.parquet", "composition.png"
PAIRS, CORRELATIONS = "pairs.parquet", "correlations.parquet"
GRID, OVERLAP = "role-grid.png", "role-overlap.png"
CURVE, FITTED = "curve.png", "probe.safetensors"
WEIGHT_KINDS = (
    "attention",
    "norm",
    "effective",
    "gradient",
    "zeroing",
    "relevance",
    "chefer",
    "rollout",
    "flow",
)
"""Kinds of attribution maps that `weights` measures; `flow` takes long."""
_ORIGIN = ("model", "settings", "data", "seed")


def facts_file(name: str) -> str:
    """Name of the JSON file."""
    return f"{name}.json"


def table_file(name: str) -> str:
    """Name of the table of a report whose rows are not those of `HEADS`."""
    return f"{name}.parquet"


def figure_file(name: str) -> str:
    """Name of the figure."""
    return f"{name}.png"


def page_file(name: str) -> str:
    """Name of the page."""
    return f"{name}.html"


_BESIDE = {
    "ablate": (table_file("ablate"), EVIDENCE, CURVE, page_file("ablate")),
    "circuits": (table_file("circuits"), COMPOSITION, COMPOSED),
    "faithfulness": (table_file("faithfulness"),),
    "compare": (table_file("compare"), EVIDENCE, page_file("compare")),
    "heads": (HEADS, CORRELATIONS),
    "patch": (table_file("patch"), PAIRS, EVIDENCE, page_file("patch")),
    "probe": (HEADS, LAYERS, SCORES, EVIDENCE, FITTED, page_file("probe")),
    "roles": (HEADS, EVIDENCE, EXAMPLES, GRID, OVERLAP, page_file("roles")),
    "stats": (HEADS, EVIDENCE, EXAMPLES, LIKENESS, DISTANCES, LIKENESS_MAP, page_file("stats")),
    "weights": (HEADS,),
}
REPORT_FILES = {  # every file that a report may have, by its name
    name: (facts_file(name), figure_file(name), *others) for name, others in _BESIDE.items()
}


@dataclasses.dataclass(frozen=True, repr=False)
class Report(ResultTable):
    """Results of a measurement over texts. In a notebook it shows its page, or else its table.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> report = fa.stats_report(model, ["The cat is very sad."], compared=0)
    >>> report.facts["texts"], report.table.num_columns
    (1, 9)

    Attributes:
        name: Name of the report and of its files, such as `compare`.
        facts: Model, settings, data, seed and results, ready for JSON; numbers that are not finite
            become None when they are written.
        rows: The table, by columns or by rows.
        figures: What draws each figure, by file name, the most important first.
        files: Content of further files, by name.
        draw_page: Makes the page, once; None where there is none.
        table_name: File name of the table.
        page_files: What makes each file that comes with the page, once that is made, by name.
        result: The numbers as the function that measures them returns them, such as `Roles`; None
            where there is no such function.
    """

    name: str
    facts: Mapping[str, Any]
    rows: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
    figures: "Mapping[str, Callable[[], Figure]]"
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    draw_page: "Callable[[], Page] | None" = None
    table_name: str = HEADS
    page_files: Mapping[str, Callable[[], bytes]] = dataclasses.field(default_factory=dict)
    result: Any = None

    @functools.cached_property
    def table(self) -> "pa.Table":
        """The rows as an Arrow table, in which NaN and infinity are null."""
        import pyarrow as pa

        if isinstance(self.rows, Mapping):
            return pa.table({name: without_nan(values) for name, values in self.rows.items()})
        return pa.Table.from_pylist([finite(row) for row in self.rows])

    @property
    def figure(self) -> "Figure":
        """The most important figure, drawn anew."""
        return next(iter(self.figures.values()))()

    @functools.cached_property
    def page(self) -> "Page | None":
        """The page, made on first use; None where there is none."""
        return None if self.draw_page is None else self.draw_page()

    def to_columns(self) -> dict[str, list[Any]]:
        """The table by columns, in which NaN and infinity are None."""
        return self.table.to_pydict()

    def save(
        self, folder: str | os.PathLike[str], *, overwrite: bool = False, page: bool = True
    ) -> list[Path]:
        """Write all files of the report, or none of them.

        Args:
            folder: Created where absent; its other files are left alone.
            overwrite: Whether to replace a report that the folder holds already.
            page: Whether to write the page.

        Returns:
            The files that were written: JSON, table, figures, page and others.

        Raises:
            InputError: If the folder holds a report and `overwrite` is false.
            CheckpointError: If a file cannot be written; the folder is then as it was.
        """
        path = Path(folder)
        held = reports_in(path)
        if held and not overwrite:
            raise InputError(
                f"{path} holds a report already: {facts_file(held[0])}\n"
                "name another folder, or replace that report with overwrite=True"
            )
        return write_report(self if page else dataclasses.replace(self, draw_page=None), path, {})

    def _repr_html_(self) -> str | None:
        page = self.page
        return super()._repr_html_() if page is None else page._repr_html_()


def write_report(
    report: Report, folder: Path, request: Mapping[str, Any], mode: int = 0o666
) -> list[Path]:
    """Write a report whole, or leave the folder as it was; stale files of others are removed."""
    import matplotlib.pyplot as plt
    import pyarrow.parquet as pq

    name, facts = facts_file(report.name), {"flaxattn": __version__, **report.facts}
    origin = {key: facts[key] for key in ("flaxattn", *_ORIGIN) if key in facts}
    facts["request"] = dict(request)
    table = report.table.replace_schema_metadata({"flaxattn": json_text(origin)})
    files, page = dict(report.files), report.page
    if page is not None:
        files[page_file(report.name)] = page.html.encode()
        files |= {file: content() for file, content in report.page_files.items()}
    with written_whole(folder, name, mode=mode) as staging:
        pq.write_table(
            table, staging / report.table_name, compression="zstd", write_page_checksum=True
        )
        for file, draw in report.figures.items():
            figure = draw()
            figure.savefig(staging / file, dpi=150)
            plt.close(figure)
        for file, content in files.items():
            (staging / file).write_bytes(content)
        facts["files"] = {path.name: sha256_of(path) for path in sorted(staging.iterdir())}
        facts["sha256"] = json_digest(json.loads(json_text(facts)))
        (staging / name).write_text(json_text(facts) + "\n", encoding="utf-8")
    written = [folder / file for file in (name, report.table_name, *report.figures, *files)]
    for other in reports_in(folder):
        for stale in {folder / file for file in REPORT_FILES[other]}.difference(written):
            stale.unlink(missing_ok=True)
    return written


def reports_in(folder: Path) -> list[str]:
    """Names of the reports that a folder holds."""
    return [name for name in REPORT_FILES if is_report(folder / facts_file(name))]


def without_nan(values: Any) -> "pa.Array[Any]":
    """A column of a table, in which NaN and infinity are null."""
    import numpy as np
    import pyarrow as pa

    column = pa.array(values)
    if not pa.types.is_floating(column.type):
        return column
    numbers = column.to_numpy(zero_copy_only=False)
    return pa.array(numbers, column.type, mask=~np.isfinite(numbers))


def json_text(facts: Any) -> str:
    """Facts as JSON, in which NaN and infinity are null."""
    return json.dumps(finite(facts), indent=2, default=str, allow_nan=False)


def finite(value: Any) -> Any:
    """Facts for JSON, in which NaN and infinity are null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return value


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
