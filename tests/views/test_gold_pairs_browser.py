# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gold arcs of an evidence page as they are drawn: ends, colours, dashes, counts, files."""

from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from page_payload import payload_of

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.measures.claims import Claim
from flaxattn.measures.evidence import TopText
from flaxattn.measures.gold_pairs import GoldPair
from flaxattn.trace.trace import Trace
from flaxattn.views.evidence_page import EvidenceReport, Numbers, evidence_page

pytestmark = pytest.mark.browser

NAME = '<img src=x onerror="alert(1)">governor(nsubj)'
TOKENS = "[CLS] she read ##s old books [SEP]".split()
PAIRS = [GoldPair(1, 2, 3), GoldPair(4, 5, 5)]  # the head meets the first and misses the second
ARCS = "[...document.querySelectorAll('.gold-arcs path')]"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    weights = np.full((1, 1, 2, 7, 7), 0.05, np.float32)
    weights[0, 0, 0, 1, 3] = 0.7
    weights[0, 0, 0, 4, 0] = 0.7
    weights /= weights.sum(-1, keepdims=True)
    special = np.array([[token.startswith("[") for token in TOKENS]])
    words = [[None, 0, 1, 1, 2, 3, None]]
    trace = Trace.from_arrays(weights, [TOKENS], special=special, words=words, model="tiny")
    sides = {"encoder": Numbers((0,), (0, 1), {NAME: np.array([[5.0, 1.0]])})}
    report = EvidenceReport("Roles of heads", "tiny", "One text.", sides, "score")
    claims = [Claim(NAME, 0, 0, 5.0, "p 0.01", texts=(TopText(0, 9.0),))]
    page = evidence_page(report, claims, (0,), [trace], [{NAME: PAIRS}])
    path = page.save(tmp_path_factory.mktemp("gold") / "roles.html")
    return SimpleNamespace(path=path, page=page, trace=trace)


def arcs(view):
    return view.run(
        f"return {ARCS}.map((a) => [Number(a.dataset.query), Number(a.dataset.key),"
        " a.dataset.hit === 'true', a.getAttribute('stroke-dasharray') !== 'none'])"
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_one_click_on_a_score_shows_the_pairs_that_a_head_meets_and_misses(view, made, theme):
    view.open(made.path, f"theme={theme}")
    assert view.texts(".claims tbody a .value") == ["9.00"]
    view.click(".claims tbody a .value")
    assert view.run("return [page.state.level, page.state.gold]") == ["head", NAME]
    assert arcs(view) == [[1, 2, True, False], [4, 5, False, True]]
    (legend,) = view.texts(".gold-legend")
    assert legend == (
        f"Gold arcs, {NAME}: the largest weight is on the right token for 1 of 2. "
        "Solid: met; dashed: missed."
    )
    colours = view.run(f"return {ARCS}.map((a) => a.getAttribute('stroke'))")
    assert colours == [view.run(f"return page.style('{name}')") for name in ("--gold", "--missed")]
    assert view.run("return window.seen") == []


def test_arcs_end_at_the_rows_of_their_tokens(view, made):
    view.open(made.path, f"level=head&heads=0&gold={NAME}")
    ends = view.run(
        f"return {ARCS}.map((a) => {{ const [p, q] = [a.getPointAtLength(0),"
        " a.getPointAtLength(a.getTotalLength())];"
        "const { top } = a.ownerSVGElement.getBoundingClientRect();"
        "return [p.y + top, q.y + top]; })"
    )
    middle = (
        "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return (box.top + box.bottom) / 2"
    )
    for (query, key, _), (start, stop) in zip(PAIRS, ends, strict=True):
        assert start == pytest.approx(view.run(middle, view.token("left", query)), abs=1)
        assert stop == pytest.approx(view.run(middle, view.token("right", key)), abs=1)


def test_a_head_that_does_not_look_there_misses_all(view, made):
    view.open(made.path, f"level=head&heads=1&gold={NAME}")
    assert [hit for _, _, hit, _ in arcs(view)] == [False, False]


def test_a_token_in_focus_dims_the_arcs_of_others(view, made):
    view.open(made.path, f"level=head&heads=0&gold={NAME}&query=4")
    opacities = view.run(f"return {ARCS}.map((a) => Number(a.getAttribute('stroke-opacity')))")
    assert opacities[1] > 2 * opacities[0]


def test_the_list_switches_them_off(view, made):
    view.open(made.path, f"level=head&heads=0&gold={NAME}")
    view.choose("gold", "none")
    assert arcs(view) == [] and not view.find(".gold-legend").is_displayed()
    assert "gold" not in view.run("return location.hash")


def test_a_claim_without_pairs_shows_none_of_the_claim_before(view, made):
    view.open(made.path, f"level=head&heads=0&gold={NAME}")
    other = "{ ...page.payload.report.claims[0], name: 'local' }"
    view.run(f"page.open('claims'); page.levels.claims.draw(); page.levels.claims.look({other}, 0)")
    assert view.run("return page.state.gold") == "none" and arcs(view) == []


def test_words_have_the_pairs_of_their_pieces(view, made):
    view.open(made.path, f"level=head&heads=0&unit=words&gold={NAME}")
    assert arcs(view) == [[1, 2, True, False], [3, 4, False, True]]


def test_the_matrix_frames_them(view, made):
    view.open(made.path, f"level=head&heads=0&drawing=matrix&gold={NAME}")
    frames = view.run("return view.matrix.goldFrames()")
    size = view.run("return view.matrix.window.size")
    assert [frame["hit"] for frame in frames] == [True, False]
    assert [round(frame["width"] / size) for frame in frames] == [2, 1]
    painted = view.run(
        "const { x, y, height } = view.matrix.goldFrames()[0];"
        "const scale = view.matrix.cross.width / view.matrix.cross.getBoundingClientRect().width;"
        "const pen = view.matrix.cross.getContext('2d');"
        "const [r, g, b, a] = pen.getImageData(x * scale, (y + height / 2) * scale, 1, 1).data;"
        "return [r, g, b, a]"
    )
    gold = view.run("return page.style('--gold')").strip().lstrip("#")
    wanted = [int(gold[i : i + 2], 16) for i in (0, 2, 4)]
    assert painted[3] > 100 and painted[:3] == pytest.approx(wanted, abs=4)
    root = ElementTree.fromstring(view.run("return view.picture().svg"))
    dashes = [n.get("stroke-dasharray") for n in root.iter() if n.get("fill") == "none"]
    assert dashes.count("none") == dashes.count("4 3") == 1


def test_files_hold_the_arcs_and_what_they_are(view, made):
    view.open(made.path, f"level=head&heads=0&gold={NAME}")
    root = ElementTree.fromstring(view.run("return view.picture().svg"))
    drawn = [node for node in root.iter() if node.get("data-hit")]
    assert [(n.get("data-query"), n.get("data-key"), n.get("data-hit")) for n in drawn] == [
        ("1", "2", "true"),
        ("4", "5", "false"),
    ]
    texts = [node.text for node in root.iter() if node.tag.endswith("}text")]
    assert any(text and text.startswith(f"Gold arcs, {NAME}") for text in texts)


def test_pairs_travel_with_the_text_and_pages_without_them_say_so(made):
    (side,) = payload_of(made.page)["inputs"][0]["sides"]
    assert side["pairs"] == {NAME: [[1, 2, 3], [4, 5, 5]]}
    with pytest.raises(InputError, match=r"^state: gold is 'governor\(nsubj\)', and the page has"):
        fa.head_view(made.trace, state={"gold": "governor(nsubj)"})
    assert payload_of(fa.head_view(made.trace, state={"gold": "none"}))
