# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What a page shows and what `plot_state` draws of its state are the same weights."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from flaxattn.views.figures.plot_state import plot_state
from flaxattn.views.payloads.encoded_weights import ERROR

pytestmark = pytest.mark.browser

SETTINGS = [
    "layer=1&heads=0-2",
    "heads=1&query=4",
    "heads=1&key=3",
    "layer=1&heads=2&special=hidden",
    "heads=0&first=hidden&mass=70",
    "heads=2&attention=ba",
    "layer=1&heads=1&attention=ab&special=hidden&first=hidden&mass=80",
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_picture_of_a_state_is_what_the_page_draws(view, pair, settings):
    view.open(pair.page, f"level=head&{settings}")
    state = view.run("return view.state.json()")
    figure = plot_state(pair.trace, state)
    try:
        drawn = {}
        rows = positions(view, "left", state["query"])
        columns = positions(view, "right", state["key"])
        for head, ax in zip(state["heads"], figure.axes, strict=False):
            image = np.asarray(ax.images[0].get_array())
            assert image.shape == (len(rows), len(columns))
            for (i, j), weight in np.ndenumerate(image):
                drawn[head, rows[i], columns[j]] = float(weight)
    finally:
        plt.close(figure)
    shown = view.lines()
    for line in drawn.keys() | shown.keys():
        assert abs(drawn.get(line, 0) - shown.get(line, 0)) < 4 * ERROR["float16"], line


def positions(view, column, pinned):
    """Positions that a column of the page leaves."""
    script = (
        "const name = arguments[0] === 'left' ? 'queries' : 'keys';"
        "return view.state.selection(null)[name]"
    )
    return [n for n in view.run(script, column) if pinned is None or n == pinned]
