# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The weights that the state of a page shows: its filters applied here to the same end.

`assets/state.js` and `assets/lines.js` do the same in a page; tests compare the two. Nothing is
drawn here.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.trace.record import AttentionRecord, choose
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.plot_heads import Maps, read_maps
from flaxattn.views.payloads.page_state import check_position
from flaxattn.views.payloads.side_payload import one_side, recorded, side_texts
from flaxattn.views.payloads.weight_payload import RAW, Given

# Headings of the two columns, as `SIDES` in `assets/sides.js`; of one self-attention the last.
HEADINGS = {
    "encoder": ("source, attends from", "source, attended to"),
    "decoder": ("target, as read", "target, as read"),
    "cross": ("target, as written", "source"),
    "alone": ("attends from", "attended to"),
}


@dataclasses.dataclass(frozen=True)
class TokenColumn:
    """Tokens on one side of a picture.

    Attributes:
        heading: Above them.
        tokens: All of them, tokens or words.
        shown: Positions that filters leave.
        special: Positions of what the model adds.
        left_out: Positions whose weight is left out of every row.
        boundary: Position at which the second text begins, or None.
        begins: Name of what begins there, or an empty text.
        pinned: Position that is pinned, or None.
    """

    heading: str
    tokens: list[str]
    shown: list[int]
    special: set[int]
    left_out: set[int]
    boundary: int | None
    begins: str
    pinned: int | None

    @property
    def shown_tokens(self) -> list[str]:
        """Tokens that filters leave."""
        return [self.tokens[position] for position in self.shown]


@dataclasses.dataclass(frozen=True)
class Shown:
    """Weights as a page shows them.

    Attributes:
        maps: Between the tokens that are shown.
        units: The largest size in each row before the slider of mass and the choice of keys.
        left: Queries.
        right: Keys.
        layers: Their numbers.
        heads: Their numbers.
        filters: Filters in words.
    """

    maps: Maps
    units: Float[np.ndarray, "L H q"]
    left: TokenColumn
    right: TokenColumn
    layers: list[int]
    heads: list[int]
    filters: list[str]


def shown_layer(state: Mapping[str, Any], record: AttentionRecord, side: str | None) -> int:
    """The layer that is shown; by default the one the page begins with."""
    usual = record.layers[max(0, len(record.layers) - 2) if side == "cross" else 0]
    requested = state.get("layer")
    return choose([usual if requested is None else int(requested)], record.layers, "layer")[0]


def shown_heads(state: Mapping[str, Any], record: AttentionRecord) -> list[int]:
    """The heads that are on, in the order of the page."""
    return sorted(choose(state.get("heads"), record.heads, "head"), key=record.heads.index)


def picked_weights(given: Given | None, state: Mapping[str, Any]) -> Given | None:
    """The one kind of weights that a state shows; None for attention."""
    name = state.get("weights", RAW)
    if name == RAW:
        return None
    if name not in (given or {}):
        raise InputError(
            f"This state shows the weights {name!r}; plot_state was given "
            f"{', '.join(given or ()) or 'none'}.\n"
            f"Give what the page was given: plot_state(trace, state, weights={{{name!r}: …}})."
        )
    return {name: (given or {})[name]}


def select_shown(
    trace: Trace,
    state: Mapping[str, Any],
    sequence: int,
    side: str | None,
    given: Given | None,
    *,
    whole: bool,
    second: Trace | None = None,
) -> Shown:
    """The weights a page shows, of one trace or the second less the first."""
    record, _, _ = one_side(trace, sequence, side)
    record.require_whole("Drawing a state")
    layers = list(record.layers) if whole else [shown_layer(state, record, side)]
    heads = list(record.heads) if whole else shown_heads(state, record)
    picked = picked_weights(given, state)
    maps = read_maps(trace, picked, sequence, side, record, layers, heads)
    one, own = trace[sequence], side or next(iter(recorded(trace)))
    texts = side_texts(one, own)
    if state.get("unit") == "words":
        texts, maps = _in_words(texts, maps)
    notes: list[str] = []
    left, right = _columns(texts, own, len(recorded(trace)) == 1, state, notes)
    hidden = sorted(right.left_out)
    weights = _without(maps, hidden)
    if hidden and maps.shares:
        notes[-1] += ", renormalised"
    if second is not None:
        weights = _other_maps(second, trace, state, sequence, side, layers, heads, hidden) - weights
        maps = dataclasses.replace(maps, signed=True, label="difference")
    units = np.abs(np.nan_to_num(weights)).max(-1)
    mass = float(state.get("mass", 100)) / 100
    if mass < 1 and not whole:
        notes.append(f"{mass:.0%} of each row's mass")
        weights = _heaviest(weights, mass)
    if not whole:
        pins = {"query": left.pinned, "key": right.pinned}
        notes += [f"{name} {place}" for name, place in pins.items() if place is not None]
    chosen = weights[:, :, left.shown][..., right.shown]
    units = units[:, :, left.shown]
    kept = dataclasses.replace(maps, values=chosen)
    return Shown(kept, units, left, right, layers, heads, notes)


def _without(maps: Maps, hidden: Sequence[int]) -> Float[np.ndarray, "L H Q K"]:
    """Weights without some keys; shares are scaled up to a sum of one."""
    weights = maps.values.copy()
    if not hidden:
        return weights
    weights[..., list(hidden)] = 0
    return _renormalised(weights) if maps.shares else weights


