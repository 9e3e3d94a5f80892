# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The memory that commands say they need is what they take, within half as much again."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flaxattn.pipeline.batches import memory_needed, memory_sentence

UNITS = {"MB": 1e6, "GB": 1e9}
OF_TESTS = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")  # eight devices, less compiled
CHILD = (
    "import json, resource, subprocess, sys\n"
    "done = subprocess.run(sys.argv[1:], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)\n"
    "peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss\n"
    "print(json.dumps([done.returncode, peak, done.stderr.decode()]))\n"
)
COMMANDS = {
    "weights": "weights texts.txt --limit 100",
    "training": "train gpt2-lm --data book.txt --model tiny-gpt2 --set steps=1"
    " --set evaluate_tokens=500 --set sample_tokens=4",
    "training a new llama": "train lm --data book.txt --set architecture=llama --set key_heads=2"
    " --set vocab_size=2000 --set steps=1 --set evaluate_tokens=500 --set sample_tokens=4",
    "training on few rows": "train gpt2-lm --data book.txt --model tiny-gpt2 --set steps=1"
    " --set evaluate_tokens=500 --set sample_tokens=4 --set batch_size=4",
}


def test_a_job_of_more_arrays_needs_more():
    few, many = memory_needed(0), memory_needed(10**9)
    assert 0.9e9 < many - few < 1.1e9 and few > 10**8
    assert re.fullmatch(r"about \d+\.\d GB of memory", memory_sentence(10**9))


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_the_peak_of_a_command_is_what_it_says(name: str, tmp_path: Path) -> None:
    words = "a small cat saw an old dog near the house and slept".split()
    texts = [" ".join(words[n % 7 : n % 7 + 4]) for n in range(100)]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    book = "\n\n".join(" ".join([*words[n % 9 :], *words] * 12) for n in range(300))
    (tmp_path / "book.txt").write_text(book, encoding="utf-8")
    command = [sys.executable, "-m", "flaxattn", *COMMANDS[name].split(), "--out", "out"]
    measure = [sys.executable, "-c", CHILD, *command]
    plain = {name: value for name, value in os.environ.items() if name not in OF_TESTS}
    done = subprocess.run(measure, cwd=tmp_path, env=plain, stdout=subprocess.PIPE, check=True)
    code, peak, output = json.loads(done.stdout)
    assert code == 0, output
    (estimate,) = re.findall(r"about ([\d.]+) (MB|GB) of memory", output)
    expected, measured = float(estimate[0]) * UNITS[estimate[1]], 1024 * peak
    assert measured / 1.5 < expected < 1.5 * measured, (expected, measured)
