# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Who may write in a run's folder, and what an earlier run there forbids."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flaxattn.errors import CheckpointError, InputError
from flaxattn.train.recipe import Recipe
from flaxattn.train.run_folder import RunFolder

HOLD = """
import sys, time
from pathlib import Path
from flaxattn.train.run_folder import RunFolder
with RunFolder(Path(sys.argv[1])).held():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_learns_who_is_at_work_and_a_dead_one_frees_the_folder(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-P", "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(InputError) as error, RunFolder(tmp_path).held():
            pass
        lines = str(error.value).splitlines()
        assert lines[0] == f"another run is at work in {tmp_path}"
        assert lines[1] == f"process {other.pid} on {os.uname().nodename} holds it"
        assert len(lines) == 3
        other.kill()
        other.wait()
        with RunFolder(tmp_path).held():
            pass


@pytest.mark.parametrize("place", ["file", "file/inside"])
def test_a_folder_that_cannot_be_made(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as error, RunFolder(tmp_path / place).held():
        pass
    assert str(error.value).startswith(f"cannot write to {tmp_path / place}\n")
    assert str(error.value).endswith("name another folder")


def test_another_recipe_or_other_data_is_refused_with_what_changed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    identity = {"data": "sha256:1", "tokenizer": "sha256:2"}
    folder.claim(Recipe(steps=10), identity)
    folder.checkpoints.mkdir()
    folder.claim(Recipe(steps=10, log_seconds=3, workers=2, devices=1), identity)
    with pytest.raises(CheckpointError) as error:
        folder.claim(Recipe(steps=20), {**identity, "data": "sha256:3"})
    lines = str(error.value).splitlines()
    assert lines[:2] == [
        f"{tmp_path} holds another run",
        "changed: steps 10 -> 20; data sha256:1 -> sha256:3",
    ]
    assert "--fresh" in lines[2] and "--allow-changes" in lines[2]
    RunFolder(tmp_path, allow_changes=True).claim(Recipe(steps=20), identity)
    with pytest.raises(CheckpointError):
        folder.claim(Recipe(steps=10), identity)
    RunFolder(tmp_path, fresh=True).claim(Recipe(steps=10), identity)


def begun(path: Path) -> RunFolder:
    """A run with a checkpoint."""
    folder = RunFolder(path / "run")
    folder.path.mkdir()
    folder.claim(Recipe(steps=10), {"data": "sha256:1"})
    (folder.checkpoints / "step-00000005").mkdir(parents=True)
    return folder


def refused(folder: RunFolder, recipe: Recipe) -> str:
    with pytest.raises(CheckpointError) as error:
        folder.claim(recipe, {"data": "sha256:1"})
    assert len(str(error.value).splitlines()) == 3
    return str(error.value)


def test_a_run_that_does_not_say_what_it_is_made_of_is_not_resumed(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    path = folder.path / "run.json"
    whole = path.read_bytes()
    path.unlink()
    assert refused(folder, Recipe(steps=20)).splitlines()[0] == (
        f"{path} is missing, though there are checkpoints of a run"
    )
    for cut in (0, 1, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:cut])
        assert f"{path} cannot be read" in refused(folder, Recipe(steps=10))
    path.write_bytes(whole.replace(b'"steps": 10', b'"steps": 20'))
    message = refused(folder, Recipe(steps=20))
    assert f"{path} is not what was written" in message
    assert "--fresh" in message and "--allow-changes" in message
    RunFolder(folder.path, allow_changes=True).claim(Recipe(steps=20), {"data": "sha256:1"})
    folder.claim(Recipe(steps=20), {"data": "sha256:1"})
    path.write_text("{")
    RunFolder(folder.path, fresh=True).claim(Recipe(steps=10), {"data": "sha256:1"})


def test_no_flipped_bit_of_run_json_lets_another_recipe_resume(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    path = folder.path / "run.json"
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        assert str(folder.path) in refused(folder, Recipe(steps=20))


def test_a_setting_that_an_earlier_version_lacks_has_its_default(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    path = folder.path / "run.json"
    before = json.loads(path.read_text())
    del before["sha256"], before["recipe"]["patience"]
    path.write_text(json.dumps(before))
    assert "changed: patience 0 -> 3" in refused(folder, Recipe(steps=10, patience=3))
    folder.claim(Recipe(steps=10), {"data": "sha256:1"})


def test_a_run_of_an_earlier_version_has_no_digest_and_is_compared(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    path = folder.path / "run.json"
    before = json.loads(path.read_text())
    del before["sha256"]
    path.write_text(json.dumps(before))
    assert "changed: steps 10 -> 20" in refused(folder, Recipe(steps=20))
    folder.claim(Recipe(steps=10), {"data": "sha256:1"})
