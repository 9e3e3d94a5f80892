# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Options of every command under `flaxattn train`: recipe, run directory, processes of a run."""

import dataclasses
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from flaxattn.errors import InputError

if TYPE_CHECKING:
    from flaxattn.train.recipe import Recipe
    from flaxattn.train.run_folder import RunFolder

R = TypeVar("R", bound="Recipe")
FILES_HELP = "Text, JSONL or Parquet files, also .gz."
# A host that is silent for so long is taken for dead; the others then end with an error.
_HEARTBEAT_SECONDS = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of every training command; their help is in their types."""

    out: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            "-o",
            "--out",
            help="Run directory; the model is written to its model/.",
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(help="Recipe as YAML, or the name of one that comes with flaxattn."),
    ] = None
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting, such as steps=1000; repeat for several."),
    ] = None
    on_error: Annotated[
        str | None, typer.Option(help="Rows that cannot be used: fail, skip or quarantine.")
    ] = None
    fresh: Annotated[bool, typer.Option("--fresh", help="Start again instead of resuming.")] = False
    fallback: Annotated[
        bool, typer.Option("--fallback", help="Resume from the checkpoint before a damaged one.")
    ] = False
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Resume with another recipe or other data.")
    ] = False
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard event files.")
    ] = False
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the recipe without training.")
    ] = False
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed", help="Join the other processes, as SLURM, TPU or MPI describe them."
        ),
    ] = False
    coordinator: Annotated[
        str | None, typer.Option(help="Address:port of process 0, for a run of several processes.")
    ] = None
    processes: Annotated[int | None, typer.Option(help="Number of processes of the run.")] = None
    process: Annotated[int | None, typer.Option(help="Index of this process, from 0.")] = None

    def begin(self, kind: type[R], data: object, **named: object) -> tuple[R, "RunFolder"]:
        """Return the recipe and the run's folder; with `--print-config`, print it and end."""
        from flaxattn.train.run_folder import RunFolder
        from flaxattn.train.settings import read_recipe, to_yaml

        named = {"on_error": self.on_error, **named}
        recipe = read_recipe(kind, self.config, self.change or (), named)
        if self.print_config:
            typer.echo(to_yaml(recipe), nl=False)
            raise typer.Exit
        for name, value in {"--out": self.out, "--data": data}.items():
            if not value:
                raise typer.BadParameter("it is required, and was not given.", param_hint=name)
        assert self.out is not None
        folder = RunFolder(
            self.out,
            fresh=self.fresh,
            fallback=self.fallback,
            allow_changes=self.allow_changes,
            tensorboard=self.tensorboard,
        )
        self.join_processes()  # before jax is used
        return recipe, folder

    def join_processes(self) -> None:
        """Connect to the other processes of the run; does nothing where there are none.

        `--distributed` alone asks the cluster (SLURM, Cloud TPU, Kubernetes, MPI) for them. From
        then on `jax.devices()` are the devices of all hosts.
        """
        options = (self.coordinator, self.processes, self.process)
        if not self.distributed and options == (None, None, None):
            return
        if None in options and options != (None, None, None):
            raise InputError(
                "--coordinator, --processes and --process belong together\n"
                f"received coordinator {options[0]}, processes {options[1]}, process {options[2]}\n"
                "give all three, or --distributed alone where the cluster sets them"
            )
        import jax

        try:
            jax.distributed.initialize(
                *options, heartbeat_timeout_seconds=_HEARTBEAT_SECONDS, initialization_timeout=120
            )
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"cannot join the other processes\n{str(error).splitlines()[0][:200]}\n"
                "check --coordinator, and that all processes were started"
            ) from error


def command_line() -> str:
    """The command as it was typed, for the model's card."""
    return shlex.join(["flaxattn", *sys.argv[1:]])


def print_end(summary: Mapping[str, Any], folder: "RunFolder") -> None:
    """Print how many rows were left out, and where the model is."""
    lost = summary["rows"]["rows"] - summary["rows"]["kept"]
    if lost:
        typer.echo(f"left out {lost} bad rows of {summary['rows']['rows']}")
    typer.echo(f"wrote {(folder.path / 'model').resolve()}")
