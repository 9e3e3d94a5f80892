# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of pairs: each pair once per epoch, no batch too large, few shapes; and the recipe."""

import dataclasses
import itertools
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.errors import InputError
from flaxattn.text.vocabulary_training import EOS, PAD
from flaxattn.train.recipe import GlueRecipe, TranslationRecipe
from flaxattn.train.settings import read_recipe
from flaxattn.train.translation_data import (
    EncodedPairs,
    TranslationFeed,
    TranslationPair,
    Vocabularies,
    batches_per_epoch,
    encode_pairs,
    learn_vocabularies,
)

RECIPE = TranslationRecipe(
    vocab_size=40, max_length=24, buckets=(4, 8, 12, 24), batch_tokens=100, steps=500, seed=3
)


def some_pairs(count: int) -> list[TranslationPair]:
    pick = random.Random(1)

    def text() -> str:
        return " ".join(pick.choices("abcdefgh", k=pick.randint(1, 20)))

    return [TranslationPair(text(), text().upper(), "x.txt", n + 1) for n in range(count)]


@pytest.fixture(scope="module")
def vocabularies() -> Vocabularies:
    return learn_vocabularies(some_pairs(50), RECIPE)


@pytest.fixture(scope="module")
def data(vocabularies: Vocabularies) -> EncodedPairs:
    return encode_pairs(some_pairs(333), vocabularies, RECIPE, BadRows())


def test_every_pair_comes_once_per_epoch(data: EncodedPairs) -> None:
    feed, size = TranslationFeed(data, RECIPE), batches_per_epoch(data, RECIPE)
    for epoch in range(3):
        steps = range(epoch * size, (epoch + 1) * size)
        seen = Counter(name for step in steps for name in feed.names(step))
        assert seen == {f"x.txt:{n + 1}": 1 for n in range(333)}


def test_no_batch_is_too_large_and_shapes_are_few(data: EncodedPairs) -> None:
    feed, size = TranslationFeed(data, RECIPE), batches_per_epoch(data, RECIPE)
    shapes = set()
    for step in range(size):
        batch = feed[step]
        rows, length = batch.input_ids.shape
        assert batch.input_ids.size <= RECIPE.batch_tokens
        assert {array.shape for array in batch} == {(rows, length)}
        longest = max(batch.attention_mask.sum(1).max(), batch.label_mask.sum(1).max())
        shorter = [bucket for bucket in RECIPE.buckets if bucket < length]
        assert max(shorter, default=0) < longest <= length
        shapes.add((rows, length))
    assert shapes == {(24, 4), (8, 8), (8, 12), (4, 24)}  # multiples of eight where they can be


def test_a_batch_holds_its_pairs(data: EncodedPairs, vocabularies: Vocabularies) -> None:
    feed = TranslationFeed(data, RECIPE)
    decode, filling = vocabularies.source.decode, 0
    for step in range(batches_per_epoch(data, RECIPE)):
        batch, names = feed[step], feed.names(step)
        length = batch.labels.shape[1]
        for row, name in enumerate(names):
            pair = data.pairs[int(name.split(":")[1]) - 1]
            assert decode(batch.input_ids[row]) == pair.source
            assert decode(batch.labels[row]) == pair.target
            size = int(batch.label_mask[row].sum())
            assert batch.labels[row, size - 1] == EOS
            assert (batch.labels[row, size:] == PAD).all()
            assert batch.label_mask[row].tolist() == [float(i < size) for i in range(length)]
        filling += len(batch.labels) - len(names)
        assert not batch.label_mask[len(names) :].any()
        assert (batch.attention_mask[len(names) :].sum(1) == 1).all()  # no row without a key
    assert filling


def test_batches_depend_on_seed_and_number_alone(data: EncodedPairs) -> None:
    feed, again = TranslationFeed(data, RECIPE), TranslationFeed(data, RECIPE)
    backwards = {step: again.names(step) for step in reversed(range(200))}
    assert all(feed.names(step) == backwards[step] for step in range(200))
    other = TranslationFeed(data, dataclasses.replace(RECIPE, seed=4))
    assert [feed.names(step) for step in range(5)] != [other.names(step) for step in range(5)]
    size = batches_per_epoch(data, RECIPE)
    assert [feed.names(s) for s in range(size)] != [feed.names(s + size) for s in range(size)]


