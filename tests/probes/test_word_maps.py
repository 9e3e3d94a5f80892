# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Words out of pieces by hand, and heads that find governors exactly, by an offset, or not."""

import dataclasses
from collections import Counter

import laid_out
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flaxattn.errors import InputError
from flaxattn.measures.scores import ScoreAccumulator
from flaxattn.measures.specs import ScoreOptions, ScoreSpec
from flaxattn.probes.governor_probe import FROM_GOVERNOR, TO_GOVERNOR, Dependencies
from flaxattn.probes.word_records import ROOT, UNKNOWN, WordMaps, word_maps_of
from flaxattn.text.position_labels import Arc


def sentence(governors, weights=None, *, name="s", relations=None, rng=None, types=None):
    """A sentence of words whose maps are given, or random ones of 2 layers x 3 heads."""
    count = len(governors)
    if weights is None:
        weights = rng.dirichlet(np.full(count + 2, 0.3), (2, 3, count))
        weights, first, last = weights[..., 2:], weights[..., 0], weights[..., 1]
    else:
        first = last = np.zeros(weights.shape[:3])
    return WordMaps(
        tuple(range(weights.shape[0])),
        tuple(range(weights.shape[1])),
        weights.astype(np.float32),
        first.astype(np.float32),
        last.astype(np.float32),
        np.array(governors),
        tuple(relations or ["" if g == ROOT else "nsubj" for g in governors]),
        types or tuple((place,) for place in range(count)),
        np.zeros(count, bool),
        name,
    )


def pointing(keys):
    """A map in which each word gives all it has to one other."""
    weights = np.zeros((len(keys), len(keys)))
    weights[np.arange(len(keys)), keys] = 1
    return weights


def random_tree(count, rng):
    governors = [ROOT] + [int(rng.integers(place)) for place in range(1, count)]
    order = rng.permutation(count)
    found = np.full(count, ROOT)
    for place, governor in enumerate(governors):
        found[order[place]] = ROOT if governor == ROOT else order[governor]
    return found.tolist()


def test_columns_of_a_split_word_are_summed_and_rows_averaged():
    layout = laid_out.single()
    weights = laid_out.random_maps(2, 3, 8, np.random.default_rng(0))
    words = word_maps_of(weights, layout, layers=(4, 5))
    tokens = [[1], [2, 3], [4], [5], [6]]
    for i, queries in enumerate(tokens):
        for j, keys in enumerate(tokens):
            expected = sum(weights[..., q, k] for q in queries for k in keys) / len(queries)
            np.testing.assert_allclose(words.weights[..., i, j], expected, rtol=1e-5)
        np.testing.assert_allclose(words.first[..., i], weights[..., queries, 0].mean(-1), 1e-5)
    total = words.weights.sum(-1) + words.first + words.separators
    np.testing.assert_allclose(total, 1, rtol=1e-5)
    assert words.governors.tolist() == [1, ROOT, 1, 2, 2]
    assert words.relations == ("nsubj", "", "obj", "amod", "nsubj:pass")
    assert words.types == ((10,), (11, 12), (13,), (10,), (14,))
    assert words.punctuation.tolist() == [False] * 4 + [True]
    assert (words.layers, words.heads, len(words)) == ((4, 5), (0, 1, 2), 5)


def test_words_beyond_a_cut_are_left_out_and_their_dependents_unknown():
    layout = dataclasses.replace(laid_out.single(), words=[[1], [], [4], [5], [5]])
    words = word_maps_of(laid_out.random_maps(1, 1, 8, np.random.default_rng(0)), layout)
    # The governor of 0 and 2 is cut off; 3 and 4 share a piece with each other, not with 2.
    assert words.governors.tolist() == [UNKNOWN, UNKNOWN, 1, 1]
    sharing = dataclasses.replace(layout, arcs=(Arc(3, 4, "amod"),))
    assert word_maps_of(np.zeros((1, 1, 8, 8)), sharing).governors.tolist() == [-1, -1, UNKNOWN, -1]


@pytest.mark.parametrize(
    ("weights", "words", "message"),
    [
        (np.zeros((1, 1, 9, 9)), None, "have shape (1, 1, 9, 9); expected [L, H, 8, 8]"),
        (np.zeros((8, 8)), None, "expected [L, H, 8, 8]"),
        (np.zeros((1, 1, 8, 8)), [], "has no words with a tree"),
    ],
)
def test_maps_of_another_text_and_texts_without_trees(weights, words, message):
    layout = laid_out.single()
    layout = layout if words is None else dataclasses.replace(layout, words=words)
    with pytest.raises(InputError) as raised:
        word_maps_of(weights, layout)
    assert message in str(raised.value) and len(str(raised.value).splitlines()) <= 3


def test_a_head_that_is_the_tree_is_always_right_and_the_next_word_is_the_baseline():
    rng = np.random.default_rng(1)
    texts = []
    for _ in range(30):
        governors = random_tree(9, rng)
        tree = pointing([max(g, 0) for g in governors])
        following = pointing([*range(1, 9), 0])
        uniform = np.full((9, 9), 1 / 9)
        texts.append(sentence(governors, np.stack([tree, following, tree.T, uniform])[None]))
    found = Dependencies.of(texts)
    right = found.accuracy(TO_GOVERNOR, "nsubj")
    assert right[0, 0] == 1
    offsets = [g - place for words in texts for place, g in enumerate(words.governors) if g >= 0]
    assert right[0, 1] == pytest.approx(np.mean(np.isin(offsets, (1, -8))))
    assert found.accuracy(FROM_GOVERNOR, "nsubj")[0, 2] == 1
    (_, one) = found.best()
    assert (one.relation, one.layer, one.head, one.direction) == ("nsubj", 0, 0, TO_GOVERNOR)
    offset, share = Counter(offsets).most_common(1)[0][0], max(Counter(offsets).values())
    assert (one.offset, one.baseline) == (offset, pytest.approx(share / len(offsets)))
    assert one.lift == pytest.approx(100 * (1 - one.baseline)) and one.words == len(offsets)


