# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenize texts, some at a time; an error names the text that cannot be read."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from flaxattn.corpus.bad_rows import BadRows, Problem
from flaxattn.corpus.safe_text import printable
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.readings import TokenizedTexts

TOGETHER = 64  # texts that are tokenized at a time, and named when something happens to the worker
T = TypeVar("T")


class TextError(InputError):
    """A text that cannot be read, or cannot be used for the request.

    Attributes:
        number: Index of the text.
        problem: What is wrong with it: its subject without a number, and the rest.
    """

    def __init__(self, number: int, problem: str) -> None:
        self.number, self.problem = number, problem
        super().__init__(re.sub(r"^(second text|text|target)", rf"\1 {number}", problem))

    def __reduce__(self) -> tuple[Any, ...]:
        return TextError, (self.number, self.problem)


def groups_of(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items in order; the last one may be shorter."""
    rest = iter(items)
    while group := list(itertools.islice(rest, size)):
        yield group


def describe_range(texts: Sequence[Text]) -> str:
    """Name some consecutive texts for an error message: their numbers, and where they stand."""
    first, last = texts[0], texts[-1]
    ends = [printable(f"{text.file}:{text.line}") for text in (first, last)] if first.file else []
    if len(texts) == 1:
        return f"text {first.index}" + (f" ({ends[0]})" if ends else "")
    where = f" ({ends[0]} to {ends[1]})" if ends else ""
    return f"texts {first.index} to {last.index}{where}"


def tokenize(model: Pretrained, texts: Sequence[Text], truncate: bool) -> list[TokenizedTexts]:
    """Each text as the model takes it, without padding."""
    pairs = [text.text_b or "" for text in texts if text.text_b is not None]
    try:
        return model.read([text.text for text in texts], pairs or None, truncate=truncate).rows()
    except Exception as error:
        _name_text(model, texts, truncate)
        raise error


def tokenize_each(
    model: Pretrained, texts: Sequence[Text], truncate: bool, bad: BadRows
) -> Iterator[tuple[Text, TokenizedTexts]]:
    """Each text that the model can read, beside what it reads; the others are reported."""
    for text, row in zip(texts, tokenize_or_refuse(model, texts, truncate), strict=True):
        if isinstance(row, TextError):
            message = row.problem.splitlines()[0]
            code = "too-many-tokens" if "too long" in message else "empty"
            bad.report(Problem(text.file, text.line, "", code, message))
        else:
            yield text, row


def tokenize_or_refuse(
    model: Pretrained, texts: Sequence[Text], truncate: bool
) -> list[TokenizedTexts | TextError]:
    """Each text as the model takes it, or the reason why it cannot be read."""
    try:
        rows = tokenize(model, texts, truncate)
    except TextError as error:
        if len(texts) == 1:
            return [error]
        return [row for text in texts for row in tokenize_or_refuse(model, [text], truncate)]
    return [
        row if row.lengths[0] else TextError(text.index, "text has no token")
        for text, row in zip(texts, rows, strict=True)
    ]


def _name_text(model: Pretrained, texts: Sequence[Text], truncate: bool) -> None:
    """Raise for the text that fails by itself, unless the first does for a reason of all."""
    for text in texts:
        second = None if text.text_b is None else [text.text_b]
        try:
            model.read([text.text], second, truncate=truncate)
        except InputError as error:
            named = re.match(r"(second text|text|target) 0 ", str(error))
            if named:
                problem = str(error).replace(f"{named[1]} 0 ", f"{named[1]} ", 1)
                raise TextError(text.index, problem) from None
            return
        except Exception as error:
            problem = f"text cannot be read\n{type(error).__name__}: {error}\nleave it out"
            raise TextError(text.index, problem) from error
