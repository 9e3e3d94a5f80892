# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Character spans of the tokens of a stored text, found without its tokenizer.

Case, accents, blanks and control characters are looked over on both sides. Which word a token
belongs to follows from these spans in `flaxattn.text.words`.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

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
