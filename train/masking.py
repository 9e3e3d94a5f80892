# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Masks of tokens to predict, and their replacements, for a batch at once.

Random numbers come in as an array, so that every row depends on its own numbers only.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, UInt64

from flaxattn.text.tokenizer import Tokenizer

_LAST = np.uint64(2**64 - 1)


class Masked(NamedTuple):
    """A batch with hidden tokens; rows with fewer than P have zeros at the end.

    Attributes:
        input_ids: what the model sees.
        positions: chosen positions, ascending.
        ids: what stood there.
        weights: 1 where a position was chosen.
    """

    input_ids: Int32[np.ndarray, "B S"]
    positions: Int32[np.ndarray, "B P"]
    ids: Int32[np.ndarray, "B P"]
    weights: Float32[np.ndarray, "B P"]


def continuation_pieces(tokenizer: Tokenizer) -> Bool[np.ndarray, " V"]:
    """Mask of the tokens of a WordPiece vocabulary that continue a word, such as `##ing`."""
    table = np.zeros(tokenizer.vocab_size, bool)
    for piece, number in tokenizer.backend.get_vocab(with_added_tokens=True).items():
        table[number] = piece.startswith("##") and len(piece) > 2
    return table


def draws_needed(length: int, most: int) -> int:
    """Numbers per row that `choose_masks` takes."""
    return length + 2 * most


def choose_masks(
    ids: Int32[np.ndarray, "B S"],
    candidates: Bool[np.ndarray, "B S"],
    counts: Int32[np.ndarray, " B"],
    most: int,
    draws: UInt64[np.ndarray, "B N"],
    *,
    vocabulary: int,
    mask_id: int,
    continues: Bool[np.ndarray, "B S"] | None = None,
) -> Masked:
    """Hide tokens: 80 % become the mask, 10 % stay, 10 % become any id of the vocabulary."""
    length = ids.shape[1]
    keys = np.where(candidates, draws[:, :length], _LAST)
    if continues is None:
        order = np.argsort(keys, axis=1)[:, :most]
        counts = np.minimum(counts, candidates.sum(1))
        chosen = np.where(np.arange(order.shape[1]) < counts[:, None], order, length)
    else:
        picked = _whole_words(candidates, continues, counts, keys)
        chosen = np.where(picked, np.arange(length), length)
    chosen = np.sort(chosen, axis=1)[:, :most]
    chosen = np.pad(chosen, ((0, 0), (0, most - chosen.shape[1])), constant_values=length)
    real = chosen < length
    positions = np.where(real, chosen, 0).astype(np.int32)
    before = np.take_along_axis(ids, positions, axis=1)
    kind = draws[:, length : length + most] / 2.0**64
    anything = draws[:, length + most :] % np.uint64(vocabulary)
    after = np.where(kind < 0.8, mask_id, np.where(kind < 0.9, before, anything.astype(np.int32)))
    hidden = ids.copy()
    hidden[np.nonzero(real)[0], chosen[real]] = after[real]
    return Masked(hidden, positions, np.where(real, before, 0), real.astype(np.float32))


def _whole_words(
    candidates: Bool[np.ndarray, "B S"],
    continues: Bool[np.ndarray, "B S"],
    counts: Int32[np.ndarray, " B"],
    keys: UInt64[np.ndarray, "B S"],
) -> Bool[np.ndarray, "B S"]:
    """Positions of whole words, taken in random order as long as they fit."""
    rows, length = candidates.shape
    inside = candidates & continues
    inside[:, 1:] &= candidates[:, :-1]
    inside[:, 0] = False
    starts = candidates & ~inside
    word = np.where(candidates, np.cumsum(starts, axis=1), 0)  # from 1; 0 is no word
    places = word + np.arange(rows)[:, None] * (length + 1)
    sizes = np.bincount(places[candidates], minlength=rows * (length + 1)).reshape(rows, -1)
    order = np.argsort(np.where(starts, keys, _LAST), axis=1)
    ranked = np.take_along_axis(word, order, axis=1)
    room, row = counts.astype(np.int64), np.arange(rows)
    taken = np.zeros(sizes.shape, bool)
    for rank in range(int(starts.sum(1).max(initial=0))):
        number = ranked[:, rank]
        size = sizes[row, number]
        fits = starts[row, order[:, rank]] & (size <= room)
        taken[row[fits], number[fits]] = True
        room = room - size * fits
        if not room.any():
            break
    return np.take_along_axis(taken, word, axis=1) & candidates
