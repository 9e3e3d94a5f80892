# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The neuron level in a headless Chromium: numbers and colours are those of the trace."""

import dataclasses
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.neuron_payload import rotary_pairs
from flaxattn.views.payloads.page_encoding import visible
from flaxattn.views.trace_views import head_view, neuron_view

pytestmark = pytest.mark.browser

L, H, S, D = 2, 2, 7, 6
RNG = np.random.default_rng(5)
TOKENS = [
    "[CLS]",
    "<img src=x onerror=alert(1)>",
    "\u202egnp",
    "é&amp;",
    "</script><script>alert(2)",
    "\x00",
    "[SEP]",
]
QUERY, KEY, VALUE = RNG.normal(size=(3, L, 1, S, H, D)).astype(np.float32) * 2
SCALE = D**-0.5
IN_ORDER = "dimensions=all&sorting=position"


def shares(scores):
    """Softmax of `[..., Q, K]`."""
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True)


def record(causal=False, bias=None, **fields):
    """A side of which everything was captured."""
    scores = SCALE * np.einsum("lbqhd,lbkhd->lbhqk", QUERY, KEY)
    if bias is not None:
        scores = scores + bias
    if causal:
        scores = np.where(np.tri(S, dtype=bool), scores, -np.inf)
    attention = AttentionRecord(
        weights=shares(scores).astype(np.float32),
        scores=scores.astype(np.float32) if bias is not None else None,
        query=QUERY,
        key=KEY,
        value=VALUE,
        layers=tuple(range(L)),
        heads=tuple(range(H)),
        scale=SCALE,
    )
    return dataclasses.replace(attention, **fields), scores


def trace(**options):
    special = np.isin(np.arange(S), [0, S - 1])[None]
    return Trace(encoder=record(**options)[0], tokens=[TOKENS], special=special, model="m")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return neuron_view(trace(), layer=0).save(tmp_path_factory.mktemp("neurons") / "page.html")


def as_shown(value):
    """A number as a column has it."""
    size = abs(value)
    text = f"{size:.{0 if size >= 1000 else 1 if size >= 100 else 2}f}"
    return f"−{text}" if value < 0 and float(text) > 0 else text


def columns(view, name):
    """The texts of a column."""
    return view.texts(f".neuron-cell.{name}")


def close(texts, values, decimals=2):
    """Whether texts are these numbers, to the digits they have."""
    shown = [0 if text[0] == "<" else float(text.replace("−", "-")) for text in texts]
    return np.allclose(shown, values, atol=0.51 * 10.0**-decimals)


def test_every_number_of_every_query_is_that_of_the_trace(view, page):
    attention, scores = record()
    view.open(page, IN_ORDER)
    counted = 0
    for layer, head, query in np.ndindex(L, H, S):
        view.run("page.update({ layer: arguments[0], heads: [arguments[1]] })", layer, head)
        view.run("page.state.query = arguments[0]; page.showFocus()", query)
        dots = KEY[layer, 0, :, head] @ QUERY[layer, 0, query, head]
        weights = attention.weights[layer, 0, head, query]
        assert close(columns(view, "dot"), dots)
        assert close(columns(view, "score"), scores[layer, 0, head, query])
        assert close(columns(view, "weight"), weights, 3)
        assert close(columns(view, "norm"), np.linalg.norm(VALUE[layer, 0, :, head], axis=-1))
        counted += 4 * S
    assert counted == 784
    assert view.texts(".neuron-total") == ["Σ 1.000"]
    assert view.run("return window.seen") == []


POINT = """
const [layer, head, query, key, name, place] = arguments;
page.update({ layer, heads: [head], query });
const drawn = view.drawn();
const column = drawn.columns.find((one) => one.name === name);
const box = view.scroller.getBoundingClientRect();
const row = key === null ? drawn.rows.query : drawn.rows.first + (key + 0.5) * drawn.rows.height;
const [x, y] = [column.x + (place + 0.5) * column.cell, row];
const event = { clientX: box.left + x, clientY: box.top + y, bubbles: true };
view.scroller.dispatchEvent(new PointerEvent("pointermove", event));
const canvas = key === null ? view.strips : view.canvas;
const top = key === null ? 0 : drawn.rows.first;
const pixel = canvas.getContext("2d").getImageData(Math.floor(x), Math.floor(y - top), 1, 1).data;
const tip = document.querySelector(".tip");
const size = { key: "key", product: "product", value: "value" }[name];
return [tip.textContent, [...pixel].slice(0, 3), drawn.sizes[size]];
"""