def test_a_head_of_the_next_word_has_no_lift_over_the_next_word():
    rng = np.random.default_rng(2)
    texts = []
    for _ in range(20):
        governors = [1, 2, ROOT, 2, int(rng.integers(4))]
        following = pointing([1, 2, 3, 4, 0])
        texts.append(sentence(governors, following[None, None], relations=["a", "a", "", "b", "b"]))
    judged = {one.relation: one for one in Dependencies.of(texts).best()}
    assert (judged["a"].accuracy, judged["a"].offset, judged["a"].lift) == (1, 1, 0)
    assert set(judged) == {"any", "a", "b"}


def test_no_word_is_its_own_governor():
    governors = [1, ROOT, 1]
    own = 0.9 * np.eye(3) + 0.1 * pointing([1, 0, 1])
    assert Dependencies.of([sentence(governors, own[None, None])]).accuracy(TO_GOVERNOR, "any") == 1


def test_permuting_heads_permutes_and_merging_in_any_order_adds_up():
    rng = np.random.default_rng(3)
    texts = [sentence(random_tree(6, rng), rng=rng) for _ in range(8)]
    whole = Dependencies.of(texts)
    order = [2, 0, 1]
    moved = Dependencies.of([dataclasses.replace(w, weights=w.weights[:, order]) for w in texts])
    for question, hits in whole.hits.items():
        np.testing.assert_array_equal(moved.hits[question], hits[:, order])

    @settings(max_examples=10)
    @given(st.permutations(range(8)), st.integers(0, 8))
    def merges(places, cut):
        merged = Dependencies()
        for part in (places[cut:], places[:cut]):
            merged.merge(Dependencies.of(texts[place] for place in part))
        assert merged.offsets == whole.offsets and merged.best() == whole.best()
        for question, hits in whole.hits.items():
            np.testing.assert_array_equal(merged.hits[question], hits)

    merges()


def test_head_and_offset_are_chosen_on_other_sentences():
    rng = np.random.default_rng(4)
    train = [sentence(random_tree(6, rng), rng=rng) for _ in range(10)]
    test = [sentence(random_tree(6, rng), rng=rng) for _ in range(10)]
    one, other = Dependencies.of(train), Dependencies.of(test)
    chosen, judged = one.best()[0], other.best(one)[0]
    assert (judged.layer, judged.head, judged.direction, judged.offset) == (
        *(chosen.layer, chosen.head, chosen.direction),
        chosen.offset,
    )
    there = other.accuracy(judged.direction, "any")[judged.layer, judged.head]
    assert judged.accuracy == there
    assert judged.baseline == other.offsets[judged.direction, "any"][judged.offset] / 50


def test_streamed_sums_say_the_same_of_the_strongest_token():
    """Where each word is one piece and no head prefers the word itself, both ways agree."""
    rng = np.random.default_rng(5)
    options = ScoreOptions(relations=("nsubj", "obj"))
    layouts, maps = [], []
    for number in range(6):
        arcs = tuple(Arc(w, int(g), "nsubj") for w, g in enumerate(random_tree(5, rng)) if g >= 0)
        layouts.append(dataclasses.replace(laid_out.plain(5, number), arcs=arcs))
        weights = laid_out.random_maps(2, 3, 7, rng)
        weights[..., range(7), range(7)] = 0
        maps.append(weights / weights.sum(-1, keepdims=True))
    tally = ScoreAccumulator.of(laid_out.scores_from(maps, layouts, options))
    dense = Dependencies.of(map(word_maps_of, maps, layouts))
    hits, count = tally.hits["governor(nsubj)"]
    np.testing.assert_allclose(hits, dense.hits[TO_GOVERNOR, "nsubj"])
    np.testing.assert_allclose(dense.accuracy(TO_GOVERNOR, "nsubj"), hits / count)
    assert tally.offsets["governor(nsubj)"] == dense.offsets[TO_GOVERNOR, "nsubj"]
    assert ScoreSpec("hit", "dependent(nsubj)") in tally.moments


def test_what_no_sentence_has_and_heads_of_two_models():
    rng = np.random.default_rng(6)
    one = sentence([1, ROOT], rng=rng)
    with pytest.raises(InputError, match="no head was asked about 'obj'"):
        Dependencies.of([one]).accuracy(TO_GOVERNOR, "obj")
    other = dataclasses.replace(one, heads=(0, 1), weights=one.weights[:, :2])
    with pytest.raises(InputError, match="2 layers of 3 heads, then 2 of 2"):
        Dependencies.of([one, other])
    with pytest.raises(InputError, match="Keep one Dependencies for each model"):
        Dependencies.of([one]).merge(Dependencies.of([other]))
    assert Dependencies.of([sentence([ROOT], rng=rng)]).best() == []
