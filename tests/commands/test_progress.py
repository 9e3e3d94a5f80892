# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every command that may run for more than two seconds says what it does, and how far it is."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import jax
import pytest
import report_cases
import store_cases

from flaxattn.pipeline.progress_reporter import ProgressReporter

# Words of each command, the model left to its default, and a stage that must be shown.
COMMANDS = {
    "stats": ("stats trees.conllu --limit 3", "scoring heads: 3 of 3"),
    "roles": ("roles trees.conllu --limit 3 --drawings 20", "shuffling trees: "),
    "compare": ("compare tiny-bert tiny-bert trees.txt --limit 3", "comparing: 3 of 3"),
    "ablate": ("ablate trees.txt --limit 3", "pruning: 3 of 3"),
    "probe": ("probe trees.conllu --limit 3", "reading heads: 3"),
    "probe structural": (
        "probe few.conllu --train train.conllu --structural --epochs 2",
        "fitting: 2",
    ),
    "probe pronouns": ("probe gap.tsv --pronouns gap", "reading heads"),
    "weights": ("weights trees.txt --limit 3", "measuring rollout: 3 of 3"),
    "search build": (
        "search build trees.txt --layers 1 --limit 3",
        "tokens, shard 1 of 1: 3 texts, ",
    ),
    "translate": ("translate dates.txt --model tiny-dates", "translating: 3 of 3"),
    "evaluate": (
        "evaluate --model tiny-dates --source dates.txt --reference dates.txt",
        "translating: 3 of 3",
    ),
    "evaluate alignments": (
        "evaluate --model tiny-dates --source dates.txt --reference iso.txt --gold gold.txt",
        "aligning: 3 of 3",
    ),
    "store verify": ("store verify store", "verifying: "),
    "store merge": ("store merge store part", "merging: "),
    "store export": ("store export store --format csv", "exporting: 7 of 7 texts"),
    "extract": (
        "extract trees.txt --shard-texts 2 --limit 4",
        "tokens, shard 2 of 2: 4 texts, ",
    ),
    "train": (
        "train bert-mlm --data words.txt --config tiny.yaml",
        "training: 2 of 2 steps, loss ",
    ),
    "tokenizer train": (
        "tokenizer train words.txt --vocab-size 200",
        "learning a vocabulary: ",
    ),
    "generate": ("generate She --model tiny-gpt2 --samples 2", "writing: "),
    "view": ("view She --text --weights rollout", "loading tiny-bert: "),
    "demo": ("demo", "loading tiny-bert: "),
    "bench": (
        "bench --case seven --request nothing --rounds 1 --torch-python=",
        "measuring: 1 of 2 rows, seven, nothing, forward + backward, ",
    ),
}
ANNOUNCED = (
    *("stats", "roles", "compare", "ablate", "weights", "probe", "probe structural"),
    *("store verify", "store merge", "store export", "bench"),
    *(
        "extract",
        "train",
        "tokenizer train",
        "search build",
        "translate",
        "evaluate",
        "evaluate alignments",
    ),
)
WITHOUT_OUT = ("store verify", "generate")
UNCOUNTED = ("tokenizer train", "generate", "view", "demo")  # stages without steps
RECIPE = """
vocab_size: 90
num_hidden_layers: 1
num_attention_heads: 2
hidden_size: 32
intermediate_size: 64
max_position_embeddings: 16
paragraphs_per_document: 1
lengths: [16]
batch_size: 2
steps: 2
log_every: 1
log_seconds: 0
devices: 1
"""
COST = r"[\d,]+ (texts|sentences|shards|rows|files|of [\d,]+ steps)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("progress")
    report_cases.write_inputs(folder)
    dates = "".join(f"{date}\n" for date, _ in report_cases.DATES[:3])
    (folder / "dates.txt").write_text(dates, encoding="utf-8")
    iso = "".join(f"{target}\n" for _, target in report_cases.DATES[:3])
    (folder / "iso.txt").write_text(iso, encoding="utf-8")
    (folder / "gold.txt").write_text("0-0\n" * 3, encoding="utf-8")
    trees = (folder / "trees.conllu").read_text(encoding="utf-8").strip().split("\n\n")
    for name, some in {"few": trees[:3], "train": trees[3:]}.items():
        (folder / f"{name}.conllu").write_text("\n\n".join(some) + "\n\n", encoding="utf-8")
    words = [f"the {a} {b} saw a {c}" for a in "abcde" for b in "fghij" for c in "klmno"]
    (folder / "words.txt").write_text("\n\n".join(words) + "\n", encoding="utf-8")
    (folder / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
    texts = store_cases.traces("encoder", 7)
    store_cases.write(folder / "store", texts)
    store_cases.write(folder / "part", texts, only=[1])
    return folder


@pytest.mark.few("merge")
@pytest.mark.parametrize("name", COMMANDS)
def test_every_long_command_shows_progress(typed, folder, tmp_path, monkeypatch, name):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("flaxattn.pipeline.progress_reporter.DELAY", 0.0)
    monkeypatch.setattr("flaxattn.pipeline.progress_reporter.PAUSE", 0.005)
    report = ProgressReporter.__call__

    def report_and_show(self, *update):  # whatever time a stage takes, its lines are printed
        report(self, *update)
        self.show()

    monkeypatch.setattr(ProgressReporter, "__call__", report_and_show)
    stage = COMMANDS[name][1]
    with promotion(name):
        code, _, err = typed(*line_of(name, tmp_path))
    assert code == 0, err
    assert "\r" not in err and "\x1b" not in err and err.endswith("\n")
    lines = err.splitlines()
    assert any(stage in line for line in lines), sorted({line.split(":")[0] for line in lines})
    rates = [line for line in lines if re.search(r"\d( \w+)?/s|, .* left$", line)]
    assert rates or name in UNCOUNTED
    if name in ANNOUNCED:
        first = next(n for n, line in enumerate(lines) if re.match(COST, line))
        assert first < min(n for n, line in enumerate(lines) if stage in line)


@pytest.mark.few("store")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_terminal_gets_a_bar(typed, folder, tmp_path, monkeypatch, name):
    monkeypatch.chdir(folder)
    ours, theirs = pty.openpty()
    parts: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(ours, parts))
    reader.start()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with promotion(name):
            code, out, _ = typed(*line_of(name, tmp_path))
    reader.join()
    shown = b"".join(parts).decode()
    assert code == 0, shown
    assert "━" in shown and "\x1b" not in out
    if name in ANNOUNCED:
        assert re.search(COST, shown)