def expected(name, layer, head, query, key, d):
    """A number of a strip."""
    q, k, v = (a[layer, 0, :, head] for a in (QUERY, KEY, VALUE))
    return {"key": k[key, d], "product": q[query, d] * k[key, d], "value": v[key, d]}[name]


def blend(view, value, size):
    """The colour of a number."""
    names = ["--paper", "--negative" if value < 0 else "--positive"]
    ends = [view.run("return page.style(arguments[0])", name) for name in names]
    paper, end = (np.array([int(c[i : i + 2], 16) for i in (1, 3, 5)]) for c in ends)
    return paper + (end - paper) * min(1, abs(value) / size)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_cells_have_the_colour_and_the_tip_of_their_number(view, page, theme):
    view.open(page, f"dimensions=all&sorting=position&theme={theme}")
    for _ in range(167 if theme == "dark" else 84):
        layer, head, query, key, d = (int(RNG.integers(n)) for n in (L, H, S, S, D))
        for name in ("key", "product", "value"):
            tip, pixel, size = view.run(POINT, layer, head, query, key, name, d)
            value = expected(name, layer, head, query, key, d)
            shown = tip.replace("−", "-").replace("=", ":").split(":")[-1]
            assert tip.startswith(f"dimension {d}")
            assert float(shown) == pytest.approx(value, rel=6e-4)
            # Colours are stepped, 96 to either side.
            assert np.abs(pixel - blend(view, value, size)).max() <= 3, (name, tip, pixel)


def test_the_query_has_its_vector_the_contributions_and_the_output(view, page):
    attention, _ = record()
    view.open(page, IN_ORDER)
    q, k, v = (a[1, 0, :, 1] for a in (QUERY, KEY, VALUE))
    weights = attention.weights[1, 0, 1, 3]
    apart = SCALE * ((weights - 1 / S)[:, None] * q[3] * k).sum(0)
    for name, row in {"key": q[3], "product": apart, "value": weights @ v}.items():
        for d in range(D):
            tip, *_ = view.run(POINT, 1, 1, 3, None, name, d)
            shown = float(tip.split(": ")[-1].replace("−", "-"))
            assert shown == pytest.approx(row[d], rel=1e-3, abs=2e-4)


def test_a_held_key_orders_dimensions_by_what_they_add_to_its_score(view, page):
    view.open(page, "sorting=position&layer=1&heads=0&query=2&key=4&numbers=on")
    added = QUERY[1, 0, 2, 0] * KEY[1, 0, 4, 0]
    drawn = view.run("return view.drawn()")
    order = next(c["dimensions"] for c in drawn["columns"] if c["name"] == "product")
    assert order == sorted(range(D), key=lambda d: -abs(added[d]))
    assert view.texts(".neuron-row.held .token-text") == [TOKENS[4]]
    tip, *_ = view.run(POINT, 1, 0, 2, None, "product", 0)
    assert tip.startswith(f"dimension {order[0]}scaled, of the key held: ")
    assert float(tip.split(": ")[-1].replace("−", "-")) == pytest.approx(
        SCALE * added[order[0]], rel=1e-3
    )


def test_keys_are_sorted_by_weight(view, page):
    view.open(page, "dimensions=all&sorting=position&layer=0&heads=1&query=3")
    view.click("[name=sorting]")
    weights = record()[0].weights[0, 0, 1, 3]
    assert view.texts(".neuron-row .token-text") == [
        visible(TOKENS[k]) for k in np.argsort(-weights)
    ]
    assert "sorting" not in view.run("return location.hash"), "as a page starts"


