# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The pages of results in docs are what their scripts make of the numbers beside them."""

import importlib
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = [name for name in ("heads", "finetuning") if (DOCS / f"{name}.json").exists()]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module


def cells(page):
    """Rows of all tables of a page."""
    return [line.split(" | ") for line in page.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_what_the_scripts_write(script, name):
    facts = json.loads((DOCS / f"{name}.json").read_text(encoding="utf-8"))
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert script(name).render(facts) == page
    for before, row in zip(cells(page), cells(page)[1:], strict=False):
        if row[0].startswith("| ---"):
            assert len(before) == len(row), "a header has as many cells as its table"


def test_the_page_of_heads_says_what_it_must():
    told = json.loads((DOCS / "heads.json").read_text(encoding="utf-8"))
    assert {"sentences", "seed", "tau", "alpha", "correction", "relations"} <= set(told["settings"])
    assert told["flaxattn"] and all(len(at["sha256"]) == 64 for at in told["data"].values())
    assert len(told["reports"]) == 2 * len(told["data"]) == len(told["relations"])
    for report in told["reports"]:
        layers = told["models"][report["model"]]["layers"]
        assert all(len(role["by_layer"]) == layers for role in report["roles"].values())
        assert all("mass" in role["lengths"] for role in report["roles"].values())
    for one in told["relations"]:
        assert one["other"] != one["corpus"], "chosen on other sentences than judged on"
        assert all(row["low"] <= row["lift"] <= row["high"] for row in one["best"])
    for control in told["controls"]:
        assert control["roles"] <= told["settings"]["alpha"] * control["tests"]


def test_findings_are_judged_by_numbers(script):
    verdicts = script("finetuning").verdicts
    run = {
        "before": {"masses": {"sep": [0.1, 0.1, 0.5, 0.6]}},
        "after": {
            "masses": {"sep": [0.1, 0.1, 0.4, 0.5]},
            "roles": {"cls": [2, 0, 0, 0], "sep": [0, 0, 1, 1]},
            "several": [0, 3, 3, 0],
            **{"both": 5, "heads": 10, "clear": 0.5},
        },
        "divergence": [0.01, 0.01, 0.02, 0.04],
    }
    found = {name: holds for name, (holds, _) in verdicts(run).items()}
    assert found == {
        **{"both": True, "middle": True, "order": True, "late": True, "spread": True},
        "clear": False,
    }
    run["after"]["roles"] = {"cls": [0, 0, 0, 0], "sep": [0, 0, 1, 1]}
    assert verdicts(run)["order"][0] is None, "no CLS head: nothing can be said"


@pytest.mark.slow
def test_numbers_come_out_of_real_sentences(script, flaxattn_data):
    heads = script("heads")
    words = (
        "--data",
        flaxattn_data / "ud",
        "--checkpoint",
        "tiny-bert",
        "--name",
        "again",
        "--sentences",
        12,
    )
    words += ("--probe-sentences", 8, "--control-sentences", 6, "--control-seeds", 1)
    told = heads.gathered(heads.parsed([str(word) for word in words]))
    committed = json.loads((DOCS / "heads.json").read_text(encoding="utf-8"))
    assert set(told) == set(committed) and set(told["reports"][0]) == set(committed["reports"][0])
    one, again = told["reports"][0], told["reports"][2]
    assert one["roles"] == again["roles"], "the same model twice"
    assert heads.render(json.loads(json.dumps(told))).startswith("# What the heads")
