# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Text that looks like code: it appears exactly as written, wherever it appears, and runs nothing.

Every token is a payload; the places are the token columns, tooltips, panel, spoken text, title,
attributes, file name and SVG.
"""

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from drawn_figures import svg_texts

from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import visible
from flaxattn.views.trace_views import head_view, text_view

STRANGERS = "return document.querySelectorAll('img, iframe, object, svg:not(.gold-lines)').length"
pytestmark = pytest.mark.browser

HOSTILE = [
    "[CLS]",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "--><svg onload=alert(3)>",
    "\"><iframe src='javascript:alert(4)'>",
    "' onmouseover='alert(5)",
    "url(https://example.org/x.png)",
    "};alert(6);//",
    "${alert(7)}",
    "{{7*7}}",
    "@{script}",
    "</style><style>*{display:none}",
    "</title><script>alert(8)</script>",
    "<!--",
    "]]>",
    "$x_1$",
    "$",
    "_",
    "#",
    "'",
    '"',
    "\\u003c",
    "\\",
    "&lt;b&gt;",
    "  two  spaces ",
    "😀👩‍👩‍👧",
    "\u202eevil\u202c",
    "\u2066isolate",
    "שלום",
    "日本語",
    "\u2028",
    "\x00\x01\n\t\x1b\x7f",
    "\x85",
    "\ud800",
    "",
    "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen",
    "[SEP]",
]
WRITTEN = [visible(token) for token in HOSTILE]
MODEL = "".join(HOSTILE[1:5])


@pytest.fixture(scope="module")
def page(peaked: Callable[..., np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page full of it, in a file with a name to match."""
    length = len(HOSTILE)
    trace = Trace.from_arrays(
        peaked(1, 2, length),
        [HOSTILE],
        special=np.isin(np.arange(length), [0, length - 1])[None],
        model=MODEL,
    )
    return head_view(trace, 0).save(tmp_path_factory.mktemp("hostile") / "a '\"<b>%20&#${x}.html")


def test_only_what_draws_nothing_is_replaced():
    changed = {token for token in HOSTILE if visible(token) != token}
    assert changed == {"\x00\x01\n\t\x1b\x7f", "\x85", "\ud800"}
    assert visible("\x00\x01\n\t\x1b\x7f") == "␀␁␊␉␛␡"


def test_text_appears_as_written_in_every_place(view, page):
    view.open(page)
    assert view.texts(".left .token-text") == view.texts(".right .token-text") == WRITTEN
    titles = "return [...document.querySelectorAll('.left .token')].map((token) => token.title)"
    assert view.run(titles) == WRITTEN
    assert view.run("return document.title") == f"Attention heads · {MODEL}"
    assert view.texts(".model") == [MODEL]
    shown = view.run(
        "const read = (selector) => document.querySelector(selector).textContent;"
        "return view.state.side.left.tokens.map((_, index) => {"
        "  view.state.letGo();"
        "  page.hold('left', index);"
        "  const [heading, spoken] = [read('.panel h2'), read('.spoken[aria-live]')];"
        "  page.point('right', index);"
        "  return [heading, spoken.split(' attends to: ')[0], read('.panel h2')];"
        "});"
    )
    assert shown == [[f"{token} attends to", token, f"{token} → {token}"] for token in WRITTEN]


def test_nothing_of_it_runs_or_asks_for_anything(view, page):
    view.browser.get_log("performance")
    view.browser.get_log("browser")
    view.open(page)
    view.point(view.token("left", 1))
    tips = view.run(
        "for (const token of document.querySelectorAll('.token')) {"
        "  token.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));"
        "}"
        "page.point('left', null);"
        "return view.state.side.left.tokens.map((_, index) => {"
        "  const offsetY = (index + 0.5) * view.rowHeight;"
        "  view.pointAtLine({ offsetX: 3, offsetY, clientX: 9, clientY: 9 });"
        "  return page.tip.textContent.split(' → ')[0];"
        "});"
    )
    assert tips == WRITTEN
    view.svg()
    assert view.run("return window.seen") == []
    assert view.run("return document.scripts.length") == 2
    assert view.run(STRANGERS) == 0
    entries = [
        json.loads(entry["message"])["message"] for entry in view.browser.get_log("performance")
    ]
    requested = [
        e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"
    ]
    assert len(requested) == 1 and requested[0].startswith("file:"), requested
    assert view.browser.get_log("browser") == []


def test_the_policy_would_have_reported_it(view, page, tmp_path):
    text = page.read_text(encoding="utf-8")
    (tmp_path / "injected.html").write_text(
        text.replace("</body>", "<script>alert(9)</script><img src=x onerror=alert(10)></body>"),
        encoding="utf-8",
    )
    view.browser.get((tmp_path / "injected.html").as_uri())
    seen = view.run("return window.seen")
    assert any(report.startswith("script-src") for report in seen), seen
    assert any(report.startswith("img-src") for report in seen), seen
    assert "alert" not in seen


