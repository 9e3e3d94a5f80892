# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn answer` as a person types it, on a small random model."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from small_encoders import unigram, write_encoder

import flaxattn as fa

CONTEXT = "She said that he was not there. Berlin lies on the Spree; the river is slow. " * 3
QUESTIONS = ["Who said that?", "Where is the river?"]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answers") / "model"
    return write_encoder(folder, "ForQuestionAnswering", unigram())


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def give(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_answers_are_those_of_the_function(
    typed: Any, reader: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--model", reader, "--top", 3, "--null-answer", "--stride", 4]
    code, out, err = typed("answer", *QUESTIONS, "--context", CONTEXT, *words)
    assert (code, err) == (0, "")
    model = fa.from_pretrained(reader)
    expected = fa.answer_question(model, QUESTIONS, [CONTEXT] * 2, 3, null_answer=True, stride=4)
    lines = out.splitlines()
    assert [lines[0], lines[4]] == QUESTIONS
    for line, one in zip([*lines[1:4], *lines[5:]], [*expected[0], *expected[1]], strict=True):
        score, place, text = line.split(maxsplit=2)
        assert (score, place) == (f"{one.score:.4f}", f"{one.start}-{one.end}")
        assert text == (one.answer or "(no answer)")
    give(monkeypatch, CONTEXT)
    code, out, _ = typed("answer", *QUESTIONS, *words, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["question"] for row in rows] == QUESTIONS
    assert [[one["answer"] for one in row["answers"]] for row in rows] == [
        [one.answer for one in answers] for answers in expected
    ]
    assert rows[0]["answers"][0].keys() == {"score", "start", "end", "answer", "window"}


@pytest.mark.slow
def test_the_page_shows_the_window_of_the_first_answer(
    typed: Any, reader: Path, tmp_path: Path
) -> None:
    words = ["--model", reader, "--max-length", 60, "--stride", 8, "-o", "page.html"]
    code, _, err = typed("answer", *QUESTIONS, "--context", CONTEXT, *words)
    assert code == 0 and err.startswith(f"wrote {tmp_path / 'page.html'} (")
    assert (tmp_path / "page.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["--context", "notes.txt"], ["There is no file or folder 'notes.txt'."]),
        (["--context", " "], ["question 0: second text 0 is empty"]),
        (["--context", "a", "--model", "tiny-bert"], ["'tiny-bert' is a BertFor"]),
        (["--context", "a", "--max-length", "5"], ["question 0: the first text has"]),
        (["--context", "a", "--top", "0"], ["Invalid value for '--top'"]),
    ],
)
def test_refusals(typed: Any, reader: Path, words: list[str], lines: list[str]) -> None:
    model = [] if "--model" in words else ["--model", reader]
    code, out, err = typed("answer", "Who said that?", *words, *model)
    assert (code, out) == (2, "")
    shown = err.removeprefix("error: ").strip().splitlines()
    assert len(shown) <= 3
    for line, expected in zip(shown, lines, strict=False):
        assert line.startswith(expected)
