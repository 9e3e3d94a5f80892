# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Training that is killed, stopped, or short of disk: real processes and real signals.

`make all` makes every trial.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FULL = os.environ.get("FLAXATTN_TRIALS") == "full"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("killed")]

SAVES = """
import sys
from pathlib import Path
import numpy as np
from flaxattn.train.checkpoints import Checkpoints
from flaxattn.train.run_folder import RunFolder

with Checkpoints(RunFolder(Path(sys.argv[1])), 2) as saved:
    for step in range(int(sys.argv[2]), 10**6):
        x = np.random.default_rng(step).random((64, 4096), np.float32)
        state = {"x": x, "step": np.array(step, np.int32)}
        saved.save(step, state, {"tokens": step})
        print(step, flush=True)
"""


def test_killed_at_random_updates_it_ends_as_if_nothing_had_happened(
    training, undisturbed: Path, tmp_path: Path
) -> None:
    """F2: one run, killed again and again."""
    kills, rng, out = 20 if FULL else 1, random.Random(1), tmp_path / "run"
    killed = 0
    for number in range(kills):
        newest = max(training.checkpoints(out), default=0)
        step = newest + rng.randint(1, 4 if FULL else 14)
        process = training.start(out, checkpoint_every=2 if FULL else 5)
        training.kill_at(process, out, min(step, 39))
        killed += process.returncode == -signal.SIGKILL
        assert process.returncode in (-signal.SIGKILL, 0), number
    training.finish(out, checkpoint_every=2 if FULL else 5)
    assert killed >= kills / 2
    assert training.results(out) == training.results(undisturbed)


