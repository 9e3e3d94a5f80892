# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The page of a report: its cells and claims, and that a claim leads to the head and the text."""

from types import SimpleNamespace

import numpy as np
import pytest

from flaxattn.measures.claims import Claim, TopText
from flaxattn.trace.trace import Trace
from flaxattn.views.evidence_page import EvidenceReport, Numbers, evidence_page
from flaxattn.views.payloads.page_encoding import ERROR

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TEXTS = {
    4: "[CLS] the cat is sad . [SEP]".split(),
    7: "[CLS] it found no ##thing <b> & [SEP]".split(),
    9: "[CLS] a dog [SEP]".split(),
}
LOCAL = np.array([[5.0, 0.5, 1.0], [0.25, 3.5, 0.15]])
SEP = np.array([[0.0, np.nan, 4.0], [1.0, 2.0, 0.5]])
CLAIMS = [
    Claim("local", 0, 0, 5.0, "p 0.001", texts=(TopText(7, 9.0), TopText(4, 2.5))),
    Claim("local", 1, 1, 3.5, "p 0.02", texts=(TopText(4, 6.25), TopText(9, 4.0))),
    Claim("sep", 0, 2, 4.0, "p 0.01", texts=(TopText(9, 8.0),)),
]


def trace_of(shares, tokens):
    special = np.array([[token in ("[CLS]", "[SEP]") for token in tokens]])
    return Trace.from_arrays(shares, [tokens], special=special, model="tiny")


@pytest.fixture(scope="module")
def made(peaked, tmp_path_factory):
    """A report of two layers with three heads; text 9 does not travel."""
    # Weights below half a step of uint8 would have no line.
    shares = {
        n: 0.8 * peaked(2, 3, len(tokens), seed=n) + 0.2 / len(tokens)
        for n, tokens in TEXTS.items()
    }
    traces = [trace_of(shares[n], TEXTS[n]) for n in (4, 7)]
    sides = {"encoder": Numbers((0, 1), (0, 1, 2), {"local": LOCAL, "sep": SEP})}
    report = EvidenceReport("Roles of heads", "tiny", "Twenty texts.", sides, "score")
    page = evidence_page(report, CLAIMS, (4, 7), traces)
    path = page.save(tmp_path_factory.mktemp("claims") / "roles.html")
    return SimpleNamespace(path=path, page=page, shares={n: a[:, 0] for n, a in shares.items()})


def shown(view):
    found = view.run("return page.state.json()")
    return [found[name] for name in ("level", "sequence", "layer", "heads")]


def test_a_page_opens_at_its_claims(view, made):
    view.open(made.path)
    assert view.texts("[role=tab]") == ["Claims", "Model", "Head", "Text"]
    assert shown(view)[0] == "claims"
    cells = {(c["layer"], c["head"]): c for c in view.run("return view.drawn()")}
    assert {at: c["text"] for at, c in cells.items()} == {
        at: f"{value:.2f}" for at, value in np.ndenumerate(LOCAL)
    }
    assert cells[0, 0]["claims"] == ["local"] and cells[0, 1]["claims"] == []
    assert len({c["colour"] for c in cells.values()}) == 6
    assert view.texts(".claims caption") == ["2 heads: local"]
    assert view.texts(".claims tbody th") == ["P1 0.0", "P1 1.1"]
    assert view.texts(".claims tbody td:nth-child(3)") == ["p 0.001", "p 0.02"]
    assert view.texts(".claims li") == [
        "9.00it found nothing <b> &",
        "2.50the cat is sad .",
        "6.25the cat is sad .",
    ]
    lacking = "2 of the 3 texts that show claims best are in this page. 1 of 3 claims have none"
    assert view.texts(".lacking")[0].startswith(lacking)
    assert view.run("return window.seen") == []


@pytest.mark.parametrize(
    ("link", "text", "layer", "head"), [(0, 7, 0, 0), (1, 4, 0, 0), (2, 4, 1, 1)]
)
def test_a_claim_leads_to_the_head_and_the_text_that_show_it(view, made, link, text, layer, head):
    view.open(made.path)
    links = view.browser.find_elements("css selector", ".claims li a")
    address = links[link].get_attribute("href").split("#")[1]
    view.actions().click(links[link]).perform()
    place = (4, 7).index(text)
    assert shown(view) == ["head", place, layer, [head]]
    assert view.texts(".left .token-text") == TEXTS[text]
    view.assert_draws(made.shares[text][layer], heads=[head], error=ERROR["uint8"])
    drawn = view.lines()
    view.browser.back()
    view.until("page.state.level === 'claims'")
    assert view.texts(".claims caption") == ["2 heads: local"]
    view.open(made.path, address)  # somebody was sent the link
    assert shown(view) == ["head", place, layer, [head]] and view.lines() == drawn


def test_what_is_claimed_can_be_chosen(view, made):
    view.open(made.path)
    view.click("[data-claim=sep]")
    assert view.texts(".claims caption") == ["1 head: sep"]
    assert view.texts(".claims tbody td:last-child") == ["none in this page"]
    assert view.texts(".cell-value")[1] == "–"
    assert "measure=sep" in view.browser.current_url
    view.choose("measure", "local")
    assert view.texts(".claims caption") == ["2 heads: local"]


