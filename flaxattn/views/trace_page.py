# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One page with all levels of a trace, from atlas to neuron, over one shared state.

It says what a page holds and how it starts; `side_payload.py` shapes each sequence,
`trace_views.py` has the public names. Of a second trace of the same texts a page holds the weights
and the divergence of its heads: the browser takes the difference, and what is claimed of it is
decided here. Appearance and behaviour are in `assets/`; no model is imported here.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from flaxattn.errors import InputError
from flaxattn.measures.compare_heads import ClaimRule, Comparison, HeadChange
from flaxattn.measures.divergence import HeadDivergence, compare_traces
from flaxattn.trace.record import AttentionRecord, choose
from flaxattn.trace.trace import Trace
from flaxattn.views.page import Page, build_page
from flaxattn.views.payloads.page_encoding import (
    ERROR,
    LEVELS,
    PAGE_BYTES,
    Blocks,
    Precision,
    check_position,
    check_state,
    choose_precision,
    most_divergent,
    most_telling,
    payload_bytes,
    usual_mass,
    visible,
)
from flaxattn.views.payloads.report_payload import GivenPairs, add_given, most_hit
from flaxattn.views.payloads.side_payload import (
    ALL,
    add_predictions,
    check_side,
    numbers,
    recorded,
    shape_input,
    shape_side,
    side_names,
)
from flaxattn.views.payloads.weight_payload import (
    RAW,
    Effects,
    Given,
    WeightKind,
    add_effects,
    read_effects,
    read_kinds,
    shape_kinds,
)

Theme = Literal["auto", "light", "dark"]
TITLES = {
    "atlas": "Attention atlas",
    "model": "Attention of all heads",
    "head": "Attention heads",
    "text": "Attention in the text",
    "neuron": "Attention neurons",
}


class Beside(TypedDict, total=False):
    """Data that a page can show beside the attention of a trace."""

    weights: Given | None
    effects: Effects | Sequence[Effects] | None
    pairs: GivenPairs | None


@dataclasses.dataclass(frozen=True)
class Second:
    """The other of two traces.

    Attributes:
        trace: With weights, and without vectors.
        names: What the first and this one are called.
    """

    trace: Trace
    names: tuple[str, str]

    def common(
        self, layers: Mapping[str, list[int]], found: Mapping[str, AttentionRecord]
    ) -> dict[str, list[int]]:
        """Layers, by side, that both traces have."""
        ours = recorded(self.trace)
        kept = {
            side: [number for number in chosen if number in ours[side].layers]
            for side, chosen in layers.items()
            if side in ours
        }
        kept = {side: chosen for side, chosen in kept.items() if chosen}
        if not kept:
            raise InputError(
                "The second trace has none of the layers that would travel with the page.\n"
                "Capture the same layers in both, or choose others: include_layers=[0, 1]."
            )
        for side in kept:
            one, other = found[side].heads, ours[side].heads
            if one != other:
                raise InputError(
                    f"The two traces differ in the heads of {side}: {_listed(one)} and "
                    f"{_listed(other)}.\nCapture the same heads in both."
                )
        return kept

    def add_to(
        self,
        shaped: dict[str, Any],
        one: Trace,
        sequence: int,
        layers: Mapping[str, Sequence[int]],
        precision: Precision,
        blocks: Blocks,
        number: int,
    ) -> None:
        """Put the weights of a text, and how far its heads differ, beside those of the first."""
        other = self.trace[sequence]
        divergences = {(row.side, row.layer, row.head): row for row in compare_traces(one, other)}
        shaped["missing"] = [row for row in divergences.values() if math.isnan(row.divergence)]
        found = recorded(other)
        for about in shaped["sides"]:
            side = about["name"]
            if side not in layers:
                continue  # the joined square is made of the others
            prefix = f"{number}/{side}/second"
            parts = (other, side, found[side], layers[side], precision, blocks, prefix)
            about["second"] = shape_side(*parts)
            for measures in (about["measures"], about["second"]["measures"]):
                for layer, heads in zip(about["layers"], measures, strict=True):
                    for head, measure in zip(about["heads"], heads, strict=True):
                        measure |= _numbers(divergences[side, layer, head])


