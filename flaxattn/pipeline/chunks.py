# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts in chunks, read one chunk at a time, with the text named that cannot be read."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flaxattn.errors import InputError
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.readings import TokenizedTexts

TOGETHER = 64  # texts that are read at a time, and named when something happens to their reader


class Chunk(NamedTuple):
    """Some texts of a corpus.

    Attributes:
        first: Number of the first one.
        texts: The texts.
        text_b: The second text, or the target, of each.
        truncate: Whether those over the model's limit are cut.
        places: Where the first and the last one stand, if that is known.
    """

    first: int
    texts: Sequence[str]
    text_b: Sequence[str] | None
    truncate: bool
    places: tuple[str, str] | None = None

    def __str__(self) -> str:
        last = self.first + len(self.texts) - 1
        if last == self.first:
            return f"text {last}" + (f" ({self.places[0]})" if self.places else "")
        told = f" ({self.places[0]} to {self.places[1]})" if self.places else ""
        return f"texts {self.first} to {last}{told}"


class TextError(InputError):
    """A text that cannot be read, or is of no use for what was asked.

    Attributes:
        number: Which one, from 0.
        problem: What is wrong with it: its subject without a number, and the rest.
    """

    def __init__(self, number: int, problem: str) -> None:
        self.number, self.problem = number, problem
        super().__init__(re.sub(r"^(second text|text|target)", rf"\1 {number}", problem))


def chunks(
    texts: Sequence[str],
    text_b: Sequence[str] | None,
    truncate: bool,
    first: int = 0,
    places: Sequence[str] | None = None,
) -> Iterator[Chunk]:
    """Texts in chunks.

    Args:
        texts: In order.
        text_b: The second text of each.
        truncate: Whether those over the model's limit are cut.
        first: Number of the first text.
        places: Where each one stands, if that is known.
    """
    for start in range(0, len(texts), TOGETHER):
        part = slice(start, start + TOGETHER)
        seconds = None if text_b is None else text_b[part]
        ends = None if places is None else (places[part][0], places[part][-1])
        yield Chunk(first + start, texts[part], seconds, truncate, ends)


def read_chunk(model: Pretrained, chunk: Chunk) -> list[TokenizedTexts]:
    """Each text of a chunk as the model takes it, without padding.

    Args:
        model: Its module and its parameters are not used.
        chunk: The texts.

    Raises:
        TextError: Naming the first text that cannot be read.
        InputError: The model has no tokenizer, or takes no pairs.
    """
    try:
        return model.read(chunk.texts, chunk.text_b, truncate=chunk.truncate).rows()
    except Exception as error:
        _name_text(model, chunk)
        raise error


def _name_text(model: Pretrained, chunk: Chunk) -> None:
    """Raise for the text that fails by itself, unless the first does for a reason of all."""
    problems: list[TextError] = []
    for place, text in enumerate(chunk.texts):
        second = None if chunk.text_b is None else [chunk.text_b[place]]
        try:
            model.read([text], second, truncate=chunk.truncate)
        except InputError as error:
            named = re.match(r"(second text|text|target) 0 ", str(error))
            if named:
                raise TextError(
                    chunk.first + place, str(error).replace(f"{named[1]} 0 ", f"{named[1]} ", 1)
                ) from None
            return
        except Exception as error:
            told = f"text cannot be read\n{type(error).__name__}: {error}\nleave it out"
            problems.append(TextError(chunk.first + place, told))
            raise problems[0] from error
