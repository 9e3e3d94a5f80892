# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The atlas of a store, or of two: means over texts, head by head, on a page without weights.

Of one store it reads the table of heads only; two are compared by `flaxattn.measures.divergence`.
The page of one text is in `trace_page.py`.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from flaxattn.errors import InputError
from flaxattn.measures.divergence import HeadDivergence, compare_stores
from flaxattn.store.find_texts import Watch
from flaxattn.store.head_numbers import corpus_means
from flaxattn.store.open_store import Store
from flaxattn.trace.record import choose
from flaxattn.views.page import Page, build_page
from flaxattn.views.payloads.encoded_weights import ERROR, visible
from flaxattn.views.payloads.page_state import check_state
from flaxattn.views.payloads.side_payload import check_side
from flaxattn.views.second_trace import told_divergence
from flaxattn.views.trace_page import TITLES, Theme

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
    message = told_divergence(found.left_out, found.texts, names)
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
