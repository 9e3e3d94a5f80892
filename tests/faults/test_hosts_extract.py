# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Real processes of one `jax.distributed` job that extract into one store, each its own shards."""

import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import flaxattn as fa
from flaxattn.store.verify_store import verify

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hosts")]
WORDS = "the cat is very sad because it could not find food".split()
TEXTS, SHARD = 40, 8
# One process of the job: coordinator, their count, its number, corpus, store.
HOST = """
import dataclasses, json, sys
import jax
coordinator, count, number, corpus, store = sys.argv[1:]
if int(count) > 1:
    jax.distributed.initialize(coordinator, int(count), int(number))
import flaxattn as fa
model = fa.from_pretrained("tiny-bert")
report = fa.extract_to(store, model, corpus, shard_texts=8, batch_tokens=256)
print(json.dumps({"written": report.written, "processes": jax.process_count()}))
"""


def start(corpus: Path, store: Path, port: int, count: int, number: int) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(corpus.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
    }
    words = [f"127.0.0.1:{port}", str(count), str(number), str(corpus), str(store)]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", HOST, *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(corpus: Path, store: Path, count: int) -> list[dict[str, int]]:
    """What each process of a job reports."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    reports = []
    for process in [start(corpus, store, port, count, number) for number in range(count)]:
        out, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stderr
        reports.append(json.loads(out.splitlines()[-1]))
    return reports


def test_two_processes_share_the_shards_of_a_store(tmp_path: Path) -> None:
    rng = random.Random(0)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 4))) for _ in range(TEXTS)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    assert run(tmp_path / "a.txt", tmp_path / "one", 1) == [{"written": 5, "processes": 1}]
    assert run(tmp_path / "a.txt", tmp_path / "two", 2) == [
        {"written": 3, "processes": 2},
        {"written": 2, "processes": 2},
    ]
    files = [p.relative_to(tmp_path / "one") for p in (tmp_path / "one/shards").rglob("*.*")]
    assert files
    for file in [Path("plan.json"), *files]:
        if (tmp_path / "one" / file).is_file():
            one, two = (tmp_path / name / file for name in ("one", "two"))
            assert one.read_bytes() == two.read_bytes(), file
    assert fa.open_store(tmp_path / "two").complete
    assert not verify(tmp_path / "two").damage
