# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of what a page shows: its state, copied in the browser, picks the same picture.

Filters that the page applies to weights are applied here to the same end; each is named on the
figure. `views/assets/state.js` makes and reads a state in the browser.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flaxattn.errors import InputError, check_arguments
from flaxattn.trace.record import SIDES
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.figure_style import shown_once, token_labels
from flaxattn.views.figures.plot_atlas import plot_atlas
from flaxattn.views.figures.plot_heads import (
    Maps,
    add_scale,
    draw_heads,
    draw_map,
    draw_pins,
    draw_thumbnails,
    map_axes,
    write_tokens,
)
from flaxattn.views.figures.plot_lines import (
    Shown,
    draw_lines,
    lines_size,
    picked_weights,
    select_shown,
    shown_heads,
    shown_layer,
    word_groups,
)
from flaxattn.views.figures.plot_neuron import plot_neuron, read_neuron, usual_query
from flaxattn.views.payloads.page_encoding import check_position, check_state
from flaxattn.views.payloads.report_payload import OFF
from flaxattn.views.payloads.side_payload import one_side, recorded, side_texts
from flaxattn.views.payloads.weight_payload import Effects, Given, read_kinds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@shown_once
@check_arguments()
def plot_state(
    trace: Trace,
    state: Mapping[str, Any] | str,
    ax: "Axes | None" = None,
    *,
    second: Trace | None = None,
    names: Sequence[str] = ("A", "B"),
    weights: Given | None = None,
    effects: Effects | Sequence[Effects] | None = None,
) -> "Figure":
    """Draw what a page shows of a trace, or of two.

    The level chooses the figure: `plot_atlas`, thumbnails of all heads, lines between tokens or
    the matrix of one head, or `plot_neuron`. Text, side, layer, heads, words, pinned tokens, the
    sentence pair, hidden special or first tokens, the slider of mass and what opacity stands for
    choose and change its weights as in the page; a line has the place, colour and opacity it has
    there. Gold pairs are not drawn, and the title says so.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> figure = fa.plot_state(trace, {"level": "head", "layer": 1, "heads": [2]})
    >>> figure.savefig("state.png")

    Args:
        trace: The one the page was made of.
        state: What "copy state" gave, as JSON or as the object it holds. Everything may be left
            out: then the head level, the first text, side and layer, and all heads.
        ax: Axes to draw into, of a state that shows one picture; three where it shows two traces
            and their difference side by side.
        second: The other trace, of a page of two.
        names: What the two are called.
        weights: As the page was given them; the state says which of them it shows.
        effects: As the page was given them.

    Returns:
        The figure, to be shown or saved.

    Raises:
        InputError: If the state is not a JSON object, names what the trace or `weights` lack, or
            shows what no figure draws: all sides in one square, or the atlas of a difference.
    """
    requested = check_state(state)
    trace, other = _compared(trace, requested, second)
    level = str(requested.get("level", "head"))
    sequence = int(requested.get("sequence", 0))
    side = _side(trace, requested)
    if level == "atlas":
        return _atlas(trace, requested, sequence, side, ax, weights, effects)
    if level == "neuron":
        return _neuron(trace, requested, sequence, side, ax)
    if level == "text":
        raise InputError(
            "plot_state draws no running text; this state shows the text level.\n"
            "Save the page's SVG, or draw its weights as lines: set the state's level to 'head'."
        )
    picks: Any = (requested, sequence, side, weights)
    if other is not None and requested["compare"] == "together" and level == "head":
        place = ", ".join(filter(None, (trace.model, side)))
        both = [_select(each, *picks, whole=False) for each in (trace, other)]
        difference = _select(trace, *picks, whole=False, second=other)
        return draw_together((both[0], both[1], difference), requested, names, place, ax)
    shown = _select(trace, *picks, whole=level == "model", second=other)
    if level == "model":
        title = ", ".join(shown.filters)
        maps = _scaled(shown, str(requested.get("opacity", "absolute")))
        return draw_thumbnails(maps, shown.layers, shown.heads, title, ax)
    if requested.get("drawing", "lines") == "matrix":
        return _matrix(shown, str(requested.get("opacity", "absolute")), ax)
    heads = ("head " if len(shown.heads) == 1 else "heads ") + " ".join(map(str, shown.heads))
    place = ", ".join(filter(None, (trace.model, side, f"layer {shown.layers[0]}", heads)))
    (scale,) = shown.maps.scales(1)
    parts = (place, _named(shown.maps, scale), ", ".join(shown.filters))
    title = "\n".join(filter(None, parts))
    return draw_lines(shown, str(requested.get("opacity", "absolute")), title, ax)


def _select(trace: Trace, requested: Mapping[str, Any], *picks: Any, **more: Any) -> Shown:
    """Select what the state shows; gold pairs, which no figure draws, are named as left out."""
    shown = select_shown(trace, requested, *picks, **more)
    name = requested.get("gold", OFF)
    if name == OFF or requested.get("level", "head") != "head":
        return shown
    return dataclasses.replace(shown, filters=[*shown.filters, f"without the gold pairs of {name}"])


def _named(maps: Maps, scale: str) -> str:
    """Weights other than attention, and what 1 stands for."""
    return ", ".join(filter(None, (maps.label.split("\n")[0], scale))) if maps.peaks else ""


