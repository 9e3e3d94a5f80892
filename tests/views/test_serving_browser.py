# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Walking through a store in a browser: list, text, next, back, atlas, head, sorted list."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import store_cases
from store_requests import serving

from flaxattn.trace.trace import Trace

pytestmark = pytest.mark.browser

COUNT, LAYERS, HEADS = 120, 2, 3
WIDTHS = (1440, 800, 390)


def entropies() -> np.ndarray:
    """Entropy `[N, L, H]` of each text."""
    return np.random.default_rng(1).gamma(2, 0.5, (COUNT, LAYERS, HEADS)).astype(np.float32)


@pytest.fixture(scope="module")
def server(peaked, tmp_path_factory) -> Iterator:
    """A server of a store of 120 texts, some about rain."""
    texts = []
    for number, values in enumerate(entropies()):
        tokens = f"[CLS] the {'rain' if number % 4 == 1 else 'sun'} came at last . [SEP]".split()
        trace = Trace.from_arrays(
            peaked(LAYERS, HEADS, len(tokens), seed=number).astype(np.float16),
            [tokens],
            special=np.array([[token.startswith("[") for token in tokens]]),
            texts=[(" ".join(tokens[1:-1]) + f" {'on the roofs ' * (number % 9)}{number}",)],
            model="tiny-bert",
        )
        stats = {"entropy": np.repeat(values[:, None, :, None], len(tokens), 3)}
        record = dataclasses.replace(trace.encoder, stats=stats)
        texts.append(dataclasses.replace(trace, encoder=record))
    path = store_cases.write(tmp_path_factory.mktemp("walk") / "store", texts, 40)
    with serving(path) as running:
        yield running


@pytest.fixture
def online(view) -> Iterator[None]:
    """The browser reaches this machine alone, and nothing breaks a policy."""
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    condition = "Network.emulateNetworkConditions"
    view.browser.execute_cdp_cmd(condition, {"offline": False, **network})
    view.browser.get_log("browser")
    yield
    lines = [e["message"] for e in view.browser.get_log("browser") if e["level"] == "SEVERE"]
    assert [message for message in lines if "status of 422" not in message] == []
    view.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    view.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    view.browser.execute_cdp_cmd(condition, {"offline": True, **network})
    view.browser.get("about:blank")


def arrived(view, path: str) -> None:
    """Wait until the browser is at a path below the token, whatever follows `#`."""
    wait = "location.pathname.split('/').slice(2).join('/') + location.search === arguments[0]"
    view.until(f"document.readyState === 'complete' && {wait}", path)


def link(view, text: str, within: str = "a"):
    """The link that reads so."""
    (found,) = (e for e in view.browser.find_elements("css selector", within) if e.text == text)
    return found


def test_from_the_list_to_a_text_and_on(view, server, online):
    view.browser.get(server.address)
    assert view.texts(".list .number")[:3] == ["0", "1", "2"]
    assert view.texts(".said p") == ["120 texts in the order of the corpus. Page 1 of 3."]
    link(view, "Next ›").click()
    arrived(view, "?page=2")
    assert view.texts(".list .number")[0] == "50"
    view.click(".list li:nth-child(3) .words")  # the whole row is a link
    arrived(view, "text/52")
    assert view.texts(".corpus > :not(a):not(.spring)") == ["Text 52", "corpus.txt:53", "53 of 120"]
    view.choose("layer", "1")
    view.head(2, twice=True)
    view.run("page.hold('left', 2)")
    view.find(".corpus .next").click()
    arrived(view, "text/53")
    view.until("page && page.state.layer === 1")
    assert view.run("return page.state.heads") == [2]  # the settings came along
    assert view.run("return [page.state.query, page.state.key]") == [None, None]
    assert view.heads_on() == ["2"]
    assert view.texts(".left .token-text")[2] == "rain"
    view.press("n")
    arrived(view, "text/54")
    view.press("p")
    arrived(view, "text/53")
    view.find(".corpus .back").click()
    arrived(view, "text/52")
    assert view.heads_on() == ["2"]
    view.press("l")
    arrived(view, "?page=2")


def test_the_ends_of_a_list_lead_nowhere(view, server, online):
    view.browser.get(f"{server.address}text/0")
    assert view.find(".corpus .back").get_attribute("href") is None
    assert view.find(".corpus .back").get_attribute("aria-disabled") == "true"
    view.press("p")
    arrived(view, "text/0")
    view.press("n")
    arrived(view, "text/1")


def test_a_search_is_kept_from_text_to_text(view, server, online):
    view.browser.get(server.address)
    view.find("input[type=search]").send_keys("RAIN")
    view.find("button.go").click()
    view.until("location.search.includes('q=RAIN')")
    assert view.texts(".list .number") == [str(n) for n in range(1, 120, 4)]
    assert set(view.texts(".list mark")) == {"rain"}
    colour = "return getComputedStyle(document.querySelector('mark')).backgroundColor"
    assert view.run(colour) in ("rgb(255, 242, 201)", "rgb(74, 61, 18)")  # --held
    view.find(".list li:nth-child(2)").click()
    arrived(view, "text/5?q=RAIN")
    assert view.texts(".corpus .place") == ["2 of 30 with “RAIN”"]
    view.press("n")
    arrived(view, "text/9?q=RAIN")
    view.press("l")
    arrived(view, "?q=RAIN")
    assert view.find("input[type=search]").get_attribute("value") == "RAIN"


