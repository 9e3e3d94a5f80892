# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The pages of a store: lists of texts, each text with its neighbours, the atlas over all texts.

Nothing of the network is here; `serving.py` sends the pages.
"""

import functools
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from flaxattn.errors import FlaxattnError, InputError
from flaxattn.measures.divergence import HeadDivergence, compare_stores
from flaxattn.store.head_numbers import corpus_means, no_statistics, side_statistics
from flaxattn.store.open_store import Store, Watch, read_texts
from flaxattn.trace.record import choose
from flaxattn.trace.trace import Trace
from flaxattn.views.page import Page, add_data, build_page
from flaxattn.views.payloads.page_encoding import ERROR, check_state, visible
from flaxattn.views.payloads.side_payload import check_side
from flaxattn.views.texts_page import (
    PAGE,
    BackgroundJobs,
    ListQuery,
    Progress,
    TextList,
    TextLists,
    TextsPage,
    label,
    list_form,
    message_page,
    number_text,
    texts_page,
    waiting_page,
)
from flaxattn.views.trace_page import TITLES, Theme, divergence_caption

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


_KEYS = ("layer", "head")


def open_corpus(
    store: Store,
    *,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    side: str | None = None,
    theme: Theme | None = None,
    state: Mapping[str, Any] | str | None = None,
    watch: Watch | None = None,
) -> Page:
    """Shape the statistics of a store into a page that has an atlas."""
    means, texts = corpus_means(store, watch)
    sides = {name: _shape(name, rows) for name, rows in means.items()}
    start = _start(sides, check_state(state), layer, heads, side, theme)
    note = f"Means over {texts:,} texts, each the mean over its tokens."
    return _page(store.path.name, sides, start, note, f"atlas view: {texts:,} texts")


def open_corpora(
    first: Store,
    second: Store,
    names: tuple[str, str],
    *,
    texts: Sequence[int] | None = None,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    side: str | None = None,
    theme: Theme | None = None,
    state: Mapping[str, Any] | str | None = None,
) -> Page:
    """Compare two stores of the same texts on a page that has an atlas."""
    found = compare_stores(first, second, texts=texts)
    divergences = {(row.side, row.layer, row.head): row for row in found.heads}
    statistics = [_statistics(store) for store in (first, second)]
    shared = set.intersection(*({n for r in s.values() for n in r} for s in statistics))
    sides = {}
    for name in dict.fromkeys(row.side for row in found.heads):
        one, other = (_shape(name, _rows(name, divergences, s, shared)) for s in statistics)
        sides[name] = one | {"second": {"measures": other["measures"]}}
    top = found.heads[0]
    usual: dict[str, Any] = {"measure": "divergence", "order": "value"}
    known = {"compare": "difference"} | (usual if state is None else check_state(state))
    if layer is None and side is None and state is None:
        known |= {"side": top.side, "layer": top.layer, "heads": [top.head]}
    start = _start(sides, known, layer, heads, side, theme)
    most = ", ".join(f"{number} ({value:.3f})" for number, value in found.most)
    note = f"Divergence in nats, a mean over {found.texts:,} texts. Those that differ most: {most}."
    summary = f"atlas view of two: {found.texts:,} texts"
    message = divergence_caption(found.left_out, found.texts, names)
    beside = {"names": [visible(name) for name in names], "measured_by": {"divergence": message}}
    return _page(" and ".join(names), sides, start, note, summary, **beside)


def _statistics(store: Store) -> dict[tuple[str, int, int], dict[str, float]]:
    """Means of a store's statistics by side, layer and head; empty if it has none."""
    try:
        means, _ = corpus_means(store)
    except InputError:
        return {}
    return {
        (side, row["layer"], row["head"]): {n: v for n, v in row.items() if n not in _KEYS}
        for side, rows in means.items()
        for row in rows
    }


def _rows(
    side: str,
    divergences: Mapping[tuple[str, int, int], HeadDivergence],
    statistics: Mapping[tuple[str, int, int], Mapping[str, float]],
    shared: Collection[str],
) -> list[dict[str, Any]]:
    """Rows as `corpus_means` gives them, of the heads that were compared."""
    return [
        {"layer": row.layer, "head": row.head}
        | {"divergence": row.divergence, "cosine": row.cosine}
        | {n: v for n, v in statistics.get(key, {}).items() if n in shared}
        for key, row in sorted(divergences.items(), key=lambda item: item[0][1:])
        if row.side == side
    ]


def _start(
    sides: Mapping[str, Mapping[str, Any]],
    known: Mapping[str, Any],
    layer: int | None,
    heads: Sequence[int] | None,
    side: str | None,
    theme: Theme | None,
) -> dict[str, Any]:
    """Initial state of the page."""
    shown = check_side(known.get("side") if side is None else side, list(sides))
    about = sides[shown or next(iter(sides))]
    requested = known.get("layer", about["layers"][0]) if layer is None else layer
    wanted = known.get("heads") if heads is None else heads
    return {
        **known,
        "level": "atlas",
        "sequence": 0,
        "side": about["name"],
        "layer": choose([requested], about["layers"], "layer")[0],
        "heads": choose(wanted, about["heads"], "head"),
        "theme": theme or known.get("theme", "auto"),
    }


def _page(
    name: str,
    sides: Mapping[str, dict[str, Any]],
    start: Mapping[str, Any],
    note: str,
    summary: str,
    **beside: Any,
) -> Page:
    """A page without weights."""
    blank = {"tokens": [], "special": [], "boundary": None, "words": None}
    used = {text for shaped in sides.values() for text in (*shaped["left"], *shaped["right"])}
    texts = {text: blank for text in sorted(used)}
    payload = {
        "model": visible(name),
        "precision": "uint8",
        "error": ERROR["uint8"],
        "levels": ["atlas"],
        "start": start,
        "inputs": [{"truncated": 0, "texts": texts, "sides": list(sides.values())}],
        "blocks": {},
        "note": note,
        **beside,
    }
    title, description = f"{TITLES['atlas']} · {name}", f"{summary}, {', '.join(sides)}"
    return build_page(payload, title=title, summary=description, height=600)


def _shape(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One side as a payload has it."""
    layers = sorted({row["layer"] for row in rows})
    heads = sorted({row["head"] for row in rows})
    measures = {
        (row["layer"], row["head"]): {"does": ""}
        | {
            key: round(value, 4)
            for key, value in row.items()
            if key not in _KEYS and math.isfinite(value)
        }
        for row in rows
    }
    texts = {"encoder": ("source", "source"), "decoder": ("read", "read")}
    left, right = texts.get(name, ("written", "source"))
    return {
        "name": name,
        "left": [left],
        "right": [right],
        "layers": layers,
        "heads": heads,
        "measures": [[measures.get((n, h), {"does": ""}) for h in heads] for n in layers],
    }
