# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The table of GLUE's tasks, and their examples out of every layout they come in."""

import gzip
import json
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.errors import InputError, UnavailableError
from flaxattn.train.glue_data import read_parts, split
from flaxattn.train.glue_tasks import TASKS, find_task
from flaxattn.train.recipe import GlueRecipe

MNLI_TRAIN = (
    "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse "
    "sentence2_parse sentence1 sentence2 label1 gold_label"
).split()
STSB = "index genre filename year old_index source1 source2 sentence1 sentence2 score".split()
MRPC = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
QNLI = ["index", "question", "sentence", "label"]
PAIR = ["index", "sentence1", "sentence2", "label"]
# Header, values written for labels, and the ids or numbers they stand for.
CLASSIC: dict[str, tuple[list[str] | None, dict[str, float]]] = {
    "cola": (None, {"0": 0, "1": 1}),
    "sst2": (["sentence", "label"], {"0": 0, "1": 1}),
    "mrpc": (MRPC, {"0": 0, "1": 1}),
    "stsb": (STSB, {"0.000": 0, "3.800": 3.8, "5": 5}),
    "qqp": ("id qid1 qid2 question1 question2 is_duplicate".split(), {"0": 0, "1": 1}),
    "mnli": (MNLI_TRAIN, {"entailment": 0, "neutral": 1, "contradiction": 2}),
    "qnli": (QNLI, {"entailment": 0, "not_entailment": 1}),
    "rte": (PAIR, {"entailment": 0, "not_entailment": 1}),
    "wnli": (PAIR, {"0": 0, "1": 1}),
}
LABELS = ("label", "Quality", "score", "is_duplicate", "gold_label")


def rows(task: str, tested: bool = False) -> str:
    """A file of the classic download; a test set has an index and no label."""
    header, labels = CLASSIC[task]
    lines = []
    for number, label in enumerate(labels):
        if header is None:
            cells = [str(number), 'a "b'] if tested else ["src", label, "*", 'a "b']
        else:
            cells = [f'{name} "{number}' for name in header]
            cells[next(i for i, name in enumerate(header) if name in LABELS)] = label
        lines.append("\t".join(cells))
    if header is None:
        header = ["index", "sentence"] if tested else None
    top = ["\t".join(header)] if header else []
    return "\n".join([*top, *lines]) + "\n"


def read(task: str, data: Path, bad: BadRows | None = None, **settings: Any) -> dict[str, Any]:
    parts = read_parts(
        TASKS[task], data, GlueRecipe(task=task, **settings), bad or BadRows(), [*TASKS[task].parts]
    )
    return {name: part.examples for name, part in parts.items()}


@pytest.mark.parametrize("inside", [True, False], ids=["folder", "parent"])
@pytest.mark.parametrize("name", CLASSIC)
def test_the_classic_download(name: str, inside: bool, tmp_path: Path) -> None:
    task, labels = TASKS[name], CLASSIC[name][1]
    folder = tmp_path / task.folder
    folder.mkdir()
    for part, layouts in task.parts.items():
        if part != "ax":
            (folder / layouts[0].files[0]).write_text(rows(name, part.startswith("test")))
    found = read(name, folder if inside else tmp_path)
    assert set(found) == {*task.parts} - {"ax"}
    for part, examples in found.items():
        assert [e.position for e in examples] == list(range(len(labels)))
        tested = part.startswith("test")
        expected = [None] * len(labels) if tested else list(labels.values())
        assert [e.label for e in examples] == expected
        assert [bool(e.second) for e in examples] == [len(task.columns) == 2] * len(labels)
        assert all('"' in e.first for e in examples)
    if name != "cola":
        assert found["dev"][1].line == 3


def test_labels_agree_with_the_hub() -> None:
    assert TASKS["mnli"].labels == ("entailment", "neutral", "contradiction")
    assert TASKS["rte"].labels == TASKS["qnli"].labels == ("entailment", "not_entailment")
    assert TASKS["wnli"].labels == ("not_entailment", "entailment")
    assert TASKS["cola"].labels == ("unacceptable", "acceptable")
    assert TASKS["stsb"].is_regression
    assert TASKS["stsb"].num_outputs == 1
    assert TASKS["ax"].labels == TASKS["mnli"].labels


