# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Cutting a corpus into shards, and reading the texts of one of them.

    plan.json  plan.sha256

A shard is a range of rows of the files. To cut a corpus, its rows are counted and not interpreted;
the size of their attention is estimated from the first thousand texts. Problems of a row are found
when its shard is read. Nothing is computed here: see `commit_shards`.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from flaxattn.corpus.bad_rows import ListedProblems, Problem, excerpt
from flaxattn.corpus.input_files import (
    FilePart,
    InputFile,
    KeptOpen,
    file_states,
    readable_paths,
    shared_mode,
)
from flaxattn.corpus.rows import RowPlace
from flaxattn.corpus.texts import Text, read_parts, read_texts, text_places
from flaxattn.errors import InputError
from flaxattn.files import remove_abandoned, written_whole
from flaxattn.pipeline.batches import Measure, TextSize
from flaxattn.store.folder_lock import locked
from flaxattn.store.job_plan import (
    PLAN,
    JobPlan,
    Rows,
    ShardPlan,
    check_plan_files,
    read_plan,
    write_sum,
)

_CHARACTERS = 2**18  # tokenized together
_ROWS = 1024
_SAMPLE = 1000  # texts that are tokenized to estimate the size of the others
_LONGEST_SHARD = 2**26  # bytes of text
_NOTED = 2**14  # rows between two notes of progress
Bytes = Callable[[TextSize], int]
Note = Callable[[int, int], object]


class Corpus(NamedTuple):
    """The files of a job and how their texts are read.

    Attributes:
        files: in order.
        measure: tokens of texts.
        on_error: "fail", "skip" or "quarantine", see `corpus.bad_rows`.
        states: of the files as they are to stay, see `file_states`.
        mode: permissions that all files have, which what is made of their texts gets too.
    """

    files: Sequence[InputFile]
    measure: Measure
    on_error: str
    states: Mapping[Path, tuple[int, int]]
    mode: int

    @classmethod
    def of(cls, files: Sequence[InputFile], measure: Measure, on_error: str) -> Self:
        """The corpus of files as they are now."""
        mode = shared_mode(readable_paths(files))
        return cls(files, measure, on_error, file_states(files), mode)

    @property
    def paths(self) -> dict[str, str]:
        """Paths of the files by their names, partners of parallel text among them."""
        every = [one for file in self.files for one in (file, file.pair) if one is not None]
        return {file.name: str(file.path) for file in every}

    def check(self, files: Iterable[InputFile]) -> None:
        """Refuse files that changed, or are gone, since they were compared with the plan."""
        try:
            same = file_states(files).items() <= self.states.items()
        except OSError:
            same = False
        if not same:
            raise _changed()


def prepare(
    store: Path, request: JobPlan, corpus: Corpus, bytes_of: Bytes, *, note: Note | None = None
) -> JobPlan:
    """The plan in a store: the one that is there, if its request is the same, or a new one.

    Processes of one machine that ask at the same time wait for the first one.
    """
    with locked(store / ".plan.lock"):
        if found := read_plan(store):
            check_same(store, found, request)
            if any(rows.file >= len(corpus.files) for s in found.shards for rows in s.rows):
                raise InputError(
                    f"{store / PLAN} cannot be used\nit names rows of more files than there are\n"
                    "restore it, or extract into another folder"
                )
            if found.problems and corpus.on_error == "fail":
                ListedProblems().report(found.problems[0])
            return found
        remove_abandoned(store, f".{store.name}.*.part")  # see `written_whole`
        plan = make_plan(request, corpus, bytes_of, note=note)
        with written_whole(store, last=PLAN) as staging:
            (staging / PLAN).write_text(plan.text, encoding="utf-8")
            write_sum(staging)
    return plan


def make_plan(
    request: JobPlan, corpus: Corpus, bytes_of: Bytes, *, note: Note | None = None
) -> JobPlan:
    """Count the rows of a corpus, and cut it into shards."""
    sample = _measured_sample(request, corpus)
    bad = ListedProblems(corpus.on_error)
    rows = itertools.islice(_rows(request, corpus.files, bad), request.settings.limit)
    shards = tuple(_shards(_sized(rows, corpus.files, sample), request, bytes_of, note))
    if not sample:
        raise InputError(
            f"no text to read in {', '.join(file.name for file in corpus.files[:8])}\n"
            f"received {shards[-1].stop if shards else 0} rows without a text\n"
            "give files that hold texts"
        )
    corpus.check(corpus.files)
    return dataclasses.replace(
        request,
        texts=shards[-1].stop,
        tokens=sum(shard.tokens for shard in shards),
        bytes=sum(shard.bytes for shard in shards),
        problems=tuple(ShardTexts((), bad, corpus.paths).problems),
        shards=shards,
    )


