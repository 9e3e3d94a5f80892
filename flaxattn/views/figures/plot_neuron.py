# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of one query of one head: how query and keys make its attention, number by number.

Columns are those of the page, after BertViz's neuron view (Vig 2019): the softmax beside the token,
q, k, q × k, the sum of the dimensions that are left out, q · k, the scaled score. Scores and
softmax are the model's own where the trace has them.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError, check_arguments
from flaxattn.trace.record import AttentionRecord, choose
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.figure_style import (
    even_colours,
    format_number,
    format_weight,
    ink_on,
    shown_once,
    token_labels,
    weight_colours,
    write_title,
)
from flaxattn.views.figures.plot_heads import write_tokens
from flaxattn.views.payloads.neuron_payload import RotaryPairs, explain, rotary_pairs
from flaxattn.views.payloads.side_payload import one_side

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TOLERANCE = 0.02  # between weights and the softmax of what is drawn, beyond which it is said
_MOST_NUMBERS = 40  # keys beside which numbers can be read
_HIDDEN = "#e4e4e4"
# As on the page (`assets/neuron.js`, `assets/neuron_terms.js`): dimensions that are shown of all,
# and the share of sizes at which colours are full, so that one outlier does not pale the rest.
TOP_DIMENSIONS = 8
_FULL_COLOUR, _SAMPLED = 0.98, 20_000
_NUMBERED = 0.38  # inches of a cell with a number in it


class Neuron(NamedTuple):
    """One query of one head, before it is drawn. K keys, D features.

    Attributes:
        query: The query's vector.
        keys: The vectors of the keys.
        product: Product of the two, feature by feature.
        dot: Its sum over features.
        scaled: The score the softmax is taken of; NaN where the query does not see the key.
        softmax: The attention weights.
        own: Whether the scaled scores are the model's own; else they are `dot` times a scale.
        scale: Factor on the sum, where the scores are not the model's own.
        pairs: Query and keys before they were rotated, and the share of each pair of dimensions in
            the scores; None where the model has no rotary positions.
        full: Sizes of queries and of keys of the head at which colours are full.
    """

    query: Float[np.ndarray, " D"]
    keys: Float[np.ndarray, "K D"]
    product: Float[np.ndarray, "K D"]
    dot: Float[np.ndarray, " K"]
    scaled: Float[np.ndarray, " K"]
    softmax: Float[np.ndarray, " K"]
    own: bool
    scale: float
    pairs: RotaryPairs | None = None
    full: tuple[float, float] = (1.0, 1.0)

    def contributions(self, key: int | None = None) -> Float[np.ndarray, " D"]:
        """The amount that each dimension adds to the score of a key."""
        if key is not None:
            return self.scale * self.product[key]
        record = np.isfinite(self.scaled)
        shares = np.where(record, self.softmax - 1 / max(1, record.sum()), 0)
        return self.scale * shares @ self.product


