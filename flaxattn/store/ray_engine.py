# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Shards computed by the workers of a Ray cluster: `engine="ray"`, with the extra `ray`.

Ray Data starts the workers, gives them numbers of shards, and gives those of a lost one to another.
What is stored does not pass through Ray: a worker commits its shards itself, see `ray_worker`. The
connection to Ray is in `ray_session`.
"""

import contextlib
import fcntl
import functools
import json
import os
import secrets
import shutil
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from flaxattn import errors
from flaxattn.errors import InputError, UnavailableError
from flaxattn.pipeline.extraction import Options
from flaxattn.store.commit_shards import Commit, StoreWork
from flaxattn.store.ray_session import ClusterSize, RayOptions, connected, size_of
from flaxattn.store.ray_worker import Errand, Worker
from flaxattn.store.shard_writer import ShardReport

_SCRATCH = ".ray."
_MOST = 8  # shards of a task: while one is written, the device works on the next
_TASKS = 5000  # that Ray is given at most


@contextlib.contextmanager
def on_ray(ray_options: RayOptions, options: Options) -> Iterator[Commit]:
    """A connection to a Ray cluster, and what commits shards there."""
    if options.mesh is not None or options.devices is not None:
        raise InputError(
            'engine="ray" takes no mesh and no devices\n'
            "they are of this process; each worker uses all devices that Ray gives it\n"
            'say how many in ray_options: {"gpus": 1}'
        )
    with connected(ray_options) as ray:
        size = size_of(ray.nodes(), ray_options)
        yield functools.partial(commit_on_ray, ray, size)


def commit_on_ray(
    ray: Any,
    size: ClusterSize,
    works: Sequence[StoreWork],
    numbers: Iterable[int],
    options: Options,
) -> Generator[list[ShardReport], None, None]:
    """Have shards committed by workers; the models are lent to them in a folder of the store."""
    lacking = {n: [w.lacks(n) for w in works] for n in numbers}
    todo = [number for number, lacks in lacking.items() if any(lacks)]
    if not todo:
        return
    with _scratch(works[0].store.absolute()) as scratch:
        errand = _errand(works, scratch, options)._replace(on_cpu=size.on_cpu)
        rows = _rows(ray, size, errand, _tasks(todo, size.workers))
        with contextlib.closing(rows):
            for row in rows:
                if row["error"]:
                    raise getattr(errors, row["error"])(row["message"])
                reported = [(i, ShardReport(*report)) for i, report in json.loads(row["reports"])]
                reported = [(i, report) for i, report in reported if lacking[report.number][i]]
                for number in dict.fromkeys(report.number for _, report in reported):
                    yield [report for _, report in reported if report.number == number]


def _tasks(todo: Sequence[int], workers: int) -> list[list[int]]:
    """Shards in groups: small enough that all workers end together, and a lost one loses little."""
    each = max(1, min(len(todo) // (4 * workers), _MOST), -(-len(todo) // _TASKS))
    return [list(todo[i : i + each]) for i in range(0, len(todo), each)]


def _errand(works: Sequence[StoreWork], scratch: Path, options: Options) -> Errand:
    """Return the task of the workers, with the models saved where they can read them."""
    tries = scratch / "tries"
    tries.mkdir()
    folders = [scratch / f"model-{number}" for number in range(len(works))]
    for work, folder in zip(works, folders, strict=True):
        work.model.save_pretrained(folder)
    return Errand(
        stores=tuple(str(work.store.absolute()) for work in works),
        plans=tuple(work.plan.sha256 for work in works),
        models=tuple(map(str, folders)),
        tries=str(tries),
        batch_tokens=options.batch_tokens,
        readers=options.workers,
    )


def _rows(
    ray: Any, size: ClusterSize, errand: Errand, tasks: Sequence[Sequence[int]]
) -> Generator[dict[str, str], None, None]:
    """Yield the answers of the workers, task by task."""
    items = [{"numbers": json.dumps(numbers)} for numbers in tasks]
    pool = ray.data.ActorPoolStrategy(
        size=min(size.workers, len(tasks)), max_tasks_in_flight_per_actor=2
    )
    answers = ray.data.from_items(items, override_num_blocks=len(items)).map(
        Worker,
        fn_constructor_args=(errand,),
        compute=pool,
        num_cpus=size.cpus,
        num_gpus=size.gpus,
    )
    try:
        yield from answers.iter_rows()
    except ray.exceptions.RayTaskError:
        raise  # a mistake of ours, with its traceback
    except ray.exceptions.RayError as error:
        raise UnavailableError(
            f"Ray gave up: {type(error).__name__}\n{str(error).strip().splitlines()[0][:200]}\n"
            "finished shards are in the store, and the same call goes on"
        ) from error


@contextlib.contextmanager
def _scratch(store: Path) -> Iterator[Path]:
    """A folder for this job in the store, gone at the end; those of killed jobs are swept away."""
    for left in store.glob(f"{_SCRATCH}*"):
        with _locked(left) as mine:
            if mine:
                shutil.rmtree(left, ignore_errors=True)
    folder = store / f"{_SCRATCH}{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        with _locked(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Return whether nobody else held a folder; if so, it is held until the block ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = True
        except OSError:
            mine = False
        yield mine
    finally:
        os.close(handle)
