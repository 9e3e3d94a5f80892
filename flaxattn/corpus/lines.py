# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The lines of a file, each with its number, and why a file or a line cannot be read.

Lines end with LF, CRLF or CR; text is UTF-8, with or without a byte order mark, plain or compressed
by gzip or Zstandard. `rows` interprets the lines.
"""

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt

KINDS = {
    ".txt": "txt",
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".conllu": "conllu",
}
BINARY = ("parquet", "arrow")
LONGEST = 16 * 2**20  # bytes of a line
_TOLD = 1000  # bytes that are kept of a longer one
_COMPRESSED = {".gz": "gzip", ".zst": "Zstandard"}
_MAGIC = {
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"\xff\xff\xff\xff": "Arrow",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"PK\x03\x04": "a zip archive",
    b"\x93NUMPY": "a NumPy array",
    **{bytes((0x80, version)): "a pickle" for version in range(2, 6)},
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line with its end, the byte it begins at, and what is wrong with it."""

    number: int
    text: str
    problem: Problem | None = None
    offset: int = 0

    @property
    def body(self) -> str:
        """The line without its end."""
        return self.text.rstrip("\r\n")

    @property
    def ended(self) -> bool:
        """Return whether the line has an end; the last one of a file may have none."""
        return self.text.endswith(("\n", "\r"))


def kind_of(path: Path) -> str:
    """The kind of a file by its name, a value of `KINDS`; empty where the name does not tell."""
    name = Path(path.name.lower())
    return KINDS.get(Path(name.stem if name.suffix in _COMPRESSED else name).suffix, "")


def refused(path: Path, kind: str | None) -> Problem | None:
    """Describe why a file must not be read; a FIFO is not opened, for that could wait for ever."""

    def problem(code: str, message: str) -> Problem:
        return Problem(str(path), 0, "", code, message)

    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            return problem("directory", "this is a directory, expected a file")
        if not stat.S_ISREG(status.st_mode):
            return problem("not-a-file", "this is a pipe, socket or device, expected a file")
        with open(path, "rb") as file:
            start = file.read(8)
    except FileNotFoundError:
        if path.is_symlink():
            return problem("dangling-link", f"this link points to nothing: {os.readlink(path)}")
        return problem("missing-file", "there is no such file")
    except OSError as error:
        return problem("unreadable", f"the file cannot be opened: {error.strerror or error}")
    kind = kind or kind_of(path)
    packed = _compression(path)
    if not kind or (kind in BINARY and packed):
        return problem("wrong-extension", f"files of kind {path.suffix or 'none'!r} are not read")
    if not start:
        return problem("empty-file", "the file is empty")
    due = packed or {"parquet": "Parquet", "arrow": "Arrow"}.get(kind, "text")
    found = next((name for magic, name in _MAGIC.items() if start.startswith(magic)), "text")
    if due == found:
        return None
    return problem("wrong-extension", f"by its name this is {due}, by its content {found}")


def _compression(path: Path) -> str:
    """Return the compression of a file by its name; empty if there is none."""
    return _COMPRESSED.get(path.suffix.lower(), "")


@contextmanager
def _plain(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed."""
    packed = _compression(path)
    if packed == "Zstandard":
        import pyarrow as pa  # imports slowly, and few files are compressed

        with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, "zstd") as stream:
            yield io.BufferedReader(_Forward(stream))
        return
    with gzip.open(path, "rb") if packed else open(path, "rb") as file:
        yield cast(BinaryIO, file)


class _Forward(io.RawIOBase):
    """A decompressed stream that can be sought forward, as a stream of gzip can."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._place = stream, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        while self._place < offset and (
            data := self._stream.read(min(offset - self._place, 2**20))
        ):
            self._place += len(data)
        return self._place

    def tell(self) -> int:
        return self._place


class KeptOpen:
    """Opens files at a byte and leaves the last two open, for the parts that follow.

    A compressed file has to be decompressed up to the byte. Parallel text has two files.
    """

    def __init__(self) -> None:
        self._files: dict[Path, tuple[BinaryIO, ExitStack]] = {}

    @contextmanager
    def __call__(self, path: Path, offset: int) -> Iterator[BinaryIO]:
        """Yield a file at a byte of its decompressed content."""
        file, stack = self._files.pop(path, (None, ExitStack()))
        if file is None or file.tell() > offset:
            stack.close()
            file = stack.enter_context(_plain(path))
        self._files[path] = file, stack
        while len(self._files) > 2:
            self._files.pop(next(iter(self._files)))[1].close()
        file.seek(offset)
        yield file

    def close(self) -> None:
        """Close the files that are open."""
        while self._files:
            self._files.popitem()[1][1].close()


