# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Roles that are found by chance: trees over other words, and tests of them."""

import dataclasses

import laid_out
import numpy as np
import pytest

from flaxattn.measures.role_tests import Test, found_by_chance, shuffled
from flaxattn.measures.scores import dense_values
from flaxattn.measures.specs import ScoreOptions, ScoreSpec
from flaxattn.measures.terms import terms_of, tree_terms
from flaxattn.text.position_labels import Arc

OPTIONS = ScoreOptions(relations=("nsubj",))


def texts(count, follow, seed=0):
    """Texts of 20 words, and heads that look at every word's governor as often as `follow` says."""
    rng = np.random.default_rng(seed)
    found = []
    for n in range(count):
        order = rng.permutation(20)[:8].tolist()
        arcs = [Arc(a, b, "nsubj") for a, b in zip(order[::2], order[1::2], strict=True)]
        layout = dataclasses.replace(laid_out.plain(20, n), arcs=arcs)
        weights = laid_out.random_maps(1, 2, 22, rng)
        for arc in arcs:
            row = weights[:, :, arc.dependent + 1]
            row *= 1 - follow
            row[..., arc.governor + 1] += follow
        found.append((weights, layout))
    return found


def test_a_tree_keeps_its_shape_over_other_words():
    layout = laid_out.single()
    drawn = shuffled(layout, np.random.default_rng(1))
    assert [arc.relation for arc in drawn.arcs] == [arc.relation for arc in layout.arcs]
    order = {}
    for old, new in zip(layout.arcs, drawn.arcs, strict=True):
        for before, after in zip(old[:2], new[:2], strict=True):
            assert order.setdefault(before, after) == after
    assert len(set(order.values())) == len(order)
    assert drawn.words == layout.words and drawn.arcs != layout.arcs


def test_terms_of_the_tree_are_those_of_all():
    layout = laid_out.single()
    whole, tree = terms_of(layout, OPTIONS), tree_terms(layout, OPTIONS)
    assert tree.pairs.items() <= whole.pairs.items()
    weights = laid_out.random_maps(1, 2, 8, np.random.default_rng(0))
    column = ScoreSpec("score", "governor(nsubj)")
    scores = dense_values(weights, whole)[column]
    i, j, c = (np.array(part) for part in zip(*tree.pairs[column], strict=True))
    np.testing.assert_allclose(weights[..., i, j] @ c, scores)


@pytest.mark.parametrize("causal", [False, True])
def test_heads_that_know_the_trees_know_nothing_of_others(causal):
    made_texts = texts(30, 0.9)
    if causal:
        made_texts = [(weights * np.tri(22), layout) for weights, layout in made_texts]
        made_texts = [(w / w.sum(-1, keepdims=True), layout) for w, layout in made_texts]
    found = found_by_chance(made_texts, OPTIONS, Test(tau=3), 20, causal=causal)
    assert found.drawings == 20 and found.tests > 20
    assert found.found <= 1 and found.drawings_beyond <= 3
    # The count is not a constant: with a bound that chance passes, roles are found.
    loose = found_by_chance(made_texts, OPTIONS, Test(tau=0.2), 2, causal=causal)
    assert loose.drawings_found == 2 and loose.found > 0
