# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Files of a corpus, in their order, and the numbered lines of each.

Files are named on a command line by paths, patterns, folders of a data set, or as standard input;
they are found and fingerprinted here. Lines end with LF, CRLF or CR; text is UTF-8, with or without
a byte order mark, plain or compressed by gzip or Zstandard. A file or a line that cannot be read is
named with the reason. `rows` interprets the lines.
"""

import functools
import glob
import gzip
import io
import json
import operator
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Optional, cast

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.errors import InputError
from flaxattn.files import file_inside, json_digest, sha256_of

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


STDIN = "-"
_KEPT = "stdin"  # name of the file in which standard input is kept, without its extension
Name = str | os.PathLike[str]
_IN_FOLDERS = ("parquet", "jsonl", "arrow")
_SPLITS, _SAVED = "dataset_dict.json", "state.json"  # of Hugging Face's save_to_disk


class InputFile(NamedTuple):
    """A file of a corpus.

    Attributes:
        path: Path of the file.
        name: Short name in ids and in the plan, the same wherever the file lies.
        kind: A value of `KINDS`; empty where it is not known.
        problem: Reason why it, or its partner, cannot be read.
        pair: The file whose line i belongs to line i of this one.
    """

    path: Path
    name: str
    kind: str
    problem: Problem | None
    pair: Optional["InputFile"] = None


class Fingerprint(NamedTuple):
    """Name, size and digest of a file as it is on the disk."""

    name: str
    bytes: int
    sha256: str


def find_inputs(
    named: Sequence[Name | tuple[Name, Name]],
    *,
    folder: Path | None = None,
    kind: str | None = None,
) -> list[InputFile]:
    """The files that were named, in that order; sorted inside a pattern or a folder."""
    if not named:
        raise InputError(
            "no text to read\nname at least one file, pattern or folder, or - for a pipe"
        )
    groups: list[tuple[Path, ...]] = []
    for item in named:
        if isinstance(item, tuple):
            groups.append(_parallel(item))
            continue
        text = os.fspath(item)
        paths = [_spooled(folder, kind or "txt")] if text == STDIN else _expanded(text)
        groups += [(path,) for path in paths]
    names = iter(_names([path for group in groups for path in group]))
    return [_found(group, [next(names) for _ in group], kind) for group in groups]


def _found(group: Sequence[Path], names: Sequence[str], kind: str | None) -> InputFile:
    """A file, or two that are parallel: text, however their names end."""
    kinds = [kind_of(path) or kind or ("txt" if len(group) > 1 else "") for path in group]
    triples = zip(group, names, kinds, strict=True)
    first, *rest = [InputFile(path, name, k, refused(path, k or None)) for path, name, k in triples]
    return first._replace(problem=first.problem or rest[0].problem, pair=rest[0]) if rest else first


def _parallel(pair: tuple[Name, Name]) -> tuple[Path, ...]:
    paths = tuple(Path(item).expanduser() for item in pair)
    tables = [path for path in paths if kind_of(path) not in ("", "txt")]
    if len(paths) != 2 or tables or STDIN in map(str, paths):
        raise InputError(
            f"{' and '.join(map(str, paths))} are not parallel text\n"
            "expected two text files, of which line i belongs to line i\n"
            'of a table, name the column of the second text: pair_column="NAME"'
        )
    return paths


def fingerprint(files: Iterable[InputFile]) -> tuple[Fingerprint, ...]:
    """Fingerprints of those files that can be read. Reads each of them once."""
    every = [one for file in files for one in (file, file.pair) if one is not None]
    usable = [file for file in every if file.problem is None]
    return tuple(Fingerprint(f.name, f.path.stat().st_size, sha256_of(f.path)) for f in usable)


def absolute(file: InputFile) -> InputFile:
    """The file with an absolute path."""
    pair = None if file.pair is None else absolute(file.pair)
    return file._replace(path=file.path.absolute(), pair=pair)


def readable_paths(files: Iterable[InputFile]) -> list[Path]:
    """Paths of those files that can be read, partners of parallel text among them."""
    every = [one for file in files for one in (file, file.pair) if one is not None]
    return [file.path for file in every if file.problem is None]


def file_states(files: Iterable[InputFile]) -> dict[Path, tuple[int, int]]:
    """Size and time of the last change of each file that can be read; no file is opened."""
    states = {path: path.stat() for path in readable_paths(files)}
    return {path: (state.st_size, state.st_mtime_ns) for path, state in states.items()}


def describe_files(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Name, size and digest of the files that are there, ready for JSON."""
    there = [path for path in paths if path.is_file()]
    return [{"name": p.name, "bytes": p.stat().st_size, "sha256": sha256_of(p)} for p in there]


