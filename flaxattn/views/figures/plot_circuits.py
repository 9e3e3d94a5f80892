# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A figure of the circuits of heads: copying and matching scores, a map for each and each side.

The numbers come from `flaxattn.head_circuits`; nothing is measured here.
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from flaxattn.errors import check_arguments
from flaxattn.measures.circuit_scores import HeadCircuits
from flaxattn.views.figures.figure_scale import even_colours, ink_on
from flaxattn.views.figures.figure_text import write_title
from flaxattn.views.figures.shown_once import shown_once

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
