# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A connection to a Ray cluster, or a cluster on this machine, that leaves everything as it was.

Signals, standard output and Ray Data's settings belong to the caller; Ray takes hold of all three.
What a cluster is used for is not known here.
"""

import contextlib
import importlib
import io
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flaxattn.errors import InputError, UnavailableError

_PATIENCE = 10.0  # seconds that an address may take to answer; Ray itself waits for minutes
_OBJECTS = 2**27  # bytes of Ray's own memory on this machine: only numbers of shards go through it
_LOST_STARTING = 5  # workers in a row that may die before they are up
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0"}  # nothing is sent to anybody
_QUIET = {"RAY_BACKEND_LOG_LEVEL": "fatal"}


@dataclass(frozen=True)
class RayOptions:
    """The cluster to use, and the share of it.

    Attributes:
        address: `HOST:PORT` of its head; `auto`, the cluster that this machine is part of; or
            `local`, a cluster of this machine for the time of the job. By default what RAY_ADDRESS
            says, or else `local`.
        workers: how many; by default one for each of the cluster's GPUs, or for each machine.
        gpus: of each worker; by default 1 where the cluster has any. 0 keeps workers to the CPU.
        cpus: of each worker, as Ray counts them; jax takes what the machine has all the same.
        logs: whether Ray's own messages are shown, and those of its workers.
    """

    address: str | None = None
    workers: int | None = None
    gpus: int | None = None
    cpus: float = 1.0
    logs: bool = False

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("gpus", 0), ("cpus", 0)):
            value = getattr(self, name)
            whole = isinstance(value, int) or (name == "cpus" and isinstance(value, float))
            if value is not None and (not whole or not value >= least):
                kind = "a number" if name == "cpus" else "a whole number"
                raise InputError(f"{name} of Ray is {value!r}\nexpected {kind}, at least {least}")


class ClusterSize(NamedTuple):
    """Workers, and what Ray gives each of them.

    Attributes:
        workers: how many.
        gpus: of each.
        cpus: of each.
        on_cpu: whether a worker leaves accelerators alone: Ray hides none that it did not count.
    """

    workers: int
    gpus: int
    cpus: float
    on_cpu: bool = False


def size_of(nodes: Sequence[Mapping[str, Any]], options: RayOptions) -> ClusterSize:
    """Return the number of workers and the resources of each."""
    machines = [node["Resources"] for node in nodes if node["Alive"]]
    most = {kind: max((m.get(kind, 0) for m in machines), default=0) for kind in ("GPU", "CPU")}
    gpus = int(most["GPU"] >= 1) if options.gpus is None else options.gpus
    able = [m for m in machines if m.get("GPU", 0) >= gpus and m.get("CPU", 0) >= options.cpus]
    if not able:
        raise UnavailableError(
            f"no machine of the Ray cluster has {gpus} GPUs and {options.cpus:g} CPUs for a worker"
            f"\nof {len(machines)}, the largest has {most['GPU']:g} GPUs, {most['CPU']:g} CPUs\n"
            "ask for less, or add machines"
        )
    room = sum(_room(machine, gpus, options.cpus) for machine in able)
    return ClusterSize(options.workers or room, gpus, options.cpus, options.gpus == 0)


def _room(machine: Mapping[str, float], gpus: int, cpus: float) -> int:
    """Workers on one machine: one for its devices where no GPU is requested."""
    if not gpus:
        return 1
    by_cpu = machine["CPU"] // cpus if cpus else machine["GPU"]
    return int(min(machine["GPU"] // gpus, by_cpu))


@contextlib.contextmanager
def connected(options: RayOptions) -> Iterator[Any]:
    """Ray, connected until the block ends."""
    ray = _imported()
    if ray.is_initialized():
        if options.address:
            raise InputError(
                "this process is connected to Ray already\n"
                f"received address {options.address!r} as well\n"
                "leave the address out, or call ray.shutdown() before"
            )
        with _settings(ray, options.logs):
            yield ray
        return
    address = options.address or os.environ.get("RAY_ADDRESS") or "local"
    _reach(address)
    with _said_aside(options.logs), _settings(ray, options.logs):
        _connect(ray, address, options.logs)
        try:
            yield ray
        finally:
            with contextlib.redirect_stdout(sys.stderr if options.logs else io.StringIO()):
                ray.shutdown()


def _imported() -> Any:
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.data")
    except ImportError as error:
        raise UnavailableError(
            f"the engine ray needs Ray Data, which is not installed\n{error}\n"
            "pip install 'flaxattn[ray]'"
        ) from error
    return ray


def _reach(address: str) -> None:
    """See that somebody answers at an address."""
    if address in ("local", "auto"):
        return
    found = re.fullmatch(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})", address, re.ASCII)
    if not found:
        raise InputError(
            f"{address!r} is no address of a Ray cluster\n"
            "expected HOST:PORT of its head, auto, or local"
        )
    try:
        socket.create_connection((found[1].strip("[]"), int(found[2])), _PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error


def _unreachable(address: str, reason: str) -> UnavailableError:
    return UnavailableError(
        f"no Ray cluster answers at {address}\n{reason.strip().splitlines()[0][:200]}\n"
        "start one with `ray start --head`, or leave the address out for one on this machine"
    )


def _connect(ray: Any, address: str, logs: bool) -> None:
    options: dict[str, Any] = {"include_dashboard": False, "object_store_memory": _OBJECTS}
    level = logging.INFO if logs else logging.CRITICAL
    with contextlib.ExitStack() as stack:
        stack.enter_context(_own_signals())
        stack.enter_context(_environment({**_ENVIRONMENT, **({} if logs else _QUIET)}))
        if not logs:
            stack.enter_context(_mute())
        try:
            ray.init(
                address=address,
                log_to_driver=logs,
                logging_level=level,
                **(options if address == "local" else {}),
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise _unreachable(address, str(error) or type(error).__name__) from error


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray makes SIGTERM end the process; what the caller had decided comes back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


@contextlib.contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Variables that are set while Ray starts, unless they are set already."""
    added = [name for name in settings if name not in os.environ]
    os.environ.update({name: settings[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _mute() -> Iterator[None]:
    """Drop the note of native code on standard error that its log is off."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextlib.contextmanager
def _settings(ray: Any, logs: bool) -> Iterator[None]:
    """Ray Data without bars and reports, and with patience for workers that die as they start."""
    context = ray.data.DataContext.get_current()
    wanted = {
        "enable_progress_bars": logs,
        "print_on_execution_start": logs,
        "max_consecutive_actor_init_deaths": _LOST_STARTING,
    }
    logger, before = logging.getLogger("ray.data"), {}
    level = logger.level
    for name, value in wanted.items():
        if hasattr(context, name):  # versions differ
            before[name] = getattr(context, name)
            setattr(context, name, value)
    if not logs:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
        for name, value in before.items():
            setattr(context, name, value)


class _Aside:
    """Standard output without what Ray's threads print there."""

    def __init__(self, stream: Any, logs: bool) -> None:
        self._stream, self._logs = stream, logs

    def write(self, text: str) -> int:
        if not threading.current_thread().name.startswith("ray_"):
            return self._stream.write(text)
        return sys.stderr.write(text) if self._logs else len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _said_aside(logs: bool) -> contextlib.AbstractContextManager[Any]:
    stream: Any = _Aside(sys.stdout, logs)
    return contextlib.redirect_stdout(stream)
