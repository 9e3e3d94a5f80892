# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From text to rows for next-word prediction: nothing lost or twice, nothing across a border."""

import itertools
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.errors import InputError
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import END, train_byte_bpe
from flaxattn.train.corpus import TokenCorpus, build_corpus
from flaxattn.train.lm import TextFeed
from flaxattn.train.lm_model import (
    TokenRows,
    bytes_per_token,
    cut_chunks,
    read_plain,
)
from flaxattn.train.recipe import LanguageModelRecipe
from flaxattn.train.settings import build, read_recipe

BLOCK, END_ID = 8, 0
TEXTS = [
    "The cat sat on the mat.",
    "Zwölf Boxkämpfer jagen Viktor.",
    "日本語 🦜 and\n\n  tabs\tin it",
]
Store = Callable[[Sequence], TokenCorpus]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_byte_bpe([*TEXTS, "the cat and the mat " * 5], 300)


def numbered(lengths: Sequence[int]) -> list[list[list[int]]]:
    """Documents in which no token occurs twice."""
    first = 1 + np.cumsum([0, *lengths])
    return [[list(range(a, b))] for a, b in itertools.pairwise(first)]


LENGTHS = [1, 3, 8, 9, 17, 40, 2, 2, 5, 7, 16, 1, 24]


@pytest.fixture
def corpus(store: Store) -> TokenCorpus:
    return store(numbered(LENGTHS))


def predictions(rows: TokenRows) -> list[tuple[tuple[int, ...], int]]:
    """The context and the target of each scored position."""
    batch, found = rows.batch(np.arange(len(rows))), []
    for row, place in np.argwhere(np.asarray(batch.label_mask) > 0):
        same = batch.segment_ids[row] == batch.segment_ids[row, place]
        same &= np.arange(len(same)) <= place
        context = tuple(int(i) for i in np.asarray(batch.input_ids)[row][same])
        found.append((context, int(batch.labels[row, place])))
    return sorted(found)


@pytest.mark.parametrize("stride", [1, 3, 7, 8])
def test_each_token_is_scored_once_with_the_context_that_its_window_gives(
    corpus: TokenCorpus, stride: int
) -> None:
    """Against brute force: window k begins at k * stride, and scores what no earlier one scored."""
    rows = TokenRows(corpus, cut_chunks(corpus, BLOCK, stride), BLOCK, 8, END_ID)
    expected = []
    for document in corpus:
        text, scored = [*map(int, document), END_ID], 1
        for begin in range(0, len(text), stride):
            for target in range(max(scored, begin + 1), min(begin + BLOCK, len(text) - 1) + 1):
                expected.append((tuple(text[begin:target]), text[target]))
                scored = target + 1
    assert predictions(rows) == sorted(expected)
    assert len(expected) == sum(LENGTHS)


