# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn tokenizer train`: every kind of file, the same vocabulary; what it says of bad ones."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flaxattn.cli import main
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import train_wordpiece

TEXTS = ["The cats sat on mats.", "Nine cats saw a Bird singing", "and sat, seeing a cat's mat."]


def vocabulary(folder: Path) -> list[str]:
    return (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(TEXTS), encoding="utf-8")
    return path


def learn(*arguments: object) -> int:
    return main(["tokenizer", "train", *map(str, arguments)])


def test_every_kind_of_file(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "a.jsonl"
    rows.write_text("".join(json.dumps({"body": t}) + "\n" for t in TEXTS), encoding="utf-8")
    pq.write_table(pa.table({"body": TEXTS}), tmp_path / "a.parquet")
    found = []
    for path in (text, rows, tmp_path / "a.parquet"):
        out = tmp_path / path.suffix[1:]
        column = ("--text-column", "body")
        assert learn(path, "--out", out, "--vocab-size", 50, "--max-length", 64, *column) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"wrote 50 tokens to {out}"
        found.append(vocabulary(out))
    assert found[0] == found[1] == found[2]
    assert found[0][:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert "cat" in found[0]
    assert Tokenizer.from_dir(tmp_path / "txt").max_length == 64


def test_cased_or_not(text: Path, tmp_path: Path) -> None:
    assert learn(text, "--out", tmp_path / "low", "--vocab-size", 60) == 0
    assert learn(text, "--out", tmp_path / "cased", "--vocab-size", 60, "--cased") == 0
    assert "T" in "".join(vocabulary(tmp_path / "cased")[5:])
    joined = "".join(vocabulary(tmp_path / "low")[5:])
    assert joined == joined.lower()


def test_bad_rows(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text.write_bytes(text.read_bytes() + b"\nStra\xdfe\n")
    assert learn(text, "--out", tmp_path / "out", "--vocab-size", 60) == 2
    error = capsys.readouterr().err
    assert f"error: {text}, line 6: byte 0xdf at position 5 is not UTF-8" in error
    assert not (tmp_path / "out").exists()
    skip = ("--on-error", "quarantine")
    assert learn(text, "--out", tmp_path / "out", "--vocab-size", 60, *skip) == 0
    assert "left out 1 lines or rows that cannot be used" in capsys.readouterr().out
    assert (tmp_path / "out/errors.jsonl").is_file()


@pytest.mark.parametrize(
    ("content", "size", "part"),
    [
        ("a cat", 5, "a vocabulary of 5 tokens is too small"),
        (" \n", 60, "no text to learn a vocabulary from"),
    ],
)
def test_refused(
    content: str, size: int, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.txt"
    path.write_text(content, encoding="utf-8")
    assert learn(path, "--out", tmp_path / "out", "--vocab-size", size) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {part}")
    assert len(error.splitlines()) <= 3
    assert not (tmp_path / "out").exists()


def test_no_tokenizer_is_overwritten(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (text, "--out", tmp_path / "out", "--vocab-size", 60)
    assert learn(*arguments) == 0
    assert learn(*arguments) == 2
    assert "holds a tokenizer already" in capsys.readouterr().err


def test_two_runs_learn_the_same(text: Path, tmp_path: Path) -> None:
    """Every count is a tie here: nothing but the order of letters decides."""
    text.write_text(" ".join(a + b + c for a in "xyz" for b in "mnop" for c in "uvw"))
    for name in "ab":
        assert learn(text, "--out", tmp_path / name, "--vocab-size", 30) == 0
    assert vocabulary(tmp_path / "a") == vocabulary(tmp_path / "b")
    assert len(vocabulary(tmp_path / "a")) == 30


class Many:
    """A text, many times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __iter__(self) -> Iterator[str]:
        return (" ".join(TEXTS) + "\n" for _ in range(self.times))


@pytest.mark.slow
def test_texts_are_not_kept() -> None:
    peaks = []
    for times in (2000, 16000):
        tracemalloc.start()
        train_wordpiece(Many(times), 60, True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.2 + 20_000
    once = train_wordpiece(iter(Many(3)), 60, True)
    assert once.backend.get_vocab() == train_wordpiece(Many(3), 60, True).backend.get_vocab()
