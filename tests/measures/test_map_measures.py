# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Where maps of any kind go: of attention as `stats` has it, and of maps with other rows."""

import numpy as np
import pytest

from flaxattn.measures.head_measures import MAP_MEASURES, map_measures, measure


def test_of_attention_they_are_those_of_stats():
    weights = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3, 6))
    special = np.array([True, False, False, False, False, True])
    found = map_measures(weights, special, square=True)
    known = measure(weights, special)
    assert tuple(found) == MAP_MEASURES
    for name in ("own", "previous", "next", "first", "entropy"):
        np.testing.assert_allclose(found[name], known[name], err_msg=name)
    np.testing.assert_allclose(found["special"], known["delimiter"])
    np.testing.assert_allclose(found["strongest"], weights.max(-1).mean(-1))
    np.testing.assert_allclose(found["total"], 1)


def test_size_and_sign_change_no_share_and_empty_rows_do_not_count():
    maps = np.random.default_rng(1).normal(size=(2, 4, 4))
    found = map_measures(maps, None, square=True)
    more = map_measures(np.concatenate([-3 * maps, np.zeros((2, 1, 4))], 1), None, square=True)
    for name in MAP_MEASURES[:-1]:
        np.testing.assert_allclose(found[name], more[name], err_msg=name)
    np.testing.assert_allclose(more["total"], -3 * maps.sum((-1, -2)) / 5)
    assert np.isnan(found["special"]).all()
    cross = map_measures(maps[:, :2], None, square=False)
    assert np.isnan(cross["own"]).all() and not np.isnan(cross["first"]).any()
    nothing = map_measures(np.zeros((1, 2, 2)), None, square=True)
    assert np.isnan(nothing["own"]).all() and nothing["total"].item() == 0


def test_a_map_by_hand():
    maps = np.array([[[4.0, 0, 0], [1, -1, 2], [0, 0, 5]]])
    found = map_measures(maps, np.array([False, False, True]), square=True)
    assert found["own"].item() == pytest.approx((1 + 0.25 + 1) / 3)
    assert found["previous"].item() == pytest.approx(0.25 / 3)
    assert found["next"].item() == pytest.approx(0.5 / 3)
    assert found["special"].item() == pytest.approx(1.5 / 3)
    assert found["strongest"].item() == pytest.approx(2.5 / 3)
    assert found["entropy"].item() == pytest.approx(1.5 * np.log(2) / 3)
    assert found["total"].item() == pytest.approx(11 / 3)
