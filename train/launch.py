# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Joining the other processes of a run that spans several.

One program for one device and for many hosts: a run calls `join` before anything touches a device,
and from then on `jax.devices()` are those of all hosts.
"""

import dataclasses

import jax

from flaxattn.errors import InputError

# A host that is not heard of for so long is taken for dead; the others then end with an error.
HEARTBEAT_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Processes that belong together.

    Attributes:
        distributed: whether there are several; alone, it asks the cluster (SLURM, Cloud TPU,
            Kubernetes, MPI) who they are.
        coordinator: address and port of process 0, where the cluster does not tell.
        processes: how many there are.
        process: number of this one, from 0.
    """

    distributed: bool = False
    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None


def join(hosts: Hosts) -> None:
    """Connect to the other processes; does nothing where there are none."""
    options = (hosts.coordinator, hosts.processes, hosts.process)
    if not hosts.distributed and options == (None, None, None):
        return
    if None in options and options != (None, None, None):
        raise InputError(
            "--coordinator, --processes and --process belong together\n"
            f"received coordinator {options[0]}, processes {options[1]}, process {options[2]}\n"
            "give all three, or --distributed alone where the cluster sets them"
        )
    try:
        jax.distributed.initialize(
            *options, heartbeat_timeout_seconds=HEARTBEAT_SECONDS, initialization_timeout=120
        )
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"cannot join the other processes\n{str(error).splitlines()[0][:200]}\n"
            "check --coordinator, and that all processes were started"
        ) from error
