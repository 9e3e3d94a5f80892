# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Thirty hostile texts of six kinds in nine places of a page: nothing runs, all of it can be read.

9 x 6 x 30 = 1,620 trials: no dialog, no request, no report of the policy, the text exactly. The
texts are made in `hostile_texts.py`; pages of one kind hold them as tokens, as names of models, as
ids and as settings of an address.
"""

import json
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np
import pytest
from drawn_figures import svg_texts
from hostile_texts import SHAPES, texts

from flaxattn.store.head_numbers import Ranking, SideStatistics
from flaxattn.store.open_store import StoredText
from flaxattn.trace.trace import Trace
from flaxattn.views.page import add_data
from flaxattn.views.payloads.page_encoding import visible
from flaxattn.views.texts_page import ListQuery, TextList, TextsPage, message_page, texts_page
from flaxattn.views.trace_views import head_view, text_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

KINDS = tuple(SHAPES)
COUNT = 30


@pytest.fixture(scope="module", params=KINDS)
def hostile(request, tmp_path_factory) -> tuple[list[str], list[str], Path]:
    """Texts of a kind, how they read, and a page that has each for a token and all for a name."""
    found = texts(request.param)
    assert len(set(found)) == COUNT
    weights = np.full((1, 1, 1, COUNT, COUNT), 1 / COUNT, np.float32)
    trace = Trace.from_arrays(weights, [found], model=found[0])
    name = "".join(c for c in found[1] if c not in "/\x00\n\t\x0b")[:60]
    page = head_view(trace, 0).save(tmp_path_factory.mktemp("sinks") / f"{name}.html")
    return found, [visible(text) for text in found], page


@pytest.fixture
def quiet(view) -> Iterator[None]:
    """Nothing ran, was requested or was reported while a test looked."""
    view.browser.get_log("performance")
    view.browser.get_log("browser")
    yield
    assert view.run("return window.seen") == []
    entries = [json.loads(e["message"])["message"] for e in view.browser.get_log("performance")]
    requested = [
        e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in requested if url.split(":")[0] not in ("file", "about")] == []
    messages = [e for e in view.browser.get_log("browser") if e["source"] != "rendering"]
    assert messages == []
    assert not view.run("return [...document.querySelectorAll('img, object, embed, base')].length")


def test_as_text(view, hostile, quiet):
    _, written, page = hostile
    view.open(page)
    assert view.texts(".left .token-text") == view.texts(".right .token-text") == written
    output = view.run(
        "return view.state.side.left.tokens.map((_, index) => {"
        "  view.state.letGo(); page.hold('left', index); page.point('right', index);"
        "  return document.querySelector('.panel h2').textContent;"
        "});"
    )
    assert output == [f"{text} → {text}" for text in written]
    assert view.run("return document.scripts.length") == 2


def test_as_attribute(view, hostile, quiet):
    _, written, page = hostile
    view.open(page)
    titles = "return [...document.querySelectorAll('.left .token')].map((t) => t.title)"
    assert view.run(titles) == written
    names = (
        "return [...document.querySelectorAll('.left .token')]"
        ".map((t) => t.getAttributeNames().sort().join())"
    )
    assert set(view.run(names)) == {"class,data-index,role,title"} | (
        {"class,data-index,role,tabindex,title"} & set(view.run(names))
    )
    tree = view.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    options = [n["name"]["value"] for n in tree if n.get("role", {}).get("value") == "option"]
    spoken = {" ".join(text.split()) for text in options}
    assert {" ".join(text.split()) for text in written} <= spoken


def test_as_json_in_a_script(view, hostile, quiet):
    _, written, page = hostile
    view.open(page)
    (text,) = view.texts("script.flaxattn-payload")
    payload = json.loads(text)
    (found,) = payload["inputs"][0]["texts"].values()
    assert found["tokens"] == written and payload["model"] == written[0]
    assert not set("<>&") & set(text) and text.isascii()


def test_as_svg(view, hostile, quiet, tmp_path):
    _, written, page = hostile
    view.open(page, "heads=0&query=1")
    picture = view.svg()
    root = ElementTree.fromstring(picture)
    assert {e.tag.split("}")[1] for e in root.iter()} <= {
        "svg",
        "title",
        "rect",
        "text",
        "g",
        "path",
        "tspan",
        "metadata",
    }
    drawn = svg_texts(root, "token")
    assert [visible(text) for text in drawn] == written * 2
    names = {name for e in root.iter() for name in e.attrib}
    assert not [name for name in names if name.startswith("on") or "href" in name]
    (tmp_path / "picture.svg").write_text(picture, encoding="utf-8")
    view.browser.get((tmp_path / "picture.svg").as_uri())
    shown = (
        "return [...document.querySelectorAll('text.token')]"
        ".map((text) => text.getAttribute('data-token') || text.textContent)"
    )
    assert [visible(text) for text in view.browser.execute_script(shown)] == written * 2
    assert view.browser.execute_script("return window.seen") == []
    view.open(page)


def ink(text: str) -> str:
    """Characters that are drawn: no blanks, no marks of direction or joining."""
    return "".join(c for c in text if not c.isspace() and unicodedata.category(c) != "Cf")


def test_as_running_text(view, hostile, quiet):
    """Each text is one token, and stands in its passage as it was written."""
    found, _, _ = hostile
    text, spans = "", []
    for word in (visible(one) for one in found):
        spans.append((len(text), len(text) + len(word)))
        text += word + " "
    weights = np.full((1, 1, 1, COUNT, COUNT), 1 / COUNT, np.float32)
    trace = Trace.from_arrays(weights, [found], texts=[(text,)], spans=[spans])
    with tempfile.TemporaryDirectory() as folder:
        view.open(text_view(trace, layer=0).save(Path(folder) / "page.html"), "query=1")
        tokens = [text[start:stop].replace("␊", "\n") for start, stop in spans]
        assert view.texts(".text-block .run") == tokens
        assert tokens[1] in view.texts(".panel h2")[0]
        root = ElementTree.fromstring(view.svg())
        drawn = "".join("".join(e.itertext()) for e in root.iter() if e.tag.endswith("}text"))
        assert [piece for piece in tokens if ink(piece) not in ink(drawn)] == []
        assert not [n for e in root.iter() for n in e.attrib if n.startswith("on") or "href" in n]


FRAMES = """
const done = arguments[0];
const look = () => {
  const frames = [...document.querySelectorAll("iframe")];
  const mains = frames.map((f) => f.contentDocument && f.contentDocument.querySelector("main"));
  if (!mains.every((main) => main && main.flaxattn)) return setTimeout(look, 50);
  done(frames.map(({ title, contentDocument: inside, contentWindow: { seen } }) => [
    title, inside.querySelector("title").textContent, inside.querySelector(".model").textContent,
    inside.querySelectorAll("script").length, seen.length]));
};
look();
"""


def test_as_title_and_name(view, hostile, quiet, tmp_path):
    found, written, page = hostile
    view.open(page)
    assert view.texts("title") == [f"Attention heads · {written[0]}"]
    weights = np.ones((1, 1, 1, 1, 1), np.float32)
    frames = [head_view(Trace.from_arrays(weights, [["a"]], model=text), 0) for text in found]
    # As in a notebook, but for the sandbox, which would keep this test out as well.
    cells = "".join(f._repr_html_().replace('sandbox="allow-scripts ', 'class="') for f in frames)
    (tmp_path / "cells.html").write_text(f"<!doctype html>{cells}", encoding="utf-8")
    view.browser.get((tmp_path / "cells.html").as_uri())
    contents = view.browser.execute_async_script(FRAMES)
    titles = [f"Attention heads · {text}" for text in written]
    assert [row[1:] for row in contents] == [
        [title, text, 2, 0] for title, text in zip(titles, written, strict=True)
    ]
    assert [visible(row[0]) for row in contents] == titles
    assert view.browser.execute_script("return window.seen") == []
    view.open(page)


def listed(found: list[str], query: ListQuery) -> str:
    """A list that has each text everywhere that a text can be, sorted by a statistic so named."""
    texts = [StoredText(n, text, text, text, 1) for n, text in enumerate(found)]
    ranking = Ranking(np.arange(COUNT), np.linspace(1, 0, COUNT), COUNT, 0, 0, 1)
    sides = {text: SideStatistics((0,), (0,), (text,)) for text in found}
    every = TextList(ranking.examples, ranking if query.statistic else None, True, COUNT)
    return texts_page(TextsPage(found[0], query, every, texts, sides))


@pytest.mark.parametrize("is_sorted", [False, True])
def test_in_the_list_of_texts(view, hostile, quiet, tmp_path, is_sorted):
    found, written, _ = hostile
    number = (found[1], found[2], 0, 0) if is_sorted else ()
    (tmp_path / "list.html").write_text(listed(found, ListQuery(found[1], *number)), "utf-8")
    view.browser.get((tmp_path / "list.html").as_uri())
    assert view.texts(".list .about bdi") == written
    assert view.texts(".list .words > div:not(.about)") == [t for t in written for _ in range(2)]
    assert written[1] in view.texts(".list mark")
    assert view.run("return document.querySelector('input').value") == written[1]
    assert view.texts("select[name=side] option") == written
    assert view.texts("select[name=by] option") == ["order of the corpus", *written]
    assert view.texts(".model") == [written[0]]
    assert view.texts(".said bdi") == [written[1]]
    title = f" of layer 0, head 0 ({written[2]}), highest first Lowest first"
    headings = view.texts("h2")
    assert [text.endswith(title) for text in headings] == [True] * is_sorted
    assert view.texts("title") == [f"{written[0]} · texts"]
    assert view.run("return document.scripts.length") == 0


def test_in_answers_of_the_server(view, hostile, quiet, tmp_path):
    found, written, _ = hostile
    empty = TextList(np.zeros(0, int), None, False, 7)
    pages = [texts_page(TextsPage(found[0], ListQuery(text), empty, [], {})) for text in found] + [
        message_page(found[0], f"No {text}", [("./", "Back")]) for text in found
    ]
    for text, page in zip([*written, *written], pages, strict=True):
        (tmp_path / "answer.html").write_text(page, "utf-8")
        view.browser.get((tmp_path / "answer.html").as_uri())
        answers = view.texts(".answer p")
        if answers[0].startswith("No text contains"):
            assert answers[0] == f"No text contains “{text}”."
        else:  # lines of a message stay lines
            assert "␊".join(answers[:-1]).replace("\n", "␊") == f"No {text}".removesuffix("␊")
        assert view.run("return document.scripts.length") == 0


def test_beside_a_page_of_a_store(view, hostile, quiet, tmp_path):
    found, written, page = hostile
    document = page.read_text("utf-8")
    for text in found:
        data = {"list": "./", "back": "", "next": None, "name": text, "id": text, "place": text}
        (tmp_path / "served.html").write_text(add_data(document, "corpus", data), "utf-8")
        view.open(tmp_path / "served.html")
        texts = view.texts(".corpus strong, .corpus .id, .corpus .place")
        assert texts == [text, text, text]
        assert view.texts(".left .token-text") == written
        assert view.run("return document.scripts.length") == 3


STYLES = """
const known = ["display", "visibility", "position", "color", "fontSize", "backgroundImage",
  "backgroundColor", "content", "zIndex"];
