# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn fill-mask` as a person types it: arguments, files, standard input, JSON, pages."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

import flaxattn as fa

TEXTS = ["the cat is very [MASK] .", "a [MASK] and a [MASK]"]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def give(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


@pytest.mark.slow
def test_fillings_are_those_of_the_function(typed: Any) -> None:
    code, out, err = typed("fill-mask", *TEXTS, "--top", 2)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    expected = fa.fill_mask(fa.from_pretrained("tiny-bert"), TEXTS, 2)
    assert [lines[0], lines[3]] == TEXTS
    assert [lines[4], lines[7]] == ["mask 1 of 2", "mask 2 of 2"]
    shown = [line.split(maxsplit=2) for line in (*lines[1:3], *lines[5:7], *lines[8:10])]
    fillings = [one for masks in expected for mask in masks for one in mask]
    assert shown == [[f"{one.probability:.4f}", one.token, one.text] for one in fillings]


@pytest.mark.slow
def test_texts_come_from_arguments_files_and_standard_input(
    typed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    give(monkeypatch, f"{TEXTS[1]}\r\n{TEXTS[0]}\n")
    words = ["--json", "--top", 1, "--file", "some.txt"]
    code, out, _ = typed("fill-mask", TEXTS[0], "-", *words)
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [row["text"] for row in rows] == [TEXTS[i] for i in (0, 1, 0, 0, 1)]
    assert [row["place"] for row in rows] == [
        "text 1",
        *(f"standard input, line {line}" for line in (1, 2)),
        *(f"some.txt, line {line}" for line in (1, 2)),
    ]
    assert rows[0]["masks"] == rows[2]["masks"] == rows[3]["masks"]
    assert [len(row["masks"]) for row in rows] == [1, 2, 1, 1, 2]
    give(monkeypatch, TEXTS[0])
    assert json.loads(typed("fill-mask", "--json")[1])["place"] == "standard input, line 1"


def test_the_page_is_of_the_first_text(typed: Any, tmp_path: Path) -> None:
    code, _, err = typed("fill-mask", *TEXTS, "--view")
    assert code == 0 and err.startswith(f"wrote {tmp_path / 'attention.html'} (")
    page = (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert "very" in page and '"levels":["atlas","model","head","text","neuron"]' in page


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["no hole"], ["text 1 has no mask: 'no hole'", "expected [MASK] at least once"]),
        ([TEXTS[0], ""], ["text 2 is empty", "expected a text"]),
        (["--file", "bad.txt"], ["bad.txt, line 2 is empty", "expected a text"]),
        (["--file", "none.txt"], ["cannot read none.txt", "No such file"]),
        (["some.csv"], ["There is no file or folder 'some.csv'."]),
        (["[MASK]", "--model", "tiny-gpt2"], ["'tiny-gpt2' is a GPT2LMHeadModel, which predicts"]),
        (["[MASK]", "--top", "10000"], ["10000 tokens are requested", "expected 1 to"]),
        (["[MASK]" * 200], ["text 0 is too long: 202 tokens"]),
    ],
)
def test_refusals(typed: Any, tmp_path: Path, words: list[str], lines: list[str]) -> None:
    (tmp_path / "bad.txt").write_text("[MASK]\n\n", encoding="utf-8")
    code, out, err = typed("fill-mask", *words)
    assert (code, out) == (2, "")
    shown = err.removeprefix("error: ").strip().splitlines()
    assert len(shown) <= 3
    for line, expected in zip(shown, lines, strict=False):
        assert line.startswith(expected)


def test_nothing_on_standard_input(typed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, "")
    code, _, err = typed("fill-mask")
    assert code == 2 and err.startswith("error: there is no text\ngive one as an argument")
