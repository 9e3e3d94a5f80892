# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The head view: tokens on two sides, a line for every attention weight between them.

This file chooses what the page holds and shapes it into a payload. How it looks and behaves is in
`assets/`; it never imports a model.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from flaxattn.errors import InputError
from flaxattn.records import choose, layer_weights
from flaxattn.stats import HeadMeasures, head_measures
from flaxattn.trace import Seen, Trace
from flaxattn.views.page import Page, build_page
from flaxattn.views.payload import ERROR, Precision, choose_precision, encode_weights, visible

_SCRIPTS = (
    "core.js",
    "lines.js",
    "panel.js",
    "controls.js",
    "export.js",
    "head_state.js",
    "head_page.js",
    "head.js",
)
_MEASURES = ("next", "previous", "own", "delimiter", "first", "same_segment", "entropy", "distance")


def head_view(
    trace: Trace,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    include_layers: Sequence[int] | None = None,
    sequence: int = 0,
    *,
    precision: Precision | None = None,
    theme: Literal["auto", "light", "dark"] = "auto",
) -> Page:
    """Draw the attention heads of one sequence as a page to explore.

    Every layer that is included travels with the page; layer, heads, sentence pair, opacity and
    much else are chosen in the browser (`?` lists it all). Padding is cut away.

    Args:
        trace: With weights `[L, B, H, Q, K]`, of a model or from `Trace.from_arrays`.
        layer: Layer that shows at first, by its number in the model; default the first included.
        heads: Heads that are on at first, by their numbers; default all.
        include_layers: Layers that travel with the page; default all of the trace.
        sequence: Which sequence of the batch.
        precision: How weights are stored: `float16` (error at most 0.00025) or `uint8` (half the
            size, error at most 0.002 of the row's largest weight). None takes float16 up to 8 MB.
        theme: `auto` follows the reader's system; it can be changed in the page.

    Returns:
        The page: `.save("page.html")`, or leave it as the last line of a notebook cell.

    Raises:
        InputError: If the trace holds no weights, there is no such layer, head or sequence, or the
            page would be too large for a browser.
    """
    if theme not in ("auto", "light", "dark"):
        raise InputError(f'Unknown theme {theme!r}.\nUse "auto", "light" or "dark".')
    one, seen = one_sequence(trace, sequence)
    layers = choose(include_layers, seen.layers, "layer")
    start = {
        "layer": choose([layers[0] if layer is None else layer], layers, "layer")[0],
        "heads": choose(heads, seen.heads, "head"),
        "theme": theme,
    }
    payload = _text(one) | _numbers(one, seen, layers, precision) | {"start": start}
    length = len(payload["tokens"])
    size = f"{len(layers)} layers x {len(seen.heads)} heads, {payload['precision']}"
    return build_page(
        "head",
        _SCRIPTS,
        payload,
        title=" · ".join(part for part in ("Attention heads", one.model) if part),
        summary=f"head view: {length} tokens, {size}",
        height=min(900, max(560, 260 + 26 * length)),
    )


def one_sequence(trace: Trace, sequence: int) -> tuple[Trace, Seen]:
    """One sequence without its padding, and its record, which is sure to have weights.

    Raises:
        InputError: If there is no such sequence or the trace has no weights.
    """
    seen = trace.encoder
    if seen is None or seen.weights is None:
        held = f"only {', '.join(seen.stats)}" if seen and seen.stats else "nothing to draw"
        raise InputError(
            f"A view draws attention weights; this trace holds {held}.\n"
            "Capture them: model.trace(text, capture=fa.Capture(weights=True))."
        )
    one = trace[sequence]
    assert one.encoder is not None
    return one, one.encoder


def _text(one: Trace) -> dict[str, Any]:
    """What the page says about the text; tokens that draw nothing are made visible."""
    return {
        "model": visible(one.model),
        "tokens": [visible(token) for token in one.tokens[0]],
        "special": [] if one.special is None else np.flatnonzero(one.special[0]).tolist(),
        "boundary": _boundary(one),
        "truncated": int(one.truncated[0]) if one.truncated else 0,
    }


def _numbers(
    one: Trace, seen: Seen, layers: Sequence[int], precision: Precision | None
) -> dict[str, Any]:
    """Weights and measures of the chosen layers, and how they are stored."""
    weights = layer_weights(seen, layers)
    stored = choose_precision(weights.shape, precision)
    measured = {(m.layer, m.head): _measure(m) for m in head_measures(one)}
    return {
        "layers": layers,
        "heads": list(seen.heads),
        "precision": stored,
        "error": ERROR[stored],
        "weights": [encode_weights(layer, stored) for layer in weights],
        "measures": [[measured[layer, head] for head in seen.heads] for layer in layers],
    }


def _boundary(one: Trace) -> int | None:
    """Where sentence B begins; None if the text is not one A followed by one B."""
    if one.segments is None:
        return None
    segments = one.segments[0]
    boundary = int((segments == 0).sum())
    in_order = (segments[:boundary] == 0).all() and (segments[boundary:] == 1).all()
    return boundary if in_order and 0 < boundary < len(segments) else None


def _measure(measure: HeadMeasures) -> dict[str, Any]:
    """What a head does in this text; measures that this text does not have are left out."""
    values = {name: round(float(getattr(measure, name)), 4) for name in _MEASURES}
    return {"does": measure.does} | {n: v for n, v in values.items() if math.isfinite(v)}
