# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The run of a command that writes a report: its folder, options, progress, and what it prints.

A report is recognised by its own JSON file, which holds the command's options and inputs.
"""

import dataclasses
import functools
import json
import math
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from flaxattn.errors import InputError
from flaxattn.files import check_folder, sha256_of
from flaxattn.measures.read_report import read_report
from flaxattn.pipeline.progress_reporter import ProgressReporter
from flaxattn.reports.report import Report, facts_file, reports_in, write_report
from flaxattn.store.store_layout import PLAN, is_store

if TYPE_CHECKING:
    from rich.table import Table


_PATHS = (
    "inputs",
    "pairs",
    "reports",
    "first",
    "second",
    "model",
    "trees",
    "train",
    "load",
    "facts",
)
_NOT_RESULTS = ("out", "overwrite", "as_json")  # options that change no number
_STDIN = "-"

Out = Annotated[
    Path, typer.Option("--output-dir", "-o", "--out", help="Output folder of the report.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the report of another run in --out.")
]


@dataclasses.dataclass(frozen=True)
class ReportRun:
    """The run of a command that writes a report.

    Attributes:
        path: Folder of the report.
        command: Name of the command, and of its JSON file.
        request: Options and inputs of the run, ready for JSON.
        overwrite: Whether the report of another run is replaced.
        stores: Folders among the inputs.
        page: Whether the page is written.
        progress: Shows how far the run is, until the report is written.
    """

    path: Path
    command: str
    request: Mapping[str, Any]
    overwrite: bool = False
    stores: tuple[Path, ...] = ()
    page: bool = True
    progress: ProgressReporter = dataclasses.field(default_factory=ProgressReporter)

    @classmethod
    def begin(cls, context: typer.Context, command: str) -> "ReportRun":
        """Begin the run of a command that was typed, and show its progress."""
        options = {k: v for k, v in context.params.items() if k not in _NOT_RESULTS}
        request = {k: _identity(v) if k in _PATHS else v for k, v in options.items()}
        plain = json.loads(json.dumps(request, default=str))
        folders = tuple(_stores([options.get(name) for name in _PATHS]))
        run = cls(
            Path(context.params["out"]),
            command,
            plain,
            context.params["overwrite"],
            folders,
            context.params.get("page", True),
        )
        run.check()
        check_folder(run.path)
        run.progress.start()
        context.call_on_close(run.progress.stop)
        return run

    def check(self) -> None:
        """Refuse a folder that holds the report of another run."""
        for name in () if self.overwrite else reports_in(self.path):
            difference = self._difference(name)
            if difference:
                raise self._refusal(name, difference, "this run would replace its files")

    def mode(self) -> int:
        """Most permissions of the report: those of the texts that it shows.

        They are those of standard input, which is kept beside it, and of the stores that it reads.
        """
        from flaxattn.corpus.input_files import kept_inputs, shared_mode
        from flaxattn.store.commit_shards import mode_of_texts

        mode = shared_mode(kept_inputs(self.path))
        return functools.reduce(operator.and_, map(mode_of_texts, self.stores), mode)

    def save(self, report: Report) -> list[Path]:
        """Write the report of this run whole, or leave the folder as it was."""
        self.check()
        self.progress("writing the report", 0)
        if not self.page:
            report = dataclasses.replace(report, draw_page=None)
        written = write_report(report, self.path, self.request, self.mode())
        self.progress.finish()
        return written

    def finish(self, report: Report, as_json: bool) -> list[Path]:
        """Write the report; where its JSON is printed instead of a table, return no file."""
        files = self.save(report)
        if as_json:
            typer.echo(files[0].read_text(encoding="utf-8"), nl=False)
            return []
        return files

    def _refusal(self, name: str, difference: str, consequence: str) -> InputError:
        return InputError(
            f"{self.path} holds a report already: {facts_file(name)} {difference}\n"
            f"{consequence}\n"
            "name another folder after --out, or replace that report with --overwrite"
        )

    def _difference(self, name: str) -> str:
        """Say how a report in the folder differs from this one; nothing if it is this one."""
        if name != self.command:
            return f"of flaxattn {name}"
        try:
            there = read_report(self.path / facts_file(name)).get("request")
        except InputError as error:
            damage = str(error).splitlines()[0]
            raise self._refusal(name, "of a run whose options are unknown", damage) from error
        if not isinstance(there, Mapping):
            return "of a run whose options are unknown"
        for key in self.request.keys() | there.keys():
            ours, theirs = self.request.get(key), there.get(key)
            if ours != theirs:
                option = (
                    key.upper()
                    if key in ("inputs", "pairs", "reports", "first", "second")
                    else f"--{key}"
                )
                return f"of another run, in which {option.replace('_', '-')} differs"
        piped = any(_is_piped(self.request.get(name)) for name in _PATHS)
        return "of another run, whose standard input is not known" if piped else ""


def _is_piped(value: Any) -> bool:
    """Return whether an input can be read only once, so that its digest is not known."""
    if isinstance(value, list):
        return any(_is_piped(part) for part in value)
    return value == _STDIN or (isinstance(value, dict) and value.get("files") == {})


def _stores(value: Any) -> Iterator[Path]:
    """Folders of stores among options."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from _stores(part)
    elif isinstance(value, str | Path) and is_store(value):
        yield Path(value)


def _identity(value: Any) -> Any:
    """Return what identifies an input: digests of files, the plan of a store."""
    if isinstance(value, list | tuple):
        return [_identity(part) for part in value]
    if not isinstance(value, str | Path) or not os.path.exists(value):
        return value
    path = Path(value)
    if path.is_file():
        return {"name": path.name, "sha256": sha256_of(path)}
    if is_store(path):
        return {"name": path.name, "plan_sha256": sha256_of(path / PLAN)}
    files = sorted(p for p in path.rglob("*") if p.is_file())
    return {"name": path.name, "files": {str(p.relative_to(path)): sha256_of(p) for p in files}}


_NAMED = 6  # numbers or heads that are listed where there are many


def print_report(
    facts: Mapping[str, Any],
    table: "Table",
    warnings: Sequence[str],
    files: Sequence[Path],
) -> None:
    """Print a report as a table with notes."""
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
        missing = _first_of(names)
        console.print(f"not in this store, {request} would hold it: {missing}", markup=False)
    for warning in warnings:
        console.print(warning, markup=False)
    print_files(files)


def cell(value: float, form: str) -> str:
    """A number in a printed table; blank where it is nan or infinite."""
    return format(value, form) if math.isfinite(value) else ""


def print_nonfinite(facts: Mapping[str, Any]) -> None:
    """Print how many heads have blank cells because their attention is NaN or infinite."""
    if broken := facts.get("nonfinite"):
        heads = _first_of([f"{row['layer']}.{row['head']}" for row in broken])
        typer.echo(
            f"the attention of these heads is NaN or infinite on some texts: {heads}\n"
            "their numbers leave these texts out; cells are blank where no text is left"
        )


def _first_of(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def print_left_out(facts: Mapping[str, Any]) -> None:
    """Print how many texts were left out, by the code of the problem."""
    for code, count in facts["left_out"].items():
        typer.echo(f"left out: {code}: {count}")


def print_files(files: Sequence[Path]) -> None:
    """Print the files that were written."""
    console = Console(highlight=False, soft_wrap=True)
    for path in files:
        console.print(f"wrote {path.resolve()}", markup=False)
