# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Divergence between attentions obeys its laws, is scipy's, and ranks the head that changed."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import distance

from flaxattn.errors import InputError
from flaxattn.measures.divergence import compare_traces, cosine, jensen_shannon
from flaxattn.trace.trace import Trace

LOG2 = np.log(2)


@st.composite
def two_maps(draw):
    """Two maps [H, Q, K], some weights exactly zero, as causal masks make them."""
    heads, queries, keys = (draw(st.integers(1, 4)) for _ in range(3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sharp = draw(st.sampled_from([0.01, 0.3, 1.0, 30.0]))
    maps = rng.dirichlet(np.full(keys, sharp), (2, heads, queries))
    maps = np.where(maps < 1e-4, 0, maps)
    return (maps / maps.sum(-1, keepdims=True)).astype(np.float32)


@given(two_maps())
def test_it_is_zero_for_itself_symmetric_and_at_most_log_2(maps):
    first, second = maps
    apart = jensen_shannon(first, second)
    assert (jensen_shannon(first, first) == 0).all()
    np.testing.assert_allclose(apart, jensen_shannon(second, first), atol=1e-15)
    assert (apart >= 0).all() and (apart <= LOG2).all()
    alike = cosine(first, second)
    np.testing.assert_array_equal(alike, cosine(second, first))
    np.testing.assert_allclose(cosine(first, first), 1, rtol=1e-12)
    assert (alike >= 0).all() and (alike <= 1).all()


@given(two_maps())
def test_scipy_computes_the_same(maps):
    first, second = maps.astype(np.float64)
    first, second = (rows / rows.sum(-1, keepdims=True) for rows in (first, second))
    theirs = distance.jensenshannon(first, second, axis=-1) ** 2
    np.testing.assert_allclose(jensen_shannon(first, second), np.nan_to_num(theirs), atol=1e-12)
    for index in np.ndindex(first.shape[:-1]):
        expected = 1 - distance.cosine(first[index], second[index])
        assert cosine(first, second)[index] == pytest.approx(expected, abs=1e-12)


def test_rows_without_a_key_in_common_differ_by_log_2():
    rows = np.eye(2)[:, None]
    assert jensen_shannon(rows[0], rows[1])[0] == pytest.approx(LOG2)
    assert cosine(rows[0], rows[1])[0] == 0
    nothing = np.zeros((1, 2))
    assert cosine(nothing, nothing)[0] == 1 and cosine(nothing, rows[0])[0] == 0
    assert jensen_shannon(nothing, nothing)[0] == 0


def trace(weights, **fields):
    length = weights.shape[-1]
    tokens = [[f"t{i}" for i in range(length)]] * weights.shape[1]
    return Trace.from_arrays(weights, tokens, **fields)


def random_weights(seed=0, shape=(2, 2, 3, 4, 4)):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(shape[-1]), shape[:-1]).astype(np.float32)


def test_the_heads_that_changed_come_first_with_their_numbers():
    before = random_weights()
    after = before.copy()
    after[1, :, 2] = random_weights(1)[1, :, 2]
    after[0, 0, 1] = random_weights(2)[0, 0, 1]
    found = compare_traces(trace(before), trace(after))
    assert [(row.layer, row.head) for row in found[:2]] == [(1, 2), (0, 1)]
    assert all(row.divergence == 0 and row.cosine == pytest.approx(1) for row in found[2:])
    apart = distance.jensenshannon(before[1, :, 2], after[1, :, 2], axis=-1) ** 2
    assert found[0].divergence == pytest.approx(apart.mean(), rel=1e-4)
    again = {(r.layer, r.head): r for r in compare_traces(trace(after), trace(before))}
    for row in found:
        assert again[row.layer, row.head].divergence == pytest.approx(row.divergence, abs=1e-12)


def test_padding_counts_for_nothing():
    before, after = random_weights(), random_weights(1)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)
    for weights in (before, after):
        weights[:, 1, :, :, 2:] = 0
        weights /= weights.sum(-1, keepdims=True)
    whole = compare_traces(trace(before, mask=mask), trace(after, mask=mask))
    after[:, 1, :, 2:] = 0.25
    assert compare_traces(trace(before, mask=mask), trace(after, mask=mask)) == whole


def test_only_what_both_have_is_compared():
    weights = random_weights()
    one = trace(weights, layers=[4, 6], heads=[0, 1, 2])
    other = trace(weights[1:], layers=[6], heads=[2, 1, 7])
    assert {(r.layer, r.head) for r in compare_traces(one, other)} == {(6, 1), (6, 2)}
    with pytest.raises(InputError) as caught:
        compare_traces(one, trace(weights, layers=[0, 1]))
    assert str(caught.value) == (
        "The two traces share no layers of encoder: 4, 6 and 0, 1.\n"
        "Capture the same layers and heads in both."
    )


def test_other_texts_are_refused_with_the_place():
    one = trace(random_weights())
    tokens = [list(row) for row in one.tokens]
    tokens[1][2] = "dog"
    with pytest.raises(InputError) as caught:
        compare_traces(one, dataclasses.replace(one, tokens=tokens))
    assert str(caught.value) == (
        "The tokens of the two traces differ: sequence 1, position 2: 't2' and 'dog'.\n"
        "Compare traces of the same texts, cut by the same tokenizer."
    )
    with pytest.raises(InputError, match="differ: 2 and 1 sequences"):
        compare_traces(one, one[0])
    with pytest.raises(InputError, match="differ: sequence 0: 4 and 3 tokens"):
        compare_traces(one, trace(random_weights(shape=(2, 2, 3, 3, 3))))
    with pytest.raises(InputError, match="have no weights of cross in common; both have encoder"):
        compare_traces(one, one, side="cross")


def test_a_head_that_is_nan_comes_last():
    weights = random_weights()
    broken = weights.copy()
    broken[0, 1, 1, 2] = np.nan
    ranked = compare_traces(trace(weights), trace(broken))
    plain = compare_traces(trace(weights), trace(weights))
    assert len(ranked) == len(plain)
    assert (ranked[-1].layer, ranked[-1].head) == (0, 1)
    assert np.isnan(ranked[-1].divergence) and np.isnan(ranked[-1].cosine)
    assert all(row.divergence == 0 and row.cosine > 0.999 for row in ranked[:-1])
