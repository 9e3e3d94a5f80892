# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sequences of unequal length in few rows: which of them share one. Nothing else is decided here.

Those of a row attend each to themselves, so what a model computes does not depend on it.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple


class PackedRow(NamedTuple):
    """A row of a batch.

    Attributes:
        room: Positions.
        members: Numbers of the sequences in it, from the left.
    """

    room: int
    members: list[int]


def share_rows(
    sizes: Sequence[int], rooms: Sequence[int], most: int | None = None
) -> list[PackedRow]:
    """Put sequences into few rows: best fit, the longest first. Cost: n log n."""
    rows: list[PackedRow] = []
    with_room: dict[
        int, list[PackedRow]
    ] = {}  # rows that may take another sequence, by free positions
    free: list[int] = []  # its keys, ascending
    for number in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        size = sizes[number]
        at = bisect_left(free, size)
        if at == len(free):
            left = rooms[bisect_left(rooms, size)]
            row = PackedRow(left, [])
            rows.append(row)
        else:
            left = free[at]
            row = with_room[left].pop()
            if not with_room[left]:
                del with_room[left], free[at]
        row.members.append(number)
        if len(row.members) != most and left > size:
            if left - size not in with_room:
                insort(free, left - size)
            with_room.setdefault(left - size, []).append(row)
    return rows
