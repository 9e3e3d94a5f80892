# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of pages in this folder anew, with a headless Chromium.

    python docs/pictures.py

`head_view.png` is the head level; `levels.png` has four levels beside each other. Both show
`tiny-bert` reading two sentences. It needs chromium and chromedriver on the PATH, and selenium.
"""

import base64
import io
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from flaxattn.kernels.contract import Capture
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.views.trace_views import head_view

FOLDER = Path(__file__).resolve().parent
TEXTS = "The old clock in the hall stopped.", "Nobody knew why it was so late."
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND")
LEVELS = (
    "level=atlas&measure=entropy",
    "level=model",
    "level=head&layer=2&query=12",
    "level=neuron&layer=2&heads=0&query=12&dimensions=top",
)
GAP = 24  # pixels between two pictures
# The page from its top to its foot.
BOX = """
const box = document.querySelector("main").getBoundingClientRect();
const foot = document.querySelector("footer").getBoundingClientRect();
return { x: box.x, y: 0, width: box.width, height: foot.bottom + 20 };
"""


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium without a network."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))))
    with tempfile.TemporaryDirectory() as folder:
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for flag in (*FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        made = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            yield made
        finally:
            made.quit()


def picture(chromium: Any, page: Path, settings: str, width: int, scale: float) -> Image.Image:
    """What a page shows with some settings in its address, its whole height."""
    size = {"width": width, "height": 900, "deviceScaleFactor": scale, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chromium.get("about:blank")
    chromium.get(f"{page.as_uri()}#{settings}&theme=light")
    chromium.execute_async_script("setTimeout(arguments[0], 500)")  # small pictures come later
    clip = chromium.execute_script(BOX) | {"scale": 1}
    asked = {"format": "png", "clip": clip, "captureBeyondViewport": True}
    data = chromium.execute_cdp_cmd("Page.captureScreenshot", asked)["data"]
    return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")


def side_by_side(parts: list[Image.Image]) -> Image.Image:
    """Two by two, on white."""
    width = max(part.width for part in parts)
    heights = [max(part.height for part in parts[row : row + 2]) for row in (0, 2)]
    whole = Image.new("RGB", (2 * width + GAP, sum(heights) + GAP), "white")
    for number, part in enumerate(parts):
        row, column = divmod(number, 2)
        whole.paste(part, (column * (width + GAP), row * (heights[0] + GAP)))
    return whole


def save(image: Image.Image, name: str) -> None:
    """Write a picture with 256 colours: the most frequent, and some that leave no pixel far off."""
    pixels = np.asarray(image)
    colours, where, counts = np.unique(
        pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    usual = colours[np.argsort(-counts)[:128]]
    spread = image.quantize(128, Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = np.concatenate([usual, np.reshape(spread, (-1, 3))]).astype(np.int32)
    apart = ((colours[:, None].astype(np.int32) - palette) ** 2).sum(-1)
    nearest = apart.argmin(-1).astype(np.uint8)
    small = Image.fromarray(nearest[where].reshape(pixels.shape[:2]), "P")
    small.putpalette(palette.astype(np.uint8).tobytes())
    path = FOLDER / name
    small.save(path, optimize=True)
    print(f"wrote {path} ({path.stat().st_size / 1e3:.0f} kB, {image.width} x {image.height})")


def main() -> None:
    """Read the sentences, make the page, and take its pictures."""
    capture = Capture(weights=True, query=True, key=True, value=True)
    trace = from_pretrained("tiny-bert").trace(*TEXTS, capture=capture)
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        page = head_view(trace).save(Path(folder) / "page.html")
        save(picture(chromium, page, "level=head&layer=2", 1060, 1.4), "head_view.png")
        parts = [picture(chromium, page, settings, 1060, 1.0) for settings in LEVELS]
        save(side_by_side(parts), "levels.png")


if __name__ == "__main__":
    main()
