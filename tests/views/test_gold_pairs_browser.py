# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gold pairs as they are drawn: ends, colours, dashes, marks, counts, words, matrix, files."""

import json
from types import SimpleNamespace
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np
import pytest
from hostile_texts import SHAPES as SHAPES_OF_TEXTS
from hostile_texts import texts

from flaxattn.measures.claims import Claim, TopText
from flaxattn.measures.gold_pairs import GoldPair, GoldPairs, judged_pairs
from flaxattn.trace.trace import Trace
from flaxattn.views.evidence_page import EvidenceReport, Numbers, evidence_page
from flaxattn.views.payloads.page_encoding import visible
from flaxattn.views.trace_views import head_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAME = '<img src=x onerror="alert(1)">governor(nsubj)'
TOKENS = "[CLS] she read ##s old books [SEP]".split()
PAIRS = [GoldPair((1, 1), ((2, 3),)), GoldPair((4, 4), ((5, 5),)), GoldPair((0, 0), ((6, 6),))]
RULE = "the strongest key is gold"
SHAPES = "[...document.querySelectorAll('.gold-lines .gold-pair')]"


def traced() -> Trace:
    """Head 0 hits the first and the last pair, head 1 the second."""
    weights = np.full((1, 1, 2, 7, 7), 0.05, np.float32)
    weights[0, 0, 0, [1, 4, 0], [3, 0, 6]] = 0.7
    weights[0, 0, 1, [1, 4, 0], [1, 5, 1]] = 0.7
    weights /= weights.sum(-1, keepdims=True)
    special = np.array([[token.startswith("[") for token in TOKENS]])
    words = [[None, 0, 1, 1, 2, 3, None]]
    return Trace.from_arrays(weights, [TOKENS], special=special, words=words, model="tiny")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    trace = traced()

    def gold(number, one):
        hits = judged_pairs(PAIRS, one.encoder)
        return {"encoder": [GoldPairs(NAME, "each word and its governor", RULE, PAIRS, hits)]}

    sides = {"encoder": Numbers((0,), (0, 1), {NAME: np.array([[5.0, 1.0]])})}
    report = EvidenceReport("Roles of heads", "tiny", "One text.", sides, "score")
    claims = [Claim(NAME, 0, 0, 5.0, "p 0.01", texts=(TopText(0, 9.0),))]
    page = evidence_page(report, claims, (0,), [trace], gold)
    folder = tmp_path_factory.mktemp("gold")
    own = head_view(trace, pairs={"mine": [(1, 2), (1, 3), (4, 5)], "other": [(5, 1)]})
    paths = page.save(folder / "roles.html"), own.save(folder / "own.html")
    return SimpleNamespace(path=paths[0], own=paths[1], trace=trace)


def shapes(view):
    """Query, key and outcome of every curve, with the dashes of its line."""
    found = view.run(
        f"return {SHAPES}.map((g) => [g.dataset.query, g.dataset.key, g.classList[1],"
        " g.querySelector('.gold-line').getAttribute('stroke-dasharray'),"
        " g.querySelector('.gold-line').getAttribute('stroke'), g.getAttribute('opacity')])"
    )
    return sorted(found)


def outcomes(view):
    return {(query, key): outcome for query, key, outcome, *_ in shapes(view)}


def address(**settings):
    shown = {"level": "head", "heads": "0", "gold": NAME} | settings
    return "&".join(f"{name}={quote(str(value))}" for name, value in shown.items())


def style(view, name):
    return view.run("return page.style(arguments[0])", name)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("link", [".claims tbody td:nth-child(2) a", ".claims tbody li a .value"])
