# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The pages of a store: lists of texts, each text with its neighbours, the atlas over all texts.

Nothing of the network is here; `serving.py` hands the pages out.
"""

import functools
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from flaxattn.errors import FlaxattnError
from flaxattn.store.find_texts import read_texts
from flaxattn.store.head_numbers import no_statistics, side_statistics
from flaxattn.store.open_store import Store
from flaxattn.trace.trace import Trace
from flaxattn.views.background_jobs import BackgroundJobs, Progress
from flaxattn.views.page import Page, add_data
from flaxattn.views.payloads.encoded_weights import visible
from flaxattn.views.store_atlas import open_corpus
from flaxattn.views.store_document import message_page, waiting_page
from flaxattn.views.text_list import PAGE, ListQuery, TextList, TextLists
from flaxattn.views.texts_page import TextsPage, label, list_form, number_text, texts_page

_KEPT = 8  # pages of texts that are kept in memory


class StorePages:
    """Makes the pages of a store. Safe to ask from many threads.

    Args:
        store: The store.
        view: Makes the page of a text, such as `head_view`.

    Attributes:
        store: The store.
        page: Makes the page of a text by its number, without links to others.
    """

    def __init__(self, store: Store, view: Callable[[Trace], Page]) -> None:
        self.store, self._view = store, view
        self._making, self._jobs = threading.Lock(), BackgroundJobs()
        self._lists = TextLists(store, self._jobs)
        self.page = functools.lru_cache(_KEPT)(self._page)

    def _page(self, example: int) -> str:
        with self._making:  # many requests at once must not hold many pages in memory
            return self._view(self.store[example]).html

    @property
    def name(self) -> str:
        """Name of the store's folder."""
        return self.store.path.resolve().name

    def close(self) -> None:
        """End what is being computed."""
        self._jobs.close()

    def texts(self, query: ListQuery) -> str:
        """A page of a list of texts, or how far the list is."""
        query = self._lists.complete(query)
        listed = self._lists.find(query)
        if isinstance(listed, Progress):
            return self._waiting(query, listed)
        texts = read_texts(self.store, listed.on_page(query.page))
        sides = side_statistics(self.store)
        shard = self.store.first_shard()
        keeps_text = shard is not None and "texts" in shard.manifest.traces["fields"]
        return texts_page(TextsPage(self.name, query, listed, texts, sides, keeps_text))

    def text(self, example: int, query: ListQuery) -> str:
        """The page of a text, with links to those beside it in a list."""
        beside = self._beside(example, query)
        if isinstance(beside, Progress):
            return self._waiting(query, beside, "../")
        return add_data(self.page(example), "corpus", beside)

    def atlas(self) -> str:
        """The atlas over all texts, or how far it is."""
        if not side_statistics(self.store):
            raise no_statistics()
        page = self._jobs.result(
            ("atlas", tuple(self.store.shards)),
            lambda watch: open_corpus(self.store, watch=watch).html,
        )
        if isinstance(page, Progress):
            work = f"Adding up the statistics of {len(self.store):,} texts"
            return waiting_page(self.name, work, page, tab="atlas")
        facts = {"list": "./", "name": f"All {len(self.store):,} texts", "sort": "./"}
        return add_data(page, "corpus", facts)

    def message(self, error: FlaxattnError, query: ListQuery, example: int | None) -> str:
        """A page that says why there is no other."""
        form, links = "", {f"./{ListQuery(query.words).address}": "Back to the texts"}
        with suppress(FlaxattnError):  # of a damaged store, less is said
            if example is None:
                form = list_form(query, side_statistics(self.store))
            else:
                links = self._ways(example, query)
        root = "" if example is None else "../"
        return message_page(self.name, str(error), list(links.items()), root=root, above=form)

    def _ways(self, example: int, query: ListQuery) -> dict[str, str]:
        """Addresses from the page of a text that cannot be made, and how they read."""
        beside = self._beside(example, query)
        if isinstance(beside, Progress) or not beside:
            return {"../": "Back to the texts"}
        names = {"back": "‹ Back", "next": "Next ›", "list": "Back to the texts"}
        return {beside[key]: name for key, name in names.items() if beside[key]}

    def _waiting(self, query: ListQuery, progress: Progress, root: str = "") -> str:
        work = "Sorting" if query.number else "Searching"
        work = f"{work} {len(self.store):,} texts"
        return waiting_page(self.name, work, progress, tab="texts", root=root)

    def _beside(self, example: int, query: ListQuery) -> dict[str, Any] | Progress:
        """Addresses of the texts before and after one, and of its page of the list."""
        query = self._lists.complete(query)
        listed = self._lists.find(query)
        if isinstance(listed, Progress):
            return listed
        place = listed.place(example)
        if place is None:  # such an address was written by hand
            return self._beside(example, ListQuery()) if query != ListQuery() else {}
        first = query.on_page(1).address
        (text,) = read_texts(self.store, [example])

        def address(other: int) -> str | None:
            there = 0 <= other < len(listed.examples)
            return f"{int(listed.examples[other])}{first}" if there else None

        return {
            "list": f"../{query.on_page(1 + place // PAGE).address}",
            "atlas": "../atlas" if side_statistics(self.store) else None,
            "back": address(place - 1),
            "next": address(place + 1),
            "name": f"Text {example}",
            "id": visible(text.id),
            "place": f"{place + 1:,} of {len(listed.examples):,}{_order(query, listed, place)}",
        }


def _order(query: ListQuery, listed: TextList, place: int) -> str:
    """Description of a list, after a place in it."""
    words = f" with “{visible(query.words)}”" if query.words else ""
    if listed.ranking is None:
        return words
    end = "highest" if query.descending else "lowest"
    name = label(query.statistic).partition(",")[0]
    value = number_text(listed.ranking.values[place])
    return f"{words}, {end} {name} of head {query.layer}.{query.head} first: {value}"