@contextmanager
def _opened_once(path: Path, offset: int) -> Iterator[BinaryIO]:
    """A file at a byte of its decompressed content, closed at the end."""
    with closing(KeptOpen()) as files, files(path, offset) as file:
        yield file


class FilePart(NamedTuple):
    """A part of a file: some of its lines, or rows of a Parquet or Arrow file, counted from 0.

    Attributes:
        first: The first one.
        stop: The one after the last.
        offset: Byte at which the first line begins, after decompression.
        pair_offset: The same in the second of two parallel files.
        opened: Opens a file at a byte.
    """

    first: int = 0
    stop: int = sys.maxsize
    offset: int = 0
    pair_offset: int = 0
    opened: Callable[[Path, int], AbstractContextManager[BinaryIO]] = _opened_once


WHOLE = FilePart()


def lines_of(path: Path, bad: BadRows, part: FilePart = WHOLE) -> Iterator[Line]:
    """The lines of a text file; those that are not UTF-8 come with their problem."""
    for number, offset, raw in raw_lines(path, bad, part):
        yield _decoded(path, number, raw, offset)


def raw_lines(path: Path, bad: BadRows, part: FilePart = WHOLE) -> Iterator[tuple[int, int, bytes]]:
    """The lines of a text file as bytes, with their ends: number from 1, offset, content."""
    number = part.first
    if number >= part.stop:
        return None
    try:
        with part.opened(path, part.offset) as file:
            for offset, raw in _raw_lines(file, part.offset):
                number += 1
                if number == 1 and raw.startswith(_UTF16):
                    message = "the file is UTF-16, expected UTF-8"
                    return bad.report(Problem(str(path), 0, "", "utf-16", message))
                yield number, offset, raw.removeprefix(_BOM) if number == 1 else raw
                if number == part.stop:
                    return None
    except (EOFError, OSError, zlib.error) as error:
        cut = isinstance(error, EOFError) or "Truncated" in str(error)  # gzip's, Zstandard's
        code = "truncated-file" if cut else "damaged"
        reason = (
            "the compressed file ends too early" if cut else f"the file cannot be read on: {error}"
        )
        bad.report(Problem(str(path), number + 1, "", code, reason))
    return None


def _raw_lines(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """Offset and content of lines with their ends, LF, CRLF or CR.

    Only the beginning of a line that is too long is returned; what follows it is looked at when the
    next line is requested.
    """
    held, over = b"", False  # a line without its end yet; whether its beginning was returned
    while block := file.readline(LONGEST + 1):
        start, end = end - len(held), end + len(block)
        if not held and block.endswith(b"\n") and b"\r" not in block:
            yield start, block
            continue
        lines = (held + block).splitlines(keepends=True)
        held = b"" if lines[-1].endswith(b"\n") else lines.pop()  # LF may follow a CR
        for number, line in enumerate(lines):
            if number >= over:
                yield start, line
            start += len(line)
        over = over and not lines
        if over or len(held) > LONGEST:
            if not over:
                yield start, held
            held, over = held[-1:], True
    if held and not over:
        yield end - len(held), held


def _decoded(path: Path, number: int, raw: bytes, offset: int) -> Line:
    def line(code: str, message: str) -> Line:
        text = raw.decode("utf-8", "replace")
        problem = Problem(str(path), number, "", code, message, excerpt(text))
        return Line(number, text, problem, offset)

    if len(raw) > LONGEST:
        raw = raw[:_TOLD]
        return line("too-long", f"the line has more than {LONGEST} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte, place = raw[error.start], error.start + 1
        return line("encoding", f"byte {byte:#04x} at position {place} is not UTF-8")
    if "\0" in text:
        return line("nul", f"there is a NUL character at position {text.index(chr(0)) + 1}")
    return Line(number, text, offset=offset)


def sound(lines: Iterator[Line], bad: BadRows) -> Iterator[Line]:
    """Only the lines that could be decoded; the others are reported."""
    for line in lines:
        if line.problem is None:
            yield line
        else:
            bad.rows_read += 1
            bad.report(line.problem)
