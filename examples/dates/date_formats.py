# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The grammar of written dates: many hundred formats, English and German, each with a name.

A *layout* says in which order, from which pieces and with which separators a date is written; a
*dress* adds a weekday, a word before or after, or changes the case. A format is both. No two
formats write the same text for different dates, so what is ambiguous among people is settled:

- figures with slashes or hyphens and the year last are American, month before day;
- figures with dots and the year last are German, day before month;
- a year of two digits comes last and lies in 1969 to 2068 (POSIX);
- figures with the year first have all four digits of it, and the month next.

Relative dates ("today"), years in words and times of day are not written here.
"""

import dataclasses
import datetime
import functools
import hashlib
import itertools
import string
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from date_words import PIECES, TWO_DIGIT_YEARS, Piece, role

_USUAL = frozenset({"weekday-comma", "en-weekday", "de-weekday", "capital"})
_PROBE = datetime.date(2004, 3, 5)


class _Layouts(NamedTuple):
    """Layouts that share a skeleton: one for each choice of a day, a month and a year.

    `dresses` names those that become them, `share` is the part of the less usual that each gets.
    """

    name: str
    pattern: str
    days: str
    months: str
    years: str
    dresses: str = "free"
    share: float = 0.08


class Span(NamedTuple):
    """The characters of a text that tell one part of its date, half open."""

    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Format:
    """One way to write a date.

    Attributes:
        name: language, order, pieces, skeleton and dress, such as
            "en/dmy/nth-name-yyyy/the-of-comma/weekday-comma"; never changes its meaning.
        language: "en", "de", or "any" for figures that both read alike.
        pattern: text with pieces of `date_words.PIECES` in braces.
        case: "" as the pattern and the words have it, "lower", "upper", or "capital", which
            only makes the first letter large.
    """

    name: str
    language: str
    pattern: str
    case: str = ""

    @property
    def layout(self) -> str:
        """The name without the dress."""
        return self.name.rpartition("/")[0]

    @property
    def vocabulary(self) -> frozenset[str]:
        """Everything it is made of: pieces, order, skeleton and dress, with the language."""
        language, order, pieces, skeleton, dress = self.name.split("/")
        parts = (order, f"{order}/{skeleton}", f"dress {dress}", *pieces.split("-"))
        return frozenset(f"{language} {part}" for part in parts)

    @property
    def two_digits(self) -> bool:
        """Return whether the year is written with two digits."""
        return "{yy}" in self.pattern

    def fits(self, date: datetime.date) -> bool:
        """Return whether the text tells the century; two digits only do so from 1969 to 2068."""
        return not self.two_digits or date.year in TWO_DIGIT_YEARS

    def render(self, date: datetime.date) -> str:
        """The date as this format writes it."""
        parts = _compiled(self.pattern, self.language)
        text = "".join([literal + piece(date) for literal, _, piece in parts])
        return _CASES[self.case](text)

    def spans(self, date: datetime.date) -> dict[str, Span]:
        """Spans of the "day", "month", "year" and, if there is one, the "weekday" in the text."""
        found, text = {}, ""
        for literal, name, piece in _compiled(self.pattern, self.language):
            start = len(_CASES[self.case](text + literal))
            text += literal + piece(date)
            if name:
                found[name] = Span(start, len(_CASES[self.case](text)))
        return found


_CASES: Mapping[str, Callable[[str], str]] = {
    "": str,
    "lower": str.lower,
    "upper": str.upper,
    "capital": lambda text: text[:1].upper() + text[1:],
}


@functools.cache
def _compiled(pattern: str, language: str) -> tuple[tuple[str, str, Piece], ...]:
    """A pattern as literals, each with the role and the piece that follows it."""
    pieces = PIECES[language]
    return tuple(
        (literal, role(name), pieces[name]) if name else (literal, "", lambda date: "")
        for literal, name, _, _ in string.Formatter().parse(pattern)
    )


_EN = {
    "dmy": (
        _Layouts("spaces", "{D} {M} {Y}", "d dd nth", "name short dotted longer", "yyyy yy 'yy"),
        _Layouts("comma", "{D} {M}, {Y}", "d dd nth", "name short", "yyyy 'yy"),
        _Layouts("hyphens", "{D}-{M}-{Y}", "d dd", "name short", "yyyy yy"),
        _Layouts("slashes", "{D}/{M}/{Y}", "d dd", "name short", "yyyy"),
        _Layouts("dots", "{D}.{M}.{Y}", "d dd", "short", "yyyy yy"),
        _Layouts("of", "{D} of {M} {Y}", "nth ordinal", "name short dotted", "yyyy 'yy"),
        _Layouts("of-comma", "{D} of {M}, {Y}", "nth ordinal", "name short", "yyyy 'yy"),
        _Layouts("the-of", "the {D} of {M} {Y}", "nth ordinal", "name short press", "yyyy 'yy"),
        _Layouts("the-of-comma", "the {D} of {M}, {Y}", "nth ordinal", "name press", "yyyy 'yy"),
        _Layouts("in-the-year", "the {D} of {M} in the year {Y}", "nth ordinal", "name", "yyyy"),
        _Layouts("day-of", "the {D} day of {M}, {Y}", "nth ordinal", "name longer", "yyyy"),
    ),
    "mdy": (
        _Layouts("spaces", "{M} {D} {Y}", "d dd nth", "name short dotted", "yyyy yy 'yy"),
        _Layouts("comma", "{M} {D}, {Y}", "d dd nth ordinal", "name short press", "yyyy 'yy"),
        _Layouts("dotted-comma", "{M} {D}, {Y}", "d nth", "dotted longer", "yyyy"),
        _Layouts("hyphens", "{M}-{D}-{Y}", "d dd", "name short", "yyyy yy"),
        _Layouts("slashes", "{M}/{D}/{Y}", "d dd", "name short", "yyyy"),
        _Layouts("the", "{M} the {D}, {Y}", "nth ordinal", "name short", "yyyy 'yy"),
        _Layouts("figures-slashes", "{M}/{D}/{Y}", "d dd", "m mm", "yyyy yy 'yy", share=0.4),
        _Layouts("figures-hyphens", "{M}-{D}-{Y}", "d dd", "m mm", "yyyy yy", share=0.4),
    ),
    "ymd": (
        _Layouts("spaces", "{Y} {M} {D}", "d dd nth", "name short", "yyyy"),
        _Layouts("comma", "{Y}, {M} {D}", "d nth", "name short", "yyyy"),
        _Layouts("hyphens", "{Y}-{M}-{D}", "d dd", "name short", "yyyy"),
        _Layouts("slashes", "{Y}/{M}/{D}", "d dd", "name short", "yyyy"),
    ),
}
_DE = {
    "dmy": (
        _Layouts(
            "spaces", "{D}. {M} {Y}", "d dd", "name austrian ascii short dotted", "yyyy yy 'yy"
        ),
        _Layouts("short-spaces", "{D}. {M} {Y}", "d dd", "press three", "yyyy 'yy"),
        _Layouts("tight", "{D}.{M} {Y}", "d dd", "name short dotted", "yyyy 'yy"),
        _Layouts("hyphens", "{D}-{M}-{Y}", "d dd", "name short three", "yyyy"),
        _Layouts("im-jahr", "{D}. {M} im Jahr {Y}", "d dd", "name austrian press", "yyyy"),
        _Layouts("des-jahres", "{D}. {M} des Jahres {Y}", "d dd", "name ascii", "yyyy"),
        _Layouts("bare", "{D} {M} {Y}", "ordinaler", "name austrian dotted", "yyyy 'yy", "led"),
        _Layouts("der", "der {D} {M} {Y}", "ordinale", "name austrian short", "yyyy 'yy", "led"),
        _Layouts("den", "den {D} {M} {Y}", "ordinalen", "name ascii dotted", "yyyy 'yy", "led"),
        _Layouts("am", "am {D} {M} {Y}", "ordinalen", "name austrian press", "yyyy 'yy", "led"),
        _Layouts("vom", "vom {D} {M} {Y}", "ordinalen", "name ascii", "yyyy 'yy", "led"),
        _Layouts("am-im-jahr", "am {D} {M} im Jahr {Y}", "ordinalen", "name press", "yyyy", "led"),
        _Layouts("figures", "{D}.{M}.{Y}", "d dd", "m mm", "yyyy yy 'yy", share=0.4),
        _Layouts("figures-spaces", "{D}. {M}. {Y}", "d dd", "m mm", "yyyy yy", share=0.4),
        _Layouts("roman", "{D}.{M}.{Y}", "d dd", "roman", "yyyy yy", share=0.2),
        _Layouts("roman-spaces", "{D}. {M}. {Y}", "d dd", "roman", "yyyy yy", share=0.2),
        _Layouts("roman-bare", "{D}. {M} {Y}", "d dd", "roman", "yyyy yy", share=0.2),
    ),
    "ymd": (
        _Layouts("comma", "{Y}, {D}. {M}", "d dd", "name austrian short", "yyyy"),
        _Layouts("im-jahr", "im Jahr {Y} am {D}. {M}", "d dd", "name ascii", "yyyy", "led"),
    ),
}
_ANY = {
    "dmy": (
        _Layouts("roman-hyphens", "{D}-{M}-{Y}", "d dd", "roman", "yyyy yy", share=0.2),
        _Layouts("roman-slashes", "{D}/{M}/{Y}", "d dd", "roman", "yyyy yy", share=0.2),
        _Layouts("roman-spaces", "{D} {M} {Y}", "d dd", "roman", "yyyy", share=0.2),
    ),
    "ymd": (
        _Layouts("hyphens", "{Y}-{M}-{D}", "dd", "mm", "yyyy", share=1),
        _Layouts("slashes", "{Y}/{M}/{D}", "dd", "mm", "yyyy", share=1),
        _Layouts("dots", "{Y}.{M}.{D}", "dd", "mm", "yyyy", share=1),
        _Layouts("spaces", "{Y} {M} {D}", "dd", "mm", "yyyy", share=1),
        _Layouts("compact", "{Y}{M}{D}", "dd", "mm", "yyyy", share=1),
        _Layouts("short-hyphens", "{Y}-{M}-{D}", "d", "m", "yyyy", share=1),
        _Layouts("short-slashes", "{Y}/{M}/{D}", "d", "m", "yyyy", share=1),
        _Layouts("short-dots", "{Y}.{M}.{D}", "d", "m", "yyyy", share=1),
    ),
}
_GRAMMAR = {"en": _EN, "de": _DE, "any": _ANY}

# Name of a dress -> the text around {} and the case.
_EN_DRESSES = {
    "weekday": ("{weekday} {}", ""),
    "weekday-comma": ("{weekday}, {}", ""),
    "wd": ("{wd} {}", ""),
    "wd-comma": ("{wd}, {}", ""),
    "wd-dot": ("{wd}. {}", ""),
    "on": ("on {}", ""),
    "on-weekday": ("on {weekday}, {}", ""),
    "as-of": ("as of {}", ""),
    "dated": ("dated {}", ""),
    "date-colon": ("Date: {}", ""),
    "brackets": ("{} ({weekday})", ""),
    "wd-brackets": ("{} ({wd})", ""),
    "lower": ("{}", "lower"),
    "upper": ("{}", "upper"),
    "capital": ("{}", "capital"),
    "weekday-lower": ("{weekday} {}", "lower"),
    "weekday-upper": ("{weekday}, {}", "upper"),
}
_DE_LED = {
    "weekday-comma": ("{weekday}, {}", ""),
    "wd-comma": ("{wd}, {}", ""),
    "brackets": ("{} ({weekday})", ""),
    "lower": ("{}", "lower"),
    "upper": ("{}", "upper"),
    "capital": ("{}", "capital"),
    "weekday-lower": ("{weekday}, {}", "lower"),
    "weekday-upper": ("{weekday}, {}", "upper"),
}
_DE_FREE = {
    **_DE_LED,
    "weekday": ("{weekday} {}", ""),
    "wd": ("{wd} {}", ""),
    "wd-dot": ("{wd}., {}", ""),
    "am": ("am {}", ""),
    "den": ("den {}", ""),
    "vom": ("vom {}", ""),
    "datum-colon": ("Datum: {}", ""),
    "stand-colon": ("Stand: {}", ""),
    "weekday-den": ("{weekday}, den {}", ""),
    "am-weekday": ("am {weekday}, dem {}", ""),
    "wd-brackets": ("{} ({wd})", ""),
}
_ANY_DRESSES = {
    "on": ("on {}", ""),
    "am": ("am {}", ""),
    "date-colon": ("Date: {}", ""),
    "datum-colon": ("Datum: {}", ""),
    "en-weekday": ("{weekday_en}, {}", ""),
    "de-weekday": ("{weekday_de}, {}", ""),
    "en-wd": ("{wd_en} {}", ""),
    "de-wd": ("{wd_de} {}", ""),
    "en-brackets": ("{} ({weekday_en})", ""),
    "de-brackets": ("{} ({weekday_de})", ""),
    "lower": ("{}", "lower"),
}
_DRESSES = {
    ("en", "free"): _EN_DRESSES,
    ("de", "free"): _DE_FREE,
    ("de", "led"): _DE_LED,
    ("any", "free"): _ANY_DRESSES,
}


@functools.cache
def formats() -> tuple[Format, ...]:
    """All formats, English, then German, then those that need no language.

    Every layout comes plain, behind a weekday, and in some other dresses, chosen by the hash of
    the name, so that a new layout or dress moves no other.
    """
    return tuple(
        one
        for language, orders in _GRAMMAR.items()
        for order, groups in orders.items()
        for group in groups
        for one in _formats_of(language, order, group)
    )


def share(name: str) -> float:
    """A number in [0, 1) that belongs to a name, evenly spread over names."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def _formats_of(language: str, order: str, group: _Layouts) -> Iterator[Format]:
    choices = (group.days.split(), group.months.split(), group.years.split())
    for day, month, year in itertools.product(*choices):
        quote = "'" if year.startswith("'") else ""
        slots = {
            "D": f"{{{day}}}",
            "M": f"{{{month}}}",
            "Y": f"{quote}{{{year.removeprefix(quote)}}}",
        }
        layout = f"{language}/{order}/{day}-{month}-{year}/{group.name}"
        plain = Format(f"{layout}/plain", language, group.pattern.format(**slots))
        yield plain
        for dress, (around, case) in _DRESSES[language, group.dresses].items():
            name, pattern = f"{layout}/{dress}", around.replace("{}", plain.pattern)
            dressed = Format(name, language, pattern, case)
            wanted = dress in _USUAL or share(name) < group.share
            if wanted and dressed.render(_PROBE) != plain.render(_PROBE):
                yield dressed
