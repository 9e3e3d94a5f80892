# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pages of long texts in headless Chromium: time to open, and frames while pointing and panning.

    python benchmarks/large_views.py [--rounds 3]

512 tokens in 144 heads as lines and as a matrix, 4,096 tokens in one head as a matrix, seen whole
and zoomed in, and another layer in each frame at 128 tokens. "opens" is from asking for the file to
the end of the second frame after all has been drawn. Frames are counted by `requestAnimationFrame`:
in each one, the pointer moves on. Every round goes through all cases; prints medians over rounds,
and the slowest opening.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import numpy as np

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--force-device-scale-factor=1")
FRAMES = 120
# Every action is called once per frame with the number of the frame.
FRAME = """
const done = arguments[arguments.length - 1];
const view = document.querySelector("main").flaxattn;
const act = new Function("view", "i", arguments[0]);
const times = [];
const next = (now) => {
  times.push(now);
  if (times.length > arguments[1]) return done(times.slice(1).map((time, i) => time - times[i]));
  act(view, times.length);
  requestAnimationFrame(next);
};
requestAnimationFrame(next);
"""
POINT_LINES = "view.point('left', (7 * i) % view.state.side.left.tokens.length);"
POINT_CELLS = """
const { stage, place } = view.level.matrix;
const box = stage.getBoundingClientRect();
const clientX = box.left + place.left + ((37 * i) % place.width);
const clientY = box.top + place.top + ((23 * i) % place.height);
stage.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true }));
"""
PAN = """
view.level.matrix.stage.dispatchEvent(
  new WheelEvent("wheel", { deltaX: 9, deltaY: 9, bubbles: true, cancelable: true }));
"""
ALL_HEADS = "heads=0,1,2,3,4,5,6,7,8,9,10,11&mass=100"
LAYER = "view.update({ layer: i % 12 });"
CASES = (
    ("lines, another layer", (12, 12, 128), "", "", LAYER),
    ("lines, all heads, another layer", (12, 12, 128), ALL_HEADS, "", LAYER),
    ("lines", (12, 12, 512), "", "", POINT_LINES),
    ("lines, all heads", (12, 12, 512), ALL_HEADS, "", POINT_LINES),
    ("matrix", (12, 12, 512), "drawing=matrix", "", POINT_CELLS),
    ("matrix, pointing", (1, 1, 4096), "drawing=matrix", "", POINT_CELLS),
    ("matrix zoomed, panning", (1, 1, 4096), "drawing=matrix", "zoom(8)", PAN),
    ("matrix zoomed out by half, panning", (1, 1, 4096), "drawing=matrix", "zoom(2)", PAN),
)


def make(folder: Path, layers: int, heads: int, length: int) -> Path:
    """A page of attention that falls off with distance."""
    from flaxattn.trace.trace import Trace
    from flaxattn.views.trace_views import head_view

    path = folder / f"{layers}-{heads}-{length}.html"
    if not path.exists():
        rng, places = np.random.default_rng(0), np.arange(length)
        scores = 2 * rng.normal(size=(layers, 1, heads, length, length)).astype(np.float32)
        scores -= 0.05 * np.abs(places[:, None] - places)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        trace = Trace.from_arrays(shares, [[f"word{i}" for i in range(length)]])
        head_view(trace).save(path)
    return path


def browser(folder: str):
    """A headless Chromium."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, names)))
    for flag in (*FLAGS, "--window-size=1200,900", f"--user-data-dir={folder}/profile"):
        options.add_argument(flag)
    made = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    made.set_script_timeout(120)
    return made


def measure(chromium, path: Path, settings: str, before: str, action: str) -> dict:
    """Open a page, and act in each of some frames."""
    chromium.get("about:blank")
    chromium.get(f"{path.as_uri()}#{settings}")
    wait = "const done = arguments[0];" + "requestAnimationFrame(() => " * 2
    opened = chromium.execute_async_script(f"{wait}done(performance.now())));")
    if before:
        call = f"document.querySelector('main').flaxattn.level.matrix.{before}"
        chromium.execute_script(call)
    frames = sorted(chromium.execute_async_script(FRAME, action, FRAMES))
    return {
        "opens_s": opened / 1e3,
        "frame_median_ms": statistics.median(frames),
        "frame_95_ms": frames[int(0.95 * len(frames))],
        "frames_per_s": 1e3 / statistics.fmean(frames),
    }


def medians(rounds: list[dict]) -> dict:
    """The median of each figure, and the slowest opening."""
    found = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    slowest = max(one["opens_s"] for one in rounds)
    return {name: round(value, 2) for name, value in {**found, "slowest_s": slowest}.items()}


def main() -> None:
    """Measure every case in every round, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pages = [make(Path(folder), *shape) for _, shape, *_ in CASES]
        chromium = browser(folder)
        try:
            taken = [[] for _ in CASES]
            for _ in range(settings.rounds):
                for (_, _, *how), page, rounds in zip(CASES, pages, taken, strict=True):
                    rounds.append(measure(chromium, page, *how))
        finally:
            chromium.quit()
        for (name, shape, *_), page, rounds in zip(CASES, pages, taken, strict=True):
            size = {"MB": round(page.stat().st_size / 1e6, 1), "rounds": len(rounds)}
            load = {"load": round(os.getloadavg()[0], 1)}
            print(json.dumps({"case": name, "shape": shape, **size, **medians(rounds), **load}))


if __name__ == "__main__":
    main()
