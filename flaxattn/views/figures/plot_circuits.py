# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of circuits of heads: copying and matching scores, and the graph of composition."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.circuit_scores import HeadCircuits
from flaxattn.views.figures.figure_style import (
    even_colours,
    ink_on,
    sequential,
    shown_once,
    wrap_lines,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


_CELL, _SIDE = 0.36, (1.6, 8.0)  # inches of a head, and of a side at least and at most
_NUMBERED = 16  # layers or heads up to which each cell has its number
_LABEL = "sum of eigenvalues / sum of their sizes"


@shown_once
@check_arguments()
def plot_circuits(circuits: HeadCircuits) -> "Figure":
    """Draw scores of every head: layers below each other, heads beside each other.

    Copying, matching and prefix matching are between -1, orange, and 1, blue; the share of the
    previous position is between 0 and 1. Each side of a model that has scores is a row. Heads
    without a score are grey.

    >>> import flaxattn as fa
    >>> circuits = fa.head_circuits(fa.from_pretrained("tiny-gpt2"), drawings=2)
    >>> figure = fa.plot_circuits(circuits)
    >>> figure.savefig("circuits.png")

    Args:
        circuits: From `flaxattn.head_circuits`.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: For arguments of other types.
    """
    import matplotlib.pyplot as plt

    sides = {side: maps for side in circuits.copying if (maps := _maps(circuits, side))}
    names = list(dict.fromkeys(name for maps in sides.values() for name in maps))
    shapes = [circuits.copying[side].shape for side in sides]
    width = len(names) * (_inches(max(heads for _, heads in shapes)) + 0.5) + 1.2
    heights = [_inches(layers) + 0.7 for layers, _ in shapes]
    figure, axes = plt.subplots(
        len(sides),
        len(names),
        figsize=(width, sum(heights)),
        squeeze=False,
        layout="constrained",
        height_ratios=heights,
    )
    signed = shares = None
    for row, (side, maps) in zip(axes, sides.items(), strict=True):
        for ax, name in zip(row, names, strict=True):
            if name not in maps:
                ax.set_visible(False)
                continue
            image = _draw(ax, maps[name], signed=name != "previous")
            title = "previous token" if name == "previous" else name.replace("_", " ")
            write_title(ax, title if len(sides) == 1 else f"{side}: {title}")
            signed, shares = (image, shares) if name != "previous" else (signed, image)
    for image, label in ((signed, _LABEL), (shares, "attention by positions alone")):
        if image is not None:
            bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.01)
            bar.set_label(label, fontsize=7)
            bar.ax.tick_params(labelsize=7)
    return figure


def _inches(count: int) -> float:
    return float(np.clip(_CELL * count, *_SIDE))


def _maps(circuits: HeadCircuits, side: str) -> dict[str, Float[np.ndarray, "L H"]]:
    """Tables of a side that have any number, by name."""
    names = ("copying", "matching", "prefix_matching")
    found = {name: getattr(circuits, name)[side] for name in names}
    if side in circuits.positions:
        found["previous"] = circuits.positions[side][..., 0]
    return {name: table for name, table in found.items() if not np.isnan(table).all()}


def _draw(ax: "Axes", table: Float[np.ndarray, "L H"], signed: bool) -> "AxesImage":
    from matplotlib.ticker import MaxNLocator

    ax.set_facecolor("0.8")
    paint = even_colours(1.0, None if signed else 0.0)
    image = ax.imshow(table, **paint, interpolation="nearest", aspect="auto")
    if max(table.shape) <= _NUMBERED:
        for layer, head in np.argwhere(~np.isnan(table)).tolist():
            value = table[layer, head]
            ink = ink_on(image.cmap(image.norm(value)))
            text = f"{value:.1f}" if signed else f"{value:.2f}"
            text = text.replace("-0.0", "0.0").replace("-", "−")
            ax.text(head, layer, text, ha="center", va="center", fontsize=6, color=ink)
    ax.set_xlabel("head", fontsize=7)
    ax.set_ylabel("layer", fontsize=7)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.tick_params(labelsize=7)
    return image


_Head = tuple[str, int, int]  # side, layer, head
_INCHES = 0.62  # of a head's width, which other sizes are in
_RADIUS, _HEIGHT = 0.27, 1.7  # of a node, and from row to row
_FAINT = 0.35  # of the colours, where the faintest edge begins
_LETTERS = {"query": "Q", "key": "K", "value": "V"}