@pytest.mark.slow
@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(2, 12), st.data())
def test_chunks_of_any_lengths(lengths: list[int], block: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, block))
    corpus = TokenCorpus(Path())
    bounds = np.cumsum([0, *lengths])
    vars(corpus).update(
        sentences=bounds, documents=np.arange(len(bounds)), members=np.arange(len(lengths))
    )
    chunks = cut_chunks(corpus, block, stride)
    assert chunks.size.max() <= block
    scored = [
        place
        for start, size, skipped in zip(chunks.start, chunks.size, chunks.skipped, strict=True)
        for place in range(start + skipped, start + size)
    ]
    assert scored == list(range(sum(lengths)))
    assert (chunks.start + chunks.size)[chunks.last].tolist() == bounds[1:].tolist()
    for limit in (1, sum(lengths) // 2 + 1, sum(lengths), sum(lengths) + 1):
        some = chunks.first(limit)
        count = (some.size - some.skipped).sum()
        assert min(limit, sum(lengths)) <= count < limit + block
    assert chunks.first(0).size.sum() == chunks.size.sum()


def test_a_row_holds_whole_chunks_side_by_side(corpus: TokenCorpus) -> None:
    rows = TokenRows(corpus, cut_chunks(corpus, BLOCK, BLOCK), BLOCK, 8, END_ID)
    batch = rows.batch(np.arange(len(rows)), len(rows) + 2)
    assert batch.input_ids.shape == (len(rows) + 2, BLOCK)
    assert not np.asarray(batch.attention_mask)[-2:].any()
    assert not np.asarray(batch.label_mask)[-2:].any()
    assert all(array.dtype == np.int32 for array in batch[:-1])
    assert len(rows) <= -(-sum(LENGTHS) // BLOCK) + 1  # hardly any padding
    for ids, mask, places, segments in zip(*(np.asarray(x) for x in batch[:4]), strict=True):
        count = mask.sum()
        assert mask.tolist() == [1] * count + [0] * (BLOCK - count)
        assert (segments[count:] == 0).all()
        starts = np.flatnonzero(places[:count] == 0)
        assert segments[:count][starts].tolist() == list(range(1, len(starts) + 1))
        for begin, stop in itertools.pairwise([*starts, count] if count else []):
            assert ids[begin:stop].tolist() == list(range(ids[begin], ids[begin] + stop - begin))


def test_at_most_so_many_share_a_row(store: Store) -> None:
    corpus = store(numbered([1] * 20))
    rows = TokenRows(corpus, cut_chunks(corpus, BLOCK, BLOCK), BLOCK, 3, END_ID)
    assert np.asarray(rows.batch(np.arange(len(rows))).segment_ids).max() == 3
    assert len(rows) == 7


def feed(corpus: TokenCorpus, batch: int, part: int = 0, parts: int = 1) -> TextFeed:
    rows = TokenRows(corpus, cut_chunks(corpus, BLOCK, BLOCK), BLOCK, 8, END_ID)
    return TextFeed(rows, LanguageModelRecipe(block=BLOCK, batch_size=batch, steps=40), part, parts)


def test_an_epoch_has_every_token_once_in_an_order_of_its_own(corpus: TokenCorpus) -> None:
    rows = len(TokenRows(corpus, cut_chunks(corpus, BLOCK, BLOCK), BLOCK, 8, END_ID))
    one = feed(corpus, 1)
    seen = [one[step] for step in range(2 * rows)]
    epochs = [
        [np.asarray(b.input_ids)[np.asarray(b.attention_mask) > 0].tolist() for b in some]
        for some in (seen[:rows], seen[rows:])
    ]
    for epoch in epochs:
        assert sorted(i for row in epoch for i in row) == list(range(1, sum(LENGTHS) + 1))
    assert epochs[0] != epochs[1]
    np.testing.assert_array_equal(one[3].input_ids, seen[3].input_ids)  # after later ones


def test_a_batch_may_be_larger_than_the_corpus_and_is_shared_by_hosts(corpus: TokenCorpus) -> None:
    whole = feed(corpus, 48)[1]
    parts = [feed(corpus, 48, part=part, parts=3)[1] for part in range(3)]
    for column, *some in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(column, np.concatenate(some))
    assert len(whole.input_ids) == 48


def test_names_lead_to_the_text(store: Store) -> None:
    corpus = store(numbered([3, 10]))
    rows = TokenRows(corpus, cut_chunks(corpus, BLOCK, BLOCK), BLOCK, 8, END_ID)
    names = rows.names(np.arange(len(rows)))
    assert sorted(names) == [
        "document 0, tokens 0 to 2",
        "document 1, tokens 0 to 7",
        "document 1, tokens 8 to 9",
    ]


def test_every_text_comes_back_and_every_byte_is_counted(tokenizer: Tokenizer) -> None:
    sizes = bytes_per_token(tokenizer)
    for text in [*TEXTS, "\x00\x7f \u2028 ëé\U0001f9d1\u200d\U0001f680"]:
        ids = tokenizer.ids([text])[0]
        assert tokenizer.decode(ids) == text
        assert sizes[ids].sum() == len(text.encode())
    end = tokenizer.backend.token_to_id(END)
    assert (end, sizes[end]) == (END_ID, 0)
    assert sizes[tokenizer.ids([END])[0]].sum() == 0


def test_the_vocabulary_is_the_same_every_time_and_joins_no_words(tokenizer: Tokenizer) -> None:
    again = train_byte_bpe([*TEXTS, "the cat and the mat " * 5], 300)
    assert again.backend.to_str() == tokenizer.backend.to_str()
    assert tokenizer.readable_tokens(tokenizer.ids(["the cat"])[0])[-1] == " cat"
    assert tokenizer.vocab_size <= 300
    assert len(train_byte_bpe(["a"], 257).backend.get_vocab()) == 257


@pytest.mark.parametrize(
    ("texts", "size", "parts"),
    [
        (["a cat"], 256, ["a vocabulary of 256 tokens is too small", "take 257"]),
        (
            [" ", ""],
            300,
            ["no text to learn a vocabulary from", "received 2 files or texts, all empty"],
        ),
    ],
)
def test_vocabularies_refused(texts: list[str], size: int, parts: list[str]) -> None:
    with pytest.raises(InputError) as error:
        train_byte_bpe(texts, size)
    assert len(str(error.value).splitlines()) == 3
    assert all(part in str(error.value) for part in parts)


def plain(path: Path, **settings: Any) -> list[str]:
    found = list(read_plain([path], LanguageModelRecipe(**settings), BadRows()))
    assert all(len(document) == 1 for document in found)
    return [document[0] for document in found]


def test_text_stays_as_written_or_is_reflowed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("One\n  two \n\n\nThree\n\nFour\n", encoding="utf-8")
    one, two = "One\n  two ", "One two"
    assert plain(path) == [f"{one}\n\nThree\n\nFour"]
    assert plain(path, paragraphs_per_document=2) == [f"{one}\n\nThree", "Four"]
    assert plain(path, documents="blank-lines") == [one, "Three", "Four"]
    assert plain(path, documents="lines") == ["One", "  two ", "Three", "Four"]
    assert plain(path, reflow=True) == [f"{two}\nThree\nFour"]
    assert plain(path, reflow=True, documents="lines") == ["One", "two", "Three", "Four"]
    rows = tmp_path / "a.jsonl"
    rows.write_text(json.dumps({"text": "One\n\n two "}) + "\n", encoding="utf-8")
    assert plain(rows) == ["One\n\n two "]
    assert plain(rows, reflow=True) == ["One\ntwo"]


def test_a_file_may_be_one_document(tmp_path: Path) -> None:
    for name in "ab":
        text = "\n\n".join(f"{name} {number}" for number in range(50))
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    recipe = LanguageModelRecipe(documents="files")
    found = list(read_plain([tmp_path / "a.txt", tmp_path / "b.txt"], recipe, BadRows()))
    assert [len(document[0].split("\n\n")) for document in found] == [50, 50]


def test_the_store_has_the_text_and_knows_how_it_was_cut(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    rng, path = random.Random(0), tmp_path / "a.txt"
    lines = [" ".join(rng.choices("the cat sat on a mat".split(), k=9)) for _ in range(12)]
    path.write_text("\n".join(lines), encoding="utf-8")
    recipe = LanguageModelRecipe(documents="lines")
    corpus = build_corpus([path], tokenizer, recipe, tmp_path / "corpus", read=read_plain)
    assert [tokenizer.decode(ids.tolist()) for ids in corpus] == lines
    other = LanguageModelRecipe(documents="lines", reflow=True)
    with pytest.raises(InputError, match="reflow False -> True"):
        build_corpus([path], tokenizer, other, tmp_path / "corpus", read=read_plain)
    path.write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        build_corpus([path], tokenizer, recipe, tmp_path / "other", read=read_plain)
    assert "too little text: 2 documents in 1 files\nit takes 4: 2 to learn" in str(error.value)
    assert "lower paragraphs_per_document, or set documents" in str(error.value)
    few = build_corpus([path], tokenizer, recipe, tmp_path / "few", read=read_plain, fewest=1)
    assert len(few) == 2


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"stride": 300}, ["stride 300 would leave tokens out", "block is 256", "at most 256"]),
        ({"n_embd": 100}, ["n_embd 100 is not a multiple of n_head 6"]),
        ({"block": 1}, ["block must be at least 2, got 1"]),
        ({"sample_tokens": -1}, ["sample_tokens must be at least 0, got -1"]),
        ({"dropout": 1.0}, ["dropout must be in [0, 1), got 1.0"]),
        ({"heldout_fraction": 1.5}, ["heldout_fraction must be in [0, 1), got 1.5"]),
        ({"prompts": ["a", " "]}, ["one of the prompts is empty", "received ['a', ' ']"]),
        ({"documents": "chapters"}, ["documents 'chapters' is unknown"]),
        ({"paragraphs_per_document": 0}, ["paragraphs_per_document must be at least 1, got 0"]),
    ],
)
def test_recipes_refused(changes: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(InputError) as error:
        build(LanguageModelRecipe, changes)
    assert len(str(error.value).splitlines()) <= 3
    assert all(part in str(error.value) for part in parts)


def test_what_a_recipe_leaves_open_follows_from_the_text() -> None:
    recipe = LanguageModelRecipe(epochs=2.0, batch_size=16, warmup_share=0.1, evaluations=5)
    found = recipe.for_rows(160, width=200)
    assert (found.steps, found.warmup_steps, found.evaluate_every) == (20, 2, 4)
    assert found.learning_rate == pytest.approx(1e-3)
    assert LanguageModelRecipe(model="tiny-gpt2").for_rows(160, 200).learning_rate == pytest.approx(
        5e-4
    )
    given = LanguageModelRecipe(steps=7, learning_rate=0.1, warmup_steps=3, evaluate_every=2)
    assert given.for_rows(160, 200) == given
    assert (recipe.step_of_windows, LanguageModelRecipe(stride=64).step_of_windows) == (128, 64)


@pytest.mark.parametrize("name", ["gpt2-lm", "tiny-gpt2"])
def test_recipes_that_come_with_the_package(name: str) -> None:
    recipe = read_recipe(LanguageModelRecipe, Path(name))
    width, layers = recipe.n_embd, recipe.n_layer
    count = (recipe.vocab_size + recipe.block) * width + layers * (12 * width + 13) * width
    assert count * {"float32": 4, "float16": 2}[recipe.save_dtype] < 14e6
    assert recipe.reflow