def open_page(
    trace: Trace,
    level: str | None,
    *,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    include_layers: Sequence[int] | None = None,
    sequence: int | Sequence[int] | None = None,
    side: str | None = None,
    precision: Precision | None = None,
    theme: Theme | None = None,
    state: Mapping[str, Any] | str | None = None,
    second: Second | None = None,
    **beside: Unpack[Beside],
) -> Page:
    """Shape a trace into a page that opens at one of its levels."""
    if theme not in (None, "auto", "light", "dark"):
        raise InputError(f'Unknown theme {theme!r}.\nUse "auto", "light" or "dark".')
    known = check_state(state)
    level = str(level or known.get("level", "head"))
    for record in recorded(trace, numbers_do=level == "atlas").values():
        record.require_whole(f"The {level} view")
    taken = _sequences(trace, sequence)
    ones = [trace[b] for b in taken]
    every = [recorded(one, numbers_do=level == "atlas") for one in ones]
    layers = _included(every[0], include_layers)
    if second is not None:
        layers = second.common(layers, every[0])
    kinds = read_kinds(trace, beside.get("weights"))
    numbers_of, description = read_effects(trace, beside.get("effects"))
    stored = _precision(every, layers, precision, kinds, copies=1 if second is None else 2)
    start = _start(every[0], layers, known, side, layer, heads)
    start |= {"level": level, "theme": theme or known.get("theme", "auto")}
    start["sequence"] = choose([known.get("sequence", 0)], range(len(ones)), "sequence")[0]
    blocks = Blocks()
    inputs = [
        shape_input(one, found, layers, stored, blocks, number)
        for number, (one, found) in enumerate(zip(ones, every, strict=True))
    ]
    for number, (b, shaped) in enumerate(zip(taken, inputs, strict=True)):
        if second is not None:
            second.add_to(shaped, ones[number], b, layers, stored, blocks, number)
        shape_kinds(shaped, kinds, ones[number], every[number], b, stored, blocks, number)
        add_effects(shaped, numbers_of)
    if second is None:
        add_predictions(inputs, ones, layers, blocks)
    other = None if second is None else second.trace
    gold = add_given(inputs, trace, beside.get("pairs"), taken, start, blocks, other)
    if _asks_for_no_head(known, layer, heads):
        shown, at = start["side"], start["sequence"]
        record, chosen = every[at], layers.get(shown, [])
        start |= most_hit(gold, record.get(shown), chosen) or _opening(
            ones[at], record, inputs[at], layers, shown, compares=bool(second)
        )
    start.setdefault("mass", usual_mass(_keys(inputs[start["sequence"]], start["side"])))
    _check_pins(start, inputs[start["sequence"]])
    _check_kind(start, inputs[start["sequence"]])
    payload = {
        "model": visible(trace.model),
        "precision": stored,
        "error": ERROR[stored],
        "levels": _levels(inputs),
        "start": start,
        "inputs": inputs,
        "blocks": blocks.data,
    }
    if description:
        payload["measured_by"] = description
    if second is not None:
        missing = {
            (row.side, row.layer, row.head): 1
            for shaped in inputs
            for row in shaped.pop("missing", ())
        }
        if missing or len(inputs) > 1:
            message = divergence_caption(missing, len(inputs), second.names)
            payload["measured_by"] = description | {"divergence": message}
        payload["names"] = [visible(name) for name in second.names]
        others = (second.trace[b] for b in taken)
        payload["changes"] = claimed_changes(ones, others, layers)
    return build_page(
        payload,
        title=" · ".join(part for part in (TITLES[level], trace.model) if part),
        summary=f"{level} view{'' if second is None else ' of two'}: {_summary(inputs)}, {stored}",
        height=_height(inputs[start["sequence"]], start["side"]),
        entry=_entry(payload),
    )


def _entry(payload: Mapping[str, Any]) -> str:
    """Script that a page begins with, by what it has data for."""
    if "names" in payload:
        return "main_compare.js"
    neuron = "_neuron" if "neuron" in payload["levels"] else ""
    predicted = any("predictions" in shaped for shaped in payload["inputs"])
    return f"main{neuron}{'_predictions' if predicted else ''}.js"


