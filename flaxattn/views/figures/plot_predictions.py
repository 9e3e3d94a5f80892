# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of predictions: the logit lens, and changes of the loss by head and token."""

from typing import TYPE_CHECKING, Any

import numpy as np

from flaxattn.attribution.token_losses import TokenLosses
from flaxattn.errors import InputError, check_arguments
from flaxattn.trace.token_predictions import LogitLens
from flaxattn.views.figures.figure_style import (
    even_colours,
    font_families,
    ink_on,
    page_colours,
    shown_once,
    token_labels,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_CELL = (0.78, 0.30)  # inches
_LONGEST = 10  # characters of a token in a cell


@shown_once
@check_arguments()
def plot_logit_lens(lens: LogitLens, first: int = 0, count: int = 24) -> "Figure":
    """Draw the likeliest token of each layer and position, darker the more probable it is.

    The last layer is at the top, the embeddings at the bottom. Below each column stands the token
    that was read there, above it the true one; cells that have the true token as the likeliest
    have a frame.

    >>> import flaxattn as fa
    >>> lens = fa.logit_lens(fa.from_pretrained("tiny-gpt2"), "The old man and the sea")
    >>> figure = fa.plot_logit_lens(lens)
    >>> figure.savefig("logit_lens.png")

    Args:
        lens: From `flaxattn.logit_lens`.
        first: First position that is drawn.
        count: Largest number of positions.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: If there are no such positions.
    """
    import matplotlib.pyplot as plt

    length = len(lens.tokens)
    if not 0 <= first < length or count < 1:
        raise InputError(
            f"first, count: expected positions 0 to {length - 1} and at least one of them, "
            f"received {first} and {count}.\nLeave them out for the first 24."
        )
    part = slice(first, first + count)
    shares = np.exp(lens.likeliest[:, part, 0])
    states, positions = shares.shape
    size = (_CELL[0] * positions + 2.0, _CELL[1] * states + 1.3)
    figure, ax = plt.subplots(figsize=size, layout="constrained")
    ax.set_facecolor("0.8")
    paint = even_colours(1.0, 0.0)
    image = ax.imshow(shares, **paint, interpolation="nearest", aspect="auto", origin="lower")
    _write(ax, lens, part, image)
    _name(ax, lens, part)
    bar = figure.colorbar(image, ax=ax, shrink=0.9, pad=0.01)
    bar.set_label("probability of the likeliest token", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    return figure


def _write(ax: "Axes", lens: LogitLens, part: slice, image: Any) -> None:
    """Write tokens into the cells, and frame those that are right."""
    from matplotlib.patches import Rectangle

    frame = {"fill": False, "edgecolor": page_colours()["negative"], "linewidth": 1.2}
    for state, row in enumerate(lens.alternatives):
        labels = _short([tokens[0] for tokens in row[part]])
        for place, label in enumerate(labels):
            position = part.start + place
            share = float(np.exp(lens.likeliest[state, position, 0]))
            ink = ink_on(image.cmap(image.norm(share))) if np.isfinite(share) else "black"
            style = {"fontsize": 6.5, "color": ink, "parse_math": False}
            fonts = font_families([label])
            ax.text(place, state, label, ha="center", va="center", fontfamily=fonts, **style)
            if lens.follows[position] and lens.rank[state, position] == 1:
                ax.add_patch(Rectangle((place - 0.47, state - 0.45), 0.94, 0.9, **frame))


def _name(ax: "Axes", lens: LogitLens, part: slice) -> None:
    ax.set_yticks(range(len(lens.names)), list(lens.names), fontsize=7)
    read, true = (_short(tokens[part]) for tokens in (lens.tokens, lens.targets))
    true = [t if f else "" for t, f in zip(true, lens.follows[part], strict=True)]
    above = ax.secondary_xaxis("top")
    for axis, labels in ((ax, read), (above, true)):
        fonts = font_families(labels)
        axis.set_xticks(range(len(labels)), labels, fontsize=6.5, fontfamily=fonts)
        for label in axis.get_xticklabels():
            label.set_parse_math(False)
        axis.tick_params(axis="x", length=0)
    ax.set_xlabel("token that was read", fontsize=7)
    above.set_xlabel("true token", fontsize=7)


def _short(tokens: Any) -> list[str]:
    """Tokens as they are drawn, cut where they are wider than a cell."""
    labels = token_labels(list(tokens))
    return [t if len(t) <= _LONGEST else f"{t[: _LONGEST - 1]}…" for t in labels]


_LOSS_CELL = (0.26, 0.15)  # inches
_LONGEST_TEXT = 14  # characters of a token below its column


@shown_once
@check_arguments()
def plot_token_losses(
    losses: TokenLosses, side: str | None = None, first: int = 0, count: int = 48
) -> "Figure":
    """Draw how much the loss at each token changes without each head.

    Blue cells are tokens that are predicted worse without the head, orange ones better, white ones
    no different; grey columns are tokens that are not predicted.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> (found,) = fa.token_losses(model, ["The old man and the old man"])
    >>> figure = fa.plot_token_losses(found)
    >>> figure.savefig("token_losses.png")

    Args:
        losses: From `flaxattn.token_losses`.
        side: `encoder`, `decoder` or `cross`; default the first that there is.
        first: First position that is drawn.
        count: Largest number of positions.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: If there is no such side, or there are no such positions.
    """
    import matplotlib.pyplot as plt

    side = next(iter(losses.changes)) if side is None else side
    if side not in losses.changes:
        raise InputError(
            f"{losses.model!r} has no side {side!r}.\nIt has {', '.join(losses.changes)}."
        )
    length = len(losses.tokens)
    if not 0 <= first < length or count < 1:
        raise InputError(
            f"first, count: expected positions 0 to {length - 1} and at least one of them, "
            f"received {first} and {count}.\nLeave them out for the first 48."
        )
    part = slice(first, first + count)
    changes = losses.changes[side][..., part]
    layers, heads, positions = changes.shape
    rows = np.ma.masked_array(
        changes.reshape(layers * heads, positions),
        np.broadcast_to(~losses.counted[part], (layers * heads, positions)),
    )
    size = (_LOSS_CELL[0] * positions + 2.4, _LOSS_CELL[1] * layers * heads + 1.6)
    figure, ax = plt.subplots(figsize=size, layout="constrained")
    ax.set_facecolor("0.85")
    largest = float(np.ma.filled(np.abs(rows), 0).max()) or 1.0
    image = ax.imshow(rows, **even_colours(largest), interpolation="nearest", aspect="auto")
    labels = [
        t if len(t) <= _LONGEST_TEXT else f"{t[:_LONGEST_TEXT]}…"
        for t in token_labels(losses.tokens)
    ]
    labels = labels[part]
    fonts = font_families(labels)
    ax.set_xticks(range(positions), labels, fontsize=6.5, rotation=90, fontfamily=fonts)
    for label in ax.get_xticklabels():
        label.set_parse_math(False)
    names = [f"{layer}.{head}" for layer in range(layers) for head in range(heads)]
    ax.set_yticks(range(layers * heads), names, fontsize=6.5)
    for layer in range(1, layers):
        ax.axhline(layer * heads - 0.5, color="0.6", linewidth=0.6)
    ax.set_ylabel(f"head of the {side}" if side != "cross" else "head of cross-attention")
    replaced = {"zero": "0", "mean": "its mean"}[losses.removal]
    write_title(ax, f"Change of the loss where a head's output is {replaced}")
    bar = figure.colorbar(image, ax=ax, pad=0.01)
    bar.set_label("nats", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    return figure
