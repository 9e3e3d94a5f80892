# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Locks on a folder: one job, or several that share it by parts.

Locks are the operating system's, so they are gone with the process that held them, however it
ended. The content of the folder does not matter.
"""

import contextlib
import errno
import fcntl
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from flaxattn.errors import InputError

LOCK = ".lock"
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


@contextmanager
def held(folder: Path, part: tuple[int, int] | None = None) -> Iterator[None]:
    """Make a folder and keep other jobs out of it."""
    with ExitStack() as stack:
        lock = stack.enter_context(_opened(folder, LOCK))
        _take(lock, folder, shared=part is not None)
        _sign(lock, "" if part else _me())  # of those who share, each signs a lock of its own
        if part:
            own = stack.enter_context(_opened(folder, f"{LOCK}.{part[0]}-of-{part[1]}"))
            _take(own, folder)
            _sign(own, f"{_me()} (part {part[0]} of {part[1]})")
        yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process of this machine holds the same lock file.

    On a file system without locks it does not wait; every process must then write the same content.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _opened(folder: Path, name: str) -> TextIO:
    """A lock file, which can be opened only where files can be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / name).open("a+", encoding="utf-8")
    except OSError as error:
        in_place = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "a file is in its place" if in_place else error.strerror
        raise InputError(f"cannot write to {folder}\n{reason}\nname another folder") from error


def _take(lock: TextIO, folder: Path, shared: bool = False) -> None:
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            message = f"the file system of {folder} has no locks: let no other job write there"
            warnings.warn(message, stacklevel=5)
            return
        lock.seek(0)
        holder = lock.read().strip() or _holder_of_a_part(folder)
        raise InputError(
            f"another run is at work in {folder}\n"
            f"{holder} holds it\n"
            "wait for it, or name another folder"
        ) from error


def _holder_of_a_part(folder: Path) -> str:
    for path in sorted(folder.glob(f"{LOCK}.*-of-*")):
        with path.open("r+", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return lock.read().strip()
    return "another process"


def _sign(lock: TextIO, holder: str) -> None:
    lock.truncate(0)
    lock.write(holder)
    lock.flush()


def _me() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"
