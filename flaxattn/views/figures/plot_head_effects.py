# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of a number per head, above and below zero, and of losses as heads are removed.

Numbers come in; nothing is measured here.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError, check_arguments
from flaxattn.views.figures.figure_scale import even_colours
from flaxattn.views.figures.figure_text import write_title
from flaxattn.views.figures.shown_once import shown_once

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELL, _MOST = 0.35, 10.0  # inches of a head, and of a side at most


@shown_once
@check_arguments()
def plot_head_values(
    values: Mapping[str, Float[np.ndarray, "L H"]],
    name: str,
    *,
    signed: bool = True,
) -> "Figure":
    """Draw a map for each table of numbers, layers below each other, heads beside each other.

    >>> import numpy as np
    >>> import flaxattn as fa
    >>> figure = fa.plot_head_values({"loss": np.eye(4)}, "nats")

    Args:
        values: Tables by their titles, each on a scale of its own.
        name: What a number is, beside the scale.
        signed: Whether there may be numbers below 0: they are orange, 0 is white, and those above
            it are blue.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: If there is no table, or one that has other dimensions than layer and head.
    """
    import matplotlib.pyplot as plt

    shapes = [np.shape(table) for table in values.values()]
    if not shapes or any(len(shape) != 2 or 0 in shape for shape in shapes):
        raise InputError(
            "plot_head_values cannot use these values.\n"
            f"Expected tables [layer, head] by title, received shapes {shapes}.\n"
            "Pass fa.ablate(task).means, or tables of your own."
        )
    width = sum(min(_CELL * heads, _MOST) + 1.8 for _, heads in shapes)
    height = max(min(_CELL * layers, _MOST) for layers, _ in shapes) + 1.0
    figure, axes = plt.subplots(
        1, len(shapes), figsize=(width, height), squeeze=False, layout="constrained"
    )
    for ax, (title, table) in zip(axes[0], values.items(), strict=True):
        far = float(np.nanmax(np.abs(table), initial=0.0)) or 1.0
        paint = even_colours(far, None if signed else 0)
        image = ax.imshow(table, **paint, interpolation="nearest")
        write_title(ax, title)
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
    """Draw losses against the share of heads that were removed."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(4.5, 3), layout="constrained")
    middle, spread = np.asarray(losses), np.nan_to_num(np.asarray(errors))
    ax.fill_between(shares, middle - spread, middle + spread, alpha=0.2, linewidth=0)
    ax.plot(shares, middle, marker="o", markersize=3)
    ax.set_xlabel("share of heads removed", fontsize=8)
    ax.set_ylabel(name, fontsize=8)
    ax.tick_params(labelsize=7)
    return figure
