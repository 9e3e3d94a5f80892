# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Roles: tests against scipy, laws of the t-test, corrections, and pure heads."""

import dataclasses
import itertools

import laid_out
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from flaxattn.errors import InputError
from flaxattn.measures.claims import best_offset, head_patterns
from flaxattn.measures.role_tests import Test, facts, find_roles, highest_local
from flaxattn.measures.scores import ScoreAccumulator, Scores, intervals, moments_of
from flaxattn.measures.significance import adjusted, t_test
from flaxattn.measures.specs import ScoreOptions, ScoreSpec
from flaxattn.text.position_labels import Arc

OPTIONS = ScoreOptions(relations=("nsubj", "obj"))


@pytest.fixture(scope="module")
def scores():
    """Twelve texts with trees, some without an object; two layers of three heads."""
    rng = np.random.default_rng(0)
    arcs = laid_out.single().arcs
    layouts = [laid_out.single(str(n), arcs if n % 3 else arcs[:1]) for n in range(12)]
    return laid_out.scores_from(
        [laid_out.random_maps(2, 3, 8, rng) for _ in layouts], layouts, OPTIONS
    )


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_t_tests_are_those_of_scipy(scores, tau):
    roles = find_roles(ScoreAccumulator.of(scores), OPTIONS, Test(tau=tau, correction="none"))
    assert roles.tests == 6 * len(roles.roles)
    for name, role in roles.roles.items():
        values = scores.values[ScoreSpec("score", name)].astype(np.float64)
        values = values[~np.isnan(values).any((1, 2))]
        assert role.count == len(values) == (8 if name.endswith("(obj)") else 12)
        oracle = scipy.stats.ttest_1samp(values, tau, alternative="greater")
        np.testing.assert_allclose(role.t, oracle.statistic, rtol=1e-9)
        np.testing.assert_allclose(role.p, oracle.pvalue, rtol=1e-9, atol=1e-15)
        assert (role.found == (oracle.pvalue < 0.05)).all()
        np.testing.assert_allclose(role.score, values.mean(0))
    control = roles.roles["governor(obj)"].beyond
    differences = scores.values[ScoreSpec("score", "governor(obj)")].astype(np.float64)
    differences -= scores.values[ScoreSpec("control", "governor(obj)")]
    differences = differences[~np.isnan(differences).any((1, 2))]
    oracle = scipy.stats.ttest_1samp(differences, 0, alternative="greater")
    np.testing.assert_allclose(control, oracle.pvalue, rtol=1e-5)


def test_parity_divides_by_n(scores):
    values = scores.values[ScoreSpec("score", "local")].astype(np.float64)
    t, _ = t_test(moments_of(values), 1.0, population=True)
    n = len(values)
    oracle = (values.mean(0) - 1) / (values.std(0) / np.sqrt(n))
    np.testing.assert_allclose(t, oracle)
    standard, _ = t_test(moments_of(values), 1.0)
    np.testing.assert_allclose(t, standard * np.sqrt(n / (n - 1)))
    parity = dataclasses.replace(OPTIONS, pande_parity=True)
    assert find_roles(ScoreAccumulator.of(scores), parity).test == Test(
        correction="none", pande_parity=True
    )


def test_scores_without_spread_and_too_few_texts():
    same = np.full((5, 1, 2), 2.0)
    same[..., 1] = 3.5
    t, p = t_test(moments_of(same), 3.0)
    assert p.tolist() == [[1.0, 0.0]]
    assert t.tolist() == [[-np.inf, np.inf]]
    _, p = t_test(moments_of(same[:1]), 3.0)
    assert np.isnan(p).all()


def test_doubling_the_corpus_changes_t_as_theory_says(scores):
    """Same mean, same sum of squares per text: t grows by the root of (2n - 1) / (n - 1)."""
    once = find_roles(ScoreAccumulator.of(scores), OPTIONS, Test(tau=1))
    twice = find_roles(ScoreAccumulator.of(scores, scores), OPTIONS, Test(tau=1))
    for name, role in once.roles.items():
        n = role.count
        factor = np.sqrt((2 * n - 1) / (n - 1))
        np.testing.assert_allclose(twice.roles[name].t, role.t * factor, rtol=1e-9)
        assert (twice.roles[name].p[role.t > 0] < role.p[role.t > 0]).all()
        assert (twice.roles[name].p[role.t < 0] > role.p[role.t < 0]).all()


