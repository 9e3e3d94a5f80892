# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of a table of positions: the vectors, and how alike those of two positions are.

It takes the table as an array, sinusoidal or learned.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError, check_arguments
from flaxattn.views.figures.figure_style import even_colours, shown_once

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@shown_once
@check_arguments(0)
def plot_positions(
    table: Float[Any, "P E"],
    axes: "Sequence[Axes] | None" = None,
    *,
    title: str = "",
    segments: Float[Any, "T E"] | None = None,
) -> "Figure":
    """Draw a table of position vectors, and the cosine between each two of them.

    `flaxattn.models.positions.sinusoids(P, E)` makes the table of Vaswani et al. 2017;
    `model.positions()` hands out the one that a model uses. Orange is below 0, blue above, white 0.

    >>> import flaxattn as fa
    >>> from flaxattn.models.positions import sinusoids
    >>> figure = fa.plot_positions(sinusoids(20, 16), title="Sinusoids")
    >>> figure.savefig("positions.png")

    Args:
        table: One vector of E features for each of P positions.
        axes: Two axes to draw into, for figures of your own; four with `segments`.
        title: Written above the figure.
        segments: One vector for each of T segments, as `model.segments()` hands out those of a
            BERT: drawn below, with the cosine between each of them and each position.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: If a table has another shape, or numbers that are not finite, or `axes` are too
            few or too many.
    """
    array = _table(table, "P", "positions")
    tables = [array] if segments is None else [array, _table(segments, "T", "segments")]
    if tables[-1].shape[1] != array.shape[1]:
        raise InputError(
            f"plot_positions: positions have {array.shape[1]} features, segments "
            f"{tables[-1].shape[1]}\nexpected as many\npass both tables of one model"
        )
    drawn = _axes(axes, 2 * len(tables))
    figure: Any = drawn[0].figure
    limit = max(float(np.abs(one).max()) for one in tables) or 1.0
    for place, (one, what) in enumerate(zip(tables, ("position", "segment"), strict=False)):
        cosines = _unit(one) @ _unit(array).T
        _draw(drawn[2 * place], one, limit, ("value", what, "feature"))
        _draw(drawn[2 * place + 1], cosines, 1.0, ("cosine", what, "position"))
    if title:
        figure.suptitle(title, fontsize=9, parse_math=False)
    return figure


def _table(table: Any, letter: str, name: str) -> Float[np.ndarray, "P E"]:
    """A table as float32; `name` is the method of a model that returns it."""
    try:
        array = np.asarray(table, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            "plot_positions cannot use this table.\n"
            f"Expected an array [{letter}, E] of numbers, received {type(table).__name__}.\n"
            f"Pass model.{name}()."
        ) from error
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise InputError(
            f"plot_positions expected finite numbers of shape [{letter}, E], received "
            f"{array.shape}.\nPass a table: model.{name}(), or "
            "flaxattn.models.positions.sinusoids(64, 128)."
        )
    return array


def _unit(table: Float[np.ndarray, "P E"]) -> Float[np.ndarray, "P E"]:
    return table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)


def _axes(axes: "Sequence[Axes] | None", count: int) -> "Sequence[Axes]":
    import matplotlib.pyplot as plt

    if axes is None:
        ratios = [4, 1] if count > 2 else [1]
        size = (8.0, 3.4 + 1.3 * (len(ratios) - 1))
        shape: Any = {"height_ratios": ratios, "figsize": size, "layout": "constrained"}
        return list(plt.subplots(count // 2, 2, squeeze=False, **shape)[1].flat)
    if len(axes) != count:
        number = {2: "two", 4: "four"}[count]
        raise InputError(
            f"plot_positions draws into {number} axes, received {len(axes)}.\n"
            f"Make them: figure, axes = plt.subplots(1, {count})."
        )
    return axes


def _draw(
    ax: "Axes", values: Float[np.ndarray, "P X"], limit: float, names: tuple[str, str, str]
) -> None:
    """Draw a map; `names` are those of its values, its rows and its columns."""
    what, down, across = names
    image = ax.imshow(values, **even_colours(limit), aspect="auto")
    image.set_interpolation("nearest")
    ax.set_xlabel(across, fontsize=8)
    ax.set_ylabel(down, fontsize=8)
    ax.tick_params(labelsize=7)
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label(what, fontsize=8)
    bar.ax.tick_params(labelsize=7)
