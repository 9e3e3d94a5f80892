# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Alignments are those of the weights, by rows that wrote; the error rate is Och and Ney's."""

import dataclasses
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from flaxattn.errors import InputError
from flaxattn.measures.word_alignment import (
    alignment_error_rate,
    pharaoh,
    read_pharaoh,
    word_alignment,
    word_weights,
)
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace

# "ein Haus am See" read as ▁ein ▁Ha us ▁am ▁See </s>; "a lakehouse" written as ▁a ▁lake house </s>.
SOURCE = [" ein", " Ha", "us", " am", " See", "</s>"]
SOURCE_WORDS = [0, 1, 1, 2, 3, None]
WRITTEN = [" a", " lake", "house", "</s>"]
ROWS = np.array(
    [
        [0.5, 0.0, 0.1, 0.0, 0.0, 0.4],  # a: ein
        [0.0, 0.1, 0.1, 0.1, 0.6, 0.1],  # lake: See 0.6, Haus 0.2
        [0.0, 0.5, 0.4, 0.0, 0.1, 0.0],  # house: Haus 0.9, See 0.1
        [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
    ]
)
PAIRS = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6)
SENTENCES = st.lists(st.tuples(PAIRS, PAIRS, PAIRS), min_size=1, max_size=4)


def traced(weights: Any, **fields: Any) -> Trace:
    """A trace of one sequence with cross-attention alone; weights are `[L, H, T, S]`."""
    array = np.asarray(weights, np.float32)[:, None]
    record = AttentionRecord(
        weights=array, layers=tuple(range(len(array))), heads=tuple(range(array.shape[2]))
    )
    metadata: dict[str, Any] = {"tokens": [SOURCE], "written": [WRITTEN], "words": [SOURCE_WORDS]}
    metadata["decoder_tokens"] = [["<s>", *WRITTEN[:-1]]]
    metadata["decoder_words"] = [[0, 1, 1, None]]
    return Trace(cross=record, **{**metadata, **fields})


def test_tokens_become_words_and_special_tokens_none() -> None:
    trace = traced([[ROWS]])
    # lakehouse: the mean of its two rows gives Haus (0.2 + 0.9) / 2 and See (0.6 + 0.1) / 2.
    expected = [[0.5, 0.1, 0.0, 0.0], [0.0, 0.55, 0.05, 0.35]]
    np.testing.assert_allclose(word_weights(trace), expected, atol=1e-6)
    assert word_alignment(trace) == [[(0, 0), (1, 1)]]


def test_the_row_that_wrote_a_token_aligns_it() -> None:
    """With the rows of reading, one later, `a` would be aligned by the row that wrote `lake`."""
    eye = np.eye(3)
    trace = traced(
        [[eye]],
        tokens=[list("xyz")],
        words=[[0, 1, 2]],
        written=[list("abc")],
        decoder_tokens=[["<s>", "a", "b"]],
        decoder_words=[[0, 1, 2]],
    )
    assert word_alignment(trace) == [[(0, 0), (1, 1), (2, 2)]]


def test_the_last_layer_but_one_unless_others_are_named() -> None:
    layers = [np.roll(np.eye(3), shift, 1) for shift in range(3)]
    trace = traced(
        np.array(layers)[:, None], tokens=[list("xyz")], words=[], decoder_words=[], written=[]
    )
    trace = dataclasses.replace(trace, cross=dataclasses.replace(trace.cross, layers=(2, 4, 5)))
    shifted = [[(1, 0), (2, 1), (0, 2)]]
    assert word_alignment(trace) == word_alignment(trace, layer=4) == shifted
    assert word_alignment(trace, layer=5) == [[(2, 0), (0, 1), (1, 2)]]
    one = dataclasses.replace(trace, cross=traced([[np.eye(3)]]).cross)
    assert word_alignment(one) == [[(0, 0), (1, 1), (2, 2)]]


def test_layers_and_heads_are_averaged() -> None:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(6), (3, 4, 4))
    found = word_weights(traced(weights), layer=[0, 2], heads=[1, 3])
    mean = weights[[0, 2]][:, [1, 3]].mean((0, 1))
    rows = np.stack([mean[0], mean[1:3].mean(0)])
    columns = [rows[:, 0], rows[:, 1:3].sum(1), rows[:, 3], rows[:, 4]]
    np.testing.assert_allclose(found, np.stack(columns, 1), atol=1e-6)


def test_eight_bit_weights_are_shares() -> None:
    trace = traced([[ROWS]])
    stored = np.rint(255 * np.asarray(trace.cross.weights)).astype(np.uint8)
    stored = dataclasses.replace(trace, cross=dataclasses.replace(trace.cross, weights=stored))
    np.testing.assert_allclose(word_weights(stored), word_weights(trace), atol=0.005)


