# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of lines between two columns of tokens, in the geometry and colours of the page.

Lengths are CSS pixels of `assets/lines.js` and `assets/view.css`, 96 to an inch. The weights are
those that the state of a page shows: its filters are applied here to the same end.
`assets/state.js` and `assets/lines.js` do the same in a page; tests compare the two.
"""

import dataclasses
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from flaxattn.errors import InputError
from flaxattn.trace.record import AttentionRecord, choose
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.figure_style import (
    drawable_lines,
    font_families,
    format_weight,
    head_colour,
    page_colours,
    token_labels,
    wrap_lines,
)
from flaxattn.views.figures.plot_heads import Maps, read_maps
from flaxattn.views.payloads.page_encoding import check_position
from flaxattn.views.payloads.side_payload import one_side, recorded, side_texts
from flaxattn.views.payloads.weight_payload import RAW, Given

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_PIXELS = 96  # of an inch
_POINT = 72 / _PIXELS  # of a pixel
_ACROSS = 400.0  # from one column to the other
_STROKE = 2.0
_FAINTEST = 0.5 / 255  # a screen shows no fainter line
_MOST, _INK, _LEAST = 40_000, 60e6, 1000  # limits of lines, as in the page
_BESIDE, _GAP = 14.0, 8.0  # from lines to tokens, from tokens to numbers
_NUMBER = 42.0
_TOP = 56.0  # headings and the legend of heads
_OPACITY = {
    "absolute": "opacity: weight",
    "row": "opacity: weight, of the row's largest",
    "heads": "opacity: weight, divided by the number of heads",
}


@dataclasses.dataclass(frozen=True)
class Lines:
    """Lines, the faintest first.

    Attributes:
        heads: Place of the head of each line.
        queries: Position on the left.
        keys: Position on the right.
        weights: Below 0 where they have signs.
        opacities: Between 0 and 1.
        found: Number of lines without the limit.
    """

    heads: Int[np.ndarray, " N"]
    queries: Int[np.ndarray, " N"]
    keys: Int[np.ndarray, " N"]
    weights: Float[np.ndarray, " N"]
    opacities: Float[np.ndarray, " N"]
    found: int


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Places of everything, from the upper end of the left column's edge."""

    row: float
    height: float
    letters: float
    shifts: Float[np.ndarray, " H"]
    left: Mapping[int, float]
    right: Mapping[int, float]
    columns: tuple[float, float]  # room for tokens on either side


@dataclasses.dataclass(frozen=True)
class TokenColumn:
    """Tokens on one side of a picture.

    Attributes:
        heading: Above them.
        tokens: All of them, tokens or words.
        shown: Positions that filters leave.
        special: Positions of what the model adds.
        left_out: Positions whose weight is left out of every row.
        boundary: Position at which the second text begins, or None.
        begins: Name of what begins there, or an empty text.
        pinned: Position that is pinned, or None.
    """

    heading: str
    tokens: list[str]
    shown: list[int]
    special: set[int]
    left_out: set[int]
    boundary: int | None
    begins: str
    pinned: int | None

    @property
    def shown_tokens(self) -> list[str]:
        """Tokens that filters leave."""
        return [self.tokens[position] for position in self.shown]


@dataclasses.dataclass(frozen=True)
class Shown:
    """Weights as a page shows them.

    Attributes:
        maps: Between the tokens that are shown.
        units: The largest size in each row before the slider of mass and the choice of keys.
        left: Queries.
        right: Keys.
        layers: Their numbers.
        heads: Their numbers.
        filters: Filters in words.
    """

    maps: Maps
    units: Float[np.ndarray, "L H q"]
    left: TokenColumn
    right: TokenColumn
    layers: list[int]
    heads: list[int]
    filters: list[str]


