# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sentences with a dependency tree, out of CoNLL-U files: words, their tags, governors, relations.

The package `conllu` reads the fields; what makes them a tree over a text is checked here.
`flaxattn.text.tokens` maps words to the tokens of a model.
"""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.input_files import WHOLE, FilePart, Line, lines_of, refused

SUFFIX = ".conllu"
_FIELDS = 10
NO_GOVERNOR = -1
"""In place of the number of a governor: the word is the root."""


class Word(NamedTuple):
    """A word of a tree.

    Attributes:
        form: As it is written.
        tag: Universal part of speech.
        governor: Number of the word that it depends on, from 0; `NO_GOVERNOR` for the root.
        relation: Relation of the two, with its subtype: `nsubj:pass`.
        start: First character in the text of the sentence.
        stop: The one after the last.
        line: Line of the file, from 1.
        entity: Brackets of mentions, the value of `Entity` among the last column.
        xpos: Part of speech of the treebank; empty where it has none.
        feats: Morphological features, pairs of a name and a value.
    """

    form: str
    tag: str
    governor: int
    relation: str
    start: int
    stop: int
    line: int
    entity: str = ""
    xpos: str = ""
    feats: tuple[tuple[str, str], ...] = ()


class Sentence(NamedTuple):
    """A sentence and its tree.

    Attributes:
        id: Its `sent_id`, or FILE:LINE.
        text: As it is written. Words of one multi-word token share its characters, unless their
            forms make it up.
        words: In order; empty nodes are left out, for they belong to enhanced graphs.
        file: Path of the file.
        line: Its first line, from 1.
        begins: Whether a document begins with it.
        document: Name of that document, if it has one.
    """

    id: str
    text: str
    words: tuple[Word, ...]
    file: str
    line: int
    begins: bool = False
    document: str = ""


Trees = str | os.PathLike[str] | Iterable[Sentence | str | os.PathLike[str]]
"""A CoNLL-U file, or several files or sentences."""


def is_annotated(path: Path) -> bool:
    """Return whether a file is CoNLL-U by its name, compressed or not."""
    return SUFFIX in [suffix.lower() for suffix in path.suffixes[-2:]]


def read_sentences(paths: Iterable[Path], bad: BadRows) -> Iterator[Sentence]:
    """The usable sentences of CoNLL-U files, in order.

    Args:
        paths: The files; gzip and Zstandard are read too.
        bad: Takes files and sentences that cannot be used.

    Yields:
        A sentence at a time; memory does not grow with the files.

    Raises:
        InputError: Under the policy "fail", for the first problem: no CoNLL-U, numbers that do not
            count the words, a governor that is not there, a cycle, no root or several, or forms
            that do not make up the text.
    """
    for path in paths:
        if problem := refused(path, "conllu"):
            bad.report(problem)
        else:
            yield from sentences_of(path, bad)


def sentences_of(path: Path, bad: BadRows, part: FilePart = WHOLE) -> Iterator[Sentence]:
    """The usable sentences of a file that can be opened."""
    for lines in sentence_lines(path, bad, part):
        bad.rows_read += 1
        found = _sentence(str(path), lines)
        if isinstance(found, Problem):
            bad.report(found)
        else:
            yield found


def each_sentence(trees: Trees, bad: BadRows) -> Iterator[Sentence]:
    """Sentences in memory, or those of files."""
    for one in [trees] if isinstance(trees, str | os.PathLike) else trees:
        if isinstance(one, Sentence):
            yield one
        else:
            yield from read_sentences([Path(one)], bad)


def sentence_lines(path: Path, bad: BadRows, part: FilePart = WHOLE) -> Iterator[list[Line]]:
    """Lines between blank lines, where they are not comments only."""
    block: list[Line] = []
    for line in itertools.chain(lines_of(path, bad, part), [Line(0, "")]):
        if line.body.strip():
            block.append(line)
            continue
        if any(_is_word(line) or line.problem for line in block):
            yield block
        block = []


def _is_word(line: Line) -> bool:
    return not line.body.startswith("#")


def _sentence(file: str, lines: Sequence[Line]) -> Sentence | Problem:
    """The sentence of a block, or the first thing that is wrong with it."""
    tokens = _tokens(file, lines)
    if isinstance(tokens, Problem):
        return tokens
    rows, metadata = tokens
    name = metadata.get("sent_id") or f"{Path(file).name}:{lines[0].number}"
    words = [row for row in rows if isinstance(row["id"], int)]
    if not words:
        message = _one_line(f"sentence {name!r} has no words")
        return Problem(file, lines[0].number, "", "tree", message)
    problem = _not_a_tree(file, name, words) or _bad_range(file, name, rows, len(words))
    if problem:
        return problem
    placed = _spans(file, name, rows, metadata.get("text"))
    if isinstance(placed, Problem):
        return placed
    text, spans = placed
    made = [
        Word(
            *(row["form"], row["upos"], row["head"] - 1, row["deprel"], *span, row["line"]),
            entity=(row["misc"] or {}).get("Entity") or "",
            xpos=row["xpos"] or "",
            feats=tuple((name, value or "") for name, value in (row["feats"] or {}).items()),
        )
        for row, span in zip(words, spans, strict=True)
    ]
    begins = any(key.startswith("newdoc") for key in metadata)
    document = metadata.get("newdoc id") or ""
    return Sentence(name, text, tuple(made), file, lines[0].number, begins, document)


def _tokens(
    file: str, lines: Sequence[Line]
) -> tuple[list[dict[str, Any]], dict[str, Any]] | Problem:
    """Fields of every line with its number, and the metadata."""
    import conllu
    from conllu.exceptions import ParseException

    comments = "".join(f"{line.body}\n" for line in lines if not _is_word(line))
    rows: list[dict[str, Any]] = []
    for line in lines:
        if line.problem:
            return line.problem
        if not _is_word(line):
            continue
        count = line.body.count("\t") + 1
        message = f"expected {_FIELDS} fields in the line, received {count}"
        if count == _FIELDS:
            try:
                (token,) = conllu.parse(line.body + "\n\n")[0]
                if len(token) == _FIELDS:
                    rows.append({**token, "line": line.number})
                    continue
                message = "the line has an empty field, expected _ in its place"
            except (ParseException, ValueError, IndexError) as error:
                message = f"this is not a line of CoNLL-U: {error}"
        return Problem(file, line.number, "", "conllu", message, excerpt(line.body))
    parsed = conllu.parse(comments + "1\t_\n\n")
    return rows, dict(parsed[0].metadata)


def _not_a_tree(file: str, name: str, words: Sequence[dict[str, Any]]) -> Problem | None:
    """Describe why the governors are not a tree over words numbered from 1; None if they are."""

    def problem(row: dict[str, Any], message: str) -> Problem:
        where = f"sentence {name!r}, word {row['id']} {row['form']!r}: {message}"
        return Problem(file, row["line"], "", "tree", _one_line(where))

    roots = []
    for number, row in enumerate(words, 1):
        if row["id"] != number:
            return problem(row, f"its number should be {number}")
        head = row["head"]
        if head is None or not 0 <= head <= len(words):
            return problem(row, f"its governor is {head}, the words are 1 to {len(words)}")
        if head == 0:
            roots.append(row)
    if len(roots) > 1:
        others = " and ".join(f"word {row['id']}" for row in roots[:-1][:3])
        return problem(roots[-1], f"a second root beside {others}")
    known = {0}  # words from which the root is reached
    for row in words:
        path, place = dict.fromkeys([row["id"]]), row["head"]
        while place not in known and place not in path:
            path[place] = None
            place = words[place - 1]["head"]
        if place in path:
            numbers = [*path, place]
            circle = " -> ".join(str(number) for number in numbers[numbers.index(place) :][:8])
            return problem(words[place - 1], f"its governors are a cycle: {circle}")
        known.update(path)
    return None


def _one_line(message: str) -> str:
    """A message on one line."""
    return "".join(c if c.isprintable() else " " for c in message)


def _bad_range(file: str, name: str, rows: Sequence[dict[str, Any]], count: int) -> Problem | None:
    """A multi-word token that is out of place."""
    covered = 0
    for place, row in enumerate(rows):
        if isinstance(row["id"], int) or row["id"][1] != "-":
            continue
        first, _, last = row["id"]
        before = [other["id"] for other in rows[:place] if isinstance(other["id"], int)]
        if not (covered < first < last <= count) or (before[-1] if before else 0) != first - 1:
            where = f"sentence {name!r}: the multi-word token {first}-{last} {row['form']!r}"
            message = _one_line(f"{where} does not stand before its words")
            return Problem(file, row["line"], "", "tree", message)
        covered = last
    return None


def _spans(
    file: str, name: str, rows: Sequence[dict[str, Any]], text: str | None
) -> tuple[str, list[tuple[int, int]]] | Problem:
    """The text, and the characters of each word in it."""
    units: list[tuple[dict[str, Any], list[str]]] = []  # what is written, and forms of its words
    inside = 0
    for row in rows:
        number = row["id"]
        if isinstance(number, int):
            if number <= inside:
                units[-1][1].append(row["form"])
            else:
                units.append((row, [row["form"]]))
        elif number[1] == "-":
            units.append((row, []))
            inside = number[2]
    if text is None:
        gaps = ["" if _glued(row) else " " for row, _ in units]
        text = "".join(f"{row['form']}{gap}" for (row, _), gap in zip(units, gaps, strict=True))
        text = text.rstrip()
    spans: list[tuple[int, int]] = []
    place = 0
    for row, forms in units:
        while place < len(text) and text[place].isspace():
            place += 1
        if not text.startswith(row["form"], place):
            message = f"sentence {name!r}: the word {row['form']!r} is not what follows in its text"
            found = excerpt(text[place:]) or "nothing"
            return Problem(file, row["line"], "", "annotation", _one_line(message), found)
        stop = place + len(row["form"])
        spans += _parts(forms, row["form"], place, stop)
        place = stop
    if rest := text[place:].strip():
        message = f"sentence {name!r}: no word stands for the end of its text"
        return Problem(file, rows[-1]["line"], "", "annotation", _one_line(message), excerpt(rest))
    return text, spans


def _parts(forms: Sequence[str], written: str, start: int, stop: int) -> list[tuple[int, int]]:
    """Characters of each word of what is written: its own, or all where the forms differ."""
    if "".join(forms) != written:
        return [(start, stop)] * len(forms)
    found = []
    for form in forms:
        found.append((start, start + len(form)))
        start += len(form)
    return found


def _glued(row: dict[str, Any]) -> bool:
    return bool(row["misc"]) and row["misc"].get("SpaceAfter") == "No"
