# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs in one folder: who may enter, what the others learn, and what a killed one leaves."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flaxattn.errors import InputError
from flaxattn.store.folder_lock import held

HOLD = """
import sys, time
from pathlib import Path
from flaxattn.store.folder_lock import held
part = tuple(map(int, sys.argv[2:])) or None
with held(Path(sys.argv[1]), part):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def another(folder: Path, *part: int) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the folder, or a part of the work in it, until it is killed."""
    command = [sys.executable, "-P", "-c", HOLD, str(folder), *map(str, part)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def refusal(folder: Path, part: tuple[int, int] | None = None) -> list[str]:
    with pytest.raises(InputError) as error, held(folder, part):
        pass
    return str(error.value).splitlines()


def test_a_second_job_learns_who_is_there_and_a_killed_one_frees_the_folder(
    tmp_path: Path,
) -> None:
    with another(tmp_path) as other:
        expected = [
            f"another run is at work in {tmp_path}",
            f"process {other.pid} on {os.uname().nodename} holds it",
            "wait for it, or name another folder",
        ]
        assert refusal(tmp_path) == expected
        assert refusal(tmp_path, (1, 4)) == expected
    with held(tmp_path):  # its signature is still in the file
        pass


def test_parts_work_side_by_side_but_not_twice_nor_beside_a_whole_job(tmp_path: Path) -> None:
    with held(tmp_path):  # leaves a signature that is not to be blamed
        pass
    with another(tmp_path, 2, 4) as other:
        named = f"process {other.pid} on {os.uname().nodename} (part 2 of 4) holds it"
        with held(tmp_path, (1, 4)):
            assert refusal(tmp_path, (2, 4))[1] == named
        assert refusal(tmp_path)[1] == named
    with held(tmp_path, (2, 4)):
        pass
    with held(tmp_path):
        pass


@pytest.mark.parametrize("place", ["file", "file/inside"])
def test_a_file_in_place_of_the_folder(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("precious")
    assert refusal(tmp_path / place) == [
        f"cannot write to {tmp_path / place}",
        "a file is in its place",
        "name another folder",
    ]
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
@pytest.mark.parametrize("at", ["mkdir", "open"])
def test_a_folder_that_takes_no_file(
    tmp_path: Path, code: int, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, at, refuse)
    assert refusal(tmp_path / "new" / "store")[1] == os.strerror(code)


@pytest.mark.parametrize("part", [None, (0, 2)])
def test_a_missing_folder_is_made_with_its_parents(
    tmp_path: Path, part: tuple[int, int] | None
) -> None:
    with held(tmp_path / "a" / "b", part):
        assert (tmp_path / "a" / "b").is_dir()


def test_without_locks_the_user_is_warned_and_the_job_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    warning = "has no locks: let no other job write there"
    with pytest.warns(UserWarning, match=warning), held(tmp_path):
        pass
