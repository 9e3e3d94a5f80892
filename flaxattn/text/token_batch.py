# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of tokens, and the protocol of tokenizers. No tokenizer is here."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Int32

from flaxattn.errors import InputError
from flaxattn.text.tokenizer_files import shortened


@dataclass(frozen=True)
class TokenBatch:
    """A batch of token sequences, padded on the right.

    Attributes:
        input_ids: token ids, `pad_id` where padded.
        attention_mask: 1 on tokens, 0 on padding.
        token_type_ids: 0 for the first text and its special tokens, 1 for the second.
        tokens: one readable token per position, padding included.
        word_ids: index of the word a token belongs to, counted within its own text; None for
            special tokens and padding.
        offsets: half-open character range of a token in its own text; (0, 0) for special tokens.
        special: True on special tokens and padding.
        truncated: how many tokens were cut from each sequence.
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
