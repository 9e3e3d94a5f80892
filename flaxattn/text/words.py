# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Word of each token: words between spaces, or words that a user marked.

Told from a text and offsets where a text was read, and from what a decoder makes of the ids where
it was written, so it holds for any tokenizer. It knows none.
"""

import bisect
import re
from collections.abc import Callable, Sequence
from typing import Any


def words_read(
    text: str, offsets: Sequence[tuple[int, int]], special: Sequence[Any]
) -> list[int | None]:
    """Number of the word that each token of a text belongs to.

    A token of blank space belongs to the word after it.

    Args:
        text: What was read.
        offsets: Half-open range of characters of each token.
        special: True at tokens the model adds, at padding, and at a language tag.

    Returns:
        From 0, which is the first word after a language tag; None for special tokens.
    """
    starts = [word.start() for word in re.finditer(r"\S+", text)]
    visible = re.compile(r"\S")
    numbers: list[int | None] = []
    for (start, _), added in zip(offsets, special, strict=True):
        found = None if added else visible.search(text, start)
        numbers.append(bisect.bisect_right(starts, found.start()) - 1 if found else None)
    first = min((number for number in numbers if number is not None), default=0)
    return [None if number is None else number - first for number in numbers]


def words_spaced(pieces: Sequence[str], special: Sequence[Any]) -> list[int | None]:
    """Number of the word that each piece is part of, where pieces hold the blanks between words.

    A blank piece belongs to the word after it.

    Args:
        pieces: Of a text, as a person reads them.
        special: True at pieces that stand for no text, and at padding.

    Returns:
        From 0; None for special pieces.
    """
    numbers: list[int | None] = []
    number, apart, blank = -1, True, False
    for piece, added in zip(pieces, special, strict=True):
        number += not (added or blank) and (apart or piece[:1].isspace())
        numbers.append(None if added else number)
        apart, blank = bool(added), not (added or piece.strip())
    return numbers


def words_written(
    ids: Sequence[int], special: Sequence[Any], decode: Callable[[Sequence[int]], str]
) -> list[int | None]:
    """Number of the word that each token is part of in the text they are decoded to.

    Args:
        ids: What was written.
        special: True at tokens that stand for no text, and at padding.
        decode: Makes text of ids.

    Returns:
        From 0; None for special tokens, and for those that the text does not show.
    """
    numbers: list[int | None] = []
    kept: list[int] = []
    before = ""
    for number, added in zip(ids, special, strict=True):
        if not added:
            kept.append(number)
        text = before if added else decode(kept).strip()
        numbers.append(None if text == before else len(text.split()) - 1)
        before = text
    return numbers


def pieces_of_words(
    words: Sequence[tuple[int, int]], offsets: Sequence[tuple[int, int]], special: Sequence[Any]
) -> list[list[int]]:
    """Places of the tokens that each word of a text is made of.

    A token over several words belongs to each of them.

    Args:
        words: Half-open range of characters of each word, in order; several may share one.
        offsets: Half-open range of characters of each token, in order.
        special: True at tokens the model adds, and at padding.

    Returns:
        For each word the places of tokens that hold a character of it; none if they do not reach
        it.
    """
    places = [place for place, added in enumerate(special) if not added]
    stops = [offsets[place][1] for place in places]
    found = []
    for start, stop in words:
        first = bisect.bisect_right(stops, start)
        last = first
        while last < len(places) and offsets[places[last]][0] < stop:
            last += 1
        found.append(places[first:last])
    return found
