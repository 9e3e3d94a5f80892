# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Documents from text, JSONL and Parquet files, one at a time, each a list of sentences.

Nothing here knows ids, and no file is held in memory.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from flaxattn.corpus.input_files import kind_of
from flaxattn.corpus.rows import BadRows, read_rows, text_of
from flaxattn.errors import InputError
from flaxattn.train.recipe import TextRecipe

_LONGEST_BLOCK = 2**24  # characters; a block of lines without a blank one is cut after as many


def check_files(files: Sequence[Path]) -> None:
    """Refuse to begin without text."""
    missing = [path for path in files if not path.exists()]
    if missing or not files:
        raise InputError(
            f"no such text file: {missing[0]}\nname files that exist"
            if missing
            else "no text to train on\nname at least one file after --data"
        )


def read_documents(files: Iterable[Path], recipe: TextRecipe, bad: BadRows) -> Iterator[list[str]]:
    """Documents in the order of the files; none crosses a file's end, none is empty."""
    for text in read_texts(files, recipe, bad):
        if document := [s for paragraph in text for s in split_sentences(paragraph)]:
            yield document


def read_texts(
    files: Iterable[Path], recipe: TextRecipe, bad: BadRows, *, as_written: bool = False
) -> Iterator[Sequence[str]]:
    """Documents as lists of paragraphs, each on one line."""
    for path in files:
        if kind_of(path) == "txt":
            lines = (row.values["text"] for row in read_rows(path, ["text"], bad))
            yield from _cut(lines, recipe, as_written)
            continue
        for row in read_rows(path, [recipe.text_column], bad):
            if text := text_of(row, recipe.text_column, bad):
                yield [text] if as_written else paragraphs(text)


class Paragraphs:
    """Every paragraph of some files, as often as it is gone through.

    Args:
        files: see `read_documents`.
        recipe: names the text column.
        bad: takes what cannot be used, the first time.
    """

    def __init__(self, files: Sequence[Path], recipe: TextRecipe, bad: BadRows) -> None:
        self._files, self._recipe, self._bad = files, recipe, bad

    def __iter__(self) -> Iterator[str]:
        bad, self._bad = self._bad, BadRows("skip")
        for text in read_texts(self._files, self._recipe, bad):
            yield from text


def _cut(lines: Iterable[str], recipe: TextRecipe, as_written: bool = False) -> Iterator[list[str]]:
    if recipe.documents == "lines":
        yield from ([line if as_written else flat] for line in lines if (flat := _flat(line)))
        return
    sizes = {"paragraphs": recipe.paragraphs_per_document, "blank-lines": 1, "files": None}
    blocks = _blocks(lines, as_written)
    while group := list(itertools.islice(blocks, sizes[recipe.documents])):
        yield group


def _blocks(lines: Iterable[str], as_written: bool = False) -> Iterator[str]:
    """Blank-line separated blocks, each on one line unless kept as written."""
    block: list[str] = []
    size = 0
    for line in itertools.chain(lines, [""]):
        if flat := _flat(line):
            block.append(line if as_written else flat)
            size += len(block[-1])
        if block and (not flat or size > _LONGEST_BLOCK):
            yield ("\n" if as_written else " ").join(block)
            block, size = [], 0


def _flat(line: str) -> str:
    """A line with single spaces; empty if there is nothing else in it."""
    return " ".join(line.split())


# Words after which a full stop does not end an English sentence.
_ABBREVIATION = re.compile(
    r"(mr|mrs|ms|dr|st|prof|rev|hon|gen|col|capt|lieut|lt|sgt|maj|jr|sr|esq|messrs|mme|mlle"
    r"|vol|vs|viz|etc|i\.e|e\.g|cf|pp)",
    re.IGNORECASE,
)
_INITIALS = re.compile(r"\w(\.\w)*")
_BOUNDARY = re.compile(r"""([.!?…]+["'”’»)\]]*)\s+(?=["'“‘«(\[¡¿—-]*[^\W\d_a-z]|["'“‘«(]*\d)""")
_LAST_WORD = re.compile(r"([\w.]+)\.[\"'”’»)\]]*$")


def paragraphs(text: str) -> list[str]:
    """Blank-line separated blocks of a text, each on one line."""
    blocks = re.split(r"\n\s*\n", text.replace("\r\n", "\n").removeprefix("\ufeff"))
    return [flat for block in blocks if (flat := " ".join(block.split()))]


def split_sentences(paragraph: str) -> list[str]:
    """Sentences of a paragraph.

    A sentence ends at `.`, `!`, `?` or `…` with its closing quotes, before white space and
    something that can start a sentence. Titles, a few abbreviations and single initials do not end
    one.
    """
    sentences, start = [], 0
    for match in _BOUNDARY.finditer(paragraph):
        sentence = paragraph[start : match.end(1)]
        word = _LAST_WORD.search(sentence)
        if word is None or not _abbreviates(word[1]):
            sentences.append(sentence)
            start = match.end()
    tail = paragraph[start:]
    return [s for s in [*sentences, tail] if s.strip()]


def _abbreviates(word: str) -> bool:
    if _ABBREVIATION.fullmatch(word):
        return True
    return bool(_INITIALS.fullmatch(word)) and word not in ("I", "a")
