# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Snippets of the page for users of Hugging Face run, change few lines, and compute right."""

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flaxattn as fa

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "from-huggingface.md"
CHANGED = 2  # lines beside imports
SNIPPET = re.compile(
    r"^## (.+?)\n\nHugging Face:\n\n```text\n(.*?)```\n\nflaxattn:\n\n```python\n(.*?)```",
    re.MULTILINE | re.DOTALL,
)
SNIPPETS = {
    title: (theirs, ours)
    for title, theirs, ours in SNIPPET.findall(DOCUMENT.read_text(encoding="utf-8"))
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("snippets")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.chdir(folder)
    text = DOCUMENT.read_text(encoding="utf-8")
    exec(compile(text.split("```python\n", 1)[1].split("```")[0], "stand-ins", "exec"), {})
    monkeypatch.undo()
    return folder


@pytest.fixture
def ran(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(title: str) -> dict[str, Any]:
        monkeypatch.chdir(folder)
        names: dict[str, Any] = {}
        exec(compile(SNIPPETS[title][1], title, "exec"), names)
        return names

    return run


def statements(text: str) -> tuple[list[str], list[str]]:
    """Imports, and other lines."""
    lines = [line for line in text.splitlines() if line.strip()]
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    return imports, [line for line in lines if line not in imports]


@pytest.mark.parametrize("title", SNIPPETS)
def test_at_most_two_lines_change_beside_the_import(title: str) -> None:
    theirs, ours = SNIPPETS[title]
    ast.parse(theirs)
    assert all("flaxattn" in line for line in statements(ours)[0])
    assert not any("flaxattn" in line for line in statements(theirs)[0])
    new = [line for line in statements(ours)[1] if line not in statements(theirs)[1]]
    assert len(new) <= CHANGED, new


def test_there_are_ten_and_more() -> None:
    assert len(SNIPPETS) >= 10
    assert DOCUMENT.read_text(encoding="utf-8").count("```text") == len(SNIPPETS)


@pytest.mark.slow
def test_hidden_states_and_attention(ran: Any) -> None:
    names = ran("Hidden states and attention")
    model, attentions = names["model"], names["attentions"]
    size = len(names["inputs"]["input_ids"][0])
    shape = (1, model.config.num_attention_heads, size, size)
    assert len(attentions) == model.config.num_hidden_layers
    assert all(one.shape == shape for one in attentions)
    for one, other in zip(attentions, model.trace("The cat sat.").attentions, strict=True):
        np.testing.assert_allclose(np.asarray(one).sum(-1), 1, rtol=1e-5)
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert names["states"].shape == (1, size, model.config.hidden_size)


@pytest.mark.slow
def test_masks(ran: Any) -> None:
    names, filled = ran("Scores behind a mask"), ran("Fill a mask")
    ids = names["inputs"]["input_ids"][0]
    tokenizer = names["model"].tokenizer
    place = int(np.flatnonzero(ids == tokenizer.mask_id)[0])
    best = int(np.asarray(names["logits"])[0, place].argmax())
    assert filled["best"] == tokenizer.convert_ids_to_tokens([best])[0]


@pytest.mark.slow
def test_an_answer(ran: Any) -> None:
    names = ran("Answer a question")
    best = names["best"]
    assert names["context"][best.start : best.end] == best.answer != ""
    assert 0 < best.score < 1


@pytest.mark.slow
def test_labels_of_texts_and_tokens(ran: Any) -> None:
    names = ran("Classify a text")
    model = names["model"]
    logits = model(**model.tokenizer("The soup was cold.", return_tensors="np")).logits
    assert names["best"] == model.config.id2label[int(np.asarray(logits)[0].argmax())]
    names = ran("Label tokens")
    inputs = names["inputs"]
    scores = np.asarray(names["model"](**inputs).logits)[0]
    assert names["labels"] == [f"LABEL_{number}" for number in scores.argmax(-1)]
    assert len(names["labels"]) == inputs["input_ids"].shape[1]


@pytest.mark.slow
def test_generated_texts(ran: Any) -> None:
    names = ran("Continue a text")
    model = names["model"]
    ids = model.tokenizer("The old man", return_tensors="np")["input_ids"]
    for _ in range(8):  # greedily, with the penalty on repetition of generation_config.json
        scores = np.array(model(ids).logits)[0, -1]
        known = np.unique(ids)
        scores[known] = np.where(scores[known] < 0, scores[known] * 1.15, scores[known] / 1.15)
        ids = np.append(ids, [[scores.argmax()]], 1)
    assert names["text"] == model.tokenizer.decode(ids[0])
    assert ran("Translate")["text"] == "2003-07-12"


@pytest.mark.slow
def test_vectors_of_sentences(ran: Any) -> None:
    names = ran("Vectors of sentences")
    model, vectors = names["model"], names["vectors"]
    for text, vector in zip(names["sentences"], vectors, strict=True):
        inputs = model.tokenizer(text, return_tensors="np")
        states = model(**inputs, output_hidden_states=True).hidden_states[-1]
        mean = np.asarray(states)[0, 1:-1].mean(0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-4)
    np.testing.assert_allclose(np.diag(names["likeness"]), 1, rtol=1e-5)


@pytest.mark.slow
def test_a_view_and_a_copy(ran: Any, folder: Path) -> None:
    ran("Look at attention with BertViz")
    names = ran("Save and load")
    assert (folder / "copy" / "config.json").is_file()
    ids = np.array([[5, 6, 7]])
    original = fa.from_pretrained("tiny-bert", "base")(ids).last_hidden_state
    np.testing.assert_array_equal(names["model"](ids).last_hidden_state, original)
