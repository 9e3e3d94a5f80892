# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Examples are the largest and smallest weights of gold pairs; nearest heads are the nearest."""

import itertools

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon, squareform

from flaxattn.measures import head_similarity
from flaxattn.measures.claims import Claim
from flaxattn.measures.gold_pairs import (
    HIT,
    MISS,
    UNJUDGED,
    GoldPair,
    GoldPairs,
    PairExamples,
    choose_ends,
    gold_weights,
    judged_pairs,
)
from flaxattn.measures.head_similarity import MeanDistances, nearest_heads
from flaxattn.trace.trace import Trace

PAIRS = [
    GoldPair((1, 1), ((0, 0),)),
    GoldPair((2, 3), ((3, 4), (0, 0))),
    GoldPair((4, 4), ((4, 4),)),
]
CLAIM = Claim("subject", 5, 2, 1.0)


def peaked(layers, heads, length, seed=0):
    """Softmax of random scores, `[L, 1, H, Q, K]`."""
    scores = 2 * np.random.default_rng(seed).normal(size=(layers, 1, heads, length, length))
    shares = np.exp(scores)
    return (shares / shares.sum(-1, keepdims=True)).astype(np.float32)


def traced(weights):
    """Layers 3 and 5 with heads 0 and 2; of random weights if a number is given."""
    if np.isscalar(weights):
        weights = peaked(2, 2, 5, seed=weights)
    tokens = [[f"t{n}" for n in range(5)]]
    return Trace.from_arrays(weights, tokens, layers=(3, 5), heads=(0, 2))


def gold_of(trace, pairs=PAIRS, name="subject"):
    return GoldPairs(name, "", "", pairs, judged_pairs(pairs, trace.encoder))


def test_a_weight_is_the_sum_over_the_gold_keys_of_the_first_query():
    trace = traced(0)
    weights = trace.encoder.weights[:, 0]
    found = gold_weights(gold_of(trace), trace.encoder)
    for (i, layer), (j, head) in itertools.product(enumerate((0, 1)), enumerate((0, 1))):
        one = weights[layer, head]
        expected = [one[1, 0], one[2, 0] + one[2, 3] + one[2, 4], one[4, 4]]
        np.testing.assert_allclose(found[i, j], expected, rtol=1e-6)


def test_examples_are_those_of_a_plain_search():
    examples = PairExamples([CLAIM, Claim("subject", 3, 0, 1.0)], shown=4)
    every = []
    for text, seed in ((3, 1), (8, 2), (11, 3), (20, 4)):
        trace = traced(seed)
        gold = gold_of(trace)
        examples.add("encoder", text, gold, trace.encoder)
        weights = gold_weights(gold, trace.encoder)[1, 1]
        every += [(-weights[p], text, p, int(gold.hits[1, 1, p])) for p in range(3)]
    found = examples.of(CLAIM)
    assert (found.candidates, found.texts) == (12, 4)
    largest = [(-np.float32(e.weight), e.text, e.place, e.outcome) for e in found.best]
    assert largest == sorted(every)[:4]
    least = sorted((-w, text, p, hit) for w, text, p, hit in sorted(every)[4:])[:4]
    assert [(np.float32(e.weight), e.text, e.place, e.outcome) for e in found.worst] == least
    assert {e.pair for e in found.best} <= set(PAIRS)
    assert {e.outcome for e in (*found.best, *found.worst)} == {HIT, MISS}
    assert examples.of(Claim("subject", 3, 0, 1.0)).best != found.best


def test_of_equal_weights_the_first_stands_first():
    weights = np.array([0.5, 0.25, 0.5, 0.25, 0.5], np.float32)
    assert choose_ends(weights, 2) == ([0, 2], [1, 3])
    assert choose_ends(weights, 4) == ([0, 2, 4, 1], [3]), "none is both best and worst"
    assert choose_ends(weights, 9) == ([0, 2, 4, 1, 3], [])


def test_rows_that_are_nan_are_neither_missed_nor_examples():
    weights = peaked(2, 2, 5, seed=5)
    weights[1, 0, 1, 1] = np.nan
    trace = traced(weights)
    gold = gold_of(trace)
    assert gold.hits[1, 1, 0] == UNJUDGED and UNJUDGED not in gold.hits[0]
    examples = PairExamples([CLAIM])
    examples.add("encoder", 0, gold, trace.encoder)
    found = examples.of(CLAIM)
    assert {e.place for e in (*found.best, *found.worst)} == {1, 2} and found.candidates == 2
    weights[1, 0, 1] = np.nan
    trace = traced(weights)
    nothing = PairExamples([CLAIM])
    nothing.add("encoder", 0, gold_of(trace), trace.encoder)
    assert nothing.of(CLAIM) is None


def test_other_claims_have_no_examples():
    trace = traced(6)
    examples = PairExamples([CLAIM])
    examples.add("encoder", 0, gold_of(trace, name="object"), trace.encoder)
    examples.add("decoder", 0, gold_of(trace), trace.encoder)
    assert examples.of(CLAIM) is None


def rooted(weights):
    """Squares of distances by scipy, the mean over queries."""
    count = weights.shape[0]
    square = np.zeros((count, count))
    for i, j in itertools.combinations(range(count), 2):
        rows = [jensenshannon(p, q, 2) ** 2 for p, q in zip(weights[i], weights[j], strict=True)]
        square[i, j] = square[j, i] = np.mean(rows)
    return square


def test_distances_are_means_over_texts():
    texts = [peaked(2, 3, length, seed=length).reshape(6, length, length) for length in (4, 7, 9)]
    measured = MeanDistances()
    for weights in texts:
        measured.add(weights)
    assert measured.texts == 3
    expected = np.sqrt(np.mean([rooted(weights.astype(float)) for weights in texts], axis=0))
    np.testing.assert_allclose(squareform(measured.distances), expected, atol=2e-4)
    for head, row in enumerate(nearest_heads(measured.distances, 6, 3)):
        others = sorted((expected[head, j], j) for j in range(6) if j != head)[:3]
        assert [j for j, _ in row] == [j for _, j in others]
        np.testing.assert_allclose([far for _, far in row], [far for far, _ in others], atol=2e-4)


def test_a_head_that_is_nan_in_a_text_does_not_count_there():
    texts = [peaked(1, 3, 5, seed=n).reshape(3, 5, 5) for n in (1, 2)]
    texts[1][2, 0, 0] = np.nan
    measured = MeanDistances()
    for weights in texts:
        measured.add(weights)
    alone = np.sqrt(rooted(texts[0].astype(float)))
    assert measured.distances[1] == pytest.approx(alone[0, 2], abs=2e-4)
    broken = MeanDistances()
    broken.add(texts[1])
    assert nearest_heads(broken.distances, 3, 2) == [
        [(1, broken.distances[0])],
        [(0, broken.distances[0])],
        [],
    ]


def test_the_cost_of_distances_is_bounded(monkeypatch):
    weights = peaked(1, 4, 6).reshape(4, 6, 6)
    monkeypatch.setattr(head_similarity, "TERMS", 4 * 4 * 6 * 6)
    measured = MeanDistances()
    for _ in range(5):
        measured.add(weights)
    assert measured.texts == 2, "each takes half of the terms"
