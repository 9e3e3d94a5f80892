# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Statistics of 32,768 tokens of one layer of a Llama fit into 2 GB."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
MOST_BYTES = 2_000_000_000  # measured: see BENCHMARKS.md


@pytest.mark.slow
def test_statistics_of_a_long_text_take_less_than_two_gigabytes() -> None:
    path = os.pathsep.join(str(TESTS / name) for name in ("golden", "fixtures"))
    environment = {n: value for n, value in os.environ.items() if n != "XLA_FLAGS"}
    environment |= {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    environment.pop("JAX_DISABLE_MOST_OPTIMIZATIONS", None)
    done = subprocess.run(
        [sys.executable, str(TESTS / "golden" / "long_decoder.py"), "32768"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["tokens"] == 32768 and found["error"] < 1e-3 and found["entropy"] > 0.1
    assert found["bytes"] < MOST_BYTES, found
