# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pronouns and the two people that each may mean, out of files of GAP, WinoBias and Winogender.

The files are the user's; what their rows look like is known here, and nothing of attention.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.lines import lines_of, refused, sound
from flaxattn.corpus.rows import Row, read_rows, text_of
from flaxattn.errors import InputError

Span = tuple[int, int]
_GAP = ("ID", "Text", "Pronoun", "Pronoun-offset")
_GAP_NAMES = ("A", "B")
_WORDS = {
    "masculine": ("he", "him", "his", "himself"),
    "feminine": ("she", "her", "hers", "herself"),
    "neutral": ("they", "them", "their", "theirs", "themself", "themselves"),
}
_PRONOUN = re.compile(rf"\b({'|'.join(w for words in _WORDS.values() for w in words)})\b", re.I)
_BRACKETED = re.compile(r"\[([^][]+)\]")


class Pronoun(NamedTuple):
    """A pronoun in a text, and whom it may mean.

    Attributes:
        id: What to call it.
        text: Without marks.
        span: Characters of the pronoun, half-open.
        candidates: Characters of each mention that it may mean.
        right: Number of the one it does mean; None if neither.
        group: What results are split by: the file, and the gender of the pronoun.
        file: Path of the file.
        line: In that file, from 1.
    """

    id: str
    text: str
    span: Span
    candidates: tuple[Span, ...]
    right: int | None
    group: str
    file: str
    line: int


def read_pronouns(paths: Iterable[Path], form: str, bad: BadRows) -> Iterator[Pronoun]:
    """The usable pronouns of some files, in order.

    `form` is `gap` (Webster et al. 2018, TSV with offsets), `winobias` (Zhao et al. 2018, numbered
    lines with brackets, two in a row with the same two people), or `winogender` (Rudinger et al.
    2018, the TSV of all sentences).
    """
    if form not in _FORMS:
        raise InputError(
            f"{form!r} is not a form of files with pronouns\nchoose one of {', '.join(_FORMS)}"
        )
    for path in paths:
        for found in _FORMS[form](path, bad):
            bad.rows_read += form == "winobias"  # tables count their rows themselves
            if isinstance(found, Problem):
                bad.report(found)
            else:
                yield found


def _gap(path: Path, bad: BadRows) -> Iterator[Pronoun | Problem]:
    wanted = [*_GAP, *(f"{n}{end}" for n in _GAP_NAMES for end in ("", "-offset", "-coref"))]
    for row in read_rows(path, wanted, bad, kind="tsv"):
        if all(text_of(row, column, bad) is not None for column in wanted):
            yield _gap_row(row)


def _gap_row(row: Row) -> Pronoun | Problem:
    values, spans = row.values, []
    for name in ("Pronoun", *_GAP_NAMES):
        form, offset = values[name], values[f"{name}-offset"]
        known = offset.isdecimal() and len(offset) < 10
        if not (known and values["Text"].startswith(form, int(offset))):
            message = f"the text does not have {form!r} at character {offset}"
            return _problem(row, f"{name}-offset", message, offset)
        spans.append((int(offset), int(offset) + len(form)))
    answers = [values[f"{name}-coref"].upper() for name in _GAP_NAMES]
    if not {*answers} <= {"TRUE", "FALSE"} or answers == ["TRUE", "TRUE"]:
        message = "expected TRUE for A, for B, or for neither"
        return _problem(row, "A-coref", message, " and ".join(answers))
    right = answers.index("TRUE") if "TRUE" in answers else None
    group = _gender(values["Pronoun"])
    where = (row.file, row.line)
    return Pronoun(values["ID"], values["Text"], spans[0], tuple(spans[1:]), right, group, *where)


def _winogender(path: Path, bad: BadRows) -> Iterator[Pronoun | Problem]:
    for row in read_rows(path, ["sentid", "sentence"], bad, kind="tsv"):
        if all(text_of(row, column, bad) is not None for column in ("sentid", "sentence")):
            yield _winogender_row(row)