def test_permuting_heads_permutes_results():
    rng = np.random.default_rng(2)
    layouts = [laid_out.single(str(n)) for n in range(6)]
    maps = [laid_out.random_maps(2, 4, 8, rng) for _ in layouts]
    order = [2, 0, 3, 1]
    one = find_roles(
        ScoreAccumulator.of(laid_out.scores_from(maps, layouts, OPTIONS)), OPTIONS, Test(tau=1)
    )
    moved = [weights[:, order] for weights in maps]
    other = find_roles(
        ScoreAccumulator.of(laid_out.scores_from(moved, layouts, OPTIONS)), OPTIONS, Test(tau=1)
    )
    for name, role in one.roles.items():
        np.testing.assert_allclose(other.roles[name].corrected, role.corrected[:, order])
        assert (other.roles[name].found == role.found[:, order]).all()


def test_corrections_are_those_of_the_textbook():
    rng = np.random.default_rng(3)
    values = [rng.uniform(0, 0.2, (2, 3)) for _ in range(3)]
    values[1][0, 0] = np.nan
    every = np.stack(values)
    known = np.sort(every[~np.isnan(every)])
    n = len(known)
    assert n == 17
    bonferroni = adjusted(np.stack(values), "bonferroni")
    np.testing.assert_allclose(bonferroni, np.minimum(every * n, 1))
    bh = adjusted(np.stack(values), "bh")
    assert np.isnan(bh[1, 0, 0])
    for alpha in (0.05, 0.1, 0.2):
        passing = [k for k in range(1, n + 1) if known[k - 1] <= k / n * alpha]
        expected = max(passing, default=0)
        assert (bh <= alpha).sum() == expected
    assert adjusted(np.stack(values), "none")[0].tolist() == values[0].tolist()


