# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of deletion and insertion curves draws the means, the best kind first."""

import numpy as np

import flaxattn as fa


def test_curves_are_means_over_texts_in_the_order_of_the_ranking():
    rng = np.random.default_rng(0)
    kinds = ("attention", "norm", "random")
    deletion, insertion = rng.random((2, 3, 4, 5))
    insertion[1] += 2  # norm is the most faithful
    rows = ("x",) * 4, (5,) * 4
    shares = np.linspace(0, 1, 5)
    found = fa.Faithfulness(kinds, shares, deletion, insertion, "probability", *rows)
    figure = fa.plot_faithfulness(found)
    order = [row["kind"] for row in found.table()]
    assert order[0] == "norm"
    for ax, curves in zip(figure.axes, (deletion, insertion), strict=True):
        assert [line.get_label() for line in ax.lines] == order
        for line, kind in zip(ax.lines, order, strict=True):
            np.testing.assert_allclose(line.get_ydata(), curves[kinds.index(kind)].mean(0))
            np.testing.assert_allclose(line.get_xdata(), shares)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == order
