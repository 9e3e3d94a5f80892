# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Measures per head against hand-made patterns, loops, and scipy's laws of entropy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaxattn.errors import InputError
from flaxattn.measures.head_measures import cross_measures, head_measures, measure
from flaxattn.trace.record import without_first
from flaxattn.trace.trace import Trace

LENGTH = 9


def pattern(offset, length=LENGTH):
    """Every query looks at the key `offset` away; at itself where there is none."""
    weights = np.zeros((length, length), np.float32)
    for i in range(length):
        j = i + offset
        weights[i, j if 0 <= j < length else i] = 1
    return weights


def trace_of(*heads, **fields):
    """One sequence, one layer."""
    weights = np.stack(heads)[None, None]
    return Trace.from_arrays(weights, [["x"] * weights.shape[-1]], **fields)


SPECIAL = np.zeros((1, LENGTH), bool)
SPECIAL[0, [0, 5, 8]] = True
DELIMITER = np.tile(SPECIAL / 3, (LENGTH, 1)).astype(np.float32)
UNIFORM = np.full((LENGTH, LENGTH), 1 / LENGTH, np.float32)
HALF = (pattern(1) + pattern(-1)) / 2


@pytest.mark.parametrize(
    ("weights", "does"),
    [
        (pattern(1), "next token"),
        (pattern(-1), "previous token"),
        (pattern(0), "own token"),
        (DELIMITER, "delimiters"),
        (UNIFORM, "broad"),
        (HALF, "mixed"),
    ],
    ids=["next", "previous", "own", "delimiters", "uniform", "half and half"],
)
def test_a_pure_pattern_gets_its_name_and_no_other(weights, does):
    (measures,) = head_measures(trace_of(weights, special=SPECIAL))
    assert measures.does == does


def test_shares_of_known_patterns():
    following, uniform = head_measures(trace_of(pattern(1), UNIFORM, special=SPECIAL))
    assert following.next == pytest.approx((LENGTH - 1) / LENGTH)
    assert following.distance == pytest.approx((LENGTH - 1) / LENGTH)
    assert following.entropy == 0
    assert uniform.entropy == pytest.approx(math.log(LENGTH), abs=1e-6)
    assert uniform.relative_entropy == pytest.approx(1, abs=1e-6)
    assert uniform.delimiter == pytest.approx(3 / LENGTH)
    assert uniform.first == pytest.approx(1 / LENGTH)


def test_unknown_is_nan_and_never_names_a_head():
    (measures,) = head_measures(trace_of(DELIMITER))
    assert math.isnan(measures.delimiter)
    assert math.isnan(measures.same_segment)
    assert measures.does == "mixed"


def test_padding_counts_neither_as_query_nor_as_key():
    real = pattern(1, 6)
    padded = np.full((LENGTH, LENGTH), np.nan, np.float32)
    padded[:, 6:] = 0
    padded[:6, :6] = real
    mask = np.arange(LENGTH)[None] < 6
    (measures,) = head_measures(trace_of(padded, mask=mask))
    (alone,) = head_measures(trace_of(real))
    assert measures.next == alone.next == pytest.approx(5 / 6)
    assert measures.distance == alone.distance


def test_sequences_count_alike_whatever_their_length():
    """A mean over queries in each sequence, then over sequences, as in the paper."""
    weights = np.stack([pattern(1), pattern(-1)])[None, :, None]
    mask = np.array([[True] * LENGTH, [True] * 3 + [False] * (LENGTH - 3)])
    trace = Trace.from_arrays(weights, [["x"] * LENGTH] * 2, mask=mask)
    (measures,) = head_measures(trace)
    assert measures.next == pytest.approx((8 / 9) / 2)
    assert measures.previous == pytest.approx((2 / 3) / 2)


def test_segments():
    segments = np.array([[0] * 4 + [1] * 5])
    (measures,) = head_measures(trace_of(UNIFORM, segments=segments))
    assert measures.same_segment == pytest.approx((4 * 4 + 5 * 5) / 81)


def test_layer_and_head_numbers_are_those_of_the_capture():
    weights = np.stack([UNIFORM, pattern(1)])[None, None]
    trace = Trace.from_arrays(weights, [["x"] * LENGTH], layers=[7], heads=[2, 5])
    measures = head_measures(trace)
    assert [(m.layer, m.head) for m in measures] == [(7, 2), (7, 5)]
    assert measures[1].does == "next token"


def test_eight_bit_weights_measure_alike():
    rounded = np.round(255 * HALF).astype(np.uint8)[None, None, None]
    (measures,) = head_measures(Trace.from_arrays(rounded, [["x"] * LENGTH]))
    (exact,) = head_measures(trace_of(HALF))
    assert measures.next == pytest.approx(exact.next, abs=1 / 255)