def test_killed_while_saving_the_newest_checkpoint_is_whole(tmp_path: Path) -> None:
    """F1: loads what is left, compares it bit by bit, and sees nothing half-written remain."""
    import numpy as np

    from flaxattn.train.run_folder import RunFolder

    rng, first, folder = random.Random(2), 0, RunFolder(tmp_path)
    for trial in range(100 if FULL else 3):
        command = [sys.executable, "-P", "-c", SAVES, str(tmp_path), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            output = int(process.stdout.readline())
            time.sleep(rng.uniform(0, 0.4))
            process.kill()
            output = max([output, *(int(line) for line in process.stdout if line.endswith("\n"))])
        like = {"x": np.zeros((64, 4096), np.float32), "step": np.array(0, np.int32)}
        found = load_newest(folder, like)
        if found is None:
            assert output - first < 2, trial
            continue
        state, progress = found
        step = progress["tokens"]
        assert step >= output - 1, trial  # one interval is lost at most
        assert int(state["step"]) == step
        assert np.array_equal(
            state["x"], np.random.default_rng(step).random((64, 4096), np.float32)
        )
        assert not [p.name for p in folder.checkpoints.iterdir() if p.suffix == ".part"]
        first = step + 1


def load_newest(folder, like):
    from flaxattn.train.checkpoints import Checkpoints
    from flaxattn.train.recipe import Recipe
    from flaxattn.train.state import make_mesh

    with Checkpoints(folder, 2) as saved:
        return saved.newest(like, make_mesh(Recipe(devices=1)))


@pytest.mark.parametrize("number", range(20 if FULL else 1))
def test_when_stopped_it_saves_the_update_it_is_in(
    training, undisturbed: Path, tmp_path: Path, number: int
) -> None:
    """F3: SIGTERM exits with 75, Ctrl-C with 130, and the same command continues."""
    which, code = ((signal.SIGTERM, 75), (signal.SIGINT, 130))[number % 2]
    out = tmp_path / "run"
    process = training.start(out, checkpoint_every=0)
    training.wait_for(process, out, random.Random(number).randint(1, 30))
    started = time.monotonic()
    process.send_signal(which)
    got, stderr = training.ended(process, 30)
    assert time.monotonic() - started < 30
    assert got == code, stderr
    assert training.checkpoints(out)[-1] == training.last_step(out)
    training.finish(out, checkpoint_every=0)
    assert training.results(out) == training.results(undisturbed)


def test_a_second_signal_ends_it_at_once(training, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = training.start(out, steps=100000)
    training.wait_for(process, out, 1)
    process.send_signal(signal.SIGSTOP)  # so that both arrive before it can act on one
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    code, _ = training.ended(process, 30)
    assert code in (-signal.SIGTERM, -signal.SIGINT)


@pytest.mark.parametrize("trial", range(10 if FULL else 1))
def test_a_full_disk_leaves_the_older_checkpoints(
    training, undisturbed: Path, tmp_path: Path, small_disk, trial: int
) -> None:
    """F4: one error of three lines with path and bytes; with room again it continues."""
    out = small_disk(4_000_000) / "run"
    process = training.start(out)
    training.wait_for(process, out, 12)
    process.send_signal(signal.SIGSTOP)
    filler = out.parent / "filler"
    filler.write_bytes(b"0" * max(0, shutil.disk_usage(out).free - 30_000 - 3_000 * trial))
    process.send_signal(signal.SIGCONT)
    code, stderr = training.ended(process)
    assert code == 2, stderr
    assert "ERROR:absl" not in stderr and "Traceback" not in stderr
    lines = stderr[stderr.index("error: ") :].removeprefix("error: ").splitlines()
    assert len(lines) == 3, stderr
    if lines[0].startswith("Could not write"):  # a row, while a checkpoint takes the last bytes
        assert re.match(rf"Could not write {out}/(metrics|timing)\.jsonl: No space left", lines[0])
        assert "bytes are free" in lines[0] and lines[2].startswith("Free some space")
    else:
        assert lines[2].startswith("older checkpoints are as they were; free some space")
        assert "checkpoint" in lines[0] or "could not save" in lines[0]
        assert str(out / "checkpoints") in lines[0]
        assert "bytes" in lines[1] and "free" in lines[1]
    assert training.checkpoints(out)
    filler.unlink()
    training.finish(out)
    assert training.results(out) == training.results(undisturbed)


@pytest.mark.parametrize("number", range(10 if FULL else 1))
def test_a_second_run_in_the_same_folder_is_refused(training, tmp_path: Path, number: int) -> None:
    """F17: the holder is named; when it is dead, the folder is free."""
    out = tmp_path / "run"
    holder = training.start(out, steps=100000)
    training.wait_for(holder, out, 1)
    code, stderr = training.ended(training.start(out, steps=100000))
    assert code == 2
    assert f"error: another run is at work in {out}\nprocess {holder.pid} on " in stderr
    holder.kill()
    holder.communicate()
    second = training.start(out, steps=100000)
    training.wait_for(second, out, training.last_step(out) + 1)
    assert second.poll() is None
    second.kill()
    second.communicate()


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 50},
        {"learning_rate": 2e-3},
        {"batch_size": 16},
        {"seed": 1},
        {"masked_lm_prob": 0.2},
        {"hidden_size": 32},
    ][: None if FULL else 2],
)
def test_other_settings_are_refused_with_what_changed(
    training, tmp_path: Path, undisturbed: Path, change: dict[str, object]
) -> None:
    """F18: `--allow-changes` continues where arrays still fit."""
    out = tmp_path / "run"
    shutil.copytree(undisturbed, out)
    code, stderr = training.ended(training.start(out, **change))
    (name, value), before = next(iter(change.items())), json.loads((out / "run.json").read_text())
    assert code == 2
    assert f"changed: {name} {before['recipe'][name]} -> {value}" in stderr


def test_changed_data_and_tokenizer_are_refused(
    training, tmp_path: Path, undisturbed: Path
) -> None:
    out, text = tmp_path / "run", tmp_path / training.text.name
    shutil.copytree(undisturbed, out)
    text.write_text(training.text.read_text() + "One line more. And another sentence.\n")
    other = type(training).__new__(type(training))
    vars(other).update(vars(training), text=text)
    code, stderr = other.ended(other.start(out))
    assert code == 2
    assert f"changed: {text.name}" in stderr


@pytest.mark.parametrize("place", ["file", "missing/of/file", "read-only"])
def test_an_output_that_cannot_be_written_is_an_error_at_once(
    training, tmp_path: Path, place: str
) -> None:
    """F16: before anything heavy is loaded."""
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "below" if place == "missing/of/file" else tmp_path / place
    if place == "read-only":
        out = Path("/proc/run")  # nobody may write there, root included
    started = time.monotonic()
    code, stderr = training.ended(training.start(out))
    assert code == 2
    assert stderr.startswith(f"error: cannot write to {out}\n")
    assert time.monotonic() - started < 15  # of which most is Python's imports
