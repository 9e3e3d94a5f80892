# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Two models on the same texts, against scipy and against maps whose difference is known."""

import json
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.spatial.distance
import scipy.stats

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.measures.compare_heads import (
    LEAST_DIVERGENCE,
    ClaimRule,
    Comparison,
    PairedTexts,
    role_changes,
)
from flaxattn.measures.divergence import cosine, jensen_shannon
from flaxattn.measures.head_measures import measure
from flaxattn.measures.significance import adjusted, bootstrap_interval, paired_test
from flaxattn.pipeline.online_moments import Moments

LAYERS, HEADS = 2, 3


def trace(weights: np.ndarray, **fields: Any) -> fa.Trace:
    tokens = [[f"t{n}" for n in range(weights.shape[-1])]] * weights.shape[1]
    return fa.Trace.from_arrays(weights.astype(np.float32), tokens, **fields)


def drawn(seed: int, length: int = 5, texts: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.dirichlet(np.full(length, 0.4), size=(LAYERS, texts, HEADS, length))


def compared(pairs: list[tuple[np.ndarray, np.ndarray]]) -> Comparison:
    comparison = Comparison()
    for first, second in pairs:
        comparison.add(trace(first), trace(second))
    return comparison


@hypothesis.given(st.integers(0, 10**6))
def test_divergence_and_cosine_are_scipys(seed: int) -> None:
    p, q = drawn(seed)[:, 0], drawn(seed + 1)[:, 0]
    apart = scipy.spatial.distance.jensenshannon(p, q, axis=-1) ** 2
    np.testing.assert_allclose(jensen_shannon(p, q), apart, atol=1e-9)
    np.testing.assert_allclose(jensen_shannon(p, q), jensen_shannon(q, p), atol=1e-12)
    alike = [
        [1 - scipy.spatial.distance.cosine(p[i, j].ravel(), q[i, j].ravel()) for j in range(HEADS)]
        for i in range(LAYERS)
    ]
    flat = [each.reshape(LAYERS, HEADS, -1) for each in (p, q)]
    np.testing.assert_allclose(cosine(*flat), alike, atol=1e-9)
    assert (jensen_shannon(p, p) == 0).all() and (cosine(p, p) > 1 - 1e-12).all()


def test_maps_whose_difference_is_known() -> None:
    """A head that stays, one that turns from the first key to the last, and one half way."""
    first = np.zeros((1, 1, 3, 4, 4))
    first[..., 0] = 1
    second = first.copy()
    second[0, 0, 1] = np.eye(4)[3]
    second[0, 0, 2] = 0.5 * np.eye(4)[0] + 0.5 * np.eye(4)[3]
    changes = {c.head: c for c in compared([(first, second)] * 2).changes()}
    assert [c.head for c in compared([(first, second)]).changes()] == [1, 2, 0]
    assert changes[0].divergence == 0 and changes[0].cosine == 1 and not changes[0].significant
    assert changes[1].divergence == pytest.approx(np.log(2)) and changes[1].cosine == 0
    assert changes[2].divergence == pytest.approx(0.75 * np.log(4 / 3), abs=1e-6)
    assert changes[1].changes["first"] == -1 and changes[1].p["first"] == 0
    assert changes[2].changes["entropy"] == pytest.approx(np.log(2), abs=1e-6)
    assert "first" in changes[1].significant and changes[1].texts == 2


def test_tests_are_paired_and_those_of_scipy() -> None:
    pairs = [(drawn(n), drawn(100 + n)) for n in range(7)]
    sides = list(zip(*pairs, strict=True))
    for change in compared(pairs).changes(ClaimRule(correction="none")):
        i, j = change.layer, change.head
        for name in ("next", "entropy", "distance"):
            before, after = ([measure(w[i, 0, j])[name] for w in side] for side in sides)
            expected = scipy.stats.ttest_rel(after, before)
            assert change.p[name] == pytest.approx(expected.pvalue, rel=1e-3)
            assert change.changes[name] == pytest.approx(np.subtract(after, before).mean())
        apart = [jensen_shannon(a[i, 0, j], b[i, 0, j]).mean() for a, b in pairs]
        assert change.divergence == pytest.approx(np.mean(apart), rel=1e-4)
        assert change.divergence_error == pytest.approx(scipy.stats.sem(apart), rel=1e-4)
        assert np.isnan([change.p["delimiter"], change.changes["delimiter"]]).all(), (
            "nobody said which pieces are special"
        )


@hypothesis.given(st.lists(st.integers(0, 50), min_size=2, max_size=6), st.integers(1, 5))
def test_merging_in_any_order(seeds: list[int], cut: int) -> None:
    pairs = [(drawn(n), drawn(1000 + n)) for n in seeds]
    whole = compared(pairs).changes()
    parts = [compared(some) for some in (pairs[cut:], pairs[:cut]) if some]
    joined = parts[0]
    for part in parts[1:]:
        joined.merge(part)
    again = {(c.layer, c.head): c for c in joined.changes()}
    for change in whole:
        other = again[change.layer, change.head]
        assert other.divergence == pytest.approx(change.divergence, abs=1e-12)
        assert other.texts == change.texts == len(seeds)
        for name, p in change.p.items():
            assert other.p[name] == pytest.approx(p, abs=1e-7, nan_ok=True)


def test_batches_with_padding_are_texts_by_themselves() -> None:
    one, two = drawn(1, 5, texts=2), drawn(2, 5, texts=2)
    mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    for weights in (one, two):
        weights[:, 1, :, :, 3:] = 0
        weights /= weights.sum(-1, keepdims=True)
    batch = Comparison()
    batch.add(trace(one, mask=mask), trace(two, mask=mask))
    alone = compared([(one[:, :1], two[:, :1]), (one[:, 1:, :, :3, :3], two[:, 1:, :, :3, :3])])
    for name in ("divergence", "cosine", "entropy"):
        np.testing.assert_allclose(
            batch.table("encoder", name), alone.table("encoder", name), atol=1e-6
        )


def test_by_layer() -> None:
    comparison = compared([(drawn(3), drawn(4))])
    rows = comparison.by_layer()["encoder"]
    assert [layer for layer, _, _ in rows] == [0, 1]
    expected = comparison.table("encoder", "divergence").mean(1)
    np.testing.assert_allclose([d for _, d, _ in rows], expected)


@hypothesis.given(
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
    st.sampled_from(["none", "bonferroni", "bh"]),
)
def test_corrections_keep_order_and_never_help(values: list[float], correction: str) -> None:
    p = np.array(values)
    found = adjusted(p, correction)
    assert (found >= p - 1e-12).all() and (found <= 1).all()
    assert (np.diff(found[np.argsort(p)]) >= -1e-12).all()
    with_gap = adjusted(np.append(p, np.nan), correction)
    np.testing.assert_array_equal(with_gap, np.append(found, np.nan))


def test_corrections_by_hand() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.5])
    np.testing.assert_allclose(adjusted(p, "bonferroni"), [0.04, 0.16, 0.12, 1])
    np.testing.assert_allclose(adjusted(p, "bh"), [0.04, 0.16 / 3, 0.16 / 3, 0.5])
    np.testing.assert_array_equal(adjusted(p, "none"), p)


