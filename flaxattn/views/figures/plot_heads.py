# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of attention: maps of heads, and a thumbnail of every head of a model."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError, check_arguments
from flaxattn.trace.record import AttentionRecord, choose, layer_weights, without_first
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.figure_style import (
    even_colours,
    font_families,
    is_weight_scale,
    marks_of,
    page_colours,
    shown_once,
    token_labels,
    weight_colours,
    write_title,
)
from flaxattn.views.payloads.side_payload import one_side, recorded
from flaxattn.views.payloads.weight_payload import Given, one_kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MISSING = "#d1480f"  # NaN, where a hatch would be too fine to be seen


@dataclasses.dataclass(frozen=True)
class Maps:
    """Weights of some heads as they are drawn.

    Attributes:
        values: Between 0 and 1, or -1 and 1; NaN where they are.
        label: What they are.
        peaks: What 1 stands for in each layer.
        shares: Whether rows sum to one, so that 1 is a weight of one.
        signed: Whether any is negative.
    """

    values: Float[np.ndarray, "L H Q K"]
    label: str = "attention weight"
    peaks: Sequence[float] = ()
    shares: bool = True
    signed: bool = False

    def scales(self, layers: int) -> list[str]:
        """The value that 1 stands for in each layer, such as `1 = 4.912`; empty for 1 itself."""
        scales = ["" if self.shares else f"1 = {peak:.4g}" for peak in self.peaks]
        return scales or [""] * layers

    def titles(self, layers: Sequence[int], heads: Sequence[int]) -> list[list[str]]:
        """Titles of the maps: head, the value that 1 stands for, and the number of NaN."""
        scales = [f"\n{scale}" if scale else "" for scale in self.scales(len(layers))]
        missing = np.isnan(self.values).sum((2, 3))
        return [
            [
                f"layer {layer}, head {head}{scales[i]}{missing_note(int(missing[i, j]))}"
                for j, head in enumerate(heads)
            ]
            for i, layer in enumerate(layers)
        ]

    def without_first(self) -> "Maps":
        """Without the first key; shares are scaled up to a sum of one."""
        if self.shares:
            return dataclasses.replace(self, values=without_first(self.values))
        rest = self.values.copy()
        rest[..., 0] = np.where(np.isnan(rest[..., 0]), np.nan, 0)
        return dataclasses.replace(self, values=rest)


def read_maps(
    trace: Trace,
    given: Given | None,
    sequence: int,
    side: str | None,
    record: AttentionRecord,
    layers: Sequence[int],
    heads: Sequence[int],
) -> Maps:
    """The maps of some heads: attention, or the one kind of weights that is given."""
    kind = one_kind(trace, given)
    places = [record.heads.index(head) for head in heads]
    if kind is None:
        return Maps(layer_weights(record, layers, allow_nan=True)[:, places])
    name = side or next(iter(recorded(trace)))
    if name not in kind.sides:
        raise InputError(
            f"weights[{kind.name!r}] are of {', '.join(kind.sides)}; drawn is {name}.\n"
            f"Choose the side: side={next(iter(kind.sides))!r}."
        )
    scaled = kind.scaled(name, trace.place(sequence), record, layers)
    values = np.repeat(scaled.values, len(record.heads), 1) if scaled.common else scaled.values
    label = f"{kind.label}\n{scaled.unit}"
    peaks = scaled.peaks.tolist()
    return Maps(values[:, places], label, peaks, scaled.shares, scaled.signed)


def missing_note(count: int) -> str:
    """A line of a title that explains the hatched cells."""
    return f"\nhatched: {count:,} {'is' if count == 1 else 'are'} NaN" if count else ""


def hatch_missing(ax: "Axes", values: np.ndarray) -> None:
    """Let a hatch show where an image has no number: behind it, since NaN is not painted."""
    if np.isnan(values).any():
        ax.patch.set(facecolor="white", edgecolor="#8a8a8a", hatch="////////", linewidth=0)


_MOST_MAPS = 256
_MOST_LABELS = 128
_SHRUNK, _TICK = 0.5, 0.1  # length of a bar, by its axes; inches between two of its numbers
_SIDE = (1.5, 12.0)  # inches along one side of a map, at least and at most
_TOKEN, _CHARACTER = 0.16, 0.068  # inches that a token takes along an axis, a character across it