def _levels(inputs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Levels that there is data for, in the order of their tabs."""
    sides = [side for shaped in inputs for side in shaped["sides"]]
    weights = any("weights" in side for side in sides)
    vectors = any("neuron" in side for side in sides)
    there = {"atlas": True, "model": weights, "head": weights, "text": weights, "neuron": vectors}
    return [name for name in LEVELS if there[name]]


def _sequences(trace: Trace, requested: int | Sequence[int] | None) -> list[int]:
    """Sequences that travel, by their place from the start."""
    if requested is None:
        return list(range(len(trace)))
    wanted = [requested] if isinstance(requested, int) else list(requested)
    if not wanted:
        raise InputError("No sequence was requested.\nLeave `sequence` out for all of them.")
    return [trace.place(number) for number in wanted]


def _precision(
    every: Sequence[Mapping[str, AttentionRecord]],
    layers: Mapping[str, Sequence[int]],
    precision: Precision | None,
    kinds: Mapping[str, WeightKind],
    copies: int = 1,
) -> Precision:
    """Precision of the weights of all sequences that fits a page; every kind, every trace."""
    kept = {name: copies + sum(name in kind.sides for kind in kinds.values()) for name in layers}
    shapes = [
        [
            (len(layers[name]), *record.weights.shape[2:])
            for name, record in found.items()
            if name in layers and record.weights is not None
            for _ in range(kept[name])
        ]
        for found in every
    ]
    if not shapes[0]:
        return choose_precision((0, 0, 0, 0), precision)
    sizes = [sum(payload_bytes(shape, "uint8") for shape in one) for one in shapes]
    if len(sizes) > 1 and sum(sizes) > PAGE_BYTES and max(sizes) <= PAGE_BYTES:
        raise InputError(
            f"The page would be {sum(sizes) / 1e6:,.0f} MB; browsers manage "
            f"{PAGE_BYTES / 1e6:.0f} MB.\nIt would hold {len(sizes)} sequences of the trace.\n"
            "Choose some: sequence=[0, 1], or one: sequence=0."
        )
    first, *others = [shape for one in shapes for shape in one]
    return choose_precision(first, precision, *others)


def _start(
    found: Mapping[str, AttentionRecord],
    layers: Mapping[str, list[int]],
    known: Mapping[str, Any],
    side: str | None,
    layer: int | None,
    heads: Sequence[int] | None,
) -> dict[str, Any]:
    """Initial state: what is requested, else what the state says, else the default."""
    names = side_names(layers)
    usual_side = "cross" if "cross" in names else names[0]
    shown = check_side(known.get("side") if side is None else side, names) or usual_side
    there = numbers(layers, shown)
    usual = there[max(0, len(there) - 2)] if shown == "cross" else there[0]
    requested = known.get("layer", usual) if layer is None else layer
    every = numbers({name: found[name].heads for name in layers}, shown)
    return {
        **known,
        "side": shown,
        "layer": choose([requested], there, "layer")[0],
        "heads": choose(known.get("heads") if heads is None else heads, every, "head"),
    }


def _asks_for_no_head(
    known: Mapping[str, Any], layer: int | None, heads: Sequence[int] | None
) -> bool:
    """Return whether the page is free to choose what it opens with."""
    chosen = {"layer", "heads", "query", "key"} & known.keys()
    return not chosen and layer is None and heads is None


def _opening(
    one: Trace,
    found: Mapping[str, AttentionRecord],
    shaped: Mapping[str, Any],
    layers: Mapping[str, list[int]],
    side: str,
    *,
    compares: bool,
) -> dict[str, Any]:
    """Layer, head and token worth seeing first; of two traces the head that differs most."""
    if side not in layers or found[side].weights is None:
        return {}  # the joined square, or statistics alone
    if compares:
        return most_divergent(_side(shaped, side))
    special = one.decoder_special if side == "decoder" and one.decoder_tokens else one.special
    known = None if special is None else np.asarray(special[0])
    return most_telling(found[side], layers[side], known, square=side != "cross")


def _side(shaped: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A side of a text, by its name."""
    (side,) = (side for side in shaped["sides"] if side["name"] == name)
    return side


def _keys(shaped: Mapping[str, Any], side: str) -> int:
    """Number of tokens attended to."""
    return sum(len(shaped["texts"][text]["tokens"]) for text in _side(shaped, side)["right"])


def _check_pins(start: Mapping[str, Any], shaped: Mapping[str, Any]) -> None:
    """Pinned tokens are there; of words the browser knows how many there are."""
    side = _side(shaped, start["side"])
    for name, column in (("query", "left"), ("key", "right")):
        count = sum(len(shaped["texts"][text]["tokens"]) for text in side[column])
        check_position(start, name, count)


def _check_kind(start: Mapping[str, Any], shaped: Mapping[str, Any]) -> None:
    """The weights that a state names are there."""
    side = _side(shaped, start["side"])
    there = (RAW, *side.get("other", {}))
    if (requested := start.get("weights", RAW)) not in there:
        raise InputError(
            f"state: weights are {requested!r}, which {start['side']} does not have.\n"
            f"It has {', '.join(there)}; others are given as weights={{…}}."
        )


def _included(
    found: Mapping[str, AttentionRecord], requested: Sequence[int] | None
) -> dict[str, list[int]]:
    """Layers that travel, by side; a side that has none of those requested stays out."""
    known = {side: record.layers for side, record in found.items()}
    if requested is None:
        return {side: list(layers) for side, layers in known.items()}
    wanted = choose(requested, numbers(known, ALL), "layer")
    chosen = {side: [n for n in wanted if n in layers] for side, layers in known.items()}
    return {side: layers for side, layers in chosen.items() if layers}


def _summary(inputs: Sequence[Mapping[str, Any]]) -> str:
    """Tokens, layers and heads in words."""
    texts = inputs[0]["texts"]
    sides = [side for side in inputs[0]["sides"] if side["name"] != ALL]
    sizes = [f"{len(side['layers'])} layers x {len(side['heads'])} heads" for side in sides]
    if len(sides) > 1 or sides[0]["name"] == "cross":
        sizes = [f"{side['name']} {size}" for side, size in zip(sides, sizes, strict=True)]
    counted = [name for name in ("source", "written") if name in texts] or list(texts)
    if len(inputs) > 1:
        return f"{len(inputs)} texts, {', '.join(sizes)}"
    count = " + ".join(str(len(texts[name]["tokens"])) for name in counted)
    return f"{count} tokens, {', '.join(sizes)}"


def _height(shaped: Mapping[str, Any], shown: str) -> int:
    """CSS pixels of a notebook's frame that fit the controls and the tokens, as far as may be."""
    texts = {name: len(text["tokens"]) for name, text in shaped["texts"].items()}
    side = _side(shaped, shown)
    rows = max(sum(texts[name] for name in side[column]) for column in ("left", "right"))
    return min(900, max(700, 410 + 26 * rows))


_APART = ("divergence", "cosine")
_LISTED = 8  # heads that are named


def claimed_changes(
    first: Iterable[Trace], second: Iterable[Trace], layers: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """Changes between two traces that their texts support, in the form a page holds."""
    comparison, rule = Comparison(), ClaimRule()
    for one, other in zip(first, second, strict=True):
        comparison.add(_of_layers(one, layers), _of_layers(other, layers))
    return shape_changes(comparison.changes(rule), rule)


def shape_changes(changes: Sequence[HeadChange], rule: ClaimRule) -> dict[str, Any]:
    """Changes of heads in the form a page holds."""
    heads: dict[str, dict[str, Any]] = {}
    for change in changes:
        metadata: dict[str, Any] = {"texts": change.texts, "changed": change.changed}
        if math.isfinite(change.divergence):
            metadata["divergence"] = round(change.divergence, 5)
        if all(map(math.isfinite, change.interval)):
            metadata["interval"] = [round(end, 5) for end in change.interval]
        if change.role_changed:
            metadata["role"] = list(change.roles)
        heads.setdefault(change.side, {})[f"{change.layer}.{change.head}"] = metadata
    return {"rule": str(rule), "heads": heads}


def _of_layers(trace: Trace, layers: Mapping[str, Sequence[int]]) -> Trace:
    """The weights of some layers, and nothing else that is compared."""
    held: dict[str, AttentionRecord | None] = dict.fromkeys(("encoder", "decoder", "cross"))
    for side, chosen in layers.items():
        record: AttentionRecord = getattr(trace, side)
        rows = [record.layers.index(layer) for layer in chosen]
        weights: Any = np.asarray(record.weights)[rows]
        held[side] = AttentionRecord(weights=weights, layers=tuple(chosen), heads=record.heads)
    return dataclasses.replace(trace, **held)


def without_vectors(trace: Trace) -> Trace:
    """A trace with weights and statistics only."""
    fields = ("encoder", "decoder", "cross")
    held = {name: getattr(trace, name) for name in fields if getattr(trace, name) is not None}
    bare = {
        name: dataclasses.replace(record, query=None, key=None, value=None)
        for name, record in held.items()
    }
    return dataclasses.replace(trace, **bare)


def divergence_caption(
    missing: Mapping[tuple[str, int, int], int], texts: int, names: Sequence[str]
) -> str:
    """Describe what the divergence of heads was measured on, and which heads it leaves out."""
    count = "1 text" if texts == 1 else f"{texts:,} texts"
    payload = f"{visible(names[0])} and {visible(names[1])}, {count}"
    if not missing:
        return payload
    heads = [f"{side} {layer}.{head}" for side, layer, head in missing]
    listed = ", ".join(heads[:_LISTED]) + (
        f" and {len(heads) - _LISTED} more" if len(heads) > _LISTED else ""
    )
    where = "not compared, a weight is NaN" if texts == 1 else "NaN in some texts, left out there"
    return f"{payload}; {where}: {listed}"


def check_names(names: Sequence[str]) -> tuple[str, str]:
    """Two names that differ."""
    if isinstance(names, str) or len(names) != 2 or names[0] == names[1]:
        raise InputError(
            f"names: expected two different names, received {names!r}.\n"
            'Say what the traces are: names=("before", "after").'
        )
    return str(names[0]), str(names[1])


def _numbers(row: HeadDivergence) -> dict[str, float]:
    """Divergence and cosine of a head, where they are numbers."""
    values = {name: getattr(row, name) for name in _APART}
    return {name: round(value, 5) for name, value in values.items() if math.isfinite(value)}


def _listed(heads: Sequence[int]) -> str:
    return ", ".join(map(str, heads))
