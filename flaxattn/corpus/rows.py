# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of text, TSV, CSV, JSONL, Parquet, Arrow and CoNLL-U files, each with its line.

A row that cannot be read is reported to `BadRows` and left out; the rows around it are exactly
those of a file without it. The columns are not interpreted.

Lines end with LF, CRLF or CR. Blank lines are rows of a text file only. TSV is read as GLUE has it:
a quote is a character like any other. Everything is UTF-8, with or without a byte order mark.
"""

import base64
import binascii
import bisect
import csv
import difflib
import itertools
import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from flaxattn.corpus.bad_rows import POLICIES, WHOLE_FILE, BadRows, Problem, excerpt
from flaxattn.corpus.dependency_trees import Sentence, sentence_lines, sentences_of
from flaxattn.corpus.input_files import (
    LONGEST,
    WHOLE,
    FilePart,
    Line,
    kind_of,
    lines_of,
    raw_lines,
    refused,
    sound,
)

_PICKLED = b"arrow.py_extension_type"
_FOOTER = b"ARROW1"
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream that was closed
_AT_ONCE = 1024  # rows
_BYTES_AT_ONCE = 2**24


class UnusableFileError(Exception):
    """A file that cannot be read; its arguments are a code of `bad_rows.FIXES` and a message."""


class Columnar(NamedTuple):
    """An open file: the names of its columns, how many rows where it says so, and the rows."""

    names: list[str]
    rows: int | None
    batches: Iterator[Any]


@contextmanager
def opened(
    path: Path, kind: str, columns: Sequence[str] | None, first: int = 0
) -> Iterator[Columnar]:
    """A file whose batches are read one after another, never all of them, from the row `first`."""
    import pyarrow as pa

    try:
        with (_parquet if kind == "parquet" else _arrow)(path, columns, first) as found:
            yield found
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnusableFileError("damaged", f"the file cannot be read: {reason}") from error


@contextmanager
def _parquet(path: Path, columns: Sequence[str] | None, first: int) -> Iterator[Columnar]:
    import pyarrow.parquet as pq

    stored = (pq.read_metadata(path).metadata or {}).get(b"ARROW:schema", b"")
    try:
        _refuse_pickles(base64.b64decode(stored))
    except binascii.Error as error:
        raise UnusableFileError("damaged", f"its schema cannot be read: {error}") from error
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        names = file.schema_arrow.names
        wanted = None if columns is None else [name for name in columns if name in names]
        groups = range(file.num_row_groups)
        starts = [0, *itertools.accumulate(file.metadata.row_group(n).num_rows for n in groups)]
        skipped = bisect.bisect_right(starts, first) - 1
        batches = (batch for n in groups[skipped:] for batch in _of_group(file, path, n, wanted))
        yield Columnar(names, file.metadata.num_rows, _from_row(batches, first - starts[skipped]))


def _from_row(batches: Iterable[Any], first: int) -> Iterator[Any]:
    """Batches without the rows before one."""
    for batch in batches:
        if first < batch.num_rows:
            yield batch.slice(first) if first else batch
        first = max(0, first - batch.num_rows)


def _of_group(file: Any, path: Path, number: int, columns: list[str] | None) -> Iterator[Any]:
    """Batches of a row group, of fewer rows where one value could be long.

    Rows share the values of a dictionary, and every row of a batch gets a copy.
    """
    group = file.metadata.row_group(number)
    longest = max(_longest_values(path, group, number, columns), default=1)
    rows = max(1, min(_AT_ONCE, _BYTES_AT_ONCE // longest))
    return file.iter_batches(batch_size=rows, row_groups=[number], columns=columns)


def _longest_values(
    path: Path, group: Any, number: int, columns: list[str] | None
) -> Iterator[int]:
    """Bytes of the longest value in each dictionary of text that is large enough to matter."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for chunk in (group.column(n) for n in range(group.num_columns)):
        name = chunk.path_in_schema
        large = chunk.total_uncompressed_size * _AT_ONCE > _BYTES_AT_ONCE
        if not (large and chunk.has_dictionary_page and (columns is None or name in columns)):
            continue
        with pq.ParquetFile(path, read_dictionary=[name]) as file:
            first = next(file.iter_batches(1, row_groups=[number], columns=[name]), None)
        values = getattr(first.column(0), "dictionary", None) if first else None
        if values is not None:
            lengths = pc.call_function("binary_length", [values])
            yield pc.call_function("max", [lengths]).as_py() or 1


