# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of two traces and their difference side by side, as the head level of a page draws them.

What is shown of each is the business of `state_selection.py`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flaxattn.errors import InputError
from flaxattn.views.figures.figure_text import token_labels
from flaxattn.views.figures.plot_heads import (
    add_scale,
    draw_map,
    draw_pins,
    map_axes,
    write_tokens,
)
from flaxattn.views.figures.plot_lines import draw_lines, lines_size
from flaxattn.views.figures.state_selection import Shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Three = tuple[Shown, Shown, Shown]


def draw_together(
    shown: Three,
    state: Mapping[str, Any],
    names: Sequence[str],
    place: str,
    axes: "Sequence[Axes] | Axes | None" = None,
) -> "Figure":
    """Draw two traces and the second less the first, as lines or as the matrix of one head.

    Weights of both have one scale, also as shares of the largest of their row; the difference has
    a scale of its own.
    """
    if axes is not None and len(np.ravel(np.asarray(axes, object))) != 3:
        raise InputError(
            "This state shows two traces and their difference, which takes three axes.\n"
            "Make them: figure, axes = plt.subplots(1, 3), and give ax=axes."
        )
    own = None if axes is None else np.ravel(np.asarray(axes, object))
    titles = [names[0], names[1], f"{names[1]} − {names[0]}"]
    opacity = str(state.get("opacity", "absolute"))
    heads = ("head " if len(shown[0].heads) == 1 else "heads ") + " ".join(map(str, shown[0].heads))
    where = ", ".join(filter(None, (place, f"layer {shown[0].layers[0]}", heads)))
    if state.get("drawing", "lines") == "matrix":
        return _matrices(shown, opacity, titles, place, own)
    return _lines(shown, opacity, titles, where, own)


def _lines(
    shown: Three, opacity: str, titles: Sequence[str], where: str, axes: np.ndarray | None
) -> "Figure":
    """Three pictures of lines, in the size of the page's."""
    import matplotlib.pyplot as plt

    most = np.maximum(shown[0].units, shown[1].units)
    shown = (
        dataclasses.replace(shown[0], units=most),
        dataclasses.replace(shown[1], units=most),
        shown[2],
    )
    if axes is None:
        width, height = lines_size(shown[0])
        _, axes = plt.subplots(1, 3, figsize=(3 * width, height), layout="constrained")
    assert axes is not None
    said = ", ".join(shown[0].said)
    scales = ["one scale for both", "one scale for both", "a scale of its own"]
    for ax, each, title, scale in zip(axes, shown, titles, scales, strict=True):
        draw_lines(each, opacity, "\n".join(filter(None, (title, where, said, scale))), ax)
    figure: Any = axes[0].figure
    return figure


def _matrices(
    shown: Three, opacity: str, titles: Sequence[str], place: str, axes: np.ndarray | None
) -> "Figure":
    """Three maps of the first head that is on."""
    maps = [np.asarray(each.maps.values[0, 0]) for each in shown]
    if opacity == "row":
        peaks = [np.abs(np.nan_to_num(values)).max(-1) for values in maps]
        both = np.maximum(peaks[0], peaks[1])
        units = [np.where(peak > 0, peak, 1)[:, None] for peak in (both, both, peaks[2])]
        maps = [values / unit for values, unit in zip(maps, units, strict=True)]
    left, right = shown[0].left, shown[0].right
    queries, keys = token_labels(left.shown_tokens), token_labels(right.shown_tokens)
    places = map_axes(queries, keys, range(1), range(3))[0] if axes is None else axes
    head = f"layer {shown[0].layers[0]}, head {shown[0].heads[0]}"
    where = "\n".join(filter(None, (", ".join(filter(None, (place, head))), *shown[0].said)))
    row, column = (
        None if side.pinned is None else side.shown.index(side.pinned) for side in (left, right)
    )
    for number, (ax, values, title) in enumerate(zip(places, maps, titles, strict=True)):
        draw_map(ax, values, f"{title}\n{where}", signed=number == 2)
        write_tokens(ax, queries, keys, rows=number == 0)
        draw_pins(ax, (len(queries), len(keys)), row, column)
    if axes is None:
        share = "share of the row's largest " if opacity == "row" else ""
        add_scale(places[1:2], f"{share}weight{' in both' if share else ', both'}")
        add_scale(places[2:], f"{share}difference")
    figure: Any = places[0].figure
    return figure
