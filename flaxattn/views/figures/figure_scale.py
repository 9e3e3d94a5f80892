# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Colours and scales of figures: those of the page, read from its style sheet.

Weights have the colour of their square root, as in `assets/scale.js`, which makes faint ones
visible; other numbers have a linear scale, as in the page's atlas. Below 0 is orange
and above it blue, everywhere.
"""

import functools
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from flaxattn.views.payloads.asset_files import read_asset

if TYPE_CHECKING:
    from matplotlib.colors import Colormap, Normalize

# Weights that the legend of a matrix names (`assets/matrix.js`).
MARKS = (0, 0.01, 0.1, 0.25, 0.5, 1)
SIGNED_MARKS = (-1, -0.25, -0.01, 0, 0.01, 0.25, 1)
_STEPS = 256  # colours between nothing and all


@functools.cache
def page_colours() -> dict[str, str]:
    """Colours of the page's light theme, by the name of their variable, such as `head-0`."""
    sheets = read_asset("view.css") + read_asset("claims.css")
    roots = re.findall(r"^:root \{(.*?)^\}", sheets, re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", "".join(roots)))


def head_colour(head: int) -> str:
    """The colour of a head by its number; as many as the page has, then again from the first."""
    names = [name for name in page_colours() if name.startswith("head-")]
    return page_colours()[f"head-{head % len(names)}"]


@functools.cache
def sequential() -> "Colormap":
    """Colours from nothing, nearly white, to all, dark blue."""
    return _between("flaxattn", ["scale-low", "scale-high"], _STEPS)


@functools.cache
def diverging() -> "Colormap":
    """Colours from orange, below 0, over white to blue, above it."""
    return _between("flaxattn_signed", ["negative", "paper", "positive"], 2 * _STEPS - 1)


def _between(name: str, ends: list[str], steps: int) -> "Colormap":
    from matplotlib.colors import LinearSegmentedColormap

    colours = [page_colours()[end] for end in ends]
    return LinearSegmentedColormap.from_list(name, colours, N=steps)


def weight_colours(*, signed: bool = False) -> dict[str, Any]:
    """Colours of weights by their square root, as `imshow` takes them."""
    from matplotlib.colors import FuncNorm

    norm = FuncNorm((_root, _square), -1 if signed else 0, 1, clip=True)
    return {"norm": norm, "cmap": diverging() if signed else sequential()}


def even_colours(high: float, low: float | None = None) -> dict[str, Any]:
    """Colours of numbers on an even scale, as `imshow` takes them."""
    if low is None:
        return {"vmin": -high, "vmax": high, "cmap": diverging()}
    return {"vmin": low, "vmax": high, "cmap": sequential()}


def ink_on(colour: Any) -> str:
    """Black or white, whichever reads better on a colour, as `inkOn` in `assets/colours.js`."""
    from matplotlib.colors import to_rgb

    light = np.dot((0.2126, 0.7152, 0.0722), np.power(to_rgb(colour), 2.2))
    return "black" if light > 0.3 else "white"


def is_weight_scale(norm: "Normalize") -> bool:
    """Return whether colours are by the square root."""
    from matplotlib.colors import FuncNorm

    return isinstance(norm, FuncNorm)


def marks_of(norm: "Normalize") -> tuple[float, ...]:
    """Weights that a colour bar names, those of the page's legend."""
    return SIGNED_MARKS if (norm.vmin or 0) < 0 else MARKS


def _root(values: Any) -> Any:
    return np.sign(values) * np.sqrt(np.abs(values))


def _square(shades: Any) -> Any:
    return np.sign(shades) * np.square(shades)
