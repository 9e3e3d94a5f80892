# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of rows out of Parquet and Arrow files, and what forbids to open one.

An Arrow file is a stream, as Hugging Face's `save_to_disk` writes, or has a footer. A column of a
type that Python would have to unpickle is refused before pyarrow sees it. What the columns mean is
not known here: see `rows`.
"""

import base64
import binascii
import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

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
    """Look for the name of the type in a schema as it is stored, which nobody has to interpret."""
    if _PICKLED in schema:
        message = "a column has an extension type that is a pickle, which is never opened"
        raise UnusableFileError("pickled", message)