def test_differences_that_do_not_vary() -> None:
    moments = Moments(np.array([3, 3, 1]), np.array([0.0, -2.0, 1.0]), np.zeros(3))
    t, p = paired_test(moments)
    np.testing.assert_array_equal(t, [0, -np.inf, np.nan])
    np.testing.assert_array_equal(p, [1, 0, np.nan])


def test_twice_the_texts_make_p_smaller_as_theory_says() -> None:
    values = np.random.default_rng(0).normal(0.3, 1, 20)
    once, twice = (
        paired_test(Moments(np.array(len(v)), v.mean(), ((v - v.mean()) ** 2).sum()))
        for v in (values, np.tile(values, 2))
    )
    ratio = np.sqrt(2 * (40 - 1) / (2 * (20 - 1)))
    assert float(twice[0] / once[0]) == pytest.approx(ratio)
    assert twice[1] < once[1]


@pytest.mark.slow
def test_equal_models_are_found_to_differ_at_no_more_than_alpha() -> None:
    """Both draw from one distribution: after correction hardly anything is left."""
    discoveries = 0
    for seed in range(20):
        pairs = [(drawn(1000 * seed + n), drawn(1000 * seed + 500 + n)) for n in range(12)]
        discoveries += any(c.significant for c in compared(pairs).changes())
    assert discoveries <= 4, "20 families at 0.05: more than 4 would be one in 400"


