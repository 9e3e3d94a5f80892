# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Options of commands that can give their work to a Ray cluster, and what was typed of them.

What they do is in `flaxattn.store.ray_session.RayOptions`.
"""

from typing import Annotated, Any

import typer

Engine = Annotated[
    str, typer.Option(help="Engine: local, or ray for the workers of a Ray cluster.")
]
Address = Annotated[
    str | None,
    typer.Option(
        help="HOST:PORT of a cluster's head, auto, or local; default $RAY_ADDRESS, else local."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Number of Ray workers; default one for each GPU, or each machine."),
]
Gpus = Annotated[
    int | None,
    typer.Option(min=0, help="GPUs of each worker; default 1 where there are any; 0 uses the CPU."),
]
Cpus = Annotated[
    float | None, typer.Option(min=0, help="CPUs of each worker, as Ray counts; default 1.")
]
Logs = Annotated[bool, typer.Option("--ray-logs", help="Show Ray's own messages.")]


def given(
    address: str | None, workers: int | None, gpus: int | None, cpus: float | None, logs: bool
) -> dict[str, Any]:
    """The options that somebody typed, as `ray_options` of `extract_to`.

    Args:
        address: of the cluster.
        workers: how many.
        gpus: of each.
        cpus: of each.
        logs: whether Ray's messages are shown.
    """
    told = {"address": address, "workers": workers, "gpus": gpus, "cpus": cpus}
    found: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
    return {**found, "logs": True} if logs else found
