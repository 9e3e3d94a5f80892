# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One browser for all tests of views, spoken to as a person would, and a page to look at.

The browser is that of `tests/fixtures/headless_chromium.py`. No test is in this file.
"""

import base64
import dataclasses
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import ERROR
from flaxattn.views.trace_views import head_view


class View:
    """A page in the browser."""

    def __init__(self, browser: Any):
        self.browser = browser
        self.number = 0

    def open(self, path: Path, settings: str = "") -> "View":
        """Load a page anew, with settings in its address, the pointer away from its tokens."""
        self.number += 1
        self.browser.get(f"{path.as_uri()}?{self.number}#{settings}")
        self.until("Boolean(page)")
        self.point("h1")
        return self

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a function body; `page` is the object behind the page, `view` its open level."""
        start = "const page = document.querySelector('main').flaxattn, view = page && page.level;"
        return self.browser.execute_script(start + script, *arguments)

    def until(self, condition: str, *arguments: Any) -> None:
        """Wait for what the page does later; `condition` is an expression."""
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.browser, 30, 0.05).until(
            lambda _: self.run(f"return {condition}", *arguments)
        )

    def lines(self) -> dict[tuple[int, int, int], float]:
        """What is on the canvas: (head, query, key) to weight."""
        return {
            (line["head"], line["query"], line["key"]): line["weight"]
            for line in self.run("return view.drawn().lines")
        }

    def assert_draws(
        self,
        shares: np.ndarray,
        *,
        heads: Iterable[int] | None = None,
        queries: Iterable[int] | None = None,
        keys: Iterable[int] | None = None,
        error: float = ERROR["float16"],
    ) -> None:
        """The lines on the canvas are the chosen part of weights `[H, Q, K]`, all above 0."""
        chosen = [
            range(size) if part is None else list(part)
            for size, part in zip(shares.shape, (heads, queries, keys), strict=True)
        ]
        expected = {(h, q, k) for h in chosen[0] for q in chosen[1] for k in chosen[2]}
        drawn = self.lines()
        assert drawn.keys() == expected
        assert max(abs(drawn[line] - shares[line]) for line in expected) <= error + 1e-6

    def find(self, selector: str) -> Any:
        """The first element that a CSS selector matches."""
        return self.browser.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        """Text of all elements that match, exactly as it is in the document."""
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        return self.run(script, selector)

    def token(self, side: str, index: int) -> str:
        """Selector of a token."""
        return f".{side} [data-index='{index}']"

    def actions(self) -> Any:
        """A new chain of mouse and keyboard actions."""
        from selenium.webdriver import ActionChains

        return ActionChains(self.browser, duration=0)

    def point(self, selector: str) -> None:
        """Move the pointer onto an element."""
        self.actions().move_to_element(self.find(selector)).perform()

    def click(self, selector: str) -> None:
        """Click an element."""
        self.actions().click(self.find(selector)).perform()

    def press(self, *names: str) -> None:
        """Press keys, wherever the focus is; Selenium's names for those that write nothing."""
        from selenium.webdriver.common.keys import Keys

        self.actions().send_keys(*(getattr(Keys, name, name) for name in names)).perform()

    def head(self, index: int, twice: bool = False) -> None:
        """Click the square of a head, or double-click it, however slow the machine is."""
        box = "document.querySelectorAll('button.head')[arguments[0]].getBoundingClientRect()"
        x, y = self.run(f"const box = {box}; return [box.x + box.width / 2, box.y + 9]", index)
        for count in (1, 2) if twice else (1,):
            for kind in ("mousePressed", "mouseReleased"):
                event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": count}
                self.browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)

    def heads_on(self) -> list[str]:
        """Numbers on the squares that are pressed."""
        return self.texts("button.head[aria-pressed=true]")

    def choose(self, name: str, value: str) -> None:
        """Choose from a drop-down list by the value an address would hold."""
        from selenium.webdriver.support.select import Select

        Select(self.find(f"select[name={name}]")).select_by_value(value)

    def slide(self, percent: int) -> None:
        """Move the slider of mass."""
        script = "const s = document.querySelector('[name=mass]'); s.value = arguments[0];"
        self.run(script + "s.dispatchEvent(new Event('input'))", percent)

    def svg(self) -> str:
        """Press the button that saves a picture; what would have been saved."""
        self.run("window.download = (...file) => { window.saved = file; }")
        self.click("button.svg")
        name, kind, text = self.run("return window.saved")
        assert (name.endswith(".svg"), kind) == (True, "image/svg+xml")
        return text

    def png(self) -> Image.Image:
        """Press the button that saves an image; what would have been saved."""
        data = self.browser.execute_async_script(
            "const done = arguments[0];"
            "window.download = (name, kind, blob) => {"
            "  const reader = new FileReader();"
            "  reader.addEventListener('load', () => done(reader.result));"
            "  reader.readAsDataURL(blob);"
            "};"
            "document.querySelector('button.png').click();"
        )
        return Image.open(io.BytesIO(base64.b64decode(data.split(",")[1])))


