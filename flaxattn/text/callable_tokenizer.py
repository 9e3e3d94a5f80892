# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers called with the arguments that those of transformers have, for inputs of models."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from flaxattn.errors import InputError
from flaxattn.text.token_batch import TokenBatch


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
