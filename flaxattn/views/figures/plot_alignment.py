# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of cross-attention: what each written token, or word, was made of.

It draws the numbers of `flaxattn.measures.word_alignment` with the pens of
`flaxattn.views.figures.plot_heads`.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool

from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.word_alignment import (
    Pair,
    chosen_maps,
    cross,
    pharaoh,
    read_pharaoh,
    token_weights,
    word_members,
    word_weights,
)
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.figure_style import shown_once, token_labels
from flaxattn.views.figures.plot_heads import (
    add_scale,
    draw_map,
    map_axes,
    write_tokens,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BOX = "#d1480f"  # on blue and on white, also for the colour-blind


@shown_once
@check_arguments()
def plot_alignment(
    trace: Trace,
    layer: int | Sequence[int] | None = None,
    head: int | Sequence[int] | None = None,
    sequence: int = 0,
    ax: "Axes | None" = None,
    *,
    words: bool = False,
    gold: str | Iterable[Pair] | None = None,
) -> "Figure":
    """Draw cross-attention, target by source, as Bahdanau et al. 2015 figure 3 does.

    A row is what the decoder wrote, with the weights of the step that wrote it; a column is what
    it read there. Colours and labels are those of `plot_heads`: nearly white is 0, dark
    blue is 1, by the square root.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-dates").trace("Montag, 12. Juli 2010")
    >>> figure = fa.plot_alignment(trace, layer=0, head=2)
    >>> figure.savefig("alignment.png")

    Args:
        trace: With `cross` weights `[L, B, H, T, S]`.
        layer: Number of a decoder layer; of several the mean is drawn. Default the last but one
            recorded, as in `flaxattn.measures.word_alignment.word_alignment`.
        head: Number of a head; of several the mean is drawn. Default all.
        sequence: Number of the sequence in the batch; its padding is cut away.
        ax: Axes to draw into, for figures of your own.
        words: Whether tokens are put together to words, and special tokens left out.
        gold: Pairs (source word, target word), or a line in the Pharaoh format: a sure link gets a
            box, a possible one a dotted box.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: If the trace holds no cross-attention weights, there is no such layer, head or
            sequence, or a gold link names a word that is not there.
    """
    cross(trace)
    one = trace[sequence]
    heads = None if head is None else np.ravel(head).tolist()
    rows, columns = list((one.written or one.decoder_tokens)[0]), list(one.tokens[0])
    written, read = word_members(one)
    if words:
        rows, columns = _words(rows, written), _words(columns, read)
        written, read = np.eye(len(rows), dtype=bool), np.eye(len(columns), dtype=bool)
    weights = (word_weights if words else token_weights)(one, 0, layer, heads)
    if not weights.size:
        raise InputError(
            "There is no word to draw: all tokens of a side are special.\n"
            "Draw the tokens: plot_alignment(trace, words=False)."
        )
    queries, keys = token_labels(rows), token_labels(columns)
    axes = np.array([[ax]]) if ax is not None else map_axes(queries, keys)
    draw_map(axes[0, 0], weights, _title(*chosen_maps(one, layer, heads)))
    write_tokens(axes[0, 0], queries, keys, names=("target, as written", "source"))
    if gold is not None:
        _draw_links(axes[0, 0], gold, written, read)
    if ax is None:
        add_scale(axes)
    return axes[0, 0].figure


def _words(tokens: Sequence[str], members: Bool[np.ndarray, "K N"]) -> list[str]:
    """Words put together from their tokens."""
    kept = [token.removeprefix("##").strip(" ▁") for token in tokens]
    return ["".join(kept[i] for i in np.flatnonzero(word)) for word in members.T]


def _title(layers: Sequence[int], heads: Sequence[int]) -> str:
    layer = f"layer {layers[0]}" if len(layers) == 1 else f"mean of {len(layers)} layers"
    head = f"head {heads[0]}" if len(heads) == 1 else f"mean of {len(heads)} heads"
    return f"{layer}, {head}"


def _draw_links(
    ax: "Axes",
    gold: str | Iterable[Pair],
    written: Bool[np.ndarray, "T N"],
    read: Bool[np.ndarray, "S M"],
) -> None:
    """A box around the tokens of each pair of words."""
    from matplotlib.patches import Rectangle

    sure, possible = read_pharaoh(gold if isinstance(gold, str) else pharaoh(gold))
    for source, target in sorted(possible):
        if source >= read.shape[1] or target >= written.shape[1]:
            raise InputError(
                f"The gold link {source}-{target} names a word that is not there.\n"
                f"The source has {read.shape[1]} words, the target {written.shape[1]}; they are "
                "numbered from 0."
            )
        across, down = np.flatnonzero(read[:, source]), np.flatnonzero(written[:, target])
        style = "solid" if (source, target) in sure else "dotted"
        ax.add_patch(
            Rectangle(
                (across[0] - 0.5, down[0] - 0.5),
                across[-1] - across[0] + 1,
                down[-1] - down[0] + 1,
                fill=False,
                edgecolor=_BOX,
                linestyle=style,
                linewidth=1.2,
            )
        )