def select_lines(shown: Shown, opacity: str) -> Lines:
    """The lines of one layer, of the pinned token alone if there is one."""
    weights = np.nan_to_num(shown.maps.values[0])
    units = {"row": shown.units[0], "heads": np.full(shown.units[0].shape, len(shown.heads))}
    unit = units.get(opacity, np.ones_like(shown.units[0]))
    opacities = np.abs(weights) / np.where(unit > 0, unit, 1)[..., None]
    queries, keys = (np.array(column.shown) for column in (shown.left, shown.right))
    if shown.left.pinned is not None:
        opacities[:, queries != shown.left.pinned] = 0
    elif shown.right.pinned is not None:
        opacities[:, :, keys != shown.right.pinned] = 0
    heads, rows, columns = np.nonzero(opacities)
    strength = opacities[heads, rows, columns]
    size = _row_height(shown)
    height = size * max(len(queries), len(keys))
    limit = max(_LEAST, min(_MOST, int(_INK / (_ACROSS + height / 3))))
    order = np.argsort(strength, kind="stable")[-limit:]
    return Lines(
        heads=heads[order],
        queries=queries[rows[order]],
        keys=keys[columns[order]],
        weights=weights[heads, rows, columns][order],
        opacities=np.minimum(1, strength[order]),
        found=len(strength),
    )


def draw_lines(shown: Shown, opacity: str, title: str, ax: "Axes | None" = None) -> "Figure":
    """Draw lines between tokens, as the head level of a page does."""
    lines = select_lines(shown, opacity)
    layout = _lay_out(shown)
    limited = len(lines.weights) < lines.found
    message = f"the strongest {len(lines.weights):,} of {lines.found:,} lines" if limited else ""
    title = "\n".join(filter(None, (title, message, _OPACITY[opacity])))
    beside = [room + _BESIDE + _GAP + _NUMBER for room in layout.columns]
    width = _ACROSS + sum(beside)
    title = wrap_lines(drawable_lines(title), width / _PIXELS)
    own = ax if ax is not None else _axes(width, layout.height, title.count("\n") + 1)
    own.set_xlim(-beside[0], _ACROSS + beside[1])
    own.set_ylim(layout.height + _GAP, -_TOP)
    own.set_axis_off()
    own.set_title(title, fontsize=8, parse_math=False, fontfamily=font_families([title]))
    _draw_curves(own, shown, lines, layout)
    _draw_legend(own, shown)
    focus = shown.left.pinned if shown.left.pinned is not None else shown.right.pinned
    beside_tokens = _numbers(shown, lines) if focus is not None else {}
    for name, column in (("left", shown.left), ("right", shown.right)):
        other = beside_tokens if (name == "right") == (shown.left.pinned is not None) else {}
        _draw_column(own, name, column, layout, other, shown)
    figure: Any = own.figure
    return figure


def lines_size(shown: Shown) -> tuple[float, float]:
    """Width and height in inches that lines with their tokens, title and legend take."""
    layout = _lay_out(shown)
    width = _ACROSS + sum(room + _BESIDE + _GAP + _NUMBER for room in layout.columns)
    return width / _PIXELS, (layout.height + _GAP + _TOP + 100.0) / _PIXELS


def _row_height(shown: Shown) -> float:
    longest = max(len(shown.left.shown), len(shown.right.shown))
    return 18.0 if longest > 96 else 21.0 if longest > 40 else 26.0


def _lay_out(shown: Shown) -> _Layout:
    row, count = _row_height(shown), len(shown.heads)
    letters = min(15.0, max(12.0, 0.6 * row))
    gap = min(2.5, 0.7 * row / count)
    left, right = (
        {place: (number + 0.5) * row for number, place in enumerate(column.shown)}
        for column in (shown.left, shown.right)
    )
    rooms = [_room(column, letters) for column in (shown.left, shown.right)]
    return _Layout(
        row=row,
        height=row * max(len(left), len(right)),
        letters=letters,
        shifts=(np.arange(count) - (count - 1) / 2) * gap,
        left=left,
        right=right,
        columns=(rooms[0], rooms[1]),
    )


