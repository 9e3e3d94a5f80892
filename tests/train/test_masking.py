# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What is hidden and how: exact on scripted numbers, by shares on random ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaxattn.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from flaxattn.text.tokenizer_files import bert_backend
from flaxattn.train.pretraining_data import (
    Masked,
    choose_masks,
    continuation_tokens,
    draws_needed,
    raw_draws,
)

MASK, VOCABULARY = 4, 2000


def share(value: float) -> int:
    """A 64-bit number at a share of the range."""
    return int(value * 2**64)


def sequences(rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Different ids everywhere, and candidates: all but the first, middle and last position."""
    ids = np.tile(np.arange(1000, 1000 + length, dtype=np.int32), (rows, 1))
    candidates = np.ones((rows, length), bool)
    candidates[:, [0, length // 2, -1]] = False
    return ids, candidates


def hide(
    ids: np.ndarray,
    candidates: np.ndarray,
    count: int,
    most: int,
    draws: np.ndarray,
    continues: np.ndarray | None = None,
) -> Masked:
    return choose_masks(
        ids,
        candidates,
        np.full(len(ids), count, np.int32),
        most,
        draws,
        vocabulary=VOCABULARY,
        mask_id=MASK,
        continues=continues,
    )


def test_scripted_numbers_hide_what_was_worked_out_by_hand() -> None:
    ids = np.array([[2, 70, 71, 72, 73, 3]], np.int32)
    candidates = np.array([[False, True, True, True, True, False]])
    keys = [0, 9, 3, 7, 1, 0]  # position 4, then 2, then 3 are the smallest of the candidates
    kinds = [share(0.85), share(0.95), share(0.79), 0]  # kept, any, mask; ascending by position
    anything = [11, VOCABULARY + 12, 13, 14]
    draws = np.array([[*keys, *kinds, *anything]], np.uint64)
    masked = hide(ids, candidates, 3, 4, draws)
    assert masked.input_ids.tolist() == [[2, 70, 71, 12, MASK, 3]]
    assert masked.positions.tolist() == [[2, 3, 4, 0]]
    assert masked.ids.tolist() == [[71, 72, 73, 0]]
    assert masked.weights.tolist() == [[1, 1, 1, 0]]
    assert ids[0, 3] == 72  # the argument is left alone


def test_whole_words_worked_out_by_hand() -> None:
    """Words: 1 | 2 3 4 | 5 | [SEP] | 7 8 | 9; position 7 continues a word cut off before it."""
    continues = np.array([[0, 0, 0, 1, 1, 0, 0, 1, 1, 0]], bool)
    candidates = np.array([[0, 1, 1, 1, 1, 1, 0, 1, 1, 1]], bool)
    ids = np.arange(50, 60, dtype=np.int32)[None]
    #          -  1  2-4      5  -  7-8   9
    keys = [0, 8, 1, 0, 0, 4, 0, 2, 0, 6]
    draws = np.array([[*keys, *[0] * 10]], np.uint64)
    # In the order 2-4, 7-8, 5, 9, 1: three pieces fit into 4, then two do not, then one does.
    assert hide(ids, candidates, 4, 5, draws, continues).positions.tolist() == [[2, 3, 4, 5, 0]]
    assert hide(ids, candidates, 5, 5, draws, continues).positions.tolist() == [[2, 3, 4, 7, 8]]
    assert hide(ids, candidates, 1, 5, draws, continues).positions.tolist() == [[5, 0, 0, 0, 0]]
    only = candidates & (np.arange(10) < 5)
    only[0, 1] = False  # one word of three pieces, too long for two: nothing is hidden
    assert hide(ids, only, 2, 5, draws, continues).weights.sum() == 0


def naive_words(candidates: list[bool], continues: list[bool]) -> list[list[int]]:
    words: list[list[int]] = []
    for place, allowed in enumerate(candidates):
        if allowed and continues[place] and place and candidates[place - 1]:
            words[-1].append(place)
        elif allowed:
            words.append([place])
    return words


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 12),
    st.integers(0, 2**32),
)
def test_words_are_taken_as_the_definition_says(
    flags: list[tuple[bool, bool]], count: int, seed: int
) -> None:
    candidates, continues = ([flag[side] for flag in flags] for side in (0, 1))
    length = len(flags)
    draws = raw_draws(str(seed), 0, 2, draws_needed(length, count))
    ids = np.full((2, length), 70, np.int32)
    masked = hide(
        ids,
        np.array([candidates] * 2),
        count,
        count,
        draws,
        np.array([continues] * 2),
    )
    for row in range(2):
        taken: list[int] = []
        words = naive_words(candidates, continues)
        for word in sorted(words, key=lambda w, row=row: draws[row, w[0]]):
            if len(taken) + len(word) <= count:
                taken += word
        size = int(masked.weights[row].sum())
        assert masked.positions[row, :size].tolist() == sorted(taken)


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 12), st.integers(0, 2**32))
def test_single_tokens_are_the_candidates_with_the_smallest_numbers(
    candidates: list[bool], count: int, seed: int
) -> None:
    length = len(candidates)
    draws = raw_draws(str(seed), 0, 1, draws_needed(length, count))
    masked = hide(np.full((1, length), 70, np.int32), np.array([candidates]), count, count, draws)
    allowed = [place for place in range(length) if candidates[place]]
    expected = sorted(sorted(allowed, key=lambda place: draws[0, place])[:count])
    assert masked.positions[0, : len(expected)].tolist() == expected
    assert masked.weights.sum() == len(expected)


@pytest.fixture(scope="module")
def many() -> tuple[np.ndarray, Masked]:
    """Three thousand maskings of 100 tokens: the ids, and 15 hidden ones in each."""
    ids, candidates = sequences(3000, 100)
    return ids, hide(ids, candidates, 15, 15, raw_draws("a", 0, 3000, draws_needed(100, 15)))


def test_only_chosen_positions_change_and_no_special_one(many: tuple[np.ndarray, Masked]) -> None:
    ids, masked = many
    chosen = np.zeros(ids.shape, bool)
    np.put_along_axis(chosen, masked.positions, True, axis=1)
    assert (chosen.sum(1) == 15).all()
    assert not chosen[:, [0, 50, 99]].any()
    assert (masked.input_ids == ids)[~chosen].all()
    assert (np.take_along_axis(ids, masked.positions, 1) == masked.ids).all()
    counts = np.delete(chosen.sum(0), [0, 50, 99])
    expected = 15 / 97
    sigma = (3000 * expected * (1 - expected)) ** 0.5
    assert np.abs(counts - 3000 * expected).max() < 4 * sigma


def test_eighty_ten_ten(many: tuple[np.ndarray, Masked]) -> None:
    _, masked = many
    before = masked.ids.ravel()
    after = np.take_along_axis(masked.input_ids, masked.positions, 1).ravel()
    other = after[(after != MASK) & (after != before)]
    for found, expected in ((after == MASK, 0.8), (after == before, 0.1)):
        sigma = (expected * (1 - expected) / len(after)) ** 0.5
        assert abs(found.mean() - expected) < 4 * sigma
    sigma = (0.1 * 0.9 / len(after)) ** 0.5
    assert abs(len(other) / len(after) - 0.1) < 4 * sigma
    assert other.min() < 5  # the whole vocabulary, special tokens included
    assert other.max() > VOCABULARY - 10
    spread = VOCABULARY / 12**0.5 / len(other) ** 0.5
    assert abs(other.mean() - (VOCABULARY - 1) / 2) < 4 * spread


def test_tokens_of_one_word_are_drawn_independently() -> None:
    ids = np.full((2000, 2), 70, np.int32)
    words = np.tile([False, True], (2000, 1))
    draws = raw_draws("b", 0, 2000, draws_needed(2, 2))
    hidden = hide(ids, np.ones((2000, 2), bool), 2, 2, draws, words).input_ids == MASK
    both = hidden.all(1).mean()
    assert abs(both - 0.64) < 4 * (0.64 * 0.36 / 2000) ** 0.5


def test_the_table_of_continuation_tokens() -> None:
    tokens = [*SPECIAL_TOKENS.values(), "##", "#", "##ing", "go", "a##b"]
    backend = bert_backend({piece: number for number, piece in enumerate(tokens)}, {})
    table = continuation_tokens(Tokenizer(backend, {}))
    assert np.flatnonzero(table).tolist() == [tokens.index("##ing")]


def test_numbers_depend_on_key_and_row_only() -> None:
    whole = raw_draws("key", 0, 10, 7)
    assert whole.shape == (10, 7)
    assert (raw_draws("key", 3, 4, 7) == whole[3:7]).all()
    assert not (raw_draws("other", 0, 10, 7) == whole).any()
    assert len(np.unique(whole)) == 70
    far = raw_draws("key", 2**40, 2, 7)  # more pairs than any corpus has
    assert (raw_draws("key", 2**40 + 1, 1, 7) == far[1:]).all()
