# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Writing a folder or a file whole or not at all, what is left of that, the digest of a file.

It does not know what is in the files.
"""

import hashlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from flaxattn.errors import CheckpointError, InputError

_ABANDONED = 3600.0  # seconds


@contextmanager
def written_whole(
    directory: str | Path, last: str = "", *, modes: Mapping[str, int] | None = None
) -> Iterator[Path]:
    """Give an empty folder to write to; when the block ends well, its files are in `directory`.

    They are flushed to the disk before they get their names. A new directory appears in one step.
    In a directory that holds files already, each new file replaces its namesake in one step and
    all others stay. If anything fails, `directory` is as it was.

    Args:
        directory: Made, with its parents, where absent.
        last: Name of the file that is put in place after all others.
        modes: Most permissions that a file gets, by its name; others get what the umask leaves.

    Yields:
        The folder to write to.

    Raises:
        CheckpointError: If the disk is full, the place is not writable, or is a file.
    """
    target = Path(directory).absolute()  # mkdtemp answers with absolute paths
    staging = None
    try:
        try:
            staging = _staging(target)
            yield staging
            _flush(staging, modes or {})
            _move(staging, target, last)
        except OSError as error:
            raise CheckpointError(
                f"Could not write {target}: {error.strerror or error}.\n"
                "Nothing in it was changed. Free some space, or choose another directory."
            ) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def _staging(target: Path) -> Path:
    """A fresh folder on the same disk as `target`: beside it, or inside if it holds files."""
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(0, "it is a file, not a directory")
    target.parent.mkdir(parents=True, exist_ok=True)
    occupied = target.is_dir() and any(target.iterdir())
    folder = target if occupied else target.parent
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=folder))
    staging.chmod(0o777 & ~_umask())  # mkdtemp makes it private; the finished folder must not be
    return staging


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def _flush(folder: Path, modes: Mapping[str, int]) -> None:
    for path in folder.iterdir():
        # Some writers make their files private, which the finished ones must not be.
        path.chmod(modes.get(path.name, 0o666) & 0o666 & ~_umask())
    for path in (*folder.iterdir(), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _move(staging: Path, target: Path, last: str) -> None:
    if staging.parent == target:
        for path in sorted(staging.iterdir(), key=lambda p: (p.name == last, p.name)):
            os.replace(path, target / path.name)
        _flush_entry(target)
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


def write_text(path: str | os.PathLike[str], text: str, what: str = "a file") -> Path:
    """Write a text as UTF-8. A file of that name is replaced at once or, on an error, stays.

    Args:
        path: Where to; its folder must exist.
        text: What to write.
        what: How to call it in a message.

    Returns:
        The path.

    Raises:
        InputError: If the folder is missing or the path is a folder.
    """
    return write_bytes(path, text.encode("utf-8"), what)


def write_bytes(path: str | os.PathLike[str], data: bytes, what: str = "a file") -> Path:
    """Write a file. One of that name is replaced at once or, on an error, stays.

    Args:
        path: Where to; its folder must exist.
        data: What to write.
        what: How to call it in a message.

    Returns:
        The path.

    Raises:
        InputError: If the folder is missing or the path is a folder.
    """
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        reason = "is a folder" if target.is_dir() else "is in a folder that does not exist"
        raise InputError(
            f"Cannot write {what}: {str(target)!r} {reason}.\n"
            "Give a file name in a folder that exists."
        )
    draft = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with open(draft, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    return target


def sha256_of(path: Path) -> str:
    """Hexadecimal digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove half-written folders to which nobody has added for an hour: who did was killed."""
    for part in folder.glob(pattern):
        with suppress(OSError):  # it may get its final name at this moment
            newest = max(path.stat().st_mtime for path in (part, *part.iterdir()))
            if time.time() - newest > _ABANDONED:
                shutil.rmtree(part)
