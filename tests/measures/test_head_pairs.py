# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Distances between all heads over a corpus, variability, and the plane that heads are drawn in."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon, pdist
from scipy.stats import bootstrap, entropy

from flaxattn.kernels.reductions import entropies
from flaxattn.measures.head_similarity import (
    BEGINNING,
    Pairs,
    beginning,
    distances_of,
    head_distances,
    head_map,
    likeness_of,
    pair_divergences,
    stress,
    variability,
    variability_interval,
)
from flaxattn.views.figures.plot_head_numbers import plot_head_map


def maps(count, queries, keys, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(keys, 0.3), (count, queries))


def pairs_of(texts):
    """Of maps `[N, Q, K]` of texts; heads of one layer."""
    found = Pairs((0,), tuple(range(len(texts[0]))))
    for weights in texts:
        queries = jnp.ones((1, weights.shape[1]))
        apart = pair_divergences(jnp.asarray(weights, jnp.float32)[None], queries)
        found.add(np.asarray(apart), beginning(weights)[None])
    return found


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_divergences_are_scipys_and_padding_does_not_count(count):
    weights = maps(count, 4, 7, count)
    expected = np.zeros((count, count))
    for i, j in itertools.product(range(count), repeat=2):
        expected[i, j] = np.mean(jensenshannon(weights[i], weights[j], axis=-1) ** 2)
    padded = np.zeros((1, count, 6, 9), np.float32)
    padded[0, :, :4, :7] = weights
    padded[0, :, 4:, 0] = 1
    padded[0, 0, 5, :2] = 0.5
    real = jnp.asarray([[1.0] * 4 + [0.0] * 2])
    found = pair_divergences(jnp.asarray(padded), real)
    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    if count > 1:
        condensed = distances_of(expected[np.triu_indices(count, 1)])
        np.testing.assert_allclose(head_distances(weights), condensed, atol=1e-4)


def test_entropies_of_either_kind_of_array_are_scipys():
    weights = maps(3, 4, 6)
    weights[0, 0] = [1, 0, 0, 0, 0, 0]
    weights[1, 1] = 0
    expected = entropy(np.where(weights.sum(-1, keepdims=True) > 0, weights, 1), axis=-1)
    expected[1, 1] = 0
    np.testing.assert_allclose(entropies(weights), expected, atol=1e-12)
    np.testing.assert_allclose(entropies(jnp.asarray(weights, jnp.float32)), expected, atol=1e-6)


@given(st.permutations(range(5)), st.integers(0, 5))
def test_texts_merge_in_any_order(order, cut):
    texts = [maps(3, size, size, size) for size in (2, 5, 4, 3, 12)]
    whole = pairs_of(texts)
    first = pairs_of([texts[i] for i in order[:cut]]) if cut else Pairs((0,), (0, 1, 2))
    first.merge(pairs_of([texts[i] for i in order[cut:]]) if cut < 5 else Pairs((0,), (0, 1, 2)))
    for mine, expected in zip(first.moments, whole.moments, strict=True):
        np.testing.assert_allclose(mine, expected, atol=1e-12)
    assert first.texts == 5
    np.testing.assert_allclose(variability(first.beginnings), variability(whole.beginnings))


@pytest.mark.slow
def test_variability_is_what_loops_make_it():
    texts = [maps(2, size, size, size) for size in (12, 4, 10)]
    found = variability(pairs_of(texts).beginnings)
    without = variability(pairs_of(texts).beginnings, exclude_first=True)
    for head, start, expected in ((0, 0, found), (1, 0, found), (0, 1, without), (1, 1, without)):
        moved = total = 0.0
        for i in range(BEGINNING):
            for j in range(start, BEGINNING):
                there = [t[head, i, j] for t in texts if max(i, j) < t.shape[-1]]
                moved += sum(abs(value - np.mean(there)) for value in there)
                total += sum(there)
        assert expected[head] == pytest.approx(moved / (2 * total), rel=1e-5)


