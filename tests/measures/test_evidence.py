# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The best texts of every claim: the same in any order, as by sorting; few texts for many."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaxattn.errors import InputError
from flaxattn.measures.claims import Evidence, covering

KEEP = 3
SCORES = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, float("nan")]), min_size=1, max_size=14)


def truth(scores):
    """The best texts by sorting all of them, of equal ones the first."""
    known = [(-s, t) for t, s in enumerate(scores) if s == s]
    return [(t, -s) for s, t in sorted(known)][:KEEP]


def shown(evidence, claim="c"):
    return [tuple(one) for one in evidence.of(claim, 0, 0)]


def taken(scores, texts):
    found = Evidence(KEEP)
    if len(texts):
        found.add("c", np.array(scores)[texts][:, None, None], texts)
    return found


@given(SCORES, st.randoms(use_true_random=False), st.integers(1, 5))
def test_any_order_of_texts_and_merges_keeps_the_same(scores, random, parts):
    order = list(range(len(scores)))
    random.shuffle(order)
    cuts = sorted(random.randrange(len(order) + 1) for _ in range(parts - 1))
    pieces = [order[a:b] for a, b in itertools.pairwise([0, *cuts, len(order)])]
    found = [taken(scores, piece) for piece in pieces]
    random.shuffle(found)
    while len(found) > 1:  # a tree of merges of any shape
        one, other = found.pop(random.randrange(len(found))), found.pop()
        one.merge(other)
        found.append(one)
    assert shown(found[0]) == truth(scores)


def test_each_head_has_texts_of_its_own():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20, 2, 3))
    found = Evidence(KEEP)
    for start in (10, 0):
        found.add("c", scores[start : start + 10], range(start, start + 10))
    for layer, head in np.ndindex(2, 3):
        best = np.argsort(-scores[:, layer, head])[:KEEP]
        texts = found.of("c", layer, head)
        assert [one.text for one in texts] == best.tolist()
        assert [one.score for one in texts] == scores[best, layer, head].tolist()
    assert found.of("d", 0, 0) == []
    assert found.texts() == {o.text for i, j in np.ndindex(2, 3) for o in found.of("c", i, j)}


def test_nothing_to_keep_is_refused():
    with pytest.raises(InputError, match="evidence of 0 texts was requested"):
        Evidence(0)


def test_few_texts_show_many_claims():
    assert covering([[7, 1], [7, 2], [7, 3], [4]], 2) == [4, 7]
    assert covering([[7, 1], [7, 2]], 9) == [1, 2, 7]
    assert covering([[5], [3]], 1) == [3]
    assert covering([], 4) == [] and covering([[]], 4) == []


@given(st.lists(st.lists(st.integers(0, 9), max_size=3, unique=True), max_size=8))
def test_the_order_of_claims_does_not_matter(evidence):
    assert covering(evidence, 4) == covering(evidence[::-1], 4)
    assert covering(evidence, 99) == sorted({text for texts in evidence for text in texts})
