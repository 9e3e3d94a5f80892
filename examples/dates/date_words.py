# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The pieces of written dates: days, months, years and weekdays, in English and German.

All words are written here, so that no setting of the machine changes a text. `date_formats` puts
the words together.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence

Piece = Callable[[datetime.date], str]
# Two digits mean what POSIX reads in them: 69 to 99 are 1969 to 1999, 00 to 68 are 2000 to 2068.
TWO_DIGIT_YEARS = range(1969, 2069)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ROMAN = _words("I II III IV V VI VII VIII IX X XI XII")
_EN_MONTHS = _words(
    "January February March April May June July August September October November December"
)
_EN_SHORT = _words("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec")
_EN_DOTTED = _words("Jan. Feb. Mar. Apr. May Jun. Jul. Aug. Sep. Oct. Nov. Dec.")
_EN_LONG_SHORT = _words("Jan Feb March April May June July Aug Sept Oct Nov Dec")
_EN_PRESS = _words("Jan. Feb. March April May June July Aug. Sept. Oct. Nov. Dec.")
_EN_WEEKDAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_EN_UNITS = _words("first second third fourth fifth sixth seventh eighth ninth")
_EN_TEENS = _words(
    "tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth "
    "nineteenth twentieth"
)

_DE_MONTHS = _words(
    "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
)
_DE_AUSTRIAN = ("Jänner", "Feber", *_DE_MONTHS[2:])
_DE_ASCII = ("Jaenner", "Februar", "Maerz", *_DE_MONTHS[3:])
_DE_SHORT = _words("Jan Feb Mär Apr Mai Jun Jul Aug Sep Okt Nov Dez")
_DE_DOTTED = _words("Jan. Feb. Mär. Apr. Mai Jun. Jul. Aug. Sep. Okt. Nov. Dez.")
_DE_PRESS = _words("Jän. Febr. März April Mai Juni Juli Aug. Sept. Okt. Nov. Dez.")
_DE_THREE = _words("Jän Feb Mrz Apr Mai Jun Jul Aug Sep Okt Nov Dez")
_DE_WEEKDAYS = _words("Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag")
_DE_UNITS = _words("ein zwei drei vier fünf sechs sieben acht neun")
_DE_STEMS = _words(
    "erst zweit dritt viert fünft sechst siebt acht neunt zehnt elft zwölft dreizehnt vierzehnt "
    "fünfzehnt sechzehnt siebzehnt achtzehnt neunzehnt zwanzigst"
)


def _english_ordinals() -> list[str]:
    """From first to thirty-first."""
    twenties = [f"twenty-{unit}" for unit in _EN_UNITS]
    return [*_EN_UNITS, *_EN_TEENS, *twenties, "thirtieth", "thirty-first"]


def _german_ordinals(ending: str) -> list[str]:
    """From erst- to einunddreißigst-, with an ending."""
    twenties = [f"{unit}undzwanzigst" for unit in _DE_UNITS]
    stems = [*_DE_STEMS, *twenties, "dreißigst", "einunddreißigst"]
    return [stem + ending for stem in stems]


def _english_suffix(day: int) -> str:
    """A day such as 3rd."""
    suffix = "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{suffix}"


def _day(names: Sequence[str]) -> Piece:
    return lambda date: names[date.day - 1]


def _month(names: Sequence[str]) -> Piece:
    return lambda date: names[date.month - 1]


def _weekday(names: Sequence[str], letters: int | None = None) -> Piece:
    return lambda date: names[date.weekday()][:letters]


_EN_DAYS: Mapping[str, Piece] = {
    "weekday": _weekday(_EN_WEEKDAYS),
    "wd": _weekday(_EN_WEEKDAYS, 3),
}
_DE_DAYS: Mapping[str, Piece] = {
    "weekday": _weekday(_DE_WEEKDAYS),
    "wd": _weekday(_DE_WEEKDAYS, 2),
}
_FIGURES: Mapping[str, Piece] = {
    "d": lambda date: str(date.day),
    "dd": lambda date: f"{date.day:02d}",
    "m": lambda date: str(date.month),
    "mm": lambda date: f"{date.month:02d}",
    "roman": _month(_ROMAN),
    "yyyy": lambda date: f"{date.year:04d}",
    "yy": lambda date: f"{date.year % 100:02d}",
}
# Language -> name of a piece -> what it writes. "any" is for figures, which both write alike.
PIECES: Mapping[str, Mapping[str, Piece]] = {
    "any": {
        **_FIGURES,
        **{f"{name}_en": piece for name, piece in _EN_DAYS.items()},
        **{f"{name}_de": piece for name, piece in _DE_DAYS.items()},
    },
    "en": {
        **_FIGURES,
        **_EN_DAYS,
        "nth": lambda date: _english_suffix(date.day),
        "ordinal": _day(_english_ordinals()),
        "name": _month(_EN_MONTHS),
        "short": _month(_EN_SHORT),
        "dotted": _month(_EN_DOTTED),
        "longer": _month(_EN_LONG_SHORT),
        "press": _month(_EN_PRESS),
    },
    "de": {
        **_FIGURES,
        **_DE_DAYS,
        "ordinaler": _day(_german_ordinals("er")),
        "ordinale": _day(_german_ordinals("e")),
        "ordinalen": _day(_german_ordinals("en")),
        "name": _month(_DE_MONTHS),
        "austrian": _month(_DE_AUSTRIAN),
        "ascii": _month(_DE_ASCII),
        "short": _month(_DE_SHORT),
        "dotted": _month(_DE_DOTTED),
        "press": _month(_DE_PRESS),
        "three": _month(_DE_THREE),
    },
}
DAYS = frozenset({"d", "dd", "nth", "ordinal", "ordinaler", "ordinale", "ordinalen"})
YEARS = frozenset({"yyyy", "yy"})


def role(piece: str) -> str:
    """Return the role of a piece: "day", "month", "year" or "weekday"."""
    if piece.startswith(("weekday", "wd")):
        return "weekday"
    return "day" if piece in DAYS else "year" if piece in YEARS else "month"
