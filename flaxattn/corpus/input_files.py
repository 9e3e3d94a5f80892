# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From what was named on a command line to the files of a corpus, in their order.

Paths, patterns, folders of a data set, and standard input. Files are found and fingerprinted here;
`texts` reads them.
"""

import functools
import glob
import json
import operator
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from flaxattn.corpus.bad_rows import Problem
from flaxattn.corpus.lines import KINDS, kind_of, refused
from flaxattn.errors import InputError
from flaxattn.files import file_inside, json_digest, sha256_of

STDIN = "-"
_KEPT = "stdin"  # name of the file in which standard input is kept, without its extension
Name = str | os.PathLike[str]
_IN_FOLDERS = ("parquet", "jsonl", "arrow")
_SPLITS, _SAVED = "dataset_dict.json", "state.json"  # of Hugging Face's save_to_disk


class InputFile(NamedTuple):
    """A file of a corpus.

    Attributes:
        path: where it is.
        name: what it is called in ids and in the plan: short, and the same wherever it lies.
        kind: a value of `lines.KINDS`; empty where nobody knows.
        problem: what forbids to read it, or its partner.
        pair: the file whose line i belongs to line i of this one.
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
