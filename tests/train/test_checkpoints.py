# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: whole or absent, never damage read as numbers, refused where they do not fit."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.errors import CheckpointError
from flaxattn.train import checkpoints
from flaxattn.train.checkpoints import Checkpoints, DamagedError
from flaxattn.train.optimizers import bert_adamw
from flaxattn.train.recipe import Recipe
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.state import TrainState, initial_state, make_mesh, place_state


def make_state(value: float = 1.0, width: int = 16) -> TrainState:
    rng = np.random.default_rng(0)
    params = {
        "encoder": {"layers": {"feed_forward": {"up": {"kernel": rng.normal(size=(2, 8, width))}}}},
        "head": {"bias": np.full(width, value)},
    }
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
    return initial_state(params, bert_adamw(Recipe()))._replace(step=jnp.asarray(7, jnp.int32))


def equal(one: TrainState, two: TrainState) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


FULL = os.environ.get("FLAXATTN_TRIALS") == "full"  # `make all`
MESH = make_mesh(Recipe(devices=4, model_parallel=2))


def save(folder: Path, steps: list[int], keep: int = 2, **progress: object) -> None:
    with Checkpoints(RunFolder(folder), keep) as saved:
        for step in steps:
            saved.save(step, place_state(make_state(step), MESH), {"tokens": step, **progress})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def saved_twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    save(folder, [3, 6])
    return folder


@pytest.fixture
def copied(saved_twice: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(saved_twice, tmp_path / "run")
    yield tmp_path / "run"


@pytest.mark.parametrize("devices", [1, 4, 8])
def test_it_comes_back_bit_for_bit_on_any_number_of_devices(
    saved_twice: Path, devices: int
) -> None:
    mesh = make_mesh(Recipe(devices=devices))
    with Checkpoints(RunFolder(saved_twice), 2) as saved:
        found = saved.newest(make_state(), mesh)
    assert found is not None
    state, progress = found
    assert equal(state, make_state(6))
    assert jax.tree.structure(state) == jax.tree.structure(make_state())
    assert progress == {"tokens": 6}
    kernel = state.params["encoder"]["layers"]["feed_forward"]["up"]["kernel"]
    assert kernel.sharding.mesh == mesh


@pytest.mark.slow
def test_the_newest_and_the_best_stay(tmp_path: Path) -> None:
    save(tmp_path, [1, 2, 3, 4, 5], best={"step": 2, "value": 0.1})
    assert names(tmp_path) == ["step-00000002", "step-00000004", "step-00000005"]


def test_what_a_kill_left_unfinished_is_removed(copied: Path) -> None:
    (copied / "checkpoints" / "step-00000009.part" / "arrays").mkdir(parents=True)
    with Checkpoints(RunFolder(copied), 2) as saved:
        found = saved.newest(make_state(), MESH)
    assert found is not None and found[1]["tokens"] == 6
    assert names(copied) == ["step-00000003", "step-00000006"]


def files_of(folder: Path) -> list[Path]:
    return sorted(p for p in (folder / "checkpoints" / "step-00000006").rglob("*") if p.is_file())


def assert_refused(folder: Path, trial: str) -> None:
    with Checkpoints(RunFolder(folder), 2) as saved:
        with pytest.raises(DamagedError) as error:
            saved.newest(make_state(), MESH)
        lines = str(error.value).splitlines()
        assert len(lines) == 3, trial
        assert lines[0].startswith("checkpoint step-00000006 in "), trial
        assert "--fallback" in lines[2]
    with Checkpoints(RunFolder(folder, fallback=True), 2) as saved:
        found = saved.newest(make_state(), MESH)
    assert found is not None and equal(found[0], make_state(3)), trial


@pytest.mark.parametrize("trial", range(200 if FULL else 8))
def test_a_flipped_bit_is_noticed(copied: Path, trial: int) -> None:
    rng = random.Random(trial)
    files = [path for path in files_of(copied) if path.stat().st_size]
    path = rng.choice(files)
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data) * 8)
    data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)
    assert_refused(copied, f"bit {place} of {path.name}")


