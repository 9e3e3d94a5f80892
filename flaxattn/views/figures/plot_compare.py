# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of two attentions beside each other and of their difference, such as of two checkpoints.

Heads are ranked by `flaxattn.measures.divergence`. The difference is orange where the second has
less and blue where it has more.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.divergence import HeadDivergence, compare_traces
from flaxattn.measures.head_measures import HeadValues, head_values
from flaxattn.store.open_store import Store
from flaxattn.trace.record import layer_weights
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.figure_style import even_colours, shown_once, token_labels, write_title
from flaxattn.views.figures.plot_atlas import add_bar, unit
from flaxattn.views.figures.plot_heads import (
    add_scale,
    draw_map,
    hatch_missing,
    map_axes,
    write_tokens,
)
from flaxattn.views.payloads.side_payload import one_side

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 24  # heads of one figure
_LISTED = 4  # heads that are named


@shown_once
@check_arguments(2)
def plot_compare(
    first: Trace | Store,
    second: Trace | Store,
    count: int = 4,
    sequence: int = 0,
    axes: "Sequence[Axes] | np.ndarray | None" = None,
    *,
    side: str | None = None,
    measure: str | None = None,
    names: tuple[str, str] = ("first", "second"),
) -> "Figure":
    """Draw the heads that differ most between two traces: each of them, and the difference.

    Rows are heads, the largest Jensen–Shannon divergence first, averaged over all texts of the
    traces; drawn is one text. Heads with weights that are NaN are named and left out. With
    `measure`, one row compares that number over all heads, as `plot_atlas` draws it, of two traces
    or two stores.

    >>> import numpy as np
    >>> import flaxattn as fa
    >>> first = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> uniform = np.full(first.encoder.weights.shape, 1 / 8, np.float32)
    >>> second = fa.Trace.from_arrays(weights=uniform, tokens=first.tokens)
    >>> figure = fa.plot_compare(first, second, count=1, names=("tiny-bert", "uniform"))
    >>> figure.savefig("compare.png")

    Args:
        first: A trace, or with `measure` a store with statistics.
        second: Another of the same texts.
        count: Largest number of heads that are drawn.
        sequence: Number of the text in the batch.
        axes: Three axes for each row to draw into, for figures of your own.
        side: `encoder`, `decoder` or `cross`; default that of the head that differs most, or with
            `measure` the first.
        measure: A statistic or measure to compare in place of maps.
        names: What the two are called above their columns.

    Returns:
        The figure, to be shown or saved.

    Raises:
        InputError: If the texts, layers or heads differ, there is no such side, measure or
            sequence, stores are compared without a measure, or `axes` are not three for each row.
    """
    if measure is not None:
        return _compare_values(first, second, measure, side, axes, names)
    if isinstance(first, Store) or isinstance(second, Store):
        raise InputError(
            "Stores are compared by a measure: maps of many texts do not fit a figure.\n"
            'Name one: plot_compare(first, second, measure="entropy"), or take texts: store[0].'
        )
    if not 1 <= count <= _MOST:
        raise InputError(f"plot_compare draws 1 to {_MOST} heads, received count={count}.")
    ranked = compare_traces(first, second, side=side)
    missing = [row for row in ranked if math.isnan(row.divergence)]
    ranked = [row for row in ranked if row.side == ranked[0].side and row not in missing][:count]
    if not ranked:
        raise InputError(
            "No head of the two traces can be compared: each has weights that are NaN.\n"
            "Draw where they are: fa.plot_model(first)."
        )
    parts = [_maps(first, second, sequence, row) for row in ranked]
    queries, keys = parts[0][1]
    grid = _grid(axes, len(parts), (queries, keys))
    for number, (row, (maps, labels)) in enumerate(zip(ranked, parts, strict=True)):
        _draw_row(grid[number], maps, labels, row, names, last=number == len(parts) - 1)
    if missing:
        named = ", ".join(f"{row.side} {row.layer}.{row.head}" for row in missing[:_LISTED])
        more = f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
        title = f"{grid[0, 0].get_title()}\nnot compared, NaN: {named}{more}"
        write_title(grid[0, 0], title)
    if axes is None:
        _scales(grid)
    return grid[0, 0].figure


