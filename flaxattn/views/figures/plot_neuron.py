# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of one query of one head: how query and keys make its attention, number by number.

Columns are those of BertViz's neuron view (Vig 2019): q, k, q × k, their sum, the scaled score, the
softmax. Scores and softmax are the model's own where the trace has them.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError, check_arguments
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.rotary_pairs import RotaryPairs, rotary_pairs
from flaxattn.trace.selection import choose
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.plot_heads import token_labels, write_tokens
from flaxattn.views.figures.shown_once import shown_once
from flaxattn.views.payloads.side_payload import one_side

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TOLERANCE = 0.02  # between weights and the softmax of what is drawn, beyond which it is said
_MOST_NUMBERS = 40  # keys beside which numbers can be read
_HIDDEN = "#e4e4e4"


class Neuron(NamedTuple):
    """One query of one head, before it is drawn. K keys, D features.

    Attributes:
        query: The query's vector.
        keys: The vectors of the keys.
        product: Of the two, feature by feature.
        dot: Its sum over features.
        scaled: The score the softmax is taken of; NaN where the query does not see the key.
        softmax: The attention weights.
        own: Whether the scaled scores are the model's own; else they are `dot` times a scale.
        scale: Factor on the sum, where the scores are not the model's own.
        pairs: Query and keys before they were rotated, and the share of each pair of dimensions in
            the scores; None where the model has no rotary positions.
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
) -> "Figure":
    """Draw how the attention of one query of one head comes about, a row for each key.

    From left to right: the query, the key, their product feature by feature, its sum, the scaled
    score and the softmax. Blue is below 0, red above; keys that the query does not see are grey.
    Beside at most 40 keys the last three columns have numbers. Of a model with rotary positions,
    queries and keys before they are rotated stand beside those that are multiplied, and after the
    products the share of each pair of dimensions in the score; the title names the pair that adds
    most to the score of the key with most attention. Where the drawn scores do not lead
    to the weights, because a model adds a bias or scales otherwise, the figure says so.

    Args:
        trace: With weights, queries and keys: `Capture(weights=True, query=True, key=True)`; with
            `scores=True` the scaled scores are the model's own.
        layer: Number of the layer.
        head: Number of the head.
        query: Position of the query in its sequence, from 0, padding not counted.
        sequence: Which sequence of the batch.
        ax: Axes to draw into, for figures of your own.
        side: `encoder`, `decoder` or `cross`; default the first of them that has weights.
        scale: What the sum is multiplied with where the trace has no scores; default the factor
            that the trace tells, or 1 / sqrt(D).

    Returns:
        The figure, to be shown or saved.

    Raises:
        InputError: If the trace lacks these fields, or there is no such side, layer, head, query or
            sequence.
    """
    seen, rows, columns = one_side(trace, sequence, side)
    neuron = read_neuron(seen, layer, head, query, scale)
    labels = token_labels(columns)
    own = ax if ax is not None else _axes(neuron, labels)
    middles = _draw(own, neuron)
    write_tokens(own, labels, labels, columns=False, names=("keys", ""))
    own.set_xticks(middles, _headings(neuron), fontsize=7, rotation=0)
    own.tick_params(labeltop=True, labelbottom=False, labelleft=True, length=0)
    (token,) = token_labels([rows[query]])
    title = f"layer {layer}, head {head}, query {query}: {token}"
    decided = "" if neuron.pairs is None else neuron.pairs.summary(1)
    own.set_title(
        "\n".join(filter(None, (title, decided, _misfit(neuron)))),
        fontsize=8,
        parse_math=False,
        pad=14,
    )
    figure: Any = own.figure
    return figure


def read_neuron(
    record: AttentionRecord, layer: int, head: int, query: int, scale: float | None = None
) -> Neuron:
    """The numbers of one query of one head.

    Args:
        record: Of one sequence without padding.
        layer: Number of the layer.
        head: Number of the head.
        query: Position from 0.
        scale: What the sum is multiplied with; default the record's factor, or 1 / sqrt(D). Unused
            where there are scores.

    Raises:
        InputError: If fields are missing, or there is no such layer, head or query.
    """
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
    turned = record.rotation is not None
    pairs = rotary_pairs(record, layer, head, query) if turned else None
    return Neuron(q[query], k, k * q[query], dot, scaled, softmax, own, factor, pairs)


def _factor(record: AttentionRecord, scale: float | None) -> float:
    """The factor that is asked for, or that of the record, or the common one."""
    own = np.asarray(record.query).shape[-1] ** -0.5 if record.scale is None else record.scale
    return own if scale is None else scale


def _misfit(neuron: Neuron) -> str:
    """Return the note for drawn scores that do not lead to the weights."""
    rest = np.exp(neuron.scaled - np.nanmax(neuron.scaled, initial=-np.inf))
    rest = np.nan_to_num(rest)
    apart = np.abs(rest / max(rest.sum(), 1e-30) - neuron.softmax).max()
    if apart <= _TOLERANCE:
        return ""
    return f"the model scales otherwise or adds a bias: weights differ by up to {apart:.2f}"


def _headings(neuron: Neuron) -> list[str]:
    usual = math.isclose(neuron.scale, len(neuron.query) ** -0.5)
    factor = "× 1/√d" if usual else f"× {neuron.scale:.3g}"
    vectors = ["q", "k", "q × k"]
    if neuron.pairs is not None:
        vectors = ["q before\nrotation", "q", "k before\nrotation", "k", "q × k", "score\nby pair"]
    return [*vectors, "q · k", "score" if neuron.own else factor, "softmax"]


def _draw(ax: "Axes", neuron: Neuron) -> list[float]:
    """Draw the columns into one pair of axes; where their middles are."""
    depth, count = len(neuron.query), len(neuron.keys)
    narrow, gap = max(1.0, 0.3 * depth), max(0.5, 0.06 * depth)
    repeated = np.broadcast_to(neuron.query, (count, depth))
    limit = max(float(np.abs(np.concatenate([repeated, neuron.keys])).max()), 1e-6)
    vectors = [
        (repeated, depth, limit),
        (neuron.keys, depth, limit),
        (neuron.product, depth, None),
    ]
    if neuron.pairs is not None:
        before = np.broadcast_to(neuron.pairs.query, (count, depth))
        vectors.insert(0, (before, depth, limit))
        vectors.insert(2, (neuron.pairs.keys, depth, limit))
        vectors.append((neuron.pairs.shares, depth, None))
    columns = [
        *vectors,
        (neuron.dot[:, None], narrow, None),
        (neuron.scaled[:, None], narrow, None),
        (neuron.softmax[:, None], narrow, None),
    ]
    left, middles = 0.0, []
    for number, (values, width, bound) in enumerate(columns):
        extent = (left, left + width, count - 0.5, -0.5)
        last = number == len(columns) - 1
        most = bound or max(float(np.nanmax(np.abs(values), initial=0)), 1e-6)
        low, high, colours = (0, 1, "Blues") if last else (-most, most, "RdBu_r")
        image = ax.imshow(values, colours, vmin=low, vmax=high, extent=extent, aspect="auto")
        image.set_interpolation("nearest")
        image.set_cmap(image.get_cmap().with_extremes(bad=_HIDDEN))
        if number >= len(vectors) and count <= _MOST_NUMBERS:
            _write_numbers(ax, values[:, 0], left + width / 2, high)
        middles.append(left + width / 2)
        left += width + gap
    ax.set_xlim(0, left - gap)
    for spine in ax.spines.values():
        spine.set_visible(False)
    return middles


def _write_numbers(ax: "Axes", values: Float[np.ndarray, " K"], x: float, most: float) -> None:
    for row, value in enumerate(values.tolist()):
        ink = "white" if abs(value) > 0.6 * most else "black"
        text = "" if np.isnan(value) else f"{value:.2f}"
        ax.text(x, row, text, ha="center", va="center", fontsize=6, color=ink)


def _axes(neuron: Neuron, labels: Sequence[str]) -> "Axes":
    import matplotlib.pyplot as plt

    height = min(12.0, max(1.6, 0.17 * len(neuron.keys)))
    width = (
        min(9.0, 4.5 + 0.05 * len(neuron.query))
        + 4.0 * (neuron.pairs is not None)
        + 0.065 * max(map(len, labels))
    )
    return plt.subplots(figsize=(width, height + 0.8), layout="constrained")[1]
