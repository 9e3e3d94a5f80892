# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Holm's correction, step by step, and sign-flip tests against all flips and their calibration."""

import itertools

import numpy as np
import pytest
from scipy import stats

from flaxattn.measures.significance import adjusted, sign_flip_test


def by_steps(values):
    """The smallest of n is compared with alpha / n, the next with alpha / (n - 1), and so on."""
    found, largest = dict.fromkeys(range(len(values)), 0.0), 0.0
    for step, place in enumerate(sorted(found, key=lambda n: values[n])):
        largest = max(largest, (len(values) - step) * values[place])
        found[place] = min(1.0, largest)
    return [found[place] for place in range(len(values))]


@pytest.mark.parametrize("seed", range(4))
def test_holm(seed):
    values = np.random.default_rng(seed).random(7) ** 3
    np.testing.assert_allclose(adjusted(values, "holm"), by_steps(values.tolist()))


def test_tests_that_were_not_made_do_not_count():
    found = adjusted(np.array([0.01, np.nan, 0.04]), "holm")
    np.testing.assert_allclose(found, [0.02, np.nan, 0.04])
    assert adjusted(np.array([np.nan]), "holm").shape == (1,)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_few_pairs_are_tested_by_all_flips(count):
    values = np.random.default_rng(count).normal(size=(count, 2, 3))
    p = sign_flip_test(values)
    for place in np.ndindex(2, 3):
        one = values[:, *place]
        sums = [abs(np.dot(signs, one)) for signs in itertools.product((1, -1), repeat=count)]
        assert p[place] == np.mean(np.array(sums) >= abs(one.sum()) - 1e-12)


def test_many_pairs_are_tested_as_by_scipy():
    values = np.random.default_rng(0).normal(0.25, 1, (40, 3))
    expected = stats.permutation_test(
        (values,), lambda x, axis: x.sum(axis), permutation_type="samples", n_resamples=8191, rng=1
    )
    np.testing.assert_allclose(sign_flip_test(values), expected.pvalue, atol=0.01)


def test_a_p_value_below_the_draws_is_a_bound():
    assert sign_flip_test(np.ones((40, 1)))[0] == pytest.approx(2 * np.exp(-20))
    assert sign_flip_test(np.ones((13, 1)))[0] == 2 / 2**13


@pytest.mark.parametrize("count", [2, 3, 8, 14, 30])
def test_effects_of_one_size_and_a_random_sign_are_rarely_significant(count):
    random = np.random.default_rng(count)
    values = random.choice([-1, 1], (count, 4000)) * random.normal(1, 0.05, (count, 4000))
    p = sign_flip_test(values)
    for alpha in (0.05, 0.01):
        assert (p <= alpha).mean() <= alpha + 3 * np.sqrt(alpha / 4000)


def test_no_difference_is_not_significant():
    assert sign_flip_test(np.zeros((8, 2))).tolist() == [1, 1]
    assert sign_flip_test(np.zeros((30, 1))).tolist() == [1]
    assert np.isnan(sign_flip_test(np.ones((1, 2)))).all()
