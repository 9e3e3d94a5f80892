# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Heads that look at the right person, at the nearest, or at nobody in particular."""

import numpy as np
import pytest

from flaxattn.errors import InputError
from flaxattn.probes.head_coreference import (
    FIRST,
    FROM_MENTION,
    NEAREST,
    TO_MENTION,
    Coreference,
    pronoun_scores,
)


def hand_made(right, group="g"):
    """Nine positions: people at 1-2 and 4, a pronoun at 7; four heads in two layers."""
    pronoun, people = [7], [[1, 2], [4]]
    weights = np.full((2, 2, 9, 9), 1e-3)
    for piece in people[right]:
        weights[0, 1, 7, piece] = 0.4  # knows
        weights[1, 0, piece, 7] = 0.4  # is known
    weights[1, 1, 7, 4] = 0.5  # the nearest
    weights[0, 0] = 1 / 9
    return pronoun_scores(weights, pronoun, people, right, group=group)


def test_heads_that_know_that_are_known_and_the_nearest():
    rights = [0, 0, 0, 1]
    found = Coreference.of(hand_made(right, "ab"[right]) for right in rights)
    assert found.accuracy(FROM_MENTION)[0, 1] == 1
    assert found.accuracy(TO_MENTION)[1, 0] == 1
    assert found.accuracy(FROM_MENTION)[1, 1] == 0.25
    assert (found.simple["", NEAREST], found.simple["", FIRST]) == (1, 3)
    assert found.baseline() == (FIRST, 0.75)
    everything, a, b = found.best()
    assert everything[:6] == ("", FROM_MENTION, 0, 1, 4, 1.0)
    assert everything.lift == 25
    assert (a.group, a.mentions, a.baseline, a.lift) == ("a", 3, FIRST, 0)
    assert (b.group, b.mentions, b.baseline, b.lift) == ("b", 1, NEAREST, 0)


def test_longer_names_win_by_sums_and_ties_count_half():
    uniform = np.full((1, 1, 6, 6), 1 / 6)
    by_sum = pronoun_scores(uniform, [5], [[1, 2], [3]], 1)
    np.testing.assert_allclose(by_sum.scores[FROM_MENTION][:, 0, 0], [2 / 6, 1 / 6])
    np.testing.assert_allclose(by_sum.scores[TO_MENTION][:, 0, 0], [1 / 6, 1 / 6])
    by_max = pronoun_scores(uniform, [5], [[1, 2], [3]], 1, pooling="max")
    assert Coreference.of([by_sum]).accuracy(FROM_MENTION)[0, 0] == 0
    assert Coreference.of([by_max]).accuracy(FROM_MENTION)[0, 0] == 0.5


def test_permuting_heads_permutes_and_order_does_not_matter():
    rng = np.random.default_rng(0)
    maps = [rng.dirichlet(np.ones(8), (2, 3, 8)) for _ in range(10)]
    rights = rng.integers(0, 2, 10).tolist()

    def found(order, heads=(0, 1, 2)):
        pick = [(maps[n][:, list(heads)], rights[n]) for n in order]
        return Coreference.of(pronoun_scores(m, [6], [[1], [3, 4]], r) for m, r in pick)

    one, moved = found(range(10)), found(range(9, -1, -1), (2, 0, 1))
    for way in (FROM_MENTION, TO_MENTION):
        np.testing.assert_allclose(moved.accuracy(way), one.accuracy(way)[:, [2, 0, 1]])
    weights = maps[0]
    scores = pronoun_scores(weights, [6], [[1], [3, 4]], 0).scores
    np.testing.assert_allclose(scores[FROM_MENTION][1], weights[..., 6, 3:5].sum(-1), rtol=1e-6)
    np.testing.assert_allclose(scores[TO_MENTION][1], weights[..., 3:5, 6].mean(-1), rtol=1e-6)


def test_the_head_is_chosen_on_other_pronouns():
    one = Coreference.of([hand_made(0), hand_made(1)])
    rng = np.random.default_rng(1)
    noise = [rng.dirichlet(np.ones(9), (2, 2, 9)) for _ in range(8)]
    other = Coreference.of(pronoun_scores(m, [7], [[1, 2], [4]], 0) for m in noise)
    (judged, _) = other.best(one) if len(other.counts) == 2 else (*other.best(one), None)
    assert (judged.direction, judged.layer, judged.head) == (FROM_MENTION, 0, 1)
    assert judged.accuracy == other.accuracy(FROM_MENTION)[0, 1]


def test_what_cannot_be_judged():
    weights = np.full((1, 1, 5, 5), 0.2)
    with pytest.raises(InputError, match=r"A pronoun of 0 tokens and candidates of \[1, 1\]"):
        pronoun_scores(weights, [], [[1], [2]], 0)
    with pytest.raises(InputError, match="at least two candidates"):
        pronoun_scores(weights, [3], [[1]], 0)
    with pytest.raises(InputError, match="choose one of sum, max"):
        pronoun_scores(weights, [3], [[1], [2]], 0, pooling="mean")
    nobody = Coreference.of([pronoun_scores(weights, [3], [[1], [2]], None)])
    assert nobody.neither == 1
    with pytest.raises(InputError, match="none of 2 mentions means a candidate"):
        nobody.best()
    with pytest.raises(InputError, match="1 layers of 1 heads, then 1 of 2"):
        nobody.add(pronoun_scores(np.full((1, 2, 5, 5), 0.2), [3], [[1], [2]], 0))
