# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Extraction by the workers of a Ray cluster: `engine="ray"`, with the extra `ray`.

A worker is an actor that receives numbers of shards and commits them itself: what is stored does
not pass through Ray. The shards of a worker that is lost go to another one.
"""

import contextlib
import dataclasses
import fcntl
import functools
import importlib
import io
import logging
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from flaxattn import __version__
from flaxattn.corpus.input_files import InputFile, absolute, readable_paths
from flaxattn.errors import FlaxattnError, InputError, UnavailableError
from flaxattn.pipeline.batches import measure_for
from flaxattn.pipeline.extraction import Options
from flaxattn.pretrained import hub
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.store.commit_shards import Commit, ShardReport, StoreWork, commit_shards
from flaxattn.store.plan import PLAN, Corpus, JobPlan, model_fingerprint, read_plan
from flaxattn.store.seals import read_manifest
from flaxattn.store.store_layout import shard_folder
from flaxattn.trace.tensor_file import read_json

VERSIONS = f"flaxattn {__version__}, jax {jax.__version__}"
_PATIENCE = 10.0  # seconds that an address may take to answer; Ray itself waits for minutes
_OBJECTS = 2**27  # bytes of Ray's own memory on this machine: only numbers of shards go through it
_TRIES = 5  # workers that may be lost over the same shards, or in a row before they are ready
_MOST = 8  # shards given to a worker at once: while one is written, the device works on the next


@dataclasses.dataclass(frozen=True)
class RayOptions:
    """The cluster to use, and the share of it.

    Attributes:
        address: `HOST:PORT` of its head; `auto`, the cluster that this machine is part of; or
            `local`, a cluster of this machine for the time of the job. By default the value of
            RAY_ADDRESS, or else `local`.
        workers: Number of workers; by default one for each GPU of the cluster, or for each machine.
        gpus: GPUs of each worker; by default 1 where the cluster has any. 0 uses the CPU.
        cpus: CPUs of each worker, as Ray counts them; jax uses all that the machine has.
        logs: Whether to show Ray's messages and those of its workers.
    """

    address: str | None = None
    workers: int | None = None
    gpus: int | None = None
    cpus: float = 1.0
    logs: bool = False

    def __post_init__(self) -> None:
        for name, least, kinds in (("workers", 1, int), ("gpus", 0, int), ("cpus", 0, int | float)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, kinds) and value >= least):
                kind = "a whole number" if kinds is int else "a number"
                raise InputError(f"{name} of Ray is {value!r}\nexpected {kind}, at least {least}")


class Errand(NamedTuple):
    """Job of every worker.

    Attributes:
        stores: Folders, absolute, one for each model.
        plans: SHA-256 of their plans.
        models: Directories of the models.
        options: How to extract: batch size and number of readers.
        files: Files of the corpus, with absolute paths.
        on_error: What is done with rows that cannot be used.
        on_cpu: Whether accelerators are left alone; Ray hides none that it did not count.
        versions: Versions of the process that planned.
    """

    stores: tuple[str, ...]
    plans: tuple[str, ...]
    models: tuple[str, ...]
    options: Options
    files: tuple[InputFile, ...] = ()
    on_error: str = "fail"
    on_cpu: bool = False
    versions: str = VERSIONS


class Worker:
    """Actor that commits shards."""

    def __init__(self, errand: Errand) -> None:
        self._errand, self._works = errand, list[StoreWork]()

    def ready(self) -> None:
        """Open the stores and load the models."""
        self._works = open_stores(self._errand)

    def commit(self, numbers: Sequence[int]) -> list[tuple[int, ShardReport]]:
        """Commit shards and return a report of each with the number of its store.

        Shards that are already there are skipped, so a second attempt gives the same result.
        """
        for _ in commit_shards(self._works, numbers, self._errand.options):
            pass
        return [(i, _report(work, n)) for n in numbers for i, work in enumerate(self._works)]


def open_stores(errand: Errand) -> list[StoreWork]:
    """Return the stores of a job with the models loaded."""
    host = socket.gethostname()
    if errand.versions != VERSIONS:
        raise UnavailableError(
            f"a worker on {host} has other versions than the job\n"
            f"expected {errand.versions}; it has {VERSIONS}\n"
            "install the same on all machines of the cluster"
        )
    if errand.on_cpu:
        jax.config.update("jax_platforms", "cpu")
    works = []
    for store, sha256, folder in zip(errand.stores, errand.plans, errand.models, strict=True):
        plan = read_plan(Path(store))
        if plan is None or plan.sha256 != sha256:
            raise UnavailableError(
                f"a worker on {host} does not see the store {store}\n"
                f"it finds {'no' if plan is None else 'another'} {PLAN} there\n"
                "put the store on a disk that all machines of the cluster see under the same path"
            )
        directory = hub.find(Path(folder))
        dtype = read_json(directory / "config.json")["dtype"]  # of the driver's parameters
        model = from_pretrained(directory, dtype=dtype)
        model = dataclasses.replace(
            model,
            module=model.module.clone(dtype=jnp.dtype(plan.model.dtype)),
            params=jax.device_put(model.params),
        )
        found = dataclasses.asdict(model_fingerprint(model)) | {"name": plan.model.name}
        if wrong := [key for key, value in found.items() if value != getattr(plan.model, key)]:
            raise UnavailableError(
                f"the model {plan.model.name!r} is another one after it was saved and loaded\n"
                f"these differ: {', '.join(wrong)}\n"
                "extract with the local engine, or from a directory that from_pretrained opens"
            )
        _check_files(errand.files, plan, host)
        measure = measure_for(model, plan.columns.pair is not None)
        corpus = Corpus.of(errand.files, measure, errand.on_error)
        works.append(StoreWork(Path(store), plan, model, corpus))
    return works


def _check_files(files: Sequence[InputFile], plan: JobPlan, host: str) -> None:
    """Refuse to read the corpus where this machine does not see the files of the plan."""
    for path, planned in zip(readable_paths(files), plan.files, strict=True):
        size = path.stat().st_size if path.is_file() else None
        if size != planned.bytes:
            found = "no such file" if size is None else f"{size:,} bytes"
            raise UnavailableError(
                f"a worker on {host} does not see {path}\n"
                f"expected {planned.bytes:,} bytes, found {found}\n"
                "put the corpus on a disk that all machines of the cluster see under the same path"
            )


def _report(work: StoreWork, number: int) -> ShardReport:
    """The report of a shard that this worker or a lost one has committed."""
    manifest, folder = read_manifest(work.store, number), shard_folder(work.store, number)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return ShardReport(number, manifest.stop - manifest.start, size, True)


@contextlib.contextmanager
def on_ray(ray_options: RayOptions, options: Options) -> Iterator[Commit]:
    """Connect to a Ray cluster and yield the function that commits shards there."""
    if options.mesh is not None or options.devices is not None:
        raise InputError(
            'engine="ray" takes no mesh and no devices\n'
            "they are of this process; each worker uses all devices that Ray gives it\n"
            'say how many in ray_options: {"gpus": 1}'
        )
    with connected(ray_options) as ray:
        yield functools.partial(commit_on_ray, ray, share(ray.nodes(), ray_options))


def share(nodes: Sequence[Mapping[str, Any]], options: RayOptions) -> RayOptions:
    """Fill in the number of workers, and the GPUs of each, from the machines of a cluster."""
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
    by_gpu = (m["GPU"] // gpus if gpus else 1 for m in able)  # on CPU, one for each machine
    by_cpu = (m["CPU"] // options.cpus if gpus and options.cpus else float("inf") for m in able)
    workers = options.workers or sum(int(min(pair)) for pair in zip(by_gpu, by_cpu, strict=True))
    return dataclasses.replace(options, workers=workers, gpus=gpus)


@contextlib.contextmanager
def connected(options: RayOptions) -> Iterator[Any]:
    """Yield Ray, connected until the block ends; a connection of the caller stays."""
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise UnavailableError(
            f"the engine ray needs Ray, which is not installed\n{error}\n"
            "pip install 'flaxattn[ray]'"
        ) from error
    if ray.is_initialized():
        if options.address:
            raise InputError(
                "this process is connected to Ray already\n"
                f"received address {options.address!r} as well\n"
                "leave the address out, or call ray.shutdown() before"
            )
        yield ray
        return
    address = options.address or os.environ.get("RAY_ADDRESS") or "local"
    try:
        _connect(ray, address, options.logs)
    except InputError:
        raise
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        reason = str(error).strip() or type(error).__name__
        raise UnavailableError(
            f"no Ray cluster answers at {address}\n{reason.splitlines()[0][:200]}\n"
            "start one with `ray start --head`, or leave the address out for one on this machine"
        ) from error
    stream: Any = _OwnOutput(sys.stdout, options.logs)
    with contextlib.redirect_stdout(stream):
        try:
            yield ray
        finally:  # the last messages are printed in this thread
            with contextlib.redirect_stdout(sys.stderr if options.logs else io.StringIO()):
                ray.shutdown()


class _OwnOutput:
    """Standard output without the messages that Ray's threads print there, even without logs."""

    def __init__(self, stream: Any, logs: bool) -> None:
        self._stream, self._logs = stream, logs

    def write(self, text: str) -> int:
        if not threading.current_thread().name.startswith("ray_"):
            return self._stream.write(text)
        return sys.stderr.write(text) if self._logs else len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _connect(ray: Any, address: str, logs: bool) -> None:
    """Connect to a cluster; SIGTERM, which Ray takes over, goes back to the caller's handler."""
    if address not in ("local", "auto"):
        found = re.fullmatch(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})", address, re.ASCII)
        if not found:
            raise InputError(
                f"{address!r} is not an address of a Ray cluster\n"
                "expected HOST:PORT of its head, auto, or local"
            )
        socket.create_connection((found[1].strip("[]"), int(found[2])), _PATIENCE).close()
    own = {"include_dashboard": False, "object_store_memory": _OBJECTS}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address,
            log_to_driver=logs,
            logging_level=logging.INFO if logs else logging.CRITICAL,
            **(own if address == "local" else {}),
        )
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL if handler is None else handler)


