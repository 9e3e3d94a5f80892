# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Curves of removal on a toy whose true attribution is known."""

import itertools

import numpy as np
import pytest

from flaxattn.attribution.faithfulness import curve_areas, removal_masks
from flaxattn.errors import InputError

TRUTH = np.array([0.0, 3.0, 0.5, 2.0, 0.0, 1.0, 0.25])
REMOVABLE = np.array([False, True, True, True, True, True, True])


def toy(kept):
    """A prediction that adds up what its tokens are worth."""
    return 1 / (1 + np.exp(2 - (kept * TRUTH).sum(-1)))


def curves_of(scores, steps=6):
    masks = removal_masks(scores, REMOVABLE, steps)
    return toy(masks.deletion), toy(masks.insertion)


def test_masks_remove_the_largest_scores_first():
    masks = removal_masks(np.array([9.0, 1, 3, 2]), np.array([False, True, True, True]), 3)
    np.testing.assert_array_equal(
        masks.deletion, [[1, 1, 1, 1], [1, 1, 0, 1], [1, 1, 0, 0], [1, 0, 0, 0]]
    )
    np.testing.assert_array_equal(
        masks.insertion, [[1, 0, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1], [1, 1, 1, 1]]
    )


def test_curves_are_monotone_and_no_order_beats_the_truth():
    deletion, insertion = curves_of(TRUTH)
    assert (np.diff(deletion) <= 0).all() and (np.diff(insertion) >= 0).all()
    best = curve_areas(deletion, insertion)
    for order in itertools.permutations(range(6)):
        scores = np.array([0.0, *order])
        other = curve_areas(*curves_of(scores))
        assert other["deletion"] >= best["deletion"] - 1e-12
        assert other["insertion"] <= best["insertion"] + 1e-12
        assert other["gap"] <= best["gap"] + 1e-12
        assert other["comprehensiveness"] <= best["comprehensiveness"] + 1e-12
        assert other["sufficiency"] >= best["sufficiency"] - 1e-12


def test_random_orders_have_no_gap_on_average():
    gaps = []
    for order in itertools.permutations(range(6)):
        linear = [(m * TRUTH).sum(-1) for m in removal_masks(np.array([0.0, *order]), REMOVABLE, 6)]
        gaps.append(curve_areas(*linear)["gap"])
    assert np.mean(gaps) == pytest.approx(0, abs=1e-12)


def test_areas_are_those_of_trapezoids():
    deletion, insertion = np.array([1.0, 0.4, 0.2, 0.0]), np.array([0.0, 0.5, 0.9, 1.0])
    found = curve_areas(deletion, insertion)
    assert found["deletion"] == pytest.approx(np.trapezoid(deletion, np.linspace(0, 1, 4)))
    assert found["insertion"] == pytest.approx(np.trapezoid(insertion, np.linspace(0, 1, 4)))
    assert found["comprehensiveness"] == pytest.approx(0.7)
    assert found["sufficiency"] == pytest.approx(0.3)


def test_more_steps_than_tokens_and_equal_scores():
    masks = removal_masks(np.zeros(3), np.array([True, True, False]), 5)
    assert masks.deletion.sum(1).tolist() == [3, 3, 2, 2, 1, 1]
    assert not masks.deletion[2, 0] and masks.deletion[2, 1]  # the first in the text goes first


def test_scores_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="NaN or infinite, so they rank nothing"):
        removal_masks(np.array([np.nan, 1.0]), np.array([True, True]), 2)
    removal_masks(np.array([np.nan, 1.0]), np.array([False, True]), 2)