def test_one_click_on_a_score_shows_what_the_head_hits_and_misses(view, made, theme, link):
    view.open(made.path, f"theme={theme}")
    assert view.texts(link) in (["5.00"], ["9.00"])
    view.click(link)
    view.point("h1")
    state = view.run("return page.state.json()")
    assert [state[n] for n in ("level", "gold", "heads", "query")] == ["head", NAME, [0], None]
    hit, miss = style(view, "--gold-hit"), style(view, "--gold-miss")
    assert shapes(view) == [
        ["0-0", "6-6", "hit", "9 4", hit, "1"],
        ["1-1", "2-3", "hit", "9 4", hit, "1"],
        ["4-4", "5-5", "miss", "2 4", miss, "1"],
    ]
    marks = f"return {SHAPES}.map((g) => [g.classList[1], g.querySelectorAll('circle').length])"
    assert sorted(view.run(marks)) == [["hit", 2], ["hit", 2], ["miss", 0]], "discs or crosses"
    assert view.texts(".gold-key") == ["2 hit", "1 missed"]
    (legend,) = view.texts(".gold-legend")
    sentence = f"Gold pairs, {NAME}: each word and its governor. Head 0 hits a pair where {RULE}."
    assert legend.endswith(sentence) and view.run("return window.seen") == []


def test_curves_end_at_the_rows_of_their_tokens(view, made):
    view.open(made.path, address())
    ends = view.run(
        f"return {SHAPES}.map((g) => {{ const line = g.querySelector('.gold-line');"
        "const box = g.ownerSVGElement.getBoundingClientRect();"
        "const at = (t) => line.getPointAtLength(t);"
        "const on = (t) => [at(t).x + box.x, at(t).y + box.y];"
        "return [g.dataset.query, g.dataset.key, ...on(0), ...on(line.getTotalLength())]; })"
    )
    middle = (
        "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return [box.left, box.right, (box.top + box.bottom) / 2]"
    )
    assert len(ends) == 3
    for query, key, left, start, right, stop in ends:
        rows = [view.run(middle, view.token("left", n)) for n in query.split("-")]
        keys = [view.run(middle, view.token("right", n)) for n in key.split("-")]
        assert start == pytest.approx(np.mean([row[2] for row in rows]), abs=1)
        assert stop == pytest.approx(np.mean([row[2] for row in keys]), abs=1)
        assert rows[0][1] < left < right < keys[0][0]
    brackets = (
        f"return {SHAPES}.filter((g) => g.dataset.key === '2-3')[0].querySelectorAll('path').length"
    )
    assert view.run(brackets) == 3, "a bracket spans the two pieces of a key"


def test_brackets_of_overlapping_keys_are_left_out(view, tmp_path):
    near = [(q, k) for q in (2, 3, 4) for k in (q - 1, q, q + 1)]
    view.open(head_view(traced(), pairs={"near": near}).save(tmp_path / "near.html"))
    paths = f"return {SHAPES}.map((g) => g.querySelectorAll(':scope > path').length)"
    assert view.run(paths) == [2, 2, 2]
    assert [row[1] for row in shapes(view)] == ["1-3", "2-4", "3-5"]


def test_other_heads_are_judged_too_and_several_together(view, made):
    view.open(made.path, address(heads="1"))
    expected = {("0-0", "6-6"): "miss", ("1-1", "2-3"): "miss", ("4-4", "5-5"): "hit"}
    assert outcomes(view) == expected
    assert view.texts(".gold-key") == ["1 hit", "2 missed"]
    view.open(made.path, address(heads="0-1"))
    assert set(outcomes(view).values()) == {"hit"}
    assert "One at least of the heads that are on hits a pair" in view.texts(".gold-legend")[0]


def test_a_token_in_focus_sets_off_its_pairs_and_shows_them(view, made):
    view.open(made.path, address(query=1))
    assert [(row[0], row[5]) for row in shapes(view)] == [
        ("0-0", "0.15"),
        ("1-1", "1"),
        ("4-4", "0.15"),
    ]
    assert view.texts(".gold-partners") == ["Gold key: read ##s (hit)"]
    assert "Gold key: read ##s (hit)" in view.find("p.spoken").get_attribute("textContent")
    view.press("ESCAPE")
    assert {row[5] for row in shapes(view)} == {"1"}
    view.point(view.token("right", 5))
    assert [row[5] for row in shapes(view)] == ["0.15", "0.15", "1"]
    assert view.texts(".gold-partners") == ["Gold query: old (missed)"]


