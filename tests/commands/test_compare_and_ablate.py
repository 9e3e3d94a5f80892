# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn compare` and `flaxattn ablate` as a person types them, and the reports they leave."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import small_bert

import flaxattn as fa
from flaxattn.files import sha256_of
from flaxattn.reports.report import finite

Run = Callable[..., tuple[int, str, str]]
TEXTS = ["The cat is very sad.", "Because it could not find food.", "A dog."]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers with four heads each."""
    folder = tmp_path_factory.mktemp("small")
    small_bert.save(folder, heads=4, deviation=0.3)
    return folder


@pytest.fixture(scope="module")
def changed(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, in which only head 2 of layer 1 asks for something else."""
    model = fa.from_pretrained(small)
    layers = model.params["bert"]["encoder"]["layers"]
    query = layers["attention"]["query"]
    bias = np.array(query["bias"])
    bias[1, 8:12] += 3 * np.random.RandomState(0).standard_normal(4)
    attention = {**layers["attention"], "query": {**query, "bias": bias}}
    encoder = {"layers": {**layers, "attention": attention}}
    params = {**model.params, "bert": {**model.params["bert"], "encoder": encoder}}
    folder = tmp_path_factory.mktemp("changed")
    dataclasses.replace(model, params=params).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_compare_finds_the_head_that_changed(
    typed: Run, corpus: Path, small: Path, changed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report"
    code, printed, _ = typed("compare", small, changed, corpus, "-o", out, "--alpha", 0.2)
    assert code == 0 and printed.startswith("encoder 1.2")
    report = json.loads((out / "compare.json").read_text())
    first, *others = report["heads"]
    assert (first["layer"], first["head"]) == (1, 2) and first["divergence"] > 1e-3
    assert all(row["divergence"] < 1e-6 for row in others) and len(others) == 7
    assert report["flaxattn"] == fa.__version__ and report["settings"]["alpha"] == 0.2
    assert report["data"]["files"][0]["sha256"] == sha256_of(corpus)
    assert report["data"]["texts"] == 3
    changes = report["roles"]["changes"]
    assert {"local", "cls", "sep"} <= {change["role"] for change in changes}
    assert "local: heads by layer" in printed and report["roles"]["test"]["tau"] == 3
    by_layer = [row["divergence"] for row in report["layers"]["encoder"]]
    assert by_layer[1] == pytest.approx(first["divergence"] / 4, rel=1e-3)
    table = pq.read_table(out / "compare.parquet")
    assert table.num_rows == 8 and table.column("significant").to_pylist()[0] is not None
    assert json.loads(table.schema.metadata[b"flaxattn"])["settings"] == report["settings"]
    assert (out / "compare.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_model_beside_itself_has_changed_nowhere(
    typed: Run, corpus: Path, small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report"
    code, printed, _ = typed("compare", small, small, corpus, "-o", out, "--seed", 4)
    assert code == 0 and printed.count("no change is claimed") == 5
    report = json.loads((out / "compare.json").read_text())
    assert report["settings"]["seed"] == 4 and "seed 4" in report["rule"]
    assert "above 0.01 nats" in report["rule"]
    for row in report["heads"]:
        assert (row["divergence_low"], row["divergence_high"], row["changed"]) == (0, 0, False)
    assert report["evidence"]["claims"] == [] and report["roles"]["differences"] == []
    page = (out / "compare.html").read_text()
    assert "Nothing is claimed of any head." in page and "above 0.01 nats" in page


@pytest.mark.slow
def test_ablate_says_what_heads_are_worth(
    typed: Run, corpus: Path, small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report"
    words = ("--model", small, "--limit", 2, "--batch-size", 2, "--seed", 5)
    code, printed, _ = typed("ablate", corpus, "-o", out, *words)
    assert code == 0 and "without 4 of the heads" in printed
    report = json.loads((out / "ablate.json").read_text())
    task = fa.head_task(fa.from_pretrained(small), TEXTS[:2], seed=5)
    effects = fa.ablate(task)
    assert report["loss"] == pytest.approx(effects.loss, abs=1e-4)
    for row in report["heads"]:
        expected = effects.means["head_mask"][row["layer"], row["head"]]
        assert row["ablation"] == pytest.approx(expected, abs=1e-4) and row["importance"] >= 0
    assert [p["removed"] for p in report["curve"]] == list(range(9))
    assert report["curve"][0]["loss"] == pytest.approx(report["loss"], abs=1e-4)
    assert report["settings"]["seed"] == 5 and report["architecture"] == "BertForMaskedLM"
    assert pq.read_table(out / "ablate.parquet").num_rows == 8
    for name in ("ablate.png", "curve.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_classifier_with_a_column_of_labels(typed: Run, small: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="freshly"):
        model = fa.from_pretrained(small, "BertForSequenceClassification", num_labels=2)
    model.save_pretrained(tmp_path / "model")
    table = tmp_path / "data.tsv"
    table.write_text("sentence\tlabel\nA dog.\t1\nA cat.\tmany\nNo.\t0\n")
    words = ("--model", tmp_path / "model", "--text-column", "sentence", "--label-column", "label")
    words = (*words, "--measure", "importance", "--by-layer", "-o", tmp_path / "report")
    code, _, error = typed("ablate", table, *words)
    assert code == 2 and "line 3" in error and "expected the number of a class" in error
    assert len(error.splitlines()) <= 3 and not (tmp_path / "report").exists()
    code, _, _ = typed("ablate", table, *words, "--on-error", "skip")
    report = json.loads((tmp_path / "report" / "ablate.json").read_text())
    assert code == 0 and report["data"]["texts"] == 2 and report["data"]["left_out"] == {"label": 1}
    layers = np.array([row["importance"] for row in report["heads"]]).reshape(-1)
    assert np.sum(layers**2) == pytest.approx(2, abs=1e-3), "each of two layers has norm one"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ablate", "CORPUS", "--measure", "magic"), "choose one of ablation, importance, both"),
        (("ablate", "CORPUS", "--measure", "ablation", "--order", "importance"), "is not measured"),
        (("ablate", "CORPUS", "--task-head", "base"), "has no loss"),
        (("ablate", "nowhere.txt"), "nowhere.txt"),
        (("compare", "tiny-bert", "tiny-bert", "CORPUS", "--correction", "x"), "choose one of"),
        (("compare", "tiny-bert", "tiny-bert", "CORPUS", "--alpha", "2"), "between 0 and 1"),
        (("compare", "SMALL", "tiny-gpt2", "CORPUS"), "read texts as other tokens"),
    ],
)
def test_wrong_use(
    typed: Run, corpus: Path, small: Path, tmp_path: Path, words: Any, message: str
) -> None:
    given = [{"CORPUS": corpus, "SMALL": small}.get(word, word) for word in words]
    code, _, error = typed(*given, "-o", tmp_path / "report")
    assert code == 2 and message in error, error
    assert len(error.splitlines()) <= 3 and not (tmp_path / "report").exists()


def test_json_has_no_nan() -> None:
    report = {"a": [float("nan"), 1.5], "b": {"c": float("inf")}, 3: (True, "x")}
    assert finite(report) == {"a": [None, 1.5], "b": {"c": None}, "3": [True, "x"]}
