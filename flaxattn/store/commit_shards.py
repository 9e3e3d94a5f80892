# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Compute and commit the shards of planned stores, each whole or not at all.

The texts of a shard come from the files of the corpus, see `plan`; while a shard is compressed and
written, the device works on the next one. The files of a shard are made in memory and sealed there,
written into a folder of another name, flushed, read back from the disk and compared with their
seals; then the folder gets its name. `flaxattn.store.shard_tables` makes the content of the files.
`extract_to` divides the shards among processes.
"""

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from flaxattn.corpus.bad_rows import Problem
from flaxattn.corpus.input_files import KeptOpen
from flaxattn.corpus.texts import Columns, Text
from flaxattn.errors import InputError, StoreError
from flaxattn.files import existing_part, printable, written_whole
from flaxattn.pipeline.extraction import ExtractedTexts as Computed
from flaxattn.pipeline.extraction import Options, extract_shards
from flaxattn.pipeline.tokenize_texts import TextError
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq
from flaxattn.store.plan import (
    Corpus,
    JobPlan,
    Settings,
    ShardPlan,
    ShardTexts,
    model_fingerprint,
    reading_problem,
    shard_texts,
    write_sum,
)
from flaxattn.store.seals import (
    NONFINITE,
    Manifest,
    check_content,
    content,
    manifest_in,
    parse_json,
    read_manifest,
    seal,
    small_file,
)
from flaxattn.store.shard_tables import (
    Item,
    arrays,
    check,
    heads_table,
    lengths,
    parquet,
    texts_table,
    tokens_table,
)
from flaxattn.store.store_layout import (
    COUNTS,
    ERRORS,
    HEADS,
    MANIFEST,
    OF_LAYERS,
    PLAN,
    REDUCTIONS,
    SHARDS,
    TEXTS,
    TOKENS,
    part_prefix,
    shard_folder,
)
from flaxattn.store.zarr_arrays import encode, group_file
from flaxattn.trace.record import FIELDS

__all__ = ["Item", "ShardReport", "commit", "remove_leftovers", "write_shard"]


class ShardReport(NamedTuple):
    """Report of a shard.

    Attributes:
        number: The shard.
        texts: Texts in it.
        bytes: On disk.
        written: False if somebody else had written the same shard before.
    """

    number: int
    texts: int
    bytes: int
    written: bool


def write_shard(
    store: Path,
    plan_sha256: str,
    number: int,
    shard: Any,
    items: Sequence[Item],
    reductions: pa.Table | None = None,
    nonfinite: int = 0,
    *,
    problems: Sequence[Problem] = (),
    mode: int = 0o666,
) -> ShardReport:
    """Write a shard of a store and give it its name when it is whole and verified.

    Files with texts get the permissions `mode`. Memory: the arrays of one field a second time, and
    the compressed shard.
    """
    start, stop = (
        int(shard[name] if isinstance(shard, Mapping) else getattr(shard, name))
        for name in ("start", "stop")
    )
    files = shard_files(plan_sha256, number, (start, stop), items, reductions, nonfinite, problems)
    size = sum(map(len, files.values()))
    remove_leftovers(store, number)
    return ShardReport(number, len(items), size, commit(store, number, files, mode))


def shard_files(
    plan_sha256: str,
    number: int,
    span: tuple[int, int],
    items: Sequence[Item],
    reductions: pa.Table | None = None,
    nonfinite: int = 0,
    problems: Sequence[Problem] = (),
) -> dict[str, bytes]:
    """The content of a shard's files, a pure function of what is given."""
    common = check(items, *span, left_out=len(problems))
    if nonfinite:
        common = {**common, NONFINITE: nonfinite}
    bound = {"plan_sha256": plan_sha256, "shard": str(number)}
    tables: dict[str, pa.Table | None] = {REDUCTIONS: reductions}
    if items:
        makers = {TEXTS: texts_table, TOKENS: tokens_table, HEADS: heads_table}
        tables |= {name: make(items) for name, make in makers.items()}
    files = {name: parquet(t, bound) for name, t in tables.items() if t is not None}
    if problems:
        files[ERRORS] = problem_lines(problems)
    entries = {}
    for name, array in arrays(items) if items else ():
        of, _, field = name.partition(".")
        side = common["sides"][of]
        about = {**bound, "layers": side["layers"]}
        about |= {} if field in OF_LAYERS else {"heads": side["heads"]}
        made, entries[name] = encode(name, array, about)
        files |= made
    if entries:
        files |= group_file(bound)
    seals = {name: seal(data) for name, data in files.items()}
    counts = _counts(span[1] - span[0], items, problems)
    own = (span[0], span[0] + len(items))
    manifest = Manifest(plan_sha256, number, *own, counts, common, seals, entries)
    return {**files, MANIFEST: manifest.to_bytes()}


def _counts(rows: int, items: Sequence[Item], problems: Sequence[Problem]) -> dict[str, Any]:
    """`COUNTS`, and the problems by code."""
    traces = [trace for _, trace in items]
    records = [record for trace in traces for record in trace.sides.values()]
    fields = [(*(getattr(r, name) for name in FIELDS), *r.stats.values()) for r in records]
    sizes = [array.nbytes for values in fields for array in values if array is not None]
    numbers = (
        rows,
        len(items),
        sum(sum(lengths(trace).values()) for trace in traces),
        sum(sizes),
        sum(bool(len(trace.truncated) and trace.truncated[0]) for trace in traces),
    )
    bad = Counter(problem.code for problem in problems)
    return {**dict(zip(COUNTS, numbers, strict=True)), "bad": dict(sorted(bad.items()))}