def _maps(
    first: Trace, second: Trace, sequence: int, row: HeadDivergence
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[list[str], list[str]]]:
    """The two maps of a head, and the labels of rows and columns."""
    found, labels = [], ([], [])
    for trace in (first, second):
        record, queries, keys = one_side(trace, sequence, row.side)
        maps = layer_weights(record, [row.layer], allow_nan=True)
        found.append(maps[0, record.heads.index(row.head)])
        labels = (token_labels(queries), token_labels(keys))
    return (found[0], found[1]), labels


def _draw_row(
    axes: np.ndarray,
    maps: tuple[Float[np.ndarray, "Q K"], Float[np.ndarray, "Q K"]],
    labels: tuple[list[str], list[str]],
    row: HeadDivergence,
    names: tuple[str, str],
    *,
    last: bool,
) -> None:
    """The two maps of a head and their difference."""
    named = f"{row.side} {row.layer}.{row.head}: {row.divergence:.3f} nats"
    draw_map(axes[0], maps[0], f"{named}\n{names[0]}")
    draw_map(axes[1], maps[1], names[1])
    draw_map(axes[2], maps[1] - maps[0], f"{names[1]} − {names[0]}", signed=True)
    for number, ax in enumerate(axes):
        write_tokens(ax, *labels, rows=number == 0, columns=last)


def _compare_values(
    first: Trace | Store,
    second: Trace | Store,
    measure: str,
    side: str | None,
    axes: Any,
    names: tuple[str, str],
) -> "Figure":
    """Two atlases and their difference."""
    one, other = (head_values(source, measure, side) for source in (first, second))
    if (one.side, one.layers, one.heads) != (other.side, other.layers, other.heads):
        raise InputError(
            f"The two differ in {measure}'s heads: {_described(one)} and {_described(other)}.\n"
            "Capture the same layers and heads in both."
        )
    layers, heads = ([str(n) for n in numbers] for numbers in (one.layers, one.heads))
    grid = _grid(axes, 1, (layers, heads))
    most = float(np.nanmax([one.values, other.values])) or 1.0
    difference = other.values - one.values
    limit = float(np.nanmax(np.abs(difference))) or 1.0
    pictures = [
        (one.values, even_colours(most, 0), names[0]),
        (other.values, even_colours(most, 0), names[1]),
        (difference, even_colours(limit), f"{names[1]} − {names[0]}"),
    ]
    for number, (ax, (values, colours, name)) in enumerate(zip(grid[0], pictures, strict=True)):
        ax.imshow(values, **colours, interpolation="nearest")
        hatch_missing(ax, values)
        write_title(ax, name)
        write_tokens(ax, layers, heads, rows=number == 0, names=("layer", "head"))
    if axes is None:
        add_bar(grid[0, 1], grid[0, 1].images[0], unit(measure))
        add_bar(grid[0, 2], grid[0, 2].images[0], "difference")
    return grid[0, 0].figure


def _described(values: HeadValues) -> str:
    return f"{values.side}, {len(values.layers)} layers × {len(values.heads)} heads"


def _grid(axes: Any, rows: int, labels: tuple[Sequence[str], Sequence[str]]) -> np.ndarray:
    """Axes `[rows, 3]`, given or new."""
    if axes is None:
        return map_axes(*labels, range(rows), range(3))
    given = np.asarray(axes, object).ravel()
    if len(given) != 3 * rows:
        raise InputError(
            f"plot_compare draws into three axes for each of {rows} rows, received {len(given)}.\n"
            f"Make them: figure, axes = plt.subplots({rows}, 3), or ask for another count."
        )
    return given.reshape(rows, 3)


def _scales(grid: np.ndarray) -> None:
    """The bars that explain the colours of weights and of differences."""
    add_scale(grid[:, 1:2])
    add_scale(grid[:, 2:], "difference")
