# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Shards of planned stores computed and committed, one after the other, whoever asks.

The texts of a shard come from the store itself, see `make_plan`; while a shard is compressed and
written, the device works on the next one. Which shards are whose is decided in `run`.
"""

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from flaxattn.corpus.safe_text import printable
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.pipeline.extraction import ExtractedTexts as Computed
from flaxattn.pipeline.extraction import Options, extract_shards
from flaxattn.pipeline.tokenize_texts import TextError
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq
from flaxattn.store.job_plan import JobPlan
from flaxattn.store.make_plan import shard_texts
from flaxattn.store.shard_writer import ShardReport, write_shard
from flaxattn.store.store_layout import shard_folder


class StoreWork(NamedTuple):
    """A store to fill.

    Attributes:
        store: its folder, which `planning.prepare` filled.
        plan: what that returned.
        model: the one that the plan names.
    """

    store: Path
    plan: JobPlan
    model: Pretrained

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
    return dataclasses.replace(
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
    models = [dataclasses.replace(w.model, name=w.plan.model.name) for w in works]
    members: dict[int, list[Text]] = {}

    def given() -> Iterator[list[Text]]:
        for number in numbers:
            if any(work.lacks(number) for work in works):
                sized = shard_texts(first.store, first.plan, number)
                members[number] = [text for text, _ in sized]
                yield members[number]

    marks = [work.plan.sha256 for work in works]
    before: Future[list[ShardReport]] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="flaxattn-write") as writer:
        found = extract_shards(models, given(), options_of(first.plan, first.model, options))
        for computed in _named(found, members):
            number = next(iter(members))
            if before is not None:
                yield before.result()
            texts = members.pop(number)
            before = writer.submit(_write, works, marks, number, texts, computed)
            del computed
        if before is not None:
            yield before.result()


def _named(
    found: Iterator[list[Computed]], members: dict[int, list[Text]]
) -> Iterator[list[Computed]]:
    """The same; a text that cannot be read is named by where it stands."""
    try:
        yield from found
    except TextError as error:
        every = (text for texts in members.values() for text in texts)
        text = next(text for text in every if text.index == error.number)
        where = f"{printable(text.file)}, line {text.line}"
        raise InputError(f"{where}: {error.problem}") from error


def _write(
    works: Sequence[StoreWork],
    marks: Sequence[str],
    number: int,
    texts: Sequence[Text],
    computed: Sequence[Computed],
) -> list[ShardReport]:
    reports = []
    for work, mark, shard in zip(works, marks, computed, strict=True):
        if work.lacks(number):
            items = list(zip(texts, shard.traces, strict=True))
            table = None if shard.reductions is None else shard.reductions.table()
            span = work.plan.shards[number]
            broken = shard.nonfinite
            reports.append(write_shard(work.store, mark, number, span, items, table, broken))
    # Arrow keeps what tables took for tables to come, piece by piece more with every shard.
    pa.default_memory_pool().release_unused()
    return reports
