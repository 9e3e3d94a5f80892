# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Keys that a query may attend to in a layer: all, those before it, or a window around it.

A score that compares with uniform attention compares with uniform attention over these.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from flaxattn.trace.record import AttentionRecord


class KeyRange(NamedTuple):
    """Range of keys around a query of self-attention.

    Attributes:
        left: Number of positions before a query that it sees; None for all.
        right: Number of positions behind it; None for all.
    """

    left: int | None = None
    right: int | None = None

    def counts(self, length: int) -> Int[np.ndarray, " Q"]:
        """Number of keys that each query of a text sees."""
        place = np.arange(length)
        first = np.zeros(length, int) if self.left is None else np.maximum(place - self.left, 0)
        last = np.full(length, length - 1)
        if self.right is not None:
            last = np.minimum(place + self.right, length - 1)
        return last - first + 1

    def mask(self, length: int) -> Bool[np.ndarray, "Q K"]:
        """True where a query of a text sees a key."""
        offset = np.arange(length) - np.arange(length)[:, None]
        visible = np.ones((length, length), bool)
        visible &= True if self.left is None else offset >= -self.left
        return visible & (True if self.right is None else offset <= self.right)

    def covers(self, queries: Sequence[int], keys: Sequence[int]) -> bool:
        """Return whether each of some queries sees each of some keys."""
        before = self.left is None or queries[-1] - keys[0] <= self.left
        return before and (self.right is None or keys[-1] - queries[0] <= self.right)


EVERY_KEY, CAUSAL = KeyRange(), KeyRange(right=0)


def ranges_of(config: Any) -> tuple[KeyRange, ...]:
    """Range of keys of each layer of a model with windows; empty for a model without any.

    A layer without a window has `EVERY_KEY`, also that of a decoder.
    """
    windows = getattr(config, "windows", ())
    if all(window is None for window in windows):
        return ()
    return tuple(_range(window) for window in windows)


def recorded_ranges(record: AttentionRecord, side: str) -> tuple[KeyRange, ...]:
    """Range of keys of each layer of a record with windows; empty for one without any."""
    last = 0 if side == "decoder" else None
    return tuple(
        EVERY_KEY
        if window is None
        else KeyRange(window[0], last if window[1] is None else window[1])
        for window in record.sliding_windows
    )


def windows_in(ranges: Sequence[KeyRange]) -> tuple[KeyRange, ...]:
    """The windows among the ranges of layers, each once."""
    return tuple(each for each in dict.fromkeys(ranges) if each != EVERY_KEY)


def _range(window: tuple[int, int] | int | None) -> KeyRange:
    if isinstance(window, int):
        return KeyRange(window - 1, 0)
    return EVERY_KEY if window is None else KeyRange(*window)
