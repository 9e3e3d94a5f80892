# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The atlas: a square for every head of a model, coloured by one number, marked by its role.

The numbers come from `flaxattn.heads.values`, the order of like heads from
`flaxattn.heads.divergence`; nothing is measured here.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from flaxattn.errors import InputError
from flaxattn.heads.divergence import alike_order, head_distances
from flaxattn.heads.values import HeadValues, head_values
from flaxattn.records import layer_weights
from flaxattn.store.store import Store
from flaxattn.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Order = Literal["grid", "value", "cluster"]

_INCH = 0.36  # that a square takes
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
_UNITS = {"entropy": "nats", "lse": "nats", "distance": "positions"}


def plot_atlas(
    source: Trace | Store,
    measure: str = "entropy",
    ax: "Axes | None" = None,
    *,
    side: str | None = None,
    roles: Mapping[tuple[int, int], str] | None = None,
    order: Order = "grid",
) -> "Figure":
    """Draw one number of every head: layers down, heads across, white at 0.

    Args:
        source: A trace, or a store with statistics, over whose texts the mean is taken.
        measure: A captured statistic, such as `entropy`, or a measure such as `previous` or
            `delimiter`; `flaxattn.heads.values.head_values` says which there are.
        ax: Axes to draw into, for figures of your own.
        side: `encoder`, `decoder` or `cross`; default the first there is.
        roles: Name of a role by (layer, head); at most ten names, each with a mark of its own.
        order: `grid` puts heads where their numbers say; `value` sorts the heads of each layer, the
            largest first; `cluster` puts heads of a layer beside each other that attend alike, by
            Jensen–Shannon divergence. Head numbers then stand in the squares.

    Returns:
        The figure, to be shown or saved.

    Raises:
        InputError: If there is no such side or measure, a role is of a head that is not there, or
            heads of a store are to be clustered, whose maps are not read.
        StoreError: If the store is damaged.
    """
    found = head_values(source, measure, side)
    places = _places(source, found, order)
    own = ax if ax is not None else _axes(*found.values.shape)
    image = _squares(own, np.take_along_axis(found.values, places, 1), found)
    own.set_title(f"{found.side}: {measure}", fontsize=8, parse_math=False)
    if order == "grid":
        own.set_xticks(range(len(found.heads)), [str(head) for head in found.heads])
    else:
        own.set_xticks([])
        _write_heads(own, found, places)
    own.set_xlabel(
        {"grid": "head", "value": "heads by value", "cluster": "like heads"}[order], fontsize=8
    )
    if roles:
        _mark(own, found, places, roles, outside=ax is None)
    if ax is None:
        add_bar(own, image, unit(measure))
    figure: Any = own.figure
    return figure


def unit(measure: str) -> str:
    """How a bar that explains colours names a measure."""
    return f"{measure} ({_UNITS[measure]})" if measure in _UNITS else measure


def add_bar(ax: "Axes", image: Any, label: str) -> None:
    """Put the bar that explains the colours beside axes."""
    figure: Any = ax.figure
    bar = figure.colorbar(image, ax=ax, shrink=0.8, aspect=25, pad=0.02)
    bar.set_label(label, fontsize=7)
    bar.ax.tick_params(labelsize=7)


def _places(source: Trace | Store, found: HeadValues, order: Order) -> Int[np.ndarray, "L H"]:
    """Index of the head at each place of each layer."""
    count = len(found.heads)
    if order == "grid":
        return np.tile(np.arange(count), (len(found.layers), 1))
    if order == "value":
        return np.argsort(-np.nan_to_num(found.values, nan=-np.inf), axis=1, kind="stable")
    if order != "cluster":
        raise InputError(f'Unknown order {order!r}.\nUse "grid", "value" or "cluster".')
    if isinstance(source, Store):
        raise InputError(
            "Heads are clustered by their maps on one text; a store holds many.\n"
            'Take a text: plot_atlas(store[0], order="cluster").'
        )
    seen = getattr(source[0], found.side)
    if seen.weights is None:
        raise InputError(
            "Heads are clustered by their weights; this trace holds none.\n"
            "Capture them: model.trace(text, capture=fa.Capture(weights=True))."
        )
    maps = layer_weights(seen, found.layers)
    return np.array([alike_order(head_distances(layer)) for layer in maps])


def _squares(ax: "Axes", values: Float[np.ndarray, "L H"], found: HeadValues) -> Any:
    """Draw the squares; heads without a value are grey."""
    most = float(np.nanmax(values)) if np.isfinite(values).any() else 1.0
    least = min(0.0, float(np.nanmin(values))) if np.isfinite(values).any() else 0.0
    image = ax.imshow(values, cmap="Blues", vmin=least, vmax=most if most > least else least + 1)
    image.set_interpolation("nearest")
    ax.set_facecolor("#d8d8d8")
    ax.set_yticks(range(len(found.layers)), [str(layer) for layer in found.layers])
    ax.tick_params(length=0, labelsize=7)
    ax.set_ylabel("layer", fontsize=8)
    return image


def _write_heads(ax: "Axes", found: HeadValues, places: Int[np.ndarray, "L H"]) -> None:
    """The number of the head in each square."""
    middle = np.nanmax(found.values) / 2 if np.isfinite(found.values).any() else 0
    for (row, column), head in np.ndenumerate(places):
        ink = "white" if found.values[row, head] > middle else "black"
        number = str(found.heads[head])
        ax.text(float(column), float(row), number, ha="center", va="center", fontsize=6, color=ink)


def _mark(
    ax: "Axes",
    found: HeadValues,
    places: Int[np.ndarray, "L H"],
    roles: Mapping[tuple[int, int], str],
    *,
    outside: bool,
) -> None:
    """A mark in the corner of each head that has a role, and what the marks mean."""
    names = list(dict.fromkeys(roles[key] for key in sorted(roles)))
    if len(names) > len(_MARKS):
        raise InputError(
            f"{len(names)} roles are too many to tell apart; a figure marks {len(_MARKS)}.\n"
            "Leave some out, or draw several figures."
        )
    for layer, head in roles:
        if layer not in found.layers or head not in found.heads:
            raise InputError(
                f"The role {roles[layer, head]!r} is of layer {layer}, head {head}, which is not "
                f"drawn.\nThere are layers {_told(found.layers)} and heads {_told(found.heads)}."
            )
    for name, mark in zip(names, _MARKS, strict=False):
        own = [key for key, role in sorted(roles.items()) if role == name]
        rows = [found.layers.index(layer) for layer, _ in own]
        columns = [
            int(np.flatnonzero(places[row] == found.heads.index(head))[0])
            for row, (_, head) in zip(rows, own, strict=True)
        ]
        across, down = (
            np.array(places) + shift for places, shift in ((columns, 0.3), (rows, -0.3))
        )
        ax.scatter(
            across, down, s=18, marker=mark, label=name, c="#d1480f", edgecolors="white", lw=0.5
        )
    figure: Any = ax.figure
    names_of_marks = {"fontsize": 7, "ncols": 3}
    if outside:
        legend = figure.legend(loc="outside lower center", **names_of_marks)
    else:
        legend = ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), **names_of_marks)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _told(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _axes(layers: int, heads: int) -> "Axes":
    import matplotlib.pyplot as plt

    inch = max(_INCH, 1.8 / max(layers, heads))
    size = (inch * heads + 1.4, inch * layers + 0.9)
    return plt.subplots(figsize=size, layout="constrained")[1]