@pytest.fixture(scope="session")
def view(chromium: Any) -> View:
    """The browser."""
    return View(chromium)


@pytest.fixture(scope="session")
def peaked() -> Callable[..., np.ndarray]:
    """Makes attention `[L, 1, H, Q, K]` with some large and many small weights."""

    def make(
        layers: int, heads: int, length: int, seed: int = 0, keys: int | None = None
    ) -> np.ndarray:
        shape = (layers, 1, heads, length, keys or length)
        scores = np.random.default_rng(seed).normal(size=shape) * 2
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return (shares / shares.sum(-1, keepdims=True)).astype(np.float32)

    return make


@dataclasses.dataclass(frozen=True)
class Pair:
    """A trace of two sentences and the page made of it."""

    trace: Trace
    shares: np.ndarray  # [L, H, Q, K]
    tokens: list[str]
    boundary: int
    special: list[int]
    page: Path

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.tokens)


@pytest.fixture(scope="session")
def pair(peaked: Callable[..., np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Two layers, three heads."""
    tokens = "[CLS] the cat is sad . [SEP] it found no food . [SEP]".split()
    special = [i for i, token in enumerate(tokens) if token.startswith("[")]
    positions = np.arange(len(tokens))[None]
    trace = Trace.from_arrays(
        peaked(2, 3, len(tokens)),
        [tokens],
        mask=np.ones(positions.shape, bool),
        segments=(positions > special[1]).astype(int),
        special=np.isin(positions, special),
        model="tiny-bert",
    )
    page = head_view(trace, 0, precision="float16").save(
        tmp_path_factory.mktemp("pair") / "pair.html"
    )
    shares = np.asarray(trace.encoder.weights)[:, 0]
    return Pair(trace, shares, tokens, special[1] + 1, special, page)


@dataclasses.dataclass(frozen=True)
class Translation:
    """A trace of a source and its target, unequal in depth and heads, and the page made of it."""

    trace: Trace
    shares: dict[str, np.ndarray]  # [L, H, Q, K] by side
    source: list[str]
    read: list[str]
    written: list[str]
    page: Path

    def square(self, layer: int) -> np.ndarray:
        """The joined weights `[H, S + T, S + T]` of a layer; zero where a block lacks it."""
        s, t = len(self.source), len(self.written)
        heads = max(array.shape[1] for array in self.shares.values())
        joined = np.zeros((heads, s + t, s + t), np.float32)
        for side, rows, columns in (
            ("encoder", slice(s), slice(s)),
            ("cross", slice(s, None), slice(s)),
            ("decoder", slice(s, None), slice(s, None)),
        ):
            if layer < len(self.shares[side]):
                block = self.shares[side][layer]
                joined[: len(block), rows, columns] = block
        return joined


@pytest.fixture(scope="session")
def translation(
    peaked: Callable[..., np.ndarray], tmp_path_factory: pytest.TempPathFactory
) -> Translation:
    """Three encoder layers of two heads, two decoder layers of four; some padding on each side."""
    source = ["<b>ein</b>", " Ha", "us", " am", " See", "</s>"]
    written = [" a", " lake", "house", " &amp;", "</s>"]
    read = ["<s>", *written[:-1]]
    encoder = peaked(3, 2, 6)
    cross = peaked(2, 4, 5, seed=1, keys=6)
    decoder = np.tril(peaked(2, 4, 5, seed=2))
    decoder /= decoder.sum(-1, keepdims=True)
    padded = [np.zeros((a.shape[0], 1, a.shape[2], 7, 7), np.float32) for a in (encoder, decoder)]
    padded.append(np.zeros((2, 1, 4, 7, 7), np.float32))
    for whole, part in zip(padded, (encoder, decoder, cross), strict=True):
        whole[..., : part.shape[3], : part.shape[4]] = part
    trace = Trace.from_arrays(
        padded[0],
        [[*source, "<pad>"]],
        decoder_weights=padded[1],
        cross_weights=padded[2],
        decoder_tokens=[[*read, "<pad>", "<pad>"]],
        written=[[*written, "<pad>", "<pad>"]],
        words=[[0, 1, 1, 2, 3, None, None]],
        decoder_words=[[0, 1, 1, 2, None, None, None]],
        special=np.array([[0, 0, 0, 0, 0, 1, 1]], bool),
        decoder_special=np.array([[1, 0, 0, 0, 0, 1, 1]], bool),
        mask=np.arange(7)[None] < 6,
        decoder_mask=np.arange(7)[None] < 5,
        model="tiny-de-en",
    )
    page = head_view(trace, 0, precision="float16").save(
        tmp_path_factory.mktemp("sides") / "sides.html"
    )
    shares = {"encoder": encoder[:, 0], "decoder": decoder[:, 0], "cross": cross[:, 0]}
    return Translation(trace, shares, source, read, written, page)
