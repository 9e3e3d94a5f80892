# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The atlas: a square for every head of a model, coloured by one number, marked by its role.

The numbers come from `flaxattn.measures.head_measures`, groups of like heads from
`flaxattn.measures.head_similarity`; nothing is measured here. Orders are those of the page's atlas.
Two attentions, such as of two checkpoints, are drawn beside each other with their difference:
heads are ranked by `flaxattn.measures.divergence`, and the difference is orange where the second
has less and blue where it has more.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.divergence import HeadDivergence, compare_traces
from flaxattn.measures.head_measures import HeadValues, head_values
from flaxattn.measures.head_similarity import head_likeness
from flaxattn.store.open_store import Store
from flaxattn.trace.record import layer_weights
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.figure_style import (
    even_colours,
    format_effect,
    format_measure,
    ink_on,
    page_colours,
    shown_once,
    token_labels,
    write_title,
)
from flaxattn.views.figures.plot_heads import (
    add_scale,
    draw_map,
    hatch_missing,
    map_axes,
    write_tokens,
)
from flaxattn.views.payloads.report_payload import FAMILIES, claim_marks
from flaxattn.views.payloads.side_payload import one_side
from flaxattn.views.payloads.weight_payload import (
    Effects,
    Given,
    measured_as,
    one_kind,
    read_effects,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Order = Literal["grid", "value", "cluster"]

_INCH = 0.36  # that a square takes
_NUMBERED = 32  # squares in a row that have room for numbers, at most
_NARROWEST = 8  # squares in a row of groups, at least
_SORTED = {"value": "from the largest to the smallest", "cluster": "like heads side by side"}
# Numbers of heads that are shares, and effects, as in `assets/panel.js`.
SHARES = (
    "next",
    "previous",
    "own",
    "strongest",
    "delimiter",
    "first",
    "induction",
    "duplicate",
    "same_segment",
    "max",
)
EFFECTS = ("ablation", "importance")
_UNITS = {"entropy": "nats", "lse": "nats", "distance": "positions"}


@shown_once
@check_arguments()
def plot_atlas(
    source: Trace | Store,
    measure: str = "entropy",
    ax: "Axes | None" = None,
    *,
    side: str | None = None,
    roles: Mapping[tuple[int, int], str] | None = None,
    order: Order = "grid",
    weights: Given | None = None,
    effects: Effects | Sequence[Effects] | None = None,
) -> "Figure":
    """Draw one number of every head: layers down, heads across.

    Colours are even, from the smallest number, or from 0 of shares, to the largest. Where effects
    are below 0 they are orange, and blue above it. A head whose number is not known is hatched,
    such as one whose weights are NaN.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> figure = fa.plot_atlas(trace, "entropy")
    >>> figure.savefig("atlas.png")

    Args:
        source: A trace, or a store with statistics, over whose texts the mean is taken.
        measure: A captured statistic, such as `entropy`, or a measure such as `previous` or
            `delimiter`; `flaxattn.measures.head_measures.head_values` says which there are.
        ax: Axes to draw into, for figures of your own.
        side: `encoder`, `decoder` or `cross`; default the first there is.
        roles: Name of a role by (layer, head). Each has a code, such as S2, and the shape and hue
            of its family, as on pages of claims.
        order: `grid` puts heads where their numbers say; `value` sorts them all, the largest
            first; `cluster` puts heads that attend alike into groups, by Jensen–Shannon distance
            on the first text. Layer and head then stand in the squares.
        weights: Measured in place of attention, as in `plot_heads`: sizes as shares of their row.
        effects: What `fa.ablate` or `fa.head_importance` returned; then `measure` may be `ablation`
            or `importance`, and what it was measured by is written below.

    Returns:
        The figure, to be shown or saved.

    Raises:
        InputError: If there is no such side or measure, a role is of a head that is not there, or
            heads of a store are to be clustered, whose maps are not read, or
            `weights` or `effects` do not fit.
        StoreError: If the store is damaged.
    """
    found, notes = _values(source, measure, side, weights, effects)
    places, starts = _places(source, found, order)
    own = ax if ax is not None else _axes(*places.shape)
    values = np.where(places >= 0, found.values.ravel()[places], np.nan)
    image = _squares(own, values, places, measure)
    title = f"{found.side}: {measure}{notes}"
    if np.isnan(found.values).any():
        title += "\nhatched: not a number"
    write_title(own, title)
    if order == "grid":
        own.set_xticks(range(len(found.heads)), [str(head) for head in found.heads])
        own.set_yticks(range(len(found.layers)), [str(layer) for layer in found.layers])
        own.set_xlabel("head", fontsize=8)
        own.set_ylabel("layer", fontsize=8)
    else:
        own.set_xticks([])
        own.set_yticks(starts, [f"group {n + 1}" for n in range(len(starts))])
        own.set_xlabel(_SORTED[order], fontsize=8)
    if places.shape[1] <= _NUMBERED:
        _write_heads(own, found, places, named=order != "grid")
    if roles:
        _mark(own, found, places, roles, outside=ax is None)
    if ax is None:
        add_bar(own, image, unit(measure))
    figure: Any = own.figure
    return figure


def _values(
    source: Trace | Store,
    measure: str,
    side: str | None,
    weights: Given | None,
    effects: Effects | Sequence[Effects] | None,
) -> tuple[HeadValues, str]:
    """A number of every head, and what it is of where that is not attention."""
    if effects is not None:
        trace = source[0] if isinstance(source, Store) else source
        numbers, description = read_effects(trace, effects)
        if measure in numbers:
            notes = description[measure]
            return _effects(numbers[measure], measure, side), f"\n{notes}"
    if weights is None:
        return head_values(source, measure, side), ""
    if isinstance(source, Store):
        raise InputError(
            "Weights other than attention are given for texts; a store holds many.\n"
            "Take a text: plot_atlas(store[0], weights=…)."
        )
    kind = one_kind(source, weights)
    if kind is None:
        return head_values(source, measure, side), ""
    name = side or next(iter(kind.sides))
    if name not in kind.sides:
        raise InputError(
            f"weights[{kind.name!r}] are of {', '.join(kind.sides)}; drawn is {name}.\n"
            f"Choose the side: side={next(iter(kind.sides))!r}."
        )
    found = [
        head_values(measured_as(one, name, maps), measure, name)
        for one, maps in zip(source, kind.sides[name], strict=True)
    ]
    means = np.mean([one.values for one in found], axis=0)
    return dataclasses.replace(found[0], values=means), f" of {kind.label}, as shares of each row"


def _effects(sides: Mapping[str, np.ndarray], measure: str, side: str | None) -> HeadValues:
    """Effects of every head of the model."""
    if side is not None and side not in sides:
        raise InputError(f"There is no {measure} of {side}.\nThere is {', '.join(sides)}.")
    name = side or next(iter(sides))
    layers, heads = (tuple(range(size)) for size in sides[name].shape)
    return HeadValues(measure, name, layers, heads, sides[name].astype(np.float64))


def unit(measure: str) -> str:
    """Name of a measure beside a colour bar."""
    return f"{measure} ({_UNITS[measure]})" if measure in _UNITS else measure


def add_bar(ax: "Axes", image: Any, label: str) -> None:
    """Put the bar that explains the colours beside axes."""
    figure: Any = ax.figure
    bar = figure.colorbar(image, ax=ax, shrink=0.8, aspect=25, pad=0.02)
    bar.set_label(label, fontsize=7)
    bar.ax.tick_params(labelsize=7)


def _places(
    source: Trace | Store, found: HeadValues, order: Order
) -> tuple[Int[np.ndarray, "Y X"], list[int]]:
    """Head of each square, counted layer by layer (-1 for none), and rows that begin groups."""
    count, width = found.values.size, len(found.heads)
    if order == "grid":
        return np.arange(count).reshape(-1, width), []
    if order == "value":
        known = np.nan_to_num(found.values.ravel(), nan=-np.inf)
        return np.argsort(-known, kind="stable").reshape(-1, width), []
    if order != "cluster":
        raise InputError(f'Unknown order {order!r}.\nUse "grid", "value" or "cluster".')
    if isinstance(source, Store):
        raise InputError(
            "Heads are clustered by their maps on one text; a store holds many.\n"
            'Take a text: plot_atlas(store[0], order="cluster").'
        )
    record = getattr(source[0], found.side)
    if record.weights is None:
        raise InputError(
            "Heads are clustered by their weights; this trace holds none.\n"
            "Capture them: model.trace(text, capture=fa.Capture(weights=True))."
        )
    record.require_whole("Clustering heads")
    maps = np.nan_to_num(layer_weights(record, found.layers, allow_nan=True))
    alike = head_likeness(maps.reshape(-1, *maps.shape[2:]))
    return _in_groups(alike.order, alike.groups, max(width, _NARROWEST))


def _in_groups(
    order: Int[np.ndarray, " N"], groups: Int[np.ndarray, " N"], width: int
) -> tuple[Int[np.ndarray, "Y X"], list[int]]:
    """Heads in rows of a width, each group beginning a row."""
    rows, starts = [], []
    for group in dict.fromkeys(groups[order].tolist()):
        starts.append(len(rows))
        members = [head for head in order.tolist() if groups[head] == group]
        rows += [members[i : i + width] for i in range(0, len(members), width)]
    across = max(map(len, rows))
    return np.array([row + [-1] * (across - len(row)) for row in rows]), starts


def _colours(values: Float[np.ndarray, "Y X"], measure: str) -> dict[str, Any]:
    """The scale that the page's atlas has for these numbers."""
    known = values[np.isfinite(values)]
    if not known.size:
        return even_colours(1, 0)
    if measure in EFFECTS and known.min() < 0:
        return even_colours(float(np.abs(known).max()))
    low = 0.0 if measure in (*SHARES, *EFFECTS) else float(known.min())
    high = float(known.max())
    return even_colours(high if high > low else low + 1, low)


def _squares(
    ax: "Axes", values: Float[np.ndarray, "Y X"], places: Int[np.ndarray, "Y X"], measure: str
) -> Any:
    """Draw the squares; where there is no head, there is none; where no number, a hatch."""
    from matplotlib.patches import Rectangle

    image = ax.imshow(values, **_colours(values, measure), interpolation="nearest")
    for row, column in zip(*np.nonzero((places >= 0) & np.isnan(values)), strict=True):
        hatched = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, linewidth=0)
        hatched.set(hatch="//////", edgecolor="#8a8a8a")
        ax.add_patch(hatched)
    ax.tick_params(length=0, labelsize=7)
    return image


