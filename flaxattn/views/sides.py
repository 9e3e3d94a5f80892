# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The sides of a trace as a page knows them: what attends to what, where, and under which text.

An encoder's or a decoder's self-attention stands alone on a page, as it always did. Where a trace
has cross-attention, a page holds all its sides, and joined ones if there are three. It shapes
payloads; `head.py` says what a page is asked for.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flaxattn.errors import InputError
from flaxattn.heads.stats import CrossMeasures, HeadMeasures, cross_measures, head_measures
from flaxattn.records import layer_weights
from flaxattn.seen import Seen
from flaxattn.trace import Trace
from flaxattn.views.payload import ERROR, Precision, choose_precision, encode_weights, visible

ALL = "all"
# Texts on the left (queries) and on the right (keys) of each side. A row of cross-attention stands
# beside what it wrote; self-attention of a decoder is among what it read.
_TEXTS = {
    "encoder": (["source"], ["source"]),
    "decoder": (["read"], ["read"]),
    "cross": (["written"], ["source"]),
    ALL: (["source", "written"], ["source", "read"]),
}
_MEASURES = (
    "next",
    "previous",
    "own",
    "strongest",
    "delimiter",
    "first",
    "same_segment",
    "entropy",
    "distance",
)


def recorded(trace: Trace) -> dict[str, Seen]:
    """The sides of a trace that have weights, by name.

    Raises:
        InputError: If none has.
    """
    sides = {"encoder": trace.encoder, "decoder": trace.decoder, "cross": trace.cross}
    found = {name: seen for name, seen in sides.items() if seen and seen.weights is not None}
    if not found:
        held = next((", ".join(seen.stats) for seen in sides.values() if seen and seen.stats), "")
        raise InputError(
            "A view draws attention weights; this trace holds "
            f"{f'only {held}' if held else 'nothing to draw'}.\n"
            "Capture them: model.trace(text, capture=fa.Capture(weights=True))."
        )
    return found


def one_side(
    trace: Trace, sequence: int, side: str | None = None
) -> tuple[Seen, list[str], list[str]]:
    """One side of a sequence without its padding, the tokens of its rows and of its columns.

    Of a window of weights, the tokens are those of the window.

    Args:
        trace: With weights.
        sequence: Which sequence of the batch.
        side: `encoder`, `decoder` or `cross`; None takes the first of them that has weights.

    Raises:
        InputError: If there is no such sequence or no such side with weights, or their window
            holds nothing of the sequence.
    """
    found = recorded(trace)
    name = check_side(side, list(found)) or next(iter(found))
    one = trace[sequence]
    texts = {"source": one.tokens, "read": one.decoder_tokens or one.written}
    texts["written"] = one.written or one.decoder_tokens
    queries, keys = (texts[text] or one.tokens for (text,) in _TEXTS[name])
    seen = recorded(one)[name]
    rows = list(queries[0])[slice(*seen.query_window or (None,))]
    columns = list(keys[0])[slice(*seen.key_window or (None,))]
    if not rows or not columns:
        raise InputError(
            f"The window of weights holds no position of sequence {sequence}, only padding.\n"
            "Choose another sequence, or capture a window within it."
        )
    return seen, rows, columns


def check_side(asked: str | None, names: Sequence[str]) -> str | None:
    """What was asked for.

    Raises:
        InputError: If it is not there.
    """
    if asked is not None and asked not in names:
        raise InputError(f"There is no side {asked!r}.\nThis trace has {', '.join(names)}.")
    return asked


def side_names(found: Mapping[str, Any]) -> list[str]:
    """What a page of these sides can show; the joined square needs all three."""
    return [*found, *([ALL] if len(found) == 3 else [])]


def numbers(found: Mapping[str, Sequence[int]], side: str) -> list[int]:
    """Layers, or heads, of a side; the joined square has those of any side."""
    return sorted(set().union(*found.values())) if side == ALL else list(found[side])