def describe_texts(texts: Sequence[Any], text_b: Sequence[str] | None = None) -> dict[str, Any]:
    """Number and digest of texts that came as a list, ready for JSON."""
    return {"texts": len(texts), "sha256": json_digest({"texts": texts, "text_b": text_b})}


def _expanded(item: str) -> list[Path]:
    path = Path(item).expanduser()
    if path.is_dir():
        return _in_folder(path)
    if os.path.lexists(path) or not glob.has_magic(item):
        return [path]
    found = sorted(p for p in map(Path, glob.glob(str(path), recursive=True)) if not p.is_dir())
    if not found:
        raise InputError(f"no file matches {item}\ncorrect the pattern, or name the files")
    return found


def _in_folder(folder: Path) -> list[Path]:
    """Files of a data set."""
    if (folder / "plan.json").is_file() and (folder / "shards").is_dir():
        raise InputError(
            f"{folder} is a store of attention, and texts are expected here\n"
            "name the files of the texts; view, stats, roles, compare and search query read stores"
        )
    if (folder / _SPLITS).is_file():
        splits = sorted(p.name for p in folder.iterdir() if p.is_dir())
        raise InputError(
            f"{folder} holds several splits: {', '.join(splits[:8])}\n"
            f"name one of them, for example {folder / (splits or ['train'])[0]}"
        )
    if (folder / _SAVED).is_file():
        return _saved(folder)
    by_kind: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            by_kind.setdefault(kind_of(path), []).append(path)
    kinds = [kind for kind in _IN_FOLDERS if kind in by_kind]
    if not kinds and (folder / "config.json").is_file():
        raise InputError(
            f"{folder} is the folder of a model, and texts are expected here\n"
            "name the files of the texts, and pass this folder as the model"
        )
    if len(kinds) != 1:
        held = f"files of several kinds: {', '.join(kinds)}" if kinds else "none of these"
        known = kinds or [kind for kind in by_kind if kind]
        first = by_kind[known[0]][0] if known else folder / "a.jsonl"
        raise InputError(
            f"{folder} is a folder\nexpected Parquet, JSONL or Arrow files in it, found {held}\n"
            f"name the files, for example '{first.with_name(f'*{first.suffix}')}'"
        )
    return by_kind[kinds[0]]


def _saved(folder: Path) -> list[Path]:
    """Files that the index of a saved data set lists, in its order; they lie beside it."""
    path = folder / _SAVED
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        names = [entry["filename"] for entry in index["_data_files"]]
        if not names or any("/" in name for name in names):
            raise ValueError("it lists no file, or one that is not in this folder")
        paths = [file_inside(folder, name) for name in names]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{path} is not the index of a saved data set\n{str(error).splitlines()[0]}\n"
            "save the data set again, or name its files"
        ) from error
    return paths


def _names(paths: Sequence[Path]) -> list[str]:
    """File names where they are all different, else paths below the folder they share."""
    whole = [Path(os.path.abspath(path)) for path in paths]
    if twice := next((path for path, count in Counter(whole).items() if count > 1), None):
        raise InputError(f"{twice} is named twice\nname every file once")
    shared = os.path.commonpath([path.parent for path in whole])
    names = [path.name for path in whole]
    if len(set(names)) < len(names):
        names = [path.relative_to(shared).as_posix() for path in whole]
    return [os.fsencode(name).decode("utf-8", "backslashreplace") for name in names]


def kept_inputs(folder: Path) -> list[Path]:
    """The files in a folder in which standard input is kept, one of each kind."""
    paths = (folder / f"{_KEPT}.{kind}" for kind in KINDS.values())
    return [path for path in paths if path.is_file()]


def shared_mode(paths: Iterable[Path]) -> int:
    """The permissions that files of texts have in common, for the files made of them."""
    return functools.reduce(operator.and_, (path.stat().st_mode for path in paths), 0o666)


def _spooled(folder: Path | None, kind: str) -> Path:
    """Standard input as a file, written whole; kept where it was read before and is empty now."""
    if folder is None:
        raise InputError("standard input cannot be read here\nname a file")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{_KEPT}.{kind}"
    handle, draft = tempfile.mkstemp(prefix=f".{_KEPT}.", suffix=".part", dir=folder)
    try:
        with open(handle, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, 2**20)
            file.flush()
            os.fsync(file.fileno())
        there = target.is_file()
        if not there or Path(draft).stat().st_size:
            if there and sha256_of(target) != sha256_of(Path(draft)):
                raise InputError(
                    f"standard input is not what {target} was made of\n"
                    "give the same input, or none to use that file, or name another folder"
                )
            os.replace(draft, target)
    finally:
        Path(draft).unlink(missing_ok=True)
    return target
