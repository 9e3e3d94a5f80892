# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of heads: uniform attention is 1, and every number is what loops over weights make it."""

import laid_out
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaxattn.errors import InputError
from flaxattn.measures.scores import dense_values, scores_of
from flaxattn.measures.specs import ScoreOptions, ScoreSpec, check_relations
from flaxattn.measures.terms import terms_of
from flaxattn.trace.trace import Trace

OPTIONS = ScoreOptions(relations=("nsubj", "obj", "amod"))
PLAIN_ROLES = ("local", "cls", "sep", "delimiter", "block")


def value(weights, layout, kind, name, term=OPTIONS):
    return dense_values(weights, terms_of(layout, term))[ScoreSpec(kind, name)]


@pytest.mark.parametrize("text", ["single", "pair"])
def test_uniform_attention_scores_exactly_one_on_every_plain_role(text):
    layout = getattr(laid_out, text)()
    count = len(layout)
    uniform = np.full((count, count), 1 / count)
    options = ScoreOptions(OPTIONS.relations, annotated=text == "single")
    found = dense_values(uniform, terms_of(layout, options))
    scores = {c.name: v for c, v in found.items() if c.kind in ("score", "control")}
    assert set(scores) >= set(PLAIN_ROLES)
    log = scores.pop("block_entropy")
    assert log == pytest.approx(np.log(count))
    assert all(score == pytest.approx(1, abs=1e-12) for score in scores.values())
    assert len(scores) == (13 if text == "single" else 5)
    assert found[ScoreSpec("mean", "entropy")] == pytest.approx(np.log(count))


def brute(weights, layout, keys, queries=None):
    """N times the mean weight on a set of keys, averaged over queries, with plain loops."""
    count, total, number = len(layout), 0.0, 0
    for i in range(count) if queries is None else queries:
        members = keys(i)
        total += count * sum(weights[i, j] for j in members) / len(members)
        number += 1
    return total / number


@pytest.mark.parametrize("text", ["single", "pair"])
def test_plain_roles_are_what_loops_make_them(text):
    layout = getattr(laid_out, text)()
    count = len(layout)
    weights = laid_out.random_maps(1, 1, count, np.random.default_rng(0))[0, 0]
    ends = np.flatnonzero(layout.separators).tolist()
    sets = {
        "local": lambda i: [j for j in range(count) if abs(i - j) <= 2],
        "cls": lambda i: [0],
        "sep": lambda i: ends,
        "delimiter": lambda i: [0, *ends],
        "block": lambda i: [
            j
            for j in range(count)
            if layout.segments[i] == layout.segments[j] and j not in (0, *ends)
        ],
    }
    options = ScoreOptions(annotated=False)
    for role, keys in sets.items():
        expected = brute(weights, layout, keys)
        assert value(weights, layout, "score", role, options) == pytest.approx(expected, abs=1e-12)
        mass = np.mean([sum(weights[i, j] for j in keys(i)) for i in range(count)])
        assert value(weights, layout, "mass", role, options) == pytest.approx(mass, abs=1e-12)
    logs = -(weights * np.log(weights)).sum(-1)
    entropic = np.mean(
        [count * np.mean(weights[i, sets["block"](i)]) * logs[i] for i in range(count)]
    )
    assert value(weights, layout, "score", "block_entropy", options) == pytest.approx(entropic)


def test_syntactic_roles_take_both_directions_and_subtypes():
    layout = laid_out.single()
    weights = laid_out.random_maps(1, 1, 8, np.random.default_rng(1))[0, 0]
    # a -> b ##b, and the passive subject . -> c
    to_governor = 8 * np.mean([weights[1, [2, 3]].mean(), weights[6, 4]])
    to_dependent = 8 * np.mean([weights[[2, 3], 1].mean(), weights[4, 6]])
    assert value(weights, layout, "score", "governor(nsubj)") == pytest.approx(to_governor)
    assert value(weights, layout, "score", "dependent(nsubj)") == pytest.approx(to_dependent)
    mass = np.mean([weights[1, [2, 3]].sum(), weights[6, 4]])
    assert value(weights, layout, "mass", "governor(nsubj)") == pytest.approx(mass)
    every = 8 * np.mean(
        [weights[1, [2, 3]].mean(), weights[4, [2, 3]].mean(), weights[5, 4], weights[6, 4]]
    )
    assert value(weights, layout, "score", "governor(any)") == pytest.approx(every)
    exact = ScoreOptions(relations=("nsubj:pass",))
    score = value(weights, layout, "score", "governor(nsubj:pass)", exact)
    assert score == pytest.approx(8 * weights[6, 4])
    none = terms_of(layout, ScoreOptions(relations=("iobj",)))
    assert ScoreSpec("score", "governor(iobj)") not in none.columns


