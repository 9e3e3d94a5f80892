# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A text longer than the window: of a token, the lines and rows in sight are drawn, and right."""

from pathlib import Path

import numpy as np
import pytest

from flaxattn.trace.trace import Trace
from flaxattn.views.trace_views import head_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LENGTH = 300
QUERY = 7
# Rows with a number on the right, whether they are in the window, and what they should say.
ROWS = """
const rows = [...document.querySelectorAll(".right [data-index]")];
return rows.map((row) => {
  const box = row.getBoundingClientRect();
  const seen = box.bottom > 0 && box.top < innerHeight;
  return [row.lastChild.textContent, seen, row.style.backgroundImage !== ""];
});
"""
# The overlay, and the same part of a canvas on which every line of the token is painted.
PIXELS = """
const { overlay } = view.page;
const whole = document.createElement("canvas");
const [lines, casing] = [view.drawing.lines, page.style("--paper")];
const colourOf = (head) => page.colourOf(head);
paintLines(whole, lines, view.geometry, colourOf, undefined, undefined, casing);
const { width, height } = overlay;
const read = (canvas, top) => canvas.getContext("2d").getImageData(0, top, width, height).data;
const [part, same] = [read(overlay, 0), read(whole, parseFloat(overlay.style.top))];
const box = overlay.getBoundingClientRect();
return {
  inked: part.some((value) => value > 0),
  apart: part.filter((value, i) => i % 4 === 3 && Math.abs(value - same[i]) > 6).length,
  covers: box.top <= Math.max(0, view.page.stage.getBoundingClientRect().top) + 1 &&
    box.bottom >= Math.min(innerHeight, view.page.stage.getBoundingClientRect().bottom) - 1,
  height,
};
"""


@pytest.fixture(scope="module")
def long(peaked, tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, Path]:
    """Weights `[H, Q, K]` of two heads, and their page."""
    weights = peaked(1, 2, LENGTH)
    trace = Trace.from_arrays(weights, [[f"w{i}" for i in range(LENGTH)]])
    page = head_view(trace, 0, precision="float16", state={"mass": 100})
    return weights[0, 0], page.save(tmp_path_factory.mktemp("long") / "long.html")


def assert_rows(view, shares: np.ndarray) -> list[int]:
    """Rows in the window say the mean weight, and few others say anything; those that do."""
    rows = view.run(ROWS)
    for index, (text, seen, _) in enumerate(rows):
        mean = float(shares[:, QUERY, index].mean())
        texts = {f"{mean:.3f}", f"{mean + 2e-4:.3f}", f"{mean - 2e-4:.3f}", "<0.001"}
        assert text in texts if seen else text in texts | {""}, index
    marked = [index for index, (text, _, striped) in enumerate(rows) if text or striped]
    assert 20 < len(marked) < 90
    return marked


def test_rows_and_lines_of_a_token_are_drawn_where_they_are_visible(view, long):
    shares, path = long
    view.open(path, f"query={QUERY}")
    before = assert_rows(view, shares)
    assert 0 in before
    drawn = view.run(PIXELS)
    assert drawn["inked"] and drawn["covers"]
    assert drawn["apart"] == 0  # by opacity, which each of two strokes rounds
    assert drawn["height"] < 1300


def test_what_scrolls_into_sight_is_drawn_and_what_leaves_it_is_cleared(view, long):
    shares, path = long
    view.open(path, f"query={QUERY}")
    before = assert_rows(view, shares)
    view.run("window.scrollTo(0, document.body.scrollHeight)")
    last = f"document.querySelector(\".right [data-index='{LENGTH - 1}']\").lastChild.textContent"
    view.until(f"{last} !== ''")
    after = assert_rows(view, shares)
    assert not set(before) & set(after)
    assert view.run("return document.querySelector('.left .held').dataset.index") == str(QUERY)
    drawn = view.run(PIXELS)
    assert drawn["inked"] and drawn["covers"] and drawn["apart"] == 0


def test_all_lines_of_the_token_are_counted_in_sight_or_not(view, long):
    _, path = long
    view.open(path, f"query={QUERY}")
    assert view.lines().keys() == {(h, QUERY, k) for h in range(2) for k in range(LENGTH)}
    view.press("ESCAPE")
    assert not any(text or striped for text, _, striped in view.run(ROWS))
