# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn store info|verify|merge|export`: parses, calls, prints. It reads no file itself."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flaxattn.commands.options import numbers

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_Store = Annotated[Path, typer.Argument(help="Folder that `flaxattn extract` wrote.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
_Out = Annotated[Path, typer.Option("--output-dir", "-o", "--out", help="Output folder.")]
_DAMAGED = 1


@app.callback()
def store() -> None:
    """Inspect, verify, merge and export stored attention."""


@app.command()
def info(
    store: _Store,
    example: Annotated[
        int | None, typer.Option(help="Number of a text whose tokens are shown.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Describe a store, or one of its texts.

    Example: flaxattn store info STORE --example 0

    Example: flaxattn store info STORE --json
    """
    from flaxattn.store.open_store import open_store
    from flaxattn.store.verify_store import describe, describe_text

    opened = open_store(store)
    facts = describe(opened) if example is None else describe_text(opened, example)
    _print_result(facts, as_json, str(store) if example is None else f"example {example}")


@app.command()
def verify(
    store: _Store,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Accept a store whose job is not finished.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Read every byte of a store and name what is damaged or missing.

    The exit code is 1 if a file is damaged or a shard of the plan is missing.

    Example: flaxattn store verify STORE

    Example: flaxattn store verify STORE --json
    """
    from flaxattn.files import readable_size
    from flaxattn.pipeline.progress_reporter import BYTES, ProgressReporter
    from flaxattn.store.verify_store import shard_sizes
    from flaxattn.store.verify_store import verify as find

    sizes = list(shard_sizes(store).values())
    with ProgressReporter() as progress:
        progress.announce(f"{_extent(sizes)}: every byte is read and compared with its checksum")
        progress.expect("verifying", sum(sizes), BYTES)
        found = find(store, progress)
    if as_json:
        damage = [entry._asdict() for entry in found.damage]
        typer.echo(json.dumps({**found._asdict(), "damage": damage}, indent=2))
    else:
        table = Table("file", "damage")
        for entry in found.damage:
            table.add_row(_shown(entry.file), _shown(entry.what))
        if found.damage:
            _console().print(table)
        verdict = f"{len(found.damage)} damaged" if found.damage else "all are as written"
        shards = f"{found.shards} of {found.shards + len(found.missing)} shards"
        typer.echo(f"{shards}, {readable_size(found.bytes)} in {found.files} files: {verdict}")
        if found.nonfinite:
            typer.echo(
                f"{found.nonfinite:,} rows of attention are NaN or infinite, as they were stored"
            )
        if found.missing:
            typer.echo(_missing(found.missing, unfinished))
    if found.damage or (found.missing and not unfinished):
        raise typer.Exit(_DAMAGED)


def _missing(shards: list[int], accepted: bool) -> str:
    """Sentence about the shards that are not there, with what to do about them."""
    from flaxattn.store.store_layout import shard_name

    names = ", ".join(shard_name(number) for number in shards[:6])
    more = f" and {len(shards) - 6} more" if len(shards) > 6 else ""
    facts = f"missing: {names}{more}"
    if accepted:
        return facts
    return f"{facts}; run the same `flaxattn extract` again, or pass --unfinished to accept this"


@app.command()
def merge(
    stores: Annotated[list[Path], typer.Argument(help="Stores of the same plan.")],
    out: _Out,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy files instead of linking them.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Merge stores of one plan, such as those of `--shard i/N`.

    Example: flaxattn store merge PART-0 PART-1 -o STORE

    Example: flaxattn store merge PART-0 PART-1 --copy -o STORE
    """
    from flaxattn.pipeline.progress_reporter import BYTES, ProgressReporter
    from flaxattn.store.merge_stores import check_sources
    from flaxattn.store.merge_stores import merge as put_together
    from flaxattn.store.verify_store import shard_sizes

    check_sources(stores, out, copy=copy)
    sizes = [size for path in stores for size in shard_sizes(path).values()]
    how = "copied" if copy else "linked where the disk allows it, or copied"
    with ProgressReporter() as progress:
        progress.announce(
            f"{_extent(sizes)} of {len(stores)} stores: every byte is read and compared with its "
            f"checksum, and files are {how}"
        )
        progress.expect("merging", sum(sizes), BYTES)
        found = put_together(stores, out, copy=copy, watch=progress)
    if as_json:
        typer.echo(json.dumps(found._asdict()))
        return
    typer.echo(f"wrote {out.resolve()} with {found.shards} shards")
    if found.missing:
        typer.echo(f"shards that are missing: {len(found.missing)}; run `flaxattn extract` on it")


@app.command()
def export(
    store: _Store,
    out: _Out,
    form: Annotated[
        str, typer.Option("--format", help="Format: npz, npy, bertviz or csv.")
    ] = "npz",
    examples: Annotated[
        str | None, typer.Option(help="Texts to export, such as 0,5-9; default all.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Export attention as npz, npy, BertViz input or CSV.

    npy files hold the tuples of Hugging Face.

    Example: flaxattn store export STORE --format npz -o ARRAYS

    Example: flaxattn store export STORE --format csv --examples 0 -o TABLES
    """
    from flaxattn.pipeline.progress_reporter import ProgressReporter
    from flaxattn.store.export import export as write
    from flaxattn.store.export import exported_shards
    from flaxattn.store.open_store import open_store
    from flaxattn.store.verify_store import shard_sizes

    opened, chosen = open_store(store), numbers(examples, "--examples")
    every = shard_sizes(store)
    sizes = [every[number] for number in exported_shards(opened, form, chosen)]
    count = len(opened) if chosen is None else len(chosen)
    with ProgressReporter() as progress:
        progress.announce(f"{count:,} texts of {_extent(sizes)}: written to {out} as {form}")
        progress.expect("exporting", count, "texts")
        names = write(opened, out, form, chosen, progress)
    if as_json:
        typer.echo(json.dumps({"out": str(out.resolve()), "files": names}, indent=1))
    else:
        typer.echo(f"wrote {len(names)} files to {out.resolve()}")


def _extent(sizes: Sequence[int]) -> str:
    """Number of shards, and of the bytes in them."""
    from flaxattn.files import readable_size

    return f"{len(sizes):,} shards, {readable_size(sum(sizes))}"


def _print_result(facts: dict[str, Any], as_json: bool, title: str) -> None:
    """Facts as JSON or as a table; lists of records as tables of their own."""
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    table = Table(title=_shown(title), show_header=False, title_justify="left")
    for name, value in facts.items():
        if not isinstance(value, list):
            table.add_row(_shown(name), _shown(str(value)))
    _console().print(table)
    for name, rows in facts.items():
        if isinstance(rows, list) and rows:
            table = Table(title=_shown(name), title_justify="left")
            for column in rows[0]:
                table.add_column(_shown(column))
            for row in rows:
                table.add_row(*(_shown("" if v is None else str(v)) for v in row.values()))
            _console().print(table)


def _console() -> Console:
    return Console(soft_wrap=False, highlight=False)


def _shown(text: str) -> Text:
    """Text that is neither markup nor an order to the terminal."""
    from flaxattn.files import printable

    return Text(printable(text))
