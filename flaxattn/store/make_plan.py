# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Going once over a corpus: its texts measured, cut into shards and put into the store.

    plan.json  inputs.parquet  plan.sha256  errors.jsonl  errors.sha256

`inputs.parquet` has the texts of a shard in a row group of that number. So a shard is read without
the texts before it, and stays what it was when a file of the corpus changes. Memory does not grow
with the corpus. Nothing is computed here: see `extract`.
"""

import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.input_files import InputFile, fingerprint, shared_mode
from flaxattn.corpus.texts import Text, read_texts
from flaxattn.errors import InputError
from flaxattn.files import remove_abandoned, written_whole
from flaxattn.pipeline.text_sizes import Measure, TextSize
from flaxattn.store.folder_lock import locked
from flaxattn.store.job_plan import PLAN, JobPlan, ShardPlan, read_plan
from flaxattn.store.plan_sums import check_plan_files, write_sums
from flaxattn.store.store_layout import ERRORS, ERRORS_SEAL, INPUTS, PLAN_SEAL

_REQUEST = b"flaxattn.request"
_CHARACTERS = 2**18  # tokenised together
_ROWS = 1024
_LONGEST_SHARD = 2**26  # characters
_FIELDS = ("index", "id", "text", "text_b", "file", "line")
Bytes = Callable[[TextSize], int]
Measured = tuple[Text, TextSize]
Note = Callable[[int, int], object]


def prepare(
    store: Path,
    request: JobPlan,
    files: Sequence[InputFile],
    measure: Measure,
    bytes_of: Bytes,
    *,
    note: Note | None = None,
) -> JobPlan:
    """The plan in a store: the one that is there, if it is of the same, or else a new one.

    Processes of one machine that ask at the same time wait for the first one.
    """
    with locked(store / ".plan.lock"):
        if found := read_plan(store):
            check_same(store, found, request)
            return found
        remove_abandoned(store, f".{store.name}.*.part")  # see `written_whole`
        private: dict[str, int] = dict.fromkeys((INPUTS, ERRORS), _mode(files))  # they hold texts
        with written_whole(store, last=PLAN, modes=private) as staging:
            bad = BadRows(request.settings.on_error, staging)
            plan = make_plan(
                request, files, measure, bytes_of, bad, keep=staging / INPUTS, note=note
            )
            (staging / PLAN).write_text(plan.text, encoding="utf-8")
            write_sums(staging, PLAN_SEAL, PLAN, INPUTS)
            if (staging / ERRORS).is_file():
                write_sums(staging, ERRORS_SEAL, ERRORS)
    return plan


def make_plan(
    request: JobPlan,
    files: Sequence[InputFile],
    measure: Measure,
    bytes_of: Bytes,
    bad: BadRows,
    *,
    keep: Path | None = None,
    note: Note | None = None,
) -> JobPlan:
    """Go over a corpus, and cut it into shards."""
    texts = _measured(request, files, measure, bad)
    texts = itertools.islice(texts, request.settings.limit)
    shards: list[ShardPlan] = []
    tokens = cut = 0
    with nullcontext(_drop) if keep is None else _kept(keep, request) as write:
        for shard, members in _shards(texts, request, bytes_of):
            shards.append(shard)
            write(members)
            tokens += shard.tokens
            cut += sum(bool(size.source_cut or size.target_cut) for _, size in members)
            if note:
                note(shard.stop, tokens)
    if not shards:
        left_out = f", {sum(bad.counts.values())} problems" if bad.counts else ""
        raise InputError(
            f"no text to read in {', '.join(file.name for file in files[:8])}\n"
            f"received {bad.rows_read} rows{left_out}\ngive files that hold texts"
        )
    if fingerprint(files) != request.files:
        raise InputError(
            "a file of the corpus changed while it was read\nstart again when nobody writes to it"
        )
    return dataclasses.replace(
        request,
        texts=shards[-1].stop,
        tokens=tokens,
        bytes=sum(shard.bytes for shard in shards),
        truncated=cut,
        rows=bad.summary(),
        shards=tuple(shards),
    )


def shard_texts(store: Path, plan: JobPlan, number: int) -> list[Measured]:
    """The texts of a shard, in order, and how long they are for the model."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, shard = store / INPUTS, plan.shards[number]
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if (file.metadata.metadata or {}).get(_REQUEST) != plan.request_sha256.encode():
                raise ValueError("it belongs to another plan")
            rows = file.read_row_group(number).to_pylist()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unusable(path, str(error)) from error
    if [row["index"] for row in rows] != list(range(shard.start, shard.stop)):
        raise _unusable(path, f"shard {number} has other texts than the plan says")
    return [
        (
            Text(**{name: row[name] for name in _FIELDS}),
            TextSize(*(row[n] for n in TextSize._fields)),
        )
        for row in rows
    ]


