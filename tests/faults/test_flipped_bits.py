# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One flipped bit in any file of a model, a run, a trace, a probe, an index or a report.

The reader names the file's folder, or what it reads is what was written. `make test` makes few
trials of each, `make all` 300. Files that people read and no reader does (README.md, recipe.yaml)
are left out; stores are in test_damaged_stores.py.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import hostile_cases as cases
import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure

import flaxattn as fa
from flaxattn.errors import FlaxattnError
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.reports.report import Report
from flaxattn.train.checkpoints import Checkpoints
from flaxattn.train.recipe import Recipe
from flaxattn.train.report import Reporter, read_metrics
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.state import make_mesh

RECIPE = Recipe(steps=10, log_seconds=0, devices=1)
STATE = {"x": np.random.default_rng(0).random((16, 64), np.float32), "step": np.array(3, np.int32)}
UNREAD = ("recipe.yaml", ".lock")


class Written(NamedTuple):
    """Something that flaxattn wrote.

    Attributes:
        write: Writes it into a folder.
        read: Reads everything of it.
    """

    write: Callable[[Path], Any]
    read: Callable[[Path], Any]


def plain(tree: Any) -> Any:
    return [(str(path), leaf.dtype.name, np.asarray(leaf).tobytes()) for path, leaf in tree]


def read_model(folder: Path) -> Any:
    model = fa.from_pretrained(folder)
    vocabulary = model.tokenizer.backend.to_str()
    return plain(jax.tree_util.tree_leaves_with_path(model.params)), model.config, vocabulary


def write_run(folder: Path) -> None:
    run = RunFolder(folder)
    run.claim(RECIPE, {"data": "sha256:1"})
    with Reporter(run, RECIPE, 0) as report:
        for step in (1, 2, 3):
            report.training(step, {"loss": 1.5 / step, "tokens": 90.0}, 90 * step, 1.0)
            report.heldout(step, {"loss": 1.25 / step})
    with Checkpoints(run, 2) as saved:
        saved.save(3, STATE, {"tokens": 270})


def read_run(folder: Path) -> Any:
    """As a run that is resumed, and as its curves are drawn."""
    run = RunFolder(folder)
    run._compare(RECIPE, {"version": "", "recipe": RECIPE.to_dict(), "data": "sha256:1"})
    with Checkpoints(run, 2) as saved:
        state, progress = saved.newest(STATE, make_mesh(RECIPE)) or (None, None)
    rows = [read_metrics(folder / name) for name in ("metrics.jsonl", "timing.jsonl")]
    return plain(jax.tree_util.tree_leaves_with_path(state)), progress, rows


def write_a_report(folder: Path) -> None:
    rows = {"layer": [0, 1] * 50, "head": [1, 0] * 50, "share": [0.5, None] * 50}
    report = {"model": "m", "seed": 0, "heads": {"2": [0.5, float("nan")]}, "text": "é"}
    files = {"page.html": b"<p>x</p>"}
    Report("stats", report, rows, {"stats.png": Figure}, files).save(folder, overwrite=True)


def read_a_report(folder: Path) -> Any:
    facts = fa.read_report(folder / "stats.json")
    table = pq.read_table(folder / "heads.parquet", page_checksum_verification=True)
    return facts, table.to_pylist(), (folder / "page.html").read_bytes()


KINDS = {
    "run": Written(write_run, read_run),
    "trace": Written(cases.write_trace, lambda f: cases.read_trace(f / "trace.safetensors")),
    "probe": Written(cases.write_probe, lambda f: cases.read_probe(f / "probe.safetensors")),
    "report": Written(write_a_report, read_a_report),
}


def flip(folder: Path, rng: random.Random) -> Path:
    """Flip a bit of a file; of small files as often as of large ones."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.endswith(UNREAD)]
    path = rng.choice([p for p in files if p.stat().st_size])
    data = bytearray(path.read_bytes())
    bit = rng.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return path


TRIALS = [10, pytest.param(300, marks=pytest.mark.slow)]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("count", TRIALS)
@pytest.mark.parametrize("name", ["model", *KINDS])
def test_a_flipped_bit_is_named_or_changes_nothing(
    name: str, count: int, bert: Pretrained, tmp_path: Path
) -> None:
    whole, hurt, rng = tmp_path / "whole", tmp_path / "hurt", random.Random(count)
    model = Written(lambda folder: bert.save_pretrained(folder), read_model)
    write, read = KINDS.get(name, model)
    whole.mkdir()
    write(whole)
    right, outcomes = read(whole), Counter[str]()
    for trial in range(count):
        shutil.copytree(whole, hurt)
        path = flip(hurt, rng)
        try:
            assert read(hurt) == right, (trial, path)
            outcomes["the same"] += 1
        except FlaxattnError as error:
            assert str(hurt) in str(error), (trial, path, str(error))
            assert len(str(error).splitlines()) <= 3, (trial, path, str(error))
            outcomes["named"] += 1
        shutil.rmtree(hurt)
    print(name, dict(outcomes))
    assert outcomes["named"] >= count / 2
