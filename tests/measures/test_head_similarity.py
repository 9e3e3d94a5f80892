# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Distances between heads are scipy's, they are a metric, and like heads come side by side."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy.spatial.distance import jensenshannon, squareform

from flaxattn.measures import head_similarity
from flaxattn.measures.head_similarity import head_distances, head_likeness


def peaked(seed: int, heads: int, queries: int = 5, keys: int = 7, scale: float = 3) -> np.ndarray:
    """Attention `[N, Q, K]`."""
    scores = scale * np.random.default_rng(seed).normal(size=(heads, queries, keys))
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return (shares / shares.sum(-1, keepdims=True)).astype(np.float32)


@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 6), st.integers(1, 9))
def test_distances_are_scipys(seed, heads, queries, keys):
    weights = peaked(seed, heads, queries, keys)
    found = squareform(head_distances(weights))
    for i in range(heads):
        for j in range(i):
            rows = jensenshannon(weights[i], weights[j], base=2, axis=-1)
            expected = np.sqrt(np.mean(np.nan_to_num(rows) ** 2))
            assert found[i, j] == pytest.approx(expected, abs=1e-3)


@given(st.integers(0, 10_000), st.floats(0.1, 20))
def test_they_are_a_metric(seed, scale):
    weights = peaked(seed, 5, scale=scale)
    weights[4] = weights[0]
    found = squareform(head_distances(weights))
    assert found[0, 4] == pytest.approx(0, abs=2e-3)
    assert (found >= 0).all() and (found <= 1).all()
    assert (found[:, None, :] <= found[:, :, None] + found.T[None] + 5e-3).all()


def test_heads_that_share_no_key_are_most_distant():
    weights = np.zeros((3, 2, 4), np.float32)
    weights[0, :, 0] = weights[1, :, 3] = weights[2, :, 3] = 1
    assert head_distances(weights) == pytest.approx([1, 1, 0])


def test_a_head_without_attention_has_a_finite_distance():
    weights = peaked(0, 3)
    weights[1] = 0
    found = head_distances(weights)
    assert np.isfinite(found).all()
    assert found.min() > 0


def test_long_texts_are_sampled_evenly(monkeypatch):
    weights = peaked(0, 4, queries=40)
    monkeypatch.setattr(head_similarity, "TERMS", 4 * 4 * 7 // 2 * 4)
    assert head_distances(weights) == pytest.approx(head_distances(weights[:, [0, 13, 26, 39]]))


def test_like_heads_are_side_by_side_and_in_one_group():
    kinds = peaked(1, 3, scale=8)
    weights = kinds[[0, 1, 2, 1, 0, 2, 0]]
    found = head_likeness(weights, groups=3)
    assert sorted(found.order.tolist()) == list(range(7))
    assert found.groups[[0, 4, 6]].tolist() == [found.groups[0]] * 3
    assert len(set(found.groups.tolist())) == 3
    in_order = found.groups[found.order].tolist()
    assert in_order == sorted(in_order)


def test_one_head_is_a_group_of_its_own():
    found = head_likeness(peaked(0, 1))
    assert (found.distances.size, found.order.tolist(), found.groups.tolist()) == (0, [0], [0])