@shown_once
@check_arguments()
def plot_neuron(
    trace: Trace,
    layer: int,
    head: int,
    query: int,
    sequence: int = 0,
    ax: "Axes | None" = None,
    *,
    side: str | None = None,
    scale: float | None = None,
    key: int | None = None,
    dimensions: Literal["all", "top"] = "top",
    numbers: bool = False,
    sorting: Literal["position", "weight"] = "weight",
) -> "Figure":
    """Draw how the attention of one query of one head comes about, a row for each key.

    From left to right: the softmax, the query, the key, their product dimension by dimension, the
    sum of the products that are not drawn, the sum of all of them and the scaled score. Orange is
    below 0, blue above; keys that the query does not see are grey. Colours are full at a size that
    all but 2 % of the numbers stay below. Beside at most 40 keys, softmax and sums have numbers.
    With rotary positions, queries and keys before the rotation stand beside those that are
    multiplied, and the share of each pair of dimensions in the score follows the products; the
    title names the pair that adds most to the score of the key with most attention. Where the drawn
    scores do not lead to the weights, because a model adds a bias or scales otherwise, the figure
    says so.

    >>> import flaxattn as fa
    >>> request = fa.Capture(weights=True, query=True, key=True)
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.", capture=request)
    >>> figure = fa.plot_neuron(trace, layer=1, head=2, query=2)
    >>> figure.savefig("neuron.png")

    Args:
        trace: With weights, queries and keys: `Capture(weights=True, query=True, key=True)`; with
            `scores=True` the scaled scores are the model's own.
        layer: Number of the layer.
        head: Number of the head.
        query: Position of the query in its sequence, from 0, padding not counted.
        sequence: Number of the sequence in the batch.
        ax: Axes to draw into, for figures of your own.
        side: `encoder`, `decoder` or `cross`; default the first of them that has weights.
        scale: What the sum is multiplied with where the trace has no scores; default the factor
            that the trace records, or 1 / sqrt(D).
        key: Position of a key, which gets a frame; dimensions are then sorted by what they add to
            its score.
        dimensions: `top` draws only the 8 dimensions that add most to the score of `key`, or
            without it to the scores of attended keys over the mean of all keys, the largest first;
            their numbers stand below them, and the others are added up. `all` draws all, by number.
        numbers: Whether each cell has its number, which makes the figure wide.
        sorting: `weight` puts the keys with most attention first, `position` the first of the text.

    Returns:
        The figure, to be shown or saved.

    Raises:
        InputError: If the trace lacks these fields, or there is no such side, layer, head, query or
            sequence.
    """
    record, rows, columns = one_side(trace, sequence, side)
    neuron = read_neuron(record, layer, head, query, scale)
    if key is not None and not 0 <= key < len(columns):
        raise InputError(f"There is no key {key}.\nThere are keys 0 to {len(columns) - 1}.")
    shown = _chosen(neuron, key, dimensions)
    places = np.argsort(-neuron.softmax, kind="stable") if sorting == "weight" else slice(None)
    labels = np.array(token_labels(columns), object)[places].tolist()
    own = ax if ax is not None else _axes(neuron, labels, shown, numbers=numbers)
    middles = _draw(own, neuron, shown, places, numbers=numbers)
    if key is not None:
        row = np.arange(len(columns))[places].tolist().index(key)
        own.axhspan(row - 0.5, row + 0.5, fill=False, edgecolor="black", linewidth=1, gid="pin")
    write_tokens(own, labels, labels, columns=False, names=("keys", ""))
    own.set_xticks(middles, _headings(neuron, shown), fontsize=7, rotation=0)
    own.tick_params(labeltop=True, labelbottom=False, labelleft=True, length=0)
    (token,) = token_labels([rows[query]])
    title = f"layer {layer}, head {head}, query {query}: {token}"
    decided = "" if neuron.pairs is None else neuron.pairs.summary(1)
    write_title(own, "\n".join(filter(None, (title, decided, _misfit(neuron)))), pad=14)
    figure: Any = own.figure
    return figure


def read_neuron(
    record: AttentionRecord, layer: int, head: int, query: int, scale: float | None = None
) -> Neuron:
    """The numbers of one query of one head."""
    record.require_whole("The figure of a neuron")
    if missing := [name for name in ("query", "key") if getattr(record, name) is None]:
        raise InputError(
            f"This trace holds no {' and no '.join(missing)} to draw.\n"
            "Capture them: capture=fa.Capture(weights=True, query=True, key=True)."
        )
    at = record.layers.index(choose([layer], record.layers, "layer")[0])
    h = record.heads.index(choose([head], record.heads, "head")[0])
    q, k = (np.asarray(a)[at, 0, :, h].astype(np.float32) for a in (record.query, record.key))
    if not 0 <= query < len(q):
        raise InputError(f"There is no query {query}.\nThere are queries 0 to {len(q) - 1}.")
    weights = np.asarray(record.weights)[at, 0, h, query]
    softmax = weights.astype(np.float32) / (255 if weights.dtype == np.uint8 else 1)
    dot = k @ q[query]
    own = record.scores is not None
    factor = _factor(record, scale)
    scores = np.asarray(record.scores)[at, 0, h, query] if own else dot * factor
    visible = np.isfinite(scores) & ((softmax > 0) | own)
    scaled = np.where(visible, scores, np.nan).astype(np.float32)
    rotated = record.rotation is not None
    pairs = rotary_pairs(record, layer, head, query) if rotated else None
    full = (_usual_size(q), _usual_size(k))
    return Neuron(q[query], k, k * q[query], dot, scaled, softmax, own, factor, pairs, full)