@contextmanager
def _arrow(path: Path, columns: Sequence[str] | None, first: int) -> Iterator[Columnar]:
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        if footed := file.read(len(_FOOTER)) == _FOOTER:
            file.seek(8)  # behind the magic and its padding
        else:
            file.seek(max(0, file.size() - len(_END)))
            if file.read() != _END:
                raise UnusableFileError("truncated-file", "the stream has no end")
            file.seek(0)
        _refuse_pickles(pa.ipc.read_message(file).metadata.to_pybytes())
        file.seek(0)
        if footed:
            reader = pa.ipc.open_file(file)
            whole = (reader.get_batch(n) for n in range(reader.num_record_batches))
        else:
            reader = whole = pa.ipc.open_stream(file)
        names = reader.schema.names
        wanted = names if columns is None else [name for name in columns if name in names]
        batches = (_sound(batch.select(wanted)) for batch in _from_row(whole, first))
        yield Columnar(names, None, batches)


def _sound(batch: Any) -> Any:
    """A batch whose offsets lie inside of its buffers: Arrow reads wherever a file points to."""
    batch.validate(full=True)
    return batch


def _refuse_pickles(schema: bytes) -> None:
    """Search the stored schema for the name of the pickled type, without parsing it."""
    if _PICKLED in schema:
        message = "a column has an extension type that is a pickle, which is never opened"
        raise UnusableFileError("pickled", message)


__all__ = ["POLICIES", "WHOLE_FILE", "BadRows", "Problem", "Row", "excerpt", "read_rows", "text_of"]

_OF_SENTENCES = ("text", "id")  # columns of CoNLL-U
_CONTINUED = 1000  # lines that one quoted field of a CSV may span


class Row(NamedTuple):
    """One row: where it stands, its values by column, and the tree of a sentence."""

    file: str
    line: int
    values: dict[str, Any]
    sentence: Sentence | None = None


def read_rows(
    path: Path,
    columns: Sequence[str] | None,
    bad: BadRows,
    *,
    kind: str | None = None,
    header: bool = True,
    part: FilePart = WHOLE,
) -> Iterator[Row]:
    """The usable rows of a file, or of a part of it, in order."""
    if problem := refused(path, kind):
        return bad.report(problem)
    kind = kind or kind_of(path)
    if kind in ("parquet", "arrow"):
        yield from _columnar(path, columns, bad, kind, part)
    elif kind == "txt":
        yield from _text(path, columns, bad, part)
    elif kind == "jsonl":
        yield from _jsonl(path, columns, bad, part)
    elif kind == "conllu":
        yield from _sentences(path, columns, bad, part)
    else:
        yield from _table(path, columns, bad, kind, header, part)
    return None


class RowPlace(NamedTuple):
    """Place of a row in its file.

    Attributes:
        line: Its first line from 0, or its number in a Parquet or Arrow file.
        stop: The line after its last.
        offset: Byte at which its first line begins, after decompression.
        size: Bytes of the row, in a Parquet or Arrow file of its values.
    """

    line: int
    stop: int
    offset: int
    size: int


def row_places(
    path: Path, columns: Sequence[str], bad: BadRows, kind: str | None = None
) -> Iterator[RowPlace]:
    """Places of the rows of a file, usable or not; no row is interpreted."""
    if problem := refused(path, kind):
        return bad.report(problem)
    kind = kind or kind_of(path)
    if kind in ("parquet", "arrow"):
        yield from _columnar_places(path, columns, bad, kind)
    elif kind == "conllu":
        if not _absent(path, columns, _OF_SENTENCES, bad):
            for lines in sentence_lines(path, bad):
                yield _place_of(lines)
    elif kind == "csv":
        yield from _record_places(path, columns, bad)
    else:
        header = 0
        if kind == "tsv":
            line, names = next(_split(path, bad), (Line(0, ""), []))
            if _absent(path, columns, names, bad):
                return None
            header = line.number
        for number, offset, raw in raw_lines(path, bad):
            if number > header and (kind == "txt" or not _is_blank(raw, kind)):
                yield RowPlace(number - 1, number, offset, len(raw))
    return None


