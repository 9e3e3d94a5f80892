# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts of commands that hold a small corpus in memory.

They have second texts and class numbers, or are pairs of a clean and a corrupted text.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.input_files import find_inputs, fingerprint
from flaxattn.corpus.rows import read_rows, text_of
from flaxattn.corpus.text_pairs import TextPair, read_text_pairs
from flaxattn.errors import InputError


class TextCorpus(NamedTuple):
    """Texts that were read from files.

    Attributes:
        texts: At least one.
        second: The second text of each pair, where a column of them was named.
        labels: Number of the class of each, where a column of them was named.
        source: Names, sizes and digests of the files, and how many rows were used.
    """

    texts: list[str]
    second: list[str] | None
    labels: list[int] | None
    source: dict[str, Any]


def read_corpus(
    inputs: Sequence[str],
    columns: Sequence[str | None],
    limit: int | None,
    on_error: str,
    folder: Path | None = None,
) -> TextCorpus:
    """The texts of some files."""
    text, pair, label = columns
    wanted = [name for name in columns if name is not None]
    files, bad = find_inputs(inputs, folder=folder), BadRows(on_error)
    found: list[tuple[str, str | None, int | None]] = []
    for file in files:
        if len(found) == limit:
            break
        if file.problem:
            bad.report(file.problem)
            continue
        for row in read_rows(file.path, wanted, bad, kind=file.kind):
            values = [text_of(row, name, bad) if name else None for name in (text, pair)]
            number = _label(row, label, bad)
            parts = [values[0], "" if pair is None else values[1], 0 if label is None else number]
            if None in parts:
                continue
            found.append((str(values[0]), values[1], number))
            if len(found) == limit:
                break
    if not found:
        raise InputError(
            f"There is no text in {', '.join(map(str, inputs))}.\nName files with one in each row."
        )
    prints = [mark._asdict() for mark in fingerprint(files)]
    source = {"files": prints, "texts": len(found), "left_out": dict(bad.counts)}
    seconds = None if pair is None else [str(row[1]) for row in found]
    labels = None if label is None else [int(row[2] or 0) for row in found]
    return TextCorpus([row[0] for row in found], seconds, labels, source)


def read_pairs(
    inputs: Sequence[str],
    limit: int | None,
    on_error: str,
    folder: Path | None = None,
    *,
    wrong: bool = False,
    prefix: str | None = None,
) -> tuple[list[TextPair], dict[str, Any]]:
    """The pairs of some tables, and names, sizes and digests of the files, as `read_corpus`."""
    files, bad = find_inputs(inputs, folder=folder), BadRows(on_error)
    for problem in [file.problem for file in files if file.problem]:
        bad.report(problem)
    paths = [(file.path, file.kind) for file in files if not file.problem]
    pairs = list(itertools.islice(read_text_pairs(paths, bad, wrong=wrong, prefix=prefix), limit))
    if not pairs:
        raise InputError(
            f"There is no pair of texts in {', '.join(map(str, inputs))}.\n"
            "Name tables with the columns clean, corrupted and answer, and a row for each pair."
        )
    prints = [mark._asdict() for mark in fingerprint(files)]
    return pairs, {"files": prints, "pairs": len(pairs), "left_out": dict(bad.counts)}


def _label(row: Any, column: str | None, bad: BadRows) -> int | None:
    """The number of a class; CSV and TSV have it as text."""
    if column is None:
        return None
    value = row.values[column]
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    message = "expected the number of a class, from 0"
    bad.report(Problem(row.file, row.line, column, "label", message, excerpt(value)))
    return None