def test_a_search_without_a_hit_says_how_to_continue(view, server, online):
    view.browser.get(f"{server.address}?q=snow")
    assert view.texts(".answer p")[0] == "No text contains “snow”."
    link(view, "Show all texts").click()
    arrived(view, "")
    assert len(view.texts(".list li")) == 50


def test_from_the_atlas_to_the_texts_of_a_head(view, server, online):
    view.browser.get(server.address)
    link(view, "Atlas").click()
    arrived(view, "atlas")
    view.until("page && view.drawn().length === 6")
    means = entropies().astype(np.float64).mean(0)
    shown = {(c["layer"], c["head"]): c["text"] for c in view.run("return view.drawn()")}
    expected = {(n, h): f"{means[n, h]:.2f}" for n in range(LAYERS) for h in range(HEADS)}
    assert shown == expected
    assert "Means over 120 texts" in view.texts("footer")[0]
    assert "list the texts" in view.texts(".panel .hint")[-1]
    view.click("button.cell[data-layer='1'][data-head='2']")
    requested = "?by=entropy&side=encoder&layer=1&head=2&order=desc"
    arrived(view, requested)
    values = entropies()[:, 1, 2]
    order = np.argsort(-values, kind="stable")
    assert view.texts(".list .number") == [str(n) for n in order[:50]]
    weights = [float(text) for text in view.texts(".list .value")]
    assert weights == pytest.approx(values[order[:50]].tolist(), rel=1e-3)
    script = (
        "return [...document.querySelectorAll('.list svg')].map((svg) => "
        "svg.querySelector('.share').getBoundingClientRect().width"
        " / svg.querySelector('.track').getBoundingClientRect().width)"
    )
    shares = (values[order[:50]] - values.min()) / (values.max() - values.min())
    assert view.run(script) == pytest.approx(shares.tolist(), abs=0.01)
    chosen = "return [...document.querySelectorAll('select')].map((s) => [s.name, s.value])"
    fields = {"by": "entropy", "layer": "1", "head": "2", "order": "desc"}
    assert dict(view.run(chosen)) == fields
    view.find(".list li:nth-child(2)").click()
    arrived(view, f"text/{order[1]}{requested}")
    view.until("page && page.state.layer === 1")
    assert view.heads_on() == ["2"]  # it opens at the head that the list is sorted by
    place = f"2 of 120, highest entropy of head 1.2 first: {values[order[1]]:#.4g}"
    assert view.texts(".corpus .place") == [place]
    view.press("n")
    arrived(view, f"text/{order[2]}{requested}")
    view.press("l")
    arrived(view, requested)
    link(view, "Lowest first").click()
    arrived(view, requested.replace("desc", "asc"))
    assert view.texts(".list .number")[0] == str(order[-1])


def test_only_a_sorted_list_asks_for_a_head(view, server, online):
    view.browser.get(server.address)
    visible = "return document.querySelector('[name=layer]').checkVisibility()"
    assert not view.run(visible)
    view.choose("by", "entropy")
    assert view.run(visible)


def test_the_keyboard_reaches_every_row(view, server, online):
    view.browser.get(f"{server.address}?q=rain")
    view.run("document.querySelector('button.go').focus()")
    view.press("TAB")
    focus = "const link = document.activeElement; return [link.textContent, link.className]"
    assert view.run(focus) == ["1", "number"]
    view.press("TAB")
    assert view.run(focus) == ["5", "number"]
    outline = "return getComputedStyle(document.activeElement, '::after').outlineStyle"
    assert view.run(outline) == "solid"
    view.press("ENTER")
    arrived(view, "text/5?q=rain")


CONTRAST = """
const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = (colour) => {
  const [r, g, b] = parts(colour).map((p) => p / 255)
    .map((p) => (p <= 0.03928 ? p / 12.92 : ((p + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const { backgroundColor } = getComputedStyle(at);
    if (parts(backgroundColor)[3] !== 0) return backgroundColor;
  }
  return "rgb(255, 255, 255)";
};
const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
const found = [];
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !node.checkVisibility()) continue;
  if (node.closest("option, [aria-disabled]")) continue;
  const [a, b] = [light(getComputedStyle(node).color), light(behind(node))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) found.push([node.textContent.slice(0, 30), ratio]);
}
return found;
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_lists_fit_every_width_and_can_be_read_in_both_themes(view, server, online, theme, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    view.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    view.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    for path in ("", "?q=rain&by=entropy&layer=1&head=2", "?q=snow", "?by=lse", "?page=3"):
        view.browser.get(server.address + path)
        paper = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}[theme]
        assert view.run("return getComputedStyle(document.body).backgroundColor") == paper
        assert view.run("return document.documentElement.scrollWidth <= innerWidth"), path
        assert view.run(CONTRAST) == []
    view.browser.get(f"{server.address}text/5?q=rain")
    assert view.run("return document.querySelector('.corpus').scrollWidth <= innerWidth")
    script = CONTRAST.replace('"main"', '".corpus"')
    assert view.run(script) == []