@pytest.mark.slow
@given(st.lists(st.integers(1, 11), max_size=4, unique=True), st.randoms())
def test_tallies_merge_in_any_order(scores, cuts, random):
    ends = [0, *sorted(cuts), 12]
    parts = [scores[slice(a, b)] for a, b in itertools.pairwise(ends)]
    random.shuffle(parts)
    whole, merged = ScoreAccumulator.of(scores), ScoreAccumulator()
    for part in parts:
        merged.merge(ScoreAccumulator.of(part))
    for column, moments in whole.moments.items():
        for one, other in zip(moments, merged.moments[column], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    for role, (hits, count) in whole.hits.items():
        np.testing.assert_allclose(merged.hits[role][0], hits, atol=1e-9)
        assert merged.hits[role][1] == count
    assert sorted(merged.lengths) == sorted(whole.lengths)


def test_intervals_are_those_of_scipy(scores):
    """As far as two sets of draws agree: a twentieth of the interval."""
    found = intervals(scores, draws=4000)
    for column in (ScoreSpec("score", "local"), ScoreSpec("score", "governor(obj)")):
        values = scores.values[column].astype(np.float64)
        values = values[~np.isnan(values).any((1, 2))]
        oracle = scipy.stats.bootstrap(
            (values,), np.mean, method="percentile", n_resamples=4000, rng=1
        ).confidence_interval
        low, high = found[column]
        width = oracle.high - oracle.low
        assert (abs(low - oracle.low) < 0.05 * width).all()
        assert (abs(high - oracle.high) < 0.05 * width).all()
        assert (low < values.mean(0)).all() and (values.mean(0) < high).all()
    one = intervals(scores[:1])
    assert all(np.isnan(low).all() and np.isnan(high).all() for low, high in one.values())


def test_joined_scores_keep_texts_that_lack_a_column(scores):
    with_object = scores[np.array([1, 2])]
    assert len(Scores.joined([with_object, scores])) == 14
    joined = Scores.joined([scores[:1], scores[1:]])
    for column, values in scores.values.items():
        np.testing.assert_array_equal(joined.values[column], values)


def test_tau_that_no_text_reaches_is_reported_with_the_length_that_would():
    rng = np.random.default_rng(4)
    layouts = [laid_out.plain(4, n) for n in range(3)]
    maps = [laid_out.random_maps(1, 1, 6, rng) for _ in layouts]
    options = ScoreOptions(annotated=False)
    roles = find_roles(
        ScoreAccumulator.of(laid_out.scores_from(maps, layouts, options)), options, Test(tau=3)
    )
    warnings = roles.warnings()
    assert (
        "local: no text allows a score above 3, the highest is 1.57; texts of 14 positions would do"
    ) in warnings
    assert highest_local(13) <= 3 < highest_local(14)
    assert any(
        line.startswith("block: no text allows") and "no length" in line for line in warnings
    )
    assert (
        "delimiter: no text allows a score above 3, the highest equals it; texts of 7 positions "
        "would do"
    ) in warnings
    assert not any(line.startswith("cls:") for line in warnings)
    reach = roles.roles["cls"].reach
    assert (reach.length, reach.keys, reach.mass) == (6, pytest.approx(1), pytest.approx(0.5))
    entropic = roles.roles["block_entropy"].reach
    assert (entropic.keys, entropic.mass, entropic.needed) == (None, None, 21)
    parity = ScoreOptions(annotated=False, pande_parity=True)
    pairs = laid_out.scores_from(
        [laid_out.random_maps(1, 1, 10, rng)] * 2, [laid_out.pair()] * 2, parity
    )
    assert find_roles(ScoreAccumulator.of(pairs), parity).roles["block"].reach.needed == 21
    longer = [*layouts, laid_out.plain(30, 9)]
    maps.append(laid_out.random_maps(1, 1, 32, rng))
    roles = find_roles(
        ScoreAccumulator.of(laid_out.scores_from(maps, longer, options)), options, Test(tau=3)
    )
    assert "local: 3 of 4 texts are too short for a score above 3" in roles.warnings()


def pure(layout, keys):
    """Every query divides its attention evenly between some keys; itself where there are none."""
    count = len(layout)
    weights = np.zeros((1, 1, count, count))
    for i in range(count):
        members = [j for j in keys(i) if 0 <= j < count] or [i]
        weights[0, 0, i, members] = 1 / len(members)
    return weights


def heads(layout):
    """What pure heads look at, and the labels they must get."""
    n = len(layout)
    twins = {i: np.flatnonzero(layout.tokens == layout.tokens[i]).tolist() for i in range(n)}
    inner = range(1, n - 1)
    return {
        "next": (lambda i: [i + 1], {"next token", "positional: next"}),
        "previous": (lambda i: [i - 1], {"previous token", "positional: previous"}),
        "own": (lambda i: [i], {"own token"}),
        "cls": (lambda i: [0], {"delimiter"}),
        "sep": (lambda i: [n - 1], {"delimiter"}),
        "same": (lambda i: [j for j in twins[i] if j != i], {"same or related token"}),
        "block": (lambda i: inner, {"bag of words"}),
        "uniform": (lambda i: range(n), {"bag of words"}),
    }


@pytest.mark.parametrize("name", ["next", "previous", "own", "cls", "sep", "same", "block"])
def test_pure_heads_fire_exactly_their_label(name):
    layouts = []
    for n in range(4):
        layout = laid_out.plain(16, n)
        tokens = layout.tokens.copy()
        tokens[9:17] = tokens[1:9]  # every word twice
        layouts.append(dataclasses.replace(layout, tokens=tokens))
    options = ScoreOptions(annotated=False)
    maps = [pure(layout, heads(layout)[name][0]) for layout in layouts]
    found = head_patterns(ScoreAccumulator.of(laid_out.scores_from(maps, layouts, options)))
    assert {label.label for label in found} == heads(layouts[0])[name][1]
    assert all(label.evidence for label in found)


def test_patterns_of_pairs_and_of_tokens():
    options = ScoreOptions(annotated=False)
    across = [pure(laid_out.pair(), lambda i: {1: [5], 2: [7], 5: [1], 7: [2]}.get(i, [0]))] * 3
    found = head_patterns(
        ScoreAccumulator.of(laid_out.scores_from(across, [laid_out.pair()] * 3, options))
    )
    assert "same token in the other text" in {label.label for label in found}
    traces = [pure(laid_out.single(), lambda i: {2: [3], 3: [2]}.get(i, [0, 7]))] * 3
    found = head_patterns(
        ScoreAccumulator.of(laid_out.scores_from(traces, [laid_out.single()] * 3, options))
    )
    assert {label.label for label in found} == {"other tokens of the word", "delimiter"}


def test_pure_heads_have_exactly_their_roles():
    layouts = [laid_out.plain(30, n) for n in range(4)]
    options = ScoreOptions(annotated=False)
    # The window holds 5 of 32 keys: a head on the next token scores 32 / 5.
    expected = {
        "next": ["local"],
        "own": ["local"],
        "cls": ["cls", "delimiter"],
        "sep": ["sep", "delimiter"],
        "block": ["block_entropy"],
        "uniform": ["block_entropy"],
    }
    for name, names in expected.items():
        maps = [pure(layout, heads(layout)[name][0]) for layout in layouts]
        roles = find_roles(
            ScoreAccumulator.of(laid_out.scores_from(maps, layouts, options)), options
        )
        assert roles.of(0, 0) == names, name


def test_a_syntactic_head_is_found_and_a_positional_one_is_seen_through():
    """One head looks from each word to its governor, wherever it is; one at the word after."""
    rng = np.random.default_rng(7)
    layouts = []
    for n in range(30):
        layout = laid_out.plain(20, n)
        ends = rng.permutation(20)[:8]
        arcs = [Arc(int(a), int(b), "nsubj") for a, b in zip(ends[::2], ends[1::2], strict=True)]
        layouts.append(dataclasses.replace(layout, arcs=arcs))
    options = ScoreOptions(relations=("nsubj",))
    maps = []
    for layout in layouts:
        governor = {arc.dependent + 1: arc.governor + 1 for arc in layout.arcs}
        tree = pure(layout, lambda i, g=governor: [g.get(i, 0)])
        maps.append(np.concatenate([tree, pure(layout, lambda i: [i + 1])], axis=1))
    tally = ScoreAccumulator.of(laid_out.scores_from(maps, layouts, options))
    roles = find_roles(tally, options, Test(tau=3))
    role = roles.roles["governor(nsubj)"]
    assert role.found.tolist() == [[True, False]]
    assert role.beyond is not None and role.beyond[0, 0] < 1e-6 < role.beyond[0, 1]
    assert not roles.roles["dependent(nsubj)"].found.any()
    found = {label.label for label in head_patterns(tally) if label.head == 0}
    assert "syntactic: governor(nsubj)" in found
    # Where governors always follow, the head on the next word scores as high, and is no better
    # than other words as far apart.
    layouts = [
        dataclasses.replace(layout, arcs=[Arc(a, a + 1, "nsubj") for a in (2, 7, 11)])
        for layout in layouts
    ]
    maps = [pure(layout, lambda i: [i + 1]) for layout in layouts]
    tally = ScoreAccumulator.of(laid_out.scores_from(maps, layouts, options))
    role = find_roles(tally, options, Test(tau=3)).roles["governor(nsubj)"]
    assert role.found.all() and role.beyond is not None and (role.beyond > 0.5).all()
    assert best_offset(tally, "governor(nsubj)") == (1, 1.0)
    assert not any(label.label.startswith("syntactic") for label in head_patterns(tally))


def test_facts_are_ready_for_json(scores):
    import json

    roles = find_roles(ScoreAccumulator.of(scores), OPTIONS, Test(tau=1))
    metadata = json.loads(json.dumps(facts(roles)))
    role = metadata["roles"]["governor(nsubj)"]
    assert sum(role["by_layer"]) == role["heads"] >= role["beyond_position"]
    both = metadata["overlaps"]["local"]["governor(nsubj)"]
    assert both == roles.overlap("local", "governor(nsubj)") <= role["heads"]
    assert metadata["heads"] == 6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"correction": "sidak"}, "correction 'sidak' is unknown"),
        ({"alpha": 1.5}, "alpha 1.5, expected tau above 0 and alpha between"),
        ({"tau": 0.0}, "tau is 0.0"),
    ],
)
def test_bad_settings(given, message):
    with pytest.raises(InputError) as error:
        Test(**given)
    assert message in str(error.value)