class ShardTexts:
    """The texts of a shard, and the rows that are left out.

    Attributes:
        texts: by number, in order.
    """

    def __init__(
        self, texts: Iterable[Text], bad: ListedProblems, paths: Mapping[str, str]
    ) -> None:
        self.texts = {text.index: text for text in texts}
        self._bad, self._paths = bad, paths

    def leave_out(self, number: int, problem: Problem) -> None:
        """Take out a text that the model cannot read; under "fail" the problem is raised."""
        self._bad.report(problem)
        del self.texts[number]

    @property
    def problems(self) -> list[Problem]:
        """Problems of the rows that are left out, in their order; files as in the plan."""
        names = {path: name for name, path in self._paths.items()}
        places = {path: place for place, path in enumerate(names)}
        found = sorted(self._bad.problems, key=lambda problem: (places[problem.file], problem.line))
        return [problem._replace(file=names[problem.file]) for problem in found]


def shard_texts(plan: JobPlan, number: int, corpus: Corpus, opened: KeptOpen) -> ShardTexts:
    """Read the texts of a shard from the files of the corpus; nothing is tokenized."""
    shard, bad = plan.shards[number], ListedProblems(corpus.on_error)
    parts = [(corpus.files[rows.file], FilePart(*rows[1:], opened)) for rows in shard.rows]
    files = [file for file, _ in parts]
    corpus.check(files)
    texts = list(read_parts(parts, plan.columns, bad, shard.start))
    corpus.check(files)
    if bad.rows_read != shard.stop - shard.start:
        raise _changed()
    return ShardTexts(texts, bad, corpus.paths)


def reading_problem(plan: JobPlan, corpus: Corpus, text: Text) -> Problem | None:
    """Describe why the model cannot read a text; None if its number of tokens is not the cause."""
    ((_, size),) = _measured(plan, corpus, iter([text]))
    return _size_problem(plan, corpus.paths[text.file], text, size)


def measured_texts(plan: JobPlan, corpus: Corpus, read: ShardTexts) -> list[TextSize]:
    """Sizes of the texts of a shard; those that the model cannot read are left out."""
    sizes, paths = [], corpus.paths
    for text, size in list(_measured(plan, corpus, iter(read.texts.values()))):
        if problem := _size_problem(plan, paths[text.file], text, size):
            read.leave_out(text.index, problem)
        else:
            sizes.append(size)
    return sizes


def check_same(store: Path, found: JobPlan, request: JobPlan) -> None:
    """Refuse to continue with a store of another plan, or with one whose plan was damaged."""
    check_plan_files(store, found.sha256)
    if changes := found.compare(request):
        more = f" and {len(changes) - 4} more" if len(changes) > 4 else ""
        raise InputError(
            f"{store} holds another extraction\nchanged: {'; '.join(changes[:4])}{more}\n"
            "put it back as it was, or name another folder"
        )


def _changed() -> InputError:
    return InputError(
        "a file of the corpus changed while it was read\nstart again when nobody writes to it"
    )


def _measured_sample(request: JobPlan, corpus: Corpus) -> dict[tuple[str, int], TextSize]:
    """Sizes of the first texts by file and line; under "fail" the first problem is raised."""
    bad = ListedProblems(corpus.on_error)
    texts = itertools.islice(read_texts(corpus.files, request.columns, bad), request.settings.limit)
    found, paths = {}, corpus.paths
    for text, size in _measured(request, corpus, itertools.islice(texts, _SAMPLE)):
        if problem := _size_problem(request, paths[text.file], text, size):
            bad.report(problem)
        else:
            found[text.file, text.line] = size
    return found


def _measured(
    request: JobPlan, corpus: Corpus, texts: Iterator[Text]
) -> Iterator[tuple[Text, TextSize]]:
    """Texts with their sizes."""
    for group in _groups(texts):
        seconds = None if request.columns.pair is None else [text.text_b or "" for text in group]
        sizes = corpus.measure([text.text for text in group], seconds)
        yield from zip(group, sizes, strict=True)


