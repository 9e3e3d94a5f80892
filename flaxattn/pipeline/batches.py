# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts to batches of few shapes: each in a row of its own, or several in a row, as costs less.

What is in a batch follows from the lengths of a shard's texts and from nothing else, so a shard
that is computed again is computed in the same way. NumPy only; nothing here runs a model.
"""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from flaxattn.pipeline.length_buckets import Cost, widths_alone, widths_shared
from flaxattn.pretrained.readings import TokenizedTexts
from flaxattn.pretrained.row_packing import share_rows


class RowSlot(NamedTuple):
    """Place of a text in a batch: its number, its row, and its first position there."""

    text: int
    row: int
    start: int = 0


class Batch(NamedTuple):
    """Rows that are computed together.

    Attributes:
        places: Of the texts, by row.
        rows: Rows of the compiled shape, at least as many as are used.
        widths: What each side is padded to: S, and T where an encoder has a decoder beside it.
        packed: Whether rows are shared: their texts have segment ids.
    """

    places: tuple[RowSlot, ...]
    rows: int
    widths: tuple[int, ...]
    packed: bool = False


class BatchBudget(NamedTuple):
    """Size of a batch, and its cost.

    Attributes:
        tokens: Positions of a batch, padding counted.
        parts: The number of rows is a multiple of this: devices that share a batch.
        cost: Cost of a position, which the choice of batches makes least.
        packs: Whether texts may share rows.
    """

    tokens: int
    parts: int
    cost: Cost
    packs: bool = False


def planned(
    lengths: Sequence[tuple[int, ...]], limit: int, budget: BatchBudget, widths: Sequence[int] = ()
) -> list[Batch]:
    """The batches of a shard, those with the longest texts first."""
    given = tuple(sorted({limit, *(min(width, limit) for width in widths)}))
    own = given if widths else widths_alone(lengths, limit, budget.cost)
    alone = one_each(lengths, own, budget.tokens, budget.parts)
    if not budget.packs:
        return alone
    singles = [n for (n,) in lengths]
    common = given if widths else widths_shared(singles, limit, budget.cost)
    return min(alone, shared(singles, common, budget), key=lambda found: _cost(found, budget.cost))


def one_each(
    lengths: Sequence[tuple[int, ...]], widths: Sequence[int], tokens: int, parts: int = 1
) -> list[Batch]:
    """Batches of rows with one text each."""
    wide = [tuple(widths[bisect.bisect_left(widths, n)] for n in text) for text in lengths]
    # Sorted by the source's width first, then by the target's length, both descending.
    order = sorted(range(len(wide)), key=lambda i: (wide[i][0], lengths[i][-1]), reverse=True)
    found, start = [], 0
    while start < len(order):
        most = _most(wide[order[start]], tokens, parts)
        members = order[start : start + most]
        # Targets of texts with shorter sources may be longer than that of the first.
        sides = tuple(max(side) for side in zip(*(wide[i] for i in members), strict=True))
        places = tuple(RowSlot(text, row) for row, text in enumerate(members))
        found.append(Batch(places, _filled(len(members), most, parts), sides))
        start += most
    return found


def shared(lengths: Sequence[int], widths: Sequence[int], budget: BatchBudget) -> list[Batch]:
    """Batches of rows that several texts share, of one width each."""
    rows = sorted(share_rows(lengths, widths), key=lambda row: -row.room)
    found, start = [], 0
    while start < len(rows):
        width = rows[start].room
        most = _most((width,), budget.tokens, budget.parts)
        some = rows[start : start + most]
        places = []
        for number, row in enumerate(some):
            first = 0
            for text in row.members:
                places.append(RowSlot(text, number, first))
                first += lengths[text]
        filled = _filled(len(some), most, budget.parts)
        found.append(Batch(tuple(places), filled, (width,), packed=True))
        start += most
    return found


def _most(sides: tuple[int, ...], tokens: int, parts: int) -> int:
    """Rows of a full batch."""
    return max(tokens // sum(sides) // parts, 1) * parts


def _filled(count: int, most: int, parts: int) -> int:
    """Rows of a batch that has `count` to compute: few numbers, so that few shapes are compiled."""
    rows = parts
    while rows < count:
        rows *= 2
    return min(rows, most)


def _cost(batches: Sequence[Batch], cost: Cost) -> float:
    shapes = {(batch.rows, batch.widths) for batch in batches}
    computed = sum(b.rows * sum(cost.row(width) for width in b.widths) for b in batches)
    return computed + cost.compiling * len(shapes)


def stacked(rows: Sequence[TokenizedTexts], batch: Batch) -> dict[str, Int[np.ndarray, "B S"]]:
    """Arguments of the module for a batch; rows that are missing repeat the last one."""
    given = {}
    for name in rows[batch.places[0].text].given:
        side = batch.widths[-1] if name.startswith("decoder_") else batch.widths[0]
        parts = [rows[place.text].given[name][0] for place in batch.places]
        given[name] = _laid_out(parts, batch, side)
    if batch.packed:
        sizes = [rows[place.text].lengths[0] for place in batch.places]
        marks = [np.full(n, i, np.int32) for i, n in enumerate(sizes, 1)]
        given["segment_ids"] = _laid_out(marks, batch, batch.widths[0])
        if "position_ids" not in given:  # of a model whose positions are more than a count
            counts = [np.arange(n, dtype=np.int32) for n in sizes]
            given["position_ids"] = _laid_out(counts, batch, batch.widths[0])
    return given


def _laid_out(parts: Sequence[np.ndarray], batch: Batch, width: int) -> Int[np.ndarray, "B S"]:
    array = np.zeros((batch.rows, width), np.int32)
    for place, part in zip(batch.places, parts, strict=True):
        array[place.row, place.start : place.start + len(part)] = part
    used = batch.places[-1].row + 1
    array[used:] = array[used - 1]
    return array