def test_padding_of_a_batch_changes_nothing() -> None:
    wide = np.zeros((1, 2, 1, 6, 8), np.float32)
    wide[0, 0, 0, :4, :6] = ROWS
    wide[0, 1, 0, :2, :3] = [[0, 0.2, 0.8], [0.7, 0.2, 0.1]]
    wide[0, 1, 0, 2:, 0] = 1  # rows of padding
    wide[0, 0, 0, 4:, 0] = 1
    trace = Trace(
        cross=AttentionRecord(weights=wide, layers=(0,), heads=(0,)),
        tokens=[SOURCE + ["<pad>"] * 2, ["a", "b", "c"] + ["<pad>"] * 5],
        words=[[*SOURCE_WORDS, None, None], [0, 1, 2] + [None] * 5],
        mask=np.arange(8) < np.array([[6], [3]]),
        decoder_tokens=[["x"] * 6] * 2,
        decoder_words=[[0, 1, 1, None, None, None], [0, 1, 2, 2, 2, 2]],
        decoder_mask=np.arange(6) < np.array([[4], [2]]),
    )
    assert word_alignment(trace) == [[(0, 0), (1, 1)], [(2, 0), (0, 1)]]
    assert [word_alignment(one) for one in trace] == [[(p)] for p in word_alignment(trace)]


def test_a_word_that_looks_at_no_word_is_not_aligned() -> None:
    rows = ROWS.copy()
    rows[0] = [0, 0, 0, 0, 0, 1]
    assert word_alignment(traced([[rows]])) == [[(1, 1)]]
    empty = traced([[ROWS]], words=[[None] * 6])
    assert word_alignment(empty) == [[]]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"layer": 3}, "There is no decoder layer 3.\nThere are decoder layers 0."),
        ({"heads": [2]}, "There is no head 2.\nThere are heads 0."),
        ({"layer": []}, "No decoder layer was requested.\nThere are decoder layers 0."),
    ],
)
def test_what_is_not_there_is_named(request_: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        word_alignment(traced([[ROWS]]), **request_)
    assert str(caught.value) == message


def test_a_trace_without_cross_attention_says_what_to_trace() -> None:
    trace = Trace.from_arrays(np.ones((1, 1, 1, 1, 1)), [["a"]])
    with pytest.raises(InputError) as caught:
        word_alignment(trace)
    assert str(caught.value) == (
        "An alignment is read off cross-attention weights; this trace holds none.\n"
        "Trace an encoder-decoder: model.trace(source, capture=fa.Capture(weights=True))."
    )


class TestPharaoh:
    @given(PAIRS)
    def test_what_is_written_is_read(self, pairs: set[tuple[int, int]]) -> None:
        assert read_pharaoh(pharaoh(sorted(pairs))) == (pairs, pairs)

    def test_both_signs_of_a_possible_link(self) -> None:
        assert read_pharaoh(" 0-0\t2?1 10p3 2-1\n") == ({(0, 0), (2, 1)}, {(0, 0), (2, 1), (10, 3)})
        assert read_pharaoh("") == (set(), set())
        assert pharaoh([(0, 0), (2, 1)]) == "0-0 2-1"

    @pytest.mark.parametrize("text", ["0", "0:1", "a-b", "-1-2", "1-2-3", "²-1"])
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(InputError) as caught:
            read_pharaoh(f"0-0 {text} 1-1")
        assert str(caught.value) == (
            f"{text!r} is not a link of words, in the line {f'0-0 {text} 1-1'!r}.\n"
            "Expected i-j for a sure link, i?j or ipj for a possible one, numbers from 0."
        )


class TestErrorRate:
    def test_values_by_hand(self) -> None:
        found = [{(0, 0), (1, 1), (2, 2)}, {(0, 1)}]
        sure = [{(0, 0)}, {(0, 0), (0, 1)}]
        possible = [{(0, 0), (1, 1)}, {(0, 0), (0, 1)}]
        # |A| = 4, |S| = 3, A and S share 2 links, A and P share 3.
        assert alignment_error_rate(found, sure, possible) == pytest.approx(1 - 5 / 7)
        # P holds S even where the file does not repeat it; without P it is S.
        assert alignment_error_rate(found, sure, [{(1, 1)}, ()]) == pytest.approx(1 - 5 / 7)
        assert alignment_error_rate(found, sure) == pytest.approx(1 - 4 / 7)

    @given(SENTENCES)
    def test_it_is_the_formula(self, sentences: list[Any]) -> None:
        found, sure, possible = (list(part) for part in zip(*sentences, strict=True))
        size = sum(map(len, found)) + sum(map(len, sure))
        if not size:
            return
        hits = sum((link in s) + (link in s or link in p) for a, s, p in sentences for link in a)
        rate = alignment_error_rate(found, sure, possible)
        assert rate == pytest.approx(1 - hits / size)
        assert 0 <= rate <= 1

    @given(st.lists(PAIRS.filter(bool), min_size=1, max_size=4), PAIRS)
    def test_only_sure_links_and_only_possible_ones_cost_nothing(
        self, sure: list[Any], more: set[tuple[int, int]]
    ) -> None:
        possible = [s | more for s in sure]
        assert alignment_error_rate(sure, sure, possible) == 0
        assert alignment_error_rate(possible, sure, possible) == 0
        assert alignment_error_rate([()] * len(sure), sure, possible) == 1

    def test_what_cannot_be_judged_is_refused(self) -> None:
        with pytest.raises(InputError) as caught:
            alignment_error_rate([()], [(), ()])
        assert str(caught.value) == (
            "Expected the alignments of as many sentences three times, received 1 found, 2 sure, "
            "2 possible.\nGive one entry per sentence."
        )
        with pytest.raises(InputError, match="neither found nor sure"):
            alignment_error_rate([()], [()])
