# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Mistakes of newcomers: each error names the thing, and its remedy is of the same interface."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import FlaxattnError

PYTHON = re.compile(r"(?<!')\b[a-z_]+=(True|False|None|[\"'(\[])|\bfa\.\w")
SHELL = re.compile(r"(?<![\w-])--[a-z]")
# Words that are typed, what the error names, and the words that its remedy leads to.
TYPED: dict[str, tuple[list[str], list[str], list[str] | None]] = {
    "no file": (["stats", "absent.txt"], ["absent.txt"], None),
    "no trees": (["roles", "absent.conllu"], ["absent.conllu"], None),
    "a text as a file": (["extract", "hello world", "-o", "S"], ["'hello world'"], None),
    "a layer too many": (
        ["extract", "corpus.txt", "-o", "S", "--layers", "8-11"],
        ["8, 9, 10, 11", "0 to 3", "without --layers all are taken"],
        ["extract", "corpus.txt", "-o", "S"],
    ),
    "no such column": (
        ["extract", "table.csv", "-o", "S", "--text-column", "body"],
        ["table.csv", "'body'", "text, label"],
        ["extract", "table.csv", "-o", "S", "--text-column", "text"],
    ),
    "a row without a text": (
        ["extract", "holes.csv", "-o", "S"],
        ["holes.csv, line 3", "--on-error skip"],
        ["extract", "holes.csv", "-o", "S", "--on-error", "skip"],
    ),
    "a long text": (
        ["extract", "long.txt", "-o", "S"],
        ["long.txt, line 1", "--truncate"],
        ["extract", "long.txt", "-o", "S", "--truncate"],
    ),
    "a folder of texts": (
        ["extract", "folder", "-o", "S"],
        ["folder is a folder", "folder/*.txt"],
        ["extract", "folder/*.txt", "-o", "S"],
    ),
    "no reduction": (["extract", "corpus.txt", "-o", "S", "--reduce", "mean"], ["mean"], None),
    "no dtype": (["extract", "corpus.txt", "-o", "S", "--dtype", "fp16"], ["fp16"], None),
    "no number": (["stats", "corpus.txt", "--limit", "ten"], ["--limit", "'ten'"], None),
    "no value": (["view", "hello", "--model"], ["--model", "flaxattn view --help"], None),
    "a page as a picture": (["view", "hi", "-o", "a.pdf"], ["a.pdf", "--save-figure"], None),
    "a picture as a page": (["view", "hi", "--save-figure", "a.html"], ["a.html"], None),
    "a page in no folder": (["view", "hi", "-o", "absent/a.html"], ["absent/a.html"], None),
    "a figure in no folder": (
        ["view", "hi", "--save-figure", "absent/a.png"],
        ["absent/a.png"],
        None,
    ),
    "a page in no folder beside a figure": (
        ["view", "hi", "-o", "absent/a.html", "--save-figure", "a.png"],
        ["absent/a.html"],
        None,
    ),
    "no number after a sign": (["stats", "corpus.txt", "--limit=ten"], ["--limit", "'ten'"], None),
    "results of bench where nobody writes": (["bench", "-o", "/proc/b.json"], ["/proc"], None),
    "a tokenizer in a file": (
        ["tokenizer", "train", "corpus.txt", "-o", "table.csv"],
        ["table.csv"],
        None,
    ),
    "a page where nobody writes": (["view", "hi", "-o", "/proc/a.html"], ["/proc"], None),
    "a report in a file": (["stats", "corpus.txt", "-o", "table.csv"], ["table.csv"], None),
    "a report where nobody writes": (["stats", "corpus.txt", "-o", "/proc/R"], ["/proc"], None),
    "a demo in a file": (["demo", "--out", "table.csv"], ["table.csv"], None),
    "no temperature": (["generate", "hi", "--temperature", "-1"], ["temperature", "-1"], None),
    "no loss": (
        ["ablate", "corpus.txt", "--task-head", "BertModel"],
        ["BertModel", "--task-head BertFor"],
        None,
    ),
    "other tokens": (
        ["compare", "tiny-bert", "tiny-gpt2", "corpus.txt"],
        ["tiny-bert and tiny-gpt2"],
        None,
    ),
    "one report": (["heads", "corpus.txt"], ["two reports"], None),
    "no trees to probe": (["probe", "corpus.txt"], ["corpus.txt", ".conllu"], None),
    "no mask": (["fill-mask", "nothing is hidden"], ["[MASK]"], None),
    "no data": (["train", "mlm", "-o", "RUN"], ["--data"], None),
    "no recipe": (
        ["train", "mlm", "--config", "absent.yaml", "--data", "corpus.txt", "-o", "RUN"],
        ["absent.yaml", "tiny-gpt2"],
        None,
    ),
    "a short name": (
        ["train", "mlm", "--set", "lr=0.1", "--data", "corpus.txt", "-o", "RUN"],
        ["'lr'", "'learning_rate'"],
        None,
    ),
    "seeds": (
        ["train", "glue", "--set", "seeds=1,2", "--data", "folder", "-o", "RUN"],
        ["seeds", "'seeds=["],
        None,
    ),
    "no index": (["search", "query", "folder", "A cat.", "--token", "0"], ["folder"], None),
    "a store of nothing": (["store", "verify", "folder"], ["folder"], None),
    "a model's name": (["view", "hi", "--model", "tiny-brt"], ["'tiny-bert'"], None),
    "a command": (["extrct", "corpus.txt"], ["'extract'", "flaxattn --help"], None),
    "an option": (["stats", "corpus.txt", "--limitt", "3"], ["--limitt", "--limit)"], None),
    "UTF-16": (["extract", "utf16.txt", "-o", "S"], ["utf16.txt", "UTF-8", "iconv"], None),
    "a damaged table": (
        ["extract", "damaged.parquet", "-o", "S"],
        ["damaged.parquet", "copy or download the file again"],
        None,
    ),
    "a shard too many": (
        ["extract", "corpus.txt", "-o", "S", "--shard", "16/16"],
        ["--shard", "16/16", "0 to N - 1"],
        None,
    ),
    "a setting": (
        ["train", "mlm", "--set", "step=10", "--data", "corpus.txt", "-o", "RUN"],
        ["'step'", "'steps'"],
        None,
    ),
    "a layer of a search": (
        ["search", "build", "corpus.txt", "-o", "I", "--layers", "9"],
        ["9"],
        None,
    ),
    "files of other lengths": (
        ["train", "translation", "--data", "a.en", "--data", "a.de", "-o", "RUN"],
        ["a.en", "a.de", "2 lines"],
        None,
    ),
    "another task's folder": (
        ["train", "glue", "--data", "folder", "-o", "RUN"],
        ["folder", "train.tsv", "--task"],
        None,
    ),
    "a model that does not continue": (
        ["generate", "hi", "--model", "tiny-bert"],
        ["tiny-bert", "BertForPreTraining"],
        None,
    ),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    texts = "The cat is very sad.\nIt could not find food.\nA dog sat.\n"
    files = {
        "corpus.txt": texts,
        "table.csv": "text,label\nThe cat is sad.,0\nIt is good.,1\n",
        "holes.csv": "text,label\nThe cat is sad.,0\n,1\n",
        "long.txt": "word " * 200 + "\n",
        "folder/a.txt": texts,
    }
    Path("folder").mkdir()
    Path("utf16.txt").write_text("The cat.\n", encoding="utf-16")
    Path("damaged.parquet").write_bytes(b"PAR1 and no more")
    Path("a.en").write_text("a b\nc d\n", encoding="utf-8")
    Path("a.de").write_text("x\n", encoding="utf-8")
    for name, content in files.items():
        Path(name).write_text(content, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(name, marks=[pytest.mark.float16] * ("extract" in (remedy or ())))
        for name, (_, _, remedy) in TYPED.items()
    ],
)
def test_a_typed_mistake(mistake: str, typed: Any, place: Path) -> None:
    words, named, remedy = TYPED[mistake]
    before = sorted(place.rglob("*"))
    code, _, printed = typed(*words)
    message = printed[printed.index("error: ") :]
    assert code == 2 and "Traceback" not in printed, printed
    assert len(message.strip().splitlines()) <= 3, message
    assert all(name in message for name in named), message
    assert not PYTHON.search(message), message
    results = [p for p in place.rglob("*") if p not in before and not p.name.startswith(".")]
    assert not [path for path in results if path.is_file()], "work was done before the error"
    if remedy is not None:
        assert typed(*remedy)[0] == 0


