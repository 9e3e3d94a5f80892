# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Two text files, line by line: line i of one belongs to line i of the other.

Files of different numbers of lines are refused whatever is done with bad rows: from
somewhere on, every line would be given a wrong partner. What the two are, sentences or a source
with its target, is not known here.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

from flaxattn.corpus.bad_rows import BadRows, Problem
from flaxattn.corpus.lines import WHOLE, FilePart, Line, lines_of, refused
from flaxattn.errors import InputError


def read_parallel(
    first: Path, second: Path, bad: BadRows, part: FilePart = WHOLE
) -> Iterator[tuple[Line, Line]]:
    """Lines and their partners, in order, where both have text."""
    problems = [problem for path in (first, second) if (problem := refused(path, "txt"))]
    for problem in problems:
        bad.report(problem)
    if problems:
        return
    if part is WHOLE:
        check_counts(first, second)
    quiet, other = BadRows("skip"), part._replace(offset=part.pair_offset)
    for one, two in zip(lines_of(first, quiet, part), lines_of(second, quiet, other), strict=True):
        bad.rows_read += 1
        if problem := one.problem or two.problem or _emptiness(first, second, one, two):
            bad.report(problem)
        else:
            yield one, two


def check_counts(first: Path, second: Path) -> None:
    """Refuse two files with different numbers of lines."""
    fails = BadRows("fail")  # a file that cannot be read to its end has no number of lines
    counts, differs = [0, 0], None
    for rows in itertools.zip_longest(lines_of(first, fails), lines_of(second, fails)):
        counts = [n + (row is not None) for n, row in zip(counts, rows, strict=True)]
        one, two = rows
        if differs is None and one and two and bool(one.body.strip()) != bool(two.body.strip()):
            differs = one
    if counts[0] == counts[1]:
        return
    where = "no line is empty in one of them only"
    if differs is not None:
        full, empty = (first, second) if differs.body.strip() else (second, first)
        where = f"line {differs.number} is the first that is empty in {empty} and not in {full}"
    raise InputError(
        f"{first} has {counts[0]} lines, {second} has {counts[1]}\n{where}\n"
        "line i of one must be the translation of line i of the other: repair the files"
    )


def _emptiness(first: Path, second: Path, one: Line, two: Line) -> Problem | None:
    """Describe a pair of lines of which one is empty, or both."""
    filled = bool(one.body.strip()), bool(two.body.strip())
    if all(filled):
        return None
    path, other = (second, first) if filled[0] else (first, second)
    message = f"the line is empty, that of {other} is not"
    if not any(filled):
        message = f"the line is empty, as that of {other} is"
    return Problem(str(path), one.number, "", "empty", message)
