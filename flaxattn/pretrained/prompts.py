# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Prompts as a model reads them that goes on with them: in one batch, padded on the left.

It knows texts and a tokenizer, no model; what follows a prompt is decided elsewhere.
"""

import sys
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from flaxattn.errors import InputError
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokenizer_files import shortened

Batch = tuple[Int[np.ndarray, "B P"], Int[np.ndarray, "B P"]]


def encoded(
    texts: str | Sequence[str],
    reader: Tokenizer,
    limit: int,
    first: int | None,
    special: bool = True,
) -> Batch:
    """Pieces of prompts."""
    items = [texts] if isinstance(texts, str) else texts
    for number, text in enumerate(items if isinstance(items, Sequence) else ()):
        if isinstance(text, str) and not text.strip():
            mark = "" if first is None else f", or {reader.pieces([first])[0]!r} to begin a text"
            raise InputError(
                f"prompt {number} is empty\nreceived {text!r}, after which nothing can follow\n"
                f"give it at least one word{mark}"
            )
    batch = reader.encode(items, max_length=sys.maxsize, special=special)
    sizes = batch.attention_mask.sum(1)
    if (sizes >= limit).any():
        number = int((sizes >= limit).argmax())
        raise InputError(
            f"prompt {number} is too long: {sizes[number]} pieces, this model has room for {limit} "
            f"with those that follow\nreceived: {shortened(items[number])}\nshorten it"
        )
    width = batch.input_ids.shape[1]
    order = (np.arange(width)[None] + sizes[:, None]) % width
    ids, mask = (
        np.take_along_axis(array, order, axis=1)
        for array in (batch.input_ids, batch.attention_mask)
    )
    return ids, mask


def moved_left(
    ids: Int[np.ndarray, "B T"], sizes: Int[np.ndarray, " B"], mask: Int[np.ndarray, "B P"]
) -> tuple[Int[np.ndarray, "B S"], Bool[np.ndarray, "B S"]]:
    """Texts without the padding before their prompts, and which of their positions are real."""
    starts = (mask == 0).sum(1)
    places = starts[:, None] + np.arange((sizes - starts).max())[None]
    real = places < sizes[:, None]
    moved = np.take_along_axis(ids, np.minimum(places, ids.shape[1] - 1), axis=1)
    return np.where(real, moved, 0), real


def check_left(mask: Int[np.ndarray, "B P"]) -> None:
    """Check that prompts are padded on the left."""
    if (np.diff(mask, axis=1) < 0).any() or not mask[:, -1].all():
        raise InputError(
            "attention_mask: a prompt ends in padding, after which nothing can be written\n"
            "pad prompts on the left"
        )
