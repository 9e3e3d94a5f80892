# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What a reader is promised and no other file looks at: cursors, colours, what stays in sight, PNG.

In a headless Chromium, from a file, without a network.
"""

import base64
import io
import itertools
from xml.etree import ElementTree

import numpy as np
import pytest
import view_cases
from PIL import Image

import flaxattn as fa
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import ERROR

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAINTED = "document.querySelectorAll('#level-model .cell:not([data-painted])').length === 0"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A trace with vectors, three layers of four heads, and its page."""
    folder = tmp_path_factory.mktemp("whole")
    return view_cases.trace(), view_cases.one(folder), view_cases.compared(folder)


def style(view, selector, name):
    return view.find(selector).value_of_css_property(name)


def top_of(view, selector):
    return view.run(
        "return document.querySelector(arguments[0]).getBoundingClientRect().top", selector
    )


def test_the_token_under_the_pointer_is_grey_until_it_leaves(view, pair):
    for side in ("left", "right"):
        view.open(pair.page, "theme=light")
        plain = style(view, view.token(side, 4), "background-color")
        assert plain == "rgba(0, 0, 0, 0)"
        view.point(view.token(side, 4))
        red, green, blue, *_ = (
            float(part)
            for part in view.run(
                "const c = document.createElement('canvas').getContext('2d');"
                "c.fillStyle = getComputedStyle(document.querySelector(arguments[0]))"
                ".backgroundColor; c.fillRect(0, 0, 1, 1);"
                "return [...c.getImageData(0, 0, 1, 1).data]",
                view.token(side, 4),
            )
        )
        assert 200 < red < 245 and abs(red - green) < 6 and abs(green - blue) < 6
        view.point("h1")
        assert style(view, view.token(side, 4), "background-color") == plain


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_sixteen_squares_have_sixteen_colours_and_their_numbers(view, peaked, tmp_path, theme):
    trace = Trace.from_arrays(peaked(1, 18, 3), [list("abc")])
    view.open(fa.head_view(trace, 0).save(tmp_path / "many.html"), f"theme={theme}")
    assert view.texts("button.head") == [str(i) for i in range(18)]
    colours = view.run(
        "return [...document.querySelectorAll('button.head')].map((square) =>"
        " getComputedStyle(square).backgroundColor.match(/\\d+/g).map(Number))"
    )
    assert colours[16:] == colours[:2]
    for one, other in itertools.combinations(np.array(colours[:16]), 2):
        assert np.linalg.norm(one - other) >= 25, (one, other)
    lines = view.run("return [...Array(16).keys()].map((head) => page.colourOf(head))")
    assert [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in lines] == colours[:16]


def test_small_pictures_ask_to_be_clicked_also_after_a_filter(view, pair):
    view.open(pair.page, "level=model")
    cell = "#level-model [data-layer='1'][data-head='2']"
    assert style(view, cell, "cursor") == "pointer"
    view.click(cell)
    assert view.run("return page.state.json().heads") == [2]
    view.press("2")
    assert view.find(cell).get_attribute("aria-current") == "true"
    view.choose("attention", "ba")
    view.until(PAINTED)
    view.click(cell)
    found = view.run("return page.state.json()")
    assert [found[name] for name in ("level", "layer", "heads")] == ["head", 1, [2]]
    own = slice(pair.boundary, None)
    view.assert_draws(
        pair.shares[1],
        heads=[2],
        queries=range(pair.length)[own],
        keys=range(pair.boundary),
    )


def test_small_pictures_of_a_long_text_are_no_larger(view, peaked, tmp_path):
    sizes = []
    for length in (8, 60):
        trace = Trace.from_arrays(peaked(2, 12, length), [["t"] * length])
        view.open(fa.model_view(trace).save(tmp_path / f"{length}.html"))
        view.until(PAINTED)
        box = view.find("#level-model .cell").rect
        sizes.append((round(box["width"]), round(box["height"])))
        wide = view.run("return document.documentElement.scrollWidth <= innerWidth")
        assert wide, "no scrolling to the side"
    assert sizes[0] == sizes[1] and max(sizes[1]) <= 132


