# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Roles are not found where there are none: a random model, and trees that are nobody's."""

import dataclasses

import jax
import numpy as np
import pytest

from flaxattn.measures.role_tests import Test, find_roles
from flaxattn.measures.scores import ScoreAccumulator, scores_of
from flaxattn.measures.specs import ScoreOptions
from flaxattn.pipeline.extraction import extract
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.text.position_labels import Arc, labels_of

ALPHA, SEEDS, TEXTS = 0.05, 20, 40
OPTIONS = ScoreOptions(relations=("nsubj", "obj"))
WORDS = "a b c d e f g h the cat is very sad".split()


@pytest.fixture(scope="module")
def traces(bert):
    """What a model at its initial parameters saw of random texts."""
    params = bert.module.init(jax.random.key(0), np.ones((1, 2), np.int32))["params"]
    untrained = PretrainedBert(bert.module, params, bert.tokenizer, bert.config, "untrained")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, size)) for size in rng.integers(12, 30, TEXTS)]
    return extract(untrained, texts)


def layouts(traces, seed):
    """Every text with arcs between words drawn at random."""
    rng = np.random.default_rng(seed)
    for number, trace in enumerate(traces):
        layout = labels_of(trace, name=f"{seed}-{number}")
        count = len(layout) - 2
        order = rng.permutation(count)[:12]
        arcs = [
            Arc(int(a), int(b), str(rng.choice(OPTIONS.relations)))
            for a, b in zip(order[::2], order[1::2], strict=True)
        ]
        words = [[place + 1] for place in range(count)]
        yield dataclasses.replace(layout, words=words, tags=["X"] * count, arcs=arcs)


@pytest.mark.slow
def test_chance_finds_no_more_than_alpha_allows(traces):
    """Over 20 drawings of trees; with 20 seeds at 5%, more than 3 would be one in 60."""
    found, beyond, tests = 0, 0, 0
    for seed in range(SEEDS):
        requested = dataclasses.replace(OPTIONS, seed=seed)
        tally = ScoreAccumulator.of(scores_of(traces, requested, layouts(traces, seed)))
        roles = find_roles(tally, requested, Test(tau=3, alpha=ALPHA))
        found += sum(int(role.found.sum()) for role in roles.roles.values())
        apart = [role.beyond for role in roles.roles.values() if role.beyond is not None]
        assert len(apart) == 6
        beyond += bool((np.stack(apart) < ALPHA).any())
        tests += roles.tests
    assert found == 0, f"{found} roles in {tests} tests of an untrained model"
    assert beyond <= 3, f"{beyond} of {SEEDS} random trees had roles beyond position"


@pytest.mark.slow
def test_the_control_would_see_a_head_that_knows_the_trees(traces):
    """The same test on heads that look at governors twice as much as they would."""
    chosen = list(layouts(traces, 0))
    changed = []
    for trace, layout in zip(traces, chosen, strict=True):
        weights = np.array(trace.encoder.weights)
        for arc in layout.arcs:
            weights[..., arc.dependent + 1, arc.governor + 1] *= 2
        weights /= weights.sum(-1, keepdims=True)
        encoder = dataclasses.replace(trace.encoder, weights=weights)
        changed.append(dataclasses.replace(trace, encoder=encoder))
    roles = find_roles(
        ScoreAccumulator.of(scores_of(changed, OPTIONS, chosen)), OPTIONS, Test(tau=1, alpha=ALPHA)
    )
    role = roles.roles["governor(any)"]
    assert role.found.all() and role.beyond is not None and (role.beyond < ALPHA).all()
