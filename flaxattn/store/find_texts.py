# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Finding texts in a store: a stretch of them, those with some words, the one of a name.

Tables are read shard by shard, and no further than what was asked for; no map is read.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from flaxattn.errors import InputError
from flaxattn.store.open_store import Store
from flaxattn.store.store_layout import TEXTS

_COLUMNS = ["example", "id", "text", "text_b", "source_tokens", "target_tokens"]
_SEARCHED = ("id", "text", "text_b")


class Found(NamedTuple):
    """A text of a store.

    Attributes:
        example: Its number.
        id: Its name in the corpus.
        text: Itself; None if it was not kept.
        text_b: The second text of a pair, or a target.
        tokens: Of source and target together.
    """

    example: int
    id: str
    text: str | None
    text_b: str | None
    tokens: int


def find_texts(store: Store, start: int = 0, count: int = 50, words: str = "") -> list[Found]:
    """Texts in the order of the corpus.

    Args:
        store: The store; shards that are not there yet are passed over.
        start: Number of the first text to look at.
        count: How many to find.
        words: What the id or a text must contain, upper or lower case; empty for any.

    Returns:
        At most `count` texts. Cost: the rows that are returned; with `words`, the tables of texts
        from `start` to the last one found.

    Raises:
        StoreError: If a table that is read is damaged.
    """
    found: list[Found] = []
    for table in _tables(store, start, count if not words else None):
        rows = table.filter(_contain(table, words)) if words else table
        for row in rows.slice(0, count - len(found)).to_pylist():
            tokens = row.pop("source_tokens") + row.pop("target_tokens")
            found.append(Found(**row, tokens=tokens))
        if len(found) >= count:
            break
    return found


def example_of(store: Store, name: str) -> int:
    """Number of the text of a name.

    Args:
        store: The store.
        name: Its id in the corpus; of several with one id, the first.

    Returns:
        Its number. Cost: the ids of the corpus up to it.

    Raises:
        InputError: If no text that is there has this id.
        StoreError: If a table that is read is damaged.
    """
    for number in store.shards:
        shard = store.shard(number)
        ids = shard.table(TEXTS, ["id"])["id"]
        if (place := pc.index(ids, name).as_py()) >= 0:
            return shard.manifest.start + place
    some = ", ".join(repr(text.id) for text in find_texts(store, 0, 3))
    raise InputError(
        f"No text of {store.path} has the id {name!r}.\n"
        f"Its first ids are {some or 'not there yet'}."
    )


def _tables(store: Store, start: int, count: int | None) -> Iterator[pa.Table]:
    """Rows from an example on, shard by shard; of `count` rows no more is read."""
    for number in store.shards:
        span = store.plan["shards"][number]
        first, last = max(start, span["start"]), span["stop"]
        if first >= last:
            continue
        stop = last if count is None else min(last, first + count)
        rows = (first - span["start"], stop - span["start"])
        yield store.shard(number).table(TEXTS, _COLUMNS, rows)


def _contain(table: pa.Table, words: str) -> pa.ChunkedArray:
    """Mask of the rows that contain the search words."""
    contains = pc.MatchSubstringOptions(words, ignore_case=True)
    found = None
    for name in _SEARCHED:
        own = pc.fill_null(pc.call_function("match_substring", [table[name]], contains), False)
        found = own if found is None else pc.call_function("or", [found, own])
    return found
