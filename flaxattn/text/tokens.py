# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens of texts: batches, the protocol of tokenizers, words and spans of characters.

Tokenizers are called as those of transformers. Words stand between spaces, or were marked by the
user. Spans of a stored text are found without its tokenizer.
"""

import abc
import bisect
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Bool, Int32

from flaxattn.errors import InputError
from flaxattn.text.tokenizer_files import shortened


@dataclass(frozen=True)
class TokenBatch:
    """A batch of token sequences, padded on the right.

    Attributes:
        input_ids: Token ids, `pad_id` where padded.
        attention_mask: 1 on tokens, 0 on padding.
        token_type_ids: 0 for the first text and its special tokens, 1 for the second.
        tokens: One readable token per position, padding included.
        word_ids: Index of the word a token belongs to, counted within its own text; None for
            special tokens and padding.
        offsets: Half-open character range of a token in its own text; (0, 0) for special tokens.
        special: True on special tokens and padding.
        truncated: Number of tokens that were cut from each sequence.
    """

    input_ids: Int32[np.ndarray, "B S"]
    attention_mask: Int32[np.ndarray, "B S"]
    token_type_ids: Int32[np.ndarray, "B S"]
    tokens: list[list[str]]
    word_ids: list[list[int | None]]
    offsets: list[list[tuple[int, int]]]
    special: Bool[np.ndarray, "B S"]
    truncated: list[int]

    def spans(self) -> list[list[tuple[int, int] | None]]:
        """Range of characters of each token in its own text; None for special tokens, padding."""
        rows = zip(self.offsets, self.special, strict=True)
        return [
            [None if added else span for span, added in zip(places, special, strict=True)]
            for places, special in rows
        ]


class Reader(Protocol):
    """Protocol of a tokenizer, as models need it."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        ...

    @property
    def largest_id(self) -> int:
        """Largest id that must have a row in the embedding table for any text to be read."""
        ...

    def encode(
        self,
        texts: str | Sequence[str],
        *,
        max_length: int | None = None,
        truncate: bool = False,
    ) -> TokenBatch:
        """Turn texts into one padded batch."""
        ...

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special ones counted, before any is cut."""
        ...

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of a sequence of ids."""
        ...

    def readable_tokens(self, ids: Sequence[int]) -> list[str]:
        """A readable token per id."""
        ...

    def save(self, directory: str | Path, prefix: str = "") -> None:
        """Write the tokenizer's files; those of a second one of a model have a prefix."""
        ...


def tokens_to_cut(
    total: int, limit: int | None, extra: int, truncate: bool, number: int, text: str
) -> int:
    """Return the number of tokens of a text that must be cut."""
    removed = 0 if limit is None else max(0, total - limit)
    if removed and (not truncate or limit is None or limit <= extra):
        raise InputError(
            f"text {number} is too long: {total} tokens, the limit is {limit}\n"
            f"counted with {extra} special tokens: {shortened(text)}\n"
            "shorten it, or pass truncate=True to cut it at the limit"
        )
    return removed


class CallableTokenizer(abc.ABC):
    """Base of tokenizers, which encode batches of texts."""

    @property
    @abc.abstractmethod
    def max_length(self) -> int | None:
        """Limit named by the directory's settings; None where it names none."""

    @abc.abstractmethod
    def token_types(self) -> bool:
        """Return whether models of this tokenizer take token types."""

    @abc.abstractmethod
    def encode(self, texts: str | Sequence[str], *given: Any, **options: Any) -> TokenBatch:
        """Turn texts into one padded batch."""

    def __call__(
        self,
        text: str | Sequence[str],
        text_pair: str | Sequence[str] | None = None,
        *,
        padding: bool | str = False,
        truncation: bool = False,
        max_length: int | None = None,
        return_tensors: str | None = None,
        return_offsets_mapping: bool = False,
        return_special_tokens_mask: bool = False,
    ) -> dict[str, Any]:
        """Turn texts into model input, called as a tokenizer of transformers is."""
        limit = self.max_length if max_length is None else max_length
        self._check_call(padding, return_tensors, limit)
        pairs = {} if text_pair is None else {"pairs": text_pair}
        pad_to = {"pad_to": limit} if padding == "max_length" else {}
        batch = self.encode(text, max_length=limit, truncate=truncation, **pairs, **pad_to)
        columns: dict[str, Any] = {
            "input_ids": batch.input_ids,
            "attention_mask": batch.attention_mask,
        }
        if self.token_types():
            columns["token_type_ids"] = batch.token_type_ids
        if return_special_tokens_mask:
            columns["special_tokens_mask"] = batch.special
        if return_offsets_mapping:
            columns["offset_mapping"] = np.array(batch.offsets)
        if return_tensors == "np":
            self._check_rectangular(batch, padding)
            return {name: np.asarray(column, np.int64) for name, column in columns.items()}
        lengths = batch.attention_mask.sum(1) if not padding else [None] * len(batch.tokens)
        rows = {
            name: [
                row[:length].astype(int).tolist()
                for row, length in zip(column, lengths, strict=True)
            ]
            for name, column in columns.items()
        }
        return {name: row[0] for name, row in rows.items()} if isinstance(text, str) else rows

    def _check_call(self, padding: bool | str, tensors: str | None, limit: int | None) -> None:
        if padding not in (True, False, "longest", "max_length"):
            raise InputError(
                f"padding={padding!r} is not supported\n"
                'expected True, False, "longest" or "max_length"\nname one of these'
            )
        if padding == "max_length" and limit is None:
            raise InputError(
                'padding="max_length" needs a length\n'
                "neither the call nor the tokenizer names one\npass max_length"
            )
        if tensors not in (None, "np"):
            raise InputError(
                f"return_tensors={tensors!r} is not supported\n"
                'expected "np" or None\npass "np"; JAX takes NumPy arrays'
            )

    def _check_rectangular(self, batch: TokenBatch, padding: bool | str) -> None:
        if not padding and not batch.attention_mask.all():
            raise InputError(
                'return_tensors="np" needs sequences of one length\n'
                f"received {sorted(set(batch.attention_mask.sum(1).tolist()))} tokens\n"
                "pass padding=True"
            )


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
