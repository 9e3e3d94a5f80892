# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs of a clean and a corrupted text with the answer that one gets and the other loses.

A table has the columns `clean`, `corrupted` and `answer`, and `wrong` where an answer is compared
with another one. No model is run here.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.rows import read_rows, text_of

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
