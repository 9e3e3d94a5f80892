# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Run a resumable extraction job from files and a model to a store.

A request is checked before work begins. A job locks the folder, plans, checks the free space, and
commits the shards that are missing, here or on Ray, with progress and a report. A dry run only
describes it. `commit_shards` computes and writes the shards.
"""

import contextlib
import dataclasses
import glob
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from flaxattn.corpus.bad_rows import POLICIES
from flaxattn.corpus.input_files import (
    InputFile,
    KeptOpen,
    Name,
    find_inputs,
    fingerprint,
    kept_inputs,
    kind_of,
)
from flaxattn.corpus.texts import Columns
from flaxattn.errors import FlaxattnError, InputError, StoreError, check_arguments
from flaxattn.files import existing_part, readable_size, safe_name
from flaxattn.kernels.contract import Capture
from flaxattn.pipeline.batches import measure_for, raw_bytes, sides
from flaxattn.pipeline.extraction import Options, check_alike
from flaxattn.pipeline.online_moments import KINDS, OnlineMoments
from flaxattn.pipeline.progress_reporter import ProgressReporter
from flaxattn.pretrained import model_inputs
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.pretrained.nonfinite_error import check_dtype
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.store.commit_shards import (
    Commit,
    ShardReport,
    StoreWork,
    commit_shards,
    list_problems,
)
from flaxattn.store.folder_lock import held
from flaxattn.store.plan import (
    Bytes,
    Corpus,
    JobPlan,
    Settings,
    ShardPlan,
    check_same,
    make_plan,
    measured_texts,
    model_fingerprint,
    prepare,
    read_plan,
    shard_texts,
)
from flaxattn.store.ray_engine import RayOptions, on_ray
from flaxattn.store.seals import read_manifest
from flaxattn.store.store_layout import COUNTS, ERRORS, SHARD_TEXTS

WEIGHTS = Capture(weights=True, dtype="float16")
Counts = Mapping[str, Any]  # of a shard, see `Manifest`
Models = Pretrained | Mapping[str, Pretrained] | str | Path | Sequence[str | Path]


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """Specification of a job.

    Attributes:
        inputs: Files, patterns, folders, `-` for standard input, or two parallel text files.
        capture: Fields to store.
        columns: Columns of the texts.
        settings: Other settings that decide the content.
        kind: Format of standard input, and of files whose name does not show it
            (`input_files.KINDS`).
        on_error: Policy for rows that cannot be used, see `corpus.bad_rows`.
    """

    inputs: Sequence[Name | tuple[Name, Name]]
    capture: Capture = WEIGHTS
    columns: Columns = dataclasses.field(default_factory=Columns)
    settings: Settings = dataclasses.field(default_factory=Settings)
    kind: str | None = None
    on_error: str = "fail"

    def __post_init__(self) -> None:
        if self.columns.pair is None and any(isinstance(item, tuple) for item in self.inputs):
            object.__setattr__(self, "columns", dataclasses.replace(self.columns, pair="pair"))


@dataclasses.dataclass(frozen=True)
class JobReport:
    """Report of a job.

    Attributes:
        store: Its folder.
        texts: Number of texts of all parts. Rows of shards that are not there count as texts.
        tokens: Number of their tokens, as the model reads them; an estimate while shards are
            missing.
        bytes: Bytes of all arrays before compression; an estimate while shards are missing.
        shards: Number of shards in the plan.
        rows: Rows found, kept and left out until now, see `BadRows.summary`.
        truncated: Texts that were cut until now.
        there: Shards that were there before.
        written: Shards that this call wrote.
        written_texts: Texts in those.
        written_tokens: Tokens of those.
        written_bytes: Bytes of those on the disk.
        missing: Shards that are not there: those of other parts.
        seconds: Duration of the call.
        free: Bytes that are free where the store goes, of a dry run.
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
    free: int = 0


class Watcher:
    """Receives the progress of a job; this one ignores it."""

    def planning(self, rows: int, tokens: int) -> None:
        """Called with the number of rows and the estimated number of tokens counted so far."""

    def reading(self, texts: int, total: int) -> None:
        """Called with the number of texts that a dry run has read so far."""

    def planned(self, report: JobReport, shards: Sequence[ShardPlan], free: int) -> None:
        """Called with the shards to compute and the free bytes on their disk."""

    def committed(self, shard: ShardPlan, reports: Sequence[ShardReport]) -> None:
        """Called when a shard is on the disk, in one store or in that of each model."""


