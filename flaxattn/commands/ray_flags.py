# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Options of commands that can give their work to a Ray cluster.

What they do is in `flaxattn.store.ray_session.RayOptions`.
"""

import dataclasses
from typing import Annotated, Any

import typer


@dataclasses.dataclass(frozen=True)
class RayFlags:
    """The engine of a command, and options of the engine ray; their help is in their types."""

    engine: Annotated[
        str, typer.Option(help="Engine: local, or ray for the workers of a Ray cluster.")
    ] = "local"
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of a cluster's head, auto, or local; default $RAY_ADDRESS, else local."
        ),
    ] = None
    ray_workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of Ray workers; default one for each GPU, or each machine."
        ),
    ] = None
    ray_gpus: Annotated[
        int | None,
        typer.Option(
            min=0, help="GPUs of each worker; default 1 where there are any; 0 uses the CPU."
        ),
    ] = None
    ray_cpus: Annotated[
        float | None, typer.Option(min=0, help="CPUs of each worker, as Ray counts; default 1.")
    ] = None
    ray_logs: Annotated[bool, typer.Option("--ray-logs", help="Show Ray's own messages.")] = False

    @property
    def options(self) -> dict[str, Any]:
        """The options of Ray that were typed, as `ray_options` of `extract_to`."""
        values = {name.removeprefix("ray_"): value for name, value in vars(self).items()}
        del values["engine"]
        return {
            name: value
            for name, value in values.items()
            if value is not None and value is not False
        }

    def leave_accelerators(self) -> None:
        """Run this process on the CPU where its accelerators belong to Ray's workers."""
        if self.engine != "local":
            import jax

            jax.config.update("jax_platforms", "cpu")
