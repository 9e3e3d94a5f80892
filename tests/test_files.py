# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Files that other files name: inside their folder, regular, of the right size, or refused."""

import errno
import os
from pathlib import Path

import pytest

from flaxattn import files
from flaxattn.errors import FlaxattnError
from flaxattn.files import file_inside, write_text, written_whole

OUTSIDE = ["", ".", "..", "/etc/passwd", "../x", "a/../../x", "a//x", "a/", "./a", "a\\x", "a\0"]


def test_the_umask_is_read_without_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another thread creates meanwhile is never open to all."""
    before, masks = os.umask(0o027), []
    real = os.umask
    monkeypatch.setattr(os, "umask", lambda mask: masks.append(mask) or real(mask))
    try:
        assert files._umask() == 0o027
        assert not masks or not files._STATUS.exists()
        for status in ("", "Name:\tx\n", "Name:\tx\nUmask:\tzz\n"):
            masks.clear()
            (tmp_path / "status").write_text(status)
            monkeypatch.setattr(files, "_STATUS", tmp_path / "status")
            assert files._umask() == 0o027 and masks == [0o077, 0o027]
        monkeypatch.setattr(files, "_STATUS", tmp_path / "none")
        assert files._umask() == 0o027
    finally:
        real(before)


@pytest.mark.parametrize(("mode", "expected"), [(0o666, 0o644), (0o600, 0o600)])
def test_files_get_their_mode_at_the_end_and_are_private_until_then(
    tmp_path: Path, mode: int, expected: int
) -> None:
    before = os.umask(0o022)
    try:
        with written_whole(tmp_path / "new", modes={"b": 0o640}, mode=mode) as folder:
            (folder / "a").write_text("a")
            (folder / "b").write_text("b")
            assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
    modes = [(tmp_path / "new" / name).stat().st_mode & 0o777 for name in (".", "a", "b")]
    assert modes == [0o755, expected, 0o640]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x").write_text("secret")
    (tmp_path / "in/a").mkdir(parents=True)
    (tmp_path / "in/a/x").write_text("12345")
    return tmp_path / "in"


@pytest.mark.parametrize("name", [*OUTSIDE, None, 3, ["x"]])
def test_names_that_lead_out_of_the_folder_are_refused(folder: Path, name: object) -> None:
    with pytest.raises(OSError, match="is not the name of a file inside its folder") as error:
        file_inside(folder, name)
    assert len(str(error.value).splitlines()) == 1


def test_a_regular_file_of_the_right_size_is_taken(folder: Path) -> None:
    assert file_inside(folder, "a/x") == file_inside(folder, "a/x", 5) == folder / "a/x"
    with pytest.raises(OSError, match="it has 5 bytes instead of 6"):
        file_inside(folder, "a/x", 6)
    with pytest.raises(FileNotFoundError):
        file_inside(folder, "a/y")
    with pytest.raises(OSError, match="is not a valid file name"):
        file_inside(folder, "\ud800")


def test_links_pipes_and_devices_are_refused_before_they_are_opened(folder: Path) -> None:
    (folder / "file").symlink_to(folder.parent / "x")
    (folder / "folder").symlink_to(folder.parent)
    (folder / "zeros").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    for name in ("file", "folder/x", "zeros"):
        with pytest.raises(OSError, match="it is a link, or lies behind one"):
            file_inside(folder, name)
    for name in ("pipe", "a"):
        with pytest.raises(OSError, match="it is a folder, pipe, socket or device"):
            file_inside(folder, name)
    assert file_inside(folder, "file", 6, links_into=[folder.parent.resolve()]) == folder / "file"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_file_that_cannot_be_written_is_named_and_stays(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")

    def fail(handle: int) -> None:
        raise OSError(code, "long words")  # without a name, as write and fsync say it

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FlaxattnError) as error:
        write_text(path, "after")
    lines = str(error.value).splitlines()
    assert lines[0].startswith(f"Could not write {path}: {os.strerror(code)} (")
    assert isinstance(error.value, OSError) and error.value.errno == code
    assert len(lines) == 3 and ".part" not in str(error.value)
    assert path.read_text() == "before" and [*tmp_path.iterdir()] == [path]
