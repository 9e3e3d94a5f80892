# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The head view: tokens on two sides, a line for every attention weight between them.

This file says what a page holds and how it starts; `sides.py` shapes it into a payload. How it
looks and behaves is in `assets/`; it never imports a model.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from flaxattn.errors import InputError
from flaxattn.records import choose
from flaxattn.seen import Seen
from flaxattn.trace import Trace
from flaxattn.views.page import Page, build_page
from flaxattn.views.payload import Precision
from flaxattn.views.sides import ALL, check_side, numbers, recorded, shape_sides, side_names

_SCRIPTS = (
    "core.js",
    "lines.js",
    "panel.js",
    "controls.js",
    "export.js",
    "sides.js",
    "head_state.js",
    "head_page.js",
    "head.js",
)


def head_view(
    trace: Trace,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    include_layers: Sequence[int] | None = None,
    sequence: int = 0,
    *,
    side: str | None = None,
    precision: Precision | None = None,
    theme: Literal["auto", "light", "dark"] = "auto",
) -> Page:
    """Draw the attention heads of one sequence as a page to explore.

    Every layer that is included travels with the page; layer, heads, sentence pair, opacity and
    much else are chosen in the browser (`?` lists it all). Padding is cut away.

    Where a trace has cross-attention, the page holds all its sides, each with layers and heads of
    its own. `cross` stands beside what the decoder wrote; `all` is the joined square of
    Tensor2Tensor, source and target together on the left and on the right.

    Args:
        trace: With weights `[L, B, H, Q, K]`, of a model or from `Trace.from_arrays`.
        layer: Layer that shows at first, by its number in the model; default the first included,
            of `cross` the last but one, as in `flaxattn.heads.alignment`.
        heads: Heads that are on at first, by their numbers; default all.
        include_layers: Layers that travel with the page; default all of the trace.
        sequence: Which sequence of the batch.
        side: What shows at first: `encoder`, `decoder`, `cross` or `all`; default `cross` where
            there is any.
        precision: How weights are stored: `float16` (error at most 0.00025) or `uint8` (half the
            size, error at most 0.002 of the row's largest weight). None takes float16 up to 8 MB.
        theme: `auto` follows the reader's system; it can be changed in the page.

    Returns:
        The page: `.save("page.html")`, or leave it as the last line of a notebook cell.

    Raises:
        InputError: If the trace holds no weights or a window of them, there is no such side, layer,
            head or sequence, or the page would be too large for a browser.
    """
    if theme not in ("auto", "light", "dark"):
        raise InputError(f'Unknown theme {theme!r}.\nUse "auto", "light" or "dark".')
    for seen in recorded(trace).values():
        seen.require_whole("The head view")
    one = trace[sequence]
    found = recorded(one)
    layers = _included(found, include_layers)
    names = side_names(layers)
    shown = check_side(side, names) or ("cross" if "cross" in names else names[0])
    known = numbers(layers, shown)
    usual = known[max(0, len(known) - 2)] if shown == "cross" else known[0]
    start = {
        "layer": choose([usual if layer is None else layer], known, "layer")[0],
        "heads": choose(
            heads, numbers({name: found[name].heads for name in layers}, shown), "head"
        ),
        "theme": theme,
    }
    payload = shape_sides(one, found, layers, precision)
    if "sides" in payload:
        start["side"] = shown
    return build_page(
        "head",
        _SCRIPTS,
        payload | {"start": start},
        title=" · ".join(part for part in ("Attention heads", one.model) if part),
        summary=f"head view: {_summary(payload)}, {payload['precision']}",
        height=min(900, max(560, 260 + 26 * _rows(payload, shown))),
    )


def _included(found: Mapping[str, Seen], asked: Sequence[int] | None) -> dict[str, list[int]]:
    """Layers that travel, by side; a side that has none of those asked for stays out."""
    known = {side: seen.layers for side, seen in found.items()}
    if asked is None:
        return {side: list(layers) for side, layers in known.items()}
    wanted = choose(asked, numbers(known, ALL), "layer")
    chosen = {side: [n for n in wanted if n in layers] for side, layers in known.items()}
    return {side: layers for side, layers in chosen.items() if layers}


def _summary(payload: Mapping[str, Any]) -> str:
    """Tokens, layers and heads in words."""
    sizes = "{} layers x {} heads"
    if "sides" not in payload:
        size = sizes.format(len(payload["layers"]), len(payload["heads"]))
        return f"{len(payload['tokens'])} tokens, {size}"
    source, target = (len(payload["texts"][name]["tokens"]) for name in ("source", "written"))
    parts = [
        f"{side['name']} {sizes.format(len(side['layers']), len(side['heads']))}"
        for side in payload["sides"]
        if side["name"] != ALL
    ]
    return f"{source} + {target} tokens, {', '.join(parts)}"


def _rows(payload: Mapping[str, Any], shown: str) -> int:
    """How many tokens stand below each other at first."""
    if "sides" not in payload:
        return len(payload["tokens"])
    texts = {name: len(text["tokens"]) for name, text in payload["texts"].items()}
    (side,) = (side for side in payload["sides"] if side["name"] == shown)
    return max(sum(texts[name] for name in side[column]) for column in ("left", "right"))