@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_shares_agree_with_loops_and_obey_their_laws(length, seed):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(length, 0.3), (2, length))
    special = rng.random(length) < 0.3
    segments = rng.integers(0, 2, length)
    got = measure(weights, special, segments)
    for h in range(2):
        expected = dict.fromkeys(("next", "previous", "own", "first", "distance", "entropy"), 0.0)
        expected |= {"delimiter": 0.0, "same_segment": 0.0}
        for i in range(length):
            for j in range(length):
                w = weights[h, i, j] / length
                expected["next"] += w * (j == i + 1)
                expected["previous"] += w * (j == i - 1)
                expected["own"] += w * (j == i)
                expected["first"] += w * (j == 0)
                expected["distance"] += w * abs(i - j)
                expected["delimiter"] += w * special[j]
                expected["same_segment"] += w * (segments[i] == segments[j])
                if weights[h, i, j] > 0:
                    expected["entropy"] -= w * math.log(weights[h, i, j])
        for name, value in expected.items():
            assert got[name][h] == pytest.approx(value, abs=1e-9), name
    assert np.all(got["relative_entropy"] <= 1 + 1e-9)
    assert np.all(got["next"] + got["previous"] + got["own"] <= 1 + 1e-9)


def test_a_trace_of_statistics_only_says_what_to_ask():
    trace = Trace.from_arrays(tokens=[["x"] * 3], stats={"entropy": np.zeros((1, 1, 2, 3))})
    with pytest.raises(InputError, match=r"capture=Capture\(weights=True\)"):
        head_measures(trace)


def test_a_sequence_of_padding_only_is_refused():
    trace = trace_of(UNIFORM, mask=np.zeros((1, LENGTH), bool))
    with pytest.raises(InputError, match="Sequence 0 of the trace is all padding"):
        head_measures(trace)


def test_most_attention_on_the_first_token_has_a_name():
    sink = np.zeros((LENGTH, LENGTH), np.float32)
    sink[:, 0] = 1
    (measures,) = head_measures(trace_of(sink))
    assert (measures.does, measures.first, measures.excludes_first) == ("first token", 1, False)
    (measures,) = head_measures(trace_of(sink, special=SPECIAL))
    assert measures.does == "delimiters"  # `[CLS]` is one


def draw_rows(data):
    """Maps of two heads, `[2, S, S]`; some rows have everything on the first key."""
    size = data.draw(st.integers(2, 9))
    draws = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    weights = draws.dirichlet(np.full(size, 0.3), (2, size))
    alone = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    weights[:, alone] = np.eye(size)[0]
    return weights


@given(data=st.data())
def test_without_the_first_token_what_is_left_is_measured(data):
    """A loop over rows, each renormalised by itself."""
    weights = draw_rows(data)
    size = weights.shape[-1]
    found = measure(weights, exclude_first=True)
    for head, rows in enumerate(weights):
        kept = [(i, row[1:] / row[1:].sum()) for i, row in enumerate(rows) if row[1:].any()]
        count = max(len(kept), 1)
        own = sum(row[i - 1] for i, row in kept if i > 0) / count
        far = sum(abs(j + 1 - i) * p for i, row in kept for j, p in enumerate(row)) / count
        entropy = sum(-p * math.log(p) for _, row in kept for p in row if p > 0) / count
        assert found["own"][head] == pytest.approx(own)
        assert found["distance"][head] == pytest.approx(far)
        assert found["entropy"][head] == pytest.approx(entropy, abs=1e-9)
        assert found["relative_entropy"][head] <= 1 + 1e-9 or size == 2
        assert found["first"][head] == pytest.approx(rows[:, 0].mean())
    np.testing.assert_array_equal(measure(weights)["first"], found["first"])


@given(data=st.data())
def test_renormalised_rows_sum_to_one_or_are_empty(data):
    weights = draw_rows(data)
    rest = without_first(weights)
    sums = rest.sum(-1)
    np.testing.assert_allclose(sums, np.where(weights[..., 1:].any(-1), 1, 0))
    assert not rest[..., 0].any()
    np.testing.assert_allclose(rest * (1 - weights[..., :1]), weights * (rest > 0), atol=1e-12)


def test_a_sink_that_takes_everything_measures_nothing_else_and_no_nan():
    sink = np.zeros((LENGTH, LENGTH), np.float32)
    sink[:, 0] = 1
    trace = trace_of(sink, pattern(-1) * 0.4 + sink * 0.6, special=SPECIAL)
    empty, previous = head_measures(trace, exclude_first=True)
    assert (empty.first, empty.own, empty.entropy, empty.relative_entropy) == (1, 0, 0, 0)
    assert (empty.does, previous.does) == ("mixed", "previous token")
    assert previous.previous == pytest.approx(1, abs=1e-6)  # rows 0 and 1 have nothing else
    assert previous.excludes_first
    assert head_measures(trace)[1].does == "delimiters"


def test_a_first_source_token_is_left_out_of_cross_attention():
    shares = np.array([[0.6, 0.1, 0.3], [0.9, 0.1, 0.0], [1.0, 0.0, 0.0]], np.float32)
    trace = Trace.from_arrays(
        tokens=[["x"] * 3], decoder_tokens=[["y"] * 3], cross_weights=shares[None, None, None]
    )
    (found,) = cross_measures(trace, exclude_first=True)
    assert found.strongest == pytest.approx((0.75 + 1) / 2)
    assert found.first == pytest.approx(2.5 / 3)
    assert (found.excludes_first, cross_measures(trace)[0].excludes_first) == (True, False)
