# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Second trace of the same texts on a page: its weights, and the divergence of its heads.

The browser takes the difference; what is claimed of it is decided here. `trace_page.py` makes the
page, `trace_views.py` has the public name.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from flaxattn.errors import InputError
from flaxattn.measures.compare_heads import ClaimRule, Comparison, HeadChange
from flaxattn.measures.divergence import HeadDivergence, compare_traces
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import Blocks, Precision, visible
from flaxattn.views.payloads.side_payload import recorded, shape_side

_APART = ("divergence", "cosine")
_LISTED = 8  # heads that are named


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
