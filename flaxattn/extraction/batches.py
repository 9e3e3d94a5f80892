# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts to batches of few shapes: read in chunks, sorted by length, padded as little as can be.

What is in a batch follows from the lengths of a shard's texts and from nothing else, so a shard
that is computed again is computed in the same way. NumPy only; nothing here runs a model.
"""

import bisect
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from flaxattn.errors import InputError
from flaxattn.handle import Pretrained
from flaxattn.inputs import bucket
from flaxattn.reading import Reading

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


class Batch(NamedTuple):
    """Rows that are computed together.

    Attributes:
        members: Their numbers, the longest first.
        rows: Rows of the compiled shape, at least as many.
        widths: What each side is padded to: S, and T where an encoder has a decoder beside it.
    """

    members: tuple[int, ...]
    rows: int
    widths: tuple[int, ...]


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


def read_chunk(model: Pretrained, chunk: Chunk) -> list[Reading]:
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


def chosen_widths(
    lengths: Sequence[tuple[int, ...]], limit: int, compiling: int
) -> tuple[int, ...]:
    """The lengths that are worth a compiled shape: the least padding and compiling together.

    Few texts share one or two shapes; many have one for every multiple of 4, further apart above
    32.

    Args:
        lengths: Of every row, one number per side.
        limit: Longest length the model takes.
        compiling: Positions that could be computed while a shape is compiled.

    Returns:
        Ascending; the last one holds the longest row.
    """
    every = sorted(n for row in lengths for n in row)
    ladder = sorted({_rounded(n, limit) for n in every})
    held = [bisect.bisect_right(every, n) for n in ladder]
    # best[i]: cost of all rows up to ladder[i], where that is the last width, and the one before.
    best: list[tuple[int, int]] = []
    for i, n in enumerate(ladder):
        before = [(best[j][0] + (held[i] - held[j]) * n, j) for j in range(i)]
        cost, j = min([(held[i] * n, -1), *before])
        best.append((cost + compiling, j))
    found, place = [], len(ladder) - 1
    while place >= 0:
        found.append(ladder[place])
        place = best[place][1]
    return tuple(reversed(found))


def _rounded(length: int, limit: int) -> int:
    """The finest width for a length, about an eighth longer at most."""
    if length > 256:
        return bucket(length, limit)
    step = 4 if length <= 32 else 8 if length <= 64 else 16 if length <= 128 else 32
    return min(-(-length // step) * step, limit)


def planned(
    lengths: Sequence[tuple[int, ...]], widths: Sequence[int], batch_tokens: int, parts: int = 1
) -> list[Batch]:
    """Batches of about as many tokens each, of texts of like lengths, the longest first.

    Every batch but the last is full, so there is about one shape per width.

    Args:
        lengths: Of every row, one number per side.
        widths: Lengths that may be compiled, ascending; the last one holds every row.
        batch_tokens: Positions of a batch, padding counted.
        parts: The number of rows is a multiple of this: devices that share a batch.
    """
    wide = [tuple(widths[bisect.bisect_left(widths, n)] for n in row) for row in lengths]
    # Sorted by the source's width first, then by the target's length, both descending.
    order = sorted(range(len(wide)), key=lambda i: (wide[i][0], lengths[i][-1]), reverse=True)
    found, start = [], 0
    while start < len(order):
        sides = wide[order[start]]
        most = max(batch_tokens // sum(sides) // parts, 1) * parts
        members = tuple(order[start : start + most])
        # Targets of texts with shorter sources may be longer than that of the first.
        sides = tuple(max(side) for side in zip(*(wide[i] for i in members), strict=True))
        rows = parts
        while rows < len(members):
            rows *= 2
        found.append(Batch(members, min(rows, most), sides))
        start += most
    return found


def stacked(rows: Sequence[Reading], batch: Batch) -> dict[str, Int[np.ndarray, "B S"]]:
    """Arguments of the module for a batch; rows that are missing repeat the last one.

    Args:
        rows: All that members of batches are numbers of.
        batch: The batch.
    """
    members = [rows[i].given for i in batch.members]
    given = {}
    for name in members[0]:
        side = batch.widths[-1] if name.startswith("decoder_") else batch.widths[0]
        array = np.zeros((batch.rows, side), np.int32)
        for place, row in enumerate(members):
            array[place, : row[name].shape[1]] = row[name][0]
        array[len(members) :] = array[len(members) - 1]
        given[name] = array
    return given
