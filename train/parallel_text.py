# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sentences with their translations, from two files, tables, or JSONL as the Hub has it.

    train.de train.en                   line i of one is the translation of line i of the other
    pairs.tsv                           two columns; with names for them, a header
    pairs.jsonl                         {"translation": {"de": …, "en": …}}, or {"de": …, "en": …}

Text stays text here; `translation_data` makes batches of it.
"""

import difflib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.lines import kind_of
from flaxattn.corpus.rows import Row, read_rows, text_of
from flaxattn.corpus.texts import read_parallel
from flaxattn.errors import InputError

_TABLES = ("tsv", "csv", "jsonl", "parquet")
_NESTED = "translation"
_MOST = 0.1  # share of the pairs that may be held out


class TranslationPair(NamedTuple):
    """A sentence with its translation, and where they come from; the file is the source's."""

    source: str
    target: str
    file: str
    line: int


def read_pairs(
    files: Sequence[Path], source: str, target: str, bad: BadRows
) -> list[TranslationPair]:
    """All usable pairs, in order."""
    kinds = [kind_of(path) for path in files]
    if files and all(kind in _TABLES for kind in kinds):
        named = zip(files, kinds, strict=True)
        pairs = [p for path, kind in named for p in _of_table(path, kind, source, target, bad)]
    elif len(files) == 2 and not any(kind in _TABLES for kind in kinds):
        pairs = list(_of_lines(files[0], files[1], bad))
    else:
        raise InputError(
            "this is not parallel text\n"
            f"received {', '.join(map(str, files)) or 'no file'}\n"
            "name two text files, source first, or tables: .tsv .csv .jsonl .parquet"
        )
    if not pairs:
        left_out = f", {sum(bad.counts.values())} problems" if bad.counts else ""
        raise InputError(
            f"no pair to learn from in {', '.join(map(str, files))}\n"
            f"received {bad.rows_read} rows{left_out}\ngive files that hold sentences"
        )
    return pairs


def held_out(
    pairs: Sequence[TranslationPair], count: int
) -> tuple[list[TranslationPair], list[TranslationPair]]:
    """Pairs to learn from, and others to judge by; equal pairs stay on one side."""
    count = max(1, min(count, int(_MOST * len(pairs))))
    ranks = [_digest(pair.source, pair.target) for pair in pairs]
    limit = sorted(ranks)[count - 1]
    sides: tuple[list[TranslationPair], list[TranslationPair]] = ([], [])
    for pair, rank in zip(pairs, ranks, strict=True):
        sides[rank <= limit].append(pair)
    return sides


def fingerprint(pairs: Sequence[TranslationPair]) -> str:
    """SHA-256 of the texts of pairs, in their order."""
    return _digest(*(text for pair in pairs for text in pair[:2])).hex()


def _digest(*texts: str) -> bytes:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode())
        digest.update(b"\0")
    return digest.digest()


def _of_lines(first: Path, second: Path, bad: BadRows) -> Iterator[TranslationPair]:
    for one, two in read_parallel(first, second, bad):
        yield TranslationPair(one.body.strip(), two.body.strip(), str(first), one.number)


def _of_table(
    path: Path, kind: str, source: str, target: str, bad: BadRows
) -> Iterator[TranslationPair]:
    named = bool(source and target)
    if not named and kind in ("jsonl", "parquet"):
        raise InputError(
            f"{path}: the languages are not named\n"
            f"source is {source!r}, target is {target!r}\n"
            "name both, for example --source-lang de --target-lang en"
        )
    names = (source, target) if named else ("source", "target")
    wanted = names if kind in ("tsv", "csv") else None
    for row in read_rows(path, wanted, bad, header=named):
        values = _translations(row, names, bad)
        read = values and text_of(values, names[0], bad)
        wrote = values and read and text_of(values, names[1], bad)
        if read and wrote:
            yield TranslationPair(read.strip(), wrote.strip(), row.file, row.line)


def _translations(row: Row, names: tuple[str, str], bad: BadRows) -> Row | None:
    """The row with both languages as its values; None, and a report, where one is missing."""
    values: Any = row.values.get(_NESTED, row.values)
    if not isinstance(values, dict):
        message = f"expected an object of languages, received {type(values).__name__}"
        bad.report(Problem(row.file, row.line, _NESTED, "language", message, excerpt(values)))
        return None
    for name in names:
        if name not in values:
            near = difflib.get_close_matches(name, list(values), 1)
            hint = f"the nearest is {near[0]!r}; " if near else ""
            there = ", ".join(excerpt(str(key)) for key in list(values)[:8]) or "none"
            message = f"there is no language {name!r}; {hint}there are: {there}"
            bad.report(Problem(row.file, row.line, "", "language", message))
            return None
    return row._replace(values=values)