def test_role_changes() -> None:
    before = {"local": [[1, 0, 0], [1, 1, 0]], "block": [[0, 0, 1], [0, 0, 0]]}
    after = {"local": [[1, 0, 0], [0, 0, 1]], "block": [[0, 1, 1], [0, 0, 0]]}
    changes = role_changes(
        *({n: np.array(t) for n, t in table.items()} for table in (before, after))
    )
    first, second, *rest = changes
    assert (first.role, first.layer, first.before, first.after) == ("local", 1, 2, 1)
    assert first.gained == (2,) and first.lost == (0, 1)
    assert (second.role, second.layer, second.gained, second.lost) == ("block", 0, (1,), ())
    assert not any(change.gained or change.lost for change in rest) and len(changes) == 4
    json.dumps([change.__dict__ for change in changes])


def test_what_cannot_be_compared() -> None:
    one = trace(drawn(0))
    other = fa.Trace.from_arrays(drawn(0)[:1].astype(np.float32), one.tokens)
    names = fa.Trace.from_arrays(drawn(0).astype(np.float32), [["a", "b", "c", "d", "e"]])
    bare = fa.Trace.from_arrays(tokens=one.tokens, stats={"lse": np.zeros((2, 1, 3, 5))})
    table = {"local": np.zeros((2, 3))}
    filled = compared([(drawn(0), drawn(1))])
    calls = {
        "not of the same tokens: they differ in sequence 0": lambda: Comparison().add(one, names),
        "The encoders differ: layers 0, 1 with heads 0 to 2, and layers 0": (
            lambda: Comparison().add(one, other)
        ),
        "no weights and no statistic of one side in common": lambda: Comparison().add(one, bare),
        "Nothing was compared": lambda: Comparison().changes(),
        "correction 'fdr' is unknown": lambda: ClaimRule(correction="fdr"),
        "alpha is 0": lambda: ClaimRule(alpha=0),
        "no skew of encoder": lambda: filled.table("encoder", "skew"),
        "Only one of the tables has block": lambda: role_changes(table, {**table, "block": 0}),
        r"shape \[2, 3\] and \[3, 3\]": lambda: role_changes(table, {"local": np.zeros((3, 3))}),
    }
    for words, call in calls.items():
        with pytest.raises(InputError, match=words) as caught:
            call()
        assert len(str(caught.value).splitlines()) <= 3


def brute_interval(values: list[float], seed: int, draws: int = 1000) -> tuple[float, float]:
    """Percentiles of means of texts drawn anew, one draw at a time."""
    random = np.random.default_rng(seed)
    means = [np.mean(random.choice(values, len(values))) for _ in range(draws)]
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


@pytest.mark.slow
def test_intervals_are_those_of_texts_drawn_one_by_one() -> None:
    pairs = [(drawn(n), drawn(100 + n)) for n in range(25)]
    rule = ClaimRule(draws=20_000, seed=3)
    for change in compared(pairs).changes(rule):
        i, j = change.layer, change.head
        apart = [float(jensen_shannon(a[i, 0, j], b[i, 0, j]).mean()) for a, b in pairs]
        expected = brute_interval(apart, 7, 20_000)
        assert change.interval == pytest.approx(expected, abs=0.05 * (expected[1] - expected[0]))
    once, again, other = (
        [c.interval for c in compared(pairs).changes(ClaimRule(seed=seed))] for seed in (0, 0, 1)
    )
    assert once == again != other
    assert once == [c.interval for c in sorted_as(compared(pairs), compared(pairs[::-1]))]