def promotion(name: str) -> contextlib.AbstractContextManager[object]:
    """Let optimizers mix dtypes, as in all tests of training."""
    strict = name != "train"
    return contextlib.nullcontext() if strict else jax.numpy_dtype_promotion("standard")


def read_all(ours: int, parts: list[bytes]) -> None:
    """Read a pseudo-terminal until its other end is closed."""
    with contextlib.suppress(OSError):
        while part := os.read(ours, 4096):
            parts.append(part)


def line_of(name: str, tmp_path: Path) -> list[str]:
    """The words of a command, with the place of its results."""
    out = [] if name in WITHOUT_OUT else ["--out", str(tmp_path / "out")]
    return [*COMMANDS[name][0].split(), *out]


def run(words: list[str], folder: Path, stderr: int) -> subprocess.Popen:
    code = (
        "import flaxattn.pipeline.progress_reporter as p; p.DELAY, p.PAUSE = 0.0, 0.05\n"
        "from flaxattn import cli; raise SystemExit(cli.main())"
    )
    command = [sys.executable, "-c", code, *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=stderr)


WORDS = ["weights", "trees.txt", "--limit", "2", "--kinds", "attention,norm", "--out"]


@pytest.mark.slow
def test_a_pseudo_terminal_gets_a_bar_and_standard_output_the_results(folder, tmp_path):
    ours, theirs = pty.openpty()
    process = run([*WORDS, str(tmp_path / "r")], folder, theirs)
    os.close(theirs)
    parts: list[bytes] = []
    read_all(ours, parts)
    stderr = b"".join(parts)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, stderr.decode()
    assert b"weights.json" in out and b"weights.json" not in stderr
    assert "━".encode() in stderr and b"2 texts, tiny-bert: attention, norm" in stderr