def test_means_tags_and_dependency():
    layout = laid_out.single()
    weights = laid_out.random_maps(1, 1, 8, np.random.default_rng(2))[0, 0]
    place = np.arange(8)
    expected = {
        "next": np.diagonal(weights, 1).sum() / 8,
        "previous": np.diagonal(weights, -1).sum() / 8,
        "own": np.trace(weights) / 8,
        "first": weights[:, 0].mean(),
        "cls": weights[:, 0].mean(),
        "sep": weights[:, 7].mean(),
        "punctuation": weights[:, 6].mean(),
        "own segment": 1.0,
        "max": weights.max(1).mean(),
        "sum_sq": (weights**2).sum(1).mean(),
        "distance": (weights * abs(place - place[:, None])).sum(1).mean(),
        "entropy": -(weights * np.log(weights)).sum(1).mean(),
    }
    for name, number in expected.items():
        assert value(weights, layout, "mean", name) == pytest.approx(number), name
    assert value(weights, layout, "tag", "NOUN") == pytest.approx(weights[:, [1, 4]].sum() / 8)
    links = [([1], [2, 3]), ([4], [2, 3]), ([5], [4]), ([6], [4])]
    total = sum(weights[np.ix_(i, j)].sum(1).mean() for a, b in links for i, j in ((a, b), (b, a)))
    assert value(weights, layout, "mean", "dependency") == pytest.approx(total / 5)


def test_controls_are_unrelated_words_as_far_apart():
    """The control of a relation between neighbours is another pair of neighbours."""
    layout = laid_out.single()
    linked = {(0, 1), (1, 0), (2, 1), (1, 2), (3, 2), (2, 3), (4, 2), (2, 4)}
    controls = set()
    for seed in range(20):
        terms = terms_of(layout, ScoreOptions(relations=("obj",), seed=seed))
        pairs = terms.pairs[ScoreSpec("control", "governor(obj)")]
        words = {(layout.spelt[i], layout.spelt[j]) for i, j, _ in pairs}
        assert len(words) == 1
        ((one, other),) = words
        assert other - one == -1
        assert (one, other) not in linked
        controls |= words
    assert controls == {(4, 3)}
    again = [terms_of(layout, ScoreOptions(relations=("nsubj",), seed=3)).pairs for _ in range(2)]
    assert again[0] == again[1]


def test_strongest_keys_leave_delimiters_out():
    layout = laid_out.single()
    weights = np.full((8, 8), 0.01)
    weights[:, 0] = 0.9  # everything looks at [CLS]; second comes the position after, or a rare one
    for i in range(7):
        weights[i, i + 1] += 0.04
    weights[6, 4] += 0.05
    assert value(weights, layout, "strongest", "next") == pytest.approx(5 / 6)
    assert value(weights, layout, "strongest", "rare") == pytest.approx(2 / 6)
    assert value(weights, layout, "hit", "governor(nsubj)") == pytest.approx(1)
    assert value(weights, layout, "hit", "dependent(nsubj)") == pytest.approx(0)


