# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The page that ranks attribution maps: its rows are right, and the ranking comes again."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from flaxattn.reports.report import finite

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("faithfulness")


@pytest.fixture
def facts():
    return json.loads((DOCS / "faithfulness.json").read_text(encoding="utf-8"))


def curves(fa, gaps):
    """Straight curves whose gaps, insertion minus deletion, are those of `gaps` [N, T]."""
    steps = np.linspace(0, 1, 5)
    flat = np.broadcast_to(steps, (*gaps.shape, 5))
    return fa.Faithfulness(
        kinds=("chefer", "attention", "random"),
        shares=steps,
        deletion=1 - flat,
        insertion=flat + gaps[..., None],
        scale="probability",
        predicted=("a", "b", "a", "c"),
        removable=(5, 6, 7, 8),
    )


def test_kinds_are_compared_with_the_best_text_by_text(script):
    import flaxattn as fa

    gaps = np.array([[0.2, 0.1, 0.3, 0.2], [0.6, 0.3, 0.9, 0.6], [0.0, 0.01, 0.0, -0.01]])
    lines = script.judged(curves(fa, gaps), seed=0)
    assert [row["kind"] for row in lines["rows"]] == ["attention", "chefer", "random"]
    behind = [row["behind"][0] for row in lines["rows"]]
    np.testing.assert_allclose(behind, [0, (gaps[1] - gaps[0]).mean(), (gaps[1] - gaps[2]).mean()])
    assert np.isnan(lines["rows"][0]["behind p"]) and lines["rows"][2]["behind p"] < 0.05
    assert lines["predicted"][0] == ["a", 2] and lines["removable"] == [5, 6.5, 8]
    assert lines["alike"] == [
        ["chefer", "attention"],
        ["chefer", "random"],
        ["attention", "random"],
    ]


def test_dates_are_in_words_and_drawn_again_alike(script):
    written = script.dates(30, seed=1)
    assert written == script.dates(30, seed=1) != script.dates(30, seed=2)
    assert len(written) == 30 and all(any(map(str.isalpha, date)) for date in written)


def test_the_page_ranks_every_map_in_every_family(script, facts):
    assert [model["model"] for model in facts["models"]] == list(script.MODELS)
    for model in facts["models"]:
        kinds = [row["kind"] for row in model["rows"]]
        assert sorted([*kinds, *model["refused"]]) == sorted(script.KINDS)
        gaps = [row["gap"] for row in model["rows"]]
        assert gaps == sorted(gaps, reverse=True)
        assert all(row["low"] <= row["gap"] <= row["high"] for row in model["rows"])
        assert all(abs(r["insertion"] - r["deletion"] - r["gap"]) < 1e-9 for r in model["rows"])
        random = next(row for row in model["rows"] if row["kind"] == "random")
        assert abs(random["gap"]) < 0.05 and random["p"] is None
        assert model["rows"][0]["p"] < facts["settings"]["alpha"]
    assert {"seed", "steps", "random_orders", "correction", "scale"} <= set(facts["settings"])
    texts = (DOCS / "faithfulness_texts.txt").read_text(encoding="utf-8").splitlines()
    assert len(texts) == len(set(texts)) == facts["models"][0]["texts"]
    assert script.sha256_of(DOCS / "faithfulness_texts.txt") == facts["data"]["sha256"]


def test_a_kind_that_a_model_does_not_have_has_no_cell(script, facts):
    page = script.render(facts)
    (row,) = [line for line in page.splitlines() if line.startswith("| attention flow |")][:1]
    assert row.count("|") == 6 and "| – |" in row


@pytest.mark.slow
def test_numbers_come_out_of_the_models(script):
    facts, found = script.gathered(script.parsed(["--limit", "3", "--steps", "4"]))
    facts = json.loads(json.dumps(finite(facts)))
    assert list(found) == list(script.MODELS) and all(m["texts"] == 3 for m in facts["models"])
    assert script.render(facts).count("\n## ") == 5
