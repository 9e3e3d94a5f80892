# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The built-in language model is trained: it predicts, continues with text, and can be fine-tuned.

The passages were written for this test; no part of them is in the training text.
"""

import time
from collections import Counter
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.measures.induction import DUPLICATE, INDUCTION, PREVIOUS, repeated_tokens
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.train.lm import train_lm
from flaxattn.train.recipe import LanguageModelRecipe
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.settings import read_recipe

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_it_continues_with_words(model: PretrainedDecoder) -> None:
    prompts = ["It was", "The captain", "She looked at"]
    drawn = model.generate(prompts, max_new_tokens=24, do_sample=True, temperature=0.7)
    for prompt, text in zip(prompts, drawn, strict=True):
        assert text.startswith(prompt + " ") and len(text.split()) > 10


@pytest.mark.slow
def test_it_does_not_loop_at_its_own_settings(model: PretrainedDecoder) -> None:
    """No four pieces in a row stand three times in a text, whatever is drawn."""
    prompts = ["It was", "The captain", "She looked at", "There was no", "My dear"]
    for seed in range(3):
        for text in model.generate(prompts, max_new_tokens=60, seed=seed):
            ids = model.tokenizer.ids([text])[0]
            fours = Counter(zip(*(ids[n:] for n in range(4)), strict=False))
            assert max(fours.values()) < 3, text


@pytest.mark.slow
@pytest.mark.few("20")
@pytest.mark.parametrize("length", [20, 50, 100])
def test_heads_look_at_the_previous_token_and_at_what_followed_the_same_before(
    model: PretrainedDecoder, length: int
) -> None:
    scores = fa.detect_heads(model, length=length)
    assert scores.strongest(PREVIOUS, 1)[0].score >= 0.7
    assert [head.score >= 0.5 for head in scores.strongest(INDUCTION, 2)] == [True, True]
    assert scores.strongest(DUPLICATE, 1)[0].score < 0.1


@pytest.mark.slow
def test_it_copies_random_tokens(model: PretrainedDecoder) -> None:
    """Of the second of two equal spans nearly every token is predicted, of the first hardly any."""
    ids = repeated_tokens(8, 50, model.config.vocab_size, first=0, avoid=[0], seed=7)
    right = np.asarray(model(input_ids=ids).logits)[:, :-1].argmax(-1) == ids[:, 1:]
    assert right[:, 51:].mean() > 0.9
    assert right[:, :50].mean() < 0.05


@pytest.mark.slow
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
        "generation_config.json",
        "model.safetensors",
        "recipe-copying.yaml",
        "recipe-novels.yaml",
        "recipe.yaml",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(sizes.values()) <= 12 * 2**20


def test_the_recipes_of_its_card_can_be_run() -> None:
    """The later stages keep what documents are and which of them are held out."""
    folder = files("flaxattn") / "pretrained" / "tiny-gpt2"
    first, copying, novels = (
        read_recipe(LanguageModelRecipe, Path(str(folder / f"recipe{stage}.yaml")))
        for stage in ("", "-copying", "-novels")
    )
    for later in (copying, novels):
        for name in (*LanguageModelRecipe.cutting, "heldout_fraction", "block", "seed"):
            assert getattr(later, name) == getattr(first, name), name
        assert later.model_dropout == 0 and later.repeated_rows
    assert (copying.text_rows, novels.text_rows) == (2, 6)


@pytest.mark.slow
def test_perplexity_of_the_documents_that_were_held_out(
    tmp_path: Path, flaxattn_data: Path
) -> None:
    """As its card says: the first 50,000 tokens, in windows of 256 that overlap by half."""
    books = "bleak_house_1023 david_copperfield_766 middlemarch_145 moby_dick_2701"
    names = [*books.split(), "war_and_peace_2600"]
    paths = [flaxattn_data / "text" / "books" / f"{name}.txt" for name in names]
    folder = files("flaxattn") / "pretrained" / "tiny-gpt2"
    changes = ["steps=1", "batch_size=4", "evaluate_tokens=50000", "sample_tokens=0", "devices=1"]
    own = Path(str(folder / "recipe-novels.yaml"))
    recipe = read_recipe(LanguageModelRecipe, own, changes, {"model": "tiny-gpt2"})
    summary = train_lm(paths, RunFolder(tmp_path / "run"), recipe)
    assert summary["heldout_tokens"] == 74_343
    assert summary["heldout"][0]["perplexity"] < 88


@pytest.mark.slow
def test_three_minutes_of_fine_tuning_on_a_new_book(tmp_path: Path, flaxattn_data: Path) -> None:
    """The rest of a book that the model never read makes its last tenth more predictable."""
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
    assert after < 0.88 * before
