# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The model and the atlas level show the numbers of the trace: pixels, colours, text, order.

In a headless Chromium, from a file, without a network.
"""

import numpy as np
import pytest
import store_cases as cases
from scipy.spatial.distance import squareform

import flaxattn as fa
from flaxattn.measures.head_measures import head_measures
from flaxattn.measures.head_similarity import head_distances
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import ERROR

pytestmark = pytest.mark.browser
PAINTED = "document.querySelectorAll('#level-model .cell:not([data-painted])').length === 0"
# The pixels of a head's picture, as red, green, blue, opacity, one after the other.
PIXELS = """
const cell = `#level-model [data-layer='${arguments[0]}'][data-head='${arguments[1]}'] canvas`;
const canvas = document.querySelector(cell);
const {width, height} = canvas;
return [width, height, [...canvas.getContext('2d').getImageData(0, 0, width, height).data]];
"""


def pixels(view, layer: int, head: int) -> np.ndarray:
    """Colours `[row, column, 3]` of a head's picture, by its indices."""
    width, height, data = view.run(PIXELS, layer, head)
    return np.reshape(data, (height, width, 4))[..., :3]


def steps(view) -> np.ndarray:
    """Colours of the scale, `[256, 3]`."""
    colours = view.run("return view.colours")
    return np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours])


def assert_painted(view, layer: int, head: int, expected: np.ndarray, error: float) -> None:
    """Each pixel has the colour of the root of its weight, to one step and the error of storage."""
    found, scale = pixels(view, layer, head), steps(view)
    assert found.shape[:2] == expected.shape
    low = np.rint(255 * np.sqrt(np.clip(expected - error, 0, 1))).astype(int)
    high = np.rint(255 * np.sqrt(np.clip(expected + error, 0, 1))).astype(int)
    ends = np.stack([scale[np.clip(low - 1, 0, 255)], scale[np.clip(high + 1, 0, 255)]])
    assert (found >= ends.min(0)).all() and (found <= ends.max(0)).all()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_are_the_weights(view, pair, theme):
    view.open(pair.page, f"level=model&theme={theme}")
    view.until(PAINTED)
    for layer, head in np.ndindex(2, 3):
        assert_painted(view, layer, head, pair.shares[layer, head], ERROR["float16"])
    assert len(set(map(tuple, steps(view).tolist()))) > 150


@pytest.mark.parametrize("precision", ["float16", "uint11", "uint8"])
def test_a_thousand_numbers_are_those_of_the_trace(view, pair, tmp_path, precision):
    view.open(fa.model_view(pair.trace, precision=precision).save(tmp_path / "numbers.html"))
    places = np.random.default_rng(0).integers(0, [2, 3, 13, 13], (1000, 4))
    read = (
        "const known = new Map();"
        "return arguments[0].map(([layer, head, query, key]) => {"
        "  const name = `${layer}.${head}`;"
        "  if (!known.has(name)) known.set(name, view.drawn(layer, head));"
        "  const {values, columns} = known.get(name);"
        "  return values[query * columns + key];"
        "})"
    )
    found = np.array(view.run(read, places.tolist()))
    layer, head, query, key = places.T
    peaks = 1 if precision == "float16" else pair.shares[layer, head, query].max(-1)
    expected = pair.shares[layer, head, query, key]
    assert (np.abs(found - expected) <= ERROR[precision] * peaks + 1e-6).all()


def test_pointing_shows_the_pair_and_the_weight_below(view, pair):
    view.open(pair.page, "level=model")
    cell = view.find("#level-model [data-layer='1'][data-head='2']")
    box = cell.rect
    for query, key in ((4, 9), (11, 2)):
        x = (key + 0.5) / pair.length * box["width"] - box["width"] / 2
        y = (query + 0.5) / pair.length * box["height"] - box["height"] / 2
        view.actions().move_to_element_with_offset(cell, round(x), round(y)).perform()
        weight = pair.shares[1, 2, query, key]
        assert view.texts(".tip") == [f"{pair.tokens[query]} → {pair.tokens[key]}{weight:.3f}"]
    (title,) = view.texts("#level-model .panel strong")
    assert title.startswith("Layer 1, head 2")
    measured = head_measures(pair.trace)[5]
    assert f"{measured.entropy:.2f}" in view.texts("#level-model .panel dd")