def bert() -> Any:
    return fa.from_pretrained("tiny-bert")


CALLED: dict[str, tuple[Callable[[], object], list[str]]] = {
    "no trees": (lambda: fa.head_roles(bert(), "absent.conllu"), ["absent.conllu"]),
    "no file": (lambda: fa.extract_to("S", bert(), "absent.txt"), ["absent.txt"]),
    "a text as a file": (lambda: fa.extract_to("S", bert(), "hello world"), ["'hello world'"]),
    "no such column": (
        lambda: fa.extract_to("S", bert(), "table.csv", text_column="body"),
        ["table.csv", "'body'"],
    ),
    "a row without a text": (
        lambda: fa.extract_to("S", bert(), "holes.csv"),
        ["holes.csv, line 3", 'on_error="skip"'],
    ),
    "a long text": (lambda: bert().trace("word " * 200), ["truncate=True"]),
    "a layer too many": (
        lambda: bert().trace("A cat.", capture=fa.Capture(weights=True, layers=(9,))),
        ["9", "0 to 3", "layers=None"],
    ),
    "no dtype": (lambda: fa.from_pretrained("tiny-bert", dtype="fp16"), ["fp16"]),
    "no capture": (lambda: bert().trace("A cat.", capture="weights"), ["capture"]),
    "another library's argument": (
        lambda: bert().trace("A cat.", output_attentions=True),
        ["output_attentions"],
    ),
    "no text": (lambda: bert().trace(3), ["int"]),
    "no ids": (lambda: bert()(input_ids=np.ones((1, 3))), ["input_ids", "float64"]),
    "an id too many": (lambda: bert()(input_ids=np.array([[10**6]])), ["1000000"]),
    "no page": (lambda: fa.head_view("a text"), ["str"]),
    "a page as a picture": (lambda: fa.head_view(bert().trace("A cat.")).save("a.png"), ["a.png"]),
    "a state cut short": (
        lambda: fa.head_view(bert().trace("A cat."), state='{"layer": 3'),
        ["state", "JSON"],
    ),
    "no temperature": (
        lambda: fa.from_pretrained("tiny-gpt2").generate(["a"], temperature=-1.0),
        ["temperature", "-1.0"],
    ),
    "an existing report": (
        lambda: [save_report(), save_report()],
        ["stats.json", "overwrite=True"],
    ),
    "no store": (lambda: fa.open_store("folder"), ["folder"]),
    "a text as ids": (lambda: bert()("A cat."), ["input_ids", "model.trace(text)"]),
    "a pair among texts": (lambda: fa.extract(bert(), [("A", "b")]), ["tuple", "second texts"]),
    "bytes": (lambda: fa.extract(bert(), [b"A cat."]), ["bytes", "decode"]),
    "a setting of Hugging Face": (
        lambda: fa.from_pretrained("tiny-gpt2").generate("a", max_length=9),
        ["max_length", "max_new_tokens?"],
    ),
    "an id in place of a number": (lambda: small_store()["corpus.txt:1"], ["str", "0 to 2"]),
    "the folder of a run": (lambda: fa.from_pretrained(run_folder()), ["RUN/model?"]),
}


