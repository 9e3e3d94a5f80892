# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Several short pairs in one row, and where in it each lies.

As for BERT in Krell et al. 2021 (arXiv:2107.02027): a pair attends to itself only, counts its
positions from 0 and is pooled at its own [CLS], so it sees what it would see in a row of its own.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float32, Int, Int32

from flaxattn.pretrained.row_packing import share_rows
from flaxattn.train.columns import Column, mapped
from flaxattn.train.draws import raw_draws
from flaxattn.train.instances import PAIR, SPECIAL_TOKENS

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
