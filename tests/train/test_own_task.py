# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn train classify`: a user's own labels, from files to a model that names them."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import f1_score

import flaxattn as fa
from flaxattn.cli import main
from flaxattn.errors import InputError
from flaxattn.train.glue_model import macro_f1
from flaxattn.train.glue_tasks import own_task
from flaxattn.train.recipe import ClassifyRecipe

WORDS = "red cat runs home now while big dogs sleep under old trees".split()
QUICK = [
    *("batch_size=16", "learning_rate=2e-3", "max_length=24", "buckets=[24]", "predict_batch=32"),
    *("devices=1", "log_seconds=1000", "evaluate_every=40"),
]
LABELS = {"good": "positive", "bad": "negative", "cat": "neutral"}


def rows(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts in which one word tells the label."""
    pick, found = random.Random(seed), []
    others = [word for word in WORDS if word not in LABELS]
    for number in range(count):
        mark = list(LABELS)[number % 3]
        words = pick.choices(others, k=3)
        words.insert(pick.randint(0, 3), mark)
        found.append((" ".join(words), LABELS[mark]))
    return found


def write_csv(path: Path, header: list[str], content: list[tuple[Any, ...]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *content])
    return path


def train(*words: Any, settings: list[str] = QUICK) -> int:
    changes = [word for setting in settings for word in ("--set", setting)]
    return main(["train", "classify", *(str(word) for word in words), *changes])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    write_csv(folder / "train.csv", ["text", "label"], rows(180, 0))
    write_csv(folder / "dev.csv", ["text", "label"], rows(45, 1))
    return folder


@pytest.fixture(scope="module")
def run(folder: Path, start: str) -> Path:
    data = ["--data", folder / "train.csv", "--dev", folder / "dev.csv", "--model", start]
    data += ["--trace-before-after", 2]
    assert train(*data, "--out", folder / "run", settings=[*QUICK, "steps=120"]) == 0
    return folder / "run"


@pytest.mark.slow
def test_the_attention_before_and_after_is_viewed_and_compared(run: Path, tmp_path: Path) -> None:
    stores = [str(run / "traces" / when) for when in ("before", "after")]
    page = tmp_path / "page.html"
    assert main(["view", *stores, "--example", "1", "--out", str(page)]) == 0
    assert page.stat().st_size > 100_000
    out = str(tmp_path / "changes")
    assert main(["compare", *stores, "--out", out, "--no-page"]) == 0
    assert json.loads((tmp_path / "changes/compare.json").read_text())["heads"]


@pytest.mark.slow
def test_it_learns_labels_by_their_names(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    assert summary["metrics"]["accuracy"]["mean"] > 0.9
    assert summary["metrics"].keys() == {"loss", "accuracy", "macro_f1", "score"}
    assert summary["examples"] == {"train": 180, "dev": 45}
    assert not summary["dev_split_off"]
    settings = json.loads((run / "model" / "config.json").read_text())
    assert settings["id2label"] == {"0": "negative", "1": "neutral", "2": "positive"}
    assert "fine-tuned on train.csv, dev.csv" in (run / "model" / "README.md").read_text()


@pytest.mark.slow
def test_the_model_classifies_texts(run: Path) -> None:
    model = fa.from_pretrained(run / "model")
    texts = ["red good dogs", "old bad trees now", "the cat runs home"] * 2
    scored = fa.classify(model, texts)
    encoded = model.tokenizer.encode(texts)
    logits = np.asarray(model(encoded.input_ids, encoded.attention_mask).logits, np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    for labels, row in zip(scored, shares, strict=True):
        assert [one.label for one in labels] == [
            model.config.id2label[n] for n in np.argsort(-row).tolist()
        ]
        np.testing.assert_allclose([one.score for one in labels], np.sort(row)[::-1], 1e-4)
    assert [labels[0].label for labels in scored[:3]] == ["positive", "negative", "neutral"]
    (best,) = fa.classify(model, texts[0], top=1)
    assert best.label == "positive" and best.score == pytest.approx(scored[0][0].score, rel=1e-4)


@pytest.mark.slow
def test_evaluate_repeats_the_metrics(
    run: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", folder / "dev.csv", "--model", run / "model", "--out", tmp_path / "m.json"]
    quick = [word for one in QUICK for word in ("--set", one)]
    assert main(["evaluate", *map(str, words), *quick]) == 0
    assert capsys.readouterr().out.startswith("dev: loss ")
    found = json.loads((tmp_path / "m.json").read_text())["metrics"]["dev"]
    summary = json.loads((run / "summary.json").read_text())["metrics"]
    for name, value in found.items():
        assert value == pytest.approx(summary[name]["mean"], rel=1e-5)
    write_csv(tmp_path / "other.csv", ["words", "class"], rows(9, 3))
    columns = ["--text-column", "words", "--label-column", "class"]
    assert (
        main(
            [
                "evaluate",
                "--data",
                str(tmp_path / "other.csv"),
                *map(str, words[2:4]),
                *columns,
                *quick,
            ]
        )
        == 0
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tsv", "jsonl", "parquet"])
def test_pairs_of_every_kind_of_file(kind: str, start: str, tmp_path: Path) -> None:
    """Labels that are numbers are classes by their names; a tenth is split off for evaluation."""
    pick = random.Random(2)
    content = []
    for number in range(120):
        first, second = pick.sample(WORDS, 2)
        content.append((first, first if number % 2 else second, 7 if number % 2 else 30))
    path, names = tmp_path / f"pairs.{kind}", ["a", "b", "same"]
    if kind == "parquet":
        columns = dict(zip(names, map(list, zip(*content, strict=True)), strict=True))
        pq.write_table(pa.table(columns), path)
    elif kind == "jsonl":
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in content]
        path.write_text("\n".join(lines))
    else:
        path.write_text("\n".join("\t".join(map(str, row)) for row in [names, *content]))
    words = ["--text-column", "a", "--pair-column", "b", "--label-column", "same"]
    words += ["--data", path, "--model", start, "--out", tmp_path / "run"]
    assert train(*words, settings=[*QUICK, "steps=3"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert sum(summary["examples"].values()) == 120 and summary["dev_split_off"]
    model = fa.from_pretrained(tmp_path / "run" / "model")
    assert list(model.config.id2label.values()) == ["7", "30"], "numbers by size"
    alone = fa.classify(model, "cat", "dogs")
    several = fa.classify(model, ["cat", "red"], ["dogs", "home"])
    assert [one.label for one in several[0]] == [one.label for one in alone]
    encoded = model.tokenizer.encode(["cat"], ["dogs"])
    logits = model(encoded.input_ids, encoded.attention_mask, encoded.token_type_ids).logits[0]
    assert alone[0].label == model.config.id2label[int(np.argmax(logits))]


@pytest.mark.slow
def test_numbers_are_predicted_where_that_is_requested(start: str, tmp_path: Path) -> None:
    numbers = {"positive": 2.5, "negative": -1.25, "neutral": 0.5}
    content = [(text, numbers[label]) for text, label in rows(90, 5)]
    write_csv(tmp_path / "train.csv", ["text", "label"], content)
    words = ["--data", tmp_path / "train.csv", "--regression", "--model", start]
    assert train(*words, "--out", tmp_path / "run", settings=[*QUICK, "steps=100"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["metrics"].keys() == {"loss", "pearson", "spearman", "score"}
    model = fa.from_pretrained(tmp_path / "run" / "model")
    assert model.config.problem_type == "regression"
    low, high = fa.classify(model, ["red bad now", "red good now"])
    encoded = model.tokenizer.encode(["red bad now"])
    number = float(model(encoded.input_ids, encoded.attention_mask).logits[0, 0])
    assert low[0].score == pytest.approx(number, rel=1e-3) and len(low) == 1
    assert low[0].score < high[0].score - 1


def test_macro_f1_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 4, (2, 50))
    assert macro_f1(predicted, true) == pytest.approx(f1_score(true, predicted, average="macro"))
    assert macro_f1(np.array([0, 0]), np.array([1, 1])) == 0


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ([("a", "x"), ("b", "x")], {}, "has one label only, 'x'\nexpected two or more"),
        ([("a", ""), ("b", "")], {}, "has no label\nexpected two or more"),
        ([("a b", str(n / 7)) for n in range(60)], {}, "has 60 labels in 60 rows\nexpected a cl"),
        ([("a", "x")], {"label_column": "lable"}, "no such column; the nearest is 'label'"),
    ],
)
def test_labels_that_make_no_classes(
    tmp_path: Path, content: list[tuple[str, str]], options: dict[str, str], message: str
) -> None:
    path = write_csv(tmp_path / "train.csv", ["text", "label"], content)
    with pytest.raises(InputError) as caught:
        own_task([path], [], ClassifyRecipe(**options))
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


def test_columns_are_three() -> None:
    with pytest.raises(InputError, match="must be three columns\nreceived 'text', 'text', 'label'"):
        ClassifyRecipe(pair_column="text")


def test_labels_of_the_dev_files_must_be_known(
    folder: Path, start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number is not a class by its place, as it is in GLUE."""
    write_csv(tmp_path / "dev.csv", ["text", "label"], [("a cat", "1"), ("a dog", "negatve")])
    words = ["--data", folder / "train.csv", "--dev", tmp_path / "dev.csv", "--model", start]
    assert train(*words, "--out", tmp_path / "run") == 2
    err = capsys.readouterr().err
    assert "line 2, column 'label': unknown label; there are: negative, neutral, positive" in err
    words += ["--on-error", "skip"]
    assert train(*words, "--out", tmp_path / "run") == 2
    assert "no dev example of train.csv, dev.csv can be used" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_no_classifier_is_refused(
    run: Path, folder: Path, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dev = str(folder / "dev.csv")
    assert main(["evaluate", "--data", dev, "--model", start]) == 2
    assert "flaxattn train classify --model" in capsys.readouterr().err
    assert (
        main(["evaluate", "--data", dev, "--model", str(run / "model"), "--predictions", "p"]) == 2
    )
    assert "--predictions writes what GLUE's test sets ask for" in capsys.readouterr().err
    assert main(["train", "classify", "--data", dev]) == 2
    assert "--out" in capsys.readouterr().err
    model = fa.from_pretrained(run / "model")
    for options, message in (
        ({"top": 4}, "top is 4\nexpected 1 to 3"),
        ({"second": ["a", "b"]}, "received 1 texts and 2 second ones"),
        ({"text": ["a", " "]}, "text 1 is empty"),
    ):
        with pytest.raises(InputError, match=message):
            fa.classify(model, **{"text": ["a"], **options})
    with pytest.raises(InputError, match="which has no labels of texts\nname a sequence"):
        fa.classify(fa.from_pretrained("tiny-bert"), "a")


@pytest.mark.slow
def test_the_command_prints_labels(
    run: Path, tmp_path: Path, typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("red good dogs\nold bad trees\n")
    words = ["--file", "texts.txt", "--model", run / "model"]
    code, out, err = typed("classify", *words, "--top", 1)
    assert (code, err) == (0, "")
    expected = fa.classify(fa.from_pretrained(run / "model"), ["red good dogs", "old bad trees"])
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[0] for line in lines] == [f"{one[0].label} {one[0].score:.4f}" for one in expected]
    code, out, _ = typed("classify", "red good\tdogs", "--pairs", "--json", *words[2:], "--view")
    (row,) = map(json.loads, out.splitlines())
    assert code == 0 and row["place"] == "text 1"
    assert [one["label"] for one in row["labels"]] == [
        one.label for one in fa.classify(fa.from_pretrained(run / "model"), "red good", "dogs")
    ]
    assert (tmp_path / "attention.html").is_file()
    code, _, err = typed("classify", "no pair", "--pairs", *words[2:])
    assert code == 2 and err.startswith("error: text 1 is not a pair: it has 0 tabs\nexpected two")
    code, _, err = typed("classify", "a", "--model", "tiny-bert")
    assert code == 2 and "which has no labels of texts" in err