def usual_query(record: AttentionRecord, count: int, special: Sequence[int]) -> int:
    """The query that the page shows while none is pinned: one that has something to see."""
    known = record.query is not None and record.key is not None
    weights = np.asarray(record.weights, np.float32)
    if known and np.isfinite(weights).all():
        terms = explain(record, record.layers)
        if terms is not None and terms.mask == "causal":
            return count - 1
    return next((place for place in range(count) if place not in special), 0)


def _usual_size(numbers: Float[np.ndarray, "..."]) -> float:
    """The size that nearly all numbers stay below; 1 if all are 0."""
    flat = np.ravel(numbers)
    sizes = np.sort(np.abs(flat[:: max(1, len(flat) // _SAMPLED)]))
    return float(sizes[int(_FULL_COLOUR * (len(sizes) - 1))] or sizes[-1] or 1)


class _Dimensions(NamedTuple):
    """Dimensions and pairs of dimensions that are drawn, and whether these are not all."""

    single: np.ndarray
    pairs: np.ndarray
    some: bool


def _chosen(neuron: Neuron, key: int | None, dimensions: str) -> _Dimensions:
    """Dimensions in their order: all by number, or those that add most."""
    adds = neuron.contributions(key)
    count = 0 if neuron.pairs is None else neuron.pairs.shares.shape[1]
    lifts = adds[:count] + adds[count : 2 * count]
    if dimensions == "all":
        return _Dimensions(np.arange(len(adds)), np.arange(count), some=False)
    top = [np.argsort(-np.abs(a), kind="stable")[:TOP_DIMENSIONS] for a in (adds, lifts)]
    return _Dimensions(top[0], top[1], some=True)


def _factor(record: AttentionRecord, scale: float | None) -> float:
    """The factor that is requested, or that of the record, or the common one."""
    own = np.asarray(record.query).shape[-1] ** -0.5 if record.scale is None else record.scale
    return own if scale is None else scale


def _misfit(neuron: Neuron) -> str:
    """Return the note for drawn scores that do not lead to the weights."""
    rest = np.exp(neuron.scaled - np.nanmax(neuron.scaled, initial=-np.inf))
    rest = np.nan_to_num(rest)
    error = np.abs(rest / max(rest.sum(), 1e-30) - neuron.softmax).max()
    if error <= _TOLERANCE:
        return ""
    return f"the model scales otherwise or adds a bias: weights differ by up to {error:.2f}"


def _headings(neuron: Neuron, shown: _Dimensions) -> list[str]:
    usual = math.isclose(neuron.scale, len(neuron.query) ** -0.5)
    factor = "× 1/√d" if usual else f"× {neuron.scale:.3g}"
    left = len(neuron.query) - len(shown.single)
    products = ["q × k", *([f"+ {left} more"] if left else [])]
    vectors = ["q", "k", *products]
    if neuron.pairs is not None:
        before = ["q before\nrotation", "q", "k before\nrotation", "k"]
        vectors = [*before, *products, "score\nby pair"]
    return ["softmax", *vectors, "q · k", "score" if neuron.own else factor]


class _Strip(NamedTuple):
    """Cells beside each other, a row for each key.

    Attributes:
        values: Values of the cells.
        limit: Size at which colours are full; None for weights.
        names: Number of the dimension of each column.
        vector: Whether the cells are dimensions; else they are one number of each key.
    """

    values: Float[np.ndarray, "K D"]
    limit: float | None
    names: np.ndarray
    vector: bool = True

    @classmethod
    def of_numbers(cls, values: Float[np.ndarray, " K"]) -> "_Strip":
        """One number of each key, with colours up to the largest size."""
        limit = max(float(np.nanmax(np.abs(values), initial=0)), 1e-6)
        return cls(values[:, None], limit, np.array([], int), vector=False)


def _strips(neuron: Neuron, shown: _Dimensions) -> list[_Strip]:
    """The strips of vectors and, after products, the sum of those left out, from left to right."""
    count = len(neuron.keys)
    query = np.broadcast_to(neuron.query, (count, len(neuron.query)))
    vectors = [(query, neuron.full[0]), (neuron.keys, neuron.full[1])]
    vectors.append((neuron.product, _usual_size(neuron.product)))
    if neuron.pairs is not None:
        before = np.broadcast_to(neuron.pairs.query, query.shape)
        vectors.insert(0, (before, neuron.full[0]))
        vectors.insert(2, (neuron.pairs.keys, _usual_size(neuron.pairs.keys)))
    strips = [_Strip(values[:, shown.single], size, shown.single) for values, size in vectors]
    if len(shown.single) < len(neuron.query):
        left_out = neuron.dot - neuron.product[:, shown.single].sum(1)
        strips.append(_Strip.of_numbers(left_out))
    if neuron.pairs is not None:
        shares = neuron.pairs.shares
        strips.append(_Strip(shares[:, shown.pairs], _usual_size(shares), shown.pairs))
    return strips


def _draw(
    ax: "Axes", neuron: Neuron, shown: _Dimensions, places: Any, *, numbers: bool
) -> list[float]:
    """Draw the columns into one pair of axes; where their middles are."""
    depth, count = len(shown.single), len(neuron.keys)
    narrow = 2.0 if numbers else max(1.0, 0.3 * depth)
    gap = max(0.5, 0.06 * depth)
    columns = [
        _Strip(neuron.softmax[:, None], None, np.array([], int), vector=False),
        *_strips(neuron, shown),
        _Strip.of_numbers(neuron.dot),
        _Strip.of_numbers(neuron.scaled),
    ]
    left, middles = 0.0, []
    for values, limit, names, vector in columns:
        width = values.shape[1] if vector else narrow
        extent = (left, left + width, count - 0.5, -0.5)
        paint = weight_colours() if limit is None else even_colours(limit)
        image = ax.imshow(values[places], **paint, extent=extent, aspect="auto")
        image.set_interpolation("nearest")
        image.set_cmap(image.get_cmap().with_extremes(bad=_HIDDEN))
        if numbers if vector else count <= _MOST_NUMBERS:
            _write_numbers(ax, image, left, width / values.shape[1], last=limit is None)
        if shown.some:
            for at, name in enumerate(names.tolist()):
                ax.text(left + at + 0.5, count - 0.4, str(name), fontsize=5, ha="center", va="top")
        middles.append(left + width / 2)
        left += width + gap
    ax.set_xlim(0, left - gap)
    for spine in ax.spines.values():
        spine.set_visible(False)
    return middles


def _write_numbers(ax: "Axes", image: Any, left: float, width: float, *, last: bool) -> None:
    """Write the numbers of an image into its cells."""
    values = np.ma.filled(image.get_array(), np.nan)
    colours = image.cmap(image.norm(np.nan_to_num(values)))
    for (row, at), value in np.ndenumerate(values):
        text = "" if np.isnan(value) else (format_weight if last else format_number)(float(value))
        style = {"ha": "center", "va": "center", "fontsize": 6, "color": ink_on(colours[row, at])}
        ax.text(left + (at + 0.5) * width, row, text, **style)


def _axes(neuron: Neuron, labels: Sequence[str], shown: _Dimensions, *, numbers: bool) -> "Axes":
    import matplotlib.pyplot as plt

    height = min(12.0, max(1.6, 0.17 * len(neuron.keys)))
    cells = 3 * len(shown.single)
    if neuron.pairs is not None:
        cells = 5 * len(shown.single) + len(shown.pairs)
    width = min(9.0, 4.5 + 0.05 * len(shown.single)) + 4.0 * (neuron.pairs is not None)
    if numbers:
        width = max(width, 1.4 * _NUMBERED * cells)
    beside = 0.065 * max(map(len, labels))
    return plt.subplots(figsize=(width + beside, height + 0.8), layout="constrained")[1]