def test_filters_change_the_pictures(view, pair):
    view.open(pair.page, "level=model&attention=ab")
    view.until(PAINTED)
    shares, boundary = pair.shares[0, 0], pair.boundary
    assert_painted(view, 0, 0, shares[:boundary, boundary:], ERROR["float16"])
    view.choose("attention", "all")
    view.click("[name=special]")
    view.until(f"{PAINTED} && document.querySelector('.cell').dataset.painted === view.shown")
    kept = [i for i in range(pair.length) if i not in pair.special]
    rest = shares[np.ix_(kept, kept)]
    assert_painted(view, 0, 0, rest / rest.sum(-1, keepdims=True), 0.003)
    assert view.find("#level-model .badge").is_displayed()
    view.choose("opacity", "row")
    view.until(f"{PAINTED} && document.querySelector('.cell').dataset.painted === view.shown")
    assert_painted(view, 0, 0, rest / rest.max(-1, keepdims=True), 0.003)


def test_more_weights_than_pixels_show_the_largest(view, peaked, tmp_path):
    shares = peaked(1, 1, 300)
    trace = Trace.from_arrays(shares, [[f"t{i}" for i in range(300)]])
    view.open(fa.model_view(trace).save(tmp_path / "long.html"))
    view.until(PAINTED)
    places = np.arange(300) * 128 // 300
    expected = np.zeros((128, 128))
    np.maximum.at(expected, (places[:, None], places[None]), shares[0, 0, 0])
    assert_painted(view, 0, 0, expected, ERROR["float16"])


def test_pictures_out_of_sight_wait(view, peaked, tmp_path):
    trace = Trace.from_arrays(peaked(40, 2, 4), [list("abcd")])
    view.open(fa.model_view(trace).save(tmp_path / "deep.html"))
    painted = "document.querySelectorAll('#level-model .cell[data-painted]').length"
    view.until(f"{painted} > 4")
    assert view.run(f"return {painted}") < 80
    view.run("window.scrollTo(0, document.body.scrollHeight)")
    view.until("document.querySelector(\"[data-layer='39']\").dataset.painted")


def test_the_atlas_shows_each_number_and_its_colour(view, pair):
    view.open(pair.page, "level=atlas")
    measured = head_measures(pair.trace)
    for name in ("entropy", "previous", "distance", "delimiter"):
        view.choose("measure", name)
        cells = view.run("return view.drawn()")
        expected = [getattr(m, name) for m in measured]
        assert [(c["layer"], c["head"]) for c in cells] == [(m.layer, m.head) for m in measured]
        assert [float(c["text"]) for c in cells] == pytest.approx(expected, abs=0.0051)
        scale = steps(view)
        for cell, value in zip(cells, expected, strict=True):
            painted = [int(part) for part in cell["colour"][4:-1].split(",")]
            low = min(expected) if name in ("entropy", "distance") else 0
            step = 255 * (value - low) / (max(expected) - low)
            near = scale[[max(0, int(step) - 1), min(255, int(step) + 2)]]
            assert (near.min(0) <= painted).all() and (painted <= near.max(0)).all()
        marks = view.texts("#level-atlas .legend-mark")
        ends = [0 if name in ("previous", "delimiter") else min(expected), max(expected)]
        assert [float(marks[0]), float(marks[-1])] == pytest.approx(ends, abs=0.0051)


def test_heads_are_sorted_by_the_number(view, pair):
    view.open(pair.page, "level=atlas&order=value&measure=next")
    measured = sorted(head_measures(pair.trace), key=lambda m: -m.next)
    cells = view.run("return view.drawn()")
    assert [(c["layer"], c["head"]) for c in cells] == [(m.layer, m.head) for m in measured]
    view.choose("measure", "own")
    measured.sort(key=lambda m: -m.own)
    assert view.texts("#level-atlas .cell-name") == [f"{m.layer}.{m.head}" for m in measured]
    assert view.browser.current_url.endswith("measure=own")


def test_like_heads_are_grouped_and_the_nearest_are_named(view, peaked, tmp_path):
    kinds = peaked(1, 3, 6)[0, 0]
    weights = np.stack([kinds[[0, 1, 2]], kinds[[1, 2, 0]], kinds[[2, 0, 1]]])[:, None]
    weights += np.random.default_rng(0).uniform(0, 0.02, weights.shape).astype(np.float32)
    weights /= weights.sum(-1, keepdims=True)
    trace = Trace.from_arrays(weights, [list("abcdef")])
    view.open(fa.atlas_view(trace).save(tmp_path / "alike.html"), "order=cluster")
    groups = view.run(
        "return [...document.querySelectorAll('#level-atlas .group')].map((group) =>"
        " [...group.querySelectorAll('.cell-name')].map((name) => name.textContent))"
    )
    kind = {"0.0": 0, "1.2": 0, "2.1": 0, "0.1": 1, "1.0": 1, "2.2": 1}
    in_order = [kind.get(name, 2) for group in groups for name in group]
    assert sum(a != b for a, b in zip(in_order[1:], in_order[:-1], strict=True)) == 2
    view.point("#level-atlas [data-layer='1'][data-head='1']")
    distances = squareform(head_distances(weights[:, 0].reshape(9, 6, 6)))[4]
    order = np.argsort(distances)[1:5]
    assert view.texts("#level-atlas .panel .number") == [f"{i // 3}.{i % 3}" for i in order]
    listed = [float(text) for text in view.texts("#level-atlas .panel .fact .value")]
    assert listed == pytest.approx(distances[order], abs=0.008)


