# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of tokens, the protocol of tokenizers, and calls as those of transformers take them."""

import abc
from collections.abc import Sequence
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
