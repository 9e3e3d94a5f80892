# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of a GLUE task: every example once per epoch, few shapes, one order for all hosts."""

import dataclasses
import random
from collections import Counter

import numpy as np
import pytest

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.errors import InputError
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import train_wordpiece
from flaxattn.train.glue_data import EncodedExamples, GlueExample, GlueFeed, encode
from flaxattn.train.recipe import GlueRecipe

WORDS = "red cat runs home now while big dogs sleep under old trees".split()
RECIPE = GlueRecipe(steps=40, batch_size=8, max_length=32, buckets=(8, 16, 24, 64), seed=5)
COUNT = 61


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_wordpiece([" ".join(WORDS)] * 3, 90, lowercase=True)


def example(first: str, second: str | None = None, number: int = 0) -> GlueExample:
    return GlueExample(first, second, float(number), "data/a.tsv", number + 2, number)


@pytest.fixture(scope="module")
def data(tokenizer: Tokenizer) -> EncodedExamples:
    pick = random.Random(0)
    texts = [" ".join(pick.choices(WORDS, k=pick.randint(1, 40))) for _ in range(COUNT)]
    examples = [example(text, number=i) for i, text in enumerate(texts)]
    return encode(examples, tokenizer, RECIPE.max_length, BadRows())


def test_tokens_are_those_of_the_tokenizer(tokenizer: Tokenizer) -> None:
    firsts = ["red cat", "big dogs sleep under old trees now", "a"]
    seconds = ["home now", "cat", "red cat runs home now while big dogs sleep"]
    for pair in (None, seconds):
        examples = [
            example(text, None if pair is None else pair[i], i) for i, text in enumerate(firsts)
        ]
        found = encode(examples, tokenizer, 9, BadRows())
        expected = tokenizer.encode(firsts, pair, max_length=9, truncate=True)
        batch = found.batch(np.arange(3), expected.input_ids.shape[1], np.ones(3, np.float32))
        np.testing.assert_array_equal(batch.input_ids, expected.input_ids)
        np.testing.assert_array_equal(batch.attention_mask, expected.attention_mask)
        np.testing.assert_array_equal(batch.token_type_ids, expected.token_type_ids)
        np.testing.assert_array_equal(batch.label, [0, 1, 2])
        cut = sum(number > 0 for number in expected.truncated)
        assert found.truncated == cut == (0 if pair is None else 2)


def test_every_example_once_per_epoch(data: EncodedExamples) -> None:
    feed = GlueFeed(data, RECIPE)
    per_epoch = -(-COUNT // 8)
    for epoch in range(3):
        seen: Counter[int] = Counter()
        partial = 0
        for step in range(epoch * per_epoch, (epoch + 1) * per_epoch):
            batch = feed[step]
            assert len(batch.label) == 8
            real = batch.label[batch.weight == 1].astype(int)
            assert [f"data/a.tsv:{i + 2}" for i in real] == feed.names(step)
            seen.update(real.tolist())
            partial += (batch.weight == 0).any()
        assert seen == Counter(range(COUNT))
        assert partial == 1
    assert len(feed) == RECIPE.steps


def test_batches_are_padded_to_the_next_bucket(data: EncodedExamples) -> None:
    feed = GlueFeed(data, RECIPE)
    widths = set()
    for step in range(8):
        batch = feed[step]
        longest, width = batch.attention_mask.sum(1).max(), batch.input_ids.shape[1]
        assert width == min(size for size in (8, 16, 24, 32) if size >= longest)
        assert (batch.input_ids[batch.attention_mask == 0] == data.pad_id).all()
        widths.add(width)
    assert len(widths) > 1
    padded = sum(feed[step].attention_mask.size for step in range(8))
    assert data.lengths.sum() / padded > 0.6, "sorting by length inside a window saves padding"


def test_the_order_is_a_function_of_seed_and_epoch(data: EncodedExamples) -> None:
    feed, again = GlueFeed(data, RECIPE), GlueFeed(data, RECIPE)
    backwards = {step: again.names(step) for step in reversed(range(24))}
    assert [feed.names(step) for step in range(24)] == [backwards[step] for step in range(24)]
    assert [feed.names(step) for step in range(8)] != [feed.names(step) for step in range(8, 16)]
    other = GlueFeed(data, dataclasses.replace(RECIPE, seed=6))
    assert [feed.names(step) for step in range(8)] != [other.names(step) for step in range(8)]


def test_examples_and_batches_are_both_shuffled(data: EncodedExamples) -> None:
    """Other examples meet in each epoch, and batches do not come from short to long."""
    feed = GlueFeed(data, RECIPE)
    first, second = ({frozenset(feed.names(8 * e + step)) for step in range(8)} for e in (0, 1))
    assert first != second
    lengths = [feed[step].attention_mask.sum() for step in range(8)]
    assert lengths != sorted(lengths)


def test_hosts_share_a_batch(data: EncodedExamples) -> None:
    whole, parts = GlueFeed(data, RECIPE), [GlueFeed(data, RECIPE, i, 4) for i in range(4)]
    for step in range(9):
        for field, *shares in zip(whole[step], *(part[step] for part in parts), strict=True):
            np.testing.assert_array_equal(field, np.concatenate(shares))


def test_text_of_which_nothing_is_left_is_a_bad_row(tokenizer: Tokenizer) -> None:
    examples = [example("red cat"), example("\x07\u200b\x01", number=1), example("dogs", number=2)]
    with pytest.raises(InputError, match=r"data/a\.tsv, line 3: the tokenizer leaves nothing"):
        encode(examples, tokenizer, 16, BadRows())
    bad = BadRows("skip")
    bad.rows_read = 3
    found = encode(examples, tokenizer, 16, bad)
    assert found.position.tolist() == [0, 2]
    assert bad.summary() == {"rows": 3, "kept": 2, "bad": {"empty": 1}}


@pytest.mark.parametrize("text", ["a", "x" * 50_000, "red " * 250_000])
def test_lengths_at_the_edges(text: str, tokenizer: Tokenizer) -> None:
    found = encode([example(text)], tokenizer, 16, BadRows())
    assert found.lengths[0] <= 16
    exact = "red cat runs home now while big dogs"
    assert encode([example(exact)], tokenizer, 10, BadRows()).truncated == 0
    assert encode([example(exact)], tokenizer, 9, BadRows()).truncated == 1