@pytest.mark.parametrize("trial", range(10 if FULL else 1))
@pytest.mark.parametrize("damage", ["cut", "empty", "missing", "added"])
def test_a_file_that_is_cut_gone_or_new_is_noticed(copied: Path, damage: str, trial: int) -> None:
    path = random.Random(f"{damage} {trial}").choice(
        [p for p in files_of(copied) if p.stat().st_size > 1]
    )
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "added":
        path.with_name("new").write_bytes(data)
    else:
        path.write_bytes(data[: len(data) // 2 if damage == "cut" else 0])
    assert_refused(copied, f"{damage}: {path.name}")


def test_a_manifest_of_nonsense(copied: Path) -> None:
    (copied / "checkpoints" / "step-00000006" / "manifest.json").write_text("[1")
    assert_refused(copied, "manifest")


def test_after_falling_back_the_damaged_one_is_replaced(copied: Path) -> None:
    files_of(copied)[0].write_bytes(b"damage")
    with Checkpoints(RunFolder(copied, fallback=True), 2) as saved:
        assert saved.newest(make_state(), MESH) is not None
        saved.save(6, make_state(60), {})
    assert names(copied) == ["step-00000003", "step-00000006"]
    with Checkpoints(RunFolder(copied), 2) as saved:
        found = saved.newest(make_state(), MESH)
    assert found is not None and equal(found[0], make_state(60))


def test_another_model_is_refused_with_every_difference(saved_twice: Path) -> None:
    other = make_state(width=32)
    other.params["new"] = {"bias": jnp.zeros(3)}
    with Checkpoints(RunFolder(saved_twice), 2) as saved, pytest.raises(CheckpointError) as error:
        saved.newest(other, MESH)
    lines = str(error.value).splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("belongs to another model: 7 arrays differ")
    assert "params/head/bias: expected [[32], 'float32'], found [[16], 'float32']" in lines[1]
    assert "params/new/bias: expected [[3], 'float32'], found None" in lines[1]


def test_no_room_is_reported_before_anything_is_written(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(copied)._replace(free=100)
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda _: usage)
    with Checkpoints(RunFolder(copied), 2) as saved, pytest.raises(CheckpointError) as error:
        saved.save(9, make_state(), {})
    assert "bytes, 100 are free" in str(error.value).splitlines()[1]
    assert names(copied) == ["step-00000003", "step-00000006"]


def test_a_save_that_fails_later_is_reported_by_the_next_call(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_manifest", full)
    with Checkpoints(RunFolder(copied), 2) as saved:
        saved.save(9, make_state(), {})
        with pytest.raises(CheckpointError) as error:
            saved.wait()
    lines = str(error.value).splitlines()
    assert lines[0].startswith("could not save step-00000009 in ")
    assert "No space left on device" in lines[1]
    assert names(copied) == ["step-00000003", "step-00000006"]


def test_the_manifest_lists_every_file(saved_twice: Path) -> None:
    folder = saved_twice / "checkpoints" / "step-00000006"
    listed = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    found = {str(path.relative_to(folder)) for path in files_of(saved_twice)}
    assert set(listed) == found - {"manifest.json"}


LIMITED = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from flaxattn.errors import CheckpointError
from flaxattn.train.checkpoints import Checkpoints
from flaxattn.train.run_folder import RunFolder

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
random = np.random.default_rng(0)
x = [random.random((4096 // int(sys.argv[3]), 256), np.float32) for _ in range(int(sys.argv[3]))]
try:
    with Checkpoints(RunFolder(Path(sys.argv[1])), 2) as saved:
        saved.save(1, {"x": x, "step": np.array(1, np.int32)}, {"tokens": 1})
except CheckpointError as error:
    print(error, file=sys.stderr)
"""


@pytest.mark.few("500-2")
@pytest.mark.parametrize(("limit", "arrays"), [(100_000, 1), (100_000, 32), (2_000, 32), (500, 2)])
def test_a_save_that_fails_in_the_background_is_one_error_of_three_lines(
    limit: int, arrays: int, tmp_path: Path
) -> None:
    """Orbax's and TensorStore's threads print nothing of their own, nor write into `.part`."""
    command = [sys.executable, "-P", "-c", LIMITED, str(tmp_path), str(limit), str(arrays)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second, third = done.stderr.splitlines()
    assert first == f"could not save step-00000001 in {tmp_path / 'checkpoints'}"
    assert "bytes are free" in second
    assert third.startswith("older checkpoints are as they were")
    assert not list((tmp_path / "checkpoints").iterdir())


def test_a_full_disk_is_reported_in_its_own_words(tmp_path: Path) -> None:
    with Checkpoints(RunFolder(tmp_path), 2) as saved:
        message = ValueError('RESOURCE_EXHAUSTED: Error writing "x/0.0" in OCDBT database at local')
        lines = str(saved._unsaved(tmp_path / "step-00000001.part", message)).splitlines()
    assert lines[1].startswith("No space left on device (")
