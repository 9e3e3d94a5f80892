# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The texts of a corpus, or its pairs of texts, one at a time and numbered.

`rows` reads the rows; nothing is tokenized here. Ids are data: they are reported and compared, and
nothing is ever named after them.

`read_text_pairs` reads pairs of a clean and a corrupted text with the answer that one gets and the
other loses: columns `clean`, `corrupted` and `answer`, and `wrong` where an answer is compared with
another one.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.dependency_trees import Sentence
from flaxattn.corpus.input_files import (
    WHOLE,
    FilePart,
    InputFile,
    Line,
    lines_of,
    raw_lines,
    refused,
)
from flaxattn.corpus.rows import Row, RowPlace, read_rows, row_places, text_of
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
    where = "no line is empty in one file and not in the other"
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


@dataclass(frozen=True)
class Columns:
    """Columns of a table or keys of JSONL to read; plain text has none.

    The second of two parallel text files takes the place of the column `pair`.

    Attributes:
        text: The text, or the first of a pair.
        pair: The second text of a pair, or the target of a source.
        id: Column of the ids; without one, ids are file and line.
    """

    text: str = "text"
    pair: str | None = None
    id: str | None = None

    @property
    def names(self) -> list[str]:
        """The names of the wanted columns, each once."""
        return list(dict.fromkeys(n for n in (self.text, self.pair, self.id) if n is not None))


@dataclass(frozen=True, slots=True)
class Text:
    """A text, or a pair of texts.

    Attributes:
        index: Its number among the usable ones, from 0.
        id: Its id, `FILE:LINE` unless a column says otherwise; different for each.
        text: The text as it is written.
        text_b: The second text of a pair, or the target of a source, if there is one.
        file: Name of its file, see `input_files.InputFile`; empty for a text from elsewhere.
        line: Line of that file, from 1; of Parquet and Arrow, the row.
        sentence: The tree over the text, if there is one.
    """

    index: int
    id: str
    text: str
    text_b: str | None = None
    file: str = ""
    line: int = 0
    sentence: Sentence | None = None


def plain_texts(
    texts: Sequence[str], text_b: Sequence[str] | None = None, first: int = 0
) -> list[Text]:
    """Strings as texts of a corpus, called by their numbers."""
    seconds = [None] * len(texts) if text_b is None else text_b
    pairs = zip(texts, seconds, strict=True)
    return [Text(n, str(n), text, second) for n, (text, second) in enumerate(pairs, first)]


def annotated_text(sentence: Sentence, index: int = 0) -> Text:
    """A sentence as a text with the tree over it."""
    where = (sentence.file, sentence.line)
    return Text(index, sentence.id, sentence.text, None, *where, sentence)


def read_texts(files: Iterable[InputFile], columns: Columns, bad: BadRows) -> Iterator[Text]:
    """The usable texts of a corpus, in order; those of a corpus without the bad rows."""
    return read_parts(((file, WHOLE) for file in files), columns, bad)


def read_parts(
    parts: Iterable[tuple[InputFile, FilePart]], columns: Columns, bad: BadRows, first: int = 0
) -> Iterator[Text]:
    """The usable texts of parts of files, in order, numbered from `first`."""
    index = first
    with _ids() as is_new:
        for file, part in parts:
            if problem := file.problem or _without_columns(file, columns):
                bad.report(problem)
                continue
            if file.pair is not None:
                for one, two in read_parallel(file.path, file.pair.path, bad, part):
                    name = f"{file.name}:{one.number}"
                    yield Text(index, name, one.body, two.body, file.name, one.number)
                    index += 1
                continue
            for row in read_rows(file.path, columns.names, bad, kind=file.kind, part=part):
                if text := _text(row, file.name, columns, bad, is_new):
                    yield replace(text, index=index)
                    index += 1


