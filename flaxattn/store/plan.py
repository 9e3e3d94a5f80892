# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The plan of an extraction: the request, and which rows of which files make which shard.

    plan.json  plan.sha256

A shard is a range of rows of the files, and a function of the plan and its number, whoever computes
it. To cut a corpus, its rows are counted and not interpreted; the size of their attention is
estimated from the first thousand texts. Problems of a row are found when its shard is read. Plans
are compared, written as JSON and read, and name the model by its fingerprint, which is equal for
two models that read every text alike. `commit_shards` computes the shards.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from flaxattn import __version__
from flaxattn.corpus.bad_rows import ListedProblems, Problem, excerpt
from flaxattn.corpus.input_files import (
    FilePart,
    Fingerprint,
    InputFile,
    KeptOpen,
    file_states,
    readable_paths,
    shared_mode,
)
from flaxattn.corpus.rows import RowPlace
from flaxattn.corpus.texts import Columns, Text, read_parts, read_texts, text_places
from flaxattn.errors import InputError, StoreError
from flaxattn.files import file_inside, remove_abandoned, sha256_of, written_whole
from flaxattn.kernels.contract import Capture
from flaxattn.pipeline.batches import Measure, TextSize
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.store.folder_lock import locked
from flaxattn.store.seals import parse_json, read_manifest, small_file
from flaxattn.store.store_layout import PLAN, PLAN_SEAL, SHARDS, shard_folder, shard_numbers
from flaxattn.trace.trace import capture_from_json, capture_to_json


@dataclass(frozen=True)
class ModelFingerprint:
    """Fingerprint of a model's configuration, weights and tokenizer.

    Attributes:
        name: Name that it was loaded under; different models may have the same.
        architecture: Class of its module.
        dtype: Dtype of the computation.
        parameters: SHA-256 of all parameters, with their names and shapes.
        config: SHA-256 of the configuration.
        tokenizer: SHA-256 of the files of its tokenizers; empty where it has none.
    """

    name: str
    architecture: str
    dtype: str
    parameters: str
    config: str
    tokenizer: str


def model_fingerprint(model: Pretrained) -> ModelFingerprint:
    """The fingerprint of a model. Reads every parameter once, on the host."""
    config = json.dumps(model.config.to_hf(), sort_keys=True)
    return ModelFingerprint(
        name=model.name,
        architecture=type(model.module).__name__,
        dtype=np.dtype(getattr(model.module, "dtype", None) or np.float32).name,
        parameters=_parameters(model.params),
        config=hashlib.sha256(config.encode()).hexdigest(),
        tokenizer=_tokenizers(model),
    )


def _parameters(params: Any) -> str:
    digest = hashlib.sha256()
    leaves = {jax.tree_util.keystr(p): x for p, x in jax.tree_util.tree_leaves_with_path(params)}
    for name, leaf in sorted(leaves.items()):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _tokenizers(model: Pretrained) -> str:
    """Digest of the files that the tokenizers write: they decide which ids a text gets."""
    readers = {"": model.tokenizer, "target_": getattr(model, "target_tokenizer", None)}
    digests = {}
    for prefix, reader in readers.items():
        if reader is not None:
            with tempfile.TemporaryDirectory() as folder:
                reader.save(folder, prefix)
                paths = sorted(Path(folder).iterdir())
                digests[prefix] = {path.name: sha256_of(path) for path in paths}
    written = json.dumps(digests, sort_keys=True)
    return hashlib.sha256(written.encode()).hexdigest() if digests else ""


FORMAT = 1


@dataclass(frozen=True)
class Settings:
    """Other settings that decide the content of a store.

    Attributes:
        truncate: Whether texts over the model's limit are cut.
        seed: Random seed.
        limit: Largest number of rows; None for all.
        reduce: Moments that are kept of each shard, kinds of `OnlineMoments`.
        shard_bytes: A shard takes rows while its arrays have about this many bytes before
            compression; one text may have more.
        shard_texts: Largest number of texts in a shard.
    """

    truncate: bool = False
    seed: int = 0
    limit: int | None = None
    reduce: tuple[str, ...] = ()
    shard_bytes: int = 128 * 2**20
    shard_texts: int = 4096

    def __post_init__(self) -> None:
        object.__setattr__(self, "reduce", tuple(self.reduce))