def _is_blank(raw: bytes, kind: str) -> bool:
    """Return whether a line of a TSV or JSONL is no row."""
    if kind == "tsv" or raw.startswith(b"{"):
        return not raw.strip(b"\r\n")
    return not raw.decode("utf-8", "replace").strip()


def _place_of(lines: Sequence[Line]) -> RowPlace:
    """The place of a row of several lines."""
    size = sum(len(line.text) for line in lines)
    return RowPlace(lines[0].number - 1, lines[-1].number, lines[0].offset, size)


def _record_places(path: Path, columns: Sequence[str], bad: BadRows) -> Iterator[RowPlace]:
    """Places of the records of a CSV, after that with the names of the columns."""
    has_names = False
    for lines, fields, problem in _records(path, bad):
        if has_names:
            yield _place_of(lines)
        elif problem:
            bad.report(problem)
        elif _absent(path, columns, fields, bad):
            return
        else:
            has_names = True


def _columnar_places(
    path: Path, columns: Sequence[str], bad: BadRows, kind: str
) -> Iterator[RowPlace]:
    """The number of each row of a Parquet or Arrow file, and the bytes of its texts."""
    number = 0
    try:
        with opened(path, kind, columns) as file:
            if _absent(path, columns, file.names, bad):
                return
            for batch in file.batches:
                sizes = sum((_lengths(column) for column in batch.columns), np.zeros(1, np.int64))
                for size in sizes.tolist():
                    yield RowPlace(number, number + 1, 0, size)
                    number += 1
        if not number:
            bad.report(Problem(str(path), 0, "", "empty-file", "the file has no rows"))
    except UnusableFileError as error:
        bad.report(Problem(str(path), 0, "", *error.args))


