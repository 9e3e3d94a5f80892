# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A figure of scores per head: layers below each other, heads beside each other, a map per kind.

The numbers come from `flaxattn.measures.induction`; nothing is measured here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flaxattn.errors import check_arguments
from flaxattn.measures.induction import KINDS, HeadScores
from flaxattn.views.figures.plot_heads import add_scale, draw_map, map_axes, write_tokens
from flaxattn.views.figures.shown_once import shown_once

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@shown_once
@check_arguments()
def plot_head_scores(scores: HeadScores, kinds: Sequence[str] = KINDS) -> "Figure":
    """Draw the scores of `flaxattn.detect_heads`, a square for each head, pale at 0, blue at 1.

    >>> import flaxattn as fa
    >>> scores = fa.detect_heads(fa.from_pretrained("tiny-gpt2"), sequences=2, length=20)
    >>> figure = fa.plot_head_scores(scores)
    >>> figure.savefig("head_scores.png")

    Args:
        scores: Of every layer and head.
        kinds: Which kinds to draw, beside each other.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: For arguments of other types.
    """
    layers, heads = ([str(n) for n in numbers] for numbers in (scores.layers, scores.heads))
    axes = map_axes(layers, heads, columns=range(len(kinds)))
    for number, kind in enumerate(kinds):
        ax = axes[0, number]
        draw_map(ax, scores.scores[kind], kind, even=True)
        write_tokens(ax, layers, heads, rows=number == 0, names=("layer", "head"))
    add_scale(axes)
    return axes[0, 0].figure
