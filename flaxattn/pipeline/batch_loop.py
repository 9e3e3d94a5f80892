# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The loop over batches: the device always has the next ones while the host handles the last."""

import collections
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from flaxattn.pipeline.batches import Batch

_AHEAD = 2  # batches that the device is given before the first is fetched
_Begun = TypeVar("_Begun")
_Done = TypeVar("_Done")


def each_batch(
    batches: Sequence[Batch],
    begin: Callable[[Batch], _Begun],
    end: Callable[[_Begun], _Done],
) -> Iterator[tuple[Batch, _Done]]:
    """Run batches in order, two of them ahead of the one whose result is handed out."""
    begun: collections.deque[tuple[Batch, _Begun]] = collections.deque()
    for batch in [*batches, *[None] * _AHEAD]:
        if batch is not None:
            begun.append((batch, begin(batch)))
        if begun and (batch is None or len(begun) > _AHEAD):
            done, started = begun.popleft()
            yield done, end(started)
