# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A tiny pretraining run in a process of its own, to be killed, and what it takes to do so."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from flaxattn.text.vocabulary_training import train_wordpiece

WORDS = [a + b for a in ("ba", "do", "ki", "lu", "me") for b in ("n", "r", "s", "t", "lo", "ma")]
SETTINGS = {
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "documents": "lines",
    "heldout_fraction": 0.1,
    "lengths": 32,
    "steps": 40,
    "batch_size": 8,
    "learning_rate": 1e-3,
    "warmup_steps": 5,
    "log_every": 1,
    "log_seconds": 0,
    "evaluate_every": 15,
    "evaluate_batches": 2,
    "checkpoint_every": 5,
}


class Training:
    """Starts `flaxattn train bert-mlm` on a generated text."""

    def __init__(self, folder: Path) -> None:
        rng = random.Random(0)
        self.text, self.tokenizer = folder / "text.txt", folder / "tokenizer"
        self.environment = {  # what one process compiled, the next one need not
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        lines = [
            " ".join(
                " ".join(rng.choices(WORDS, k=rng.randint(3, 9))).capitalize() + "."
                for _ in range(rng.randint(2, 12))
            )
            for _ in range(150)
        ]
        self.text.write_text("\n".join(lines) + "\n", encoding="utf-8")
        train_wordpiece(lines, 120, True, 32).save(self.tokenizer)

    def start(
        self, out: Path, *words: str, devices: int = 1, **settings: object
    ) -> "subprocess.Popen[str]":
        """A process that trains; its lines come through stderr."""
        command = [sys.executable, "-P", "-m", "flaxattn", "train", "bert-mlm"]
        command += ["--data", str(self.text), "--tokenizer", str(self.tokenizer), "--out", str(out)]
        for name, value in {**SETTINGS, **settings}.items():
            command += ["--set", f"{name}={value}"]
        flags = f"--xla_force_host_platform_device_count={devices}"
        environment = {**self.environment, "XLA_FLAGS": flags}
        return subprocess.Popen(
            [*command, *words],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, out: Path, *words: str, **settings: object) -> None:
        """Train to the end, and see that it went well."""
        code, stderr = self.ended(self.start(out, *words, **settings))
        assert code == 0, stderr

    @staticmethod
    def ended(process: "subprocess.Popen[str]", seconds: float = 300) -> tuple[int, str]:
        """Exit code and stderr of a process that ends by itself."""
        _, stderr = process.communicate(timeout=seconds)
        return process.returncode, stderr

    def kill_at(self, process: "subprocess.Popen[str]", out: Path, step: int) -> None:
        """Kill a process once its metrics tell of an update."""
        self.wait_for(process, out, step)
        process.kill()
        process.communicate()

    def wait_for(self, process: "subprocess.Popen[str]", out: Path, step: int) -> None:
        """Return when the metrics tell of an update, or the process has ended."""
        deadline = time.monotonic() + 300
        while process.poll() is None and self.last_step(out) < step:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    @staticmethod
    def last_step(out: Path) -> int:
        """The newest update in the metrics file."""
        try:
            lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            return json.loads(lines[-1])["step"]
        except (OSError, IndexError, ValueError):
            return -1

    @staticmethod
    def checkpoints(out: Path) -> list[int]:
        """Updates of which there is a whole checkpoint."""
        names = [path.name for path in (out / "checkpoints").glob("step-*")]
        return sorted(int(name[5:]) for name in names if "." not in name)

    @staticmethod
    def results(out: Path) -> tuple[dict[str, bytes], bytes]:
        """What must not depend on what happened on the way: parameters and metrics, as bytes."""
        arrays = load_file(out / "model" / "model.safetensors")
        tensors = {name: array.tobytes() for name, array in sorted(arrays.items())}
        return tensors, (out / "metrics.jsonl").read_bytes()


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """Text and tokenizer, made once."""
    return Training(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="session")
def undisturbed(training: Training, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing happened to."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    training.finish(out)
    return out


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts file systems of so many bytes; skips where this process may not."""
    mounted: list[Path] = []

    def mount(size: int) -> Path:
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
        if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("mounting a small disk takes root")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)