def problem_lines(problems: Iterable[Problem]) -> bytes:
    """The content of a list of problems."""
    return "".join(json.dumps(problem._asdict()) + "\n" for problem in problems).encode()


def stored_problems(store: Path) -> bytes:
    """The list of the problems of the plan of a store, and of all its shards that are there."""
    plan = parse_json(small_file(store, PLAN))
    lists = [problem_lines([Problem(**problem) for problem in plan.get("problems", ())])]
    for number in range(len(plan["shards"])):
        if (folder := shard_folder(store, number)).is_dir():
            sealed = read_manifest(store, number).files.get(ERRORS)
            lists += [] if sealed is None else [content(folder, ERRORS, sealed)]
    return b"".join(lists)


def list_problems(store: Path, mode: int) -> None:
    """Write the list of all rows of a store that were left out until now, if there are any."""
    if lines := stored_problems(store):
        with written_whole(store, mode=mode) as staging:
            (staging / ERRORS).write_bytes(lines)


def commit(store: Path, number: int, files: Mapping[str, bytes], mode: int = 0o666) -> bool:
    """Put a shard's files on the disk under its name."""
    needed = sum(map(len, files.values()))
    with parted(store, number, needed) as part:
        for name, data in files.items():
            _write_file(part / name, data, mode if name in (TEXTS, TOKENS, ERRORS) else 0o666)
        flush_folders(part)
        return named(store, number, part)


@contextlib.contextmanager
def parted(store: Path, number: int, needed: int) -> Iterator[Path]:
    """An empty folder for the files of a shard, that nobody else removes while this one works."""
    shards = store / SHARDS
    try:
        with contextlib.ExitStack() as stack:
            shards.mkdir(parents=True, exist_ok=True)
            part = stack.enter_context(_held(shards, number))
            while not part.exists():  # it was taken for a leftover before it was locked
                part = stack.enter_context(_held(shards, number))
            yield part
    except OSError as error:
        raise _not_written(shard_folder(store, number), needed, error) from error


@contextlib.contextmanager
def _held(shards: Path, number: int) -> Iterator[Path]:
    """A new folder, locked; removed at the end.

    Until it is locked another writer may take it for a leftover: then it is gone from the start.
    """
    part = shards / f"{part_prefix(number)}{secrets.token_hex(8)}.part"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, part, ignore_errors=True)
        part.mkdir()
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(part, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield part


def named(store: Path, number: int, part: Path) -> bool:
    """Verify a folder of flushed files, and give it the name of its shard."""
    target = shard_folder(store, number)
    try:
        manifest = manifest_in(part)
        _check_all(part, manifest)
    except StoreError as error:
        raise StoreError(
            f"could not write {target}: what is on the disk is not what was written\n"
            f"{str(error).splitlines()[0]}\n"
            "no part of the shard was kept; check disk and memory, and run the same command again"
        ) from error
    try:
        os.rename(part, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        _same(store, number, manifest)
        return False
    flush(target.parent)
    return True


def _check_all(folder: Path, manifest: Manifest) -> None:
    for name, sealed in manifest.files.items():
        check_content(folder, name, sealed)


def _same(store: Path, number: int, manifest: Manifest) -> None:
    """Check that what has a shard's name is whole and says the same."""
    there, folder = read_manifest(store, number), shard_folder(store, number)
    names = sorted({*there.files, *manifest.files})
    other = [n for n in names if there.files.get(n) != manifest.files.get(n)]
    if there != manifest:
        raise StoreError(
            f"{folder} exists with another content than the one computed here\n"
            f"these differ: {', '.join(other[:4]) or MANIFEST}{', …' if len(other) > 4 else ''}\n"
            "the folder was left as it was; see that all workers run the same versions on the same"
            " kind of device"
        )
    _check_all(folder, there)


def mode_of_texts(store: Path) -> int:
    """Permissions of the texts in a store; without any, those that the umask leaves."""
    for path in sorted((store / SHARDS).glob(f"*/{TEXTS}")):
        return stat.S_IMODE(os.lstat(path).st_mode) & 0o666
    return 0o666


def _write_file(path: Path, data: bytes, mode: int) -> None:
    """Write a new file, of these permissions at most, and see it on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
        if hasattr(os, "posix_fadvise"):  # what is read back then comes from the disk
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def flush(path: Path) -> None:
    """See the content of a file, or the names in a folder, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_folders(folder: Path) -> None:
    """See the names in a folder and in those inside it on the disk."""
    for path in [folder, *(p for p in folder.rglob("*") if p.is_dir())]:
        flush(path)


def _not_written(target: Path, needed: int, error: OSError) -> StoreError:
    free = shutil.disk_usage(existing_part(target)).free
    return StoreError(
        f"could not write {target}: {error.strerror or error}\n"
        f"it needs {needed} bytes, {free} are free there\n"
        "finished shards are as they were; free some space and run the same command again"
    )


def remove_leftovers(store: Path, number: int) -> int:
    """Remove what writers of a shard left behind that were killed."""
    removed = 0
    for part in list((store / SHARDS).glob(f"{part_prefix(number)}*.part")):
        try:
            handle = os.open(part, os.O_RDONLY)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(part, ignore_errors=True)
            removed += not part.exists()
        except OSError:
            continue
        finally:
            os.close(handle)
    return removed


_TEXTS = 256  # of a shard of texts in memory


class StoreWork(NamedTuple):
    """A store to fill.

    Attributes:
        store: Its folder, with the plan.
        plan: Plan that `make_plan` returned.
        model: Model that the plan names.
        corpus: Corpus that the plan was made from.
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
            before = writer.submit(_write_shards, works, number, members.pop(number), computed)
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
        model=model_fingerprint(model),
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


def _write_shards(
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
