# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Run a resumable extraction job from files and a model to a store.

A job locks the folder, plans, checks the free space, and commits the shards that are missing, here
or on Ray. A dry run only describes it. `commit_shards` computes and writes the shards.
"""

import contextlib
import dataclasses
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from flaxattn.corpus.input_files import (
    InputFile,
    Name,
    find_inputs,
    kept_inputs,
)
from flaxattn.corpus.texts import Columns
from flaxattn.errors import FlaxattnError, InputError, StoreError, check_arguments
from flaxattn.files import existing_part
from flaxattn.kernels.contract import Capture
from flaxattn.pipeline.extraction import Options
from flaxattn.pipeline.progress_reporter import ProgressReporter
from flaxattn.pretrained.nonfinite_error import check_dtype
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.store.commit_shards import Commit, StoreWork, commit_shards
from flaxattn.store.folder_lock import held
from flaxattn.store.job import (
    WEIGHTS,
    Counts,
    ExtractionProgress,
    JobReport,
    JobSpec,
    Models,
    Watcher,
    check_request,
    folders,
    prepare_arguments,
    read_counts,
    refuse_texts,
    report_of,
    shard_counts,
)
from flaxattn.store.job_plan import Settings, read_plan
from flaxattn.store.make_plan import check_same, make_plan, prepare
from flaxattn.store.ray_engine import RayOptions, on_ray
from flaxattn.store.shard_writer import ShardReport, list_problems
from flaxattn.store.store_layout import ERRORS

_SETTINGS = {field.name for field in dataclasses.fields(Settings)}
_OPTIONS = {"batch_tokens", "mesh", "devices", "workers", "allow_nonfinite"}
OPTIONS = (*sorted(_SETTINGS | _OPTIONS), "on_error", "resume", "input_format")
"""Names of the arguments that `extract_to` takes beside those of its signature."""


@check_arguments(1, OPTIONS)
def extract_to(
    store: Name,
    model: Models,
    inputs: Name | Sequence[Name | tuple[Name, Name]],
    *,
    capture: Capture = WEIGHTS,
    text_column: str = "text",
    pair_column: str | None = None,
    id_column: str | None = None,
    shard: tuple[int, int] | None = None,
    dry_run: bool = False,
    watcher: Watcher | None = None,
    engine: str = "local",
    ray_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> JobReport:
    """Extract the attention of a corpus into a store that `fa.open_store` reads.

    The rows of the corpus are counted and cut into shards, whose size is estimated from the first
    thousand texts. Each shard is computed and put into the store whole or not at all. The same call
    again computes the shards that are missing, and nothing else; what is stored does not depend on
    where a job was stopped, nor on who computed what. The files must not change until the job is
    finished. Memory does not grow with the corpus; in a process of one's own,
    `ARROW_DEFAULT_MEMORY_POOL=system` in the environment keeps it a tenth lower, which the
    `flaxattn` command sees to itself.

    Rows that cannot be used are found when their shard is read, those among the first thousand
    texts before anything is computed. `on_error` says what is done: "fail" raises, and the same
    call with "skip" continues without them; "quarantine" lists them in `STORE/errors.jsonl` as
    well. The last numbers of examples of their shard are then not used: see `Store.examples`.

    On a CPU, values differ from those of `model.trace` of each text by the rounding of float32: XLA
    sums up products of fewer than 64 rows, such as those of one short text, in another order than
    those of a batch. Where scores are of order 1 that is below 1e-6 of a weight; of the built-in
    tiny-bert, whose scores reach 28, below 5e-6. Neither side is the more exact one: of tiny-bert,
    what is stored is within 2.7e-6 of float64, and a text alone within 2.0e-6.

    >>> from pathlib import Path
    >>> import flaxattn as fa
    >>> _ = Path("corpus.txt").write_text("The cat is very sad.", encoding="utf-8")
    >>> report = fa.extract_to("STORE", fa.from_pretrained("tiny-bert"), "corpus.txt")
    >>> fa.open_store("STORE").weights(0, layer=2, head=0).shape  # [Q, K]
    (8, 8)

    Args:
        store: Folder; made where absent.
        model: A BERT, a GPT-2 or an encoder-decoder with its tokenizer, or what `from_pretrained`
            takes. Several of one configuration, by name or as a list of names, run as one, and
            each fills the store `STORE/NAME`.
        inputs: Files (txt, jsonl, csv, tsv, parquet, arrow, conllu, also .gz and .zst), patterns,
            folders of a data set, or `-` for standard input.
        capture: What to keep, of which layers and heads; by default all weights, in float16.
        text_column: Column or key of the text.
        pair_column: Column of the second text, or of the target of an encoder-decoder, which
            otherwise writes its targets itself.
        id_column: Column of the ids of texts; by default `FILE:LINE`. That two rows have the same
            id is found within a shard only.
        shard: `(i, n)`: only the shards i, i + n, i + 2 n, …, for jobs beside each other; by
            default all, or with `jax.distributed` those of this process.
        dry_run: Read and tokenize all texts and describe the job, without writing to the store.
        watcher: Receives the progress of the job; by default it is shown on standard error.
        engine: `local`, in this process, or `ray`: by the workers of a Ray cluster, which see the
            store and the files under the same paths. A worker that is lost is replaced, and its
            shards are done by another. Settings of jax made in Python do not reach workers; those
            of their environment count. Leave accelerators of this machine to them:
            `JAX_PLATFORMS=cpu` in this process alone.
        ray_options: Fields of `ray_engine.RayOptions`: `address`, `workers`, `gpus` and `cpus` of
            each, `logs`.
        **options: `on_error`; `truncate`, `seed`, `limit`, `reduce`, `shard_bytes` and
            `shard_texts` as in `job_plan.Settings`; `batch_tokens`, `mesh`, `devices`, `workers`
            and `allow_nonfinite` as in `extract.Options`; `input_format`, that of standard input
            and of files without an extension (default txt); `resume=False` refuses a folder that
            holds an extraction.

    Returns:
        What was found and written. Cost on disk: L H Q K entries of `capture.dtype` per text
        before compression for weights, 4 L H Q bytes per statistic.

    Raises:
        InputError: The input, the request or the folder cannot be used, the folder holds another
            extraction, or a file of the corpus changed; raised before anything is computed wherever
            possible.
        StoreError: The disk has too little room, or a shard cannot be written.
        UnavailableError: Memory does not suffice, or a worker was lost; the engine cannot be used.
    """
    resume, input_format = options.pop("resume", True), options.pop("input_format", None)
    on_error = options.pop("on_error", "fail")
    settings = Settings(**{k: v for k, v in options.items() if k in _SETTINGS})
    how = Options(**{k: v for k, v in options.items() if k in _OPTIONS})
    check_dtype(capture, how.allow_nonfinite)
    named = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    refuse_texts(named)
    columns = Columns(text_column, pair_column, id_column)
    spec = JobSpec(named, capture, columns, settings, input_format, on_error)
    folder = Path(store)
    part = shard_of_process() if shard is None else shard
    with contextlib.ExitStack() as stack:
        watcher = watcher or ExtractionProgress(stack.enter_context(ProgressReporter()))
        if dry_run:
            return survey(folder, model, spec, watcher)
        stack.enter_context(claimed(folder, part))
        if not resume:
            refuse_started(folder)
        commit = stack.enter_context(engine_of(engine, ray_options, how))
        return run(folder, model, spec, how, part=part, watcher=watcher, commit=commit)


def shard_of_process() -> tuple[int, int] | None:
    """Return the part of a job for this process, where `jax.distributed` runs several."""
    count = jax.process_count()
    return (jax.process_index(), count) if count > 1 else None


@contextlib.contextmanager
def claimed(store: Path, part: tuple[int, int] | None) -> Iterator[None]:
    """Keep other jobs out of a store, but those of other parts."""
    if part is not None and not 0 <= part[0] < part[1]:
        raise InputError(
            f"shard {part[0]}/{part[1]} does not exist\n"
            "expected i/N with i from 0 to N - 1, for example 0/4"
        )
    with held(store, part):
        yield


def run(
    store: Path,
    model: Models,
    spec: JobSpec,
    options: Options,
    *,
    part: tuple[int, int] | None = None,
    watcher: Watcher | None = None,
    commit: Commit = commit_shards,
) -> JobReport:
    """A job in a folder that the caller has claimed; see `extract_to`."""
    started, watcher = time.monotonic(), watcher or Watcher()
    models = folders(model)
    check_request(list(models.values()), spec)
    files = find_inputs(spec.inputs, folder=store, kind=spec.kind)
    works = [
        _planned(store / name if name else store, one, spec, files, watcher)
        for name, one in models.items()
    ]
    plan = works[0].plan
    counts = shard_counts(works, range(len(plan.shards)))
    report = report_of(store, works, counts)
    first, step = part or (0, 1)
    mine = range(first, len(plan.shards), step)
    todo = [number for number in mine if any(work.lacks(number) for work in works)]
    free = _room(store, works, todo)
    watcher.planned(report, [plan.shards[number] for number in todo], free)
    written = []
    with _problems_listed(works), contextlib.closing(commit(works, todo, options)) as found:
        for reports in found:
            if reports:
                watcher.committed(plan.shards[reports[0].number], reports)
                written.append(reports)
    return _ended(report, works, counts, written, time.monotonic() - started)


@contextlib.contextmanager
def _problems_listed(works: Sequence[StoreWork]) -> Iterator[None]:
    """List the rows that were left out at the end of a job, also of one that fails."""
    corpus = works[0].corpus
    listed = [
        work.store
        for work in works
        if corpus.on_error == "quarantine" or (work.store / ERRORS).exists()
    ]
    try:
        yield
    except BaseException:
        for store in listed:
            with contextlib.suppress(OSError, FlaxattnError):  # the first error is the cause
                list_problems(store, corpus.mode)
        raise
    for store in listed:
        list_problems(store, corpus.mode)


def _planned(
    store: Path, model: Pretrained, spec: JobSpec, files: Sequence[InputFile], watcher: Watcher
) -> StoreWork:
    """A store with its plan, found there or made."""
    plan, corpus, size = prepare_arguments(model, spec, files)
    plan = prepare(store, plan, corpus, size, note=watcher.planning)
    return StoreWork(store, plan, model, corpus)


def _room(store: Path, works: Sequence[StoreWork], todo: Sequence[int]) -> int:
    """Free bytes, which must be enough for the shards to be written."""
    needed = sum(w.plan.shards[n].bytes for w in works for n in todo if w.lacks(n))
    free = shutil.disk_usage(store).free
    if needed > free:
        raise StoreError(
            f"{store} needs about {needed:,} bytes for {len(todo)} shards; {free:,} are free\n"
            "free some space, and the same call continues the job\n"
            "or ask for less into a new folder: layers, heads, uint8, statistics, not weights"
        )
    return free


def _ended(
    before: JobReport,
    works: Sequence[StoreWork],
    counts: Mapping[int, Counts],
    written: Sequence[Sequence[ShardReport]],
    seconds: float,
) -> JobReport:
    every = [one for reports in written for one in reports]
    others = (number for number in range(before.shards) if number not in counts)
    added = shard_counts(works, others)
    mine = [added[reports[0].number] for reports in written]
    return dataclasses.replace(
        report_of(before.store, works, {**counts, **added}, seconds),
        there=before.there,
        written=len(written),
        written_texts=sum(count["texts"] for count in mine),
        written_tokens=sum(count["tokens"] for count in mine),
        written_bytes=sum(one.bytes for one in every if one.written),
    )


def refuse_started(store: Path) -> None:
    """Refuse a folder in which an extraction was begun; it is never deleted here."""
    if read_plan(store) is not None:
        raise InputError(
            f"{store} holds an extraction\n"
            "leave resume=False out to finish it, or name another folder"
        )


def survey(store: Path, model: Models, spec: JobSpec, watcher: Watcher | None = None) -> JobReport:
    """Describe what a job would do, after all texts were read. Only temporary files are written."""
    started, watcher = time.monotonic(), watcher or Watcher()
    models = folders(model)
    check_request(list(models.values()), spec)
    name, first = next(iter(models.items()))
    whole = store / name if name else store
    with tempfile.TemporaryDirectory() as folder:
        kept = store if kept_inputs(store) else Path(folder)
        files = find_inputs(spec.inputs, folder=kept, kind=spec.kind)
        plan, corpus, size = prepare_arguments(first, spec, files)
        if found := read_plan(whole):
            check_same(whole, found, plan)
            plan = found
        else:
            plan = make_plan(plan, corpus, size, note=watcher.planning)
        works = [
            StoreWork(store / name if name else store, plan, one, corpus)
            for name, one in models.items()
        ]
        counts = shard_counts(works, range(len(plan.shards)))
        report = report_of(store, works, counts)
        every = counts | read_counts(plan, corpus, size, counts, watcher)
    read = report_of(store, works, every, time.monotonic() - started)
    free = shutil.disk_usage(existing_part(store)).free
    return dataclasses.replace(read, there=report.there, missing=report.missing, free=free)


ENGINES = ("local", "ray")


@contextlib.contextmanager
def engine_of(
    engine: str, ray_options: Mapping[str, Any] | None, options: Options
) -> Iterator[Commit]:
    """Yield the function that commits the shards of a job; a cluster stays connected meanwhile."""
    given = dict(ray_options or {})
    if engine not in ENGINES:
        raise InputError(f"engine {engine!r} is unknown\nchoose one of {', '.join(ENGINES)}")
    known = [field.name for field in dataclasses.fields(RayOptions)]
    if unknown := sorted(given.keys() - set(known)):
        raise InputError(f"ray_options has no field {unknown[0]!r}\nknown: {', '.join(known)}")
    if engine == "local":
        if given:
            raise InputError(
                "options of Ray are given, but the engine is local\n"
                f"received {', '.join(sorted(given))}\nchoose the engine ray, or leave them out"
            )
        yield commit_shards
        return
    with on_ray(RayOptions(**given), options) as commit:
        yield commit
