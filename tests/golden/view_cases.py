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

from flaxattn.measures.claims import Claim, TopText
from flaxattn.measures.gold_pairs import STRONGEST, GoldPair, GoldPairs, PairExamples, judged_pairs
from flaxattn.store.head_numbers import Ranking, SideStatistics
from flaxattn.store.open_store import StoredText, open_store
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.token_predictions import Predictions
from flaxattn.trace.trace import Trace
from flaxattn.views import trace_views
from flaxattn.views.evidence_page import EvidenceReport, Numbers, evidence_page
from flaxattn.views.payloads.report_payload import HeadPages, MeasuredEffects
from flaxattn.views.texts_page import ListQuery, TextList, TextsPage, texts_page

FOLDER = Path(__file__).with_name("views")
WIDTH, HEIGHT = 1000, 640  # CSS pixels of the window, each a pixel of the screen
WIDE = 1440  # where three pictures stand beside each other
SMALLER = 2  # pixels of the screen in one of a golden, in each direction
APART = 28  # of 255, in any colour: a pixel of a golden that differs by more counts
SHARE = 0.0015  # of the pixels may: an edge drawn otherwise, not a line or a colour
THEMES = ("light", "dark")
TOKENS = "[CLS] the cat is sad . [SEP] it found no food . [SEP]".split()
DEPTH = 12
# Addresses of each level of the page of one trace, by name.
LEVELS = {
    "atlas": "level=atlas",
    "atlas by number": "level=atlas&order=value",
    "model": "level=model",
    "lines": "level=head&layer=0&heads=0-1",
    "token": "level=head&layer=1&query=3",
    "matrix": "level=head&drawing=matrix&query=2",
    "neuron": "level=neuron&query=3&numbers=on",
    "walk": "level=neuron&query=3&walk=product",
    "text": "level=text&query=3",
}


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
    record = AttentionRecord(
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
    metadata = {"special": special, "segments": segments, "model": "random"}
    return Trace(encoder=record, tokens=[TOKENS] * texts, **metadata)


def compared(folder: Path) -> Path:
    """Two traces of one text."""
    page = trace_views.compare_view(trace(), trace(1), names=("before", "after"))
    return page.save(folder / "compared.html")


def one(folder: Path) -> Path:
    """One trace."""
    return trace_views.head_view(trace(), 0).save(folder / "one.html")


PAIRS = {"subject": [(0, 3), (2, 3), (4, 2), (9, 7), (10, 9)]}


def gold(folder: Path) -> Path:
    """One trace with gold pairs."""
    return trace_views.head_view(trace(), 0, pairs=PAIRS).save(folder / "gold.html")


def profile(folder: Path) -> Path:
    """The page of a head in a report, with examples of its claim."""
    shown = trace()
    pairs = [GoldPair((query, query), ((key, key),)) for query, key in PAIRS["subject"]]
    assert shown.encoder is not None
    hits = judged_pairs(pairs, shown.encoder)
    found = GoldPairs("subject", "each word and its subject", STRONGEST, pairs, hits)
    numbers = np.random.default_rng(5).uniform(0, 6, (3, 4)).round(2)
    claimed = [Claim("subject", 1, 2, 5.0, "p 0.001", texts=(TopText(0, 9.0),))]
    heads = HeadPages(
        texts=20,
        shares={"previous": numbers / 7, "sep": numbers / 9},
        intervals={("subject", 1, 2): (4.5, 5.5)},
        level="95 % interval",
        examples=PairExamples(claimed, 2),
        broken=np.zeros((3, 4), int),
        effects=MeasuredEffects(
            {"ablate: ablation": (numbers / 10, numbers / 12, numbers / 8)}, "Mean loss 2."
        ),
        command="",
    )
    by_side = {"encoder": Numbers((0, 1, 2), (0, 1, 2, 3), {"subject": numbers})}
    report = EvidenceReport("Roles", "model", "Of 20 texts.", by_side, "score", heads=heads)
    page = evidence_page(report, claimed, [0], [shown], lambda *_: {"encoder": [found]})
    return page.save(folder / "profile.html")


def predicted(folder: Path) -> Path:
    """A decoder with next tokens and what each head adds to their logits."""
    rng, length = np.random.default_rng(6), len(TOKENS)
    ids = np.arange(length)[None]
    likeliest = np.log(np.sort(rng.dirichlet(np.ones(5), (1, length)), -1)[..., ::-1][..., :3])
    predictions = Predictions(
        [[*TOKENS[1:], TOKENS[0]]],
        [[TOKENS[1:4]] * length],
        ids=ids,
        targets=np.roll(ids, -1),
        follows=ids < length - 1,
        likeliest=likeliest.astype(np.float32),
        log_probability=likeliest[..., 0].astype(np.float32),
        rank=np.ones_like(ids),
        heads=rng.normal(size=(1, length, 3, 4)).astype(np.float32),
        feed_forward=rng.normal(size=(1, length, 3)).astype(np.float32),
        embedding=rng.normal(size=(1, length)).astype(np.float32),
        bias=rng.normal(size=(1, length)).astype(np.float32),
    )
    weights = np.tril(shares(2 * rng.normal(size=(3, 1, 4, length, length))))
    weights /= weights.sum(-1, keepdims=True)
    made = Trace.from_arrays(tokens=[TOKENS], decoder_weights=weights, decoder_tokens=[TOKENS])
    read = Trace(**{**vars(made), "predictions": predictions, "decoder_tokens": ()})
    return trace_views.head_view(read, 0).save(folder / "predicted.html")


def corpus(folder: Path) -> Path:
    """The means of a store."""
    import store_cases

    path = folder / "store"
    if not path.exists():
        store_cases.write(path, store_cases.traces("statistics", 3))
    return trace_views.atlas_view(open_store(path)).save(folder / "corpus.html")


def claims(folder: Path) -> Path:
    """A page with claims of every family."""
    names = ["local", "sep", "governor(nsubj)", "dependent(obj)", "mention", "rare", "copy"]
    names += ["entropy", "divergence"]
    values = np.random.default_rng(4).uniform(0, 6, (4, 6)).round(2)
    numbers = Numbers(range(4), range(6), dict.fromkeys(names, values))
    made = [Claim(name, n % 4, (n * k) % 6, 3.0) for n, name in enumerate(names) for k in (1, 2)]
    report = EvidenceReport("Roles", "model", "Of 20 texts.", {"encoder": numbers}, "score")
    return evidence_page(report, made, (), ()).save(folder / "claims.html")


def texts(folder: Path) -> Path:
    """The list of texts that `--serve` shows."""
    words = "the old clock in the hall stopped and nobody knew why it was so late".split()
    found = [
        StoredText(n, f"corpus.txt:{n + 1}", " ".join(words[n % 5 :] * (1 + n % 4)), None, 9 + n)
        for n in range(18)
    ]
    values = np.linspace(2.9, 1.1, 1000)
    ranking = Ranking(np.arange(1000), values, 100_000, 0, 0.2, 2.9)
    sides = {"encoder": SideStatistics((0, 1, 2, 3), (0, 1, 2), ("entropy", "distance"))}
    query = ListQuery("", "entropy", "encoder", 3, 1)
    listed = TextList(ranking.examples, ranking, True, 100_000)
    text = texts_page(TextsPage("store", query, listed, found, sides))
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
    "text": (one, "level=text&layer=1&query=2&heads=0-2"),
    "neuron": (one, "level=neuron&layer=1&heads=2&query=3"),
    "walk": (one, "level=neuron&layer=1&heads=2&query=3&walk=product"),
    "compare": (compared, "level=head&layer=1&heads=0-1&compare=difference&mass=60"),
    "together": (compared, "level=head&layer=1&heads=0-1&compare=together&mass=60&query=3"),
    "together-matrix": (compared, "level=head&layer=1&heads=1&compare=together&drawing=matrix"),
    "corpus": (corpus, "level=atlas"),
    "texts": (texts, ""),
    "claims": (claims, "measure=local"),
    "gold": (gold, "level=head&layer=1&heads=2&gold=subject"),
    "gold-matrix": (gold, "level=head&layer=1&heads=2&gold=subject&drawing=matrix"),
    "profile": (profile, "head=1.2"),
    "predicted": (predicted, "level=head&layer=1&heads=2&query=4"),
    "surprise": (predicted, "level=text&direction=surprise"),
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
  const page = document.scripts.length && document.querySelector("main.flaxattn");
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
    width = WIDE if "compare=together" in settings else WIDTH
    size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
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
    assert image.size == (width, HEIGHT), image.size
    return image.reduce(SMALLER)


def path_of(name: str, theme: str) -> Path:
    """Where the golden of a case is."""
    return FOLDER / f"{name}-{theme}.png"


def apart(one: Image.Image, other: Image.Image) -> np.ndarray:
    """Which pixels `[row, column]` differ by more than how edges are smoothed."""
    first, second = (np.asarray(image.convert("RGB"), np.int16) for image in (one, other))
    return np.abs(first - second).max(-1) > APART
