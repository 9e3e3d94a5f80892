# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Text that grows by tokens: which part of it stays whatever follows, and where it is to stop.

Functions of texts. A token of a byte-level vocabulary may end within a character, and one may hold
the end of a stop string and more. No model is known here.

A text ends before the stop string that is complete first, of two that end together before the
longer one. Hugging Face leaves the string in; here it is taken as a mark, no part of the text.
"""

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence

from flaxattn.errors import InputError

_UNREADABLE = "\ufffd"  # what decoders make of bytes that are not a character
_MOST_BYTES = 3  # of a character of UTF-8 that is not complete


def stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    """One stop string or several, checked."""
    found = (stop,) if isinstance(stop, str) else tuple(stop)
    for number, one in enumerate(found):
        if not isinstance(one, str) or not one:
            raise InputError(
                f"stop string {number} is {'empty' if one == '' else 'not a string'}\n"
                f"received {one!r}, at which no text can stop\n"
                "leave it out, or give at least one character"
            )
    return found


def end(text: str, stops: Sequence[str]) -> int | None:
    """Length of a text without its stop string and what follows that; None where it has none."""
    starts = ((text.find(stop), len(stop)) for stop in stops)
    found = [(start + size, start) for start, size in starts if start >= 0]
    return min(found)[1] if found else None


def cut(text: str, stops: Sequence[str]) -> str:
    """A finished text up to its stop string; arguments as for `end`."""
    return text[: end(text, stops)]


def certain(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The part of an unfinished text that stays whatever follows, and whether it is all of it.

    What is held back is a character whose bytes are not all there, and what a stop string may
    begin with.
    """
    unread = len(text) - len(text.rstrip(_UNREADABLE))
    text = text[: len(text) - min(unread, _MOST_BYTES)]
    if (place := end(text, stops)) is not None:
        return text[:place], True
    longest = max(map(len, stops), default=1)
    for size in range(min(longest - 1, len(text)), 0, -1):
        if any(stop.startswith(text[-size:]) for stop in stops):
            return text[:-size], False
    return text, False


def grown(texts: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """Yield what each state of a growing text adds to the one before."""
    shown, text, ended = 0, "", False
    for text in texts:
        sure, ended = certain(text, stops)
        if len(sure) > shown:
            yield sure[shown:]
            shown = len(sure)
        if ended:
            return
    if rest := cut(text, stops)[shown:]:
        yield rest


def tokens_needed(
    ids: Sequence[int], decode: Callable[[Sequence[int]], str], stops: Sequence[str]
) -> int:
    """Number of generated tokens up to the one that completes a stop string."""

    def ended(count: int) -> bool:
        return certain(decode(ids[:count]), stops)[1]

    return bisect.bisect_left(range(len(ids)), True, key=ended)
