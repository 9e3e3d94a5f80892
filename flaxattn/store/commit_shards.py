# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Shards of planned stores computed and committed, one after the other, whoever asks.

The texts of a shard come from the files of the corpus, see `make_plan`; while a shard is compressed
and written, the device works on the next one. `extract_to` divides the shards among processes.
"""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from flaxattn.corpus.input_files import KeptOpen
from flaxattn.corpus.texts import Columns, Text
from flaxattn.errors import InputError
from flaxattn.files import printable, written_whole
from flaxattn.pipeline.extraction import ExtractedTexts as Computed
from flaxattn.pipeline.extraction import Options, extract_shards
from flaxattn.pipeline.tokenize_texts import TextError
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq
from flaxattn.store.job_plan import JobPlan, Settings, ShardPlan, write_sum
from flaxattn.store.make_plan import Corpus, ShardTexts, reading_problem, shard_texts
from flaxattn.store.model_fingerprint import mark
from flaxattn.store.shard_writer import ShardReport, write_shard
from flaxattn.store.store_layout import PLAN, shard_folder

_TEXTS = 256  # of a shard of texts in memory


class StoreWork(NamedTuple):
    """A store to fill.

    Attributes:
        store: its folder, which `make_plan.prepare` filled.
        plan: what that returned.
        model: the one that the plan names.
        corpus: what the plan was made of.
    """

    store: Path
    plan: JobPlan
    model: Pretrained
    corpus: Corpus

    def lacks(self, number: int) -> bool:
        """Return whether a shard is not there yet."""
        return not shard_folder(self.store, number).is_dir()


# What `commit_shards` is, and what computes shards elsewhere.
Commit = Callable[
    [Sequence[StoreWork], Iterable[int], Options], Generator[list[ShardReport], None, None]
]


def options_of(plan: JobPlan, model: Pretrained, options: Options) -> Options:
    """Options with all that decides the content of a shard taken from its plan."""
    writes = isinstance(model, PretrainedSeq2Seq) and plan.columns.pair is None
    return replace(
        options,
        capture=plan.capture,
        truncate=plan.settings.truncate,
        reduce=plan.settings.reduce,
        settings={"seed": plan.settings.seed} if writes else {},
    )


def commit_shards(
    works: Sequence[StoreWork], numbers: Iterable[int], options: Options
) -> Generator[list[ShardReport], None, None]:
    """Compute shards and put them into their stores; those that are there are passed over.

    Memory: the traces of two shards, and a shard while it is compressed.
    """
    first = works[0]
    models = [replace(w.model, name=w.plan.model.name) for w in works]
    members: dict[int, ShardTexts] = {}

    def given(opened: KeptOpen) -> Iterator[list[Text]]:
        for number in numbers:
            if any(work.lacks(number) for work in works):
                found = shard_texts(first.plan, number, first.corpus, opened)
                members[number] = found
                yield list(found.texts.values())

    def leave_out(error: TextError) -> None:
        read = next(read for read in members.values() if error.number in read.texts)
        problem = reading_problem(first.plan, first.corpus, read.texts[error.number])
        if problem is None:
            raise error
        read.leave_out(error.number, problem)

    before: Future[list[ShardReport]] | None = None
    with (
        contextlib.closing(KeptOpen()) as opened,
        ThreadPoolExecutor(1, thread_name_prefix="flaxattn-write") as writer,
    ):
        how = options_of(first.plan, first.model, options)
        found = extract_shards(models, given(opened), how, leave_out=leave_out)
        for computed in _named(found, members):
            number = next(iter(members))
            if before is not None:
                yield before.result()
            before = writer.submit(_write, works, number, members.pop(number), computed)
            del computed
        if before is not None:
            yield before.result()


def write_texts(store: Path, model: Pretrained, texts: Sequence[Text], options: Options) -> None:
    """Write a store of texts in memory, numbered from 0: whole or not at all.

    Memory: the traces of 256 texts.
    """
    parts = [texts[start : start + _TEXTS] for start in range(0, len(texts), _TEXTS)]
    plan = JobPlan(
        files=(),
        columns=Columns(),
        model=mark(model),
        capture=options.capture,
        settings=Settings(options.truncate, reduce=options.reduce, shard_texts=_TEXTS),
        texts=len(texts),
        shards=tuple(ShardPlan(p[0].index, p[-1].index + 1, 0, 0) for p in parts),
    )
    with written_whole(store, last=PLAN) as staging:
        (staging / PLAN).write_text(plan.text, encoding="utf-8")
        write_sum(staging)
        for number, (shard,) in enumerate(extract_shards([model], parts, options)):
            _write_one(staging, plan, number, parts[number], shard)


def _write_one(
    store: Path, plan: JobPlan, number: int, texts: Sequence[Text], shard: Computed, **options: Any
) -> ShardReport:
    """Write a shard of texts and their traces."""
    items = list(zip(texts, shard.traces, strict=True))
    table = None if shard.reductions is None else shard.reductions.table()
    span = plan.shards[number]
    return write_shard(store, plan.sha256, number, span, items, table, shard.nonfinite, **options)


def _named(
    found: Iterator[list[Computed]], members: Mapping[int, ShardTexts]
) -> Iterator[list[Computed]]:
    """Yield shards; an error of a text names its file and line."""
    try:
        yield from found
    except TextError as error:
        text = next(r.texts[error.number] for r in members.values() if error.number in r.texts)
        where = f"{printable(text.file)}, line {text.line}"
        raise InputError(f"{where}: {error.problem}") from error


def _write(
    works: Sequence[StoreWork],
    number: int,
    read: ShardTexts,
    computed: Sequence[Computed],
) -> list[ShardReport]:
    reports = []
    for work, shard in zip(works, computed, strict=True):
        if work.lacks(number):
            span = work.plan.shards[number]
            texts = [replace(t, index=n) for n, t in enumerate(read.texts.values(), span.start)]
            kept = {"problems": read.problems, "mode": work.corpus.mode}
            reports.append(_write_one(work.store, work.plan, number, texts, shard, **kept))
    # Arrow keeps what tables took for tables to come, piece by piece more with every shard.
    pa.default_memory_pool().release_unused()
    return reports