def _mode(files: Sequence[InputFile]) -> int:
    """The permissions that all files of a corpus have in common."""
    every = [one for file in files for one in (file, file.pair) if one and one.problem is None]
    return shared_mode(one.path for one in every)


def _unusable(path: Path, reason: str) -> InputError:
    return InputError(
        f"{path} cannot be used\n{reason.splitlines()[0]}\n"
        "restore it, or extract into another folder"
    )


def check_same(store: Path, found: JobPlan, request: JobPlan) -> None:
    """Refuse to continue with a store of another plan, or with one whose plan was damaged."""
    check_plan_files(store, found.sha256)
    if changes := found.compare(request):
        more = f" and {len(changes) - 4} more" if len(changes) > 4 else ""
        raise InputError(
            f"{store} holds another extraction\nchanged: {'; '.join(changes[:4])}{more}\n"
            "put it back as it was, or name another folder"
        )


def _measured(
    request: JobPlan, files: Sequence[InputFile], measure: Measure, bad: BadRows
) -> Iterator[Measured]:
    """Texts that the model can read, numbered."""
    paths = {file.name: str(file.path) for file in files}
    index = 0
    for group in _groups(read_texts(files, request.columns, bad)):
        seconds = None if request.columns.pair is None else [text.text_b or "" for text in group]
        sizes = measure([text.text for text in group], seconds)
        for text, size in zip(group, sizes, strict=True):
            if problem := _unfit(request, paths[text.file], text, size):
                bad.report(problem)
            else:
                yield dataclasses.replace(text, index=index), size
                index += 1


def _unfit(request: JobPlan, path: str, text: Text, size: TextSize) -> Problem | None:
    """Why the model cannot read a text."""
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
    """Texts that are tokenised together."""
    group: list[Text] = []
    length = 0
    for text in texts:
        group.append(text)
        length += _length(text)
        if length >= _CHARACTERS or len(group) == _ROWS:
            yield group
            group, length = [], 0
    if group:
        yield group


def _shards(
    texts: Iterator[Measured], request: JobPlan, bytes_of: Bytes
) -> Iterator[tuple[ShardPlan, list[Measured]]]:
    """Texts of one shard after another: as many as fit."""
    members: list[Measured] = []
    tokens = used = length = 0
    for text, length_of in texts:
        size, characters = bytes_of(length_of), _length(text)
        full = used + size > request.settings.shard_bytes or length + characters > _LONGEST_SHARD
        if members and (full or len(members) == request.settings.shard_texts):
            yield _shard(members, tokens, used), members
            members, tokens, used, length = [], 0, 0, 0
        members.append((text, length_of))
        tokens += length_of.source + length_of.target
        used, length = used + size, length + characters
    if members:
        yield _shard(members, tokens, used), members


def _shard(members: Sequence[Measured], tokens: int, used: int) -> ShardPlan:
    return ShardPlan(members[0][0].index, members[-1][0].index + 1, tokens, used)


def _length(text: Text) -> int:
    return len(text.text) + len(text.text_b or "")


def _drop(_: Sequence[Measured]) -> None:
    """Keep nothing."""


@contextmanager
def _kept(path: Path, request: JobPlan) -> Iterator[Callable[[Sequence[Measured]], None]]:
    """A Parquet file that takes the texts of one shard after another."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    strings = ("id", "text", "text_b", "file")
    fields = [(name, pa.string() if name in strings else pa.int64()) for name in _FIELDS]
    fields += [(name, pa.int64()) for name in TextSize._fields]
    schema = pa.schema(fields, metadata={_REQUEST: request.request_sha256.encode()})
    values = operator.attrgetter(*_FIELDS)
    options: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
    with pq.ParquetWriter(path, schema, **options) as writer:

        def write(members: Sequence[Measured]) -> None:
            rows = zip(*((*values(text), *size) for text, size in members), strict=True)
            table = pa.table([list(column) for column in rows], schema=schema)
            writer.write_table(table, row_group_size=len(members))

        yield write
