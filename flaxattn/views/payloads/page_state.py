# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The state of a page as JSON: what it shows, by the numbers of the model.

A page gives it to copy, and takes it to begin with. `assets/settings.js` has the same table of
settings; a test compares the two.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from flaxattn.errors import InputError
from flaxattn.trace.record import AttentionRecord, layer_weights

LEVELS = ("atlas", "model", "head", "text", "neuron")
SETTINGS = {
    "attention": ("all", "aa", "bb", "ab", "ba"),
    "opacity": ("absolute", "row", "heads"),
    "special": ("shown", "hidden"),
    "first": ("shown", "hidden"),
    "unit": ("tokens", "words"),
    "labels": ("source", "tokens"),
    "direction": ("from", "to", "surprise"),
    "drawing": ("lines", "matrix"),
    "order": ("grid", "value", "cluster"),
    "dimensions": ("top", "all"),
    "numbers": ("off", "on"),
    "sorting": ("weight", "position"),
    "walk": (
        "off",
        "input",
        "query",
        "key",
        "product",
        "scale",
        "bias",
        "softmax",
        "value",
        "sum",
        "output",
    ),
    "compare": ("a", "b", "difference", "together"),
    "theme": ("auto", "light", "dark"),
}
_NUMBERS = ("sequence", "layer", "query", "key", "mass")
_NAMES = ("side", "measure", "weights", "gold")
PLACES = (
    "level",
    "sequence",
    "side",
    "layer",
    "heads",
    "query",
    "key",
    "mass",
    "measure",
    "weights",
    "gold",
)


def check_state(state: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """Check the state of a page, given as a mapping or as JSON, and drop what is None."""
    if isinstance(state, str):
        try:
            state = json.loads(state)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"state: this is not JSON: {error}.\nCopy it whole from a page."
            ) from error
    if state is not None and not isinstance(state, Mapping):
        raise InputError(
            f"state: expected a mapping such as {{'layer': 3}}, received {type(state).__name__}.\n"
            "Give the state of a page, or its JSON."
        )
    found = {name: value for name, value in (state or {}).items() if value is not None}
    unknown = [name for name in found if name not in (*PLACES, *SETTINGS)]
    if unknown:
        raise InputError(
            f"state: there is no setting {_short(unknown[0])}.\n"
            f"There are {', '.join((*PLACES, *SETTINGS))}."
        )
    for name, values in {"level": LEVELS, **SETTINGS}.items():
        if name in found and found[name] not in values:
            what = ", ".join(f'"{value}"' for value in values)
            raise InputError(f"state: {name} is {_short(found[name])}.\nUse one of {what}.")
    _check_types(found)
    mass = found.get("mass", 100)
    if type(mass) is not int or not 5 <= mass <= 100:
        raise InputError(f"state: mass is {mass!r}.\nUse a whole number of percent from 5 to 100.")
    return found


def _check_types(found: Mapping[str, Any]) -> None:
    """Refuse numbers that are none."""
    for name, value in found.items():
        if name in _NUMBERS and type(value) is not int:
            raise InputError(f"state: {name} is {_short(value)}.\nUse a whole number.")
        if name in _NAMES and not isinstance(value, str):
            raise InputError(f"state: {name} is {_short(value)}.\nUse its name.")
    heads = found.get("heads", [])
    if not isinstance(heads, list | tuple) or any(type(head) is not int for head in heads):
        raise InputError(f"state: heads is {_short(heads)}.\nUse a list of whole numbers.")


def check_position(state: Mapping[str, Any], name: str, length: int) -> None:
    """Check that a pinned token is there."""
    place = state.get(name)
    if place is not None and not (isinstance(place, int) and 0 <= place < length):
        raise InputError(
            f"state: {name} is {place!r}.\nThere are positions 0 to {length - 1} on that side."
        )


def _short(value: Any) -> str:
    """A value as Python writes it, its beginning only."""
    message = repr(value)
    return message if len(message) <= 60 else f"{message[:60]}…"


_MASS = ((24, 100), (64, 90), (256, 80))  # percent up to so many keys
_LONG_MASS = 60


def usual_mass(keys: int) -> int:
    """Percent of each row's attention that is drawn at first: less of long texts."""
    return next((mass for length, mass in _MASS if keys <= length), _LONG_MASS)


def most_telling(
    record: AttentionRecord,
    layers: Sequence[int],
    special: Bool[np.ndarray, " K"] | None,
    *,
    square: bool,
) -> dict[str, Any]:
    """Choose the head whose strongest weights on ordinary keys are largest, and a query of it.

    Ordinary keys are not special tokens, and of self-attention neither the first token nor the
    query itself: attention there says least about the text.
    """
    weights = np.nan_to_num(layer_weights(record, layers, allow_nan=True))
    ordinary = _ordinary(weights.shape[-2:], special, square)
    rows = ordinary.any(-1)
    if square and special is not None:
        rows &= ~special
    if not rows.any():
        return {}
    strongest = np.where(ordinary, weights, 0).max(-1)[..., rows]
    best = strongest.mean(-1)
    layer, head = map(int, np.unravel_index(best.argmax(), best.shape))
    query = np.flatnonzero(rows)[strongest[layer, head].argmax()]
    return {"layer": layers[layer], "heads": [record.heads[head]], "query": int(query)}


def _ordinary(
    shape: tuple[int, int], special: Bool[np.ndarray, " K"] | None, square: bool
) -> Bool[np.ndarray, "Q K"]:
    ordinary = np.ones(shape, bool) if special is None else np.tile(~special, (shape[0], 1))
    if square:
        ordinary &= ~np.eye(*shape, dtype=bool)
        ordinary[:, 0] = False
    return ordinary


def most_divergent(about: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the head in which two traces differ most."""
    found = [
        (measure["divergence"], layer, head)
        for layer, row in zip(about["layers"], about["measures"], strict=True)
        for head, measure in zip(about["heads"], row, strict=True)
        if "divergence" in measure
    ]
    if not found:
        return {}
    _, layer, head = max(found, key=lambda entry: entry[0])
    return {"layer": layer, "heads": [head]}
