# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of a number per head, above and below zero, and of losses as heads are removed.

Numbers come in; nothing is measured here.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from flaxattn.views.figures.shown_once import shown_once

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELL, _MOST = 0.35, 10.0  # inches of a head, and of a side at most


@shown_once
def plot_head_values(
    values: Mapping[str, Float[np.ndarray, "L H"]],
    name: str,
    *,
    center: float | None = 0.0,
) -> "Figure":
    """Draw a map for each table of numbers, layers below each other, heads beside each other.

    Args:
        values: Tables by their titles, each on a scale of its own.
        name: What a number is, beside the scale.
        center: Number that is drawn white, with blue above and red below it; None for a scale from
            0 on.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.
    """
    import matplotlib.pyplot as plt

    shapes = [table.shape for table in values.values()]
    width = sum(min(_CELL * heads, _MOST) + 1.8 for _, heads in shapes)
    height = max(min(_CELL * layers, _MOST) for layers, _ in shapes) + 1.0
    figure, axes = plt.subplots(
        1, len(shapes), figsize=(width, height), squeeze=False, layout="constrained"
    )
    for ax, (title, table) in zip(axes[0], values.items(), strict=True):
        far = float(np.nanmax(np.abs(table - (center or 0.0)), initial=0.0)) or 1.0
        low, high = (0.0, far) if center is None else (center - far, center + far)
        colours = "Blues" if center is None else "RdBu"
        image = ax.imshow(table, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
        ax.set_title(title, fontsize=8, parse_math=False)
        ax.set_xlabel("head", fontsize=7)
        ax.set_ylabel("layer", fontsize=7)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.yaxis.get_major_locator().set_params(integer=True)
        ax.tick_params(labelsize=7)
        bar = figure.colorbar(image, ax=ax, shrink=0.8)
        bar.set_label(name, fontsize=7)
        bar.ax.tick_params(labelsize=7)
    return figure


@shown_once
def plot_pruning_curve(
    shares: Sequence[float], losses: Sequence[float], errors: Sequence[float], name: str = "loss"
) -> "Figure":
    """Draw losses against the share of heads that were removed.

    Args:
        shares: Of heads, from 0 to 1.
        losses: One for each.
        errors: Standard errors, drawn as a band; nan for none.
        name: What a loss is.

    Returns:
        The figure.
    """
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(4.5, 3), layout="constrained")
    middle, spread = np.asarray(losses), np.nan_to_num(np.asarray(errors))
    ax.fill_between(shares, middle - spread, middle + spread, alpha=0.2, linewidth=0)
    ax.plot(shares, middle, marker="o", markersize=3)
    ax.set_xlabel("share of heads removed", fontsize=8)
    ax.set_ylabel(name, fontsize=8)
    ax.tick_params(labelsize=7)
    return figure
