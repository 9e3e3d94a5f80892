# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The options that every command under `flaxattn train` has, with their help.

Types, what is made of them, and what every command says at its end; no command.
"""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from flaxattn.train.run_folder import RunFolder

Out = Annotated[
    Path | None, typer.Option(help="Run directory; the model is written to its model/.")
]
Config = Annotated[
    Path | None, typer.Option(help="Recipe as YAML, or the name of one that comes with flaxattn.")
]
Change = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting, such as steps=1000; repeat for several."),
]
OnError = Annotated[
    str | None, typer.Option(help="Rows that cannot be used: fail, skip or quarantine.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start again instead of resuming.")]
Fallback = Annotated[
    bool, typer.Option("--fallback", help="Resume from the checkpoint before a damaged one.")
]
AllowChanges = Annotated[
    bool, typer.Option("--allow-changes", help="Resume with another recipe or other data.")
]
TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Also write TensorBoard event files.")
]
PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Print the recipe without training.")
]
Distributed = Annotated[
    bool,
    typer.Option("--distributed", help="Join the processes of a cluster, which describes itself."),
]
Coordinator = Annotated[
    str | None, typer.Option(help="Address:port of process 0, of several processes.")
]
Processes = Annotated[int | None, typer.Option(help="Number of processes.")]
Process = Annotated[int | None, typer.Option(help="Number of this process, from 0.")]


def required(name: str, value: object) -> None:
    """Refuse a command without an option that it needs.

    Raises:
        typer.BadParameter: the value is None or empty.
    """
    if not value:
        raise typer.BadParameter("it is missing; see the example below --help", param_hint=name)


def run_folder(
    out: Path | None, fresh: bool, fallback: bool, allow_changes: bool, tensorboard: bool
) -> "RunFolder":
    """The run's folder, with what to do about an earlier run in it."""
    from flaxattn.train.run_folder import RunFolder

    required("--out", out)
    assert out is not None
    return RunFolder(
        out, fresh=fresh, fallback=fallback, allow_changes=allow_changes, tensorboard=tensorboard
    )


def changes(change: list[str] | None, **named: object) -> list[str]:
    """The pairs of `--set`, and then those of options with names of their own that were given."""
    return [*(change or []), *(f"{name}={value!r}" for name, value in named.items() if value)]


def join_hosts(
    distributed: bool, coordinator: str | None, processes: int | None, process: int | None
) -> None:
    """Become one of several processes, where the options say so; before jax is used."""
    from flaxattn.train.launch import Hosts, join

    join(Hosts(distributed, coordinator, processes, process))


def command_line() -> str:
    """The command as it was typed, for the model's card."""
    return shlex.join(["flaxattn", *sys.argv[1:]])


def print_end(summary: Mapping[str, Any], folder: "RunFolder") -> None:
    """Say how many rows were left out, and where the model is."""
    lost = summary["rows"]["rows"] - summary["rows"]["kept"]
    if lost:
        typer.echo(f"left out {lost} bad rows of {summary['rows']['rows']}")
    typer.echo(f"wrote {(folder.path / 'model').resolve()}")