class ExtractionProgress(Watcher):
    """Shows the progress of a job: its plan, its size and the shards that are committed.

    Args:
        progress: Shows it.
        clock: Seconds; a test has its own.
    """

    def __init__(
        self, progress: ProgressReporter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._progress, self._clock = progress, clock
        self._planned = self._read = 0
        self._todo: Sequence[ShardPlan] = ()
        self._done: list[ShardPlan] = []
        self._bytes = 0
        self._began = clock()

    def planning(self, rows: int, tokens: int) -> None:
        """Rows and tokens that were counted until now."""
        if not self._planned:
            self._progress.expect("planning", None, "rows")
        self._progress("planning", rows - self._planned, f"about {tokens:,} tokens")
        self._planned = rows

    def reading(self, texts: int, total: int) -> None:
        """Texts that were read until now."""
        if not self._read:
            self._progress.expect("reading", total, "texts")
        self._progress("reading", texts - self._read)
        self._read = texts

    def planned(self, report: JobReport, shards: Sequence[ShardPlan], free: int) -> None:
        """Announce the work to be done and its size."""
        self._todo, self._began = shards, self._clock()
        there = f"; {report.there} are there" if report.there else ""
        size = sum(shard.bytes for shard in shards)
        self._progress.announce(
            f"{report.texts:,} rows, about {report.tokens:,} tokens: {len(shards)} of "
            f"{report.shards} shards to compute{there}; about {readable_size(size)} of attention "
            f"before compression, beside the tables of texts and tokens; {readable_size(free)} are "
            "free"
        )
        if shards:
            self._progress.announce("the time left is known after the first shard")
            self._progress.expect("extracting", sum(shard.tokens for shard in shards), "tokens")

    def committed(self, shard: ShardPlan, reports: Sequence[ShardReport]) -> None:
        """Report the shards that were committed, the rate and the time left."""
        self._done.append(shard)
        self._bytes += sum(report.bytes for report in reports)
        self._progress("extracting", shard.tokens, self._rates())

    def _rates(self) -> str:
        texts = sum(shard.stop - shard.start for shard in self._done)
        tokens = sum(shard.tokens for shard in self._done)
        seconds = max(self._clock() - self._began, 1e-9)
        return (
            f"shard {len(self._done)} of {len(self._todo)}: {texts:,} texts, "
            f"{texts / seconds:,.1f} texts/s, {tokens / seconds:,.0f} tokens/s, "
            f"{readable_size(self._bytes)}"
        )


def check_request(models: Sequence[Pretrained], spec: JobSpec) -> None:
    """Refuse what can be refused without reading the corpus."""
    check_alike(models)
    model, settings = models[0], spec.settings
    model_inputs.check_capture(spec.capture, *model.counts())
    if settings.reduce:
        OnlineMoments(*settings.reduce)
    if spec.on_error not in POLICIES:
        raise InputError(
            f"on_error {spec.on_error!r} is unknown\nchoose one of {', '.join(POLICIES)}"
        )
    for name in ("shard_bytes", "shard_texts", "limit"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}, expected at least 1")
    if settings.shard_texts > SHARD_TEXTS:
        raise InputError(f"shard_texts is {settings.shard_texts}, expected at most {SHARD_TEXTS}")
    measure_for(model, spec.columns.pair is not None)


def refuse_texts(inputs: Sequence[Any]) -> None:
    """Refuse texts in the place of files."""
    for item in inputs:
        parts = item if isinstance(item, tuple) else (item,)
        for part in parts:
            is_path = isinstance(part, str | os.PathLike)
            name = os.fspath(part) if is_path else ""
            spaced = len(str(name).split()) > 1 and not kind_of(Path(name))
            if is_path and not (spaced and not glob.has_magic(name) and not os.path.lexists(name)):
                continue
            received = "a text" if is_path else type(part).__name__
            raise InputError(
                f"extract_to reads files, and {str(part)[:80]!r} is not the name of one\n"
                f"expected paths or patterns, received {received}\n"
                "write the texts to a file, one per line, or call fa.extract(model, texts)"
            )


def prepare_arguments(
    model: Pretrained, spec: JobSpec, files: Sequence[InputFile]
) -> tuple[JobPlan, Corpus, Bytes]:
    """Return the arguments of `make_plan`: a plan without shards, the corpus, sizes of texts."""
    reduce = tuple(kind for kind in KINDS if kind in spec.settings.reduce)
    settings = dataclasses.replace(spec.settings, reduce=reduce)
    measure = measure_for(model, spec.columns.pair is not None)
    corpus = Corpus.of(files, measure, spec.on_error)  # before the files are read
    plan = JobPlan(
        fingerprint(files), spec.columns, model_fingerprint(model), spec.capture, settings
    )
    which = sides(model.config)
    return plan, corpus, lambda size: raw_bytes(spec.capture, which, size)


def shard_counts(works: Sequence[StoreWork], numbers: Iterable[int]) -> dict[int, Counts]:
    """Counts of those shards that are there in every store."""
    there = [n for n in numbers if not any(work.lacks(n) for work in works)]
    return {number: read_manifest(works[0].store, number).counts for number in there}


def read_counts(
    plan: JobPlan, corpus: Corpus, bytes_of: Bytes, known: Mapping[int, Counts], watcher: Watcher
) -> dict[int, Counts]:
    """Predict the counts of the other shards from their texts."""
    found, texts = {}, 0
    with contextlib.closing(KeptOpen()) as opened:
        for number, shard in enumerate(plan.shards):
            if number in known:
                continue
            read = shard_texts(plan, number, corpus, opened)
            sizes = measured_texts(plan, corpus, read)
            found[number] = {
                "rows": shard.stop - shard.start,
                "texts": len(sizes),
                "tokens": sum(size.source + size.target for size in sizes),
                "bytes": sum(map(bytes_of, sizes)),
                "truncated": sum(bool(size.source_cut or size.target_cut) for size in sizes),
                "bad": Counter(problem.code for problem in read.problems),
            }
            texts += shard.stop - shard.start
            watcher.reading(texts, plan.texts)
    return found


def report_of(
    store: Path, works: Sequence[StoreWork], counts: Mapping[int, Counts], seconds: float = 0.0
) -> JobReport:
    """Report a job from the counts of the shards that are there; others count as planned."""
    plan = works[0].plan
    planned = [s for number, s in enumerate(plan.shards) if number not in counts]
    sums = {name: sum(count[name] for count in counts.values()) for name in COUNTS}
    bad = Counter(problem.code for problem in plan.problems)
    for count in counts.values():
        bad.update(count["bad"])
    return JobReport(
        store=store,
        texts=sums["texts"] + sum(shard.stop - shard.start for shard in planned),
        tokens=sums["tokens"] + sum(shard.tokens for shard in planned),
        bytes=(sums["bytes"] + sum(shard.bytes for shard in planned)) * len(works),
        shards=len(plan.shards),
        rows={"rows": sums["rows"], "kept": sums["texts"], "bad": dict(sorted(bad.items()))},
        truncated=sums["truncated"],
        there=len(counts),
        missing=len(planned),
        seconds=seconds,
    )


def folders(model: Models) -> dict[str, Pretrained]:
    """Models by the folder of their store inside another; one alone has the whole of it."""
    if isinstance(model, str | Path):
        model = from_pretrained(model)
    if isinstance(model, Pretrained):
        return {"": model}
    if not isinstance(model, Mapping):
        names = [Path(name).name for name in model]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(
                f"two models are called {twice[0]!r}, and so would their stores be\n"
                "rename a directory, or extract one after the other"
            )
        if len(names) == 1:
            return {"": from_pretrained(model[0])}
        model = {name: from_pretrained(path) for name, path in zip(names, model, strict=True)}
    found = {safe_name(name) if name else "": one for name, one in model.items()}
    if len(model) > 1 and "" in found:
        raise InputError("a model has an empty name\nname every model, its store is called so")
    return found


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
            `shard_texts` as in `plan.Settings`; `batch_tokens`, `mesh`, `devices`, `workers`
            and `allow_nonfinite` as in `extraction.Options`; `input_format`, that of standard input
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
