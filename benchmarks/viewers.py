# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The head view beside those of BertViz and CircuitsVis on the same traces.

    python benchmarks/viewers.py [--tokens 32 64 128 512] [--out FILE] [--scripts FOLDER]
    python benchmarks/viewers.py --picture docs/viewers.png

The first command prints bytes, first paint and seconds per hover. What a BertViz page loads comes
from npm, or from FOLDER: require.js, d3.min.js and jquery.min.js. These are served from loopback to
a headless Chromium without a network, as all pages are; a BertViz page asks for jQuery 2.0.0, which
npm does not have, and gets 2.1.4. CircuitsVis has no choice of layers and gets all heads at once.
Attention is random and peaked, 12 layers of 12 heads by default. The second command takes the
picture of one text read by `tiny-bert` in all three as they open. Both need BertViz, CircuitsVis,
torch, selenium, Chromium and chromedriver.

First paint is from the start of navigation to the frame after the first line of attention (of
CircuitsVis, the first map) is there. A hover is from the pointer's event on a token to the end of
the frame that shows its effect, which is 16 ms where nothing is slow; CircuitsVis has no hover of
tokens. Rounds alternate between the programs; the median is printed. A page above --largest
megabytes is not opened: its size is computed from that of a smaller one.
"""

import argparse
import base64
import io
import json
import shutil
import statistics
import subprocess
import tarfile
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import circuitsvis
import numpy as np
from bertviz import head_view as bertviz_head_view
from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

import flaxattn as fa

CDN = "https://cdnjs.cloudflare.com/ajax/libs/"
FILES = {
    "/require.js/2.3.6/require.min.js": "require.js",
    "/d3/5.7.0/d3.min.js": "d3.min.js",
    "/jquery/2.0.0/jquery.min.js": "jquery.min.js",
}
# npm's packages, and which file of each is served.
PACKED = {
    "requirejs@2.3.6": "package/require.js",
    "d3@5.7.0": "package/dist/d3.min.js",
    "jquery@2.1.4": "package/dist/jquery.min.js",
}
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--window-size=1200,900",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# Runs before any script of a page. `ready` is put in place of READY, one for each program.
WATCH = """
const after = (done) => requestAnimationFrame(() => {
  const channel = new MessageChannel();
  channel.port1.onmessage = done;
  channel.port2.postMessage(0);
});
const look = () => {
  if ((() => READY)()) after(() => { window.painted = performance.now(); });
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
window.addEventListener("mouseover", () => {
  const start = performance.now();
  after(() => { (window.hovers = window.hovers || []).push(performance.now() - start); });
}, true);
"""
READY = {
    "bertviz": "document.querySelector('svg #attention line')",
    "circuitsvis": "document.querySelector('canvas')",
    "flaxattn": "(document.querySelector('main') || {}).flaxattn",
}
TOKEN = {"bertviz": "#left > g:not(.attentionBoxes) > g", "flaxattn": ".left .token[data-index]"}


TEXT = "The keys to the old wooden cabinet that the lawyers opened are on the table."
WIDTHS = {"flaxattn": 1060, "bertviz": 460, "circuitsvis": 620}  # of pages in the picture
GAP = 24  # pixels between two pages in the picture

HELD: dict[str, bytes] = {}


class Pages(BaseHTTPRequestHandler):
    """Hands out what is in HELD."""

    def do_GET(self):
        data = HELD.get(self.path)
        self.send_response(200 if data else 404)
        kind = "text/javascript" if self.path.endswith(".js") else "text/html; charset=utf-8"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, *_):
        pass


def scripts(folder):
    """What a BertViz page loads, by the names in FILES."""
    if folder:
        return {name: (folder / name).read_bytes() for name in FILES.values()}
    scripts_by_name = {}
    with tempfile.TemporaryDirectory() as place:
        for package, file in PACKED.items():
            command = ["npm", "pack", "--silent", package]
            packed = subprocess.run(command, cwd=place, check=True, capture_output=True, text=True)
            with tarfile.open(Path(place) / packed.stdout.split()[-1]) as archive:
                scripts_by_name[Path(file).name] = archive.extractfile(file).read()
    return scripts_by_name


def traced(layers, heads, length):
    """Random attention as a trace."""
    scores = 2 * np.random.default_rng(0).standard_normal((layers, 1, heads, length, length))
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares = (shares / shares.sum(-1, keepdims=True)).astype(np.float32)
    words = "the cat sat on a mat and looked out".split()
    return fa.Trace.from_arrays(shares, [[words[i % len(words)] for i in range(length)]])


def bertviz_page(trace, address):
    """BertViz's page, and the same with scripts from loopback."""
    page = bertviz_head_view(trace.attentions, list(trace.tokens[0]), html_action="return").data
    document = f"<!doctype html><meta charset=utf-8><body>{page}</body>"
    return document.encode(), document.replace(CDN, address).encode()


def circuitsvis_page(weights, tokens):
    """CircuitsVis' page of weights `[H, Q, K]`, its script inside."""
    made = circuitsvis.attention.attention_heads(weights, tokens, mask_upper_tri=False)
    return f"<!doctype html><meta charset=utf-8><body>{made.local_src}</body>".encode()


def all_heads(trace):
    """Weights `[L H, Q, K]` of all layers, and tokens."""
    layers = [np.asarray(layer)[0] for layer in trace.attentions]
    return np.concatenate(layers), list(trace.tokens[0])


def chromium(program):
    """A fresh headless browser."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    profile = tempfile.mkdtemp()
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    browser.set_page_load_timeout(300)
    browser.set_script_timeout(300)
    source = {"source": WATCH.replace("READY", READY[program])}
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
    return browser


def watched(program, address, hovers):
    """Seconds to first paint, and seconds of each hover, in a fresh browser."""
    browser = chromium(program)
    try:
        browser.get(address)
        WebDriverWait(browser, 300, 0.05).until(
            lambda b: b.execute_script("return window.painted > 0")
        )
        painted = browser.execute_script("return window.painted")
        taken = []
        for number in range(hovers if program in TOKEN else 0):
            where = "const b = document.querySelectorAll(arguments[0])[arguments[1]]"
            where += ".getBoundingClientRect(); window.hovers = [];"
            where += "return [b.x + Math.min(b.width / 2, 60), b.y + b.height / 2]"
            x, y = browser.execute_script(where, TOKEN[program], number)
            event = {"type": "mouseMoved", "x": x, "y": y}
            browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)
            WebDriverWait(browser, 120, 0.02).until(
                lambda b: b.execute_script("return window.hovers.length > 0")
            )
            taken.append(browser.execute_script("return Math.max(...window.hovers)") / 1e3)
        return painted / 1e3, taken
    finally:
        browser.quit()


def measured(address, programs, settings):
    """Medians over rounds that alternate between the programs."""
    paints = {name: [] for name in programs}
    hovers = {name: [] for name in programs}
    for _ in range(settings.rounds):
        for name in programs:
            paint, taken = watched(name, f"{address}{name}", settings.hovers)
            paints[name].append(paint)
            hovers[name] += taken[1:]  # the first one compiles
    return {
        name: {
            "first_paint_s": round(statistics.median(paints[name]), 3),
        }
        | (
            {
                "hover_s": round(statistics.median(hovers[name]), 4),
                "slowest_hover_s": round(max(hovers[name]), 4),
            }
            if hovers[name]
            else {}
        )
        for name in programs
    }


def rows(settings, address):
    """A row of figures for each length."""
    largest = {}  # by program: tokens and bytes of its largest page so far
    for length in settings.tokens:
        trace = traced(settings.layers, settings.heads, length)
        pages = {"flaxattn": fa.head_view(trace).html.encode()}
        sizes = {"flaxattn": len(pages["flaxattn"])}
        makers = {
            "bertviz": lambda trace=trace: bertviz_page(trace, address),
            "circuitsvis": lambda trace=trace: 2 * [circuitsvis_page(*all_heads(trace))],
        }
        for name, make in makers.items():
            known = largest.get(name)
            expected = known and known[1] * (length / known[0]) ** 2
            if expected and expected > settings.largest * 1e6:
                sizes[f"{name}, computed"] = round(expected)
            else:
                page, pages[name] = make()
                sizes[name] = len(page)
                largest[name] = (length, len(page))
        HELD.update({f"/{name}": page for name, page in pages.items()})
        yield {"tokens": length, "bytes": sizes} | measured(address, sorted(pages), settings)


def photograph(name, address):
    """A page as a picture."""
    browser = chromium(name)
    try:
        size = {"width": WIDTHS[name], "height": 760, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(address)
        browser.execute_async_script("setTimeout(arguments[0], 2000)")
        data = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
        return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
    finally:
        browser.quit()


def take_picture(path, address):
    """A text read by `tiny-bert` in the three viewers as they open, beside each other."""
    trace = fa.from_pretrained("tiny-bert").trace(TEXT)
    weights = np.asarray(trace.attentions[0])[0]
    HELD["/flaxattn"] = fa.head_view(trace).html.encode()
    HELD["/bertviz"] = bertviz_page(trace, address)[1]
    HELD["/circuitsvis"] = circuitsvis_page(weights, list(trace.tokens[0]))
    parts = [photograph(name, f"{address}{name}") for name in WIDTHS]
    size = (sum(part.width for part in parts) + GAP * (len(parts) - 1), parts[0].height)
    whole = Image.new("RGB", size, "#888")
    left = 0
    for part in parts:
        whole.paste(part, (left, 0))
        left += part.width + GAP
    whole.quantize(256, Image.Quantize.MEDIANCUT).save(path, optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scripts", type=Path, help="a folder with them; default asks npm")
    parser.add_argument("--tokens", type=int, nargs="+", default=[32, 64, 128, 512])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hovers", type=int, default=8)
    parser.add_argument("--largest", type=float, default=200, help="megabytes of a page")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path, help="take the picture only, into this file")
    settings = parser.parse_args()
    loaded = scripts(settings.scripts)
    HELD.update({path: loaded[name] for path, name in FILES.items()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    if settings.picture:
        take_picture(settings.picture, address)
        return
    measurements = []
    for row in rows(settings, address):
        print(json.dumps(row), flush=True)
        measurements.append(row)
    if settings.out:
        settings.out.write_text(json.dumps(measurements, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
