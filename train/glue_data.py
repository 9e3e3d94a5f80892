# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Examples of a GLUE task: files, tokens, length buckets, and an order per epoch."""

import difflib
import hashlib
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.rows import Row, read_rows, text_of
from flaxattn.errors import InputError, UnavailableError
from flaxattn.text.tokenizer import Tokenizer, longest_first
from flaxattn.train.glue_tasks import PART_NAMES, FileLayout, GlueTask, label_name
from flaxattn.train.recipe import GlueRecipe

DEV_SHARE = 0.1  # of the training examples, where there is no dev part
HUB = "datasets:"  # prefix of a name that the `datasets` package loads; alone, of GLUE
_HUB_NAME = "nyu-mll/glue"
_NAMED = 12  # labels that a message names
_SUFFIXES = (".csv", ".jsonl", ".parquet", ".csv.gz", ".jsonl.gz")


class GlueExample(NamedTuple):
    """One or two texts with their label, and where they come from.

    Attributes:
        first: The text.
        second: The other one of a pair.
        label: Label id, or the number of a regression; None in a test set.
        file: File that it was read from.
        line: And on which line.
        position: Number of the row in its part, bad ones counted: the index of a submission.
    """

    first: str
    second: str | None
    label: float | None
    file: str
    line: int
    position: int


class TaskPart(NamedTuple):
    """The examples of a part, and a fingerprint of what they were read from, by file."""

    examples: list[GlueExample]
    sha256: dict[str, str]


def read_parts(
    task: GlueTask, data: str | Path, recipe: GlueRecipe, bad: BadRows, wanted: Sequence[str]
) -> dict[str, TaskPart]:
    """Read the wanted parts that are there.

    Where "dev" is wanted and absent, it is split off "train": each example by a hash of the seed
    and its texts, so that equal examples stay together and bad rows change nothing.

    Args:
        task: Task of GLUE, or an own one.
        data: Folder of the task or of all of GLUE, or `datasets:` and a name; not looked at for a
            user's own task, which names its files.
        recipe: Names of columns, and the seed of the split.
        bad: Takes rows that cannot be used.
        wanted: Keys of `task.parts`.

    Raises:
        InputError: If there is no such folder, none of the wanted parts, or a bad row.
        UnavailableError: The `datasets` package would be needed.
    """
    parts = {part: _read(task, data, part, recipe, bad) for part in wanted}
    found = {part: read for part, read in parts.items() if read is not None}
    if "dev" in wanted and "dev" not in found:
        whole = found.get("train") or _read(task, data, "train", recipe, bad)
        if whole is not None:
            train, dev = split(whole.examples, recipe.seed)
            found["dev"] = TaskPart(dev, whole.sha256)
            if "train" in found:
                found["train"] = TaskPart(train, whole.sha256)
    for part in wanted:
        if part in ("train", "dev") and not (part in found and found[part].examples):
            raise InputError(_nothing(task, data, part, recipe, bad))
    return found


def split(
    examples: Sequence[GlueExample], seed: int
) -> tuple[list[GlueExample], list[GlueExample]]:
    """Training and dev examples, the same ones for the same seed."""
    sides: tuple[list[GlueExample], list[GlueExample]] = ([], [])
    for example in examples:
        text = f"{seed}\t{example.first}\t{example.second or ''}"
        sides[zlib.crc32(text.encode()) < DEV_SHARE * 2**32].append(example)
    return sides


def label_of(task: GlueTask, row: Row, column: str, bad: BadRows) -> float | None:
    """The label id, or the number, of a row."""
    value = row.values[column]
    code, message, label = (_number if task.is_regression else _class)(task, value)
    if label is None:
        bad.report(Problem(row.file, row.line, column, code, message, excerpt(value)))
    return label


def _number(task: GlueTask, value: Any) -> tuple[str, str, float | None]:
    low, high = task.limits
    expected = "expected a number" + (f" from {low:g} to {high:g}" if math.isfinite(high) else "")
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        return "label-type", expected, None
    if not low <= number <= high:
        return "label-range", expected, None
    return "", "", number


