# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts whose mentions show a head best, and the gold pairs in them, beside loops."""

import numpy as np
import pytest

from flaxattn.measures.gold_pairs import HIT, MISS, UNJUDGED, GoldPair
from flaxattn.probes.head_coreference import (
    FROM_MENTION,
    TO_MENTION,
    JudgedMention,
    WatchedMentions,
    pronoun_scores,
)

PRONOUN, PEOPLE = [7], [[1, 2], [4]]


def mention(number, weights, right, group="g"):
    scores = pronoun_scores(weights, PRONOUN, PEOPLE, right, group=group)
    tokens = [] if right is None else [PEOPLE[right]]
    return JudgedMention(number, f"t{number}", "a text", PRONOUN, tokens, scores)


@pytest.fixture(scope="module")
def mentions():
    rng = np.random.default_rng(3)
    maps = rng.dirichlet(np.ones(9), (12, 2, 3, 9))
    made = [mention(n // 2, one, [0, 1, None][n % 3], "ab"[n % 2]) for n, one in enumerate(maps)]
    return maps, made


def largest(weights, right, direction):
    between = [weights[:, :, 7, k] for k in PEOPLE[right]]
    if direction == TO_MENTION:
        return np.mean([weights[:, :, k, 7] for k in PEOPLE[right]], 0)
    return np.sum(between, 0)


@pytest.mark.parametrize("direction", [FROM_MENTION, TO_MENTION])
@pytest.mark.parametrize("group", ["", "a", "b"])
def test_the_texts_with_most_attention_on_what_mentions_mean(mentions, direction, group):
    maps, made = mentions
    watched = WatchedMentions(2)
    assert list(watched(made)) == made
    for layer, head in np.ndindex(2, 3):
        means = {}
        for text in range(6):
            of_text = [
                largest(maps[n], n % 3, direction)[layer, head]
                for n in (2 * text, 2 * text + 1)
                if n % 3 < 2 and group in ("", "ab"[n % 2])
            ]
            if of_text:
                means[text] = np.mean(of_text)
        expected = sorted(means, key=lambda text: -means[text])[:2]
        shown = watched.evidence.of((direction, group), layer, head)
        assert [one.text for one in shown] == expected
        assert [one.score for one in shown] == pytest.approx([means[t] for t in expected], rel=1e-6)
    assert watched.texts.keys() == watched.evidence.texts()


def test_gold_pairs_are_judged_as_heads_are_counted(mentions):
    maps, made = mentions
    watched = WatchedMentions(6)
    list(watched(made))
    found = watched.gold_pairs(0, FROM_MENTION, "", "all mentions")
    assert found.name == "all mentions"
    assert found.pairs == [GoldPair((7, 7), ((1, 2),)), GoldPair((7, 7), ((4, 4),))]
    for place, (weights, right) in enumerate(zip(maps[:2], (0, 1), strict=True)):
        shares = np.stack([weights[:, :, 7, list(keys)].sum(-1) for keys in PEOPLE])
        expected = np.where(shares.argmax(0) == right, HIT, MISS)
        np.testing.assert_array_equal(found.hits[..., place], expected)
    back = watched.gold_pairs(0, TO_MENTION, "a", "a")
    assert back.pairs == [GoldPair((1, 2), ((7, 7),))]
    shares = np.stack([maps[0][:, :, list(keys), 7].mean(-1) for keys in PEOPLE])
    np.testing.assert_array_equal(back.hits[..., 0], np.where(shares.argmax(0) == 0, HIT, MISS))


def test_heads_that_are_nan_are_not_judged():
    weights = np.full((1, 2, 9, 9), 0.1)
    weights[0, 1] = np.nan
    watched = WatchedMentions(1)
    list(watched([mention(5, weights, 0)]))
    found = watched.gold_pairs(5, FROM_MENTION, "", "all")
    assert found.hits.tolist() == [[[HIT], [UNJUDGED]]]
    assert watched.evidence.of((FROM_MENTION, ""), 0, 1) == []


def test_mentions_without_a_right_candidate_show_nothing():
    watched = WatchedMentions(1)
    list(watched([mention(0, np.full((1, 1, 9, 9), 0.1), None)]))
    assert watched.texts == {}
