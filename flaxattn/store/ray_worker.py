# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Worker of a Ray cluster: computes shards by number and commits them.

A worker is given paths in the store and nothing else; it never imports Ray. How
workers are found and given numbers is in `ray_engine`.
"""

import dataclasses
import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from flaxattn import __version__
from flaxattn.errors import FlaxattnError, UnavailableError
from flaxattn.pipeline.extraction import Options
from flaxattn.pretrained import hub
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.store.commit_shards import StoreWork, commit_shards
from flaxattn.store.job_plan import PLAN, JobPlan, read_plan
from flaxattn.store.model_fingerprint import mark
from flaxattn.store.shard_writer import ShardReport
from flaxattn.store.store_layout import shard_folder
from flaxattn.trace.tensor_file import read_json

VERSIONS = f"flaxattn {__version__}, jax {jax.__version__}"
_TRIES = 5  # workers that may die over the same shards


class Errand(NamedTuple):
    """Task that every worker of a job receives.

    Attributes:
        stores: folders, absolute, one for each model.
        plans: SHA-256 of their plans.
        models: directories that hold the models.
        tries: folder that counts how often shards were begun.
        batch_tokens: positions of a batch, as in `extract.Options`.
        readers: processes that read texts, `workers` there.
        on_cpu: whether accelerators are left alone.
        versions: of the process that planned.
    """

    stores: tuple[str, ...]
    plans: tuple[str, ...]
    models: tuple[str, ...]
    tries: str
    batch_tokens: int | None
    readers: int
    on_cpu: bool = False
    versions: str = VERSIONS


class Worker:
    """Commits shards; loads the models when the first numbers come, and keeps them.

    Args:
        errand: of the job.
    """

    def __init__(self, errand: Errand) -> None:
        # Nothing can fail here: an error of a constructor ends a job without its words.
        self._errand = errand
        self._works: list[StoreWork] = []

    def __call__(self, row: Mapping[str, str]) -> dict[str, str]:
        """Commit shards; those that are there are passed over, so a second try is exact."""
        numbers = json.loads(row["numbers"])
        try:
            if not self._works:
                self._works = ready(self._errand)
            begin(Path(self._errand.tries), numbers)
            how = Options(batch_tokens=self._errand.batch_tokens, workers=self._errand.readers)
            for _ in commit_shards(self._works, numbers, how):
                pass
        except FlaxattnError as error:
            kind = next(c for c in type(error).__mro__ if c.__module__ == FlaxattnError.__module__)
            return {"reports": "[]", "error": kind.__name__, "message": str(error)}
        found = [(i, _there(w, n)) for n in numbers for i, w in enumerate(self._works)]
        return {"reports": json.dumps(found), "error": "", "message": ""}


def ready(errand: Errand) -> list[StoreWork]:
    """The stores of a job, with the models loaded."""
    if errand.versions != VERSIONS:
        raise UnavailableError(
            f"a worker on {socket.gethostname()} has other versions than the job\n"
            f"expected {errand.versions}; it has {VERSIONS}\n"
            "install the same on all machines of the cluster"
        )
    if errand.on_cpu:
        jax.config.update("jax_platforms", "cpu")
    works = []
    for store, sha256, model in zip(errand.stores, errand.plans, errand.models, strict=True):
        plan = _plan(Path(store), sha256)
        directory = hub.find(Path(model))
        stored = read_json(directory / "config.json")["dtype"]  # as the driver's parameters are
        handle = from_pretrained(directory, dtype=stored)
        module = handle.module.clone(dtype=jnp.dtype(plan.model.dtype))
        handle = dataclasses.replace(handle, module=module)
        found = dataclasses.replace(mark(handle), name=plan.model.name)
        if found != plan.model:
            wrong = [k for k, v in dataclasses.asdict(found).items() if v != getattr(plan.model, k)]
            raise UnavailableError(
                f"the model {plan.model.name!r} is another one after it was saved and loaded\n"
                f"these differ: {', '.join(wrong)}\n"
                "extract with the local engine, or from a directory that from_pretrained opens"
            )
        handle = dataclasses.replace(handle, params=jax.device_put(handle.params))
        works.append(StoreWork(Path(store), plan, handle))
    return works


def begin(tries: Path, numbers: Sequence[int]) -> None:
    """Note that a worker begins shards; Ray itself would try them again for ever."""
    for attempt in range(_TRIES):
        try:
            os.close(os.open(tries / f"{numbers[0]}.{attempt}", os.O_CREAT | os.O_EXCL))
            return
        except FileExistsError:
            continue
    raise UnavailableError(
        f"{_TRIES} workers were lost, one after the other, over shards {numbers[0]} to "
        f"{numbers[-1]}\nmost often their memory does not suffice\n"
        "give a lower batch_tokens or more memory per worker; the same call goes on"
    )


def _plan(store: Path, sha256: str) -> JobPlan:
    plan = read_plan(store)
    if plan is None or plan.sha256 != sha256:
        raise UnavailableError(
            f"a worker on {socket.gethostname()} does not see the store {store}\n"
            f"it finds {'no' if plan is None else 'another'} {PLAN} there\n"
            "put the store on a disk that all machines of the cluster see under the same path"
        )
    return plan


def _there(work: StoreWork, number: int) -> ShardReport:
    """The report of a shard that this worker wrote, or one before it that was lost."""
    shard, folder = work.plan.shards[number], shard_folder(work.store, number)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return ShardReport(number, shard.stop - shard.start, size, True)
