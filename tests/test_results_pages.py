# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The pages of results in docs are what their scripts make of the numbers beside them."""

import importlib
import json
from pathlib import Path

import pytest

BEST = {"direction": "to governor", "layer": 1, "head": 0, "words": 200, "offset": 1}
FACTS = {
    **{"flaxattn": "0", "jax": "0", "cores": 2},
    "settings": {
        **{"sentences": 10, "probe_sentences": 5, "control_seeds": 20, "seed": 0},
        **{"tau": 3.0, "alpha": 0.05, "correction": "bh", "relations": ["nsubj"]},
    },
    "data": {"EWT dev": {"file": "a.conllu", "sha256": "0" * 64}},
    "models": {"m": {"layers": 2, "heads": 2, "width": 8, "sha256": None}},
    "reports": [
        {
            **{"model": "m", "corpus": "EWT dev", "texts": 10, "mean length": 12.5},
            **{"heads": 4, "tests": 8, "patterns": {"delimiter": 1, "next token": 2}},
            "roles": {
                "local": {
                    **{"heads": 3, "by_layer": [1, 2], "beyond_position": None},
                    "lengths": {"texts": 10, "keys": 5.0, "mass": 0.6, "out": 1},
                }
            },
            "statistics": {"entropy": [1.0, 2.0], "sep": [0.1, 0.2]},
            "seconds": {"wall": 8.2, "cpu": 9.4},
        }
    ],
    "relations": [
        {
            **{"model": "m", "corpus": "EWT dev", "other": "PUD"},
            "best": [
                {**BEST, "relation": "obj", "accuracy": 0.6, "baseline": 0.3}
                | {"lift": 30.0, "low": 25.0, "high": 35.0},
                {**BEST, "relation": "det", "accuracy": 0.4, "baseline": 0.3}
                | {"lift": 10.0, "low": 5.0, "high": 15.0},
            ],
            "parser": {
                "uas": {"tree": 50.0, "fitted": 60.0, "offset": 30.0, "control": 40.0},
                "selectivity": 10.0,
            },
        }
    ],
    "controls": [
        {
            **{"model": "m", "control": "trees shuffled", "tests": 100, "roles": 0},
            "pairs": 100,
            **{"beyond": 1, "beyond uncorrected": 5, "highest score": 2.5},
        }
    ],
}
DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = [
    name
    for name in ("heads", "finetuning", "induction", "faithfulness")
    if (DOCS / f"{name}.json").exists()
]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module


def check_tables(page):
    """Every row of a table has as many cells as its header."""
    blocks = [block.splitlines() for block in page.split("\n\n") if block.startswith("|")]
    assert blocks
    for block in blocks:
        assert len({row.count(" | ") for row in block}) == 1, block[0]


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_what_the_scripts_write(script, name):
    facts = json.loads((DOCS / f"{name}.json").read_text(encoding="utf-8"))
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert script(name).render(facts) == page
    check_tables(page)
    if name == "heads":
        check_heads(facts)


def check_heads(heads):
    """What the page of heads has to say."""
    assert {"sentences", "seed", "tau", "alpha", "correction", "relations"} <= set(
        heads["settings"]
    )
    assert heads["flaxattn"] and all(len(at["sha256"]) == 64 for at in heads["data"].values())
    assert len(heads["reports"]) == 2 * len(heads["data"]) == len(heads["relations"])
    for report in heads["reports"]:
        layers = heads["models"][report["model"]]["layers"]
        assert all(len(role["by_layer"]) == layers for role in report["roles"].values())
        assert all("mass" in role["lengths"] for role in report["roles"].values())
    for one in heads["relations"]:
        assert one["other"] != one["corpus"], "chosen on other sentences than judged on"
        assert all(row["low"] - 1 < row["lift"] < row["high"] + 1 for row in one["best"])
    for control in heads["controls"]:
        assert control["roles"] <= heads["settings"]["alpha"] * control["tests"]


def test_the_page_of_heads_is_made_of_facts(script):
    page = script("heads").render(json.loads(json.dumps(FACTS)))
    check_tables(page)
    assert "1 of 2 relations have a head that beats its baseline by more than 10 points" in page
    assert "head 1.0 is right for 60.0% of 200 words, the offset +1 for 30.0%" in page
    assert "| local | 3 |  | 1 2 | 5.0 | 60% | 10% |" in page
    assert "| m | trees shuffled | 100 | 0 (0.00%) | 1 of 100 (1.00%) |" in page
    assert "| m | EWT dev | 10 | 8 | 9 |" in page and "next token 2, delimiter 1" in page


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
    message = heads.gathered(heads.parsed([str(word) for word in words]))
    assert set(FACTS) == set(message), "the facts above have the shape of real ones"
    for part in ("settings", "reports", "relations", "controls"):
        ours, real = ((x if part == "settings" else x[0]) for x in (FACTS[part], message[part]))
        assert set(ours) <= set(real), part
    one, again = message["reports"][0], message["reports"][2]
    assert one["roles"] == again["roles"], "the same model twice"
    assert heads.render(json.loads(json.dumps(message))).startswith("# What the heads")
