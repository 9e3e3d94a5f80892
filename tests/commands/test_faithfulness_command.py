# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn faithfulness` writes what `fa.faithfulness` finds."""

import json

import pyarrow.parquet as pq
import pytest

import flaxattn as fa

TEXTS = ["The old man walked to the market.", "She was very happy to see the dog."]
KINDS = ("attention", "input_gradient", "random")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_the_report_has_the_numbers_of_python(run, tmp_path):
    words = ("faithfulness", "texts.txt", "--kinds", ",".join(KINDS), "--steps", "4")
    code, out, err = run(*words, "--seed", "3")
    assert code == 0, err
    report = tmp_path / "report"
    facts = json.loads((report / "faithfulness.json").read_text(encoding="utf-8"))
    model = fa.from_pretrained("tiny-bert", head="BertForMaskedLM")
    found = fa.faithfulness(model, TEXTS, kinds=KINDS, steps=4, seed=3)
    for row, expected in zip(facts["ranking"], found.table(seed=3), strict=True):
        assert row["kind"] == expected["kind"] and row["kind"] in out
        assert row["gap"] == pytest.approx(expected["gap"], abs=1e-6)
    assert facts["seed"] == 3 and facts["settings"]["steps"] == 4 and facts["flaxattn"]
    rows = pq.read_table(report / "faithfulness.parquet").to_pylist()
    assert [(row["text"], row["kind"]) for row in rows] == [(t, k) for t in (0, 1) for k in KINDS]
    assert (report / "faithfulness.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kinds", "saliency"), "'saliency' is not one of attention, rollout"),
        (("--kinds", ""), "kinds: expected one or more of"),
        (("--scale", "logit"), "scale 'logit' is unknown"),
    ],
)
def test_wrong_use_is_refused_in_three_lines(run, words, message):
    code, _, err = run("faithfulness", "texts.txt", *words)
    assert code == 2 and message in err.replace("--", "")
    assert len(err[err.index("error: ") :].strip().splitlines()) <= 3