def _size_problem(request: JobPlan, path: str, text: Text, size: TextSize) -> Problem | None:
    """Describe why the model cannot read a text of a size; None if it can."""
    code, column, wrong = "too-many-tokens", request.columns.text, text.text
    if not size.source:
        return Problem(path, text.line, column, "empty", "the text has no token", excerpt(wrong))
    excess = size.source_cut or size.target_cut
    if request.settings.truncate or not excess:
        return None
    if not size.source_cut:
        column, wrong = request.columns.pair or column, text.text_b
    message = f"{size.limit + excess} tokens, the model takes {size.limit}"
    return Problem(path, text.line, column, code, message, excerpt(wrong))


def _groups(texts: Iterator[Text]) -> Iterator[list[Text]]:
    """Texts that are tokenized together."""
    group: list[Text] = []
    length = 0
    for text in texts:
        group.append(text)
        length += len(text.text) + len(text.text_b or "")
        if length >= _CHARACTERS or len(group) == _ROWS:
            yield group
            group, length = [], 0
    if group:
        yield group


_Row = tuple[int, RowPlace, int]  # number of the file, place, place of its partner
_Sized = tuple[_Row, TextSize | None]


def _rows(request: JobPlan, files: Sequence[InputFile], bad: ListedProblems) -> Iterator[_Row]:
    """Every row of a corpus."""
    for number, file in enumerate(files):
        for place, pair_offset in text_places(file, request.columns, bad):
            yield number, place, pair_offset


def _sized(
    rows: Iterator[_Row], files: Sequence[InputFile], sample: dict[tuple[str, int], TextSize]
) -> Iterator[_Sized]:
    """Rows with their sizes: those of the sample exactly, None if unusable; others by length."""
    names = [file.name for file in files]
    left, known = len(sample), list[_Sized]()
    bytes_read = 0
    while left and (row := next(rows, None)):
        size = sample.get((names[row[0]], row[1].line + 1))
        bytes_read += row[1].size if size else 0
        left -= size is not None
        known.append((row, size))
    yield from known
    if not sample:
        yield from ((row, None) for row in rows)
        return
    bytes_read, limit = max(bytes_read, 1), next(iter(sample.values())).limit
    source = sum(size.source for size in sample.values()) / bytes_read
    target = sum(size.target for size in sample.values()) / bytes_read
    sizes: dict[int, TextSize] = {}
    for row in rows:
        length = row[1].size
        if length not in sizes:
            tokens, written = (min(limit, math.ceil(length * rate)) for rate in (source, target))
            sizes[length] = TextSize(tokens, written, 0, 0, limit)
        yield row, sizes[length]


def _shards(
    rows: Iterator[_Sized], request: JobPlan, bytes_of: Bytes, note: Note | None
) -> Iterator[ShardPlan]:
    """One shard after another, of as many rows as fit."""
    settings, start, stop, total = request.settings, 0, 0, 0
    parts: list[Rows] = []
    end = tokens = used = length = 0  # of the last part and of the shard
    areas: dict[TextSize | None, tuple[int, int]] = {None: (0, 0)}

    def made() -> ShardPlan:
        whole = (*parts[:-1], parts[-1]._replace(stop=end))
        return ShardPlan(start, stop, tokens, used, whole)

    for (file, place, pair_offset), size in rows:
        if size is not None and size not in areas:
            areas[size] = bytes_of(size), size.source + size.target
        area, added = areas[size]
        full = used + area > settings.shard_bytes or length + place.size > _LONGEST_SHARD
        if parts and (full or stop - start == settings.shard_texts):
            yield made()
            parts, start, tokens, used, length = [], stop, 0, 0, 0
        if not parts or parts[-1].file != file:
            parts[-1:] = [last._replace(stop=end) for last in parts[-1:]]
            parts.append(Rows(file, place.line, place.stop, place.offset, pair_offset))
        end, stop = place.stop, stop + 1
        tokens, used, length = tokens + added, used + area, length + place.size
        total += added
        if note and not stop % _NOTED:
            note(stop, total)
    if parts:
        yield made()
    if note:
        note(stop, total)
