# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The table that a screen reader gets for a pinned token: every weight that the picture shows."""

import numpy as np
import pytest
from hostile_texts import SHAPES, texts

from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import visible
from flaxattn.views.trace_views import head_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROWS = """
return [...document.querySelectorAll(".spoken tr")].map(
  (row) => [...row.cells].map((cell) => cell.textContent));
"""


def written(weights: np.ndarray) -> list[str]:
    return ["<0.001" if 0 < w < 0.0005 else f"{w:.3f}" for w in weights]


def test_every_head_and_its_mean_strongest_first(view, pair):
    view.open(pair.page, "layer=1&query=2")
    header, *rows = view.run(ROWS)
    assert header == ["token", "mean", "head 0", "head 1", "head 2"]
    weights = pair.shares[1, :, 2]
    order = np.argsort(-weights.mean(0), kind="stable")
    assert [row[1] for row in rows] == written(weights.mean(0)[order])
    for (name, _, *cells), key in zip(rows, order, strict=True):
        assert name.split()[0] == pair.tokens[key]
        assert cells == written(weights[:, key])
    (caption,) = view.texts(".spoken caption")
    assert caption == "cat attends to, layer 1, attention weight"


def test_what_is_attended_by_a_key_and_one_head_without_a_mean(view, pair):
    view.open(pair.page, "heads=1&key=3")
    header, *rows = view.run(ROWS)
    assert header == ["token", "head 1"]
    expected = -np.sort(-pair.shares[0, 1, :, 3])
    assert [row[1] for row in rows] == written(expected)


def test_it_is_a_table_to_assistive_technology_and_goes_with_the_pin(view, pair):
    view.open(pair.page, "query=2")
    tree = view.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = [node["role"]["value"] for node in tree if not node["ignored"]]
    assert roles.count("table") == 1
    assert roles.count("rowheader") == len(pair.tokens)
    view.press("ESCAPE")
    assert view.run(ROWS) == []
    view.point(view.token("left", 1))
    assert view.run(ROWS) == []


def test_weights_that_are_not_drawn_are_named(view, pair):
    view.open(pair.page, "query=2&mass=60")
    cells = {cell for _, _, *row in view.run(ROWS)[1:] for cell in row}
    assert "not drawn" in cells
    drawn = view.run("return view.drawing.lines.length")
    shown = [cell for _, _, *row in view.run(ROWS)[1:] for cell in row if cell != "not drawn"]
    assert len(shown) == drawn


def test_long_texts_have_their_strongest_hundred(view, tmp_path, peaked):
    trace = Trace.from_arrays(peaked(1, 1, 300), [[f"t{i}" for i in range(300)]])
    view.open(head_view(trace, 0, state={"query": 5, "mass": 100}).save(tmp_path / "p.html"))
    assert len(view.run(ROWS)) == 101
    drawn = view.run("return view.found.size")
    assert 100 < drawn <= 300
    assert view.texts(".spoken caption")[0].endswith(f"; the strongest 100 of {drawn} tokens")


@pytest.mark.parametrize("kind", list(SHAPES))
def test_hostile_tokens_are_text(view, tmp_path, kind):
    tokens = texts(kind)
    weights = np.full((1, 1, 1, len(tokens), len(tokens)), 1 / len(tokens), np.float32)
    page = head_view(Trace.from_arrays(weights, [tokens]), 0).save(tmp_path / "page.html")
    view.open(page, "query=1")
    names = [row[0] for row in view.run(ROWS)[1:]]
    named = "const { right } = view.state.side; return right.tokens.map((_, i) => right.nameOf(i))"
    assert sorted(names) == sorted(view.run(named))
    assert all(any(visible(text) in name for name in names) for text in tokens)
    assert view.run("return window.seen") == []