def test_a_strip_folds_up_and_its_length_stays(view, page):
    view.open(page, IN_ORDER)
    assert view.texts(".neuron-fold") == ["▾ Key k", "▾ q × k", "▾ Value v"]
    view.click(".neuron-title.value .neuron-fold")
    assert view.texts(".neuron-fold") == ["▸ Value v", "▾ Key k", "▾ q × k"]
    assert view.find(".neuron-folded .neuron-fold").get_attribute("aria-expanded") == "false"
    names = [c["name"] for c in view.run("return view.drawn().columns") if c.get("cell")]
    assert names == ["key", "product"]
    assert len(columns(view, "norm")) == S
    view.press("ENTER")
    assert view.texts(".neuron-fold")[2] == "▾ Value v"


def test_a_click_holds_a_query_and_arrows_walk_queries_and_keys(view, page):
    view.open(page, IN_ORDER)
    view.click(".left [data-index='2']")
    assert view.run("return [page.state.query, view.drawn().query]") == [2, 2]
    view.press("ARROW_DOWN")
    assert view.run("return view.drawn().query") == 3
    view.click(".neuron-rows [data-index='1']")
    assert view.run("return page.state.key") == 1
    view.run("document.querySelector('.neuron-rows [data-index=\"1\"]').focus()")
    view.press("ARROW_DOWN")
    assert view.run("return [page.state.key, page.state.query]") == [2, 3]
    spoken = view.texts("p.spoken")[0]
    assert spoken.startswith(f"{TOKENS[3]} → {TOKENS[2]}: q·k ")
    view.press("ESCAPE")
    assert view.run("return [page.state.key, page.state.query]") == [None, None]


def test_pointing_at_a_query_shows_it_until_the_pointer_leaves(view, page):
    view.open(page, IN_ORDER)
    first = view.run("return view.drawn().query")
    view.point(".left [data-index='5']")
    assert view.run("return view.drawn().query") == 5
    view.point("h1")
    assert view.run("return view.drawn().query") == first == 1


def test_later_keys_are_masked_and_announced(view, tmp_path):
    attention, _ = record(causal=True)
    page = neuron_view(Trace(decoder=attention, tokens=[TOKENS])).save(tmp_path / "page.html")
    view.open(page, "dimensions=all&sorting=position&query=2")
    assert columns(view, "score")[3:] == ["masked"] * (S - 3)
    assert columns(view, "weight")[3:] == ["0"] * (S - 3)
    assert len(view.texts(".neuron-row.masked")) == S - 3
    assert "Keys after the query are masked." in view.texts(".neuron-formula")[0]


def test_bias_and_mask_of_the_scores_are_shown(view, tmp_path):
    bias = RNG.normal(size=(L, 1, H, S, S)) * 3
    bias[..., 4] = -np.inf
    page = neuron_view(trace(bias=bias)).save(tmp_path / "page.html")
    view.open(page, "dimensions=all&sorting=position&layer=1&heads=1&query=3")
    _, scores = record(bias=bias)
    kept = [k for k in range(S) if k != 4]
    shown, added = columns(view, "score"), columns(view, "bias")
    assert (shown[4], added[4]) == ("masked", "masked")
    assert close([shown[k] for k in kept], scores[1, 0, 1, 3, kept])
    assert close([added[k] for k in kept], bias[1, 0, 1, 3, kept])
    assert view.texts(".neuron-title.score") == ["× 0.4082 + bias"]


def test_where_there_is_no_product_the_page_says_why(view, tmp_path):
    attention, _ = record()
    other = dataclasses.replace(attention, weights=attention.weights[..., ::-1], scale=None)
    page = neuron_view(Trace(encoder=other, tokens=[TOKENS])).save(tmp_path / "page.html")
    view.open(page, IN_ORDER)
    assert view.texts(".neuron-note")[0].startswith("The weights of this side are not a softmax of")
    assert not view.find(".neuron-body").is_displayed()
    assert view.run("return view.picture()") is None
    bare = dataclasses.replace(attention, query=None)
    both = Trace(
        encoder=attention, decoder=bare, cross=bare, tokens=[TOKENS], decoder_tokens=[TOKENS]
    )
    view.open(neuron_view(both, side="cross").save(tmp_path / "both.html"), IN_ORDER)
    assert "were not captured: Capture(weights=True, query=True" in view.texts(".neuron-note")[0]
    view.choose("side", "all")
    assert view.texts(".neuron-note")[0].startswith("Neurons are those of one attention")
    view.choose("side", "encoder")
    assert view.texts(".neuron-note") == [""]
    assert len(columns(view, "dot")) == S