def test_pande_parity_repeats_the_quirks():
    layout = laid_out.pair()
    weights = laid_out.random_maps(1, 1, 10, np.random.default_rng(4))[0, 0]
    parity = ScoreOptions(annotated=False, pande_parity=True)
    # The size of a band is (min(t + 2, N) + 1) - max(0, t - 2): one too large at the end.
    local = np.mean(
        [
            10 * weights[t, max(0, t - 2) : t + 3].sum() / (min(t + 2, 10) + 1 - max(0, t - 2))
            for t in range(10)
        ]
    )
    assert value(weights, layout, "score", "local", parity) == pytest.approx(local)
    # From the first separator on, a query belongs to the second block; scores times row entropy.
    logs = -(weights * np.log(weights)).sum(-1)
    blocks = [range(1, 4) if t < 4 else range(5, 9) for t in range(10)]
    block = np.mean([10 * weights[t, list(b)].mean() * logs[t] for t, b in enumerate(blocks)])
    assert value(weights, layout, "score", "block", parity) == pytest.approx(block)
    mass = np.mean([weights[t, list(b)].sum() for t, b in enumerate(blocks)])
    assert value(weights, layout, "mass", "block", parity) == pytest.approx(mass)
    alone = terms_of(laid_out.single(), ScoreOptions(pande_parity=True))
    assert ScoreSpec("score", "block") not in alone.columns
    # Pieces are looked for from the beginning: the second "a" is taken for the first.
    weights = laid_out.random_maps(1, 1, 8, np.random.default_rng(5))[0, 0]
    parity = ScoreOptions(relations=("amod",), pande_parity=True)
    score = value(weights, laid_out.single(), "score", "governor(amod)", parity)
    assert score == pytest.approx(8 * weights[1, 4])


@given(st.integers(0, 1000), st.floats(0, 1))
def test_scores_are_linear_in_attention(seed, share):
    """All but entropies and counts of strongest keys: a mixture of heads has mixed scores."""
    rng = np.random.default_rng(seed)
    layout = laid_out.single()
    one, other = laid_out.random_maps(1, 2, 8, rng)[0]
    terms = terms_of(layout, OPTIONS)
    columns = [c for c in terms.columns if c.kind in ("score", "mass", "control", "tag")]
    first, second, mixed = (
        dense_values(w, terms) for w in (one, other, share * one + (1 - share) * other)
    )
    for column in columns:
        if column.name != "block_entropy":
            expected = share * first[column] + (1 - share) * second[column]
            assert mixed[column] == pytest.approx(expected, abs=1e-10)


@given(st.integers(0, 1000))
def test_no_score_exceeds_its_ceiling(seed):
    rng = np.random.default_rng(seed)
    layout = laid_out.single() if seed % 2 else laid_out.pair()
    terms = terms_of(layout, ScoreOptions(OPTIONS.relations, annotated=bool(seed % 2)))
    weights = rng.dirichlet(np.full(len(layout), 0.02), (40, len(layout)))
    found = dense_values(weights, terms)
    for role, ceiling in terms.ceilings.items():
        assert (found[ScoreSpec("score", role)] <= ceiling + 1e-9).all(), role


def test_a_trace_has_its_layout():
    layout = laid_out.pair()
    weights = laid_out.random_maps(2, 3, 10, np.random.default_rng(6))
    trace = Trace.from_arrays(
        weights[:, None],
        [[str(number) for number in layout.tokens]],
        special=layout.special[None],
        segments=layout.segments[None],
    )
    options = ScoreOptions(annotated=False)
    found = scores_of([trace], options)
    expected = dense_values(weights, terms_of(layout, options))
    for column in expected.keys() & found.values.keys():
        np.testing.assert_allclose(found.values[column][0], expected[column], atol=1e-6)
    assert len(expected.keys() & found.values.keys()) > 30


def test_what_cannot_be_scored_says_why():
    weights = laid_out.random_maps(1, 1, 4, np.random.default_rng(0))[:, None]
    bare = Trace.from_arrays(weights, [["a"] * 4])
    with pytest.raises(InputError, match="Roles need one text and its special tokens"):
        scores_of([bare], ScoreOptions(annotated=False))
    with pytest.raises(InputError, match="There is no text"):
        scores_of([], ScoreOptions(annotated=False))
    stats = Trace.from_arrays(stats={"entropy": weights[..., 0]}, tokens=[["a"] * 4])
    with pytest.raises(InputError, match="this trace has none"):
        scores_of([stats], ScoreOptions(annotated=False))
    with pytest.raises(InputError, match="'dobj' is not a relation between words"):
        check_relations(["nsubj", "dobj"])
    assert len(check_relations(["all"])) == 36
    assert check_relations(["nsubj:pass", "nsubj:pass"]) == ("nsubj:pass",)