def shape_sides(
    one: Trace,
    found: Mapping[str, Seen],
    layers: Mapping[str, Sequence[int]],
    precision: Precision | None,
) -> dict[str, Any]:
    """The texts of one sequence, and the weights and measures of its sides.

    Args:
        one: A sequence without padding.
        found: Its sides; only those of `layers` are taken.
        layers: Layers that travel with the page, by side.
        precision: How weights are stored; None chooses.

    Returns:
        A payload without `start`. Self-attention alone has everything at the top; else there are
        `texts` by name, and `sides`, each naming the texts on its left and right.

    Raises:
        InputError: If these are no attention weights, or too many for a browser.
    """
    weights = {side: layer_weights(found[side], chosen) for side, chosen in layers.items()}
    first, *others = (array.shape for array in weights.values())
    stored = choose_precision(first, precision, *others)
    page = {
        "model": visible(one.model),
        "truncated": int(one.truncated[0]) if one.truncated else 0,
        "precision": stored,
        "error": ERROR[stored],
    }
    sides = {
        side: {
            "layers": list(layers[side]),
            "heads": list(found[side].heads),
            "weights": [encode_weights(layer, stored) for layer in weights[side]],
            "measures": _measures(one, side, found[side], layers[side]),
        }
        for side in weights
    }
    if list(sides) in (["encoder"], ["decoder"]):
        text = _read(one) if "decoder" in sides and one.decoder_tokens else _source(one)
        return page | text | next(iter(sides.values()))
    heads = {side: found[side].heads for side in sides}
    joined = {"layers": numbers(layers, ALL), "heads": numbers(heads, ALL)}
    return page | {
        "texts": {"source": _source(one), "read": _read(one), "written": _written(one)},
        "sides": [
            {"name": side, "left": _TEXTS[side][0], "right": _TEXTS[side][1]}
            | sides.get(side, joined)
            for side in side_names(sides)
        ],
    }


def _source(one: Trace) -> dict[str, Any]:
    return _text(one.tokens[0], None if one.special is None else one.special[0], _boundary(one))


def _read(one: Trace) -> dict[str, Any]:
    special = None if one.decoder_special is None else one.decoder_special[0]
    return _text((one.decoder_tokens or one.written)[0], special)


def _written(one: Trace) -> dict[str, Any]:
    """Pieces in no word are special, unless they are just blank."""
    if not one.written:
        return _read(one)
    pieces = one.written[0]
    words = one.decoder_words[0] if one.decoder_words else [0] * len(pieces)
    blank = [not piece.strip(" ▁") for piece in pieces]
    special = [w is None and not b for w, b in zip(words, blank, strict=True)]
    return _text(pieces, np.array(special, bool))


def _text(tokens: Sequence[str], special: Any, boundary: int | None = None) -> dict[str, Any]:
    """What the page says about a text; tokens that draw nothing are made visible."""
    return {
        "tokens": [visible(token) for token in tokens],
        "special": [] if special is None else np.flatnonzero(special).tolist(),
        "boundary": boundary,
    }


def _boundary(one: Trace) -> int | None:
    """Where sentence B begins; None if the text is not one A followed by one B."""
    if one.segments is None:
        return None
    segments = one.segments[0]
    boundary = int((segments == 0).sum())
    in_order = (segments[:boundary] == 0).all() and (segments[boundary:] == 1).all()
    return boundary if in_order and 0 < boundary < len(segments) else None


def _measures(
    one: Trace, side: str, seen: Seen, layers: Sequence[int]
) -> list[list[dict[str, Any]]]:
    """What each head of the chosen layers does."""
    if side == "cross":
        found: Sequence[CrossMeasures | HeadMeasures] = cross_measures(one)
    elif side == "decoder" and one.decoder_tokens:
        found = head_measures(Trace(decoder=seen, special=one.decoder_special))
    else:
        found = head_measures(one)
    measured = {(m.layer, m.head): _measure(m) for m in found}
    return [[measured[layer, head] for head in seen.heads] for layer in layers]


def _measure(measure: CrossMeasures | HeadMeasures) -> dict[str, Any]:
    """What a head does in this text; measures that this text does not have are left out."""
    known = [name for name in _MEASURES if hasattr(measure, name)]
    values = {name: round(float(getattr(measure, name)), 4) for name in known}
    return {"does": measure.does} | {n: v for n, v in values.items() if math.isfinite(v)}
