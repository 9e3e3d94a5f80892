# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A figure of how far apart heads are: each a point of a plane, and all distances between them.

The numbers come from `flaxattn.measures`; nothing is measured here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.distance import squareform

from flaxattn.measures.head_similarity import HeadMap, Likeness
from flaxattn.views.figures.figure_scale import sequential
from flaxattn.views.figures.plot_heads import draw_map
from flaxattn.views.figures.shown_once import shown_once

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMED = 200  # heads up to which each has its name beside it


@shown_once
def plot_head_map(
    layers: Sequence[int], heads: Sequence[int], likeness: Likeness, places: HeadMap
) -> "Figure":
    """Draw heads as points, dark where their layer is high, and their distances in like order.

    On the left every head is a point named layer.head, as far from the others as the plane allows;
    heads of a group are joined to its middle. On the right are all distances, 0 pale and 1 dark
    blue, with like heads side by side and lines between the groups.
    """
    import matplotlib.pyplot as plt

    figure, (plane, matrix) = plt.subplots(1, 2, figsize=(13, 6), layout="constrained")
    points, groups = places.points, likeness.groups
    for group in np.unique(groups):
        members = points[groups == group]
        middle = members.mean(0)
        for point in members:
            plane.plot(*zip(middle, point, strict=True), color="0.8", linewidth=0.6, zorder=1)
    paint = {"c": list(layers), "cmap": sequential(), "edgecolors": "0.5", "linewidths": 0.5}
    drawn = plane.scatter(*points.T, **paint, s=28, zorder=2)
    if len(points) <= _NAMED:
        for place, layer, head in zip(points.tolist(), layers, heads, strict=True):
            plane.annotate(
                f"{layer}.{head}", (place[0], place[1]), (3, 2), textcoords="offset points", size=6
            )
    plane.set_aspect("equal", adjustable="datalim")
    plane.set_title(f"heads by their attention (stress {places.stress:.2f})")
    figure.colorbar(drawn, ax=plane, label="layer", shrink=0.7)
    order = likeness.order
    distances = squareform(likeness.distances)[np.ix_(order, order)]
    draw_map(matrix, distances, "distances, like order", even=True)
    for cut in np.flatnonzero(np.diff(groups[order])) + 0.5:
        matrix.axhline(cut, color="0.5", linewidth=0.5)
        matrix.axvline(cut, color="0.5", linewidth=0.5)
    matrix.set_xticks([])
    matrix.set_yticks([])
    return figure