def text_places(file: InputFile, columns: Columns, bad: BadRows) -> Iterator[tuple[RowPlace, int]]:
    """Places of the rows of a file, and the byte at which the partner of each line begins."""
    if problem := file.problem or _without_columns(file, columns):
        bad.report(problem)
    elif file.pair is None:
        for place in row_places(file.path, columns.names, bad, file.kind):
            yield place, 0
    else:
        check_counts(file.path, file.pair.path)
        partners = raw_lines(file.pair.path, BadRows("skip"))
        places = row_places(file.path, columns.names[:1], BadRows("skip"), "txt")
        for place, (_, offset, raw) in zip(places, partners, strict=True):
            yield place._replace(size=place.size + len(raw)), offset


def _without_columns(file: InputFile, columns: Columns) -> Problem | None:
    """Describe the problem of plain text where columns are wanted."""
    wanted = columns.id if file.pair is not None else columns.pair or columns.id
    if file.kind != "txt" or not wanted:
        return None
    message = "plain text has no columns, a line is a text"
    return Problem(str(file.path), 0, wanted, "missing-header", message)


def _text(
    row: Row, file: str, columns: Columns, bad: BadRows, is_new: Callable[[str], bool]
) -> Text | None:
    """The text of a row; None, and a report, where there is none."""
    text = text_of(row, columns.text, bad)
    if text is None:
        return None
    second = None
    if columns.pair is not None and (second := text_of(row, columns.pair, bad)) is None:
        return None
    tree = row.sentence
    tree = None if tree is None or tree.text != text else tree
    if columns.id is None:
        return Text(0, f"{file}:{row.line}", text, second, file, row.line, tree)
    number = row.values[columns.id]
    whole = isinstance(number, int) and not isinstance(number, bool)
    name = str(number) if whole else text_of(row, columns.id, bad)
    if name is None:
        return None
    if not is_new(name):
        message = "another row has this id"
        problem = (row.file, row.line, columns.id, "duplicate-id", message, excerpt(name))
        bad.report(Problem(*problem))
        return None
    return Text(0, name, text, second, file, row.line, tree)


@contextmanager
def _ids() -> Iterator[Callable[[str], bool]]:
    """Return whether an id is new, checked one after another.

    They are kept in a temporary data base of which little is in memory.
    """
    import sqlite3  # few corpora have a column of ids

    with closing(sqlite3.connect("", isolation_level=None)) as base:
        base.execute("CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID")
        base.execute("BEGIN")
        insert = "INSERT OR IGNORE INTO ids VALUES (?)"
        yield lambda name: base.execute(insert, (name,)).rowcount > 0


COLUMNS = ("clean", "corrupted", "answer")


class TextPair(NamedTuple):
    """A clean and a corrupted text, alike but for what the answer depends on.

    >>> import flaxattn as fa
    >>> fa.TextPair("The king and the lady", "The king and the girl", " lady", " girl").answer
    ' lady'

    Attributes:
        clean: Text whose right continuation, filling or label is the answer.
        corrupted: Text of as many tokens for which it is another.
        answer: The answer: one token, or a label.
        wrong: The answer to the corrupted text; None where none is needed.
        prefix: Beginning of the target, for an encoder-decoder.
        source: File and line, for messages; empty for a pair that was given.
    """

    clean: str
    corrupted: str
    answer: str
    wrong: str | None = None
    prefix: str = ""
    source: str = ""


def read_text_pairs(
    paths: Iterable[tuple[Path, str | None]],
    bad: BadRows,
    *,
    wrong: bool,
    prefix: str | None = None,
) -> Iterator[TextPair]:
    """Pairs of some tables, in order."""
    fields = {name: name for name in (*COLUMNS, *(["wrong"] if wrong else []))}
    fields |= {} if prefix is None else {"prefix": prefix}
    for path, kind in paths:
        for row in read_rows(path, tuple(fields.values()), bad, kind=kind):
            texts: dict[str, str] = {}
            for name, column in fields.items():
                value = text_of(row, column, bad, empty=name == "prefix")
                if value is None:
                    break  # the row was reported, once
                texts[name] = value
            else:
                yield TextPair(**texts, source=f"{Path(row.file).name}:{row.line}")
