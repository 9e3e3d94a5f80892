# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pages to photograph, and how: the same picture on every machine, whatever fonts it has.

Traces are random numbers, so no model takes part. All text is set in a font made here, in which
every character is the same bar: places, lengths and colours of texts can be compared, their letters
are what other tests read. `make_view_golden.py` stores the pictures; a test compares with them.
"""

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from PIL import Image

from flaxattn.store.find_texts import Found
from flaxattn.store.open_store import open_store
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views import trace_views as doors
from flaxattn.views.texts_page import texts_page

FOLDER = Path(__file__).with_name("views")
WIDTH, HEIGHT = 1000, 640  # CSS pixels of the window, each a pixel of the screen
SMALLER = 2  # pixels of the screen in one of a golden, in each direction
APART = 28  # of 255, in any colour: a pixel of a golden that differs by more counts
SHARE = 0.0015  # of the pixels may: an edge drawn otherwise, not a line or a colour
THEMES = ("light", "dark")
TOKENS = "[CLS] the cat is sad . [SEP] it found no food . [SEP]".split()
DEPTH = 12


def shares(scores: np.ndarray) -> np.ndarray:
    """Softmax over the last axis."""
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    return (parts / parts.sum(-1, keepdims=True)).astype(np.float32)


def trace(seed: int = 0, texts: int = 1) -> Trace:
    """Three layers of four heads that read two sentences, with their vectors."""
    rng = np.random.RandomState(seed)
    length = len(TOKENS)
    query, key, value = 1.6 * rng.standard_normal((3, 3, texts, length, 4, DEPTH))
    scores = DEPTH**-0.5 * np.einsum("lbqhd,lbkhd->lbhqk", query, key)
    seen = AttentionRecord(
        weights=shares(scores),
        query=query.astype(np.float32),
        key=key.astype(np.float32),
        value=value.astype(np.float32),
        layers=(0, 1, 2),
        heads=(0, 1, 2, 3),
        scale=DEPTH**-0.5,
    )
    special = np.array([[token.startswith("[") for token in TOKENS]] * texts)
    segments = np.array([[int(i > TOKENS.index("[SEP]")) for i in range(length)]] * texts)
    said = {"special": special, "segments": segments, "model": "random"}
    return Trace(encoder=seen, tokens=[TOKENS] * texts, **said)


def compared(folder: Path) -> Path:
    """Two traces of one text."""
    page = doors.compare_view(trace(), trace(1), names=("before", "after"))
    return page.save(folder / "compared.html")


def one(folder: Path) -> Path:
    """One trace."""
    return doors.head_view(trace(), 0).save(folder / "one.html")


def corpus(folder: Path) -> Path:
    """The means of a store."""
    import store_cases

    path = folder / "store"
    if not path.exists():
        store_cases.write(path, store_cases.traces("statistics", 3))
    return doors.atlas_view(open_store(path)).save(folder / "corpus.html")


def texts(folder: Path) -> Path:
    """The list of texts that `--serve` shows."""
    words = "the old clock in the hall stopped and nobody knew why it was so late".split()
    found = [
        Found(n, f"corpus.txt:{n + 1}", " ".join(words[n % 5 :] * (1 + n % 4)), None, 9 + n)
        for n in range(18)
    ]
    text = texts_page("store", 100_000, found, start=50, words="", more=True)
    path = folder / "texts.html"
    path.write_text(text, encoding="utf-8")
    return path


# Name, what makes the page, and the settings in its address.
CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "atlas": (one, "level=atlas&measure=entropy&layer=1&heads=2"),
    "model": (one, "level=model&layer=1&heads=2"),
    "lines": (one, "level=head&layer=1&mass=60"),
    "token": (one, "level=head&layer=1&query=2&heads=0-2"),
    "matrix": (one, "level=head&layer=1&heads=2&drawing=matrix"),
    "neuron": (one, "level=neuron&layer=1&heads=2&query=3"),
    "compare": (compared, "level=head&layer=1&heads=0-1&compare=difference&mass=60"),
    "corpus": (corpus, "level=atlas"),
    "texts": (texts, ""),
}


def font() -> bytes:
    """A TrueType font whose characters are bars of one width; blanks are blank."""
    pen = TTGlyphPen(None)
    for number, place in enumerate([(60, 0), (60, 520), (440, 520), (440, 0)]):
        (pen.lineTo if number else pen.moveTo)(place)
    pen.closePath()
    names = [".notdef", "blank", "bar"]
    bar, blank = pen.glyph(), TTGlyphPen(None).glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    characters = [*range(0x20, 0x500), *range(0x2000, 0x2800)]
    blanks = {0x20, 0xA0, *range(0x2000, 0x2010)}
    builder.setupCharacterMap({c: "blank" if c in blanks else "bar" for c in characters})
    builder.setupGlyf({".notdef": bar, "blank": blank, "bar": bar})
    builder.setupHorizontalMetrics({name: (500, 60) for name in names})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Bars", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, sTypoDescender=-200, usWinAscent=800, usWinDescent=200)
    builder.setupPost()
    stream = io.BytesIO()
    builder.save(stream)
    return stream.getvalue()


# Before any script of a page: its text is set in the font, on canvases too, and nothing moves.
PREPARE = """
const bytes = Uint8Array.from(atob("FONT"), (c) => c.charCodeAt(0));
document.fonts.add(new FontFace("Bars", bytes.buffer, { weight: "1 1000" }));
const sheet = new CSSStyleSheet();
sheet.replaceSync(`*, *::before, *::after { font-family: Bars !important;
  text-rendering: geometricPrecision !important; /* no width is rounded as a system likes it */
  font-variant: normal !important; transition: none !important; animation: none !important; }
  select, input[type=search] { appearance: none !important; }`);
