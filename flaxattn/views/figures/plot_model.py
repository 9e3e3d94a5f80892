# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of a whole model: a thumbnail of every head, layers down, heads across.

All thumbnails are one image, so that hundreds of heads are drawn at once. Maps whose tokens can be
read are in `flaxattn.views.figures.plot_heads`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from flaxattn.errors import check_arguments
from flaxattn.trace.record import choose
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.figure_maps import MISSING, Maps, read_maps
from flaxattn.views.figures.figure_scale import weight_colours
from flaxattn.views.figures.figure_text import write_title
from flaxattn.views.figures.plot_heads import add_scale
from flaxattn.views.figures.shown_once import shown_once
from flaxattn.views.payloads.side_payload import one_side
from flaxattn.views.payloads.weight_kinds import Given

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CELLS = 128  # along a side of a thumbnail, at most, as in the page
_INCH = 0.62  # that a thumbnail takes
_BETWEEN = "#d8d8d8"


@shown_once
@check_arguments()
def plot_model(
    trace: Trace,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    sequence: int = 0,
    ax: "Axes | None" = None,
    *,
    side: str | None = None,
    exclude_first: bool = False,
    weights: Given | None = None,
) -> "Figure":
    """Draw the attention of every head as a thumbnail: queries down, keys across.

    Colours are those of `plot_heads`. Above 128 positions a square of a thumbnail is the largest
    weight of a block of queries and keys, which the figure says. What is NaN is red, which it says
    too.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> figure = fa.plot_model(trace, layers=[0, 1])
    >>> figure.savefig("model.png")

    Args:
        trace: With weights `[L, B, H, Q, K]`.
        layers: Layers to draw, by their numbers; default all.
        heads: Heads to draw, by their numbers; default all.
        sequence: Which sequence of the batch; its padding is cut away.
        ax: Axes to draw into, for figures of your own.
        side: `encoder`, `decoder` or `cross`; default the first of them that has weights.
        exclude_first: Whether the first key is left out and rows are renormalised.
        weights: Drawn in place of attention, as in `plot_heads`.

    Returns:
        The figure, to be shown or saved.

    Raises:
        InputError: If the trace holds no weights, or there is no such side, layer, head or
            sequence, `exclude_first` meets a window of keys, or `weights` do not fit.
    """
    record, _, _ = one_side(trace, sequence, side)
    rows, columns = choose(layers, record.layers, "layer"), choose(heads, record.heads, "head")
    maps = read_maps(trace, weights, sequence, side, record, rows, columns)
    title = " · ".join(part for part in (trace.model, side or "") if part)
    if exclude_first:
        if record.key_window is not None:
            record.require_whole("Leaving out the first token")
        notes = "first token out, renormalised" if maps.shares else "first token out"
        maps, title = maps.without_first(), f"{title} {notes}".strip()
    return draw_thumbnails(maps, rows, columns, title, ax)


def draw_thumbnails(
    maps: Maps,
    layers: Sequence[int],
    heads: Sequence[int],
    title: str,
    ax: "Axes | None",
) -> "Figure":
    """Draw weights as a grid of thumbnails."""
    pooled, block = _pooled(maps.values)
    own = ax if ax is not None else _axes(*pooled.shape[:2])
    picture, across, down = mosaic(pooled)
    own.set_facecolor(_BETWEEN)
    image = own.imshow(picture, **weight_colours(signed=maps.signed), aspect="auto")
    image.set_interpolation("antialiased")
    missing = int(np.isnan(maps.values).sum())
    if missing:
        _mark_missing(own, pooled)
    own.set_xticks(across, [str(head) for head in heads])
    own.set_yticks(down, [str(layer) for layer in layers])
    own.tick_params(length=0, labelsize=7)
    own.set_xlabel("head", fontsize=8)
    own.set_ylabel("layer", fontsize=8)
    notes = f"each square: the largest of {block} weights" if block else ""
    gaps = f"red: {missing:,} {'is' if missing == 1 else 'are'} NaN" if missing else ""
    write_title(own, " — ".join(filter(None, (title, notes, gaps))))
    for spine in own.spines.values():
        spine.set_visible(False)
    if ax is None:
        add_scale(np.array([[own]]), maps.label)
    figure: Any = own.figure
    return figure


def _mark_missing(ax: "Axes", pooled: Float[np.ndarray, "L H q k"]) -> None:
    """Hatch NaN cells, but not the gaps between thumbnails."""
    from matplotlib.colors import ListedColormap

    gaps, _, _ = mosaic(np.where(np.isnan(pooled), 1, np.nan))
    paint = ListedColormap([MISSING])
    ax.imshow(gaps, cmap=paint, vmin=0, vmax=1, aspect="auto", interpolation="nearest")


def mosaic(
    maps: Float[np.ndarray, "L H Q K"],
) -> tuple[Float[np.ndarray, "Y X"], list[float], list[float]]:
    """Maps put beside each other with NaN between them.

    Returns:
        The picture, and where the middles of its columns and rows of maps are.
    """
    layers, heads, queries, keys = maps.shape
    gap = max(1, round(0.06 * max(queries, keys)))
    padded = np.full((layers, heads, queries + gap, keys + gap), np.nan, np.float32)
    padded[:, :, :queries, :keys] = maps
    picture = padded.swapaxes(1, 2).reshape(layers * (queries + gap), heads * (keys + gap))
    across = [i * (keys + gap) + (keys - 1) / 2 for i in range(heads)]
    down = [i * (queries + gap) + (queries - 1) / 2 for i in range(layers)]
    return picture[:-gap, :-gap], across, down


def _pooled(weights: Float[np.ndarray, "L H Q K"]) -> tuple[Float[np.ndarray, "L H q k"], str]:
    """The largest weight of each block, as in `assets/pool.js`, so that no faint line is lost.

    Returns:
        The weights, with NaN before all others, and the size of a block; empty where it is one
        weight.
    """
    notes = []
    for axis in (2, 3):
        size = weights.shape[axis]
        count = min(size, _CELLS)
        starts = -(-np.arange(count) * size // count)  # the first i with i * count // size
        kinds = [np.maximum.reduceat(kind, starts, axis) for kind in (weights, -weights)]
        weights = np.where(kinds[1] > kinds[0], -kinds[1], kinds[0])
        notes.append(f"{-(-size // count)}")
    return weights, "" if notes == ["1", "1"] else " × ".join(notes)


def _axes(layers: int, heads: int) -> "Axes":
    import matplotlib.pyplot as plt

    size = (max(2.6, _INCH * heads) + 1.0, max(1.2, _INCH * layers) + 0.7)
    return plt.subplots(figsize=size, layout="constrained")[1]
