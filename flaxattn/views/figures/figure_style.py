# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Style of figures: colours and scales of the page, text, how a notebook shows them, and files."""

import functools
import io
import math
import os
import re
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from flaxattn.errors import InputError, check_arguments, check_type
from flaxattn.files import write_bytes
from flaxattn.views.payloads.page_encoding import read_asset, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure


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


_LONGEST_LABEL = 40
_TITLE = 8  # points
_CHARACTER = 0.56  # width of a character of a title, by its size
_FEWEST = 24  # characters of a line of a title, at least
_DEFAULT = "DejaVu Sans"  # comes with matplotlib
_REGULAR = ("400", "normal", "regular", "book")
# Frames in place of characters, and fonts of formulas whose code points are their own.
_UNFIT = ("Last Resort", "cm", "STIX")
_JOINERS = "\u200c\u200d"  # shape the letters beside them


def drawable(token: str) -> str:
    """A token as matplotlib can draw it with the fonts that are installed.

    Control characters are made visible as in `flaxattn.views`. A character that no installed font
    has, and a mark that only joins characters or changes their direction, becomes its code point:
    `⟨U+65E5⟩`.
    """
    return "".join(map(_drawable, token))


def _drawable(character: str) -> str:
    picture = visible(character)
    marks = unicodedata.category(character) == "Cf" and character not in _JOINERS
    shown = all(map(_font_of, picture)) and not marks
    return picture if shown else f"⟨U+{ord(character):04X}⟩"


def token_labels(tokens: Sequence[str]) -> list[str]:
    """Tokens as a figure writes them: what can be drawn, and no more than 40 characters."""
    return [_shorten(drawable(token)) for token in tokens]


