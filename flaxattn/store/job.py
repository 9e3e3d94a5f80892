# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Request, report and progress of an extraction job; requests are checked before work begins.

`extract_to` runs a job, `make_plan` makes its plan.
"""

import contextlib
import dataclasses
import glob
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flaxattn.corpus.bad_rows import POLICIES
from flaxattn.corpus.input_files import InputFile, KeptOpen, Name, fingerprint, kind_of
from flaxattn.corpus.texts import Columns
from flaxattn.errors import InputError
from flaxattn.files import readable_size, safe_name
from flaxattn.kernels.contract import Capture
from flaxattn.pipeline.batches import measure_for, raw_bytes, sides
from flaxattn.pipeline.extraction import check_alike
from flaxattn.pipeline.online_moments import KINDS, OnlineMoments
from flaxattn.pipeline.progress_reporter import ProgressReporter
from flaxattn.pretrained import model_inputs
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.store.commit_shards import StoreWork
from flaxattn.store.job_plan import JobPlan, Settings, ShardPlan
from flaxattn.store.make_plan import Bytes, Corpus, measured_texts, shard_texts
from flaxattn.store.model_fingerprint import mark
from flaxattn.store.seals import read_manifest
from flaxattn.store.shard_writer import ShardReport
from flaxattn.store.store_layout import COUNTS, SHARD_TEXTS

WEIGHTS = Capture(weights=True, dtype="float16")
Counts = Mapping[str, Any]  # of a shard, see `Manifest`
Models = Pretrained | Mapping[str, Pretrained] | str | Path | Sequence[str | Path]


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """Specification of a job.

    Attributes:
        inputs: files, patterns, folders, `-` for standard input, or two parallel text files.
        capture: what to keep.
        columns: where the texts stand.
        settings: what else decides the content.
        kind: of standard input, and of files whose name does not tell, see `corpus.lines.KINDS`.
        on_error: what is done with rows that cannot be used, see `corpus.bad_rows`.
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
        store: its folder.
        texts: of all parts. Rows of shards that are not there count as texts.
        tokens: of these, as the model reads them; about, while shards are not there.
        bytes: of all arrays before compression; about, while shards are not there.
        shards: in the plan.
        rows: rows found, kept and left out until now, see `BadRows.summary`.
        truncated: texts that were cut until now.
        there: shards that were there before.
        written: shards that this call wrote.
        written_texts: texts in those.
        written_tokens: tokens of those.
        written_bytes: bytes of those on the disk.
        missing: shards that are not there: those of other parts.
        seconds: that the call took.
        free: bytes that are free where the store goes, of a dry run.
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
    plan = JobPlan(fingerprint(files), spec.columns, mark(model), spec.capture, settings)
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