def _room(column: TokenColumn, letters: float) -> float:
    """Room that the tokens and the heading of a column take."""
    labels = token_labels(column.shown_tokens)
    widths = [sum(1.0 if _is_wide(c) else 0.62 for c in label) * letters for label in labels]
    return max([*widths, 0.5 * 12 * len(column.heading), 40.0])


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def _axes(width: float, height: float, lines: int) -> "Axes":
    """Axes of a new figure, a pixel of the page for each of theirs."""
    import matplotlib.pyplot as plt

    tall, above, edge = height + _GAP + _TOP, 14.0 * lines + 14, 10.0
    whole = (width + 2 * edge, tall + above + edge)
    figure = plt.figure(figsize=(whole[0] / _PIXELS, whole[1] / _PIXELS))
    place = (edge / whole[0], edge / whole[1], width / whole[0], tall / whole[1])
    return figure.add_axes(place)


def _draw_curves(ax: "Axes", shown: Shown, lines: Lines, layout: _Layout) -> None:
    """Draw the lines that can be seen, one collection in their order."""
    from matplotlib.collections import PathCollection
    from matplotlib.colors import to_rgb
    from matplotlib.path import Path

    ink = np.minimum(1.8 * lines.opacities, 0.8 + 0.2 * lines.opacities)  # `inkOf` in lines.js
    visible = ink >= _FAINTEST
    heads, weights = lines.heads[visible], lines.weights[visible]
    starts = (
        np.array([layout.left[place] for place in lines.queries[visible]]) + layout.shifts[heads]
    )
    ends = np.array([layout.right[place] for place in lines.keys[visible]]) + layout.shifts[heads]
    codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    paths = [
        Path([(0, y), (_ACROSS / 2, y), (_ACROSS / 2, end), (_ACROSS, end)], codes)
        for y, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    colours = np.array([to_rgb(_colour(shown, n, 1)) for n in range(len(shown.heads))])[heads]
    if shown.maps.signed:
        below, above = (to_rgb(_colour(shown, 0, sign)) for sign in (-1, 1))
        colours = np.where((weights < 0)[:, None], below, above)
    strokes = np.column_stack([colours.reshape(-1, 3), ink[visible]])
    style = {"facecolors": "none", "edgecolors": strokes, "linewidths": _STROKE * _POINT}
    ax.add_collection(PathCollection(paths, **style, gid="lines"), autolim=False)


def _colour(shown: Shown, place: int, weight: float) -> str:
    """The colour of a line: of its head, or by its sign where there are signs."""
    if shown.maps.signed:
        return page_colours()["negative" if weight < 0 else "positive"]
    return head_colour(shown.heads[place])


def _draw_legend(ax: "Axes", shown: Shown) -> None:
    """Name the colours: of heads, or of signs."""
    from matplotlib.patches import Rectangle

    names = {f"{head}": _colour(shown, n, 1) for n, head in enumerate(shown.heads)}
    if shown.maps.signed:
        names = {name: _colour(shown, 0, w) for name, w in (("below 0", -1), ("above 0", 1))}
    step = min(70.0 if shown.maps.signed else 30.0, _ACROSS / len(names))
    start = (_ACROSS - step * len(names)) / 2
    for number, (name, colour) in enumerate(names.items()):
        x = start + number * step
        ax.add_patch(Rectangle((x, -46), 9, 9, facecolor=colour, gid=f"head-{name}"))
        if step > 18:
            ax.text(x + 12, -41, name, fontsize=8, va="center")
    ax.text(_ACROSS / 2, -18, "→", ha="center", va="center", color=page_colours()["soft"])


def _numbers(shown: Shown, lines: Lines) -> dict[int, dict[int, float]]:
    """Weights by place of their head, of the tokens that the lines of the pinned one lead to."""
    other = lines.keys if shown.left.pinned is not None else lines.queries
    found: dict[int, dict[int, float]] = {}
    for place, head, weight in zip(other, lines.heads, lines.weights, strict=True):
        found.setdefault(int(place), {})[int(head)] = float(weight)
    return found


def _draw_column(
    ax: "Axes",
    side: str,
    column: TokenColumn,
    layout: _Layout,
    numbers: Mapping[int, Mapping[int, float]],
    shown: Shown,
) -> None:
    """Draw the tokens of a column, what is pinned, and numbers beside the other column."""
    colours = page_colours()
    places = layout.left if side == "left" else layout.right
    labels = dict(zip(column.shown, token_labels(column.shown_tokens), strict=True))
    inner, outer, align = -_BESIDE, -_BESIDE - layout.columns[0] - _GAP, "right"
    if side == "right":
        inner, outer = _ACROSS + _BESIDE, _ACROSS + _BESIDE + layout.columns[1] + _GAP
        align = "left"
    fonts = font_families(list(labels.values()))
    style: dict[str, Any] = {"va": "center", "ha": align, "parse_math": False}
    ax.text(inner, -18, column.heading, fontsize=9, color=colours["soft"], **style)
    for place, y in places.items():
        if place == column.pinned:
            _fill(ax, inner, outer, y, layout.row, [(colours["held"], 1.0)])
        elif place in numbers:
            parts = [numbers[place].get(n, 0.0) for n in range(len(shown.heads))]
            stripes = [(_colour(shown, n, w), 0.4 * min(1, abs(w))) for n, w in enumerate(parts)]
            _fill(ax, inner, outer, y, layout.row, stripes)
            mean = sum(parts) / len(shown.heads)
            size = 11.5 * _POINT
            ax.text(outer, y, format_weight(mean), fontsize=size, color=colours["soft"], **style)
        faint = place in column.special
        ink = colours["soft" if faint else "ink"]
        size = layout.letters * _POINT
        alpha = 0.45 if place in column.left_out else None
        text = labels[place]
        ax.text(inner, y, text, fontsize=size, color=ink, alpha=alpha, family=fonts, **style)
    if column.boundary is not None and {0, column.boundary} <= places.keys():
        _divide(ax, column, inner, outer, places[column.boundary] - layout.row / 2)


def _fill(
    ax: "Axes",
    inner: float,
    outer: float,
    y: float,
    row: float,
    stripes: Sequence[tuple[str, float]],
) -> None:
    """Colour the row of a token, a stripe for each head."""
    from matplotlib.patches import Rectangle

    start, end = sorted((inner, outer))
    step = (end - start) / len(stripes)
    for number, (colour, alpha) in enumerate(stripes):
        if alpha >= _FAINTEST:
            corner = (start + number * step, y - row / 2)
            ax.add_patch(Rectangle(corner, step, row, facecolor=colour, alpha=alpha, linewidth=0))


def _divide(ax: "Axes", column: TokenColumn, inner: float, outer: float, y: float) -> None:
    """A dashed line where the second text begins, and its name if it has one."""
    soft = page_colours()["soft"]
    ax.plot([inner, outer], [y, y], color=soft, linewidth=_POINT, linestyle="--", gid="divider")
    if column.begins:
        ax.text(outer, y, column.begins, fontsize=7, color=soft, va="bottom", ha="center")


# Headings of the two columns, as `SIDES` in `assets/sides.js`; of one self-attention the last.
HEADINGS = {
    "encoder": ("source, attends from", "source, attended to"),
    "decoder": ("target, as read", "target, as read"),
    "cross": ("target, as written", "source"),
    "alone": ("attends from", "attended to"),
}


def shown_layer(state: Mapping[str, Any], record: AttentionRecord, side: str | None) -> int:
    """The layer that is shown; by default the one the page begins with."""
    usual = record.layers[max(0, len(record.layers) - 2) if side == "cross" else 0]
    requested = state.get("layer")
    return choose([usual if requested is None else int(requested)], record.layers, "layer")[0]


def shown_heads(state: Mapping[str, Any], record: AttentionRecord) -> list[int]:
    """The heads that are on, in the order of the page."""
    return sorted(choose(state.get("heads"), record.heads, "head"), key=record.heads.index)


def picked_weights(given: Given | None, state: Mapping[str, Any]) -> Given | None:
    """The one kind of weights that a state shows; None for attention."""
    name = state.get("weights", RAW)
    if name == RAW:
        return None
    if name not in (given or {}):
        raise InputError(
            f"This state shows the weights {name!r}; plot_state was given "
            f"{', '.join(given or ()) or 'none'}.\n"
            f"Give what the page was given: plot_state(trace, state, weights={{{name!r}: …}})."
        )
    return {name: (given or {})[name]}


def select_shown(
    trace: Trace,
    state: Mapping[str, Any],
    sequence: int,
    side: str | None,
    given: Given | None,
    *,
    whole: bool,
    second: Trace | None = None,
) -> Shown:
    """The weights a page shows, of one trace or the second less the first."""
    record, _, _ = one_side(trace, sequence, side)
    record.require_whole("Drawing a state")
    layers = list(record.layers) if whole else [shown_layer(state, record, side)]
    heads = list(record.heads) if whole else shown_heads(state, record)
    picked = picked_weights(given, state)
    maps = read_maps(trace, picked, sequence, side, record, layers, heads)
    one, own = trace[sequence], side or next(iter(recorded(trace)))
    texts = side_texts(one, own)
    if state.get("unit") == "words":
        texts, maps = _in_words(texts, maps)
    notes: list[str] = []
    left, right = _columns(texts, own, len(recorded(trace)) == 1, state, notes)
    hidden = sorted(right.left_out)
    weights = _without(maps, hidden)
    if hidden and maps.shares:
        notes[-1] += ", renormalised"
    if second is not None:
        weights = _other_maps(second, trace, state, sequence, side, layers, heads, hidden) - weights
        maps = dataclasses.replace(maps, signed=True, label="difference")
    units = np.abs(np.nan_to_num(weights)).max(-1)
    mass = float(state.get("mass", 100)) / 100
    if mass < 1 and not whole:
        notes.append(f"{mass:.0%} of each row's mass")
        weights = _heaviest(weights, mass)
    if not whole:
        pins = {"query": left.pinned, "key": right.pinned}
        notes += [f"{name} {place}" for name, place in pins.items() if place is not None]
    chosen = weights[:, :, left.shown][..., right.shown]
    units = units[:, :, left.shown]
    kept = dataclasses.replace(maps, values=chosen)
    return Shown(kept, units, left, right, layers, heads, notes)


def _without(maps: Maps, hidden: Sequence[int]) -> Float[np.ndarray, "L H Q K"]:
    """Weights without some keys; shares are scaled up to a sum of one."""
    weights = maps.values.copy()
    if not hidden:
        return weights
    weights[..., list(hidden)] = 0
    return _renormalised(weights) if maps.shares else weights


def _other_maps(
    second: Trace,
    first: Trace,
    state: Mapping[str, Any],
    sequence: int,
    side: str | None,
    layers: Sequence[int],
    heads: Sequence[int],
    hidden: Sequence[int],
) -> Float[np.ndarray, "L H Q K"]:
    """Weights of the other trace, filtered in the same way."""
    record, *tokens = one_side(second, sequence, side)
    if tokens != list(one_side(first, sequence, side)[1:]):
        raise InputError(
            "The two traces are not of the same tokens.\nGive the two that the page was made of."
        )
    record.require_whole("Drawing a state")
    layers = choose(layers, record.layers, "layer")
    maps = read_maps(
        second, None, sequence, side, record, layers, choose(heads, record.heads, "head")
    )
    own = side or next(iter(recorded(second)))
    if state.get("unit") == "words":
        _, maps = _in_words(side_texts(second[sequence], own), maps)
    return _without(maps, hidden)


def _columns(
    texts: Sequence[Mapping[str, Any]],
    side: str,
    alone: bool,
    state: Mapping[str, Any],
    notes: list[str],
) -> tuple[TokenColumn, TokenColumn]:
    """Queries and keys as the filters leave them."""
    pair = str(state.get("attention", "all"))
    boundary = texts[0]["boundary"]
    if side == "cross" or boundary is None:
        pair = "all"
    if pair != "all":
        parts = texts[0].get("parts")
        names = [parts["ab".index(name)].lower() if parts else name.upper() for name in pair]
        notes.append(f"{'' if parts else 'sentence '}{' → '.join(names)}")
    hides = {"special tokens": set(texts[1]["special"]), "first token": {0}}
    requested = {"special tokens": state.get("special"), "first token": state.get("first")}
    left_out = {name: out for name, out in hides.items() if requested[name] == "hidden" and out}
    if left_out:
        notes.append(f"{' and '.join(left_out)} out")
    kind = "alone" if alone and side != "cross" else side
    made = []
    for number, (name, text) in enumerate(zip(("query", "key"), texts, strict=True)):
        places = _places(text, "" if pair == "all" else pair[number])
        kept = [p for p in places if state.get("special") != "hidden" or p not in text["special"]]
        check_position(state, name, len(text["tokens"]))
        pinned = state.get(name)
        made.append(
            TokenColumn(
                heading=HEADINGS[kind][number],
                tokens=list(text["tokens"]),
                shown=kept,
                special=set(text["special"]),
                left_out=set().union(*left_out.values()) if number else set(),
                boundary=text["boundary"],
                begins=text["parts"][1].lower() if text.get("parts") else "",
                pinned=pinned if pinned in kept else None,
            )
        )
    if not made[0].shown or not made[1].shown:
        raise InputError(
            "This state shows no position of the text: all are filtered away.\n"
            "Take back a filter in the page."
        )
    return made[0], made[1]


def _places(text: Mapping[str, Any], sentence: str) -> range:
    """Positions of a sentence, or all."""
    start = text["boundary"] if sentence == "b" else 0
    return range(start, text["boundary"] if sentence == "a" else len(text["tokens"]))


def word_groups(text: Mapping[str, Any]) -> list[list[int]]:
    """Positions of each word of a text, and of each token that is in none."""
    groups: list[list[int]] = []
    words = text["words"]
    for place, word in enumerate(words):
        if place and word is not None and words[place - 1] == word:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _in_words(
    texts: Sequence[dict[str, Any]], maps: Maps
) -> tuple[tuple[dict[str, Any], dict[str, Any]], Maps]:
    """Texts in words, and weights: to a word their sum, from a word their mean."""
    if any(text["words"] is None for text in texts):
        raise InputError(
            "This state shows words; it is not known which tokens of the text make them.\n"
            "Turn words off in the page, or leave out the state's 'unit'."
        )
    groups = [word_groups(text) for text in texts]
    sums = [_members(group) for group in groups]
    means = sums[0] / sums[0].sum(1, keepdims=True)
    values = np.einsum("wq,lhqk,vk->lhwv", means, maps.values, sums[1])
    left, right = (_word_text(text, group) for text, group in zip(texts, groups, strict=True))
    return (left, right), dataclasses.replace(maps, values=values.astype(np.float32))


def _members(groups: Sequence[Sequence[int]]) -> Float[np.ndarray, "W S"]:
    """One where a position is in a word."""
    members = np.zeros((len(groups), sum(map(len, groups))), np.float32)
    for word, places in enumerate(groups):
        members[word, list(places)] = 1
    return members


def _word_text(text: Mapping[str, Any], groups: Sequence[Sequence[int]]) -> dict[str, Any]:
    """A text with a token for each word."""
    at = {place: word for word, places in enumerate(groups) for place in places}
    tokens = text["tokens"]
    joined = [
        tokens[places[0]] + "".join(tokens[place].removeprefix("##") for place in places[1:])
        for places in groups
    ]
    boundary = None if text["boundary"] is None else at[text["boundary"]]
    special = sorted({at[place] for place in text["special"]})
    return {**text, "tokens": joined, "special": special, "boundary": boundary}


def _heaviest(weights: Float[np.ndarray, "L H Q K"], mass: float) -> Float[np.ndarray, "L H Q K"]:
    """Zeros in place of all but the fewest weights that hold a share of their row."""
    sizes = np.abs(np.nan_to_num(weights))
    ordered = -np.sort(-sizes, axis=-1)
    enough = ordered.cumsum(-1) >= mass * sizes.sum(-1, keepdims=True) - 1e-6
    smallest = np.take_along_axis(ordered, enough.argmax(-1)[..., None], -1)
    return np.where((sizes >= smallest) | np.isnan(weights), weights, 0)


def _renormalised(weights: Float[np.ndarray, "L H Q K"]) -> Float[np.ndarray, "L H Q K"]:
    """Rows scaled up to a sum of one; what has NaN in it stays as it is."""
    total = weights.sum(-1, keepdims=True)
    shares = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.where(np.isnan(total), weights, shares)