@shown_once
@check_arguments()
def plot_composition(circuits: HeadCircuits, kind: str = "key", count: int = 24) -> "Figure":
    """Draw the pairs of heads that compose most as arrows, from the head that writes upwards.

    Heads of a layer stand beside each other, the first layer at the bottom; a decoder stands above
    its encoder, each of its layers as a row of its own heads and one of cross-attention. An arrow
    is darker and wider the higher its score. Heads are coloured by their copying score, orange at
    -1 and blue at 1, grey where they have none; heads without an arrow are pale.

    >>> import flaxattn as fa
    >>> circuits = fa.head_circuits(fa.from_pretrained("tiny-gpt2"), drawings=2)
    >>> figure = fa.plot_composition(circuits, "key", count=5)
    >>> figure.savefig("composition.png")

    Args:
        circuits: From `flaxattn.head_circuits`.
        kind: `query`, `key` or `value`.
        count: Number of pairs, the strongest.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: If there is no such kind, or no pair of heads.
    """
    import matplotlib.pyplot as plt
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    edges = circuits.edges(kind)
    if not edges or count < 1:
        raise InputError(
            f"{circuits.model!r} has {len(edges)} pairs of heads with {_LETTERS[kind]}-composition "
            f"and {count} were requested.\nAsk for at least 1, of a model with two layers."
        )
    shown, places = edges[:count], _places(circuits)
    across, up = (max(place[n] for place in places.values()) + 1 for n in (0, 1))
    size = (max(4.2, _INCHES * across) + 2.4, max(2.6, _INCHES * up) + 0.8)
    figure, ax = plt.subplots(figsize=size, layout="constrained")
    ends = [row["score"] for row in shown]
    scale = Normalize(min(circuits.expected, ends[-1]), ends[0])
    for row in reversed(shown):
        _arrow(ax, places, row, scale)
    _nodes(ax, circuits, places, {head for row in shown for head in _ends(row)})
    _axes(ax, circuits, places)
    title = (
        f"{_LETTERS[kind]}-composition of {circuits.model}: the {len(shown)} strongest of "
        f"{len(edges):,} pairs; random matrices have {circuits.expected:.3f}"
    )
    ax.set_title(wrap_lines(title, size[0] - 2.2), fontsize=8, parse_math=False)
    bars = {
        f"{_LETTERS[kind]}-composition": ScalarMappable(scale, _edge_colours()),
        "copying score": ScalarMappable(Normalize(-1, 1), even_colours(1.0)["cmap"]),
    }
    for label, drawn in bars.items():
        bar = figure.colorbar(drawn, ax=ax, shrink=0.7, pad=0.01)
        bar.set_label(label, fontsize=7)
        bar.ax.tick_params(labelsize=7)
    return figure


def _ends(row: Mapping[str, Any]) -> tuple[_Head, _Head]:
    names = ("writer", "reader")
    first, second = ((row[n], row[f"{n}_layer"], row[f"{n}_head"]) for n in names)
    return first, second


def _rows(circuits: HeadCircuits) -> list[tuple[str, int]]:
    """Side and layer of each row of heads, in the order in which they write."""
    order = {"encoder": 0, "decoder": 1, "cross": 1}
    rows = [(side, n) for side, table in circuits.copying.items() for n in range(len(table))]
    return sorted(rows, key=lambda row: (order[row[0]], row[1], row[0] == "cross"))


def _places(circuits: HeadCircuits) -> dict[_Head, tuple[float, float]]:
    """Middle of each head; rows stand above each other, their middles in line."""
    widest = max(table.shape[1] for table in circuits.copying.values())
    found = {}
    for number, (side, layer) in enumerate(_rows(circuits)):
        heads = circuits.copying[side].shape[1]
        for head in range(heads):
            found[side, layer, head] = ((widest - heads) / 2 + head, _HEIGHT * number)
    return found


def _edge_colours() -> Any:
    """Colours of edges, of which the palest can still be seen."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(sequential()(np.linspace(_FAINT, 1, 256)))


def _arrow(
    ax: "Axes",
    places: Mapping[_Head, tuple[float, float]],
    row: Mapping[str, Any],
    scale: "Normalize",
) -> None:
    from matplotlib.patches import FancyArrowPatch

    (x, low), (to_x, high) = (places[head] for head in _ends(row))
    strength = float(scale(row["score"]))
    # An arrow over several rows is bent, so that it passes beside the heads between.
    bend = 0.0 if high - low <= _HEIGHT else 0.16 * (1 if to_x >= x else -1)
    ax.add_patch(
        FancyArrowPatch(
            (x, low + _RADIUS),
            (to_x, high - _RADIUS),
            connectionstyle=f"arc3,rad={bend}",
            arrowstyle="-|>",
            mutation_scale=7,
            shrinkA=0,
            shrinkB=0,
            linewidth=0.6 + 2.2 * strength,
            color=_edge_colours()(strength),
            zorder=2,
        )
    )


def _nodes(
    ax: "Axes",
    circuits: HeadCircuits,
    places: Mapping[_Head, tuple[float, float]],
    joined: set[_Head],
) -> None:
    from matplotlib.patches import Circle

    colours = even_colours(1.0)["cmap"]
    for head, place in places.items():
        side, layer, number = head
        score = circuits.copying[side][layer, number]
        paint = "0.85" if np.isnan(score) else colours((score + 1) / 2)
        alone = head not in joined
        node = Circle(place, _RADIUS, facecolor="white" if alone else paint, zorder=3)
        node.set_edgecolor("0.8" if alone else "0.3")
        node.set_linewidth(0.6)
        ax.add_patch(node)
        ink = "0.6" if alone else ink_on(paint)
        ax.text(*place, f"{layer}.{number}", ha="center", va="center", size=6, color=ink, zorder=4)


def _axes(ax: "Axes", circuits: HeadCircuits, places: Mapping[_Head, tuple[float, float]]) -> None:
    across, up = (max(place[n] for place in places.values()) for n in (0, 1))
    ax.set_xlim(-0.5, across + 0.5)
    ax.set_ylim(-0.5, up + 0.5)
    ax.set_aspect("equal")
    several = len(circuits.copying) > 1
    rows = _rows(circuits)
    labels = [f"{side} {layer}" if several else f"layer {layer}" for side, layer in rows]
    ax.set_yticks([_HEIGHT * number for number in range(len(rows))], labels)
    ax.tick_params(labelsize=7, length=0)
    ax.set_xticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)