def test_statistics_without_weights_have_an_atlas(view, tmp_path):
    values = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 4) / 10
    values[1, 0, 2] = np.nan
    trace = Trace.from_arrays(tokens=[list("abcd")], stats={"entropy": values, "lse": -values})
    view.open(fa.atlas_view(trace).save(tmp_path / "stats.html"))
    assert view.texts("#level-atlas .cell-value") == ["0.15", "0.55", "0.95", "1.35", "1.75", "–"]
    assert not view.find("[role=tablist]").is_displayed()
    view.choose("measure", "lse")
    assert view.texts("#level-atlas .legend-mark") == ["-1.75", "-0.95", "-0.15"]
    view.click("#level-atlas .cell")
    view.choose("order", "cluster")
    view.choose("order", "value")
    assert view.texts("#level-atlas .cell-name") == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    assert view.run("return window.seen") == []


def test_a_store_is_shown_with_what_its_numbers_are(view, tmp_path):
    store = fa.open_store(cases.write(tmp_path / "store", cases.traces("statistics", 3)))
    view.open(fa.atlas_view(store).save(tmp_path / "store.html"))
    (side,) = {row["side"] for row in store.stats().to_pylist()}
    rows = [row["entropy"] for row in store.stats().to_pylist() if row["side"] == side]
    count = len(rows) // 3
    means = np.reshape(rows, (3, count)).mean(0)
    cells = view.run("return view.drawn()")
    assert [float(cell["text"]) for cell in cells] == pytest.approx(means, abs=0.0051)
    assert view.texts("footer") == ["Means over 3 texts, each the mean over its tokens."]
    for order in ("value", "cluster", "grid"):
        view.choose("order", order)
    view.press("ARROW_DOWN", "3", "]", "ESCAPE")
    assert view.run("return window.seen") == []


@pytest.mark.parametrize("level", ["atlas", "model"])
def test_sides_of_unequal_depth_and_heads(view, translation, level):
    view.open(translation.page, f"level={level}")
    for side, shares in translation.shares.items():
        view.choose("side", side)
        count = shares.shape[0] * shares.shape[1]
        assert len(view.texts(f"#level-{level} .cell")) == count
        if level == "model":
            view.until(PAINTED)
            assert_painted(view, 1, 1, shares[1, 1], ERROR["float16"])
    view.choose("side", "all")
    assert len(view.texts(f"#level-{level} .cell")) == 10
    if level == "model":
        view.until(PAINTED)
        assert_painted(view, 1, 3, translation.square(1)[3], ERROR["float16"])
    else:
        assert set(view.texts(".cell-value")) == {"–"}
        assert "choose another" in view.texts("#level-atlas .status")[0]
    assert view.run("return window.seen") == []


@pytest.mark.parametrize("level", ["atlas", "model", "head"])
def test_odd_traces_are_shown(view, peaked, tmp_path, level):
    off = peaked(2, 2, 3)
    off[0, :, 1] = 0
    special = np.ones((1, 3), bool)
    odd = {
        "one": Trace.from_arrays(np.ones((1, 1, 1, 1, 1), np.float32), [["a"]]),
        "special": Trace.from_arrays(peaked(1, 2, 3), [["[CLS]"] * 3], special=special),
        "off": Trace.from_arrays(off, [list("abc")]),
    }
    for name, trace in odd.items():
        path = fa.head_view(trace, 0).save(tmp_path / f"{name}.html")
        view.open(path, f"level={level}")
        if name == "special" and level != "atlas":
            view.click("[name=special]")
        if name == "off" and level == "head":
            assert {line[0] for line in view.lines()} == {0}
        for order in ("value", "cluster") if level == "atlas" else ():
            view.choose("order", order)
        view.svg()
        assert view.texts("[role=alert].failure") == []
        assert view.run("return window.seen") == []