def _class(task: GlueTask, value: Any) -> tuple[str, str, float | None]:
    names = ", ".join(task.labels[:_NAMED]) + (", …" if len(task.labels) > _NAMED else "")
    text = label_name(value) if task.own or isinstance(value, str) else value
    if isinstance(text, str) and text in task.labels:
        return "", "", float(task.labels.index(text))
    if task.own:
        return "label", _unknown(task, text, names), None
    if isinstance(text, str) and text.removeprefix("-").isascii() and _is_digits(text):
        text = int(text[:12])
    if isinstance(text, int) and not isinstance(text, bool):
        if 0 <= text < len(task.labels):
            return "", "", float(text)
        return "label-range", f"expected a label from 0 to {len(task.labels) - 1}: {names}", None
    if isinstance(text, float) or _is_float(text):
        return "label-type", f"expected a label, received a number with a point: {names}", None
    return "label", _unknown(task, text, names), None


def _unknown(task: GlueTask, label: Any, names: str) -> str:
    near = difflib.get_close_matches(str(label), task.labels, 1)
    hint = f"; the nearest is {near[0]!r}" if near else ""
    return f"unknown label{hint}; there are: {names}"


def _is_digits(text: str) -> bool:
    return text.removeprefix("-").isdigit()


def _is_float(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return isinstance(value, str)


def _read(
    task: GlueTask, data: str | Path, part: str, recipe: GlueRecipe, bad: BadRows
) -> TaskPart | None:
    if str(data).startswith(HUB):
        return _from_datasets(task, str(data), part, recipe, bad)
    for folder in _folders(task, Path(data)):
        if (folder / "dataset_dict.json").is_file():
            return _from_datasets(task, folder, part, recipe, bad)
        for layout in _layouts(task, folder, part, recipe):
            paths = [folder / file for file in layout.files]
            if all(path.is_file() or path.is_symlink() for path in paths):
                return TaskPart(
                    list(_examples(task, _rows(paths, layout, bad), layout, bad)),
                    _digests(paths),
                )
    return None


def _folders(task: GlueTask, data: Path) -> list[Path]:
    if task.own:
        return [Path()]
    if not data.is_dir():
        what = "is a file, expected a folder" if data.exists() else "is not there"
        raise InputError(
            f"the data folder {data} {what}\n"
            f"expected the folder of {task.folder}, or the one that holds {task.folder}/\n"
            f"name it with --data; {HUB}NAME loads from the Hub where `datasets` is installed"
        )
    names = (task.folder, task.name, task.folder.upper(), task.name.upper())
    inside = [data / name for name in dict.fromkeys(names)]
    return [data, *(folder for folder in inside if folder.is_dir())]


def _layouts(task: GlueTask, folder: Path, part: str, recipe: GlueRecipe) -> Iterator[FileLayout]:
    """Ways to read a part, the classic ones first; named columns ask for plain files."""
    if task.own or not recipe.text_column:
        yield from task.parts[part]
    if task.own:
        return
    texts, label = _columns(task, recipe)
    label = "" if part in task.submissions else label
    tsv = (".tsv", ".tsv.gz") if recipe.text_column else ()
    for name in PART_NAMES[part]:
        for suffix in (*_SUFFIXES, *tsv):
            yield FileLayout((name + suffix,), texts, label)
        shards = sorted(path.name for path in folder.glob(f"{name}-*-of-*.parquet"))
        if shards:
            yield FileLayout(tuple(shards), texts, label)


def _columns(task: GlueTask, recipe: GlueRecipe) -> tuple[tuple[str, ...], str]:
    texts = (recipe.text_column or task.columns[0],)
    if len(task.columns) == 2:
        texts += (recipe.pair_column or task.columns[1],)
    return texts, recipe.label_column or "label"


def _rows(paths: list[Path], layout: FileLayout, bad: BadRows) -> Iterator[tuple[int, Row]]:
    """Rows with their index; bad ones have an index too."""
    start = bad.rows_read
    label = (layout.label,) if layout.label else ()
    columns = layout.names or (*layout.texts, *label)
    for path in paths:
        for row in read_rows(path, columns, bad, kind=layout.kind, header=not layout.names):
            yield bad.rows_read - start - 1, row


def _examples(
    task: GlueTask, rows: Iterator[tuple[int, Row]], layout: FileLayout, bad: BadRows
) -> Iterator[GlueExample]:
    for index, row in rows:
        texts = []
        for column in layout.texts:
            text = text_of(row, column, bad)
            if text is None:
                break
            texts.append(text)
        if len(texts) < len(layout.texts):
            continue
        label = label_of(task, row, layout.label, bad) if layout.label else None
        if label is None and layout.label:
            continue
        second = texts[1] if len(texts) == 2 else None
        yield GlueExample(texts[0], second, label, row.file, row.line, index)


def _from_datasets(
    task: GlueTask, data: str | Path, part: str, recipe: GlueRecipe, bad: BadRows
) -> TaskPart | None:
    try:
        import datasets  # pyright: ignore[reportMissingImports] - it is optional
    except ImportError as error:
        raise UnavailableError(
            f"{data} needs the package datasets\n"
            "it is not installed\n"
            "pip install datasets, or give a folder of TSV, CSV, JSONL or Parquet files"
        ) from error
    try:
        if isinstance(data, Path):
            held = datasets.load_from_disk(str(data))
        else:
            held = datasets.load_dataset(data.removeprefix(HUB) or _HUB_NAME, task.name)
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"the package datasets cannot load {data}\n{excerpt(str(error))}\n"
            "check the name and the network, or give a folder of files"
        ) from error
    name = next((name for name in PART_NAMES[part] if name in held), None)
    if name is None:
        return None
    texts, label = _columns(task, recipe)
    layout = FileLayout((), texts, "" if part in task.submissions else label)

    def rows() -> Iterator[tuple[int, Row]]:
        for index, values in enumerate(held[name]):
            bad.rows_read += 1
            yield index, Row(f"{data}[{name}]", index + 1, dict(values))

    examples = list(_examples(task, rows(), layout, bad))
    text = repr([example[:3] for example in examples])
    return TaskPart(examples, {f"{data}[{name}]": hashlib.sha256(text.encode()).hexdigest()})