def sorted_as(one: Comparison, other: Comparison) -> list:
    """The changes of another comparison in the order of one."""
    found = {(c.layer, c.head): c for c in other.changes()}
    return [found[c.layer, c.head] for c in one.changes()]


def shifted(share: float, length: int = 8) -> np.ndarray:
    """One head that gives a share to the previous token, the rest evenly."""
    weights = np.full((1, 1, 1, length, length), (1 - share) / (length - 1))
    weights[..., np.arange(1, length), np.arange(length - 1)] = share
    weights[..., 0, :] = 1 / length
    return weights / weights.sum(-1, keepdims=True)


def test_a_change_is_claimed_where_its_interval_is_above_the_threshold() -> None:
    random = np.random.default_rng(1)
    befores = random.normal(0.75, 0.01, 9)
    for after, changed, role in ((0.75, False, False), (0.65, False, False), (0.3, True, True)):
        afters = random.normal(after, 0.01, 9)
        pairs = [(shifted(a), shifted(b)) for a, b in zip(befores, afters, strict=True)]
        (change,) = compared(pairs).changes()
        assert (change.changed, change.role_changed) == (changed, role), after
        assert (change.interval[0] > LEAST_DIVERGENCE) == changed
        assert change.roles == ("previous token", "mixed" if role else "previous token")
        assert len(pairs) == change.texts
    (alone,) = compared(pairs[:1]).changes()
    assert alone.divergence > 0.05 and not alone.changed and np.isnan(alone.interval).all()


def test_a_role_near_one_half_is_not_claimed_where_texts_disagree() -> None:
    """Attention changes in every text, to either side, so that the share does not."""
    keys = np.zeros((1, 1, 1, 8, 8))
    keys[..., 4] = 1
    pairs = []
    for n in range(12):
        share = 0.52 + 0.3 * (-1) ** n
        after = shifted(1.02 - share)
        after[..., 0, :] = keys[..., 0, :]
        pairs.append((shifted(share), after))
    (change,) = compared(pairs).changes()
    assert change.changed and not change.role_changed


def test_intervals_of_more_texts_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(drawn(n), drawn(100 + n)) for n in range(12)]
    monkeypatch.setattr("flaxattn.measures.compare_heads._KEPT", 5)
    for change in compared(pairs).changes():
        i, j = change.layer, change.head
        apart = [jensen_shannon(a[i, 0, j], b[i, 0, j]).mean() for a, b in pairs]
        scale = {"loc": np.mean(apart), "scale": scipy.stats.sem(apart)}
        expected = scipy.stats.t.interval(0.95, len(apart) - 1, **scale)
        assert change.interval == pytest.approx(expected, rel=1e-3)


def test_texts_without_a_number_are_left_out_of_intervals() -> None:
    kept = PairedTexts()
    values = np.random.default_rng(0).normal(size=(9, 1, 2)).astype(np.float32)
    values[3:, 0, 1] = np.nan
    values[3, 0, 0] = np.nan
    for value in values:
        kept.add(value)
    mean = np.nanmean(values, 0)
    known = Moments((~np.isnan(values)).sum(0), mean, np.nansum((values - mean) ** 2, 0))
    low, high = kept.interval(known, ClaimRule())
    for head in range(2):
        some = np.sort(values[:, 0, head][~np.isnan(values[:, 0, head])]).astype(np.float64)
        expected = [float(end) for end in bootstrap_interval(some, 0.95, 1000, 0)]
        assert [low[0, head], high[0, head]] == pytest.approx(expected)