def _atlas(
    trace: Trace,
    requested: Mapping[str, Any],
    sequence: int,
    side: str | None,
    ax: "Axes | None",
    weights: Given | None,
    effects: Effects | Sequence[Effects] | None,
) -> "Figure":
    """A number of every head."""
    measure, order = requested.get("measure") or "entropy", requested.get("order", "grid")
    kinds = read_kinds(trace, picked_weights(weights, requested))
    own = {
        name: {side: [maps[sequence]] for side, maps in kind.sides.items()}
        for name, kind in kinds.items()
    }
    beside = {"weights": own or None, "effects": effects}
    return plot_atlas(trace[sequence], measure, ax, side=side, order=order, **beside)


def _neuron(
    trace: Trace, requested: Mapping[str, Any], sequence: int, side: str | None, ax: "Axes | None"
) -> "Figure":
    """The query that is pinned, or the one that the page shows where none is."""
    record, queries, _ = one_side(trace, sequence, side)
    one, own = trace[sequence], side or next(iter(recorded(trace)))
    texts = side_texts(one, own)
    pins = {}
    for name, text in zip(("query", "key"), texts, strict=True):
        words = requested.get("unit") == "words" and all(t["words"] is not None for t in texts)
        groups = word_groups(text) if words else [[n] for n in range(len(text["tokens"]))]
        check_position(requested, name, len(groups))
        pins[name] = None if requested.get(name) is None else groups[requested[name]][0]
    layer = shown_layer(requested, record, side)
    query = pins["query"]
    if query is None:
        query = usual_query(record, len(queries), texts[0]["special"])
    head = shown_heads(requested, record)[0]
    if pins["key"] is None and requested.get("walk", "off") != "off":
        # The page walks to the key with most attention.
        pins["key"] = int(read_neuron(record, layer, head, query).softmax.argmax())
    return plot_neuron(
        trace,
        layer,
        head,
        query,
        sequence,
        ax,
        side=side,
        key=pins["key"],
        dimensions=requested.get("dimensions", "top"),
        numbers=requested.get("numbers") == "on",
        sorting=requested.get("sorting", "weight"),
    )


def _compared(
    trace: Trace, requested: Mapping[str, Any], second: Trace | None
) -> tuple[Trace, Trace | None]:
    """The trace that a state shows, and the other one where it shows their difference."""
    shown = requested.get("compare", "a")
    if shown == "b":
        return trace if second is None else second, None
    if shown == "a":
        return trace, None
    if second is None:
        raise InputError(
            "This state shows the difference of two traces, and plot_state was given one.\n"
            "Give the other, too: plot_state(first, state, second=other)."
        )
    if requested.get("level") in ("atlas", "neuron"):
        raise InputError(
            "plot_state draws no atlas of a difference.\n"
            'Use fa.plot_compare(first, second, measure="entropy"), or the head level.'
        )
    return trace, second


def _side(trace: Trace, requested: Mapping[str, Any]) -> str | None:
    """The side the state names; None where a trace has one side only."""
    name = requested.get("side")
    if name == "all":
        raise InputError(
            "This state shows all sides in one square, which no figure draws.\n"
            "Choose encoder, decoder or cross in the page."
        )
    held = [n for n in SIDES if getattr(trace, n) is not None]
    return None if name is None or (name not in held and len(held) == 1) else str(name)


def _scaled(shown: Shown, opacity: str) -> Maps:
    """Weights as shares of the largest of their row, where the page shows these."""
    if opacity != "row":
        return shown.maps
    units = np.where(shown.units > 0, shown.units, 1)[..., None]
    label = "share of the row's largest weight"
    return dataclasses.replace(shown.maps, values=shown.maps.values / units, label=label)


def _matrix(shown: Shown, opacity: str, ax: "Axes | None") -> "Figure":
    """The map of the first head that is on, with frames about what is pinned."""
    values = shown.maps.values[:, :1]
    drawn = dataclasses.replace(shown, maps=dataclasses.replace(shown.maps, values=values))
    drawn = dataclasses.replace(drawn, units=np.abs(np.nan_to_num(values)).max(-1))
    maps = _scaled(drawn, opacity)
    ((title,),) = maps.titles(shown.layers, shown.heads[:1])
    title = "\n".join(filter(None, (title, ", ".join(shown.filters))))
    queries, keys = shown.left.shown_tokens, shown.right.shown_tokens
    figure = draw_heads(maps, [[title]], queries, keys, ax)
    own = ax if ax is not None else figure.axes[0]
    rows, columns = (
        None if side.pinned is None else side.shown.index(side.pinned)
        for side in (shown.left, shown.right)
    )
    draw_pins(own, (len(queries), len(keys)), rows, columns)
    return figure


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
    notes = ", ".join(shown[0].filters)
    scales = ["one scale for both", "one scale for both", "a scale of its own"]
    for ax, each, title, scale in zip(axes, shown, titles, scales, strict=True):
        draw_lines(each, opacity, "\n".join(filter(None, (title, where, notes, scale))), ax)
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
    where = "\n".join(filter(None, (", ".join(filter(None, (place, head))), *shown[0].filters)))
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