class Rows(NamedTuple):
    """Rows of a file that stand together, see `corpus.input_files.FilePart`.

    Attributes:
        file: Number of the file in the corpus.
        first: Their first line, in Parquet and Arrow the first row, from 0.
        stop: The one after the last.
        offset: Byte at which the first line begins, after decompression.
        pair_offset: The same in the second of two parallel files.
    """

    file: int
    first: int
    stop: int
    offset: int = 0
    pair_offset: int = 0


@dataclass(frozen=True)
class ShardPlan:
    """Rows that make a shard.

    Attributes:
        start: Number of the first example.
        stop: `start` and the number of rows. Rows that are left out make no example, and then the
            shard's last numbers are not used.
        tokens: Estimated number of tokens of the texts, as the model reads them.
        bytes: Estimated bytes of their arrays before compression.
        rows: Places of the rows.
    """

    start: int
    stop: int
    tokens: int
    bytes: int
    rows: tuple[Rows, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(Rows(*rows) for rows in self.rows))
        if not all(type(number) is int and number >= 0 for rows in self.rows for number in rows):
            raise ValueError(f"rows of a shard cannot be {self.rows!r:.80}")


@dataclass(frozen=True)
class JobPlan:
    """Request of a job and, once the corpus was read, its texts cut into shards.

    Attributes:
        files: Fingerprints of the corpus.
        columns: Columns of the texts.
        model: Fingerprint of the model.
        capture: Fields that are stored.
        settings: Other settings that decide the content.
        texts: Number of rows, each a text unless it is left out.
        tokens: Estimated number of tokens of all texts, as the model reads them.
        bytes: Estimated bytes of all arrays before compression.
        problems: Problems of whole files, whose rows are left out.
        shards: Rows of each shard; each row is in one, in order.
        flaxattn: Version that made the plan.
        format: Version of the JSON.
        file_sha256: SHA-256 of the file that the plan was read from; empty for a plan made here.
    """

    files: tuple[Fingerprint, ...]
    columns: Columns
    model: ModelFingerprint
    capture: Capture
    settings: Settings = Settings()
    texts: int = 0
    tokens: int = 0
    bytes: int = 0
    problems: tuple[Problem, ...] = ()
    shards: tuple[ShardPlan, ...] = ()
    flaxattn: str = __version__
    format: int = FORMAT
    file_sha256: str = field(default="", compare=False)

    def compare(self, other: "JobPlan") -> list[str]:
        """Describe differences between two requests; empty if their stores would be the same."""
        before, now = self._request(), other._request()
        names = [name for name in now if before.get(name) != now[name]]
        names += [name for name in before if name not in now]
        return [f"{n} {_short(before.get(n))} -> {_short(now.get(n))}" for n in names]

    def to_json(self) -> dict[str, Any]:
        """The plan as objects that `json.dumps` takes."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del plain["file_sha256"]
        return {
            "format": plain.pop("format"),
            "flaxattn": plain.pop("flaxattn"),
            **plain,
            "files": [file._asdict() for file in self.files],
            "columns": dataclasses.asdict(self.columns),
            "model": dataclasses.asdict(self.model),
            "capture": capture_to_json(self.capture),
            "settings": dataclasses.asdict(self.settings),
            "problems": [problem._asdict() for problem in self.problems],
            "shards": [dataclasses.asdict(shard) for shard in self.shards],
        }

    @property
    def text(self) -> str:
        """Content of plan.json; equal plans have equal texts."""
        return json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n"

    @property
    def sha256(self) -> str:
        """Digest of plan.json, which every shard names.

        For a plan that was read, this is the digest of the file's own bytes: another version of
        flaxattn may have written them in another form.
        """
        return self.file_sha256 or hashlib.sha256(self.text.encode()).hexdigest()

    def _request(self) -> dict[str, Any]:
        """Settings that decide the content of a store, by the names a person knows."""
        model, fields = dataclasses.asdict(self.model), dataclasses.asdict(self.settings)
        model.pop("name")
        columns = {f"{k} column": v for k, v in dataclasses.asdict(self.columns).items()}
        return {
            **{f"file {file.name}": file.sha256 for file in self.files},
            "order of files": [file.name for file in self.files],
            **columns,
            **{f"model's {name}": value for name, value in model.items()},
            **{f"capture {k}": v for k, v in capture_to_json(self.capture).items()},
            **fields,
        }


def plan_from_json(content: Mapping[str, Any], file_sha256: str = "") -> JobPlan:
    """Parse a plan written by `JobPlan.to_json`."""
    try:
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, this version reads {FORMAT}")
        plan = JobPlan(
            **{
                **content,
                "files": tuple(Fingerprint(**file) for file in content["files"]),
                "columns": Columns(**content["columns"]),
                "model": ModelFingerprint(**content["model"]),
                "capture": capture_from_json(content["capture"]),
                "settings": Settings(**content["settings"]),
                "problems": tuple(Problem(**problem) for problem in content["problems"]),
                "shards": tuple(ShardPlan(**shard) for shard in content["shards"]),
                "file_sha256": file_sha256,
            }
        )
        starts = [shard.start for shard in plan.shards]
        if [*starts, plan.texts] != [0, *(shard.stop for shard in plan.shards)]:
            raise ValueError("its shards do not hold each row once")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"this is not a plan of an extraction\n{reason.splitlines()[0]}\n"
            "restore plan.json, or extract into another folder"
        ) from error
    return plan


def read_plan(store: Path) -> JobPlan | None:
    """The plan in a folder; None where there is none."""
    path = store / PLAN
    try:
        data = small_file(store, PLAN)
        return plan_from_json(parse_json(data), hashlib.sha256(data).hexdigest())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        lines = str(error).splitlines()
        reason = lines[1] if isinstance(error, InputError) else lines[0]
        raise InputError(
            f"{path} cannot be used\n{reason}\nrestore it, or extract into another folder"
        ) from error


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 24 else text[:12] + "…"


def write_sum(folder: Path) -> None:
    """Write the checksum of the plan in a folder."""
    (folder / PLAN_SEAL).write_text(_line(folder / PLAN), encoding="ascii")


def differing(store: Path) -> Iterator[tuple[str, str]]:
    """Compare the plan with its checksum; yield the file that is damaged and what is wrong."""
    try:
        line = _line(file_inside(store, PLAN))
    except FileNotFoundError:
        yield PLAN, "it is missing: the plan of the job"
        return
    except OSError as error:
        yield PLAN, error.strerror or str(error)
        return
    try:
        data = small_file(store, PLAN_SEAL)
    except FileNotFoundError:
        what = f"it is missing, so {PLAN} cannot be checked:"
        yield PLAN_SEAL, f"{what} sha256sum {PLAN} > {PLAN_SEAL} seals the plan as it is"
        return
    except OSError as error:
        yield PLAN_SEAL, error.strerror or str(error)
        return
    if line.encode() not in data.splitlines(keepends=True):
        yield PLAN, f"it does not match {PLAN_SEAL}"
    elif data != line.encode():
        yield PLAN_SEAL, "it is not what was written"


def check_plan_files(store: Path, sha256: str) -> None:
    """Refuse to continue with a store whose plan is not the one that its shards were made under."""
    shards = store / SHARDS
    numbers = shard_numbers([p.name for p in shards.iterdir()]) if shards.is_dir() else []
    for number in numbers:
        if read_manifest(store, number).plan != sha256:
            folder = shard_folder(store, number)
            raise _refused(store / PLAN, f"{folder} was made under another plan (sha256)")
    if (store / PLAN_SEAL).exists():
        for name, what in differing(store):
            raise _refused(store / name, what)


def _refused(path: Path, what: str) -> StoreError:
    return StoreError(
        f"{path} is damaged: {what}\n"
        "nothing was written\n"
        "put back a copy: another machine's folder of the same job has it; or use another folder"
    )


def _line(path: Path) -> str:
    return f"{sha256_of(path)}  {PLAN}\n"


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
        files: Files in order.
        measure: Tokens of texts.
        on_error: "fail", "skip" or "quarantine", see `corpus.bad_rows`.
        states: States of the files as they must remain, see `file_states`.
        mode: Permissions that all files have, which what is made of their texts gets too.
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
        texts: Texts by number, in order.
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
