# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Real processes that train together: the same losses as one, and all end when one of them dies."""

import os
import random
import socket
import subprocess
from pathlib import Path

import pytest

from flaxattn.train.report import read_metrics

FULL = os.environ.get("FLAXATTN_TRIALS") == "full"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hosts")]


def together(training, out: Path, count: int, devices: int, **settings) -> list[subprocess.Popen]:
    """Processes of one run, each with so many fake devices."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    words = ["--coordinator", f"127.0.0.1:{port}", "--processes", str(count), "--process"]
    return [
        training.start(out, *words, str(number), devices=devices, **settings)
        for number in range(count)
    ]


def test_worker_processes_change_nothing(training, undisturbed: Path, tmp_path: Path) -> None:
    training.finish(tmp_path / "run", workers=2)
    assert training.results(tmp_path / "run") == training.results(undisturbed)


@pytest.mark.parametrize("parallel", [1, 2] if FULL else [2])
def test_two_processes_of_four_devices_lose_what_one_process_loses(
    training, undisturbed: Path, tmp_path: Path, parallel: int
) -> None:
    out = tmp_path / "run"
    for process in together(training, out, 2, 4, model_parallel=parallel):
        code, stderr = training.ended(process)
        assert code == 0, stderr
    found, expected = (read_metrics(p / "metrics.jsonl") for p in (out, undisturbed))
    assert [row["step"] for row in found] == [row["step"] for row in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert mine.get("tokens") == theirs.get("tokens")
    assert (out / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize("number", range(10 if FULL else 1))
def test_when_one_process_dies_the_others_end_and_a_restart_continues(
    training, tmp_path: Path, number: int
) -> None:
    """F14: no hang, and the same numbers as an undisturbed run of two processes."""
    whole, out = tmp_path / "whole", tmp_path / "run"
    for process in together(training, whole, 2, 1):
        assert training.ended(process)[0] == 0
    processes = together(training, out, 2, 1)
    training.wait_for(processes[0], out, random.Random(number).randint(6, 30))
    victim = processes.pop(number % 2)
    victim.kill()
    victim.communicate()
    code, _ = training.ended(processes[0], 120)
    assert code != 0
    for process in together(training, out, 2, 1):
        code, stderr = training.ended(process)
        assert code == 0, stderr
    assert training.results(out) == training.results(whole)


def test_numbers_that_do_not_belong_together(training, tmp_path: Path) -> None:
    process = training.start(tmp_path / "run", "--processes", "2")
    code, stderr = training.ended(process)
    assert code == 2
    assert stderr.startswith("error: --coordinator, --processes and --process belong together\n")
