# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""BERT's instances: pairs of stretches of a corpus, drawn by number and packed into rows."""

import hashlib
import random
from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float32, Int, Int32, UInt64

from flaxattn.errors import InputError
from flaxattn.pipeline.batches import share_rows
from flaxattn.text.tokenizer import longest_first
from flaxattn.train.corpus import Column, TokenCorpus, mapped

_BLOCK = 4  # numbers per count of Philox's counter


def raw_draws(key: str, first: int, rows: int, width: int) -> UInt64[np.ndarray, "B N"]:
    """Uniform 64-bit numbers of some consecutive rows.

    Counter-based (Philox 4x64, Salmon et al. 2011): nothing has to be drawn before.

    Args:
        key: what the numbers are for; different keys have independent numbers.
        first: number of the first row.
        rows: B.
        width: N, numbers per row; part of what a row is, so the same in every call for a key.
    """
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "little")
    blocks = -(-width // _BLOCK)
    source = np.random.Philox(key=seed, counter=first * blocks)
    return source.random_raw(rows * blocks * _BLOCK).reshape(rows, -1)[:, :width]


SPECIAL_TOKENS = 3  # [CLS] first [SEP] second [SEP]
_AT_ONCE = 2**16  # pairs

# A segment is `length` tokens of the corpus from token `start` on.
PAIR = np.dtype(
    [
        ("first", np.int64),
        ("second", np.int64),
        ("first_length", np.int32),
        ("second_length", np.int32),
        ("is_random", np.bool_),
    ]
)


class SegmentPair(NamedTuple):
    """Two segments, by their first token in the corpus and their length; a row of `PAIR`."""

    first: int
    second: int
    first_length: int
    second_length: int
    is_random: bool


class Outline(NamedTuple):
    """Starts of documents and sentences of a corpus; indexing gives plain ints, quickly.

    Attributes:
        sentences: first token of every sentence, and the end.
        documents: first sentence of every document, and the end.
        members: numbers of the documents that may be used.
    """

    sentences: memoryview
    documents: memoryview
    members: memoryview

    @classmethod
    def of(cls, corpus: TokenCorpus) -> "Outline":
        """The outline of a corpus, still on disk."""
        return cls(*map(memoryview, (corpus.sentences, corpus.documents, corpus.members)))


def cut_document(
    outline: Outline, number: int, length: int, short_prob: float, rng: random.Random
) -> list[SegmentPair]:
    """Sentence pairs of one document (BERT paper §A.2, as coded)."""
    bounds, room, draw = outline.sentences, length - SPECIAL_TOKENS, rng.random
    target = 2 + int(draw() * (room - 1)) if draw() < short_prob else room
    i, end = outline.documents[number], outline.documents[number + 1]
    pairs = []
    while i < end:
        start = bounds[i]
        stop = bisect_left(bounds, start + target, i + 1, end)
        middle = i + 1 + int(draw() * (stop - i - 1)) if stop - i > 1 else stop
        first_length = bounds[middle] - start
        is_random = stop - i == 1 or draw() < 0.5
        if is_random:
            second, second_length = _random_segment(outline, number, target - first_length, rng)
            i = middle  # the unused sentences go back
        else:
            second = bounds[middle]
            second_length = bounds[stop] - second
            i = stop
        excess = first_length + second_length - room
        if excess > 0:
            kept = longest_first((first_length, second_length), excess)
            start += _front(first_length - kept[0], rng)
            second += _front(second_length - kept[1], rng)
            first_length, second_length = kept
        pairs.append(SegmentPair(start, second, first_length, second_length, is_random))
    return pairs


def _front(cut: int, rng: random.Random) -> int:
    """Number of tokens to drop from the front: each with probability one half."""
    return rng.getrandbits(cut).bit_count()


def _random_segment(
    outline: Outline, number: int, wanted: int, rng: random.Random
) -> tuple[int, int]:
    """Start and length of some sentences of another document, up to the first that is enough."""
    bounds, members = outline.sentences, outline.members
    other = number
    for _ in range(10):
        other = members[int(rng.random() * len(members))]
        if other != number:
            break
    begin, end = outline.documents[other], outline.documents[other + 1]
    i = begin + int(rng.random() * (end - begin))
    start = bounds[i]
    return start, bounds[bisect_left(bounds, start + wanted, i + 1, end)] - start


def write_plan(path: Path, corpus: TokenCorpus, length: int, short_prob: float, key: str) -> int:
    """Write the pairs of one pass over a corpus, shuffled, as an array of `PAIR`.

    Takes 16 bytes of memory per pair while they are shuffled.
    """
    if length < SPECIAL_TOKENS + 2:
        raise InputError(f"recipe: length {length} has no room for a pair of sentences; 5 has")
    ordered = path.with_name(f"{path.stem}-ordered.npy")
    outline, rng = Outline.of(corpus), random.Random()
    with Column(ordered, PAIR) as column:
        pairs: list[SegmentPair] = []
        for number in outline.members:
            rng.seed(f"{key}/{number}")
            pairs += cut_document(outline, number, length, short_prob, rng)
            if len(pairs) >= _AT_ONCE:
                column.extend(np.array(pairs, PAIR))
                pairs = []
        column.extend(np.array(pairs, PAIR))
    count = len(column)
    order = np.argsort(raw_draws(f"{key}/order", 0, 1, count)[0], kind="stable")
    source = mapped(ordered)
    with Column(path, PAIR) as column:
        for start in range(0, count, _AT_ONCE):
            column.extend(source[order[start : start + _AT_ONCE]])
    ordered.unlink()
    return count


_WINDOW = 2**15  # pairs that rows are made of together

AnyArray = np.ndarray | Array  # NumPy outside of jit, JAX inside


class Packing(NamedTuple):
    """Places of the pairs in packed rows; N is the number of places for pairs in a row.

    Attributes:
        segment_ids: number of the pair, from 1; 0 on padding.
        position_ids: place within the pair.
        starts: position of each pair's [CLS]; 0 for a place without a pair.
        weights: 1 for a pair, 0 for a place without one.
    """

    segment_ids: Int32[AnyArray, "B S"]
    position_ids: Int32[AnyArray, "B S"]
    starts: Int32[AnyArray, "B N"]
    weights: Float32[AnyArray, "B N"]


class PackedPlaces(NamedTuple):
    """Places of n pairs, in order of rows: row, number in the row, first position."""

    row: Int[np.ndarray, " n"]
    number: Int[np.ndarray, " n"]
    start: Int[np.ndarray, " n"]


def row_table(sizes: Int[np.ndarray, " n"], length: int, most: int) -> Int[np.ndarray, "R most"]:
    """Indices of the pairs in each row of `share_rows`, -1 where there is none."""
    rows = share_rows(sizes.tolist(), (length,), most)
    table = np.full((len(rows), most), -1)
    for entries, row in zip(table, rows, strict=True):
        entries[: len(row.members)] = row.members
    return table


def write_packed(source: Path, target: Path, length: int, most: int, key: str) -> int:
    """Write a plan again with `most` entries of `PAIR` per row; empty pairs fill rows up."""
    pairs, count = mapped(source), 0
    with Column(target, PAIR) as column:
        for window, start in enumerate(range(0, len(pairs), _WINDOW)):
            some = np.append(pairs[start : start + _WINDOW], np.zeros(1, PAIR))  # -1 is empty
            table = row_table(lengths(some[:-1]), length, most)
            draws = raw_draws(f"{key}/rows/{window}", 0, 1, len(table))[0]
            column.extend(some[table[np.argsort(draws, kind="stable")]].reshape(-1))
            count += len(table)
    return count


def lengths(pairs: np.ndarray) -> Int32[np.ndarray, " n"]:
    """Tokens of `[CLS] first [SEP] second [SEP]` for each of an array of `PAIR`."""
    return pairs["first_length"] + pairs["second_length"] + np.int32(SPECIAL_TOKENS)


def find_places(rows: np.ndarray) -> PackedPlaces:
    """Find the places of the pairs of rows `[B, N]`, one after the other from the left."""
    row, number = np.nonzero(rows["first_length"])
    return places_of(row, number, lengths(rows[row, number]))


def places_of(
    row: Int[np.ndarray, " n"], number: Int[np.ndarray, " n"], sizes: Int[np.ndarray, " n"]
) -> PackedPlaces:
    """Find the places of n stretches of tokens, one after the other from the left of each row."""
    before = np.cumsum(sizes) - sizes
    return PackedPlaces(row, number, before - before[np.searchsorted(row, row)])


def spread(
    values: Int32[np.ndarray, "n S"],
    sizes: Int32[np.ndarray, " n"],
    places: PackedPlaces,
    rows: int,
) -> Int32[np.ndarray, "B S"]:
    """Move what pairs have in rows of their own to where they lie; 0 elsewhere."""
    length = values.shape[1]
    inside = np.arange(length) < sizes[:, None]
    target = (places.row * length + places.start)[:, None] + np.arange(length)
    result = np.zeros(rows * length, np.int32)
    result[target[inside]] = values[inside]
    return result.reshape(rows, length)


def packing_of(
    sizes: Int32[np.ndarray, " n"], places: PackedPlaces, shape: tuple[int, int, int]
) -> Packing:
    """The description of packed rows."""
    rows, length, most = shape
    numbers = np.broadcast_to(places.number[:, None] + 1, (len(sizes), length))
    place = np.broadcast_to(np.arange(length), numbers.shape)
    starts, weights = np.zeros((rows, most), np.int32), np.zeros((rows, most), np.float32)
    starts[places.row, places.number] = places.start
    weights[places.row, places.number] = 1
    return Packing(
        spread(numbers, sizes, places, rows), spread(place, sizes, places, rows), starts, weights
    )


def gather_predictions(
    positions: Int32[np.ndarray, "n p"],
    ids: Int32[np.ndarray, "n p"],
    weights: Float32[np.ndarray, "n p"],
    places: PackedPlaces,
    shape: tuple[int, int],
) -> tuple[Int32[np.ndarray, "B P"], Int32[np.ndarray, "B P"], Float32[np.ndarray, "B P"]]:
    """Gather the targets of pairs by row; zeros at the end."""
    pair, number = np.nonzero(weights)
    row = places.row[pair]
    column = np.arange(len(row)) - np.searchsorted(row, row)
    all_positions, all_ids = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    all_weights = np.zeros(shape, np.float32)
    all_positions[row, column] = positions[pair, number] + places.start[pair]
    all_ids[row, column] = ids[pair, number]
    all_weights[row, column] = 1
    return all_positions, all_ids, all_weights