def _lengths(column: Any) -> Int[np.ndarray, "N"]:
    """Bytes of each value of an Arrow column; the mean of values that are no texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        own, numbers = _lengths(column.dictionary), pc.fill_null(column.indices, 0)
        return (
            own[numbers.to_numpy(zero_copy_only=False)] if len(own) else np.zeros(len(column), int)
        )
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    if any(test(column.type) for test in (*tests, pa.types.is_large_binary)):
        lengths = pc.call_function("binary_length", [column])
        return pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False)
    return np.full(len(column), column.nbytes // max(len(column), 1))


def text_of(row: Row, column: str, bad: BadRows, *, empty: bool = False) -> str | None:
    """A value that must be text."""
    value = row.values[column]
    if isinstance(value, str):
        if value.isascii() and "\0" not in value and (empty or value.strip()):
            return value
        code, message = _flaw(value, empty)
        if not code:
            return value
    elif value is None:
        code, message = "null", "there is no value"
    else:
        code = "nested" if isinstance(value, dict | list) else "not-text"
        message = f"expected text, received {type(value).__name__}"
    bad.report(Problem(row.file, row.line, column, code, message, excerpt(value)))
    return None


def _flaw(text: str, empty: bool) -> tuple[str, str]:
    """Code and message of what is wrong with a text; empty where nothing is."""
    if "\0" in text:
        return "nul", "the text holds a NUL character"
    if not _is_unicode(text):
        return "surrogate", "the text holds half of a surrogate pair"
    if not empty and not text.strip():
        return "empty", "the text is empty"
    return "", ""


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _text(path: Path, columns: Sequence[str] | None, bad: BadRows, part: FilePart) -> Iterator[Row]:
    column, *others = columns or ("text",)
    if others:
        message = "a text file has one column"
        return bad.report(Problem(str(path), 0, others[0], "missing-header", message))
    for line in sound(lines_of(path, bad, part), bad):
        bad.rows_read += 1
        yield Row(str(path), line.number, {column: line.body})


def _sentences(
    path: Path, columns: Sequence[str] | None, bad: BadRows, part: FilePart
) -> Iterator[Row]:
    """Sentences with trees, of which these columns are the text and the name."""
    wanted, known = columns or _OF_SENTENCES, list(_OF_SENTENCES)
    if _absent(path, wanted, known, bad):
        return
    for sentence in sentences_of(path, bad, part):
        values = {"text": sentence.text, "id": sentence.id}
        chosen = {name: values[name] for name in wanted}
        yield Row(sentence.file, sentence.line, chosen, sentence)


def _jsonl(
    path: Path, columns: Sequence[str] | None, bad: BadRows, part: FilePart
) -> Iterator[Row]:
    for line in sound(lines_of(path, bad, part), bad):
        if not line.body.strip():
            continue
        bad.rows_read += 1
        values = _object(path, line, bad)
        if values is None:
            continue
        missing = [name for name in columns or () if name not in values]
        if missing:
            message = f"there is no such key; {_known(missing[0], list(values))}"
            found = excerpt(line.body)
            problem = Problem(str(path), line.number, missing[0], "missing-column", message, found)
            bad.report(problem)
            continue
        yield Row(str(path), line.number, {n: values[n] for n in columns} if columns else values)


class _BadJsonError(ValueError):
    """A code, and the message."""


def _object(path: Path, line: Line, bad: BadRows) -> dict[str, Any] | None:
    """The object of a line; None, and a report, where there is none."""
    try:
        values = _JSON.decode(line.body)
        if isinstance(values, dict):
            return values
        code, message = "json", f"expected an object, received a {type(values).__name__}"
    except _BadJsonError as error:
        code, message = error.args
    except json.JSONDecodeError as error:
        cut = not line.ended
        code = "truncated" if cut else "json"
        message = f"this is not JSON: {error.msg} at position {error.colno}"
        message = "the file ends in the middle of an object" if cut else message
    except (ValueError, RecursionError) as error:
        code, message = "json", f"this is not JSON: {str(error).splitlines()[0]}"
    bad.report(Problem(str(path), line.number, "", code, message, excerpt(line.body)))
    return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in values if names.count(name) > 1)
        raise _BadJsonError("duplicate-key", f"the key {excerpt(twice)!r} occurs twice")
    return values


def _refuse(literal: str) -> Any:
    raise _BadJsonError("nan-literal", f"{literal} is not JSON")


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)


def _known(wanted: str, names: Sequence[str]) -> str:
    """Name the columns that are there instead of a missing one, the nearest name first."""
    near = difflib.get_close_matches(wanted, names, 1, 0.5)
    listed = ", ".join(excerpt(name) for name in names[:8]) + (", …" if len(names) > 8 else "")
    return (f"the nearest is {near[0]!r}; " if near else "") + f"there are: {listed or 'none'}"


def _absent(path: Path, wanted: Sequence[str], names: Sequence[str], bad: BadRows) -> bool:
    """Return whether the header lacks a column, or has one of them twice; reported."""
    for name in wanted:
        if names.count(name) != 1:
            code = "duplicate-column" if name in names else "missing-header"
            what = "the header has this column twice" if name in names else "no such column"
            message = f"{what}; {_known(name, names)}"
            bad.report(Problem(str(path), 1, name, code, message))
            return True
    return False


def _table(
    path: Path,
    columns: Sequence[str] | None,
    bad: BadRows,
    kind: str,
    header: bool,
    part: FilePart,
) -> Iterator[Row]:
    """Rows of a TSV or CSV, whose first record names the columns where there is a header."""
    read = _quoted if kind == "csv" else _split
    names: list[str] | None = None if header else list(columns or ())
    if header and part is not WHOLE:
        names = next((fields for _, fields in read(path, BadRows("skip"))), [])
    for line, fields in read(path, bad, part, len(names or ())):
        if names is None:
            names = fields
            if _absent(path, columns or names, names, bad):
                return
            continue
        bad.rows_read += 1
        if len(fields) != len(names):
            bad.report(_width(path, line, fields, names))
            continue
        values = dict(zip(names, fields, strict=True))
        wanted = {name: values[name] for name in columns} if columns else values
        yield Row(str(path), line.number, wanted)


def _width(path: Path, line: Line, fields: list[str], names: list[str]) -> Problem:
    short = len(fields) < len(names)
    code = "truncated" if short and not line.ended else "short-row" if short else "long-row"
    message = f"expected {len(names)} fields, received {len(fields)}"
    return Problem(str(path), line.number, "", code, message, excerpt(line.body))


def _split(
    path: Path, bad: BadRows, part: FilePart = WHOLE, width: int = 0
) -> Iterator[tuple[Line, list[str]]]:
    for line in sound(lines_of(path, bad, part), bad):
        if line.body:
            yield line, line.body.split("\t")


class _Rewinding:
    """Lines for the csv module, which can be taken back when a quote turns out to be open."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines, self._back = lines, deque[Line]()
        self.taken: list[Line] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if len(self.taken) > _CONTINUED:
            raise StopIteration
        line = self._back.popleft() if self._back else next(self._lines)
        self.taken.append(line)
        return line.text

    def give_back(self) -> None:
        """Take back all lines of the record but its first."""
        self._back.extendleft(reversed(self.taken[1:]))
        del self.taken[1:]


