# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The first picture of a page, the sentence above it, and bars of one length in a browser."""

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.trace.trace import Trace

pytestmark = pytest.mark.browser
WIDTHS = """
const bars = document.querySelectorAll(".panel .bar");
return [...bars].map((bar) => bar.getBoundingClientRect().width);
"""

# Contrast of the middle of a line with the paper, and how far its channels are apart.
INK = """
const level = view;
const { canvas } = level.page;
const scale = canvas.width / level.geometry.width;
const middle = (level.geometry.left.get(arguments[0]) + level.geometry.right.get(arguments[1])) / 2;
const [x, y] = [Math.round(canvas.width / 2), Math.round(scale * middle)];
const { data } = canvas.getContext("2d").getImageData(x, y - 1, 1, 3);
const inks = [0, 1, 2].map((i) => [...data.slice(4 * i, 4 * i + 4)]);
const paper = level.actions.style("--paper").match(/\\w\\w/g).map((part) => parseInt(part, 16));
const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const luminance = ([r, g, b]) => [0.2126 * r, 0.7152 * g, 0.0722 * b].reduce((a, b) => a + b);
const light = (colour) => luminance(colour.map((c) => linear(c / 255)));
const found = inks.map(([r, g, b, a]) => {
  const shown = [r, g, b].map((c, i) => (c * a + paper[i] * (255 - a)) / 255);
  const [low, high] = [light(shown), light(paper)].sort((p, q) => p - q);
  const colourful = Math.max(...shown) - Math.min(...shown);
  return { contrast: (high + 0.05) / (low + 0.05), colourful };
});
return found.reduce((a, b) => (b.contrast > a.contrast ? b : a));
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A head of previous tokens in layer 1; the others are broad."""
    weights = np.full((2, 1, 2, 6, 6), 1 / 6, np.float32)
    weights[1, 0, 1] = 0.9 * np.eye(6, k=-1) + 0.1 / 6
    weights /= weights.sum(-1, keepdims=True)
    trace = Trace.from_arrays(weights, [list("abcdef")])
    return fa.head_view(trace).save(tmp_path_factory.mktemp("opening") / "page.html")


def test_it_opens_at_one_telling_head_and_says_what_it_does(view, page):
    view.open(page)
    assert view.run("return [page.state.layerNumber(), page.state.heads]") == [1, [1]]
    (sentence,) = view.texts(".reading")
    assert sentence == "Layer 1, head 1 looks at the previous token: 76 % of its attention."
    drawn = view.lines()
    pinned = view.run("return page.state.query")
    assert {query for _, query, _ in drawn} == {pinned}
    assert max(drawn, key=lambda line: drawn[line]) == (1, pinned, pinned - 1)
    view.press("ESCAPE")
    assert {query for _, query, _ in view.lines()} == set(range(6))


def test_pointing_at_another_token_shows_its_lines_until_the_pointer_leaves(view, page):
    view.open(page)
    pinned = view.run("return page.state.query")
    other = 3 if pinned != 3 else 4
    panel = view.texts(".panel")
    assert "Pinned. Esc shows all lines again." in panel[0]
    view.point(view.token("left", other))
    assert {query for _, query, _ in view.lines()} == {other}
    assert "Pinned" not in view.texts(".panel")[0] and view.texts(".panel") != panel
    view.point("h1")
    assert {query for _, query, _ in view.lines()} == {pinned}
    assert view.texts(".panel") == panel


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_of_other_tokens_are_visible_behind_those_of_the_token(view, page, theme):
    view.open(page, f"theme={theme}")
    pinned = view.run("return page.state.query")
    other = next(n for n in range(1, 6) if abs(n - pinned) > 1)
    behind = view.run(INK, other, other - 1)
    assert behind["contrast"] >= 3 and behind["colourful"] < 20, "grey, and 3 : 1 from the paper"
    view.press("ESCAPE")
    alone = view.run(INK, other, other - 1)
    assert alone["colourful"] > 60, "in the colour of its head"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_of_weight_one_half_stand_out_from_the_paper(view, tmp_path, theme):
    """Sixteen heads, each with the colour of its own."""
    weights = np.zeros((1, 1, 16, 4, 4), np.float32)
    weights[..., 0, 0] = 1
    weights[..., np.arange(1, 4), np.arange(3)] = weights[..., np.arange(1, 4), np.arange(1, 4)] = (
        0.5
    )
    trace = Trace.from_arrays(weights, [list("abcd")])
    saved = fa.head_view(trace).save(tmp_path / "half.html")
    for head in range(16):
        view.open(saved, f"theme={theme}&heads={head}&query=")
        assert view.run(INK, 3, 2)["contrast"] >= 3, head


def test_the_sentence_follows_the_heads(view, page):
    view.open(page, "layer=0&heads=0")
    assert view.texts(".reading") == ["Layer 0, head 0 attends broadly: entropy 1.8 nats."]
    view.open(page, "layer=0&heads=0-1")
    (sentence,) = view.texts(".reading")
    assert sentence == "2 heads of layer 0; double-click a number above to see one head."


def test_bars_of_a_list_have_tracks_of_one_length_and_say_their_scale(view, translation):
    view.open(translation.page, "query=1")
    widths = view.run(WIDTHS)
    assert len(widths) > 3 and max(widths) - min(widths) < 0.01
    hints = " ".join(view.texts(".panel .hint"))
    largest = view.texts(".panel .fact .value")[0]
    assert f"The longest bar is {largest}." in hints
    view.open(translation.page, "query=1&key=2")
    assert "a full bar is a weight of 1" in " ".join(view.texts(".panel .hint"))


def test_bars_of_a_difference_are_as_long_whatever_their_sign(view, tmp_path, peaked):
    traces = [Trace.from_arrays(peaked(1, 2, 6, seed=s), [list("abcdef")]) for s in (0, 1)]
    page = fa.compare_view(*traces).save(tmp_path / "two.html")
    view.open(page, "level=head&query=3&heads=0-1&compare=difference")
    texts = view.texts(".panel .fact .value")
    assert any(text.startswith("−") for text in texts) and any(text[0] != "−" for text in texts)
    widths = view.run(WIDTHS)
    assert max(widths) - min(widths) < 0.01
