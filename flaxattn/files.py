# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Writing a folder or a file whole or not at all, what is left of that, the digest of a file.

Also the path of a file that another file names. It does not know what is in the files.
"""

import ctypes
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from flaxattn.errors import CheckpointError, InputError, WriteError

_ABANDONED = 3600.0  # seconds
_STATUS = Path("/proc/self/status")  # of Linux
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux


@contextmanager
def written_whole(
    directory: str | Path,
    last: str = "",
    *,
    first: str = "",
    obsolete: Collection[str] | None = None,
    modes: Mapping[str, int] | None = None,
    mode: int = 0o666,
) -> Iterator[Path]:
    """Give an empty folder to write to; when the block ends well, its files are in `directory`.

    They are flushed to the disk before they get their names. A new directory appears in one step.
    In a directory that holds files already, each new file replaces its namesake in one step and
    all others stay. If anything fails, `directory` is as it was.

    Args:
        directory: Made, with its parents, where absent.
        last: Name of the file that is put in place after all others.
        first: Name of the file that is put in place before all others.
        obsolete: Names of files of an earlier save to remove, with `/` before those in folders. If
            given, even if empty, all files change in one step where the system can: the new folder
            takes the place of the old one, which must hold files only.
        modes: Most permissions that a file gets, by its name; others get `mode`.
        mode: Most permissions of all other files; the umask leaves fewer.

    Yields:
        The folder to write to, which nobody else can read.

    Raises:
        CheckpointError: If the disk is full, the place is not writable, or is a file.
    """
    target = Path(directory).absolute()  # mkdtemp answers with absolute paths
    staging = None
    try:
        try:
            swap = obsolete is not None and _is_replaceable(target)
            staging = _staging(target, beside=swap)
            yield staging
            _flush(staging, modes or {}, mode)
            if swap:
                _keep_others(staging, target, obsolete or ())
                _exchange(staging, target)
                _flush_entry(target.parent)
            else:
                for name in set(obsolete or ()) - set(names_inside(staging)):
                    (target / name).unlink(missing_ok=True)
                _move(staging, target, last, first)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error.strerror or error
            raise CheckpointError(
                f"Could not write {target}: {reason}.\n{_unfinished(staging, error)}"
                f"Nothing in it was changed. {_remedy(error)}"
            ) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def _staging(target: Path, beside: bool = False) -> Path:
    """A fresh folder on the same disk as `target`: beside it, or inside if it holds files."""
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(0, "it is a file, not a directory")
    target.parent.mkdir(parents=True, exist_ok=True)
    occupied = target.is_dir() and any(target.iterdir())
    folder = target if occupied and not beside else target.parent
    return Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=folder))


def _unfinished(staging: Path | None, error: OSError) -> str:
    """Line with the name of the file at which writing failed; empty before there is any.

    A full disk is reported by the writer that meets it, often without a name; then the file is the
    one that was written to last.
    """
    files = [] if staging is None else [path for path in staging.rglob("*") if path.is_file()]
    named = Path(error.filename) if isinstance(error.filename, str) else None
    if named not in files:
        named = max(files, key=lambda path: path.stat().st_mtime_ns, default=None)
    if named is None or staging is None:
        return ""
    return f"It failed at the file {named.relative_to(staging).as_posix()}.\n"


def names_inside(folder: Path) -> list[str]:
    """Names of all files in a folder and its folders, with `/` between parts, sorted."""
    paths = (path for path in folder.rglob("*") if not path.is_dir())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def _umask() -> int:
    """The umask of this process, read without changing it where the system allows."""
    with suppress(OSError, LookupError, ValueError):
        status = _STATUS.read_text(encoding="ascii", errors="replace")
        return int(status.split("\nUmask:")[1].split()[0], 8)
    umask = os.umask(0o077)  # what another thread creates at this moment is too private, not open
    os.umask(umask)
    return umask


def _flush(folder: Path, modes: Mapping[str, int], mode: int) -> None:
    allowed = ~_umask()
    paths = sorted(folder.rglob("*"), reverse=True)
    for path in paths:
        # Some writers make their files private, which the finished ones must not be.
        most = 0o777 if path.is_dir() else modes.get(path.name, mode) & 0o666
        path.chmod(most & allowed)
    folder.chmod(0o777 & allowed)  # mkdtemp made it private
    for path in (*paths, folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _is_replaceable(target: Path) -> bool:
    """Return whether a new folder can take the place of one with plain files of this user."""
    if target.is_symlink() or not target.is_dir() or target.is_mount():
        return False
    paths = list(target.iterdir())
    plain = all(path.is_file() and not path.is_symlink() for path in paths)
    ours = all(path.lstat().st_uid == os.geteuid() for path in (target, *paths))
    return bool(paths) and plain and ours and _exchange_works(target.parent)


def _exchange_works(folder: Path) -> bool:
    """Try it: old systems and some file systems cannot, and some folders are not ours to write."""
    try:
        with tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=folder) as place:
            one, other = Path(place, "one"), Path(place, "other")
            one.mkdir()
            other.mkdir()
            _exchange(one, other)
    except OSError:
        return False
    return True


def _exchange(one: Path, other: Path) -> None:
    """Let two folders change names in one step."""
    system = ctypes.CDLL(None, use_errno=True)
    if not hasattr(system, "renameat2"):
        raise OSError(0, "this system cannot exchange folders")
    names = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other))
    if system.renameat2(*names, _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _keep_others(staging: Path, target: Path, obsolete: Collection[str]) -> None:
    """Give the new folder the mode of the old one, and links to those of its files that stay."""
    shutil.copymode(target, staging)
    for path in target.iterdir():
        if path.name not in obsolete and not (staging / path.name).exists():
            os.link(path, staging / path.name)
    _flush_entry(staging)


def _move(staging: Path, target: Path, last: str, first: str) -> None:
    if staging.parent == target:
        names = sorted(names_inside(staging), key=lambda name: (name == last, name != first, name))
        for name in names:
            (target / name).parent.mkdir(exist_ok=True)
            os.replace(staging / name, target / name)
        for folder in {(target / name).parent for name in names} | {target}:
            _flush_entry(folder)
    else:
        os.rename(staging, target)
        _flush_entry(target.parent)


def _flush_entry(folder: Path) -> None:
    """Make the names in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_writable(path: Path, what: str = "a file") -> None:
    """Refuse a place where no file can be written, before the work whose result goes there."""
    _check_name(path, what)
    _try_to_write(path.absolute().parent)


