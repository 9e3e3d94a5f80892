# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of roles show the counts of the tests, and the means that they are given."""

import laid_out
import numpy as np
import pytest

from flaxattn.measures.role_tests import Test, find_roles
from flaxattn.measures.scores import ScoreAccumulator
from flaxattn.measures.specs import ScoreOptions
from flaxattn.views.figures.figure_style import page_colours
from flaxattn.views.figures.plot_roles import plot_head_means, plot_roles
from flaxattn.views.payloads.report_payload import claim_marks


def shown(ax):
    return np.asarray(ax.images[0].get_array())


def test_shares_of_layers_and_overlaps():
    rng = np.random.default_rng(0)
    layouts = [laid_out.single(str(n)) for n in range(5)]
    maps = [laid_out.random_maps(2, 4, 8, rng) for _ in layouts]
    options = ScoreOptions(relations=("nsubj",))
    tally = ScoreAccumulator.of(laid_out.scores_from(maps, layouts, options))
    roles = find_roles(tally, options, Test(tau=1, alpha=0.3, correction="none"))
    figure = plot_roles(roles)
    left, right = figure.axes[:2]
    names = [label.get_text() for label in left.get_yticklabels()]
    marks = claim_marks(roles.roles)
    assert names == [f"{name}  {mark.code}" for name, mark in marks.items()]
    for axis in (left.yaxis, right.xaxis):
        inks = [label.get_color() for label in axis.get_ticklabels()]
        assert inks == [page_colours()[mark.variable] for mark in marks.values()]
    overlaps = 0
    for place, (name, role) in enumerate(roles.roles.items()):
        np.testing.assert_allclose(shown(left)[place], role.found.mean(1))
        for other, column in zip(roles.roles, shown(right)[place], strict=True):
            both = roles.overlap(name, other)
            assert column == pytest.approx(both / max(role.found.sum(), 1))
            overlaps += both
    assert overlaps > 20
    assert figure.axes[2].get_ylabel() == "share of heads"


def test_means_get_a_map_each():
    means = {f"m{n}": np.full((2, 3), n / 10) for n in range(6)}
    figure = plot_head_means((4, 5), (0, 1, 2), means)
    maps = [ax for ax in figure.axes if ax.images and ax.get_visible()]
    assert [ax.get_title() for ax in maps] == list(means)
    for ax, values in zip(maps, means.values(), strict=True):
        assert (shown(ax) == values).all()
    assert not figure.axes[7].get_visible()
    assert figure.axes[8].get_ylabel() == "share of attention"
    assert [text.get_text() for text in figure.axes[4].get_yticklabels()] == ["4", "5"]
