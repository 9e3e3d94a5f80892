# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Packed rows: few of them, nothing lost, and a pair sees what it sees in a row of its own."""

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import train_wordpiece
from flaxattn.train import bert_mlm
from flaxattn.train.bert_mlm import initial_parameters
from flaxattn.train.corpus import TokenCorpus
from flaxattn.train.pretraining_data import PretrainingBatch, PretrainingFeed, lengths, row_table
from flaxattn.train.recipe import PretrainRecipe
from flaxattn.train.state import initial_state, update_function

RECIPE = PretrainRecipe(
    num_hidden_layers=2,
    num_attention_heads=2,
    hidden_size=32,
    intermediate_size=64,
    initializer_range=0.3,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=64,
    lengths=(64,),
    batch_size=4,
    steps=100,
    warmup_steps=0,
    pack=4,
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_wordpiece(["a few words for a small vocabulary of pieces"] * 3, 60, True)


@pytest.fixture
def corpus(store: Callable[[Sequence], TokenCorpus], tokenizer: Tokenizer) -> TokenCorpus:
    """Short documents, so that most rows would be half empty."""
    rng, most = random.Random(1), tokenizer.vocab_size - 1
    return store(
        [
            [[rng.randint(5, most) for _ in range(rng.randint(2, 9))] for _ in range(3)]
            for _ in range(200)
        ]
    )


@pytest.fixture
def feed(corpus: TokenCorpus, tokenizer: Tokenizer) -> PretrainingFeed:
    return PretrainingFeed(corpus, tokenizer, RECIPE)


def fewest(sizes: tuple[int, ...], room: int, rows: tuple[int, ...] = ()) -> int:
    """Rows that some sizes need, by trying everything."""
    if not sizes:
        return len(rows)
    tried = [(*rows, sizes[0])]
    tried += [
        (*rows[:i], used + sizes[0], *rows[i + 1 :])
        for i, used in enumerate(rows)
        if used + sizes[0] <= room
    ]
    return min(fewest(sizes[1:], room, some) for some in tried)


@given(st.lists(st.integers(5, 32), min_size=1, max_size=60), st.integers(1, 8))
def test_each_pair_gets_one_place_in_a_row_that_holds_it(sizes: list[int], most: int) -> None:
    table = row_table(np.array(sizes), 32, most)
    assert table.shape[1] == most
    assert sorted(table[table >= 0].tolist()) == list(range(len(sizes)))
    used = np.append(sizes, 0)[table].sum(1)
    assert (used > 0).all()
    assert used.max() <= 32


@given(st.lists(st.integers(5, 32), min_size=1, max_size=7))
def test_rows_are_few(sizes: list[int]) -> None:
    """Best fit, the longest first, needs at most 11/9 of the fewest rows, and 6/9."""
    rows = len(row_table(np.array(sizes), 32, 7))
    assert rows <= (11 * fewest(tuple(sizes), 32) + 6) / 9


def test_a_pass_has_the_pairs_of_an_unpacked_one(
    feed: PretrainingFeed, corpus: TokenCorpus, tokenizer: Tokenizer
) -> None:
    plain = PretrainingFeed(corpus, tokenizer, dataclasses.replace(RECIPE, pack=1))
    rows, loose = feed.batches.plans.rows(64, 0), plain.batches.plans.rows(64, 0)
    pairs = rows[rows["first_length"] > 0]
    assert sorted(pairs.tolist()) == sorted(loose[:, 0].tolist())
    assert len(rows) < 0.6 * len(loose)
    used = np.where(rows["first_length"] > 0, lengths(rows), 0).sum(1)
    assert used.max() <= 64
    assert used.mean() > 0.9 * 64


@given(
    st.lists(st.integers(5, 64), min_size=1, max_size=8),
    st.floats(0.001, 1.0),
    st.none() | st.integers(1, 20),
)
def test_a_row_has_room_for_its_predictions(
    sizes: list[int], share: float, limit: int | None
) -> None:
    recipe = dataclasses.replace(
        RECIPE, pack=len(sizes), masked_lm_prob=share, max_predictions=limit
    )
    length = sum(sizes)  # a full row
    most = recipe.predictions(length)
    expected = np.clip(np.rint(np.multiply(sizes, share)), 1, most).sum()
    assert expected <= recipe.row_predictions(length) <= len(sizes) * most


def one_by_one(batch: PretrainingBatch, pad_id: int) -> Iterator[PretrainingBatch]:
    """Every pair of packed rows, in a row of its own."""
    assert batch.packing is not None
    for row, number in np.argwhere(np.asarray(batch.packing.weights)):
        mine = np.asarray(batch.packing.segment_ids[row]) == number + 1
        start, size = batch.packing.starts[row, number], mine.sum()
        assert batch.packing.position_ids[row][mine].tolist() == list(range(size))
        assert np.flatnonzero(mine)[0] == start
        chosen = (batch.masked_weights[row] > 0) & mine[batch.masked_positions[row]]
        ids = np.full_like(batch.input_ids[:1], pad_id)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        ids[0, :size], mask[0, :size] = batch.input_ids[row][mine], 1
        types[0, :size] = batch.token_type_ids[row][mine]
        yield PretrainingBatch(
            ids,
            mask,
            types,
            np.where(chosen, batch.masked_positions[row] - start, 0)[None],
            batch.masked_ids[row][None],
            chosen[None].astype(np.float32),
            batch.next_sentence_label[row, number][None],
        )


@pytest.mark.slow
def test_a_pair_sees_what_it_sees_alone(feed: PretrainingFeed, tokenizer: Tokenizer) -> None:
    """Loss and gradient of packed rows are those of their pairs in rows of their own."""
    packed = feed[0]
    alone: PretrainingBatch = jax.tree.map(
        lambda *rows: np.concatenate(rows), *one_by_one(packed, tokenizer.pad_id)
    )
    assert len(alone.input_ids) > 2 * len(packed.input_ids)
    assert alone.masked_weights.sum() == packed.masked_weights.sum()
    assert (alone.input_ids[:, 0] == tokenizer.cls_id).all()
    module = bert_mlm.build_module(RECIPE, tokenizer)
    params = initial_parameters(module, RECIPE)
    loss = jax.jit(jax.grad(bert_mlm.loss_function(module), has_aux=True))
    (one, metrics), (other, expected) = (
        loss(params, batch, None, bert_mlm.batch_totals(batch)) for batch in (packed, alone)
    )
    for name, value in expected.items():
        assert float(metrics[name]) == pytest.approx(float(value), rel=1e-5), name
    largest = max(float(np.abs(x).max()) for x in jax.tree.leaves(other))
    gaps = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), one, other)
    assert max(jax.tree.leaves(gaps)) < 1e-5 * largest


@pytest.mark.slow
def test_parts_of_a_batch_add_up(feed: PretrainingFeed, tokenizer: Tokenizer) -> None:
    """Rows hold unequal numbers of pairs; accumulated, each pair still counts the same."""
    module = bert_mlm.build_module(RECIPE, tokenizer)
    params = initial_parameters(module, RECIPE)
    optimizer = bert_mlm.optimizer(RECIPE)
    loss, totals = bert_mlm.loss_function(module), bert_mlm.batch_totals
    (_, whole), (_, parts) = (
        jax.jit(update_function(loss, totals, optimizer, count))(
            initial_state(params, optimizer), feed[0]
        )
        for count in (1, 2)
    )
    assert set(whole) == set(parts)
    for name, value in whole.items():
        assert float(parts[name]) == pytest.approx(float(value), rel=1e-5), name


def test_names_of_packed_rows_name_every_pair(feed: PretrainingFeed) -> None:
    names, packing = feed.names(0), feed[0].packing
    assert packing is not None
    assert len(names) == packing.weights.sum()
    assert {name.split(":")[0] for name in names} == {f"epoch 0, row {i}" for i in range(4)}
