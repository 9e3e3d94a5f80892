# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A figure of changes of the loss: a row for each head, a column for each token.

The numbers come from `flaxattn.token_losses`; nothing is computed here.
"""

from typing import TYPE_CHECKING

import numpy as np

from flaxattn.attribution.token_losses import TokenLosses
from flaxattn.errors import InputError, check_arguments
from flaxattn.views.figures.figure_scale import even_colours
from flaxattn.views.figures.figure_text import font_families, token_labels, write_title
from flaxattn.views.figures.shown_once import shown_once

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELL = (0.26, 0.15)  # inches
_LONGEST = 14  # characters of a token below its column


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
    size = (_CELL[0] * positions + 2.4, _CELL[1] * layers * heads + 1.6)
    figure, ax = plt.subplots(figsize=size, layout="constrained")
    ax.set_facecolor("0.85")
    largest = float(np.ma.filled(np.abs(rows), 0).max()) or 1.0
    image = ax.imshow(rows, **even_colours(largest), interpolation="nearest", aspect="auto")
    labels = [t if len(t) <= _LONGEST else f"{t[:_LONGEST]}…" for t in token_labels(losses.tokens)]
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