document.adoptedStyleSheets = [sheet];
const pen = CanvasRenderingContext2D.prototype;
const { get, set } = Object.getOwnPropertyDescriptor(pen, "font");
Object.defineProperty(pen, "font", {
  get,
  set(text) {
    set.call(this, text.replace(/(px|em).*$/, "$1 Bars"));
    this.textRendering = "geometricPrecision";
  },
});
"""
SETTLE = """
const done = arguments[0];
const look = (left) => {
  const waits = document.querySelector("[data-waiting]:not([data-waiting='0'])");
  const page = document.querySelector("main.flaxattn");
  if (waits || (page && !page.flaxattn)) return setTimeout(() => look(left), 20);
  return left ? requestAnimationFrame(() => look(left - 1)) : done();
};
document.fonts.ready.then(() => look(4));
"""


def photograph(browser: Any, page: Path, settings: str, theme: str) -> Image.Image:
    """What a window of a fixed size shows of a page, made smaller."""
    source = PREPARE.replace("FONT", base64.b64encode(font()).decode("ascii"))
    command = browser.execute_cdp_cmd
    made = command("Page.addScriptToEvaluateOnNewDocument", {"source": source})
    size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    feature = {"name": "prefers-color-scheme", "value": theme}
    try:
        command("Emulation.setDeviceMetricsOverride", size)
        command("Emulation.setEmulatedMedia", {"features": [feature]})
        command("Emulation.setScrollbarsHidden", {"hidden": True})
        browser.get("about:blank")
        browser.get(f"{page.as_uri()}#{settings}{'&' if settings else ''}theme={theme}")
        command("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 1, "y": 1})
        browser.execute_async_script(SETTLE)
        data = command("Page.captureScreenshot", {"format": "png"})["data"]
    finally:
        command("Page.removeScriptToEvaluateOnNewDocument", made)
        command("Emulation.clearDeviceMetricsOverride", {})
        command("Emulation.setEmulatedMedia", {"features": []})
        command("Emulation.setScrollbarsHidden", {"hidden": False})
    image = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
    assert image.size == (WIDTH, HEIGHT), image.size
    return image.reduce(SMALLER)


def path_of(name: str, theme: str) -> Path:
    """Where the golden of a case is."""
    return FOLDER / f"{name}-{theme}.png"


def apart(one: Image.Image, other: Image.Image) -> np.ndarray:
    """Which pixels `[row, column]` differ by more than how edges are smoothed."""
    first, second = (np.asarray(image.convert("RGB"), np.int16) for image in (one, other))
    return np.abs(first - second).max(-1) > APART
