# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The atlas of a store: means of each statistic over its texts, head by head, on a page.

It reads the table of heads only, never weights; the page of one text is in `levels.py`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from flaxattn.errors import InputError
from flaxattn.records import choose
from flaxattn.store.store import Store
from flaxattn.views.levels import TITLES, Theme
from flaxattn.views.page import Page, build_page
from flaxattn.views.payload import ERROR, visible
from flaxattn.views.sides import check_side
from flaxattn.views.state import check_state

_KEYS = ("example", "side", "layer", "head")


def open_corpus(
    store: Store,
    *,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    side: str | None = None,
    theme: Theme | None = None,
    state: Mapping[str, Any] | None = None,
) -> Page:
    """Shape the statistics of a store into a page that has an atlas.

    Args:
        store: With statistics; those of the shards that are there count.
        layer: As all that follow, as in `flaxattn.views.doors.head_view`.
        heads: Heads that are marked at first.
        side: What shows at first.
        theme: Of the page.
        state: What the page showed when it was copied.

    Raises:
        InputError: If the store has no statistic with a mean, or not what is asked for.
        StoreError: If something is damaged.
    """
    known = check_state(state)
    means, texts = _means(store.stats())
    sides = {name: _shape(name, rows) for name, rows in means.items()}
    shown = check_side(known.get("side") if side is None else side, list(sides))
    about = sides[shown or next(iter(sides))]
    asked = known.get("layer", about["layers"][0]) if layer is None else layer
    wanted = known.get("heads") if heads is None else heads
    start = known | {
        "level": "atlas",
        "sequence": 0,
        "side": about["name"],
        "layer": choose([asked], about["layers"], "layer")[0],
        "heads": choose(wanted, about["heads"], "head"),
        "theme": theme or known.get("theme", "auto"),
    }
    blank = {"tokens": [], "special": [], "boundary": None, "words": None}
    names = {text for shaped in sides.values() for text in (*shaped["left"], *shaped["right"])}
    payload = {
        "model": visible(store.path.name),
        "precision": "float16",
        "error": ERROR["float16"],
        "levels": ["atlas"],
        "start": start,
        "inputs": [
            {
                "truncated": 0,
                "texts": {name: blank for name in sorted(names)},
                "sides": list(sides.values()),
            }
        ],
        "blocks": {},
        "note": f"Means over {texts:,} texts, each the mean over its tokens.",
    }
    return build_page(
        payload,
        title=f"{TITLES['atlas']} · {store.path.name}",
        summary=f"atlas view: {texts:,} texts, {', '.join(sides)}",
        height=600,
    )


def _means(table: pa.Table) -> tuple[dict[str, list[dict[str, Any]]], int]:
    """Rows of layer, head and means by side, and how many texts they are of."""
    names = [
        name
        for name in table.column_names
        if name not in _KEYS and pa.types.is_floating(table.schema.field(name).type)
    ]
    if not names:
        raise InputError(
            "This store holds no statistic that is one number per token.\n"
            "Extract one: flaxattn extract … --stats entropy,distance."
        )
    plain = table.set_column(
        table.column_names.index("side"), "side", table["side"].cast(pa.string())
    )
    found = plain.group_by(list(_KEYS[1:])).aggregate([(name, "mean") for name in names])
    sides: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(found.to_pylist(), key=lambda row: (row["layer"], row["head"])):
        sides.setdefault(row["side"], []).append(row)
    order = ("encoder", "decoder", "cross")
    return {name: sides[name] for name in order if name in sides}, len(table["example"].unique())


def _shape(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One side as a payload has it."""
    layers = sorted({row["layer"] for row in rows})
    heads = sorted({row["head"] for row in rows})
    measures = {
        (row["layer"], row["head"]): {"does": ""}
        | {
            key.removesuffix("_mean"): round(value, 4)
            for key, value in row.items()
            if key.endswith("_mean") and value is not None and math.isfinite(value)
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
