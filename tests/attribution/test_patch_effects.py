# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of effects of patching, from numbers that are given."""

import itertools
from typing import Any

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.attribution.patch_effects import PatchReport, UnitEffects

PAIRS = [fa.TextPair("a", "b", "c")] * 6
# Of 2 layers, 3 heads, 2 groups of positions and 6 pairs; head 1.2 has the largest effect.
EACH = np.random.default_rng(0).normal(0, 0.1, (2, 3, 2, 6))
EACH[1, 2, 1] = [-3, -2, -4, -3, -2.5, -1]
EACH[0, 1, 0] = [1, 1, 1.5, 2, 1, 0.5]
EACH[0, 0, 0] = [2, 2, 2, 2, 2, -0.1]


def effects(each: Any = EACH, alpha: float = 0.05, correction: str = "none") -> UnitEffects:
    return UnitEffects.of("decoder", "", each, alpha, correction, seed=0)


def report(one: UnitEffects, **request: Any) -> PatchReport:
    clean, corrupted = np.full(6, 5.0), np.full(6, 1.0)
    requested = fa.PatchRequest(positions="segment", **request)
    names = ("before", "after")
    return PatchReport(requested, "m", PAIRS, names, clean, corrupted, (one,), 0.05, "none", 0)


def test_means_intervals_and_p_values_are_those_of_pairs() -> None:
    one = effects()
    np.testing.assert_allclose(one.means, EACH.mean(-1))
    assert (one.low <= one.means).all() and (one.means <= one.high).all()
    resampled = np.random.default_rng(1).integers(0, 6, (20_000, 6))
    ends = np.quantile(EACH[1, 2, 1][resampled].mean(1), (0.025, 0.975))
    assert (one.low[1, 2, 1], one.high[1, 2, 1]) == pytest.approx(ends, abs=0.1)
    flips = np.array(list(itertools.product((1, -1), repeat=6)))
    sums = np.abs(np.einsum("nt,lhpt->nlhp", flips, EACH))
    np.testing.assert_allclose(one.p, (sums >= np.abs(EACH.sum(-1)) - 1e-9).mean(0))


def test_units_up_to_alpha_are_causal() -> None:
    one = effects(alpha=2 / 2**6)
    assert one.p[1, 2, 1] == 2 / 2**6 and one.causal[1, 2, 1] and one.causal[0, 1, 0]
    assert not effects(alpha=2 / 2**6 - 1e-9).causal.any()
    corrected = effects(correction="bonferroni")
    np.testing.assert_allclose(corrected.p_corrected, np.minimum(1, 12 * one.p))
    assert not corrected.causal.any()


def test_rows_begin_with_the_largest_effect() -> None:
    rows = list(report(effects()).rows())
    assert len(rows) == 12
    first, second = rows[:2]
    assert (first["layer"], first["head"], first["positions"]) == (1, 2, "after")
    assert first["effect"] == EACH[1, 2, 1].mean() and first["kind"] == "activation"
    assert first["share"] == pytest.approx(EACH[1, 2, 1].mean() / 4) and first["causal"] is True
    assert (second["layer"], second["head"], second["positions"]) == (0, 0, "before")
    sizes = [abs(row["effect"]) for row in rows]
    assert sizes == sorted(sizes, reverse=True)


def test_rows_of_layers_name_no_head() -> None:
    by_layer = effects(EACH[:, :1])
    rows = list(report(by_layer, by="layer").rows())
    assert len(rows) == 4 and {row["head"] for row in rows} == {-1}


def test_shares_are_of_what_the_other_run_has_more() -> None:
    one = effects()
    forward, back = report(one), report(one, direction="noise")
    assert (forward.total, back.total) == (4, -4)
    np.testing.assert_allclose(forward.shares(one), -back.shares(one))
    same = PatchReport(
        forward.request, "m", PAIRS, ("a", "b"), one.means.ravel()[:6], one.means.ravel()[:6],
        (one,), 0.05, "none", 0,
    )  # fmt: skip
    assert np.isnan(same.shares(one)).all()


def test_kinds_of_mediation_are_named() -> None:
    one = UnitEffects.of("decoder", "direct", EACH, 0.05, "none", 0)
    assert {row["kind"] for row in report(one).rows()} == {"direct"}
