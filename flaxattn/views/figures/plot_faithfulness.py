# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of deletion and insertion curves, a line for each kind of attribution.

Curves come in; `flaxattn.attribution.faithfulness` measures them.
"""

from typing import TYPE_CHECKING

from flaxattn.attribution.faithfulness import RANDOM, Faithfulness
from flaxattn.errors import check_arguments
from flaxattn.views.figures.figure_text import write_title
from flaxattn.views.figures.shown_once import shown_once

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLES = ("-", "--", ":")  # colours come again after ten
_COLOURS = 10
_NAMES = {"probability": "probability", "log": "log-probability (nats)"}


@shown_once
@check_arguments()
def plot_faithfulness(found: Faithfulness) -> "Figure":
    """Draw mean curves of deletion and insertion, the most faithful kind first in the legend.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> kinds, texts = ("attention", "random"), ["The captain saw the"]
    >>> curves = fa.faithfulness(model, texts, kinds=kinds, steps=2, random_orders=1)
    >>> figure = fa.plot_faithfulness(curves)
    >>> figure.savefig("faithfulness.png")

    Args:
        found: From `fa.faithfulness`.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: For arguments of other types.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    panels = (
        ("deletion: most important first", "share of tokens removed", found.deletion),
        ("insertion: most important first", "share of tokens added", found.insertion),
    )
    order = [row["kind"] for row in found.table()]
    for ax, (title, name, curves) in zip(axes, panels, strict=True):
        for number, kind in enumerate(order):
            means = curves[found.kinds.index(kind)].mean(0)
            style = {"color": f"C{number % _COLOURS}", "linestyle": _STYLES[number // _COLOURS]}
            if kind == RANDOM:
                style = {"color": "black", "linestyle": (0, (1, 1)), "linewidth": 2}
            ax.plot(found.shares, means, label=kind, **{"linewidth": 1.3, **style})
        write_title(ax, title)
        ax.set_xlabel(name, fontsize=8)
        ax.tick_params(labelsize=7)
    axes[0].set_ylabel(f"{_NAMES[found.scale]} of what is predicted", fontsize=8)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, loc="outside right upper")
    return figure
