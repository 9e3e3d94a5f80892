# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Lists of the texts of a store: all of them, those with some words, those sorted by a head.

An address says which list (`ListQuery`); `TextLists` computes it once and keeps it for its pages.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple, Self
from urllib.parse import parse_qs, quote, urlencode

import numpy as np

from flaxattn.store.find_texts import ExampleNumbers, search_texts
from flaxattn.store.head_numbers import (
    HeadNumber,
    Ranking,
    check_head_number,
    no_statistics,
    rank_texts,
    side_statistics,
)
from flaxattn.store.open_store import Store
from flaxattn.views.background_jobs import BackgroundJobs, Progress

PAGE = 50
"""Texts on one page."""
MOST_SORTED = 1000
"""Texts of a sorted list: those with the largest or smallest numbers."""
MOST_HITS = 10_000
"""Texts that a search lists."""
LONGEST = 200
"""Characters of a search."""

_DIGITS = re.compile(r"\d{1,9}", re.ASCII)


@dataclasses.dataclass(frozen=True)
class ListQuery:
    """The part of an address after `?`: which list of texts, and which page of it.

    Attributes:
        words: What the id or a text must contain; empty for any.
        statistic: What to sort by; empty for the order of the corpus.
        side: Of the head to sort by; empty for the first.
        layer: Of the head; None for the first.
        head: Number of the head; None for the first.
        descending: Whether the largest number comes first.
        page: Page of the list, from 1.
    """

    words: str = ""
    statistic: str = ""
    side: str = ""
    layer: int | None = None
    head: int | None = None
    descending: bool = True
    page: int = 1

    @classmethod
    def read(cls, query: str) -> Self:
        """Read the part of an address after `?`."""
        fields = {
            name: values[0]
            for name, values in parse_qs(query, max_num_fields=10, errors="strict").items()
        }
        numbers: dict[str, int] = {}
        for name in ("layer", "head", "page"):
            if not (text := fields.get(name, "")):
                continue
            if not _DIGITS.fullmatch(text) or (name == "page" and not int(text)):
                raise ValueError(f"{name} is not a number of one.")
            numbers[name] = int(text)
        if fields.get("order", "desc") not in ("asc", "desc"):
            raise ValueError("order is asc or desc.")
        if any(len(fields.get(name, "")) > LONGEST for name in ("q", "by", "side")):
            raise ValueError(f"Search for at most {LONGEST} characters.")
        if not fields.get("by"):
            return cls(fields.get("q", ""), page=numbers.get("page", 1))
        return cls(
            fields.get("q", ""),
            fields["by"],
            fields.get("side", ""),
            numbers.get("layer"),
            numbers.get("head"),
            fields.get("order", "desc") == "desc",
            numbers.get("page", 1),
        )

    @property
    def address(self) -> str:
        """The same as part of an address, with its `?`; empty for the first page of all texts."""
        fields: dict[str, object] = {"q": self.words} if self.words else {}
        if self.statistic:
            number = {"by": self.statistic, "side": self.side}
            number |= {"layer": self.layer, "head": self.head}
            fields |= {name: value for name, value in number.items() if value not in ("", None)}
            fields["order"] = "desc" if self.descending else "asc"
        if self.page > 1:
            fields["page"] = self.page
        return f"?{urlencode(fields)}" if fields else ""

    @property
    def number(self) -> HeadNumber | None:
        """The number to sort by, of a completed query."""
        if not self.statistic:
            return None
        assert self.layer is not None and self.head is not None
        return HeadNumber(self.side, self.layer, self.head, self.statistic)

    @property
    def fragment(self) -> str:
        """End of the address of a text, by which its page opens at the head of the list."""
        return f"#side={quote(self.side)}&layer={self.layer}&heads={self.head}" * bool(self.number)

    def on_page(self, page: int) -> Self:
        """The same list, another page."""
        return dataclasses.replace(self, page=page)

    def reversed(self) -> Self:
        """The same list from its other end."""
        return dataclasses.replace(self, descending=not self.descending, page=1)

    def without_words(self) -> Self:
        """The same order without a search."""
        return dataclasses.replace(self, words="", page=1)


class TextList(NamedTuple):
    """Texts of all pages of a list.

    Attributes:
        examples: Their numbers.
        ranking: What they are sorted by, with their values; None in the order of the corpus.
        is_cut: Whether more texts were found than are listed.
        texts: Number of texts of the store that are there.
    """

    examples: Sequence[int] | np.ndarray
    ranking: Ranking | None
    is_cut: bool
    texts: int

    @property
    def pages(self) -> int:
        """Number of pages, at least 1."""
        return max(1, -(-len(self.examples) // PAGE))

    def on_page(self, page: int) -> list[int]:
        """Numbers of the texts on a page."""
        return [int(n) for n in self.examples[(page - 1) * PAGE : page * PAGE]]

    def place(self, example: int) -> int | None:
        """Place of a text in the list; None if it is not listed."""
        if isinstance(self.examples, np.ndarray):
            places = np.flatnonzero(self.examples == example)
            return int(places[0]) if len(places) else None
        try:
            return self.examples.index(example)
        except ValueError:
            return None


class TextLists:
    """The lists of a store, each computed once.

    Args:
        store: The store.
        jobs: Where lists are computed that need more than the plan.
    """

    def __init__(self, store: Store, jobs: BackgroundJobs) -> None:
        self._store, self._jobs = store, jobs

    def complete(self, query: ListQuery) -> ListQuery:
        """A query whose side, layer and head are those of a head of the store."""
        if not query.statistic:
            return query
        sides = side_statistics(self._store)
        if not sides:
            raise no_statistics()
        side = query.side or next(iter(sides))
        if about := sides.get(side):
            layer = about.layers[0] if query.layer is None else query.layer
            head = about.heads[0] if query.head is None else query.head
            query = dataclasses.replace(query, side=side, layer=layer, head=head)
        else:
            query = dataclasses.replace(query, layer=query.layer or 0, head=query.head or 0)
        assert query.number is not None
        check_head_number(self._store, query.number)
        return query

    def find(self, query: ListQuery) -> TextList | Progress:
        """The texts of a list."""
        there, store, words = ExampleNumbers(self._store), self._store, query.words
        if not words and query.number is None:
            return TextList(there, None, False, len(there))
        shards = tuple(store.shards)
        if (number := query.number) is None:
            hits = self._jobs.result(
                ("search", words, shards),
                lambda watch: search_texts(store, words, MOST_HITS + 1, watch),
            )
            if isinstance(hits, Progress):
                return hits
            return TextList(hits[:MOST_HITS], None, len(hits) > MOST_HITS, len(there))
        descending = query.descending
        ranking = self._jobs.result(
            ("sort", number, descending, words, shards),
            lambda watch: rank_texts(
                store, number, MOST_SORTED, descending=descending, words=words, watch=watch
            ),
        )
        if isinstance(ranking, Progress):
            return ranking
        is_cut = ranking.counted > len(ranking.examples)
        return TextList(ranking.examples, ranking, is_cut, len(there))