def test_text_appears_as_written_in_the_other_levels(view, page):
    view.open(page, "level=model")
    shown = view.run(
        "return view.state.side.left.tokens.map((_, index) => {"
        "  const cell = view.grid.cells[1];"
        "  const box = cell.button.getBoundingClientRect();"
        "  const place = (index + 0.5) / view.state.side.left.tokens.length;"
        "  const clientX = box.left + place * box.width;"
        "  view.point(cell, {clientX, clientY: box.top + place * box.height});"
        "  return [...page.tip.querySelectorAll('.token-text')].map((piece) => piece.textContent);"
        "});"
    )
    assert shown == [[token, token] for token in WRITTEN]
    for level in ("atlas", "model"):
        view.open(page, f"level={level}&order=cluster&measure=<b>&side='\"")
        title = ElementTree.fromstring(view.svg())[0].text
        assert title is not None and title.startswith(MODEL)
        view.click("button.copy")
        assert view.run("return window.seen") == []
        assert view.run(STRANGERS) == 0


def spelled(peaked: Callable[..., np.ndarray]) -> Trace:
    """A trace whose text is all of it, read as unknown tokens."""
    spans: list[tuple[int, int] | None] = []
    text = ""
    for token in HOSTILE:
        spans.append((len(text), len(text) + len(token)))
        text += f"{token} | "
    return Trace.from_arrays(
        peaked(1, 2, len(HOSTILE)), [["[UNK]"] * len(HOSTILE)], texts=[(text,)], spans=[spans]
    )


def test_running_text_is_text(view, page, peaked, tmp_path):
    whole = [token or "[UNK]" for token in WRITTEN]  # what stands for no characters is a token
    whole = [token.replace("\u240a", "\n") for token in whole]
    view.open(text_view(spelled(peaked)).save(tmp_path / "spelled.html"), "query=1")
    assert view.texts(".run") == whole
    tips = view.run(
        "return [...document.querySelectorAll('.run')].map((run) => {"
        "  run.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));"
        "  return page.tip.querySelector('.token-text').textContent;"
        "});"
    )
    assert tips == whole
    svg = ElementTree.fromstring(view.svg())
    assert len([node for node in svg.iter() if node.tag.endswith("script")]) == 0
    view.open(page, "level=text&query=1")
    assert "".join(view.texts(".run")).startswith("".join(WRITTEN[:5]))
    view.open(tmp_path / "spelled.html", "level=head")
    assert view.texts(".left .token-text") == [token or "[UNK]" for token in WRITTEN]
    assert view.run("return window.seen") == []
    assert view.run("return document.scripts.length") == 2
    assert (
        view.run(
            "return document.querySelectorAll('img, iframe, object, svg:not(.gold-lines)').length"
        )
        == 0
    )


def test_a_list_of_hostile_texts_is_a_list_of_texts(view, peaked, tmp_path):
    tokens = [[token, "x"] for token in HOSTILE]
    weights = np.repeat(peaked(1, 1, 2), len(tokens), axis=1)
    trace = Trace.from_arrays(weights, tokens, words=[[0, 0]] * len(tokens), model=MODEL)
    view.open(head_view(trace, 0).save(tmp_path / "texts.html"), "unit=words")
    written = [f"{i + 1}: {token} x" for i, token in enumerate(WRITTEN)]
    assert view.texts("[name=sequence] option") == written
    for number in (1, 3, 5, 20):
        view.choose("sequence", str(number))
        assert view.texts(".left .token-text") == [f"{WRITTEN[number]}x"]
    box = view.find("[name=search]")
    box.send_keys("</script><script>")
    assert view.texts("[name=sequence] option")[0] == written[1]
    box.clear()
    box.send_keys("[(.*")
    assert len(view.texts("[name=sequence] option")) == 1
    assert view.run("return window.seen") == []
    assert view.run("return document.scripts.length") == 2


def test_svg_of_it_is_text_too(view, page):
    view.open(page)
    root = ElementTree.fromstring(view.svg())
    names = {element.tag.split("}")[1] for element in root.iter()}
    assert names == {"svg", "title", "rect", "text", "tspan", "g", "path", "metadata"}
    assert svg_texts(root, "token") == WRITTEN * 2
    assert json.loads(root[-1].text or "")["level"] == "head"


def test_other_directions_stay_within_their_token(view, page):
    view.open(page)
    directions = view.run(
        "return [...document.querySelectorAll('.token .token-text')]"
        ".map((piece) => getComputedStyle(piece).unicodeBidi)"
    )
    assert set(directions) == {"isolate"}
