# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of a table of positions: the vectors, and how alike those of two positions are.

It takes the table as an array, sinusoidal or learned, and knows no model.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError, check_arguments
from flaxattn.views.figures.shown_once import shown_once

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@shown_once
@check_arguments(0)
def plot_positions(
    table: Float[Any, "P E"], axes: "Sequence[Axes] | None" = None, *, title: str = ""
) -> "Figure":
    """Draw a table of position vectors, and the cosine between each two of them.

    `flaxattn.models.position_tables.sinusoids(P, E)` makes the table of Vaswani et al. 2017;
    `model.positions()` hands out the one that a model uses. Blue is below 0, red above, white 0.

    Args:
        table: One vector of E features for each of P positions.
        axes: Two axes to draw into, for figures of your own.
        title: Written above the figure.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: If the table has another shape, or numbers that are not finite, or `axes` are
            not two.
    """
    try:
        array = np.asarray(table, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"plot_positions cannot use this table.\n"
            f"Expected an array [P, E] of numbers, received {type(table).__name__}.\n"
            "Pass model.positions()."
        ) from error
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise InputError(
            f"plot_positions expected finite numbers of shape [P, E], received {array.shape}.\n"
            "Pass a table: model.positions(), or "
            "flaxattn.models.position_tables.sinusoids(64, 128)."
        )
    vectors, alike = _two(axes)
    figure: Any = vectors.figure
    limit = float(np.abs(array).max()) or 1.0
    _draw(vectors, array, limit, "value", "feature")
    lengths = np.maximum(np.linalg.norm(array, axis=1, keepdims=True), 1e-12)
    _draw(alike, (array / lengths) @ (array / lengths).T, 1.0, "cosine", "position")
    if title:
        figure.suptitle(title, fontsize=9, parse_math=False)
    return figure


def _two(axes: "Sequence[Axes] | None") -> "tuple[Axes, Axes]":
    import matplotlib.pyplot as plt

    if axes is None:
        made = plt.subplots(1, 2, figsize=(8.0, 3.4), layout="constrained")[1]
        return made[0], made[1]
    if len(axes) != 2:
        raise InputError(
            f"plot_positions draws into two axes, received {len(axes)}.\n"
            "Make them: figure, axes = plt.subplots(1, 2)."
        )
    return axes[0], axes[1]


def _draw(
    ax: "Axes", values: Float[np.ndarray, "P X"], limit: float, what: str, across: str
) -> None:
    image = ax.imshow(values, "RdBu_r", aspect="auto", vmin=-limit, vmax=limit)
    image.set_interpolation("nearest")
    ax.set_xlabel(across, fontsize=8)
    ax.set_ylabel("position", fontsize=8)
    ax.tick_params(labelsize=7)
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label(what, fontsize=8)
    bar.ax.tick_params(labelsize=7)
