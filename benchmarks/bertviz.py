# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The head view beside BertViz's on the same traces: bytes, first paint, and seconds per hover.

    python -P benchmarks/bertviz.py [--tokens 32 64 128 512] [--out FILE] [--scripts FOLDER]

-P keeps this file from being taken for BertViz. What a BertViz page loads comes from npm, or from
FOLDER: require.js, d3.min.js and jquery.min.js.
These are served from loopback to a headless Chromium without a network, as both pages are; a
BertViz page asks for jQuery 2.0.0, which npm does not have, and gets 2.1.4. Attention is random and
peaked, 12 layers of 12 heads by default. It needs BertViz, torch, selenium, Chromium and
chromedriver.

First paint is from the start of navigation to the frame after the first line of attention is there.
A hover is from the pointer's event on a token to the end of the frame that shows its effect, which
is 16 ms where nothing is slow. Rounds alternate between the two; the median is told. A page above
--largest megabytes is not opened: its size is computed from that of a smaller one.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import tarfile
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from bertviz import head_view as bertviz_head_view
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
    "flaxattn": "(document.querySelector('main') || {}).flaxattn",
}
TOKEN = {"bertviz": "#left > g:not(.attentionBoxes) > g", "flaxattn": ".left .token[data-index]"}


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
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for package, file in PACKED.items():
            command = ["npm", "pack", "--silent", package]
            said = subprocess.run(command, cwd=place, check=True, capture_output=True, text=True)
            with tarfile.open(Path(place) / said.stdout.split()[-1]) as archive:
                found[Path(file).name] = archive.extractfile(file).read()
    return found


def traced(layers, heads, length):
    """Random attention as a trace."""
    scores = 2 * np.random.default_rng(0).standard_normal((layers, 1, heads, length, length))
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares = (shares / shares.sum(-1, keepdims=True)).astype(np.float32)
    words = "the cat sat on a mat and looked out".split()
    return fa.Trace.from_arrays(shares, [[words[i % len(words)] for i in range(length)]])


def theirs(trace, address):
    """BertViz's page, its scripts from loopback."""
    page = bertviz_head_view(trace.attentions, list(trace.tokens[0]), html_action="return").data
    document = f"<!doctype html><meta charset=utf-8><body>{page}</body>"
    return document.encode(), document.replace(CDN, address).encode()


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
        for number in range(hovers):
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
            "hover_s": round(statistics.median(hovers[name]), 4),
            "slowest_hover_s": round(max(hovers[name]), 4),
        }
        for name in programs
    }


def rows(settings, address):
    """A row of figures for each length."""
    known = None  # tokens and bytes of the largest page of BertViz so far
    for length in settings.tokens:
        trace = traced(settings.layers, settings.heads, length)
        ours = fa.head_view(trace).html.encode()
        pages, row = {"flaxattn": ours}, {"tokens": length, "bytes": {"flaxattn": len(ours)}}
        expected = known and known[1] * (length / known[0]) ** 2
        if expected and expected > settings.largest * 1e6:
            row["bytes"]["bertviz, computed"] = round(expected)
        else:
            page, pages["bertviz"] = theirs(trace, address)
            row["bytes"]["bertviz"] = len(page)
            known = (length, len(page))
        HELD.update({f"/{name}": page for name, page in pages.items()})
        yield row | measured(address, sorted(pages), settings)


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
    settings = parser.parse_args()
    loaded = scripts(settings.scripts)
    HELD.update({path: loaded[name] for path, name in FILES.items()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = []
    for row in rows(settings, f"http://127.0.0.1:{server.server_port}/"):
        print(json.dumps(row), flush=True)
        found.append(row)
    if settings.out:
        settings.out.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
