# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The tour outlines parts that are there and shows what it says; terms are explained in place."""

import numpy as np
import pytest

from flaxattn.trace.trace import Trace
from flaxattn.views.page import add_data
from flaxattn.views.payloads.page_encoding import read_asset
from flaxattn.views.trace_views import atlas_view, head_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TARGETS = [".reading", ".held", ".lines", ".matrix-board", ".grid", ".svg"]
OUTLINED = (
    "const e = document.querySelector('.toured'); const box = e && e.getBoundingClientRect();"
)
CARD = "document.querySelector('.tour')"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Head 1.2 looks at the token before, head 0.1 at the last separator."""
    tokens = "[CLS] the old man walked down to the river [SEP]".split()
    size = len(tokens)
    weights = np.full((2, 1, 3, size, size), 1 / size, np.float32)
    weights[1, 0, 2] = 0.9 * np.eye(size, k=-1) + 0.1 / size
    weights[1, 0, 2, 0] = np.eye(size)[0]
    weights[0, 0, 1] = 0.85 * np.eye(size)[-1] + 0.15 / size
    weights /= weights.sum(-1, keepdims=True)
    special = np.array([[token.startswith("[") for token in tokens]])
    trace = Trace.from_arrays(weights, [tokens], special=special, model='<img src="x">')
    folder = tmp_path_factory.mktemp("tour")
    made = head_view(trace)
    made.save(folder / "plain.html")
    (folder / "demo.html").write_text(add_data(made.html, "tour", {}), encoding="utf-8")
    return folder


def begin(view):
    view.click("button.ask")
    view.click("button.tour-begin")


def test_six_steps_outline_what_they_tell_of(view, page):
    view.open(page / "plain.html")
    assert view.run(f"return {CARD}.hidden")
    begin(view)
    seen = []
    for step, target in enumerate(TARGETS):
        assert view.texts(".tour .hint") == [f"{step + 1} of 6"]
        assert view.run(f"{OUTLINED} return e.matches(arguments[0])", target)
        assert view.run(f"{OUTLINED} return e.checkVisibility() && box.width > 5 && box.height > 5")
        assert view.run(f"{OUTLINED} return box.bottom > 0 && box.top < innerHeight")
        assert view.run("return document.activeElement.textContent") in ("Next", "Done")
        assert view.texts("#tour-text")[0].count(".") >= 2
        seen.append((view.texts("#tour-name")[0], view.run("return page.state.json()")))
        view.press("ARROW_RIGHT")
    assert view.run(f"return {CARD}.hidden") and view.texts(".toured") == []
    assert len({name for name, _ in seen}) == 6
    states = [state for _, state in seen]
    assert [(s["layer"], s["heads"]) for s in states[:4]] == [
        (1, [2]),
        (1, [2]),
        (0, [1]),
        (1, [2]),
    ]
    assert states[1]["query"] == 5 and states[0]["query"] is None
    assert [s["drawing"] for s in states[:4]] == ["lines"] * 3 + ["matrix"]
    assert [s["level"] for s in states] == ["head"] * 4 + ["atlas", "head"]


def test_numbers_that_the_tour_names_are_those_of_the_page(view, page):
    view.open(page / "plain.html")
    begin(view)
    share = view.run("return page.state.side.measure(1, 2).previous")
    sentence = f"layer 1, head 2 (previous token {100 * share:.0f} %)"
    assert sentence in view.texts("#tour-text")[0].replace("\u00a0", " ").replace("\u202f", " ")
    view.click(".tour button:nth-child(2)")
    view.click(".tour button:nth-child(2)")
    assert "layer 0, head 1" in view.texts("#tour-text")[0]
    view.click(".tour button:nth-child(1)")
    assert view.texts(".tour .hint") == ["2 of 6"]


def test_escape_closes_it_and_the_page_is_usable_meanwhile(view, page):
    view.open(page / "plain.html")
    begin(view)
    view.press("ARROW_RIGHT", "ARROW_LEFT")
    view.head(0)
    assert len(view.heads_on()) == 2
    layer = view.run("return page.state.layer")
    view.press("ARROW_LEFT")
    assert view.run("return page.state.layer") == layer - 1  # of the page, not of the card
    assert view.texts(".tour .hint") == ["1 of 6"]
    view.press("ESCAPE")
    assert view.run(f"return {CARD}.hidden")
    assert view.run("return document.activeElement.classList.contains('ask')")


def test_only_the_first_opening_of_the_demo_begins_by_itself(view, page):
    view.open(page / "demo.html")
    assert not view.run(f"return {CARD}.hidden")
    view.press("ESCAPE")
    address = view.run("return location.hash")
    assert "tour=off" in address
    view.open(page / "demo.html", address[1:])
    assert view.run(f"return {CARD}.hidden")
    view.choose("layer", "0")
    assert "tour=off" in view.run("return location.hash")
    view.open(page / "plain.html")
    assert view.run(f"return {CARD}.hidden")


@pytest.mark.parametrize("width", [390, 800, 1440])
def test_the_card_is_in_the_window_and_hides_little(view, page, width):
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    view.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        view.open(page / "plain.html")
        view.run("page.tour.begin()")
        for step in range(6):
            view.run("page.tour.show(arguments[0])", step)
            left, right, top, bottom = view.run(
                f"const box = {CARD}.getBoundingClientRect();"
                "return [box.left, box.right, box.top, box.bottom]"
            )
            assert left >= 0 and right <= width and top >= 0 and bottom <= 801, step
            assert (right - left) * (bottom - top) < 0.35 * width * 800
    finally:
        view.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_page_without_maps_has_the_steps_it_can_show(view, page, tmp_path):
    stats = {"entropy": np.ones((2, 1, 2, 3), np.float32)}
    trace = Trace.from_arrays(tokens=[list("abc")], stats=stats)
    view.open(atlas_view(trace).save(tmp_path / "atlas.html"))
    begin(view)
    assert view.texts(".tour .hint") == ["1 of 1"]
    assert view.run(f"{OUTLINED} return e.matches('.grid') && box.height > 5")
    assert view.run("return window.seen") == []


def test_terms_are_explained_where_they_stand(view, page):
    view.open(page / "plain.html", "layer=1&heads=2&query=none")
    for words, meaning in (
        ("Mass", "mass: The share of each token's attention"),
        ("previous token", "previous token: The role of a head"),
        ("Heads", "head: One of the parts of a layer"),
    ):
        term = f"[...document.querySelectorAll('.term')].find((e) => e.textContent === '{words}')"
        view.run(f"{term}.focus()")
        before = view.run("return page.state.json()")
        view.press("ENTER")
        assert view.texts(".gloss")[0].startswith(meaning)
        assert view.run(f"return {term}.getAttribute('aria-expanded')") == "true"
        assert view.texts(".spoken[aria-live]")[0].startswith(meaning)
        box = view.run(
            "const b = document.querySelector('.gloss').getBoundingClientRect();"
            "return [b.left, b.top, b.right - innerWidth, b.bottom - innerHeight]"
        )
        assert min(box[:2]) >= 0 >= max(box[2:])
        view.press("ESCAPE")
        assert view.run("return document.querySelector('.gloss').hidden")
        assert view.run(f"return {term}.getAttribute('aria-expanded')") == "false"
        assert view.run("return page.state.json()") == before
    view.click("[data-term]")
    assert not view.run("return document.querySelector('.gloss').hidden")
    view.click("h1")
    assert view.run("return document.querySelector('.gloss').hidden")


def test_the_help_lists_every_term_once(view, page):
    view.open(page / "plain.html")
    view.click("button.ask")
    view.click(".glossary summary")
    terms = view.texts(".glossary dt")
    assert len(terms) == len(set(terms)) == len(view.texts(".glossary dd")) >= 35
    expected = ("head", "layer", "attention weight", "mass", "entropy", "sink", "softmax", "query")
    expected += ("key", "value", "token", "[UNK]", "role", "AUC", "interval", "lift")
    assert set(expected) <= set(terms)
    assert all(30 < len(text) < 180 and text.endswith(".") for text in view.texts(".glossary dd"))


def test_the_glossary_is_small():
    script = read_asset("glossary.js")
    table = script[script.index("const TERMS") : script.index("const escaped")]
    assert len(table.encode()) < 6000
