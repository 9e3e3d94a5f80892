# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every command that takes an encoder takes a ModernBERT: a tiny random one from a directory."""

from collections.abc import Callable
from pathlib import Path

import pytest
import report_cases

from flaxattn import cli
from flaxattn.pretrained.pretrained_encoders import PretrainedBert

COMMANDS = {
    "view text": "view cats --model model --out page.html",
    "view pair": "view cats dogs --model model --view all --out page.html",
    "view store": "view store --out page.html",
    "extract": "extract few.txt --model model --out again",
    "store verify": "store verify store",
    "store export": "store export store --format npz --out exported",
    "search build": "search build few.txt --layers 1 --model model --out index",
    "demo": "demo --model model --out demo",
    "stats": "stats trees.conllu --limit 2 --model model --no-page --out report",
    "stats store": "stats store --limit 2 --no-page --out report",
    "roles": "roles trees.conllu --limit 2 --drawings 1 --repeats 2 --model model --out report",
    "probe": "probe trees.conllu --model model --out report",
    "probe pronouns": "probe gap.tsv --pronouns gap --model model --out report",
    "compare": "compare model model few.txt --limit 2 --out report",
    "ablate": "ablate few.txt --limit 2 --model model --out report",
    "weights": "weights few.txt --limit 2 --model model --out report",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, modern: PretrainedBert) -> Path:
    folder = tmp_path_factory.mktemp("modernbert")
    report_cases.write_inputs(folder)
    modern.save_pretrained(folder / "model")
    (folder / "few.txt").write_text("the cat is sad\nbirds sang loudly\n", encoding="utf-8")
    words = ("extract", folder / "few.txt", "--model", folder / "model", "--out", folder / "store")
    assert cli.main([str(word) for word in words]) == 0
    return folder


SLOW = ("view pair", "stats", "roles", "demo", "weights", "ablate")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in COMMANDS],
)
def test_a_command_takes_a_modernbert(
    name: str,
    folder: Path,
    tmp_path: Path,
    typed: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    words = COMMANDS[name].split()
    if "--out" in words:
        words[-1] = str(tmp_path / words[-1])
    code, _, err = typed(*words)
    assert code == 0, err
    assert "Traceback" not in err
