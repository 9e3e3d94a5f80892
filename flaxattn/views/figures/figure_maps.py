# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The maps that a figure draws: attention of a trace or other weights, and how they are coloured.

What is not a number is drawn hatched, or in a colour of its own, and said. Where maps stand in a
figure is the business of the other files.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.trace.record import AttentionRecord, layer_weights, without_first
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.side_payload import recorded
from flaxattn.views.payloads.weight_kinds import Given, one_kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MISSING = "#d1480f"  # NaN, where a hatch would be too fine to be seen


@dataclasses.dataclass(frozen=True)
class Maps:
    """Weights of some heads as they are drawn.

    Attributes:
        values: Between 0 and 1, or -1 and 1; NaN where they are.
        label: What they are.
        peaks: What 1 stands for in each layer.
        shares: Whether rows sum to one, so that 1 is a weight of one.
        signed: Whether any is negative.
    """

    values: Float[np.ndarray, "L H Q K"]
    label: str = "attention weight"
    peaks: Sequence[float] = ()
    shares: bool = True
    signed: bool = False

    def scales(self, layers: int) -> list[str]:
        """The value that 1 stands for in each layer, such as `1 = 4.912`; empty for 1 itself."""
        scales = ["" if self.shares else f"1 = {peak:.4g}" for peak in self.peaks]
        return scales or [""] * layers

    def titles(self, layers: Sequence[int], heads: Sequence[int]) -> list[list[str]]:
        """Titles of the maps: head, the value that 1 stands for, and the number of NaN."""
        scales = [f"\n{scale}" if scale else "" for scale in self.scales(len(layers))]
        missing = np.isnan(self.values).sum((2, 3))
        return [
            [
                f"layer {layer}, head {head}{scales[i]}{missing_note(int(missing[i, j]))}"
                for j, head in enumerate(heads)
            ]
            for i, layer in enumerate(layers)
        ]

    def without_first(self) -> "Maps":
        """Without the first key; shares are scaled up to a sum of one."""
        if self.shares:
            return dataclasses.replace(self, values=without_first(self.values))
        rest = self.values.copy()
        rest[..., 0] = np.where(np.isnan(rest[..., 0]), np.nan, 0)
        return dataclasses.replace(self, values=rest)


def read_maps(
    trace: Trace,
    given: Given | None,
    sequence: int,
    side: str | None,
    record: AttentionRecord,
    layers: Sequence[int],
    heads: Sequence[int],
) -> Maps:
    """The maps of some heads: attention, or the one kind of weights that is given."""
    kind = one_kind(trace, given)
    places = [record.heads.index(head) for head in heads]
    if kind is None:
        return Maps(layer_weights(record, layers, allow_nan=True)[:, places])
    name = side or next(iter(recorded(trace)))
    if name not in kind.sides:
        raise InputError(
            f"weights[{kind.name!r}] are of {', '.join(kind.sides)}; drawn is {name}.\n"
            f"Choose the side: side={next(iter(kind.sides))!r}."
        )
    scaled = kind.scaled(name, trace.place(sequence), record, layers)
    values = np.repeat(scaled.values, len(record.heads), 1) if scaled.common else scaled.values
    label = f"{kind.label}\n{scaled.unit}"
    peaks = scaled.peaks.tolist()
    return Maps(values[:, places], label, peaks, scaled.shares, scaled.signed)


def missing_note(count: int) -> str:
    """A line of a title that explains the hatched cells."""
    return f"\nhatched: {count:,} {'is' if count == 1 else 'are'} NaN" if count else ""


def hatch_missing(ax: "Axes", values: np.ndarray) -> None:
    """Let a hatch show where an image has no number: behind it, since NaN is not painted."""
    if np.isnan(values).any():
        ax.patch.set(facecolor="white", edgecolor="#8a8a8a", hatch="////////", linewidth=0)