const tokens = [...document.querySelectorAll(".left .token")];
const of = (node) => known.map((name) => getComputedStyle(node)[name]).join();
const inline = [...document.querySelectorAll("[style]")].map((e) => e.getAttribute("style"));
return [
  new Set(tokens.map(of)).size, new Set(tokens.map((t) => of(t.firstChild))).size,
  inline.filter((text) => /url|import|expression|hostile/i.test(text)).length,
  document.styleSheets.length, document.styleSheets[0].cssRules.length,
  getComputedStyle(document.documentElement).getPropertyValue("--head-0"),
];
"""


def test_as_style(view, hostile, quiet, pair):
    found, written, page = hostile
    view.open(pair.page)
    usual = view.run(STYLES)[3:]
    view.open(page)
    assert view.run(STYLES) == [1, 1, 0, *usual]
    view.run(
        "for (const text of arguments[0]) for (const name of ['theme', 'side', 'level', 'measure'])"
        "{ history.replaceState(null, '', `#${name}=${text}`);"
        "  dispatchEvent(new HashChangeEvent('hashchange')); }",
        [quote(text.encode("utf-8", "replace")) for text in found],
    )
    assert view.run(STYLES) == [1, 1, 0, *usual]
    assert view.texts(".left .token-text") == written
    assert view.run("return document.documentElement.dataset.theme") in (None, "light", "dark")


@pytest.mark.parametrize("kind", ["element", "style"])
def test_it_would_be_noticed(view, pair, kind, tmp_path):
    """The same texts as markup: every element that does something is reported."""
    text = pair.page.read_text(encoding="utf-8")
    raw = "".join(texts(kind))
    (tmp_path / "raw.html").write_text(text.replace("</body>", f"{raw}</body>"), encoding="utf-8")
    view.browser.get((tmp_path / "raw.html").as_uri())
    reports = {seen.split("-")[0] for seen in view.run("return window.seen")}
    assert {"element": "script", "style": "style"}[kind] in reports
