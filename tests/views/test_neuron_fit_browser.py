# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The neuron level in windows of several widths and on paper: what matters is in sight."""

import contextlib
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import visible
from flaxattn.views.trace_views import neuron_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

S, D, TOP = 90, 64, 8
RNG = np.random.default_rng(7)
QUERY, KEY, VALUE = RNG.normal(size=(3, 1, 1, S, 1, D)).astype(np.float32)
TOKENS = [f"token{n}" for n in range(S)]


def trace(**fields):
    """A text with large scores, whose weights are unlike."""
    scores = D**-0.5 * np.einsum("lbqhd,lbkhd->lbhqk", QUERY, KEY) * 3
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    weights = (parts / parts.sum(-1, keepdims=True)).astype(np.float32)
    named = {"layers": (0,), "heads": (0,), "scale": 3 * D**-0.5}
    vectors = {"query": QUERY, "key": KEY, "value": VALUE} | fields
    return Trace(encoder=AttentionRecord(weights=weights, **named, **vectors), tokens=[TOKENS])


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return neuron_view(trace()).save(tmp_path_factory.mktemp("fit") / "page.html")


@contextlib.contextmanager
def window(view, width, height=900):
    """A window of a width, until the end of the block."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    view.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        view.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


INSIDE = """
const box = view.scroller.getBoundingClientRect();
const seen = (one) => {
  const own = one.getBoundingClientRect();
  return own.width > 0 && own.left >= 0 && own.right <= innerWidth && own.right <= box.right + 1;
};
const cells = (name) => [...document.querySelectorAll(`.neuron-cell.${name}`)];
const all = (name) => cells(name).length > 0 && cells(name).every(seen);
return Object.fromEntries(arguments[0].map((name) => [name, all(name)]));
"""
WIDTHS = (
    "const { scrollWidth, clientWidth } = document.documentElement;"
    "return [scrollWidth - clientWidth, view.scroller.scrollWidth - view.scroller.clientWidth]"
)


@pytest.mark.parametrize("width", [1440, 800, 390])
@pytest.mark.parametrize("walk", ["off", "key", "product", "softmax", "value", "sum"])
def test_every_number_is_in_sight_at_the_default_settings(view, page, width, walk):
    with window(view, width):
        view.open(page, f"query=3&walk={walk}")
        beside, inside = view.run(WIDTHS)
        assert beside <= 0, "the page does not scroll to the side"
        assert inside <= 0, "nor does the table"
        columns = {column["name"]: column for column in view.run("return view.drawn().columns")}
        rest = ["rest"] if "product" in columns else []
        names = ["weight", *rest, "dot", "score"]
        assert view.run(INSIDE, names) == dict.fromkeys(names, True)
        assert [*columns][:2] == ["token", "weight"]
        shown = {"off": "product", "softmax": "product", "sum": "value"}.get(walk, walk)
        assert len(columns[shown]["dimensions"]) == TOP


@pytest.mark.parametrize("width", [1920, 1440])
def test_numbers_of_eight_dimensions_fit_a_desktop(view, page, width):
    with window(view, width):
        view.open(page, "query=3&numbers=on")
        names = ["weight", "rest", "dot", "score", "norm"]
        assert view.run(INSIDE, names) == dict.fromkeys(names, True)
        open_strips = [c["name"] for c in view.run("return view.drawn().columns") if c.get("cell")]
        assert open_strips == ["key", "product", "value"]
        assert max(view.run(WIDTHS)) <= 0


def test_softmax_stays_beside_the_token_while_the_table_scrolls(view, page):
    with window(view, 800):
        view.open(page, "query=3&numbers=on&dimensions=all")
        before = view.run(INSIDE, ["weight"])
        view.run("view.scroller.scrollLeft = 900; view.paint()")
        assert view.run("return view.scroller.scrollLeft") > 800
        assert before == view.run(INSIDE, ["weight"]) == {"weight": True}


def test_strips_without_room_are_opened_by_a_button(view, page):
    with window(view, 390):
        view.open(page, "query=3")
        assert view.texts(".neuron-folded .neuron-fold") == ["▸ Key k", "▸ Value v"]
        view.click(".neuron-folded .neuron-fold.value")
        assert view.texts(".neuron-folded .neuron-fold") == ["▸ Key k"]
        names = [column["name"] for column in view.run("return view.drawn().columns")]
        assert {"value", "norm"} <= set(names)
        assert view.run(WIDTHS)[0] <= 0
        view.press("ENTER")
        assert view.texts(".neuron-folded .neuron-fold") == ["▸ Key k", "▸ Value v"]


def test_the_strongest_keys_come_first_and_the_chosen_query_is_in_sight(view, page):
    weights = trace().encoder.weights[0, 0, 0]
    with window(view, 390):
        for query in (S - 2, 0, 45):
            view.open(page, f"query={query}")
            order = np.argsort(-weights[query], kind="stable")
            assert view.texts(".neuron-row .token-text")[:5] == [TOKENS[key] for key in order[:5]]
            inside = view.run(
                "const box = view.queries.getBoundingClientRect();"
                "const own = view.queries.querySelector('.chosen').getBoundingClientRect();"
                "return [own.top >= box.top - 1, own.bottom <= box.bottom + 1, scrollY,"
                " view.queries.scrollHeight > view.queries.clientHeight]"
            )
            assert inside == [True, True, 0, True]


def test_a_key_that_an_address_holds_is_scrolled_to(view, page):
    last = int(trace().encoder.weights[0, 0, 0, 3].argmin())
    view.open(page, f"query=3&key={last}")
    assert view.texts(".neuron-row.held .token-text") == [TOKENS[last]]
    view.run("view.scroller.scrollTop = 0; view.paint()")
    view.run("page.update({ query: 4 })")
    assert view.texts(".neuron-row.held .token-text") == [TOKENS[last]]


def number(text):
    return float(text.replace("−", "-").replace("<", ""))


def test_eight_products_and_the_rest_add_up_to_the_product(view, page):
    view.open(page, "query=3&key=5&numbers=on")
    columns = {column["name"]: column for column in view.run("return view.drawn().columns")}
    product, rest = columns["product"], columns["rest"]
    added = QUERY[0, 0, 3, 0] * KEY[0, 0, :, 0]
    best = np.argsort(-np.abs(added[5]), kind="stable")[:TOP]
    assert product["dimensions"] == best.tolist()
    assert rest["title"] == f"+ {D - TOP} more"
    root = ElementTree.fromstring(view.run("return view.picture().svg"))
    rows = {}
    for node in root.iter():
        if node.tag.endswith("}text") and node.get("x"):
            rows.setdefault(round(float(node.get("y"))), []).append(node)
    keys = {node.text: row for row in rows.values() for node in row}
    checked = 0
    for key in range(S):
        middle = float(keys[TOKENS[key]][0].get("y"))
        texts = [
            (float(node.get("x")), node.text)
            for y, row in rows.items()
            for node in row
            if abs(y - middle) < 8
        ]
        ends = {name: columns[name]["x"] + columns[name]["width"] for name in ("rest", "dot")}
        cells = [
            number(text)
            for x, text in texts
            if product["x"] <= x < product["x"] + product["width"] and re.match(r"−?\d", text)
        ]
        shown = {
            name: number(text)
            for name, end in ends.items()
            for x, text in texts
            if abs(x - end) < 0.02
        }
        assert len(cells) == TOP
        assert cells == pytest.approx(added[key, best], abs=0.0051)
        assert sum(cells) + shown["rest"] == pytest.approx(shown["dot"], abs=0.06)
        assert shown["dot"] == pytest.approx(added[key].sum(), abs=0.0051)
        checked += 1
    assert checked == S


def deciding(numbers):
    """The three largest by size, their sum and the sum of all."""
    best = np.argsort(-np.abs(numbers), kind="stable")[:3]
    return best, numbers[best].sum(), numbers.sum()


def test_a_sentence_says_which_dimensions_decide(view, page):
    view.open(page, "query=3")
    weights = trace().encoder.weights[0, 0, 0, 3]
    added = QUERY[0, 0, 3, 0] * KEY[0, 0, :, 0]
    lift = 3 * D**-0.5 * ((weights - 1 / S)[:, None] * added).sum(0)
    kinds = set()
    for key in (None, *range(20)):
        view.run("page.update({ key: arguments[0] })", key)
        best, part, whole = deciding(lift if key is None else added[key])
        sentence = view.texts(".deciding")[0]
        assert sentence.startswith("Dimensions {}, {} and {} ".format(*best))
        found = [number(text) for text in re.findall(r"−?\d+\.\d\d", sentence)]
        assert found == pytest.approx([part, whole], abs=0.0051)
        share = part / whole
        kinds.add(0 <= share <= 1)
        if 0 <= share <= 1:
            (percent,) = re.findall(r" make up ([\d.]+) % of ", sentence)
            assert float(percent) == pytest.approx(100 * share, abs=0.51)
            assert key is None or f" of the score of {TOKENS[key]}: " in sentence
        else:
            assert " %" not in sentence and f"with the other {D - 3} it is" in sentence
            assert key is None or f" to q·k with {TOKENS[key]}; " in sentence
        assert key is not None or "above the mean of all keys" in sentence
    assert kinds == {True, False}, "both kinds of sentence"


@pytest.mark.parametrize("width", [1200, 390])
def test_paper_has_every_key_with_its_softmax_and_the_whole_walk(view, page, width):
    with window(view, width):
        view.open(page, "query=3&walk=softmax")
        assert not view.find(".neuron-printed").is_displayed()
        view.browser.execute_cdp_cmd("Page.printToPDF", {})
        view.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        try:
            displayed = [
                view.find(name).is_displayed()
                for name in (".neuron-printed", ".neuron-scroller", ".neuron-tools")
            ]
            wide = view.run(
                "return [...document.querySelectorAll('.neuron-printed svg')].every((one) =>"
                " one.getBoundingClientRect().right <= innerWidth)"
            )
        finally:
            view.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert displayed == [True, False, False] and wide
    texts = view.texts(".neuron-printed svg text")
    weights = trace().encoder.weights[0, 0, 0, 3]
    assert {visible(token) for token in TOKENS} <= set(texts)
    numbers = sorted(t for t in texts if re.fullmatch(r"<?0\.\d{3}", t))
    expected = ["<0.001" if w < 0.0005 else f"{w:.3f}" for w in weights]
    assert numbers == sorted(expected)
    assert texts.count("softmax") == 3 and "Value v" in texts and "Key k" in texts
    assert len(view.texts(".neuron-walk-printed > li")) == 9