def test_pointing_at_a_head_shows_its_claims_and_a_click_shows_the_best_text(view, made):
    view.open(made.path)
    view.point("#level-claims [data-layer='1'][data-head='1']")
    assert view.texts(".panel h2") == ["Layer 1, head 1"]
    assert view.texts(".panel .role") == ["local: p 0.02"]
    view.press("ARROW_DOWN", "ARROW_UP")
    view.click("#level-claims [data-layer='0'][data-head='0']")
    assert shown(view) == ["head", 1, 0, [0]]


def test_both_themes_and_a_picture(view, made):
    for theme in ("light", "dark"):
        view.open(made.path, f"theme={theme}")
        assert view.run("return getComputedStyle(document.body).colorScheme") in (theme, "normal")
        text = view.svg()
        assert text.count("<rect") == 7 and ">5.00<" in text


def test_two_traces_of_each_text(view, peaked, tmp_path):
    shares = [peaked(2, 3, 7, seed=n) for n in (1, 2)]
    one, other = (trace_of(array, TEXTS[4]) for array in shares)
    claims = [Claim("entropy", 1, 2, -0.5, "p 0.01", texts=(TopText(0, -0.9),))]
    changes = np.array([[0.1, 0.2, 0.0], [0.3, 0.0, -0.5]])
    sides = {"encoder": Numbers((0, 1), (0, 1, 2), {"entropy": changes})}
    report = EvidenceReport("How heads differ", "a and b", "", sides, "value", ("a", "b"))
    page = evidence_page(report, claims, (0,), [(one, other)])
    view.open(page.save(tmp_path / "compare.html"))
    assert view.texts(".legend-mark") == ["-0.50", "0.00", "0.50"]
    view.click(".claims a")
    assert view.run("return page.state.compare") == "together"
    view.click("[data-compare=difference]")
    gap = shares[1][1, 0, 2] - shares[0][1, 0, 2]
    drawn = view.lines()
    assert max(abs(drawn[2, q, k] - gap[q, k]) for _, q, k in drawn) < 2 * ERROR["uint8"] + 1e-6
    assert {head for head, _, _ in drawn} == {2}


def test_a_report_without_attention_has_its_claims_only(view, tmp_path):
    sides = {"encoder": Numbers((0, 1), (0, 1, 2), {"local": LOCAL})}
    report = EvidenceReport("Roles of heads", "tiny", "", sides, "score")
    view.open(evidence_page(report, CLAIMS[:2], (), ()).save(tmp_path / "page.html"))
    assert view.texts(".claims tbody th") == ["P1 0.0", "P1 1.1"]
    assert view.browser.find_elements("css selector", ".claims a") == []
    view.click("#level-claims [data-layer='0'][data-head='0']")
    assert shown(view)[0] == "claims" and view.run("return window.seen") == []


def test_thirty_four_claims_have_marks_of_their_own_in_both_themes(view, tmp_path):
    relations = "acl advcl advmod amod appos aux case cc ccomp compound conj cop det mark nsubj obj"
    names = [f"{way}({name})" for name in relations.split() for way in ("governor", "dependent")]
    names += ["local", "cls"]
    values = {name: LOCAL for name in names}
    claims = [Claim(name, n % 2, n % 3, 1.0) for n, name in enumerate(names)]
    report = EvidenceReport(
        "Roles", "tiny", "", {"encoder": Numbers((0, 1), (0, 1, 2), values)}, "score"
    )
    page = evidence_page(report, claims, (), ()).save(tmp_path / "many.html")
    for theme in ("light", "dark"):
        view.open(page, f"theme={theme}&measure=cls")
        codes = view.texts(".panel .fact .code")
        assert len(codes) == len(set(codes)) == 34
        assert view.texts(".panel .family") == ["position", "delimiters and first tokens", "syntax"]
        fills = view.run(
            "return [...document.querySelectorAll('.panel .fact path')]"
            ".map((e) => e.getAttribute('fill'))"
        )
        heads = view.run("return page.colours")
        assert not set(fills) & set(heads) and len(set(fills)) == 5
        shapes = view.run(
            "return [...document.querySelectorAll('.panel .family path')]"
            ".map((e) => e.getAttribute('d'))"
        )
        assert len(set(shapes)) == 3
        assert view.texts(".claims tbody .code") == ["D1"]
        framed = "[...document.querySelectorAll('.cell.claimed')]"
        assert view.run(f"return {framed}.map((e) => [+e.dataset.layer, +e.dataset.head])") == [
            [33 % 2, 33 % 3]
        ]
        counted = view.texts("[data-layer='0'][data-head='0'] .marks .code")
        assert counted == ["S×6"]
    saved = view.svg()
    assert ">S×6<" in saved and saved.count("<path") == view.run(
        "return document.querySelectorAll('.cell .mark').length"
    )


def test_hostile_names_of_claims_are_text(view, tmp_path):
    evil = '<img src=x onerror="alert(1)">'
    sides = {"encoder": Numbers((0, 1), (0, 1, 2), {evil: LOCAL, "__proto__": LOCAL})}
    report = EvidenceReport("Roles", "tiny", "", sides, "score")
    claims = [Claim(evil, 0, 0, 1.0), Claim("__proto__", 0, 1, 1.0)]
    view.open(evidence_page(report, claims, (), ()).save(tmp_path / "evil.html"))
    assert view.texts(".panel .claim-name") == [evil, "__proto__"]
    assert view.texts(".panel .fact .code") == ["O1", "O2"]
    assert view.run("return window.seen") == []
