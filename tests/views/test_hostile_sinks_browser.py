# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Thirty hostile texts of six kinds in six places of a page: nothing runs, all of it can be read.

6 x 6 x 30 = 1,080 trials: no dialog, no request, no report of the policy, the text exactly. The
texts are made in `hostile_texts.py`; pages of one kind hold them as tokens, as names of models, as
ids and as settings of an address.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np
import pytest
from hostile_texts import SHAPES, texts

from flaxattn.store.find_texts import Found
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.encoded_weights import visible
from flaxattn.views.texts_page import texts_page
from flaxattn.views.trace_views import head_view

pytestmark = pytest.mark.browser

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
    """Nothing ran, was asked for or was reported while a test looked."""
    view.browser.get_log("performance")
    view.browser.get_log("browser")
    yield
    assert view.run("return window.seen") == []
    entries = [json.loads(e["message"])["message"] for e in view.browser.get_log("performance")]
    asked = [
        e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in asked if url.split(":")[0] not in ("file", "about")] == []
    said = [e for e in view.browser.get_log("browser") if e["source"] != "rendering"]
    assert said == []
    assert not view.run("return [...document.querySelectorAll('img, object, embed, base')].length")


def test_as_text(view, hostile, quiet):
    _, written, page = hostile
    view.open(page)
    assert view.texts(".left .piece") == view.texts(".right .piece") == written
    told = view.run(
        "return view.state.side.left.tokens.map((_, index) => {"
        "  view.state.letGo(); page.hold('left', index); page.point('right', index);"
        "  return document.querySelector('.panel h2').textContent;"
        "});"
    )
    assert told == [f"{text} → {text}" for text in written]
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
    }
    drawn = [e.text or "" for e in root.iter() if e.tag.endswith("}text")][1:]
    assert [visible(text) for text in drawn] == written * 2
    names = {name for e in root.iter() for name in e.attrib}
    assert not [name for name in names if name.startswith("on") or "href" in name]
    (tmp_path / "picture.svg").write_text(picture, encoding="utf-8")
    view.browser.get((tmp_path / "picture.svg").as_uri())
    shown = "return [...document.querySelectorAll('text')].slice(1).map((t) => t.textContent)"
    assert [visible(text) for text in view.browser.execute_script(shown)] == written * 2
    assert view.browser.execute_script("return window.seen") == []
    view.open(page)


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
    told = view.browser.execute_async_script(FRAMES)
    titles = [f"Attention heads · {text}" for text in written]
    assert [row[1:] for row in told] == [
        [title, text, 2, 0] for title, text in zip(titles, written, strict=True)
    ]
    assert [visible(row[0]) for row in told] == titles
    listed = [Found(n, text, text, text, 1) for n, text in enumerate(found)]
    text = texts_page(found[0], COUNT, listed, start=0, words=found[1], more=True)
    (tmp_path / "list.html").write_text(text, encoding="utf-8")
    view.browser.get((tmp_path / "list.html").as_uri())
    assert view.texts("td:nth-child(2)") == written
    assert view.texts("td bdi") == [t for text in written for t in (text, text)]
    assert view.run("return document.querySelector('input').value") == written[1]
    assert view.texts("title") == [f"{written[0]} · texts"]
    assert view.run("return document.scripts.length") == 0


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
    assert view.texts(".left .piece") == written
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
