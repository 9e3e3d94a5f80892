# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The matrix of a head in a headless Chromium: every pixel is a weight, or the largest of some."""

from xml.etree import ElementTree

import numpy as np
import pytest

from flaxattn.trace.trace import Trace
from flaxattn.views.trace_views import head_view

pytestmark = pytest.mark.browser

MATRIX = "drawing=matrix"
# Colours of pixels at places of the canvas, as `#rrggbb`.
PIXELS = """
const context = view.matrix.cells.getContext("2d");
const hex = (part) => part.toString(16).padStart(2, "0");
return arguments[0].map(([x, y]) => {
  const [red, green, blue] = context.getImageData(Math.floor(x), Math.floor(y), 1, 1).data;
  return `#${hex(red)}${hex(green)}${hex(blue)}`;
});
"""


def shade(shades, weight):
    """The colour of a weight on the scale of the page."""
    return shades[round(float(np.sqrt(np.clip(float(weight), 0, 1))) * (len(shades) - 1))]


def middle(drawn, row, column):
    """Where a cell is on the canvas."""
    place, window = drawn["place"], drawn["window"]
    x = place["left"] + (column + 0.5 - window["column"]) * window["size"]
    return [x, place["top"] + (row + 0.5 - window["row"]) * window["size"]]


def drawn(view):
    """What is on the canvas."""
    return view.run("return view.matrix.drawn()")


def move(view, row, column, kind="pointermove"):
    """Point at a cell."""
    x, y = middle(drawn(view), row, column)
    view.run(
        "const box = view.matrix.cells.getBoundingClientRect();"
        "const at = { clientX: box.left + arguments[0], clientY: box.top + arguments[1] };"
        "view.matrix.stage.dispatchEvent(new PointerEvent(arguments[2], { ...at, bubbles: true }))",
        x,
        y,
        kind,
    )


def click(view, row, column):
    """Click a cell, as a person does."""
    x, y = middle(drawn(view), row, column)
    box = view.run("const b = view.matrix.cells.getBoundingClientRect(); return [b.x, b.y]")
    where = {"x": box[0] + x, "y": box[1] + y, "button": "left", "clickCount": 1}
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        view.browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, **where})


@pytest.fixture(scope="module")
def large(peaked, tmp_path_factory):
    """1,400 tokens in one head, and their page."""
    weights = peaked(1, 1, 1400, seed=3)
    tokens = [f"w{i}" for i in range(1400)]
    path = tmp_path_factory.mktemp("large") / "page.html"
    trace, whole = Trace.from_arrays(weights, [tokens]), {"mass": 100}
    return weights[0, 0, 0], head_view(trace, 0, precision="float16", state=whole).save(path)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("opacity", ["absolute", "row"])
def test_every_cell_has_the_colour_of_its_weight(view, pair, theme, opacity):
    view.open(pair.page, f"{MATRIX}&theme={theme}&opacity={opacity}")
    for layer, head in np.ndindex(2, 3):
        view.run("page.update({ layer: arguments[0], heads: [arguments[1]] })", layer, head)
        about = drawn(view)
        assert (about["layer"], about["head"], about["pooled"]) == (layer, head, 1)
        weights = pair.shares[layer, head].astype(np.float16).astype(np.float32)
        if opacity == "row":
            weights = weights / weights.max(-1, keepdims=True)
        cells = list(np.ndindex(*weights.shape))
        found = view.run(PIXELS, [middle(about, *cell) for cell in cells])
        expected = [shade(about["shades"], weights[cell]) for cell in cells]
        assert found == expected
    assert about["shades"][0] == view.run("return page.style('--scale-low')")
    assert about["shades"][-1] == view.run("return page.style('--scale-high')")