def test_intervals_of_variability_are_scipys():
    starts = pairs_of([maps(2, 6, 6, n) for n in range(12)]).beginnings
    low, high = variability_interval(starts, draws=1000)
    values = variability(starts)
    assert (low <= values).all() and (low < high).all()
    found = bootstrap(
        (np.arange(12),),
        lambda some: variability(starts[some])[1],
        n_resamples=1000,
        vectorized=False,
        method="percentile",
        rng=1,
    ).confidence_interval
    np.testing.assert_allclose((low[1], high[1]), found, atol=0.01)
    assert np.isnan(variability_interval(starts[:1])).all()


def test_heads_by_position_do_not_vary_and_heads_by_content_do():
    previous = np.eye(12, k=-1)
    previous[0, 0] = 1
    rng = np.random.default_rng(0)
    texts = [np.stack([previous, np.eye(12)[rng.integers(12, size=12)]]) for _ in range(40)]
    fixed, free = variability(pairs_of(texts).beginnings)
    assert fixed == pytest.approx(0, abs=1e-7) and 0.8 < free <= 1
    assert np.isnan(variability(Pairs((0,), (0,)).beginnings)).all()


def test_points_of_a_plane_are_found_again():
    points = np.random.default_rng(1).normal(size=(9, 2)) * [3, 1]
    found = head_map(pdist(points))
    np.testing.assert_allclose(pdist(found.points), pdist(points), atol=1e-6)
    assert found.stress < 1e-6
    assert found.points[:, 0].var() >= found.points[:, 1].var()
    furthest = np.abs(found.points).argmax(0)
    assert (found.points[furthest, [0, 1]] > 0).all()
    turned = head_map(pdist(points @ [[0, 1], [-1, 0]] + 5))
    np.testing.assert_allclose(turned.points, found.points, atol=1e-6)


def test_majorisation_lowers_the_stress_of_classical_scaling():
    rng = np.random.default_rng(2)
    distances = distances_of(rng.uniform(0, np.log(2), 45))
    found = head_map(distances)
    expected = np.zeros((10, 10))
    expected[np.triu_indices(10, 1)] = distances
    expected += expected.T
    centre = np.eye(10) - 0.1
    values, vectors = np.linalg.eigh(-centre @ expected**2 @ centre / 2)
    classical = vectors[:, -2:] * np.sqrt(values[-2:])
    assert found.stress < stress(distances, classical)
    shown = pdist(found.points)
    assert found.stress == pytest.approx(
        np.sqrt(((shown - distances) ** 2).sum() / (shown**2).sum())
    )
    assert head_map(np.zeros(0)).points.tolist() == [[0, 0]]
    assert head_map(np.zeros(3)).stress == 0


def test_a_figure_shows_heads_and_their_groups():
    texts = [np.repeat(maps(2, 5, 5, n), 2, axis=0) for n in range(3)]
    pairs = pairs_of(texts)
    likeness = likeness_of(pairs.distances, 4, groups=2)
    assert likeness.groups[0] == likeness.groups[1] != likeness.groups[2] == likeness.groups[3]
    figure = plot_head_map(pairs.layers, pairs.heads, likeness, head_map(pairs.distances))
    plane, matrix, *_ = figure.axes
    assert {text.get_text() for text in plane.texts} == {"0.0", "0.1", "0.2", "0.3"}
    assert "stress 0.00" in plane.get_title()
    shown = matrix.images[0].get_array()
    assert shown[0, 1] == pytest.approx(0, abs=1e-3) and shown[0, 2] > 0.1
    figure.clear()


def test_heads_of_a_layer_beside_those_of_others():
    found = Pairs((0, 3), (0, 1))
    apart = np.array([[0, 0.1, 0.4, 0.5], [0, 0, 0.6, 0.3], [0, 0, 0, 0.2], [0, 0, 0, 0]])
    found.add((apart + apart.T)[None], np.zeros((1, 4, BEGINNING, BEGINNING)))
    assert (found.layers, found.heads) == ((0, 0, 3, 3), (0, 1, 0, 1))
    means = found.by_layer()
    assert means == {"within_layers": pytest.approx(0.15), "between_layers": pytest.approx(0.45)}
    assert Pairs((0,), (0,)).by_layer() == {"within_layers": None, "between_layers": None}