def _quoted(
    path: Path, bad: BadRows, part: FilePart = WHOLE, width: int = 0
) -> Iterator[tuple[Line, list[str]]]:
    """Usable records of a CSV."""
    for lines, fields, problem in _records(path, bad, part, width):
        if problem:
            bad.rows_read += 1
            bad.report(problem)
        else:
            yield lines[-1]._replace(number=lines[0].number), fields


def _records(
    path: Path, bad: BadRows, part: FilePart = WHOLE, width: int = 0
) -> Iterator[tuple[list[Line], list[str], Problem | None]]:
    """Records of a CSV: lines, fields, and what is wrong.

    A line that is not UTF-8 may be part of a quoted field, so it stays in.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    source = _Rewinding(lines_of(path, bad, part))
    while True:
        source.taken = []
        try:
            fields, wrong = next(csv.reader(source, strict=True)), ""
        except StopIteration:
            return
        except csv.Error as error:
            fields, wrong = [], str(error)
        first = source.taken[0]
        if len(source.taken) > 1 and (wrong or (width and len(fields) != width)):
            source.give_back()
            wrong = "a quote is opened and never closed"
        elif wrong.startswith("unexpected end"):
            wrong = "a quote is opened and never closed"
        problem = next((line.problem for line in source.taken if line.problem), None)
        if wrong and not problem:
            found = excerpt(first.body)
            problem = Problem(str(path), first.number, "", "unclosed-quote", wrong, found)
        if not problem:
            width = width or len(fields)
        if problem or fields:
            yield source.taken, fields, problem


def _columnar(
    path: Path, columns: Sequence[str] | None, bad: BadRows, kind: str, part: FilePart
) -> Iterator[Row]:
    """Rows of a Parquet or Arrow file, read in batches; the line is the number of the row."""
    number = part.first
    try:
        with opened(path, kind, columns, part.first) as file:
            if _absent(path, columns or file.names, file.names, bad):
                return
            for batch in file.batches:
                for row in range(batch.num_rows):
                    if number == part.stop:
                        return
                    number += 1
                    bad.rows_read += 1
                    if (values := _cells(path, number, batch, row, bad)) is not None:
                        yield Row(str(path), number, values)
        if not number:
            bad.report(Problem(str(path), 0, "", "empty-file", "the file has no rows"))
    except UnusableFileError as error:
        bad.report(Problem(str(path), 0, "", *error.args))


def _cells(path: Path, number: int, batch: Any, row: int, bad: BadRows) -> dict[str, Any] | None:
    values: dict[str, Any] = {}
    large = batch.get_total_buffer_size() > LONGEST
    for name in batch.schema.names:
        try:
            value = batch.column(name)[row]
            if large and _bytes_of(value) > LONGEST:
                message = f"the value has more than {LONGEST} bytes"
                bad.report(Problem(str(path), number, name, "too-long", message))
                return None
            values[name] = value.as_py()
        except (UnicodeDecodeError, ValueError) as error:
            message = f"the value cannot be read: {str(error).splitlines()[0]}"
            bad.report(Problem(str(path), number, name, "encoding", message))
            return None
    return values


def _bytes_of(value: Any) -> int:
    """Bytes of a text, of which none is copied; 0 of other values."""
    value = getattr(value, "value", value)  # of a dictionary
    buffer = value.as_buffer() if hasattr(value, "as_buffer") else None
    return buffer.size if buffer else 0
