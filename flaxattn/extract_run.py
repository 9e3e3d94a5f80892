# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A whole job: from files and a model to a store, by a call that may be repeated until it is done.

Locks the folder, plans, sees whether there is room, has the shards that are missing committed, and
tells how it goes. What is shown of that is decided in `extract_progress`, and how one shard comes
about in `extract_commit`.
"""

import contextlib
import dataclasses
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from flaxattn import inputs as requests
from flaxattn.bad_rows import POLICIES, BadRows
from flaxattn.corpus_files import InputFile, find_inputs, fingerprint
from flaxattn.corpus_texts import Columns
from flaxattn.errors import InputError, StoreError
from flaxattn.extract_commit import Work, commit_shards
from flaxattn.extract_models import check_alike
from flaxattn.extraction import Options
from flaxattn.folder_lock import held
from flaxattn.handle import Pretrained
from flaxattn.kernels.contract import Capture
from flaxattn.model_mark import mark
from flaxattn.plan import Plan, Settings, Shard, read_plan
from flaxattn.planning import check_same, make_plan, prepare
from flaxattn.running import KINDS, Running
from flaxattn.safe_text import safe_name
from flaxattn.store_writer import ShardReport
from flaxattn.text_sizes import measure_for, raw_bytes, sides

_WEIGHTS = Capture(weights=True, dtype="float16")
_SETTINGS = {field.name for field in dataclasses.fields(Settings)}
_OPTIONS = {"batch_tokens", "mesh", "devices", "workers"}
Models = Pretrained | Mapping[str, Pretrained]
Engine = Callable[[Sequence[Work], Iterable[int], Options], Iterator[list[ShardReport]]]


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a job is to do.

    Attributes:
        inputs: files, patterns, folders, or `-` for standard input.
        capture: what to keep.
        columns: where the texts stand.
        settings: what else decides the content.
        kind: of standard input, and of files whose name does not tell, see `lines.KINDS`.
    """

    inputs: Sequence[str | os.PathLike[str]]
    capture: Capture = _WEIGHTS
    columns: Columns = dataclasses.field(default_factory=Columns)
    settings: Settings = dataclasses.field(default_factory=Settings)
    kind: str | None = None


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of a job.

    Attributes:
        store: its folder.
        texts: in the plan, all parts counted.
        tokens: of these, as the model reads them.
        bytes: of all arrays before compression.
        shards: in the plan.
        rows: rows found, kept and left out, see `BadRows.summary`.
        truncated: texts that were cut.
        there: shards that were there before.
        written: shards that this call wrote.
        written_texts: texts in those.
        written_tokens: tokens of those.
        written_bytes: bytes of those on the disk.
        missing: shards that are not there: those of other parts.
        seconds: that the call took.
    """

    store: Path
    texts: int
    tokens: int
    bytes: int
    shards: int
    rows: Mapping[str, Any]
    truncated: int
    there: int
    written: int = 0
    written_texts: int = 0
    written_tokens: int = 0
    written_bytes: int = 0
    missing: int = 0
    seconds: float = 0.0


class Watcher:
    """Is told how a job goes; this one does nothing with it."""

    def planning(self, texts: int, tokens: int) -> None:
        """So many texts and tokens were found until now."""

    def planned(self, report: Report, shards: Sequence[Shard], free: int) -> None:
        """These shards will be computed; so many bytes are free where they go."""

    def committed(self, shard: Shard, reports: Sequence[ShardReport]) -> None:
        """A shard is on the disk, in one store or in that of each model."""


def extract_to(
    store: str | os.PathLike[str],
    model: Models,
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    capture: Capture = _WEIGHTS,
    text_column: str = "text",
    pair_column: str | None = None,
    id_column: str | None = None,
    shard: tuple[int, int] | None = None,
    watcher: Watcher | None = None,
    **options: Any,
) -> Report:
    """What attention saw of a corpus, in a store that `fa.open_store` reads.

    The corpus is gone over once and cut into shards; each is computed and put into the store whole
    or not at all. The same call again computes the shards that are missing, and nothing else; what
    is stored does not depend on where a job was stopped, nor on who computed what. Memory does not
    grow with the corpus.

    Args:
        store: Folder; made where absent.
        model: A BERT, a GPT-2 or an encoder-decoder with its tokenizer; several of one
            configuration, by name, run as one, and each fills the store `STORE/NAME`.
        inputs: Files (txt, jsonl, csv, tsv, parquet, arrow, also .gz and .zst), patterns, folders
            of a data set, or `-` for standard input.
        capture: What to keep, of which layers and heads; by default all weights, in float16.
        text_column: Column or key of the text.
        pair_column: Of the second text, or of the target of an encoder-decoder, which otherwise
            writes its targets itself.
        id_column: Of what texts are called; by default `FILE:LINE`.
        shard: `(i, n)`: only the shards i, i + n, i + 2 n, …, for jobs beside each other; by
            default all, or with `jax.distributed` those of this process.
        watcher: Is told how it goes.
        **options: `truncate`, `on_error`, `seed`, `max_texts`, `reduce`, `shard_bytes` and
            `shard_texts` as in `plan.Settings`; `batch_tokens`, `mesh`, `devices` and `workers` as
            in `extraction.Options`.

    Returns:
        What was found and written. Cost on disk: L H Q K entries of `capture.dtype` per text
        before compression for weights, 4 L H Q bytes per statistic.

    Raises:
        InputError: The input, the request or the folder cannot be used, or the folder holds
            another extraction; told before anything is computed wherever that is possible.
        StoreError: The disk has too little room, or a shard cannot be written.
        UnavailableError: Memory does not suffice, or a worker was lost.
    """
    if unknown := sorted(options.keys() - _SETTINGS - _OPTIONS):
        known = ", ".join(sorted(_SETTINGS | _OPTIONS))
        raise InputError(f"extract_to has no option {unknown[0]!r}\nknown: {known}")
    settings = Settings(**{k: v for k, v in options.items() if k in _SETTINGS})
    how = Options(**{k: v for k, v in options.items() if k in _OPTIONS})
    named = [inputs] if isinstance(inputs, str | os.PathLike) else inputs
    columns = Columns(text_column, pair_column, id_column)
    part = shard_of_process() if shard is None else shard
    with claimed(Path(store), part):
        asked = Asked(named, capture, columns, settings)
        return run(Path(store), model, asked, how, part=part, watcher=watcher)


def shard_of_process() -> tuple[int, int] | None:
    """Which part of a job is that of this process, where `jax.distributed` runs several."""
    count = jax.process_count()
    return (jax.process_index(), count) if count > 1 else None


@contextlib.contextmanager
def claimed(store: Path, part: tuple[int, int] | None) -> Iterator[None]:
    """Keep other jobs out of a store, but those of other parts.

    Args:
        store: made where absent.
        part: number of the part and their count.

    Raises:
        InputError: there is no such part, the folder cannot be written to, or is in use.
    """
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
    asked: Asked,
    options: Options,
    *,
    part: tuple[int, int] | None = None,
    watcher: Watcher | None = None,
    engine: Engine = commit_shards,
) -> Report:
    """A job in a folder that the caller has claimed; see `extract_to`.

    Args:
        store: the folder.
        model: or several.
        asked: what to do.
        options: devices, workers and sizes of batches.
        part: number of the part and their count.
        watcher: is told how it goes.
        engine: what computes and commits.
    """
    started, watcher = time.monotonic(), watcher or Watcher()
    models = {"": model} if isinstance(model, Pretrained) else model
    check_request(list(models.values()), asked)
    files = find_inputs(asked.inputs, folder=store, kind=asked.kind)
    works = [
        planned_work(store / name if name else store, one, asked, files, watcher)
        for name, one in _folders(models).items()
    ]
    plan = works[0].plan
    report = _report(store, works)
    mine = range(*(part or (0, 1))[:1], len(plan.shards), (part or (0, 1))[1])
    todo = [number for number in mine if any(work.lacks(number) for work in works)]
    free = _room(store, works, todo)
    watcher.planned(report, [plan.shards[number] for number in todo], free)
    written = []
    with contextlib.closing(engine(works, todo, options)) as found:
        for reports in found:
            if reports:
                watcher.committed(plan.shards[reports[0].number], reports)
                written.append(reports)
    return _ended(report, works, written, time.monotonic() - started)


def check_request(models: Sequence[Pretrained], asked: Asked) -> None:
    """Refuse what can be refused without reading the corpus.

    Args:
        models: that are run.
        asked: of them.

    Raises:
        InputError: a layer, head, policy or reduction does not exist, or models differ.
    """
    check_alike(models)
    model, settings = models[0], asked.settings
    requests.check_capture(asked.capture, *model.counts())
    if settings.reduce:
        Running(*settings.reduce)
    if settings.on_error not in POLICIES:
        raise InputError(
            f"on_error {settings.on_error!r} is unknown\nchoose one of {', '.join(POLICIES)}"
        )
    for name in ("shard_bytes", "shard_texts", "max_texts"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}, expected at least 1")
    measure_for(model, asked.columns.pair is not None)


def planned_work(
    store: Path, model: Pretrained, asked: Asked, files: Sequence[InputFile], watcher: Watcher
) -> Work:
    """A store with its plan, found there or made.

    Args:
        store: its folder.
        model: that fills it.
        asked: what to do.
        files: what `find_inputs` found.
        watcher: is told how planning goes.
    """
    plan, measure, size = prepare_arguments(model, asked, files)
    return Work(store, prepare(store, plan, files, measure, size, note=watcher.planning), model)


def prepare_arguments(
    model: Pretrained, asked: Asked, files: Sequence[InputFile]
) -> tuple[Plan, Any, Any]:
    """What `planning.prepare` and `planning.make_plan` take: a plan without shards, and measures.

    Args:
        model: that reads the texts.
        asked: what to do.
        files: the corpus.
    """
    reduce = tuple(kind for kind in KINDS if kind in asked.settings.reduce)
    settings = dataclasses.replace(asked.settings, reduce=reduce)
    plan = Plan(fingerprint(files), asked.columns, mark(model), asked.capture, settings)
    which = sides(model.config)
    measure = measure_for(model, asked.columns.pair is not None)
    return plan, measure, lambda size: raw_bytes(asked.capture, which, size)


def survey(
    store: Path, model: Models, asked: Asked, watcher: Watcher | None = None
) -> tuple[Report, int]:
    """What a job would do. Nothing is written but temporary files; the store is not claimed.

    Args:
        store: its folder, there or not.
        model: or several.
        asked: what to do.
        watcher: is told how far planning is.

    Returns:
        A report of what is there and what is missing, and the bytes free where the store goes.

    Raises:
        InputError: as `extract_to`.
    """
    started, watcher = time.monotonic(), watcher or Watcher()
    models = {"": model} if isinstance(model, Pretrained) else model
    check_request(list(models.values()), asked)
    name, first = next(iter(_folders(models).items()))
    whole = store / name if name else store
    with tempfile.TemporaryDirectory() as folder:
        kept = store if any(store.glob("stdin.*")) else Path(folder)
        files = find_inputs(asked.inputs, folder=kept, kind=asked.kind)
        plan, measure, size = prepare_arguments(first, asked, files)
        if found := read_plan(whole):
            check_same(whole, found, plan)
            plan = found
        else:
            bad = BadRows(asked.settings.on_error, Path(folder))
            plan = make_plan(plan, files, measure, size, bad, note=watcher.planning)
    works = [Work(store / name if name else store, plan, one) for name, one in models.items()]
    report = _report(store, works, time.monotonic() - started)
    place = next(path for path in (store, *store.absolute().parents) if path.exists())
    return report, shutil.disk_usage(place).free


def _folders(models: Mapping[str, Pretrained]) -> dict[str, Pretrained]:
    """Models by the folder of their store; one alone has the whole folder."""
    found = {safe_name(name) if name else "": model for name, model in models.items()}
    if len(models) > 1 and "" in found:
        raise InputError("a model has an empty name\nname every model, its store is called so")
    return found


def _report(store: Path, works: Sequence[Work], seconds: float = 0.0) -> Report:
    """What there is before anything is computed."""
    plan = works[0].plan
    missing = sum(any(w.lacks(n) for w in works) for n in range(len(plan.shards)))
    return Report(
        store=store,
        texts=plan.texts,
        tokens=plan.tokens,
        bytes=plan.bytes * len(works),
        shards=len(plan.shards),
        rows=plan.rows,
        truncated=plan.truncated,
        there=len(plan.shards) - missing,
        missing=missing,
        seconds=seconds,
    )


def _room(store: Path, works: Sequence[Work], todo: Sequence[int]) -> int:
    """Free bytes, which must be enough for the shards to be written."""
    needed = sum(w.plan.shards[n].bytes for w in works for n in todo if w.lacks(n))
    free = shutil.disk_usage(store).free
    if needed > free:
        raise StoreError(
            f"{store} needs up to {needed:,} bytes for {len(todo)} shards; {free:,} are free\n"
            "free some space, and the same call goes on\n"
            "or ask for less into a new folder: layers, heads, uint8, statistics, not weights"
        )
    return free


def _ended(
    report: Report, works: Sequence[Work], written: Sequence[Sequence[ShardReport]], seconds: float
) -> Report:
    shards = [works[0].plan.shards[reports[0].number] for reports in written]
    every = [one for reports in written for one in reports]
    return dataclasses.replace(
        report,
        written=len(shards),
        written_texts=sum(shard.stop - shard.start for shard in shards),
        written_tokens=sum(shard.tokens for shard in shards),
        written_bytes=sum(one.bytes for one in every if one.written),
        missing=sum(any(w.lacks(n) for w in works) for n in range(report.shards)),
        seconds=seconds,
    )


def refuse_started(store: Path) -> None:
    """Refuse a folder in which an extraction was begun; it is never deleted here.

    Args:
        store: the folder.

    Raises:
        InputError: it has a plan.
    """
    if read_plan(store) is not None:
        raise InputError(
            f"{store} holds an extraction\n"
            "leave out --fresh to finish it, or name another folder after --out"
        )
