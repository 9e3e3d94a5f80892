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
    text: str, offsets: Sequence[tuple[int, int] | None], special: Sequence[Any]
) -> list[int | None]:
    """Number of the word that each token of a text belongs to, from that of the first token.

    A token of blank space belongs to the word after it. Special tokens that stand in the text
    separate words.
    """
    for span, added in zip(offsets, special, strict=True):
        if added and span is not None:
            text = text[: span[0]] + " " * (span[1] - span[0]) + text[span[1] :]
    numbers = words_at(text, offsets, special)
    first = min((number for number in numbers if number is not None), default=0)
    return [None if number is None else number - first for number in numbers]


def words_at(
    text: str, offsets: Sequence[tuple[int, int] | None], special: Sequence[Any]
) -> list[int | None]:
    """Number of the word of a text, counted from its beginning, that each token belongs to."""
    starts = [word.start() for word in re.finditer(r"\S+", text)]
    visible = re.compile(r"\S")
    numbers: list[int | None] = []
    for span, added in zip(offsets, special, strict=True):
        found = None if added or span is None else visible.search(text, span[0])
        numbers.append(bisect.bisect_right(starts, found.start()) - 1 if found else None)
    return numbers


def words_decoded(
    text: str,
    tokens: Sequence[str],
    spans: Sequence[tuple[int, int] | None],
    special: Sequence[Any],
) -> list[int | None]:
    """Number of the word that each decoded token is part of."""
    if any(span is not None for span in spans):
        return words_read(text, spans, special)
    numbers: list[int | None] = []
    number, separate, blank = -1, True, False
    for token, added in zip(tokens, special, strict=True):
        number += not (added or blank) and (separate or token[:1].isspace())
        numbers.append(None if added else number)
        separate, blank = bool(added), not (added or token.strip())
    return numbers


def words_written(
    ids: Sequence[int], special: Sequence[Any], decode: Callable[[Sequence[int]], str]
) -> list[int | None]:
    """Number of the word that each token is part of in the text they are decoded to."""
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


def positions_of_words(
    words: Sequence[tuple[int, int]], offsets: Sequence[tuple[int, int]], special: Sequence[Any]
) -> list[list[int]]:
    """Places of the tokens that each word of a text is made of.

    A token over several words belongs to each of them.
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