def small_store() -> Any:
    fa.extract_to("S", bert(), "corpus.txt", capture=fa.Capture(stats=("entropy",)))
    return fa.open_store("S")


def run_folder() -> str:
    Path("RUN/model").mkdir(parents=True)
    Path("RUN/model/config.json").write_text("{}", encoding="utf-8")
    return "RUN"


def save_report() -> object:
    return fa.stats_report(bert(), ["A cat."], compared=0).save("R", page=False)


@pytest.mark.parametrize("mistake", CALLED)
def test_a_mistake_in_python(mistake: str, place: Path) -> None:
    call, named = CALLED[mistake]
    with pytest.raises(FlaxattnError) as error:
        call()
    message = str(error.value)
    assert len(message.splitlines()) <= 3, message
    assert all(name in message for name in named), message
    assert not SHELL.search(message), message


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["extract", "trees.conllu", "-o", "OUT"],
        ["compare", "tiny-bert", "tiny-bert", "trees.conllu", "-o", "OUT", "--no-page"],
        ["ablate", "trees.conllu", "-o", "OUT", "--no-page"],
        ["weights", "trees.conllu", "--kinds", "attention", "-o", "OUT"],
    ],
    ids=lambda words: words[0],
)
def test_trees_are_read_where_texts_are(words: list[str], typed: Any, place: Path) -> None:
    Path("trees.conllu").write_text(
        "# text = The cat slept.\n"
        "1\tThe\t_\tDET\t_\t_\t2\tdet\t_\t_\n"
        "2\tcat\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_\n"
        "3\tslept\t_\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No\n"
        "4\t.\t_\tPUNCT\t_\t_\t3\tpunct\t_\t_\n\n",
        encoding="utf-8",
    )
    code, _, printed = typed(*words)
    assert code == 0, printed
    assert (place / "OUT").is_dir()


def test_the_state_of_a_page_is_taken_as_its_json() -> None:
    trace = bert().trace("A cat.")
    page = fa.head_view(trace, state='{"layer": 3, "head": null}')
    assert page.html == fa.head_view(trace, state={"layer": 3}).html


@pytest.mark.parametrize("words", [["doctor"], ["view", "hello"]])
def test_a_device_that_is_not_there_is_named(words: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "flaxattn", *words]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin", "HOME": str(tmp_path), "JAX_PLATFORMS": "cuda"},
        check=False,
    )
    output = done.stdout + done.stderr
    assert "jax cannot use cuda" in output and "JAX_PLATFORMS=cpu" in output
    assert done.returncode == (0 if words == ["doctor"] else 2), output
