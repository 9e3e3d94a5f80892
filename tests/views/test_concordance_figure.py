# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of correlations has every pair of columns, and says which are beyond chance."""

from typing import Any

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.measures.head_concordance import HeadConcordance


def concordance() -> HeadConcordance:
    """Correlations of three columns of two reports; one is not known."""
    table = np.array([[1.0, 0.5, -0.004], [0.5, 1.0, np.nan], [-0.004, np.nan, 1.0]])
    p = np.array([[np.nan, 0.01, 0.5], [0.01, np.nan, np.nan], [0.5, np.nan, np.nan]])
    names = ("roles: a", "ablate: b", "ablate: c")
    heads = np.arange(5)
    where: Any = ("m", "encoder", names, (0, 1, 1), heads // 2, heads % 2)
    numbers: Any = (np.zeros((5, 3)), np.full((3, 3), 5), *(table,) * 6, p, p, p)
    return HeadConcordance(*where, *numbers)


def test_every_known_correlation_has_its_number_bold_beyond_chance() -> None:
    found = concordance()
    ax = fa.plot_concordance(found).axes[0]
    np.testing.assert_array_equal(ax.images[0].get_array(), found.spearman)
    assert [label.get_text() for label in ax.get_yticklabels()] == list(found.columns)
    texts = {text.get_position()[::-1]: text for text in ax.texts}
    assert {place: text.get_text() for place, text in texts.items()} == {
        **{(n, n): "1.00" for n in range(3)},
        **{(0, 1): "0.50", (1, 0): "0.50", (0, 2): "0.00", (2, 0): "0.00"},
    }
    bold = [place for place, text in texts.items() if text.get_fontweight() == "bold"]
    assert sorted(bold) == [(0, 1), (1, 0)]
    assert ax.get_title() == "m, encoder: 5 heads"


def test_lines_part_the_reports() -> None:
    ax = fa.plot_concordance(concordance(), alpha=0.001).axes[0]
    assert [np.asarray(line.get_ydata())[0] for line in ax.lines[::2]] == [0.5]
    assert {text.get_fontweight() for text in ax.texts} == {"normal"}
    assert ax.images[0].get_clim() == pytest.approx((-1, 1))