def test_words_chosen_elsewhere_lead_to_their_first_token(view, tmp_path):
    whole = dataclasses.replace(trace(), words=[[None, 0, 0, 1, 1, 1, None]])
    page = neuron_view(whole).save(tmp_path / "page.html")
    view.open(page, "dimensions=all&sorting=position&unit=words&query=2")
    assert view.run("return view.drawn().query") == 3
    view.click(".left [data-index='5']")
    assert view.run("return [page.state.query, view.drawn().query]") == [None, 3]


def test_a_long_text_shows_the_rows_in_sight(view, tmp_path):
    length = 600
    q, k = RNG.normal(size=(2, 1, 1, length, 1, 4)).astype(np.float32)
    weights = shares(0.5 * np.einsum("lbqhd,lbkhd->lbhqk", q, k)).astype(np.float32)
    attention = AttentionRecord(weights=weights, query=q, key=k, layers=(0,), heads=(0,), scale=0.5)
    tokens = [f"w{i}" for i in range(length)]
    view.open(
        neuron_view(Trace(encoder=attention, tokens=[tokens])).save(tmp_path / "page.html"),
        IN_ORDER,
    )
    assert len(view.texts(".neuron-row")) < 30
    view.run("view.scroller.scrollTop = 24 * 500; view.paint()")
    assert {"w500", "w510"} <= set(view.texts(".neuron-row .token-text"))
    view.run("page.update({ query: 0, key: 599 }); view.reveal(599)")
    assert view.texts(".neuron-row.held .token-text") == ["w599"]
    assert close(columns(view, "dot")[-1:], [float(q[0, 0, 0, 0] @ k[0, 0, 599, 0])])


def test_the_picture_holds_what_is_visible_and_hostile_text_as_text(view, page):
    view.open(page, "dimensions=all&sorting=position&layer=1&heads=1&query=3&numbers=on")
    picture = view.run("return view.picture()")
    assert picture["name"] == "neurons-layer-1-head-1"
    root = ElementTree.fromstring(picture["svg"])
    texts = [node.text for node in root.iter() if node.tag.endswith("}text")]
    assert {visible(token) for token in TOKENS} <= set(texts)
    dots = KEY[1, 0, :, 1] @ QUERY[1, 0, 3, 1]
    assert {as_shown(dot) for dot in dots} <= set(texts)
    numbers = {as_shown(value) for value in KEY[1, 0, :, 1].ravel()}
    assert numbers <= set(texts)
    kinds = {node.tag.split("}")[1] for node in root.iter()}
    assert kinds == {"svg", "g", "rect", "text", "title"}


def test_hostile_text_is_written_and_nothing_runs(view, page):
    view.browser.get_log("browser")
    view.open(page, IN_ORDER)
    written = [visible(token) for token in TOKENS]
    assert (
        view.texts(".neuron-queries .token-text")
        == view.texts(".neuron-row .token-text")
        == written
    )
    for index, token in enumerate(written):
        view.run("page.update({ query: arguments[0], key: arguments[0] })", index)
        assert view.texts(".neuron-query .token-text") == [token]
        assert view.texts("p.spoken")[0].startswith(f"{token} → {token}: ")
        tip, *_ = view.run(POINT, 0, 0, index, index, "product", 0)
        assert tip.startswith(f"dimension 0{token}: ")
    assert view.run("return window.seen") == []
    messages = view.browser.get_log("browser")
    assert [
        entry for entry in messages if entry["source"] != "rendering"
    ] == []  # of reading pixels


def test_the_other_doors_have_the_level_too(view, tmp_path):
    view.open(head_view(trace(), 0).save(tmp_path / "page.html"))
    assert view.run("return page.state.level") == "head"
    view.run("page.update({ query: 4, heads: [1] })")
    view.press("5")
    assert view.run("return [page.state.level, view.drawn().query, view.drawn().head]") == [
        "neuron",
        4,
        1,
    ]


