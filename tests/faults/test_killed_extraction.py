# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Extraction that is killed, stopped, or short of disk: real processes and real signals.

`make all` makes every trial.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from whole_stores import check_whole

import flaxattn as fa
from flaxattn.models.bert import Bert
from flaxattn.pretrained import model_directory
from flaxattn.store.verify_store import verify
from flaxattn.text.vocabulary_training import train_wordpiece

FULL = os.environ.get("FLAXATTN_TRIALS") == "full"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("killed")]
WORDS = [a + b for a in ("ba", "do", "ki", "lu", "me") for b in ("n", "r", "s", "t", "lo", "ma")]
TEXTS, SHARD = 1200, 30


class Extraction:
    """Starts `flaxattn extract` on a generated corpus of 40 shards."""

    def __init__(self, folder: Path) -> None:
        rng = random.Random(0)
        self.model, self.corpus = folder / "model", folder / "corpus.txt"
        lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 6))) for _ in range(TEXTS)]
        self.corpus.write_text("\n".join(lines) + "\n")
        tokenizer = train_wordpiece(lines, 120, True, 32)
        config = fa.BertConfig(
            vocab_size=tokenizer.vocab_size,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=32,
        )
        module = Bert(config)
        shapes = jax.eval_shape(module.init, jax.random.key(0), np.ones((1, 2), np.int32))
        draw = np.random.default_rng(0)
        params = jax.tree.map(
            lambda s: draw.normal(0, 0.3, s.shape).astype(np.float32), shapes["params"]
        )
        model_directory.save(self.model, module, params, tokenizer=tokenizer)
        self.environment = {  # what one process compiled, the next one need not
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
        }

    def start(self, store: Path, *words: Any) -> "subprocess.Popen[str]":
        """A process that extracts; its lines come through stderr."""
        command = [sys.executable, "-P", "-m", "flaxattn", "extract", str(self.corpus)]
        command += ["--out", str(store), "--model", str(self.model), "--shard-texts", str(SHARD)]
        return subprocess.Popen(
            [*command, *map(str, words)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @staticmethod
    def ended(process: "subprocess.Popen[str]", seconds: float = 300) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a process that ends by itself."""
        out, stderr = process.communicate(timeout=seconds)
        return process.returncode, out, stderr

    def finish(self, store: Path, *words: Any) -> dict[str, Any]:
        """Extract to the end, and see that it went well."""
        code, out, facts = self.ended(self.start(store, "--json", *words))
        assert code == 0, facts
        return json.loads(out)

    @staticmethod
    def shards(store: Path) -> list[str]:
        """Names of the shards that are there."""
        folder = store / "shards"
        found = folder.iterdir() if folder.is_dir() else []
        return sorted(path.name for path in found if not path.name.startswith("."))

    def wait_for(self, process: "subprocess.Popen[str]", store: Path, count: int) -> None:
        """Return when so many shards are there, or the process has ended."""
        deadline = time.monotonic() + 300
        while process.poll() is None and len(self.shards(store)) < count:
            assert time.monotonic() < deadline
            time.sleep(0.002)


@pytest.fixture(scope="module")
def extraction(tmp_path_factory: pytest.TempPathFactory) -> Extraction:
    return Extraction(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def undisturbed(extraction: Extraction, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("undisturbed") / "store"
    assert extraction.finish(store)["written"] == TEXTS // SHARD
    return store


def test_killed_at_random_times_every_text_is_stored_once(
    extraction: Extraction, undisturbed: Path, tmp_path: Path
) -> None:
    """F20, F21: one store, killed again and again; at most one shard is computed twice."""
    kills, rng, store = 130 if FULL else 2, random.Random(1), tmp_path / "store"
    killed = 0
    for number in range(kills):
        if len(extraction.shards(store)) >= TEXTS // SHARD - 3:
            check_whole_after(extraction, store, undisturbed)
            shutil.rmtree(store)
        process = extraction.start(store)
        before = len(extraction.shards(store))
        extraction.wait_for(process, store, before + rng.randint(0, 6))
        time.sleep(rng.uniform(0, 0.05))
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        assert process.returncode in (-signal.SIGKILL, 0), number
    check_whole_after(extraction, store, undisturbed)
    assert killed >= kills / 2


def check_whole_after(extraction: Extraction, store: Path, undisturbed: Path) -> None:
    """Finish a store that was left unfinished; what was there is not touched."""
    there = extraction.shards(store)
    stamps = {name: (store / "shards" / name).stat().st_mtime_ns for name in there}
    report = extraction.finish(store)
    assert (report["there"], report["written"]) == (len(there), TEXTS // SHARD - len(there))
    for name, stamp in stamps.items():
        assert (store / "shards" / name).stat().st_mtime_ns == stamp
    check_whole(store, undisturbed, TEXTS)


@pytest.mark.parametrize("number", range(20 if FULL else 2))
def test_when_stopped_it_leaves_whole_shards_only(
    extraction: Extraction, undisturbed: Path, tmp_path: Path, number: int
) -> None:
    """SIGTERM exits with 75, Ctrl-C with 130, and the same command continues."""
    which, code = ((signal.SIGTERM, 75), (signal.SIGINT, 130))[number % 2]
    store = tmp_path / "store"
    process = extraction.start(store)
    extraction.wait_for(process, store, random.Random(number).randint(1, 20))
    started = time.monotonic()
    process.send_signal(which)
    got, _, stderr = extraction.ended(process, 30)
    assert got == code, stderr
    assert time.monotonic() - started < 30
    if which == signal.SIGTERM:
        message = "error: stopped; finished shards are in the store, and the same command continues"
        assert stderr.splitlines()[-1] == message
    assert not list((store / "shards").glob(".*"))
    check_whole_after(extraction, store, undisturbed)


@pytest.mark.parametrize("trial", range(10 if FULL else 1))
def test_a_full_disk_leaves_whole_shards_and_a_rerun_finishes(
    extraction: Extraction, undisturbed: Path, tmp_path: Path, small_disk: Any, trial: int
) -> None:
    """F5: one error of three lines with path and bytes; then 0 twice, 0 missing."""
    store = small_disk(64_000_000) / "store"
    process = extraction.start(store)
    extraction.wait_for(process, store, 3 + 2 * trial)
    process.send_signal(signal.SIGSTOP)
    filler = store.parent / "filler"
    filler.write_bytes(b"0" * max(0, shutil.disk_usage(store).free - 90_000 - 7_000 * trial))
    process.send_signal(signal.SIGCONT)
    code, _, stderr = extraction.ended(process)
    assert code == 2, stderr
    lines = stderr[stderr.index("error: ") :].splitlines()
    assert lines[0].startswith(f"error: could not write {store / 'shards'}")
    assert "bytes" in lines[1] and "free" in lines[1] and len(lines) == 3
    there = extraction.shards(store)
    assert there and not verify(store).damage and not list((store / "shards").glob(".*"))
    code, _, stderr = extraction.ended(extraction.start(store))
    assert code == 2 and "needs about" in stderr and "are free" in stderr
    assert extraction.shards(store) == there
    filler.unlink()
    check_whole_after(extraction, store, undisturbed)


def test_parts_that_are_killed_and_parts_that_are_not_make_one_store(
    extraction: Extraction, undisturbed: Path, tmp_path: Path
) -> None:
    """Jobs of an array beside each other in one folder, planning at the same time."""
    store = tmp_path / "store"
    jobs = [extraction.start(store, "--shard", f"{i}/3") for i in range(3)]
    extraction.wait_for(jobs[1], store, 6)
    jobs[1].kill()
    ended = [extraction.ended(job) for job in jobs]
    assert [code for code, *_ in ended] in ([0, -signal.SIGKILL, 0], [0, 0, 0])
    extraction.finish(store, "--shard", "1/3")
    check_whole(store, undisturbed, TEXTS)


@pytest.mark.parametrize("number", range(10 if FULL else 1))
def test_a_second_job_is_refused_until_the_first_is_dead(
    extraction: Extraction, undisturbed: Path, tmp_path: Path, number: int
) -> None:
    """F17: the holder is named; nobody has to remove a lock."""
    store = tmp_path / "store"
    holder = extraction.start(store)
    extraction.wait_for(holder, store, 1 + 3 * number)
    holder.send_signal(signal.SIGSTOP)
    code, _, stderr = extraction.ended(extraction.start(store))
    assert code == 2
    assert f"error: another run is at work in {store}\nprocess {holder.pid} on " in stderr
    holder.kill()
    holder.communicate()
    check_whole_after(extraction, store, undisturbed)