@pytest.mark.slow
def test_a_pipe_gets_plain_lines(folder, tmp_path):
    process = run([*WORDS, str(tmp_path / "r")], folder, subprocess.PIPE)
    out, stderr = process.communicate(timeout=120)
    assert process.returncode == 0 and b"weights.json" in out
    assert b"\r" not in stderr and b"\x1b" not in stderr and stderr.endswith(b"\n")
    assert (
        b"norm: 2 of 2" in stderr or b"measuring norm" in stderr or b"writing the report" in stderr
    )


def test_gradients_without_a_loss_are_refused_before_anything_is_computed(
    typed, folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("flaxattn.pipeline.extraction.extract_shards", None)
    words = ("weights", "trees.txt", "--task-head", "BertModel", "--kinds", "gradient")
    code, _, err = typed(*words, "--out", tmp_path / "r")
    assert code == 2 and "none of gradient can be computed here" in err
    assert len(err.splitlines()) <= 3 and not (tmp_path / "r").exists()


def test_a_bad_row_is_refused_before_the_model_is_loaded(typed, tmp_path, monkeypatch):
    monkeypatch.setattr("flaxattn.pretrained.from_pretrained.from_pretrained", None)
    (tmp_path / "a.jsonl").write_text('{"text": "A cat."}\n{"txt": 1}\n', encoding="utf-8")
    code, _, err = typed("stats", tmp_path / "a.jsonl", "--out", tmp_path / "r")
    assert code == 2 and "a.jsonl" in err and len(err.splitlines()) <= 3


REFUSED = {
    "unknown tokenizer": (
        "evaluate --model none --source dates.txt --reference iso.txt --tokenize x",
        "sacrebleu has no tokeniser 'x'",
    ),
    "too few references": (
        "evaluate --model none --source dates.txt --reference two.txt",
        "3 translations and 2 references",
    ),
    "metrics in a folder": (
        "evaluate --model none --source dates.txt --reference iso.txt --out store",
        "Cannot write the metrics: 'store' is a folder",
    ),
    "translations in a folder": (
        "translate dates.txt --model none --out store",
        "Cannot write the translations: 'store' is a folder",
    ),
    "page in no folder": (
        "translate dates.txt --model none --view no/a.html",
        "Cannot write the page: 'no/a.html' is in a folder that does not exist",
    ),
    "unknown kind of index": (
        "search build trees.txt --layers 0 --model none --kind x --out new",
        "kind 'x' is unknown",
    ),
    "page of a generated text in a folder": (
        "generate She --model none --out store",
        "Cannot write the page: 'store' is a folder",
    ),
    "unknown kind of attribution": ("weights trees.txt --kinds x --out new", "'x' is not one of"),
    "unknown statistic": (
        "extract trees.txt --stats x --out new",
        "unknown statistic 'x'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_be_refused_is_refused_before_a_model_is_loaded(typed, folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("flaxattn.pretrained.from_pretrained.from_pretrained", None)
    (folder / "two.txt").write_text("a\nb\n", encoding="utf-8")
    (folder / "bad.jsonl").write_text('{"text": "A cat."}\n{"txt": 1}\n', encoding="utf-8")
    words, message = REFUSED[name]
    code, out, err = typed(*words.split())
    assert (code, out) == (2, "") and message in err, err
    assert len(err.splitlines()) <= 4 and not (folder / "new").exists()


def test_a_missing_sacrebleu_is_reported_before_anything_is_translated(typed, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("flaxattn.pretrained.from_pretrained.from_pretrained", None)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    words = "evaluate --model tiny-dates --source dates.txt --reference iso.txt"
    code, out, err = typed(*words.split())
    assert (code, out) == (2, "") and "pip install 'flaxattn[translation]'" in err
    assert len(err.splitlines()) <= 3