def _shorten(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"


def font_families(texts: Sequence[str]) -> list[str]:
    """The default font, then those that have the characters it lacks."""
    characters = sorted(set().union(*texts))
    fonts = [_font_of(character) for character in characters]
    return list(dict.fromkeys([_DEFAULT, *filter(None, fonts)]))


@functools.cache
def _font_of(character: str) -> str | None:
    """Name of the first installed font that has a character: the default, else by name."""
    point = ord(character)
    return next((name for name, path in _fonts() if point in _characters(path)), None)


@functools.cache
def _fonts() -> tuple[tuple[str, str], ...]:
    """Names and files of fonts, the default first, of each family the regular one."""
    from matplotlib import font_manager

    def rank(entry: Any) -> tuple[bool, str, bool, str]:
        usual = entry.style == "normal" and str(entry.weight) in _REGULAR
        return entry.name != _DEFAULT, entry.name, not usual, entry.fname

    files: dict[str, str] = {}
    for entry in sorted(font_manager.fontManager.ttflist, key=rank):
        if not entry.name.startswith(_UNFIT):
            files.setdefault(entry.name, entry.fname)
    return tuple(files.items())


@functools.cache
def _characters(path: str) -> frozenset[int]:
    """Code points that a font has; none of a font that cannot be drawn with."""
    from matplotlib import font_manager

    try:
        font = font_manager.get_font(path)
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(font.get_charmap()) if font.scalable else frozenset()


def write_title(ax: "Axes", title: str, **options: Any) -> None:
    """Write a title above axes, in as many lines as their width asks for.

    Args:
        ax: Axes, placed or to be placed by their figure.
        title: Lines that are kept, and broken where they are longer than the axes are wide.
        **options: As `Axes.set_title` takes them.
    """
    figure: Any = ax.figure
    width = figure.get_size_inches()[0] * ax.get_position().width
    lines = wrap_lines(drawable_lines(title), width)
    style = {"fontsize": _TITLE, "parse_math": False, "fontfamily": font_families([lines])}
    ax.set_title(lines, **style, **options)


def drawable_lines(text: str) -> str:
    """Text of several lines as matplotlib can draw it."""
    return "\n".join(map(drawable, text.split("\n")))


def wrap_lines(text: str, inches: float, points: float = _TITLE) -> str:
    """Text with its lines broken where they are wider than there is room."""
    most = max(_FEWEST, int(72 * inches / (_CHARACTER * points)))
    return "\n".join("\n".join(textwrap.wrap(line, most) or [""]) for line in text.split("\n"))


def format_weight(weight: float) -> str:
    """A weight with three decimals, as on the page; never a rounded-down zero."""
    if math.isnan(weight):
        return "NaN"
    if weight < 0:
        return f"−{format_weight(-weight)}"
    return "<0.001" if 0 < weight < 0.0005 else f"{weight:.3f}"


def format_number(value: float) -> str:
    """A number with at most two decimals, as the page's neuron level writes it."""
    if math.isnan(value) or value == -math.inf:
        return "masked"
    size = abs(value)
    text = f"{size:.{0 if size >= 1000 else 1 if size >= 100 else 2}f}"
    return f"−{text}" if value < 0 and float(text) > 0 else text


def format_effect(value: float) -> str:
    """A number with two digits, whatever its size, as the page's atlas writes effects."""
    size = abs(value)
    digits = min(6, max(1, 1 - math.floor(math.log10(size)))) if 0 < size < 10 else 0
    return f"{'−' if value < 0 else ''}{size:.{digits}f}"


def format_measure(value: float) -> str:
    """A number of a head with two decimals, as in the page's atlas."""
    return f"{value:.2f}"


_P = ParamSpec("_P")
_R = TypeVar("_R")


def shown_once(plot: Callable[_P, _R]) -> Callable[_P, _R]:
    """Close the figures that a function makes in a notebook; they stay whole and can be shown."""

    @functools.wraps(plot)
    def closing(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        before = _open()
        figure = plot(*args, **kwargs)
        if _inline():
            for number in _open() - before:
                sys.modules["matplotlib.pyplot"].close(number)
        return figure

    return closing


def _open() -> set[int]:
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    return set() if pyplot is None else set(pyplot.get_fignums())


def _inline() -> bool:
    matplotlib: Any = sys.modules.get("matplotlib")
    return matplotlib is not None and "inline" in matplotlib.get_backend()


# What a file says of itself: neither the day nor the version that drew it.
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "flaxattn"},
    "pdf": {"CreationDate": None, "ModDate": None, "Producer": "flaxattn", "Creator": "flaxattn"},
    "png": {"Software": "flaxattn"},
}
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "flaxattn",  # else the ids in an SVG are random
    "svg.fonttype": "path",  # looks the same where the fonts are missing
    "pdf.fonttype": 42,  # text stays text; publishers refuse the default, Type 3
}


@check_arguments(0)
def save_figure(figure: "Figure", path: str | os.PathLike[str], dpi: float = 150) -> Path:
    """Write a figure as SVG, PDF or PNG, as the ending of the name says.

    The same figure gives the same bytes under the same matplotlib and fonts.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> fa.save_figure(fa.plot_heads(trace, layers=[1], heads=[2]), "heads.svg").name
    'heads.svg'

    Args:
        figure: What `plot_heads` and its like return.
        path: Such as `heads.svg`; its folder must exist. A file there is replaced in one step.
        dpi: Dots per inch of a PNG, and of maps inside an SVG or PDF.

    Returns:
        The path.

    Raises:
        InputError: If the ending is another, the folder is missing or the path is a folder.
    """
    import matplotlib
    from matplotlib.figure import Figure

    check_type(figure, Figure, "save_figure", "figure")
    check_type(path, str | os.PathLike, "save_figure", "path")
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise InputError(
            f"A figure is saved as {', '.join(_METADATA)}; {str(path)!r} names none of these.\n"
            "Change the ending, for example to .svg."
        )
    file = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(file, format=kind, dpi=dpi, metadata=_METADATA[kind])
    return write_bytes(path, file.getvalue(), "a figure")
