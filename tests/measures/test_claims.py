# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Claims are what was found of heads, each with the texts that have the highest scores."""

import dataclasses

import laid_out
import numpy as np
import pytest

from flaxattn.measures.claims import (
    Claim,
    Evidence,
    claim_columns,
    head_patterns,
    label_column,
    measure_claims,
    role_claims,
)
from flaxattn.measures.role_tests import Test, find_roles
from flaxattn.measures.scores import ScoreAccumulator
from flaxattn.measures.specs import ScoreOptions, ScoreSpec

OPTIONS = ScoreOptions(relations=("nsubj", "obj"))


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(3)
    layouts = [laid_out.single(f"t{n}") for n in range(12)]
    maps = [laid_out.random_maps(2, 3, 8, rng) for _ in layouts]
    for n, each in enumerate(maps):  # head 0.1 looks at the next position, more and more
        share = 0.8 + 0.015 * n
        each[0, 1] = share * np.eye(8, k=1) + (1 - share) / 8
        each[0, 1] /= each[0, 1].sum(-1, keepdims=True)
    return laid_out.scores_from(maps, layouts, OPTIONS)


@pytest.fixture(scope="module")
def kept(scores):
    evidence = Evidence(4)
    for column, values in scores.values.items():
        evidence.add(column, values, range(len(scores)))
    return evidence


def test_roles_that_were_found_are_claimed(scores, kept):
    found = find_roles(ScoreAccumulator.of(scores), OPTIONS, Test(tau=1.1))
    claims = role_claims(found, kept)
    assert {(c.name, c.layer, c.head) for c in claims} == {
        (name, *map(int, at)) for name, r in found.roles.items() for at in np.argwhere(r.found)
    }
    assert claims
    for claim in claims:
        values = scores.values[ScoreSpec("score", claim.name)][:, claim.layer, claim.head]
        assert claim.value == pytest.approx(np.nanmean(values), rel=1e-6)
        best = np.argsort(-values, kind="stable")[:4].tolist()
        assert [shown.text for shown in claim.texts] == best
        assert claim.detail.startswith("p ")


@pytest.mark.parametrize("lacking", ["first", "last"])
def test_a_window_without_the_words_of_a_role_is_left_out_of_it(scores, lacking):
    role, cut = "governor(nsubj)", 5
    windows = {"first": scores[:cut], "last": scores[cut:]}
    one = windows[lacking]
    windows[lacking] = dataclasses.replace(
        one,
        values={spec: values for spec, values in one.values.items() if spec.name != role},
        ceilings={name: values for name, values in one.ceilings.items() if name != role},
        counts={name: values for name, values in one.counts.items() if name != role},
    )
    found = find_roles(ScoreAccumulator.of(*windows.values()), OPTIONS, Test(tau=1.1)).roles[role]
    other = windows["last" if lacking == "first" else "first"]
    alone = find_roles(ScoreAccumulator.of(other), OPTIONS, Test(tau=1.1)).roles[role]
    assert found.reach == alone.reach
    assert found.count == alone.count
    np.testing.assert_allclose(found.score, alone.score)


def test_patterns_and_the_heads_with_the_most_are_claimed(scores, kept):
    tally = ScoreAccumulator.of(scores)
    claims = measure_claims(tally, head_patterns(tally), kept)
    first = [c for c in claims if c.name == "pattern: next token"]
    assert [(c.layer, c.head) for c in first] == [(0, 1)]
    assert [shown.text for shown in first[0].texts] == [11, 10, 9, 8]
    most = [c for c in claims if c.name == "entropy"]
    means = tally.moments[ScoreSpec("mean", "entropy")].mean
    assert [c.value for c in most] == pytest.approx(np.sort(means, axis=None)[::-1][:3].tolist())
    assert [c.detail for c in most] == [f"the {w}highest" for w in ("", "second ", "third ")]
    assert "own segment" not in {c.name for c in claims}, "it is 1 of every head"


def test_each_label_has_a_column(scores):
    tally = ScoreAccumulator.of(scores)
    for label in head_patterns(tally):
        assert label_column(label.label) in tally.moments
    assert label_column("pattern: own token") == label_column("own token")
    assert label_column("syntactic: governor(any)") == ScoreSpec("hit", "governor(any)")
    assert label_column("entropy") is None


def test_a_role_that_is_a_label_too_keeps_its_score():
    claims = [Claim("delimiter", 0, 0, 4.0), Claim("pattern: delimiter", 0, 0, 0.7)]
    assert claim_columns(claims, "score") == {
        "delimiter": ScoreSpec("score", "delimiter"),
        "pattern: delimiter": ScoreSpec("pattern", "delimiter"),
    }