def _other_maps(
    second: Trace,
    first: Trace,
    state: Mapping[str, Any],
    sequence: int,
    side: str | None,
    layers: Sequence[int],
    heads: Sequence[int],
    hidden: Sequence[int],
) -> Float[np.ndarray, "L H Q K"]:
    """Weights of the other trace, filtered in the same way."""
    record, *tokens = one_side(second, sequence, side)
    if tokens != list(one_side(first, sequence, side)[1:]):
        raise InputError(
            "The two traces are not of the same tokens.\nGive the two that the page was made of."
        )
    record.require_whole("Drawing a state")
    layers = choose(layers, record.layers, "layer")
    maps = read_maps(
        second, None, sequence, side, record, layers, choose(heads, record.heads, "head")
    )
    own = side or next(iter(recorded(second)))
    if state.get("unit") == "words":
        _, maps = _in_words(side_texts(second[sequence], own), maps)
    return _without(maps, hidden)


def _columns(
    texts: Sequence[Mapping[str, Any]],
    side: str,
    alone: bool,
    state: Mapping[str, Any],
    notes: list[str],
) -> tuple[TokenColumn, TokenColumn]:
    """Queries and keys as the filters leave them."""
    pair = str(state.get("attention", "all"))
    boundary = texts[0]["boundary"]
    if side == "cross" or boundary is None:
        pair = "all"
    if pair != "all":
        parts = texts[0].get("parts")
        names = [parts["ab".index(name)].lower() if parts else name.upper() for name in pair]
        notes.append(f"{'' if parts else 'sentence '}{' → '.join(names)}")
    hides = {"special tokens": set(texts[1]["special"]), "first token": {0}}
    requested = {"special tokens": state.get("special"), "first token": state.get("first")}
    left_out = {name: out for name, out in hides.items() if requested[name] == "hidden" and out}
    if left_out:
        notes.append(f"{' and '.join(left_out)} out")
    kind = "alone" if alone and side != "cross" else side
    made = []
    for number, (name, text) in enumerate(zip(("query", "key"), texts, strict=True)):
        places = _places(text, "" if pair == "all" else pair[number])
        kept = [p for p in places if state.get("special") != "hidden" or p not in text["special"]]
        check_position(state, name, len(text["tokens"]))
        pinned = state.get(name)
        made.append(
            TokenColumn(
                heading=HEADINGS[kind][number],
                tokens=list(text["tokens"]),
                shown=kept,
                special=set(text["special"]),
                left_out=set().union(*left_out.values()) if number else set(),
                boundary=text["boundary"],
                begins=text["parts"][1].lower() if text.get("parts") else "",
                pinned=pinned if pinned in kept else None,
            )
        )
    if not made[0].shown or not made[1].shown:
        raise InputError(
            "This state shows no position of the text: all are filtered away.\n"
            "Take back a filter in the page."
        )
    return made[0], made[1]


def _places(text: Mapping[str, Any], sentence: str) -> range:
    """Positions of a sentence, or all."""
    start = text["boundary"] if sentence == "b" else 0
    return range(start, text["boundary"] if sentence == "a" else len(text["tokens"]))


def word_groups(text: Mapping[str, Any]) -> list[list[int]]:
    """Positions of each word of a text, and of each token that is in none."""
    groups: list[list[int]] = []
    words = text["words"]
    for place, word in enumerate(words):
        if place and word is not None and words[place - 1] == word:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _in_words(
    texts: Sequence[dict[str, Any]], maps: Maps
) -> tuple[tuple[dict[str, Any], dict[str, Any]], Maps]:
    """Texts in words, and weights: to a word their sum, from a word their mean."""
    if any(text["words"] is None for text in texts):
        raise InputError(
            "This state shows words; it is not known which tokens of the text make them.\n"
            "Turn words off in the page, or leave out the state's 'unit'."
        )
    groups = [word_groups(text) for text in texts]
    sums = [_members(group) for group in groups]
    means = sums[0] / sums[0].sum(1, keepdims=True)
    values = np.einsum("wq,lhqk,vk->lhwv", means, maps.values, sums[1])
    left, right = (_word_text(text, group) for text, group in zip(texts, groups, strict=True))
    return (left, right), dataclasses.replace(maps, values=values.astype(np.float32))


def _members(groups: Sequence[Sequence[int]]) -> Float[np.ndarray, "W S"]:
    """One where a position is in a word."""
    members = np.zeros((len(groups), sum(map(len, groups))), np.float32)
    for word, places in enumerate(groups):
        members[word, list(places)] = 1
    return members


def _word_text(text: Mapping[str, Any], groups: Sequence[Sequence[int]]) -> dict[str, Any]:
    """A text with a token for each word."""
    at = {place: word for word, places in enumerate(groups) for place in places}
    tokens = text["tokens"]
    joined = [
        tokens[places[0]] + "".join(tokens[place].removeprefix("##") for place in places[1:])
        for places in groups
    ]
    boundary = None if text["boundary"] is None else at[text["boundary"]]
    special = sorted({at[place] for place in text["special"]})
    return {**text, "tokens": joined, "special": special, "boundary": boundary}


def _heaviest(weights: Float[np.ndarray, "L H Q K"], mass: float) -> Float[np.ndarray, "L H Q K"]:
    """Zeros in place of all but the fewest weights that hold a share of their row."""
    sizes = np.abs(np.nan_to_num(weights))
    ordered = -np.sort(-sizes, axis=-1)
    enough = ordered.cumsum(-1) >= mass * sizes.sum(-1, keepdims=True) - 1e-6
    smallest = np.take_along_axis(ordered, enough.argmax(-1)[..., None], -1)
    return np.where((sizes >= smallest) | np.isnan(weights), weights, 0)


def _renormalised(weights: Float[np.ndarray, "L H Q K"]) -> Float[np.ndarray, "L H Q K"]:
    """Rows scaled up to a sum of one; what has NaN in it stays as it is."""
    total = weights.sum(-1, keepdims=True)
    shares = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.where(np.isnan(total), weights, shares)
