# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Finding texts in a store: those that are there, those with some words, the one of an id.

Tables are read a group of rows at a time, and no further than what was requested; no map is read.
"""

import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int

from flaxattn.errors import InputError
from flaxattn.store.open_store import Store
from flaxattn.store.shard import Shard
from flaxattn.store.store_layout import TEXTS

_COLUMNS = ["example", "id", "text", "text_b", "source_tokens", "target_tokens"]
_SEARCHED = ["id", "text", "text_b"]
_NEAR = 32  # rows that may lie between two that are read together

Watch = Callable[[float], object]
"""Receives the finished share of the work, from 0 to 1."""


class StoredText(NamedTuple):
    """A text of a store.

    Attributes:
        example: Its number.
        id: Its name in the corpus.
        text: Itself; None if it was not kept.
        text_b: The second text of a pair, or a target.
        tokens: Number of tokens of source and target together.
    """

    example: int
    id: str
    text: str | None
    text_b: str | None
    tokens: int


class ExampleNumbers(Sequence[int]):
    """Numbers of the texts whose shards are there, in order, without a list of them.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._spans = store.spans()
        self._ends = list(itertools.accumulate(map(len, self._spans)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        place %= len(self)
        span = bisect.bisect_right(self._ends, place)
        return self._spans[span][place - (self._ends[span - 1] if span else 0)]

    def index(self, value: int, start: int = 0, stop: int | None = None) -> int:
        """Place of a text among those that are there."""
        for span, end in zip(self._spans, self._ends, strict=True):
            if value in span:
                place = end - span.stop + value
                if place in range(*slice(start, stop).indices(len(self))):
                    return place
        raise ValueError(value)


def read_texts(store: Store, examples: Sequence[int]) -> list[StoredText]:
    """Texts by their numbers.

    Reads the groups of rows that the texts are in.
    """
    found: dict[int, StoredText] = {}
    wanted = sorted(set(examples))
    while wanted:
        _, shard = store.shard_of(wanted[0])
        stop = 1
        while (
            stop < len(wanted)
            and wanted[stop] < shard.manifest.stop
            and wanted[stop] - wanted[stop - 1] <= _NEAR
        ):
            stop += 1
        start = shard.manifest.start
        rows = (wanted[0] - start, wanted[stop - 1] + 1 - start)
        table = shard.table(TEXTS, _COLUMNS, rows)
        table = table.take([example - wanted[0] for example in wanted[:stop]])
        for example, row in zip(wanted, table.to_pylist(), strict=False):
            tokens = row.pop("source_tokens") + row.pop("target_tokens")
            found[example] = StoredText(**row, tokens=tokens)
        wanted = wanted[stop:]
    return [found[example] for example in examples]


def search_texts(
    store: Store, words: str, count: int, watch: Watch | None = None
) -> Int[np.ndarray, "N"]:
    """Numbers of the texts that contain some words, in the order of the corpus.

    Reads the tables of texts up to the last one found, a group of rows at a time.
    """
    parts: list[np.ndarray] = []
    total = 0
    for shard, start, table in row_groups(store, TEXTS, _SEARCHED, watch):
        places = np.flatnonzero(_contain(table, words)) + shard.manifest.start + start
        parts.append(places[: count - total])
        total += len(parts[-1])
        if total >= count:
            break
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def texts_with(shard: Shard, words: str) -> Bool[np.ndarray, "N"]:
    """Mask of the texts of a shard that contain some words."""
    groups = shard.row_groups(TEXTS)
    return np.concatenate([_contain(shard.table(TEXTS, _SEARCHED, g), words) for g in groups])


def row_groups(
    store: Store, name: str, columns: Sequence[str] | None, watch: Watch | None = None
) -> Iterator[tuple[Shard, int, pa.Table]]:
    """Rows of a table of all shards that are there and have it, one group at a time."""
    shards = store.shards
    for done, number in enumerate(shards):
        shard = store.shard(number)
        groups = shard.row_groups(name) if name in shard else []
        for place, group in enumerate(groups):
            yield shard, group[0], shard.table(name, columns, group)
            if watch is not None:
                watch((done + (place + 1) / len(groups)) / len(shards))


def example_of(store: Store, name: str) -> int:
    """Number of the text of a name.

    Reads the ids of the corpus up to it.
    """
    for shard, start, table in row_groups(store, TEXTS, ["id"]):
        if (place := pc.index(table["id"], name).as_py()) >= 0:
            return shard.manifest.start + start + place
    some = ", ".join(repr(text.id) for text in read_texts(store, ExampleNumbers(store)[:3]))
    raise InputError(
        f"No text of {store.path} has the id {name!r}.\n"
        f"Its first ids are {some or 'not there yet'}."
    )


def _contain(table: pa.Table, words: str) -> Bool[np.ndarray, "N"]:
    """Mask of the rows that contain the search words."""
    contains = pc.MatchSubstringOptions(words, ignore_case=True)
    found = np.zeros(len(table), bool)
    for name in _SEARCHED:
        own = pc.fill_null(pc.call_function("match_substring", [table[name]], contains), False)
        found |= own.to_numpy(zero_copy_only=False) if isinstance(own, pa.Array) else own.to_numpy()
    return found