def _digests(paths: list[Path]) -> dict[str, str]:
    """Digests of files by name, or by path where several have one name."""
    names = [path.name for path in paths]
    names = names if len(set(names)) == len(names) else [str(path) for path in paths]
    return {name: _digest(path) for name, path in zip(names, paths, strict=True)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _nothing(task: GlueTask, data: str | Path, part: str, recipe: GlueRecipe, bad: BadRows) -> str:
    if bad.lost:
        return (
            f"no {part} example of {task.folder} can be used\n"
            f"{bad.lost} of {bad.rows_read} rows are bad: {dict(bad.counts)}\n"
            "run with --on-error fail to see the first one"
        )
    if task.own:
        return (
            f"there are no {part} examples in {task.folder}\n"
            "expected a row with a text and a label\nname another file"
        )
    files = [" + ".join(layout.files) for layout in task.parts.get(part, ())]
    files = [] if recipe.text_column else files
    files += [f"{part}{suffix}" for suffix in (".csv", ".jsonl", ".parquet")]
    held = []
    if not str(data).startswith(HUB):
        held = sorted(path.name for path in Path(data).iterdir())[:8]
    return (
        f"there are no {part} examples of {task.folder} in {data}\n"
        f"expected {' or '.join(files)}; it holds {', '.join(held) or 'nothing'}\n"
        "name the right folder with --data, or the right task with --task"
    )


_WINDOW = 64  # batches whose examples are sorted by length together
_TOGETHER = 1024  # texts per call of the tokenizer


class GlueBatch(NamedTuple):
    """B sequences padded to a bucket S; rows of weight 0 fill the last batch of an epoch.

    Attributes:
        input_ids: Token ids.
        attention_mask: 1 on tokens, 0 on padding.
        token_type_ids: 0 for the first text, 1 for the second.
        label: Label id, or the number of a regression.
        weight: 1 for an example, 0 for filling.
    """

    input_ids: Int[np.ndarray, "B S"]
    attention_mask: Int[np.ndarray, "B S"]
    token_type_ids: Int[np.ndarray, "B S"]
    label: Float[np.ndarray, " B"]
    weight: Float[np.ndarray, " B"]


class EncodedExamples(NamedTuple):
    """N tokenised examples, one after the other.

    Attributes:
        ids: Token ids of all.
        types: Token types of all.
        starts: Position at which each begins; the last entry is the end.
        label: Label id or number; 0 where there is none.
        position: Position, as in `GlueExample`.
        file: Number of the file in `files`.
        line: Line in it.
        files: Their names.
        pad_id: Id that batches are padded with.
        truncated: Number of examples that were cut to fit.
    """

    ids: Int[np.ndarray, " T"]
    types: Int[np.ndarray, " T"]
    starts: Int[np.ndarray, " N+1"]
    label: Float[np.ndarray, " N"]
    position: Int[np.ndarray, " N"]
    file: Int[np.ndarray, " N"]
    line: Int[np.ndarray, " N"]
    files: tuple[str, ...]
    pad_id: int
    truncated: int

    @property
    def size(self) -> int:
        """N."""
        return len(self.label)

    @property
    def lengths(self) -> Int[np.ndarray, " N"]:
        """Tokens of each example."""
        return np.diff(self.starts)

    def name(self, number: int) -> str:
        """File and line of an example."""
        return f"{self.files[self.file[number]]}:{self.line[number]}"

    def batch(
        self, numbers: Int[np.ndarray, " B"], length: int, weight: Float[np.ndarray, " B"]
    ) -> GlueBatch:
        """The batch of some examples."""
        shape = (len(numbers), length)
        ids, types = np.full(shape, self.pad_id, np.int32), np.zeros(shape, np.int32)
        mask = np.zeros(shape, np.int32)
        for row, number in enumerate(numbers):
            begin, end = self.starts[number], self.starts[number + 1]
            ids[row, : end - begin] = self.ids[begin:end]
            types[row, : end - begin] = self.types[begin:end]
            mask[row, : end - begin] = 1
        return GlueBatch(ids, mask, types, self.label[numbers], weight)


def encode(
    examples: Sequence[GlueExample], tokenizer: Tokenizer, max_length: int, bad: BadRows
) -> EncodedExamples:
    """Tokenise examples; those too long lose tokens one by one from their longer text."""
    rows: list[tuple[list[int], list[int]]] = []
    kept: list[GlueExample] = []
    truncated = 0
    for start in range(0, len(examples), _TOGETHER):
        some = examples[start : start + _TOGETHER]
        for example, row in zip(some, _encode(some, tokenizer, max_length), strict=True):
            if row is None:
                empty = "the tokenizer leaves nothing of the text"
                found = excerpt(example.first)
                bad.report(Problem(example.file, example.line, "", "empty", empty, found))
                continue
            rows.append(row[:2])
            kept.append(example)
            truncated += row[2] > 0
    files = tuple(dict.fromkeys(example.file for example in kept))
    number = {file: i for i, file in enumerate(files)}
    flat = [np.array([i for row in rows for i in row[side]], np.int32) for side in (0, 1)]
    return EncodedExamples(
        ids=flat[0],
        types=flat[1].astype(np.int8),
        starts=np.cumsum([0, *(len(row[0]) for row in rows)]),
        label=np.array([0 if e.label is None else e.label for e in kept], np.float32),
        position=np.array([e.position for e in kept], np.int32),
        file=np.array([number[e.file] for e in kept], np.int32),
        line=np.array([e.line for e in kept], np.int64),
        files=files,
        pad_id=tokenizer.pad_id,
        truncated=truncated,
    )


def bucket_lengths(recipe: GlueRecipe) -> tuple[int, ...]:
    """Lengths that batches are padded to, ascending; none above `max_length`."""
    return tuple(sorted({min(length, recipe.max_length) for length in recipe.buckets}))


def bucket(length: int, buckets: Sequence[int]) -> int:
    """The shortest of `buckets` that holds a length."""
    return next(size for size in buckets if size >= length)


class GlueFeed:
    """Batches by number, as `loop.Feed` wants them.

    In an epoch, examples are shuffled, cut into windows of 64 batches, sorted by length inside a
    window and cut into batches, which are shuffled. All of it depends on (seed, epoch) alone.
    """

    def __init__(
        self, data: EncodedExamples, recipe: GlueRecipe, part: int = 0, parts: int = 1
    ) -> None:
        """Take the examples of all hosts, of which this one gets a part of each batch."""
        self._data, self._recipe, self._part, self._parts = data, recipe, part, parts
        self._buckets = bucket_lengths(recipe)
        self._epoch, self._order = -1, list[Int[np.ndarray, " B"]]()

    def __len__(self) -> int:
        return self._recipe.steps

    def __getitem__(self, step: int) -> GlueBatch:
        numbers = self._numbers(step)
        size = self._recipe.batch_size
        weight = np.zeros(size, np.float32)
        weight[: len(numbers)] = 1
        length = bucket(int(self._data.lengths[numbers].max()), self._buckets)
        filled = np.concatenate([numbers, np.repeat(numbers[:1], size - len(numbers))])
        mine = slice(self._part * size // self._parts, (self._part + 1) * size // self._parts)
        return self._data.batch(filled[mine], length, weight[mine])

    def names(self, step: int) -> list[str]:
        """File and line of every example of the batch."""
        return [self._data.name(number) for number in self._numbers(step)]

    def _numbers(self, step: int) -> Int[np.ndarray, " b"]:
        per_epoch = -(-self._data.size // self._recipe.batch_size)
        epoch, place = divmod(step, per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._batches(epoch)
        return self._order[place]

    def _batches(self, epoch: int) -> list[Int[np.ndarray, " b"]]:
        random = np.random.default_rng([self._recipe.seed, epoch])
        order, size = random.permutation(self._data.size), self._recipe.batch_size
        lengths, batches = self._data.lengths, []
        for start in range(0, len(order), size * _WINDOW):
            window = order[start : start + size * _WINDOW]
            window = window[np.argsort(lengths[window], kind="stable")]
            batches += [window[i : i + size] for i in range(0, len(window), size)]
        return [batches[i] for i in random.permutation(len(batches))]


def _encode(
    examples: Sequence[GlueExample], tokenizer: Tokenizer, limit: int
) -> list[tuple[list[int], list[int], int] | None]:
    """Ids, types and how many tokens were cut; None where a text has no token."""
    backend = tokenizer.backend
    pairs = examples[0].second is not None
    extra = backend.num_special_tokens_to_add(pairs)
    ones = backend.encode_batch_fast([e.first for e in examples], add_special_tokens=False)
    seconds = [e.second or "" for e in examples] if pairs else []
    twos = backend.encode_batch_fast(seconds, add_special_tokens=False)
    rows: list[tuple[list[int], list[int], int] | None] = []
    for number, one in enumerate(ones):
        two = twos[number] if pairs else None
        lengths = (len(one), 0 if two is None else len(two))
        if not lengths[0] or (pairs and not lengths[1]):
            rows.append(None)
            continue
        removed = max(0, sum(lengths) + extra - limit)
        if removed:
            keep = longest_first(lengths, removed)
            one.truncate(keep[0])
            if two is not None:
                two.truncate(keep[1])
        joined = backend.post_process(one, two, True)
        rows.append((joined.ids, joined.type_ids, removed))
    return rows
