# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Text of figures: tokens in installed fonts, titles in lines, numbers as on the page."""

import functools
import math
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flaxattn.views.payloads.encoded_weights import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