def _write_heads(
    ax: "Axes", found: HeadValues, places: Int[np.ndarray, "Y X"], *, named: bool
) -> None:
    """The number of each head in its square, below its layer and head where these are `named`."""
    image: Any = ax.images[0]
    form = format_effect if found.name in EFFECTS else format_measure
    for (row, column), place in np.ndenumerate(places):
        if place < 0:
            continue
        layer, head = divmod(int(place), len(found.heads))
        value = float(found.values[layer, head])
        text = "–" if np.isnan(value) else form(value)
        if named:
            text = f"{found.layers[layer]}.{found.heads[head]}\n{text}"
        ink = "black" if np.isnan(value) else ink_on(image.cmap(image.norm(value)))
        style = {"ha": "center", "va": "center", "fontsize": 5.5, "color": ink}
        ax.text(float(column), float(row), text, **style)


def _mark(
    ax: "Axes",
    found: HeadValues,
    places: Int[np.ndarray, "Y X"],
    roles: Mapping[tuple[int, int], str],
    *,
    outside: bool,
) -> None:
    """A mark in the corner of each head that has a role, and what the marks mean."""
    for layer, head in roles:
        if layer not in found.layers or head not in found.heads:
            raise InputError(
                f"The role {roles[layer, head]!r} is of head {layer}.{head}, which is not drawn.\n"
                f"Layers {_listed(found.layers)} and heads {_listed(found.heads)} are."
            )
    for name, mark in claim_marks(roles[key] for key in sorted(roles)).items():
        own = [key for key, role in sorted(roles.items()) if role == name]
        flat = [found.layers.index(n) * len(found.heads) + found.heads.index(h) for n, h in own]
        rows, columns = np.nonzero(np.isin(places, flat))
        shape = FAMILIES[mark.family].marker
        marks = {"s": 60, "c": page_colours()[mark.variable], "edgecolors": "white", "lw": 0.5}
        label = f"{mark.code} {name}"
        ax.scatter(columns + 0.28, rows - 0.28, marker=shape, label=label, **marks)
        for row, column in zip(rows, columns, strict=True):
            style = {"ha": "center", "va": "center", "fontsize": 4, "color": "white"}
            ax.text(float(column) + 0.28, float(row) - 0.28, mark.code, **style)
    figure: Any = ax.figure
    names_of_marks = {"fontsize": 7, "ncols": 3}
    if outside:
        legend = figure.legend(loc="outside lower center", **names_of_marks)
    else:
        legend = ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), **names_of_marks)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _axes(layers: int, heads: int) -> "Axes":
    import matplotlib.pyplot as plt

    inch = max(_INCH, 1.8 / max(layers, heads))
    size = (inch * heads + 1.4, inch * layers + 0.9)
    return plt.subplots(figsize=size, layout="constrained")[1]


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