def test_the_list_and_a_key_switch_them_and_the_address_keeps_them(view, made):
    view.open(made.path, address())
    assert view.texts("select[name=gold] option") == ["off", NAME]
    view.choose("gold", "none")
    assert shapes(view) == [] and not view.find(".gold-legend").is_displayed()
    assert "gold=" not in view.run("return location.hash")
    view.click("h1")
    view.press("g")
    assert len(shapes(view)) == 3 and f"gold={quote(NAME)}" in view.run(
        "return location.hash.replace(/[()']/g, (c) => '%' + c.charCodeAt(0).toString(16))"
    )
    view.press("g")
    assert shapes(view) == [] and view.run("return page.state.json().gold") == "none"


def test_a_claim_without_pairs_shows_none_of_the_claim_before(view, made):
    view.open(made.path, f"level=head&heads=0&gold={NAME}")
    other = "{ ...page.payload.report.claims[0], name: 'local' }"
    view.run("page.open('claims'); page.levels.claims.draw()")
    view.run(f"page.levels.claims.links.look({other}, 0)")
    assert view.run("return page.state.gold") == "none" and shapes(view) == []


def test_words_have_the_pairs_of_their_tokens(view, made):
    view.open(made.path, address(unit="words"))
    expected = {("0-0", "5-5"): "hit", ("1-1", "2-2"): "hit", ("3-3", "4-4"): "miss"}
    assert outcomes(view) == expected