def test_hosts_share_a_batch(data: EncodedPairs) -> None:
    parts = [TranslationFeed(data, RECIPE, part, 2) for part in range(2)]
    for step in range(10):
        whole = TranslationFeed(data, RECIPE)[step]
        for name, array in whole._asdict().items():
            joined = np.concatenate([getattr(feed[step], name) for feed in parts])
            np.testing.assert_array_equal(joined, array)


@pytest.mark.parametrize("policy", ["fail", "skip", "quarantine"])
def test_pairs_that_are_too_long(vocabularies: Vocabularies, tmp_path: Path, policy: str) -> None:
    long = TranslationPair("a b", " ".join("ABCDEFGH" * 4), "y.txt", 7)
    bad = BadRows(policy, tmp_path)
    if policy == "fail":
        with pytest.raises(InputError) as error:
            encode_pairs([*some_pairs(5), long], vocabularies, RECIPE, bad)
        assert str(error.value).splitlines() == [
            "y.txt, line 7: the target has 33 tokens, max_length is 24",
            f"received: {long.target}",
            'split the sentences, or raise max_length, or pass on_error="skip" to leave it out',
        ]
        return
    data = encode_pairs([*some_pairs(5), long], vocabularies, RECIPE, bad)
    assert data.size == 5
    assert bad.counts == {"over-long": 1}
    assert (tmp_path / "errors.jsonl").exists() == (policy == "quarantine")


def test_vocabularies_are_shared_or_apart() -> None:
    pairs = some_pairs(50)
    shared = learn_vocabularies(pairs, RECIPE)
    assert shared.target is None
    assert shared.writer is shared.source
    apart = learn_vocabularies(pairs, dataclasses.replace(RECIPE, shared_vocabulary=False))
    assert apart.target is not None
    assert "▁a" in apart.source.backend.get_vocab()
    assert "▁a" not in apart.target.backend.get_vocab()
    assert "▁A" in apart.writer.backend.get_vocab()


@pytest.mark.parametrize(
    ("pair", "parts"),
    [
        ("max_length=512", ["no bucket holds max_length 512", "the longest of buckets is 128"]),
        ("batch_tokens=100", ["batch_tokens 100 does not hold one sentence", "max_length is 128"]),
        ("max_position_embeddings=64", ["max_length 128 does not fit", "is 64"]),
        ("label_smoothing=1", ["label_smoothing must be in [0, 1), got 1.0"]),
        ("average_checkpoints=0", ["average_checkpoints must be at least 1, got 0"]),
        ("bleu_sentences=0", ["watch 'bleu' needs sentences to translate"]),
        ("model_type=lstm", ["model_type 'lstm' is unknown", "'transformer', 'rnn'"]),
        ("d_modell=8", ["the nearest is 'd_model'"]),
    ],
)
def test_wrong_settings(pair: str, parts: list[str]) -> None:
    with pytest.raises(InputError) as error:
        read_recipe(TranslationRecipe, None, [pair])
    assert len(str(error.value).splitlines()) <= 3
    assert all(part in str(error.value) for part in parts)


@pytest.mark.parametrize("name", ["multi30k-transformer", "multi30k-rnn"])
def test_recipes_that_come_with_it(name: str) -> None:
    recipe = read_recipe(TranslationRecipe, Path(name))
    assert recipe.vocab_size == 5000
    assert recipe.model_type == name.split("-")[1]


def test_epochs_become_steps() -> None:
    recipe = TranslationRecipe(epochs=2.5, evaluations=4).for_batches(30)
    assert (recipe.steps, recipe.evaluate_every) == (75, 19)
    given = TranslationRecipe(steps=7, evaluate_every=2).for_batches(30)
    assert (given.steps, given.evaluate_every) == (7, 2)


def test_rows_of_every_length() -> None:
    for length, tokens in itertools.product((1, 5, 16, 100), (100, 777, 25000)):
        rows = TranslationRecipe(max_length=100, batch_tokens=tokens).rows(length)
        assert 0 < rows * length <= tokens
        assert rows % 8 == 0 or rows < 8


def test_noam_is_for_recipes_that_translate() -> None:
    with pytest.raises(InputError) as error:
        GlueRecipe(schedule="noam").peak  # noqa: B018 - a property that refuses, which is the point
    assert "choose schedule 'inverse-sqrt'" in str(error.value)