def commit_on_ray(
    ray: Any,
    options: RayOptions,
    works: Sequence[StoreWork],
    numbers: Iterable[int],
    how: Options,
) -> Generator[list[ShardReport], None, None]:
    """Let workers commit shards; they load the models from a temporary folder in the store."""
    lacking = {n: [work.lacks(n) for work in works] for n in numbers}
    todo = [number for number, lacks in lacking.items() if any(lacks)]
    if not todo:
        return
    each = max(1, min(len(todo) // (4 * (options.workers or 1)), _MOST))
    tasks = deque(tuple(todo[i : i + each]) for i in range(0, len(todo), each))
    with _temporary(works[0].store.absolute()) as folder:
        models = [folder / f"model-{number}" for number in range(len(works))]
        for work, directory in zip(works, models, strict=True):
            work.model.save_pretrained(directory)
        errand = Errand(
            stores=tuple(str(work.store.absolute()) for work in works),
            plans=tuple(work.plan.sha256 for work in works),
            models=tuple(map(str, models)),
            options=Options(batch_tokens=how.batch_tokens, workers=how.workers),
            files=tuple(map(absolute, works[0].corpus.files)),
            on_error=works[0].corpus.on_error,
            on_cpu=options.gpus == 0,
        )
        for answer in _answers(ray, options, errand, tasks):
            found = [report for i, report in answer if lacking[report.number][i]]
            for number in dict.fromkeys(report.number for report in found):
                yield [report for report in found if report.number == number]


def _answers(
    ray: Any, options: RayOptions, errand: Errand, tasks: deque[tuple[int, ...]]
) -> Generator[list[tuple[int, ShardReport]], None, None]:
    """Yield the answers of workers task by task, and replace workers that are lost."""
    actor = ray.remote(num_cpus=options.cpus, num_gpus=options.gpus)(Worker)
    running: dict[Any, tuple[Any, tuple[int, ...]]] = {}  # by the answer that is expected
    lost: Counter[tuple[int, ...]] = Counter()  # by shards; () are those that start

    def start() -> None:
        worker = actor.remote(errand)
        running[worker.ready.remote()] = worker, ()

    for _ in range(min(options.workers or 1, len(tasks))):
        start()
    try:
        while tasks or any(numbers for _, numbers in running.values()):
            [answer], _ = ray.wait(list(running))
            worker, numbers = running.pop(answer)
            try:
                reports = ray.get(answer)
            except ray.exceptions.RayActorError as error:
                lost[numbers] += 1
                if lost[numbers] == _TRIES:
                    raise _lost(numbers, error) from error
                if numbers:
                    tasks.appendleft(numbers)
                start()
                continue
            lost[()] = 0
            if tasks:
                following = tasks.popleft()
                running[worker.commit.remote(following)] = worker, following
            if numbers:
                yield reports
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, FlaxattnError) else error) from None
    except ray.exceptions.RayError as error:
        raise UnavailableError(
            f"Ray gave up: {type(error).__name__}\n{str(error).strip().splitlines()[0][:200]}\n"
            "finished shards are in the store, and the same call continues the job"
        ) from error


def _lost(numbers: Sequence[int], error: Exception) -> UnavailableError:
    where = f"over shards {numbers[0]} to {numbers[-1]}" if numbers else "as they started"
    return UnavailableError(
        f"{_TRIES} workers were lost, one after the other, {where}\n"
        f"{str(error).strip().splitlines()[0][:200]}\n"
        "most often memory does not suffice: lower batch_tokens; the same call continues the job"
    )


@contextlib.contextmanager
def _temporary(store: Path) -> Iterator[Path]:
    """Yield a folder in the store that is removed at the end, as are those of killed jobs."""
    for left in store.glob(".ray.*"):
        with contextlib.suppress(OSError), _locked(left):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=".ray.", dir=store))
    try:
        with _locked(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder until the block ends; raise OSError where another process holds it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