@shown_once
@check_arguments()
def plot_heads(
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
    """Draw attention maps, query by key, one row per layer and one column per head.

    The colours run from nearly white at 0 to dark blue at 1 in every map, so maps can be compared,
    also in grey and by the colour-blind. As in the pages, a colour is that of the square root of a
    weight, which makes faint ones visible; the bar beside the maps is their scale. Tokens are
    written as they are: no `$` starts a formula, control characters are made visible, characters
    that no installed font has are drawn as their code points. Above 40 characters a token is cut,
    above 128 tokens only some are written. For a window of weights, only the tokens of the window
    are written. Weights that are NaN are hatched, which their title says. The same trace gives the
    same figure.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> figure = fa.plot_heads(trace, layers=[1], heads=[1, 2])
    >>> figure.savefig("heads.png")

    Args:
        trace: With weights `[L, B, H, Q, K]`.
        layers: Layers to draw, by their numbers; default all.
        heads: Heads to draw, by their numbers; default all.
        sequence: Number of the sequence in the batch; its padding is cut away.
        ax: Axes to draw a single map into, for figures of your own.
        side: `encoder`, `decoder` or `cross`; default the first of them that has weights.
        exclude_first: Whether the first key is left out, where many heads leave what they have no
            use for. The other weights of each row are scaled up to a sum of one, which the figure
            says, with the share that was left out; a row that had everything there stays pale.
        weights: Drawn in place of attention: one entry of what `fa.contributions` returns, or an
            array of your own by name, as for `flaxattn.head_view`. Values whose rows do not sum to
            one are drawn as shares of the largest size of their layer, which the titles tell;
            negative ones are orange, positive ones blue.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: If the trace holds no weights, there is no such side, layer, head or sequence,
            there are too many maps for one figure, `ax` is given for more than one map,
            `exclude_first` meets a window of keys, or `weights` do not fit.
    """
    record, queries, keys = one_side(trace, sequence, side)
    chosen = choose(layers, record.layers, "layer")
    columns = choose(heads, record.heads, "head")
    check_count(len(chosen), len(columns), ax)
    maps = read_maps(trace, weights, sequence, side, record, chosen, columns)
    titles = maps.titles(chosen, columns)
    if exclude_first:
        maps, titles = _without_first(record, maps, titles)
    return draw_heads(maps, titles, queries, keys, ax)


def draw_heads(
    maps: Maps,
    titles: Sequence[Sequence[str]],
    queries: Sequence[str],
    keys: Sequence[str],
    ax: "Axes | None",
) -> "Figure":
    """Draw maps with their tokens, one row per layer and one column per head."""
    count, across = maps.values.shape[:2]
    rows, columns = token_labels(queries), token_labels(keys)
    new = ax is None
    axes = map_axes(rows, columns, range(count), range(across)) if new else np.array([[ax]])
    for i in range(count):
        for j in range(across):
            draw_map(axes[i, j], maps.values[i, j], titles[i][j], signed=maps.signed)
            write_tokens(axes[i, j], rows, columns, rows=j == 0, columns=i == count - 1)
    if new:
        add_scale(axes, maps.label)
    return axes[0, 0].figure


def _without_first(
    record: AttentionRecord, maps: Maps, titles: list[list[str]]
) -> tuple[Maps, list[list[str]]]:
    """Maps without the first key, and titles that say so."""
    if record.key_window is not None:
        record.require_whole("Leaving out the first token")
    if not maps.shares:
        notes = [[f"{title}\nfirst token out" for title in row] for row in titles]
        return maps.without_first(), notes
    shares = maps.values[..., 0].mean(-1)
    notes = [
        [f"{title}\nfirst token out ({share:.0%}),\nrenormalised" for title, share in pairs]
        for pairs in (zip(*row, strict=True) for row in zip(titles, shares, strict=True))
    ]
    return maps.without_first(), notes


def check_count(layers: int, heads: int, ax: "Axes | None") -> None:
    """Check that so many maps fit a figure, or one the axes that were given."""
    count = layers * heads
    if ax is not None and count != 1:
        raise InputError(
            f"`ax` takes one map; {layers} layers x {heads} heads were requested.\n"
            "Name one: plot_heads(trace, layers=[0], heads=[3], ax=ax)."
        )
    if count > _MOST_MAPS:
        raise InputError(
            f"{layers} layers x {heads} heads are too many maps; a figure takes {_MOST_MAPS}.\n"
            "Choose some: plot_heads(trace, layers=[…], heads=[…])."
        )


def map_axes(
    queries: Sequence[str],
    keys: Sequence[str],
    rows: Sequence[int] = (0,),
    columns: Sequence[int] = (0,),
) -> np.ndarray:
    """Axes `[rows, columns]` of a new figure, sized so that token labels can be read."""
    import matplotlib.pyplot as plt

    token = min(_TOKEN, _SIDE[1] / max(len(queries), len(keys)))
    width, height = (max(_SIDE[0], token * len(labels)) for labels in (keys, queries))
    beside, below = (_CHARACTER * max(map(len, labels)) + 0.5 for labels in (queries, keys))
    size = (len(columns) * width + beside + 0.8, len(rows) * (height + 0.3) + below)
    _, axes = plt.subplots(
        len(rows),
        len(columns),
        figsize=size,
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    return axes


def draw_map(
    ax: "Axes",
    weights: Float[np.ndarray, "Q K"],
    title: str,
    *,
    signed: bool = False,
    even: bool = False,
) -> None:
    """Draw weights, nearly white at 0 and dark blue at 1, a square for each; NaN is hatched.

    Args:
        ax: Axes to draw into.
        weights: Between 0 and 1, or -1 and 1.
        title: Above them.
        signed: Whether there are weights below 0: orange at -1, white at 0, blue at 1.
        even: Whether these are not weights but scores, whose colours are not by the square root.
    """
    paint = even_colours(1, None if signed else 0) if even else weight_colours(signed=signed)
    ax.imshow(weights, **paint, interpolation="nearest", aspect="equal")
    hatch_missing(ax, weights)
    write_title(ax, title)


def draw_pins(ax: "Axes", shape: tuple[int, int], row: int | None, column: int | None) -> None:
    """Frame the row and the column of a map that are pinned."""
    from matplotlib.patches import Rectangle

    frame = {"fill": False, "edgecolor": page_colours()["ink"], "linewidth": 1.2, "gid": "pin"}
    if row is not None:
        ax.add_patch(Rectangle((-0.5, row - 0.5), shape[1], 1, **frame))
    if column is not None:
        ax.add_patch(Rectangle((column - 0.5, -0.5), 1, shape[0], **frame))


def write_tokens(
    ax: "Axes",
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    rows: bool = True,
    columns: bool = True,
    names: tuple[str, str] = ("attends from", "attended to"),
) -> None:
    """Write tokens beside the rows and below the columns, each one or none."""
    style = {
        "fontsize": 7,
        "parse_math": False,
        "fontfamily": font_families(tuple(queries) + tuple(keys)),
    }
    places, text = _ticks(keys)
    ax.set_xticks(places, text, rotation=90, **style)
    places, text = _ticks(queries)
    ax.set_yticks(places, text, **style)
    ax.tick_params(length=0, labelbottom=columns, labelleft=rows)
    if rows:
        ax.set_ylabel(names[0], fontsize=7)
    if columns:
        ax.set_xlabel(names[1], fontsize=7)


def _ticks(labels: Sequence[str]) -> tuple[range, list[str]]:
    """Places of labels, so few that each can be read, and what they say."""
    places = range(0, len(labels), math.ceil(len(labels) / _MOST_LABELS))
    return places, [labels[place] for place in places]


def add_scale(axes: np.ndarray, label: str = "attention weight") -> None:
    """Put the bar that explains the colours beside all axes of a new figure."""
    first = axes.flat[0]
    bar = first.figure.colorbar(first.images[0], ax=axes, shrink=_SHRUNK, aspect=30, pad=0.01)
    if is_weight_scale(bar.norm):
        marks = marks_of(bar.norm)
        inches = _SHRUNK * first.get_position().height * first.figure.get_size_inches()[1]
        distance = inches * (0.05 if marks[0] < 0 else 0.1)  # of 0 and 0.01, by their square root
        shown = [mark for mark in marks if abs(mark) != 0.01 or distance > _TICK]
        names = [f"{mark:g}".replace("-", "−") if mark in shown else "" for mark in marks]
        bar.set_ticks(marks, labels=names)
    bar.set_label(label, fontsize=7)
    bar.ax.tick_params(labelsize=7)


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
    weight of a block of queries and keys, which the figure says. NaN is red, and a note says so.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> figure = fa.plot_model(trace, layers=[0, 1])
    >>> figure.savefig("model.png")

    Args:
        trace: With weights `[L, B, H, Q, K]`.
        layers: Layers to draw, by their numbers; default all.
        heads: Heads to draw, by their numbers; default all.
        sequence: Number of the sequence in the batch; its padding is cut away.
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