def test_layers_and_heads_of_neurons_are_chosen_as_elsewhere(view, whole):
    trace, page, _ = whole
    view.open(page, "level=neuron&query=3&sorting=position")
    record = trace.encoder
    view.choose("layer", "2")
    view.head(1)
    assert view.heads_on() == ["1"]
    dots = record.key[2, 0, :, 1] @ record.query[2, 0, 3, 1]
    shown = [float(text.replace("−", "-")) for text in view.texts(".neuron-cell.dot")]
    assert shown == pytest.approx(dots, abs=0.006)
    weights = [float(t.replace("<", "")) for t in view.texts(".neuron-cell.weight")]
    assert weights == pytest.approx(record.weights[2, 0, 1, 3], abs=0.0011)
    view.press("ARROW_LEFT", "]")
    dots = record.key[1, 0, :, 2] @ record.query[1, 0, 3, 2]
    shown = [float(text.replace("−", "-")) for text in view.texts(".neuron-cell.dot")]
    assert shown == pytest.approx(dots, abs=0.006)


def test_controls_and_titles_stay_in_sight_of_a_long_text(view, peaked, tmp_path):
    length = 120
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, 1, 1, length, 2, 4)).astype(np.float32)
    weights = view_cases.shares(0.5 * np.einsum("lbqhd,lbkhd->lbhqk", query, key))
    tokens = [f"t{i}" for i in range(length)]
    record = AttentionRecord(
        weights=weights, query=query, key=key, layers=(0,), heads=(0, 1), scale=0.5
    )
    trace = Trace(encoder=record, tokens=[tokens])
    page = fa.head_view(trace, 0).save(tmp_path / "long.html")
    view.open(page)
    view.run("window.scrollTo(0, 900)")
    assert top_of(view, ".tabs") >= 0 and top_of(view, "button.head") >= 0
    assert top_of(view, ".panel") >= 0
    assert top_of(view, view.token("left", 0)) < 0
    view.open(page, "level=neuron")
    view.run("view.scroller.scrollTop = 1000; view.paint()")
    box = view.run("const b = view.scroller.getBoundingClientRect(); return [b.top, b.bottom]")
    assert box[0] <= top_of(view, ".neuron-titles") < box[1]
    view.run("view.scroller.style.width = '300px'; view.scroller.scrollLeft = 150; view.paint()")
    edges = view.run(
        "const left = (e) => e.getBoundingClientRect().left;"
        "return [left(view.scroller), left(document.querySelector('.neuron-row .token-text')),"
        " view.scroller.scrollLeft]"
    )
    assert edges[2] > 0 and edges[0] <= edges[1] < edges[0] + 150, "tokens stay beside the numbers"


def test_a_page_says_what_is_wrong_where_scripts_are_switched_off(view, pair):
    switch = "Emulation.setScriptExecutionDisabled"
    view.browser.execute_cdp_cmd(switch, {"value": True})
    try:
        view.browser.get(pair.page.as_uri() + "?off")
        tree = view.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    finally:
        view.browser.execute_cdp_cmd(switch, {"value": False})
    text = " ".join(n.get("name", {}).get("value", "") for n in tree)
    assert "draws attention with JavaScript, which did not run" in text
    assert "needs no network" in text


