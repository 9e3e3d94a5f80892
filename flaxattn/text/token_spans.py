# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Words and characters of tokens: the word of each token, and the spans of a stored text.

Words stand between spaces, or were marked by the user. Spans of a stored text are found without its
tokenizer.
"""

import bisect
import re
import unicodedata
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


_CONTINUED = "##"
_UNKNOWN = ("[UNK]", "<unk>")
_BLANKS = " \u2581"
_BYTE = re.compile("<0x([0-9A-F]{2})>")


class PlaceError(ValueError):
    """A token does not stand in the text where it should.

    Attributes:
        token: Its place among the tokens.
        start: The character of the text that it should begin with.
    """

    def __init__(self, token: int, start: int) -> None:
        super().__init__(token, start)
        self.token, self.start = token, start


def token_spans(text: str, tokens: Sequence[str], special: Sequence[Any]) -> list[tuple[int, int]]:
    """Half-open range of characters of each token."""
    letters = [(letter, place) for place, char in enumerate(text) for letter in _folded(char)]
    found: list[tuple[int, int]] = []
    at = 0
    for number, (token, added) in enumerate(zip(tokens, special, strict=True)):
        if added:
            found.append((0, 0))
            continue
        wanted = _folded(_bare(token))
        stop = at + len(wanted)
        if [letter for letter, _ in letters[at:stop]] != list(wanted):
            if token not in _UNKNOWN or at == len(letters):
                raise PlaceError(number, letters[at][1] if at < len(letters) else len(text))
            stop = _end_of_word(text, letters, at)
        start = letters[at][1] if at < len(letters) else len(text)
        found.append((start, letters[stop - 1][1] + 1 if stop > at else start))
        at = stop
    return found


def decoded_spans(
    text: str, tokens: Sequence[str], special: Sequence[Any]
) -> list[tuple[int, int] | None]:
    """Half-open range of characters of each token in the text that they were decoded to."""
    spans = byte_spans(text, tokens)
    if any(span is not None for span in spans):
        return spans
    plain = [token if added else "" for token, added in zip(tokens, special, strict=True)]
    try:
        found = token_spans(_without(text, plain), tokens, special)
    except PlaceError:
        return spans
    return [None if added else span for span, added in zip(found, special, strict=True)]


def _without(text: str, parts: Sequence[str]) -> str:
    """A text with spaces in place of parts, which are looked for one after the other."""
    at = 0
    for part in parts:
        place = text.find(part, at) if part else -1
        if place >= 0:
            at = place + len(part)
            text = text[:place] + " " * len(part) + text[at:]
    return text


def byte_spans(text: str, tokens: Sequence[str]) -> list[tuple[int, int] | None]:
    """Half-open range of characters of each token of a tokenizer that loses no byte of a text.

    A token that is part of a character has all of it, so neighbours may share one.
    """
    raw = text.encode("utf-8", "surrogatepass")
    first = [
        place for place, char in enumerate(text) for _ in char.encode("utf-8", "surrogatepass")
    ]
    spans: list[tuple[int, int] | None] = []
    at = 0
    for number, token in enumerate(tokens):
        own = _bytes(token)
        if not number and not raw.startswith(own):
            own = own.removeprefix(b" ")  # decoders leave out the blank before a text
        if at == len(raw) or not own:
            spans.append(None)
        elif raw[at : at + len(own)] != own:
            return [None] * len(tokens)
        else:
            spans.append((first[at], first[at + len(own) - 1] + 1))
            at += len(own)
    return spans if at == len(raw) else [None] * len(tokens)


def _bytes(token: str) -> bytes:
    """Bytes of a readable token."""
    parts = _BYTE.split(token)
    return b"".join(
        bytes([int(part, 16)]) if odd % 2 else _encoded(part) for odd, part in enumerate(parts)
    )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _bare(token: str) -> str:
    if token.startswith(_CONTINUED) and len(token) > len(_CONTINUED):
        return token[len(_CONTINUED) :]
    return token.strip(_BLANKS)


def _folded(text: str) -> str:
    """Letters without case, accents, blanks and controls."""
    plain = unicodedata.normalize("NFKD", text.lower())
    return "".join(c for c in plain if not c.isspace() and unicodedata.category(c)[0] not in "CM")


def _end_of_word(text: str, letters: Sequence[tuple[str, int]], at: int) -> int:
    """Return the end of a word that the vocabulary does not know."""
    stop = at + 1
    while stop < len(letters) and letters[stop][1] == letters[at][1]:  # … is three letters
        stop += 1
    if _alone(letters[at][0]):
        return stop
    while stop < len(letters):
        before, place = letters[stop - 1][1], letters[stop][1]
        if _alone(letters[stop][0]) or any(c.isspace() for c in text[before + 1 : place]):
            break
        stop += 1
    return stop


def _alone(letter: str) -> bool:
    """Return whether BERT parts it from its neighbours: a mark, or a Chinese character."""
    ascii_mark = letter.isascii() and letter.isprintable() and not letter.isalnum()
    ideograph = unicodedata.name(letter, "").startswith("CJK")
    return ascii_mark or ideograph or unicodedata.category(letter)[0] == "P"
