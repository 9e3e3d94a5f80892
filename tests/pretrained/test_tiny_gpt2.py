# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The built-in language model is trained: it predicts, goes on with text, and can be fine-tuned.

The passages were written for this test; no part of them is in the training text.
"""

import time
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.measures.induction import INDUCTION, PREVIOUS
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.train.lm import train_lm
from flaxattn.train.lm_recipe import LanguageModelRecipe
from flaxattn.train.run_folder import RunFolder

PASSAGES = [
    "The old gentleman put down his cup and looked at her for a long time without a word. At last "
    "he said that he had expected nothing else, and that she might do as she pleased.",
    "They went down to the harbour before it was light. A boat was waiting, and two men with "
    "lanterns, who asked no questions and would not take the money that he offered them.",
    "“You are very kind,” said the young man, “but I cannot stay. My mother is alone in the "
    "house, and the roads will be bad before the evening.”",
]


@pytest.fixture(scope="module")
def model() -> PretrainedDecoder:
    loaded = fa.from_pretrained("tiny-gpt2")
    assert isinstance(loaded, PretrainedDecoder)
    return loaded


def test_it_predicts_text_it_never_read(model: PretrainedDecoder) -> None:
    """Bits per byte, which do not depend on how a text is cut into pieces."""
    nats = 0.0
    for passage in PASSAGES:
        ids = np.asarray(model.tokenizer.encode(passage).input_ids)
        ids = np.concatenate([[[model.config.bos_token_id]], ids], axis=1)
        scores = np.asarray(model(input_ids=ids).logits, np.float64)[0, :-1]
        norms = np.logaddexp.reduce(scores, axis=1)
        nats -= (scores[np.arange(len(scores)), ids[0, 1:]] - norms).sum()
    size = sum(len(passage.encode()) for passage in PASSAGES)
    assert nats / np.log(2) / size < 1.4


def test_it_goes_on_with_words(model: PretrainedDecoder) -> None:
    prompts = ["It was", "The captain", "She looked at"]
    drawn = model.generate(prompts, max_new_tokens=24, do_sample=True, temperature=0.7)
    for prompt, text in zip(prompts, drawn, strict=True):
        assert text.startswith(prompt + " ") and len(text.split()) > 10


def test_a_head_prefers_the_previous_token(model: PretrainedDecoder) -> None:
    """Even in random text; no head of it looks for what followed a token before."""
    scores = fa.detect_heads(model)
    assert scores.strongest(PREVIOUS, 1)[0].lift > 2
    assert scores.strongest(INDUCTION, 1)[0].lift < 1.5


def test_the_trace_of_what_it_writes(model: PretrainedDecoder) -> None:
    (text,), trace = model.generate("The old man", max_new_tokens=6, trace=True)
    assert trace.decoder is not None and trace.decoder.weights is not None
    assert trace.decoder.weights.shape[:3] == (4, 1, 6)
    assert "".join(trace[0].tokens[0]) == text
    assert trace.segments is not None  # the prompt, and what was written
    assert trace.segments.tolist() == [[0] * 3 + [1] * 6]


def test_the_shipped_files_are_small_and_complete() -> None:
    folder = files("flaxattn") / "pretrained" / "tiny-gpt2"
    sizes = {item.name: len(item.read_bytes()) for item in folder.iterdir()}
    assert set(sizes) == {
        "README.md",
        "config.json",
        "model.safetensors",
        "recipe.yaml",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(sizes.values()) <= 12 * 2**20


@pytest.mark.slow
def test_three_minutes_of_fine_tuning_on_a_new_book(tmp_path: Path, flaxattn_data: Path) -> None:
    """The last tenth of a book that the model never read is told better after the rest of it."""
    book = flaxattn_data / "text" / "books" / "great_expectations_1400.txt"
    text = book.read_text(encoding="utf-8")
    end = text.index("\n\n", len(text) * 9 // 10)
    (tmp_path / "read.txt").write_text(text[:end], encoding="utf-8")
    (tmp_path / "heldout.txt").write_text(text[end:], encoding="utf-8")
    settings = {"epochs": 0.6, "evaluations": 2, "sample_tokens": 0, "devices": 1}
    recipe = LanguageModelRecipe(model="tiny-gpt2", reflow=True, **settings)
    begun = time.monotonic()
    summary = train_lm(
        [tmp_path / "read.txt"], RunFolder(tmp_path / "run"), recipe, [tmp_path / "heldout.txt"]
    )
    assert time.monotonic() - begun < 180
    before, after = summary["heldout"][0]["perplexity"], summary["result"]["perplexity"]
    assert after < 0.85 * before
