# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The lengths that rows of a batch are padded to: those that cost the least, compiling included.

What is chosen follows from the lengths of texts and a model's size, from no clock, so a shard that
is computed again is computed in the same way.
"""

import bisect
from collections.abc import Callable, Sequence
from typing import NamedTuple

from flaxattn.pretrained.model_inputs import bucket

_SHORT = 64  # below this, rows that several texts share are filled badly


class Cost(NamedTuple):
    """Cost of computing, in positions that pass through the dense layers.

    Attributes:
        compiling: Positions that could be computed while a shape is compiled.
        attending: Positions whose attention costs what the dense layers cost; about the model's
            width, since the dense layers of a position take 24 E^2 operations and attention to S
            positions takes 4 E S, at a fraction of their speed.
    """

    compiling: int
    attending: int

    def position(self, width: int) -> float:
        """Cost of one position in a row of some width."""
        return 1 + width / self.attending

    def row(self, width: int) -> float:
        """Cost of a whole row of some width."""
        return width * self.position(width)


def widths_alone(lengths: Sequence[tuple[int, ...]], limit: int, cost: Cost) -> tuple[int, ...]:
    """The widths of rows that hold one text each.

    Few texts share one or two widths; many have one for every multiple of 4, further apart above
    32.
    """
    every = sorted(n for row in lengths for n in row)
    ladder = sorted({_rounded(n, limit) for n in every})
    held = [0, *(bisect.bisect_right(every, n) for n in ladder)]
    return _cheapest(
        ladder, lambda j, i: (held[i + 1] - held[j]) * cost.row(ladder[i]), cost.compiling
    )


def widths_shared(lengths: Sequence[int], limit: int, cost: Cost) -> tuple[int, ...]:
    """The widths of rows that several texts share, which are full but for a little."""
    every = sorted(lengths)
    least = _rounded(min(sum(every), _SHORT), limit)
    top = max(_rounded(every[-1], limit), least)
    ladder = [top]
    while (half := 1 << ((ladder[0] - 1).bit_length() - 1)) >= least:
        ladder.insert(0, half)
    held = [0, *(bisect.bisect_right(every, n) for n in ladder)]
    sums = [0]
    for n in every:
        sums.append(sums[-1] + n)
    return _cheapest(
        ladder,
        lambda j, i: (sums[held[i + 1]] - sums[held[j]]) * cost.position(ladder[i]),
        cost.compiling,
    )


def _cheapest(
    ladder: Sequence[int], of_group: Callable[[int, int], float], compiling: int
) -> tuple[int, ...]:
    """Some of the widths of a ladder, its last among them."""
    best: list[tuple[float, int]] = []  # of all texts up to a width that is chosen; the one before
    for i in range(len(ladder)):
        before = [(best[j - 1][0] + of_group(j, i), j - 1) for j in range(1, i + 1)]
        least, j = min([(of_group(0, i), -1), *before])
        best.append((least + compiling, j))
    found, place = [], len(ladder) - 1
    while place >= 0:
        found.append(ladder[place])
        place = best[place][1]
    return tuple(reversed(found))


def _rounded(length: int, limit: int) -> int:
    """The finest width for a length, about an eighth longer at most."""
    if length > 256:
        return bucket(length, limit)
    step = 4 if length <= 32 else 8 if length <= 64 else 16 if length <= 128 else 32
    return min(-(-length // step) * step, limit)