def test_cells_below_a_pixel_show_the_largest_weight_in_them(view, large):
    weights, page = large
    view.open(page, MATRIX)
    about = drawn(view)
    n = about["pooled"]
    assert n >= 2 and about["window"]["size"] * n >= 1
    padded = np.zeros([-(-1400 // n) * n] * 2, np.float32)
    padded[:1400, :1400] = weights.astype(np.float16)
    pooled = padded.reshape(len(padded) // n, n, -1, n).max((1, 3))
    rng = np.random.default_rng(0)
    cells = [tuple(cell) for cell in rng.integers(1400 // n, size=(1000, 2))]
    places = [middle(about, (row + 0.5) * n - 0.5, (col + 0.5) * n - 0.5) for row, col in cells]
    assert view.run(PIXELS, places) == [shade(about["shades"], pooled[cell]) for cell in cells]
    assert f"a pixel is the largest of {n} × {n}" in view.texts(".matrix-pooling")[0]


def test_pointing_frames_a_cell_and_shows_its_weight(view, pair):
    view.open(pair.page, f"{MATRIX}&layer=1&heads=2")
    rng = np.random.default_rng(1)
    for row, column in rng.integers(pair.length, size=(20, 2)).tolist():
        move(view, row, column)
        weight = pair.shares[1, 2, row, column]
        pair_text = f"{pair.tokens[row]} → {pair.tokens[column]}"
        shown = "<0.001" if weight < 0.0005 else f"{weight:.3f}"
        expected = f"{pair_text}positions {row} → {column}, head 2: {shown}"
        assert view.texts(".tip") == [expected]
        cell = drawn(view)["cell"]
        assert (cell["query"], cell["key"]) == (row, column)
        assert view.texts(".panel h2") == [f"{pair.tokens[row]} attends to"]
    inked = (
        "const c = view.matrix.cross; const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; return d.some((part) => part > 0)"
    )
    assert view.run(inked)
    view.run("view.matrix.stage.dispatchEvent(new PointerEvent('pointerleave'))")
    assert not view.find(".tip").is_displayed()
    assert not view.run(inked)


def test_a_click_holds_a_query_and_a_second_lets_go(view, pair):
    view.open(pair.page, MATRIX)
    view.run("window.scrollTo(0, 0)")
    click(view, 3, 5)
    assert view.run("return page.state.query") == 3
    assert "query=3" in view.run("return location.hash")
    click(view, 3, 1)
    assert view.run("return page.state.query") is None


def test_the_keyboard_walks_cells_and_says_them(view, pair):
    view.open(pair.page, f"{MATRIX}&heads=1")
    view.run("view.matrix.stage.focus()")
    view.press("ARROW_RIGHT", "ARROW_DOWN", "ARROW_DOWN", "ARROW_RIGHT")
    cell = drawn(view)["cell"]
    assert (cell["query"], cell["key"]) == (2, 1)
    weight = pair.shares[0, 1, 2, 1]
    sentence = f"{pair.tokens[2]} → {pair.tokens[1]}, positions 2 → 1, head 1: {weight:.3f}"
    assert view.texts("p.spoken") == [sentence]
    view.press("ENTER")
    assert view.run("return page.state.query") == 2
    assert view.run("return page.state.layer") == 0


def test_zoom_window_and_overview(view, large):
    weights, page = large
    view.open(page, MATRIX)
    assert not view.find(".matrix-overview").is_displayed()
    view.run("view.matrix.zoom(16); view.matrix.paint()")
    about = drawn(view)
    assert about["pooled"] == 1 and about["window"]["row"] > 0
    assert view.find(".matrix-overview").is_displayed()
    rows = int(about["window"]["row"]) + np.arange(2, 12)
    columns = int(about["window"]["column"]) + np.arange(3, 13)
    exact = weights.astype(np.float16).astype(np.float32)
    found = view.run(PIXELS, [middle(about, r, c) for r, c in zip(rows, columns, strict=True)])
    expected = zip(rows, columns, strict=True)
    assert found == [shade(about["shades"], exact[r, c]) for r, c in expected]
    view.run(
        "const box = view.matrix.overview.getBoundingClientRect();"
        "const at = { clientX: box.left + box.width, clientY: box.top, buttons: 1 };"
        "view.matrix.overview.dispatchEvent(new PointerEvent('pointerdown', at))"
    )
    window = drawn(view)["window"]
    width = about["place"]["width"] / window["size"]
    assert (window["row"], window["column"]) == (0, pytest.approx(1400 - width))
    wheel = "new WheelEvent('wheel', { deltaY: 50, cancelable: true })"
    view.run(f"view.matrix.stage.dispatchEvent({wheel})")
    assert drawn(view)["window"]["row"] == pytest.approx(50 / window["size"])
    view.run("view.matrix.stage.dispatchEvent(new KeyboardEvent('keydown', { key: '0' }))")
    assert drawn(view)["window"]["row"] == 0
    view.until("!view.matrix.waiting")
    assert not view.find(".matrix-overview").is_displayed()


def test_filters_apply_and_the_switch_goes_back_to_lines(view, pair):
    view.open(pair.page)
    view.choose("drawing", "matrix")
    assert view.heads_on() == ["0"]
    view.click("[name=special]")
    about = drawn(view)
    kept = [i for i in range(pair.length) if i not in pair.special]
    assert about["queries"] == about["keys"] == kept
    weights = pair.shares[0, 0].astype(np.float16).astype(np.float32)[np.ix_(kept, kept)]
    weights /= weights.sum(-1, keepdims=True)
    cells = list(np.ndindex(*weights.shape))
    found = view.run(PIXELS, [middle(about, *cell) for cell in cells])
    steps = np.array([about["shades"].index(colour) for colour in found])
    expected = np.sqrt([weights[cell] for cell in cells]) * (len(about["shades"]) - 1)
    assert np.abs(steps - expected).max() < 8  # neighbouring shades can be one colour
    assert not [text for text in view.texts(".status") if "strongest" in text]
    view.open(pair.page, f"{MATRIX}&mass=50")
    assert "only the strongest that hold 50 % of each row" in view.texts(".status")[0]
    view.head(2)
    assert view.heads_on() == ["2"]
    view.choose("drawing", "lines")
    assert view.find(".lines").is_displayed() and not view.find(".cells").is_displayed()
    assert {head for head, _, _ in view.lines()} == {2}


def test_cross_attention_is_wider_than_tall(view, translation):
    view.open(translation.page, f"{MATRIX}&side=cross&layer=1&heads=3")
    about = drawn(view)
    assert (about["rows"], about["columns"]) == (len(translation.written), len(translation.source))
    weights = translation.shares["cross"][1, 3].astype(np.float16)
    cells = list(np.ndindex(*weights.shape))
    found = view.run(PIXELS, [middle(about, *cell) for cell in cells])
    assert found == [shade(about["shades"], weights[cell]) for cell in cells]


@pytest.mark.parametrize("length", [1, 40])
def test_a_head_of_zeros_and_a_text_of_one_token(view, tmp_path, length):
    weights = np.zeros((1, 1, 1, length, length), np.float32)
    page = head_view(Trace.from_arrays(weights, [["a"] * length]), 0).save(tmp_path / "page.html")
    view.open(page, f"{MATRIX}&opacity=row&first=hidden")
    about = drawn(view)
    assert view.run(PIXELS, [middle(about, 0, 0)]) == [about["shades"][0]]
    assert view.run("return window.seen") == []


def test_the_picture_has_a_rectangle_per_weight_and_tokens_as_text(view, tmp_path, peaked):
    hostile = ["</text><script>alert(1)</script>", "\u202egnp", "&lt;", "ok"]
    weights = peaked(1, 1, 4)
    page = head_view(Trace.from_arrays(weights, [hostile]), 0, precision="float16")
    page = page.save(tmp_path / "page.html")
    view.open(page, MATRIX)
    picture = view.run("return view.picture()")
    assert picture["name"] == "attention-layer-0-head-0"
    root = ElementTree.fromstring(picture["svg"])
    kinds = [node.tag.split("}")[1] for node in root.iter()]
    assert kinds.count("rect") == 16 + 2 + 6 and "script" not in kinds
    texts = [node.text for node in root.iter() if node.tag.endswith("}text")]
    assert texts.count("\u202egnp") == texts.count("&lt;") == 2
    assert [text for text in texts if text and text.startswith("</text>")] == [
        "</text><script>…"
    ] * 2
    fills = {n.get("fill") for n in root.iter() if n.tag.endswith("}rect")}
    shades = drawn(view)["shades"]
    assert {shade(shades, w) for w in weights.astype(np.float16).ravel()} <= fills


def test_a_large_picture_is_an_image(view, large):
    view.open(large[1], MATRIX)
    root = ElementTree.fromstring(view.run("return view.picture().svg"))
    (image,) = [node for node in root.iter() if node.tag.endswith("}image")]
    assert image.get("href").startswith("data:image/png;base64,")
    assert view.run("return window.seen") == []