def test_weights_are_those_stored_where_vectors_are_rounded_more(view, tmp_path):
    text = neuron_view(trace(), precision="float16").html
    (message,) = re.findall(r'"error":([^,]+),"problem"', text)
    assert float(message) < 1e-6
    page = tmp_path / "page.html"
    page.write_text(text.replace(f'"error":{message},"problem"', '"error":0.01,"problem"'))
    view.open(page, "dimensions=all&sorting=position&layer=1&heads=0&query=4")
    stored = record()[0].weights[1, 0, 0, 4].astype(np.float16)
    assert np.abs(view.run("return [...view.terms.weights]") - stored).max() < 1e-7
    assert "agree with the model’s within 0.01" in view.texts(".neuron-formula")[0]


POINTED = """
const [name, key, place] = arguments;
const drawn = view.drawn();
const column = drawn.columns.find((one) => one.name === name);
const box = view.scroller.getBoundingClientRect();
const row = key === null ? drawn.rows.query : drawn.rows.first + (key + 0.5) * drawn.rows.height;
const at = { clientX: box.left + column.x + (place + 0.5) * column.cell, clientY: box.top + row };
view.scroller.dispatchEvent(new PointerEvent("pointermove", { ...at, bubbles: true }));
return document.querySelector(".tip").textContent;
"""


def test_rotary_models_show_vectors_before_rotation_and_the_pair_that_decides(view, tmp_path):
    angles = RNG.normal(size=(L, 1, S, 2)) * 3
    rotation = np.stack([np.cos(angles), np.sin(angles)], 3).astype(np.float32)
    rotary = trace(causal=True, rotation=rotation)
    view.open(neuron_view(rotary).save(tmp_path / "page.html"), IN_ORDER)
    layer, head, query, key = 1, 0, 5, 2
    view.run("page.update({ layer: 1, heads: [0], query: 5 })")
    found = rotary_pairs(rotary[0].encoder, layer, head, query)

    def number(text):
        return float(text.rsplit(": ", 1)[1].replace("−", "-"))

    for d in (0, 1, 3, 5):
        shown = number(view.run(POINTED, "before", key, d))
        assert shown == pytest.approx(found.keys[key, d], rel=1e-3)
        shown = number(view.run(POINTED, "before", None, d))
        assert shown == pytest.approx(found.query[d], rel=1e-3)
    tip = view.run(POINTED, "pairs", key, 1)
    assert tip.startswith("pair 1: dimensions 1 and 3Score by pair of ")
    assert number(tip) == pytest.approx(found.shares[key, 1], rel=1e-3)
    text = view.texts(".decided")[0]
    assert re.match(r"Pair [01] \(dimensions [01] and [23]\) tells keys apart most: ", text)
    view.run("page.update({ key: arguments[0] })", key)
    best = found.deciding()[key]
    score = found.shares[key].sum() + found.rest[key]
    assert view.texts(".decided")[0] == (
        f"Pair {best} (dimensions {best} and {best + 2}) decides the score of {TOKENS[key]}: "
        f"it adds {as_shown(found.shares[key, best])} of {as_shown(score)}."
    )
    svg = view.svg()
    assert "Key k before rotation" in svg and "Score by pair" in svg
    view.run("page.update({ key: 6 })")  # after the query
    assert view.texts(".decided") == [""]
    assert view.run("return window.seen") == []


def test_keys_outside_of_a_window_are_masked(view, tmp_path):
    scores = record()[1]
    behind = np.arange(S)[:, None] - np.arange(S)
    scores = np.where((behind >= 0) & (behind <= 2), scores, -np.inf)
    windowed = trace(weights=shares(scores).astype(np.float32))
    view.open(neuron_view(windowed).save(tmp_path / "page.html"), IN_ORDER)
    view.run("page.update({ layer: 0, heads: [1], query: 5 })")
    masked = [text == "masked" for text in columns(view, "score")]
    assert masked == [True] * 3 + [False] * 3 + [True]
    weights = windowed.encoder.weights[0, 0, 1, 5]
    assert close(columns(view, "weight"), weights, 3)
    formula = view.texts(".neuron-formula")[0]
    assert "after the query are masked. Keys more than 2 positions before the query are" in formula
