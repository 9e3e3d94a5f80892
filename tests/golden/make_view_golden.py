# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Photographs the pages of `view_cases.py` and stores the pictures in `views/`.

`python tests/golden/make_view_golden.py` photographs all of them, with chromium and chromedriver
on the PATH and what the `test` extra installs. Pictures that the test would
pass are left alone; of each other one it says how much has changed. Look before you commit them.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import view_cases as cases
from PIL import Image

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND")
NEAR = 11  # of 255, in any colour: how exact a stored picture is
LARGEST = 24_000  # bytes of one


def browser(folder: str):
    """A headless Chromium without a network."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))))
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={folder}/profile"):
        options.add_argument(flag)
    made = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    made.set_script_timeout(60)
    return made


def few_colours(image: Image.Image) -> Image.Image:
    """The same in fewer colours, none further than NEAR from its own: the usual ones come first."""
    pixels = np.asarray(image)
    colours, where, counts = np.unique(
        pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    best = np.full(len(colours), 256)
    nearest = np.zeros(len(colours), np.uint8)
    palette: list[np.ndarray] = []
    while best.max() > NEAR and len(palette) < 256:
        chosen = colours[np.where(best > NEAR, counts, 0).argmax()]
        far = np.abs(colours.astype(np.int16) - chosen).max(-1)
        nearest[far < best] = len(palette)
        best = np.minimum(best, far)
        palette.append(chosen)
    small = Image.fromarray(nearest[where].reshape(pixels.shape[:2]), "P")
    small.putpalette(np.concatenate(palette).tobytes())
    return small


def store(image: Image.Image, name: str, theme: str) -> None:
    """Write a picture if it is not the one that is there."""
    path = cases.path_of(name, theme)
    share = None
    if path.exists():
        with Image.open(path) as old:
            share = cases.apart(image, old).mean() if old.size == image.size else 1.0
        if share <= cases.SHARE:
            return
    few_colours(image).save(path, optimize=True)
    size = path.stat().st_size
    if size > LARGEST:
        raise SystemExit(f"{path.name} has {size} bytes; a golden has at most {LARGEST}.")
    change = "new" if share is None else f"{share:.2%} of its pixels changed"
    print(f"{path.name}: {change}, {size / 1e3:.1f} kB")


def main() -> None:
    """Photograph every case in both themes."""
    cases.FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        chromium = browser(folder)
        try:
            for name, (make, settings) in cases.CASES.items():
                page = make(Path(folder))
                for theme in cases.THEMES:
                    store(cases.photograph(chromium, page, settings, theme), name, theme)
        finally:
            chromium.quit()
    known = {cases.path_of(name, theme) for name in cases.CASES for theme in cases.THEMES}
    for path in set(cases.FOLDER.glob("*.png")) - known:
        path.unlink()
        print(f"{path.name}: no case of that name, removed")


if __name__ == "__main__":
    main()