def _winogender_row(row: Row) -> Pronoun | Problem:
    name, text = row.values["sentid"], row.values["sentence"]
    parts = name.split(".")
    if len(parts) != 5 or not all(parts[:2]) or parts[2] not in ("0", "1"):
        message = "expected occupation.participant.answer.gender.txt, the answer 0 or 1"
        return _problem(row, "sentid", message, name)
    people = [re.search(rf"\b{re.escape(word)}\b", text, re.I) for word in parts[:2]]
    pronoun = _PRONOUN.search(text)
    for what, found in (*zip(parts[:2], people, strict=True), ("a pronoun", pronoun)):
        if found is None:
            return _problem(row, "sentence", f"the sentence does not have {what}", text)
    spans = [found.span() for found in (pronoun, *people) if found is not None]
    where = (row.file, row.line)
    return Pronoun(name, text, spans[0], tuple(spans[1:]), int(parts[2]), parts[3], *where)


def _winobias(path: Path, bad: BadRows) -> Iterator[Pronoun | Problem]:
    if problem := refused(path, "txt"):
        bad.report(problem)
        return
    held: tuple[int, str, int] | None = None
    for line in sound(lines_of(path, bad), bad):
        number, _, text = line.body.strip().partition(" ")
        if not line.body.strip():
            continue
        if not number.isdecimal() or len(number) > 9:
            message = "the line does not begin with its number"
            yield Problem(str(path), line.number, "", "mention", message, excerpt(line.body))
        elif int(number) % 2:
            if held is not None:
                yield _alone(path, held)
            held = int(number), text, line.number
        elif held is None or held[0] != int(number) - 1:
            yield _alone(path, (int(number), text, line.number))
        else:
            pair = (held[1], held[2]), (text, line.number)
            yield _marked(path, *pair)
            yield _marked(path, *reversed(pair))
            held = None
    if held is not None:
        yield _alone(path, held)


def _alone(path: Path, line: tuple[int, str, int]) -> Problem:
    message = f"sentence {line[0]} has no partner; 1 and 2, 3 and 4, … speak of the same two people"
    return Problem(str(path), line[2], "", "mention", message, excerpt(line[1]))


def _marked(path: Path, one: tuple[str, int], other: tuple[str, int]) -> Pronoun | Problem:
    """The pronoun of a line; its partner marks the second person that it may mean."""
    (marked, line), (partner, _) = one, other
    text, pronouns, people = _unmarked(marked)
    theirs, _, others = _unmarked(partner)
    if not pronouns or len(people) != 1 or len(others) != 1:
        message = "expected brackets around one person and a pronoun, here and in the partner"
        return Problem(str(path), line, "", "mention", message, excerpt(marked))
    form = theirs[slice(*others[0])]
    found = re.search(rf"\b{re.escape(form)}\b", text, re.I)
    if found is None or found.span() == people[0]:
        message = f"the sentence does not have {form!r}, which its partner marks"
        return Problem(str(path), line, "", "mention", message, excerpt(marked))
    both = sorted([people[0], found.span()])
    group = f"{path.name}, {_gender(text[slice(*pronouns[0])])}"
    right = both.index(people[0])
    name = f"{path.name}:{line}"
    return Pronoun(name, text, pronouns[0], tuple(both), right, group, str(path), line)


def _unmarked(marked: str) -> tuple[str, list[Span], list[Span]]:
    """A text without its brackets, and which pronouns and people were in them."""
    text, place = "", 0
    pronouns: list[Span] = []
    people: list[Span] = []
    for found in _BRACKETED.finditer(marked):
        text += marked[place : found.start()]
        kind = pronouns if _PRONOUN.fullmatch(found[1]) else people
        kind.append((len(text), len(text) + len(found[1])))
        text += found[1]
        place = found.end()
    return text + marked[place:], pronouns, people


def _gender(pronoun: str) -> str:
    known = (gender for gender, words in _WORDS.items() if pronoun.lower() in words)
    return next(known, "other")


def _problem(row: Row, column: str, message: str, found: str) -> Problem:
    return Problem(row.file, row.line, column, "mention", message, excerpt(found))


_FORMS: dict[str, Callable[[Path, BadRows], Iterator[Pronoun | Problem]]] = {
    "gap": _gap,
    "winobias": _winobias,
    "winogender": _winogender,
}