def test_pairs_of_hidden_tokens_are_counted_and_not_drawn(view, made):
    view.open(made.path, address(special="hidden"))
    assert ("0-0", "6-6") not in outcomes(view) and len(shapes(view)) == 2
    legend = view.texts(".gold-legend")[0]
    assert legend.endswith("1 of them is on tokens that are not shown.")
    assert view.texts(".gold-key") == ["2 hit", "1 missed"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_matrix_outlines_their_cells(view, made, theme):
    view.open(made.path, address(drawing="matrix", theme=theme))
    drawn = view.run("return view.matrix.drawn()")
    place, size = drawn["place"], drawn["window"]["size"]
    boxes = {tuple(box["query"]): box for box in drawn["gold"]}
    for pair in PAIRS:
        ((first, last),) = pair.keys
        box = boxes[pair.query]
        expected = [place["left"] + first * size, place["top"] + pair.query[0] * size]
        assert [box["x"], box["y"]] == pytest.approx(expected, abs=0.51)
        assert [box["width"], box["height"]] == pytest.approx(
            [(last + 1 - first) * size, size], abs=1.01
        )
    assert [boxes[n, n]["outcome"] for n in (0, 1, 4)] == ["hit", "hit", "miss"]
    painted = view.run(
        "const { x, y, height } = arguments[0], canvas = view.matrix.cross;"
        "const scale = canvas.width / canvas.getBoundingClientRect().width;"
        "const at = [x * scale, (y + height / 2) * scale].map(Math.round);"
        "return [...canvas.getContext('2d').getImageData(...at, 1, 1).data]",
        boxes[1, 1],
    )
    expected = [int(style(view, "--gold-hit")[i : i + 2], 16) for i in (1, 3, 5)]
    assert painted[3] > 200 and painted[:3] == pytest.approx(expected, abs=6)
    assert view.texts(".gold-key") == ["2 hit", "1 missed"]
    root = ElementTree.fromstring(view.svg())
    outlines = [(n.get("stroke"), n.get("stroke-dasharray")) for n in root.iter()]
    hit, miss = style(view, "--gold-hit"), style(view, "--gold-miss")
    assert (
        outlines.count((hit, None)) == 3 and outlines.count((miss, "3 3")) == 2
    )  # with the legend
    assert any(
        text.text == f"Gold pairs, {NAME}: each word and its governor" for text in root.iter()
    )


def test_a_token_in_focus_sets_off_outlines(view, made):
    view.open(made.path, address(drawing="matrix", query=1))
    strength = (
        "const canvas = view.matrix.cross, { gold } = view.matrix.drawn();"
        "const scale = canvas.width / canvas.getBoundingClientRect().width;"
        "const { x, y, width, height } = gold.find(({ query }) => query[0] === arguments[0]);"
        "const at = [(x + width) * scale, (y + height / 2) * scale].map(Math.round);"
        "return canvas.getContext('2d').getImageData(...at, 1, 1).data[3]"
    )
    assert view.run(strength, 1) > 2 * view.run(strength, 0) > 0


def test_files_hold_the_curves_and_what_they_are(view, made):
    view.open(made.path, address())
    root = ElementTree.fromstring(view.svg())
    pairs = [n for n in root.iter() if (n.get("class") or "").startswith("gold-pair")]
    assert sorted((n.get("data-query"), n.get("class").split()[1]) for n in pairs) == [
        ("0-0", "hit"),
        ("1-1", "hit"),
        ("4-4", "miss"),
    ]
    texts = [node.text for node in root.iter() if node.tag.endswith("}text")]
    assert {"2 hit", "1 missed", f"Gold pairs, {NAME}: each word and its governor"} <= {*texts}
    view.choose("gold", "none")
    assert "gold-pair" not in view.svg()


def test_pairs_of_ones_own_open_with_the_head_that_hits_most(view, made):
    view.open(made.own)
    state = view.run("return page.state.json()")
    assert [state[n] for n in ("gold", "layer", "heads", "query")] == ["mine", 0, [0], None]
    assert outcomes(view) == {("1-1", "2-3"): "hit", ("4-4", "5-5"): "miss"}
    assert view.texts("select[name=gold] option") == ["off", "mine", "other"]
    view.choose("gold", "other")
    assert [row[:2] for row in shapes(view)] == [["5-5", "1-1"]]
    copied = json.loads(view.run("return JSON.stringify(page.state.json())"))
    again = head_view(made.trace, pairs={"mine": [(1, 2)], "other": [(5, 1)]}, state=copied)
    view.open(again.save(made.own.with_name("again.html")))
    assert [row[:2] for row in shapes(view)] == [["5-5", "1-1"]]


def test_alignments_are_pairs_of_cross_attention(view, translation, tmp_path):
    aligned = {"alignment": {"cross": [(0, 0), (1, 1), (2, 2), (4, 5)]}}
    page = head_view(translation.trace, pairs=aligned, layer=1, heads=[2])
    view.open(page.save(tmp_path / "cross.html"), "side=cross")
    strongest = translation.shares["cross"][1, 2].argmax(-1)
    expected = {
        (f"{q}-{q}", f"{k}-{k}"): "hit" if strongest[q] == k else "miss"
        for q, k in aligned["alignment"]["cross"]
    }
    assert outcomes(view) == expected
    view.run("page.go({ side: 'encoder' })")
    assert shapes(view) == []
    assert view.texts(".gold-legend") == ["No gold pairs of alignment on this side of this text."]


def test_hits_and_misses_can_be_distinguished_in_both_themes(view, made):
    def light(colour):
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    def contrast(one, other):
        low, high = sorted((light(one), light(other)))
        return (high + 0.05) / (low + 0.05)

    for theme in ("light", "dark"):
        view.open(made.path, address(theme=theme))
        hit, miss, paper = (style(view, f"--{n}") for n in ("gold-hit", "gold-miss", "paper"))
        assert contrast(hit, paper) >= 4.5 and contrast(miss, paper) >= 4.5
        assert contrast(hit, miss) >= 1.35, "by lightness alone, whatever colours an eye sees"


@pytest.mark.parametrize("kind", SHAPES_OF_TEXTS)
def test_hostile_names_are_text_wherever_they_stand(view, tmp_path, kind):
    names = [name for name in texts(kind) if name.strip()]
    page = head_view(traced(), pairs={name: [(1, 3)] for name in names}, heads=[0])
    view.open(page.save(tmp_path / "names.html"))
    output = view.run(
        "return page.state.goldNames.map((name) => { page.update({ gold: name });"
        " return [document.querySelector('.gold-legend b').textContent, view.picture().svg,"
        "  document.querySelector('select[name=gold]').value]; })"
    )
    for name, (legend, svg, chosen) in zip(names, output, strict=True):
        assert (legend, chosen) == (f"Gold pairs, {visible(name)}", visible(name))
        shown = [node.text for node in ElementTree.fromstring(svg).iter()]
        assert f"Gold pairs, {visible(name)}" in shown
    assert view.run("return window.seen") == []
    assert view.run("return document.querySelectorAll('img, object, embed, base').length") == 0