def test_metrics_and_files_of_a_submission() -> None:
    metrics = {name: task.metrics for name, task in TASKS.items()}
    assert metrics["cola"] == ("matthews",)
    assert metrics["mrpc"] == metrics["qqp"] == ("accuracy", "f1")
    assert metrics["stsb"] == ("pearson", "spearman")
    assert {metrics[n] for n in ("sst2", "mnli", "qnli", "rte", "wnli")} == {("accuracy",)}
    files = {file for task in TASKS.values() for file in task.submissions.values()}
    assert files == {
        *("CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "QQP.tsv", "MNLI-m.tsv"),
        *("MNLI-mm.tsv", "QNLI.tsv", "RTE.tsv", "WNLI.tsv", "AX.tsv"),
    }
    assert {n for n, t in TASKS.items() if t.writes_names} == {"mnli", "ax", "qnli", "rte"}


def test_the_diagnostic_set(tmp_path: Path) -> None:
    (tmp_path / "diagnostic").mkdir()
    text = "index\tsentence1\tsentence2\n0\tA cat.\tA dog.\n"
    (tmp_path / "diagnostic" / "diagnostic.tsv").write_text(text)
    assert read("ax", tmp_path)["ax"][0].second == "A dog."
    (tmp_path / "MNLI").mkdir()
    for file in ("train.tsv", "dev_matched.tsv"):
        (tmp_path / "MNLI" / file).write_text(rows("mnli"))
    assert [e.first for e in read("mnli", tmp_path / "MNLI")["ax"]] == ["A cat."]


def test_files_with_columns_of_their_own(tmp_path: Path) -> None:
    lines = [{"s": f"text {i}", "y": i % 2} for i in range(6)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = pa.table({"s": [str(line["s"]) for line in lines], "y": ["positive"] * 6})
    pq.write_table(table, tmp_path / "dev.parquet")
    (tmp_path / "test.csv.gz").write_bytes(gzip.compress(b's\n"x, y"\n'))
    found = read("sst2", tmp_path, text_column="s", label_column="y")
    assert [e.label for e in found["train"]] == [0, 1, 0, 1, 0, 1]
    assert [e.label for e in found["dev"]] == [1] * 6
    assert [(e.first, e.label) for e in found["test"]] == [("x, y", None)]


def test_files_of_the_hub(tmp_path: Path) -> None:
    pairs = {"premise": ["a", "b"], "hypothesis": ["c", "d"], "label": [0, 2], "idx": [0, 1]}
    for part in ("train", "validation_matched", "validation_mismatched"):
        pq.write_table(pa.table(pairs), tmp_path / f"{part}-00000-of-00001.parquet")
    found = read("mnli", tmp_path)
    assert set(found) == {"train", "dev", "dev_mismatched"}
    assert [e.label for e in found["dev_mismatched"]] == [0, 2]


def test_a_dev_part_is_split_off_by_seed(tmp_path: Path) -> None:
    lines = [f"{i % 2}\t1\t2\tfirst {i}\tsecond {i}" for i in range(500)]
    path = tmp_path / "msr_paraphrase_train.txt"
    text = "\n".join(["\ufeff" + "\t".join(MRPC), *lines])
    path.write_text(text, encoding="utf-8")
    found = read("mrpc", tmp_path)
    assert len(found["train"]) + len(found["dev"]) == 500
    assert 30 < len(found["dev"]) < 75
    assert found == read("mrpc", tmp_path)
    assert found["dev"] != read("mrpc", tmp_path, seed=1)["dev"]
    path.write_text(text.replace("0\t1\t2\tfirst 4\t", "x\t1\t2\tfirst 4\t"), encoding="utf-8")
    bad = BadRows("skip")
    again = read("mrpc", tmp_path, bad)
    texts = {name: [e.first for e in examples] for name, examples in found.items()}
    assert {n: [e.first for e in es] for n, es in again.items()} == {
        n: [t for t in ts if t != "first 4"] for n, ts in texts.items()
    }
    assert bad.summary() == {"rows": 500, "kept": 499, "bad": {"label": 1}}
    twice = [*found["train"][:5], *found["train"][:5]]
    assert {len(side) for side in split(twice, 3)} <= {0, 2, 4, 6, 8, 10}


@pytest.mark.parametrize(
    ("task", "cells", "code", "message"),
    [
        ("rte", "a\tb\tentailmnt", "label", "unknown label; the nearest is 'entailment'"),
        ("rte", "a\tb\t1.0", "label-type", "a number with a point"),
        ("rte", "a\tb\t2", "label-range", "expected a label from 0 to 1"),
        ("rte", "a\tb\t-1", "label-range", "expected a label from 0 to 1"),
        ("rte", "a\t\tentailment", "empty", "column 'sentence2': the text is empty"),
        ("rte", " \tb\tentailment", "empty", "column 'sentence1': the text is empty"),
        ("stsb", "a\tb\tmuch", "label-type", "expected a number from 0 to 5"),
        ("stsb", "a\tb\tnan", "label-type", "expected a number from 0 to 5"),
        ("stsb", "a\tb\t5.5", "label-range", "expected a number from 0 to 5"),
    ],
)
def test_bad_labels_and_pairs(
    task: str, cells: str, code: str, message: str, tmp_path: Path
) -> None:
    label = "score" if task == "stsb" else "label"
    good = ["x\ty\t0", "x\ty\t1"]
    header = f"sentence1\tsentence2\t{label}"
    (tmp_path / "train.tsv").write_text("\n".join([header, good[0], cells, good[1]]))
    (tmp_path / "dev.tsv").write_text("\n".join([header, *good]))
    with pytest.raises(InputError) as caught:
        read(task, tmp_path)
    text = str(caught.value)
    assert message in text
    assert text.startswith(f"{tmp_path}/train.tsv, line 3, column ")
    assert len(text.splitlines()) <= 3
    bad = BadRows("quarantine", tmp_path)
    kept = read(task, tmp_path, bad)["train"]
    assert [e.position for e in kept] == [0, 2]
    assert bad.counts == {code: 1}
    listed = json.loads((tmp_path / "errors.jsonl").read_text())
    assert (listed["line"], listed["code"]) == (3, code)


def test_a_label_in_json_may_be_no_float_and_no_truth(tmp_path: Path) -> None:
    lines = [{"sentence": "x", "label": value} for value in (0, "1", "positive", 1.0, True, None)]
    for part in ("train", "dev"):
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    bad = BadRows("skip")
    assert [e.label for e in read("sst2", tmp_path, bad)["train"]] == [0, 1, 1]
    assert bad.counts == {"label-type": 2, "label": 4}


def test_absent_data_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no GLUE task 'ste2'; the nearest is 'sst2'"):
        find_task("ste2")
    assert find_task("SST-2").name == find_task("sst_2").name == "sst2"
    with pytest.raises(InputError, match="is not there"):
        read("rte", tmp_path / "none")
    (tmp_path / "readme.md").write_text("x")
    with pytest.raises(InputError) as caught:
        read("rte", tmp_path)
    assert str(caught.value) == (
        f"there are no train examples of RTE in {tmp_path}\n"
        "expected train.tsv or train.csv or train.jsonl or train.parquet; it holds readme.md\n"
        "name the right folder with --data, or the right task with --task"
    )
    (tmp_path / "train.tsv").write_text("sentence1\tsentence2\tlabel\na\tb\tc\n")
    with pytest.raises(InputError, match=r"1 of 1 rows are bad: \{'label': 1\}"):
        read("rte", tmp_path, BadRows("skip"))


def test_the_datasets_package_is_used_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in: the package is heavy, and two of its functions are called."""
    held = {
        "train": [{"sentence": f"t{i}", "label": i % 2, "idx": i} for i in range(4)],
        "validation": [{"sentence": "v", "label": 1, "idx": 0}, {"sentence": "", "label": 1}],
        "test": [{"sentence": "w", "label": -1, "idx": 0}],
    }
    (tmp_path / "dataset_dict.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UnavailableError, match="pip install datasets"):
        read("sst2", tmp_path)
    fake = types.ModuleType("datasets")
    vars(fake).update(load_from_disk=lambda path: held, load_dataset=lambda name, task: held)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    bad = BadRows("skip")
    found = read("sst2", tmp_path, bad)
    assert [e.label for e in found["train"]] == [0, 1, 0, 1]
    assert [e.label for e in found["test"]] == [None]
    assert bad.summary() == {"rows": 7, "kept": 6, "bad": {"empty": 1}}
    parts = read_parts(
        TASKS["sst2"], "datasets:nyu/glue", GlueRecipe(), BadRows("skip"), ["train", "dev"]
    )
    assert [e.first for e in parts["dev"].examples] == ["v"]

    def unreachable(name: str, task: str) -> None:
        raise ConnectionError(f"Couldn't reach {name!r} on the Hub")

    vars(fake).update(load_dataset=unreachable)
    with pytest.raises(UnavailableError, match="Couldn't reach 'nyu-mll/glue'") as caught:
        read_parts(TASKS["sst2"], "datasets:", GlueRecipe(), BadRows(), ["train", "dev"])
    assert len(str(caught.value).splitlines()) == 3