def existing_part(path: Path) -> Path:
    """The path itself, or the nearest of the folders above it that exists."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be written to, before the work whose result goes there."""
    place = existing_part(path)
    if not place.is_dir():
        raise InputError(
            f"Cannot write to {str(path)!r}: {place} is a file, not a folder.\nName another folder."
        )
    _try_to_write(place)


def _try_to_write(folder: Path) -> None:
    """Create a nameless file in a folder; permissions alone do not tell whether that works."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(
            f"Cannot write to {str(folder)!r}: {reason}.\nName a folder that you may write to."
        ) from error


def _remedy(error: OSError) -> str:
    """Return the advice for a failure to write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space and do the same again, or choose another folder."
    return "Choose another folder."


def _check_name(path: Path, what: str) -> None:
    """Refuse the name of a folder, and a name in a folder that is not there."""
    if path.is_dir() or not path.parent.is_dir():
        reason = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise InputError(
            f"Cannot write {what}: {str(path)!r} {reason}.\n"
            "Give a file name in a folder that exists."
        )


def write_text(path: str | os.PathLike[str], text: str, what: str = "a file") -> Path:
    """Write a text as UTF-8. A file of that name is replaced at once or, on an error, stays."""
    return write_bytes(path, text.encode("utf-8"), what)


def write_bytes(path: str | os.PathLike[str], data: bytes, what: str = "a file") -> Path:
    """Write a file. One of that name is replaced at once or, on an error, stays."""
    target = Path(path)
    _check_name(target, what)
    draft = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with open(draft, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except OSError as error:
        raise not_written(target, error) from error
    finally:
        draft.unlink(missing_ok=True)
    return target


def not_written(path: Path, error: OSError) -> WriteError:
    """Make the error for a file that cannot be written."""
    try:
        free = f" ({shutil.disk_usage(path.parent).free:,} bytes are free)"
    except OSError:
        free = ""
    reason = os.strerror(error.errno) if error.errno else error.strerror or error
    failure = WriteError(
        f"Could not write {path}: {reason}{free}.\n"
        f"What was written before is as it was.\n{_remedy(error)}"
    )
    failure.errno = error.errno
    return failure


def sha256_of(path: Path) -> str:
    """Hexadecimal digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_inside(
    folder: Path, name: object, size: int | None = None, *, links_into: Sequence[Path] = ()
) -> Path:
    """Path of a file that an untrusted file names; it must lie inside the folder."""
    parts = name.split("/") if isinstance(name, str) else []
    if not parts or {"", ".", ".."} & {*parts} or {"\\", "\0"} & {*str(name)}:
        raise OSError(f"{name!r:.200} is not the name of a file inside its folder")
    path, status = folder, os.stat(folder)
    try:
        for part in parts:
            path = path / part
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                if path.resolve().parent not in links_into:
                    raise OSError("it is a link, or lies behind one; links are not followed")
                status = os.stat(path)
    except ValueError as error:  # half of a pair of surrogates
        raise OSError(f"{name!r:.200} is not a valid file name") from error
    if not stat.S_ISREG(status.st_mode):
        raise OSError("it is a folder, pipe, socket or device, expected a file")
    if size is not None and status.st_size != size:
        raise OSError(f"it has {status.st_size} bytes instead of {size}")
    return path


def json_digest(facts: Mapping[str, Any]) -> str:
    """Hexadecimal SHA-256 of what JSON says, however it is laid out in a file."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove half-written folders that have not changed for an hour: their writers were killed."""
    for part in folder.glob(pattern):
        with suppress(OSError):  # it may get its final name at this moment
            newest = max(path.stat().st_mtime for path in (part, *part.iterdir()))
            if time.time() - newest > _ABANDONED:
                shutil.rmtree(part)


def readable_size(size: float) -> str:
    """Return a number of bytes with a unit, such as "7.3 kB"."""
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6), ("kB", 3)):
        if size >= 10**power:
            return f"{size / 10**power:.1f} {unit}"
    return f"{size:.0f} bytes"


_LONGEST = 60
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # the direction of text


def safe_name(name: str) -> str:
    """A file name for any string, the same on every system."""
    kept = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)
    kept = re.sub(r"\.{2,}", ".", kept)[:_LONGEST].strip(".-")
    if kept == name and kept.split(".")[0].upper() not in _reserved():
        return kept
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{kept.replace('.', '_') or 'text'}-{digest}"


def _reserved() -> set[str]:
    """Names that are devices on Windows."""
    ports = {f"{port}{n}" for port in ("COM", "LPT") for n in range(10)}
    return {"CON", "PRN", "AUX", "NUL", "", *ports}


def csv_cell(text: str) -> str:
    """Text that a spreadsheet shows instead of computing."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def printable(text: str) -> str:
    r"""Text that a terminal shows instead of obeying."""

    def escaped(character: str) -> str:
        obeyed = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        if obeyed or _TURNING.match(character):
            return character.encode("unicode_escape").decode()
        return character

    return "".join(map(escaped, text))