SAVED = """
const done = arguments[0];
window.download = (name, kind, blob) => {
  const reader = new FileReader();
  reader.addEventListener("load", () => done([name, kind, reader.result]));
  reader.readAsDataURL(blob);
};
document.querySelector("button.png").click();
"""
CASES = {
    "atlas": "level=atlas&layer=1&heads=2",
    "model": "level=model",
    "head": "level=head&layer=1&query=2",
    "matrix": "level=head&heads=1&drawing=matrix",
    "text": "level=text&layer=1&query=2",
    "neuron": "level=neuron&layer=1&heads=2&query=3",
    "compare": "level=head&heads=0&compare=difference",
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", CASES)
def test_a_saved_png_is_the_saved_svg_at_twice_its_size(view, whole, name, theme):
    _, one, two = whole
    view.open(two if name == "compare" else one, f"{CASES[name]}&theme={theme}")
    view.until("!view.root.dataset.waiting || view.root.dataset.waiting === '0'")
    root = ElementTree.fromstring(view.run("return view.picture().svg"))
    file, kind, data = view.browser.execute_async_script(SAVED)
    assert file.endswith(".png") and kind == "image/png"
    image = Image.open(io.BytesIO(base64.b64decode(data.split(",")[1]))).convert("RGB")
    size = [2 * float(root.get(side, "")) for side in ("width", "height")]
    assert np.abs(np.subtract(image.size, size)).max() <= 2
    counts = dict((colour, n) for n, colour in image.getcolors(1 << 24))
    paper = {"light": (255, 255, 255), "dark": (20, 23, 28)}[theme]
    assert max(counts, key=counts.get) == paper
    ink = view.run("return [page.style('--ink'), page.style('--paper')]")
    assert paper == tuple(int(ink[1][i : i + 2], 16) for i in (1, 3, 5))
    fills = {n.get("fill") or n.get("stroke") or "" for n in root.iter()}
    solid = [c for c in fills if c.startswith("#") and len(c) == 7]
    expected = {tuple(int(c[i : i + 2], 16) for i in (1, 3, 5)) for c in solid}
    assert len(expected & set(counts)) >= 2, "ink and paper at least"
    assert len(counts) > 20


def test_a_blank_token_is_visible_and_stays_a_blank(view, peaked, tmp_path):
    trace = Trace.from_arrays(peaked(1, 1, 3), [["a", " ", " b"]])
    view.open(fa.head_view(trace, 0).save(tmp_path / "blank.html"))
    marks = view.run(
        "return [...document.querySelectorAll('.left .token-text')].map((piece) =>"
        " getComputedStyle(piece, '::before').content)"
    )
    assert marks == ["none", '"␣"', "none"]
    assert view.texts(".left .token-text") == ["a", " ", " b"]


def test_the_large_picture_beside_the_model_is_the_head_under_the_pointer(view, whole):
    trace, page, _ = whole
    view.open(page, "level=model")
    view.point("#level-model [data-layer='2'][data-head='3']")
    assert view.texts("#level-model .panel strong")[0].startswith("Layer 2, head 3")
    width, height, data = view.run(
        "const { width, height } = document.querySelector('#level-model .panel canvas');"
        "const pen = document.querySelector('#level-model .panel canvas').getContext('2d');"
        "return [width, height, [...pen.getImageData(0, 0, width, height).data]]"
    )
    weights = trace.encoder.weights[2, 0, 3]
    assert (height, width) == weights.shape
    found = np.reshape(data, (height, width, 4))[..., :3]
    steps = np.array(
        [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in view.run("return view.colours")]
    )
    bound = ERROR["uint11"]
    shades = [255 * np.sqrt(np.maximum(weights + by, 0)) for by in (-bound, bound)]
    places = [np.floor(shades[0]).astype(int), np.ceil(shades[1]).astype(int)]
    ends = [steps[np.clip(place, 0, 255)] for place in places]
    assert (found >= np.minimum(*ends)).all() and (found <= np.maximum(*ends)).all()


@pytest.mark.parametrize("name", ["matrix", "text", "neuron", "compare"])
def test_everything_to_press_has_a_name(view, whole, name):
    _, one, two = whole
    view.open(two if name == "compare" else one, CASES[name])
    tree = view.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {"button", "combobox", "slider", "checkbox", "listbox", "option", "tab", "radio"}
    found = [n for n in tree if n.get("role", {}).get("value") in roles and not n["ignored"]]
    names = [node.get("name", {}).get("value", "") for node in found]
    assert len(names) > 15 and all(names)
    expected = {
        "matrix": {"Head 1", "Drawn as"},
        "text": {"Head 1", "Shaded by attention", "cat"},
        "neuron": {"Top 8 dimensions", "Numbers", "Strongest keys first", "cat"},
        "compare": {"before", "after", "after − before"},
    }[name]
    assert expected <= {part for text in names for part in (text, text.split(",")[0])}


def test_boxes_of_neurons_write_numbers_and_order_dimensions(view, whole):
    trace, page, _ = whole
    view.open(page, "level=neuron&layer=1&heads=2&query=3&key=5&dimensions=all")
    inked = (
        "const c = view.canvas, d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "let sum = 0; for (let i = 0; i < d.length; i += 4) sum += d[i] * (1 + (i % 977));"
        "return sum"
    )
    before = view.run(inked)
    view.click("[name=numbers]")
    assert view.find("[name=numbers]").is_selected() and view.run(inked) != before
    assert "numbers=on" in view.browser.current_url
    view.click("[name=numbers]")
    assert view.run(inked) == before
    view.click("[name=dimensions]")
    columns = view.run("return view.drawn().columns")
    shown = next(c["dimensions"] for c in columns if c["name"] == "product")
    record = trace.encoder
    added = np.abs(record.query[1, 0, 3, 2] * record.key[1, 0, 5, 2])
    assert shown == np.argsort(-added, kind="stable").tolist()[:8]
