# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Weights that are NaN are hatched in pictures, said in numbers, and break nothing."""

from pathlib import Path

import numpy as np
import pytest

from flaxattn.trace.trace import Trace
from flaxattn.views.trace_views import head_view

pytestmark = pytest.mark.browser

LENGTH = 6
# Colours inside a cell of the matrix, and inside a pixel of a small picture.
CELL = """
const [q, k] = arguments;
const { cells, place, window } = view.matrix;
const x = place.left + (k - window.column) * window.size;
const y = place.top + (q - window.row) * window.size;
const size = Math.floor(window.size) - 2;
const { data } = cells.getContext("2d").getImageData(x + 1, y + 1, size, size);
const colours = new Set();
for (let i = 0; i < data.length; i += 4) colours.add(data.slice(i, i + 4).join());
return colours.size;
"""


@pytest.fixture(scope="module")
def nan(peaked, tmp_path_factory) -> tuple[np.ndarray, Path]:
    """Weights `[H, Q, K]`, row 2 of head 1 NaN, and their page."""
    weights = peaked(1, 3, LENGTH)
    weights[0, 0, 1, 2] = np.nan
    page = head_view(Trace.from_arrays(weights, [list("abcdef")]), 0)
    return weights[0, 0], page.save(tmp_path_factory.mktemp("nan") / "nan.html")


def test_cells_that_are_nan_are_hatched_and_the_others_are_not(view, nan):
    _, path = nan
    view.open(path, "level=head&drawing=matrix&heads=1")
    assert all(view.run(CELL, 2, key) > 1 for key in range(LENGTH))
    assert all(view.run(CELL, 3, key) == 1 for key in range(LENGTH))
    assert view.find(".badge.broken").text == "6 weights are NaN"
    assert "#808080" in view.svg()
    view.run("view.matrix.pointAt({ query: 2, key: 1 }, view.matrix.stage)")
    assert view.find(".tip .value").text == "NaN"
    view.run("page.go({ heads: [0] })")
    assert view.run(CELL, 2, 0) == 1
    assert not view.find(".badge.broken").is_displayed()
    assert view.run("return window.seen") == []


def test_lines_leave_nan_out_and_say_so(view, nan):
    shares, path = nan
    view.open(path, "level=head&query=2")
    view.assert_draws(shares, heads=[0, 2], queries=[2])
    assert view.find(".badge.broken").text == "6 weights are NaN"
    assert view.texts(".right .token .value") == ["NaN"] * LENGTH
    view.point(view.token("right", 4))
    assert view.texts(".panel .value")[1] == "NaN"
    view.open(path, "level=head&query=3&mass=50&opacity=row&first=hidden")
    assert "NaN" not in view.find("main").text
    view.open(path, "level=head&mass=50&opacity=row&first=hidden")
    assert "NaN %" not in view.find("main").text
    assert {line[:2] for line in view.lines()} == {
        (h, q) for h in range(3) for q in range(LENGTH) if (h, q) != (1, 2)
    }
    assert view.run("return window.seen") == []


def test_small_pictures_hatch_it_and_the_atlas_has_no_number(view, nan):
    shares, path = nan
    view.open(path, "level=model")
    view.until("view.root.dataset.waiting === '0'")
    assert view.run("return view.grid.cells.map((c) => c.button.classList.contains('broken'))") == [
        False,
        True,
        False,
    ]
    alpha = view.run(
        "const { data } = view.grid.cells[1].button.firstChild.getContext('2d')"
        ".getImageData(0, 0, 6, 6); return [...data].filter((_, i) => i % 4 === 3)"
    )
    np.testing.assert_array_equal(np.reshape(alpha, (6, 6)) == 0, np.isnan(shares[1]))
    view.run("page.go({ level: 'atlas' })")
    assert [cell["text"] for cell in view.run("return view.drawn()")][1] == "–"
    assert view.run("return window.seen") == []
