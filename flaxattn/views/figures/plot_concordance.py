# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of correlations between what reports tell of heads.

The numbers come from `flaxattn.head_concordance`; nothing is measured here.
"""

from typing import TYPE_CHECKING

import numpy as np

from flaxattn.errors import check_arguments
from flaxattn.measures.head_concordance import HeadConcordance
from flaxattn.views.figures.figure_scale import even_colours, ink_on
from flaxattn.views.figures.figure_text import write_title
from flaxattn.views.figures.shown_once import shown_once

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELL, _LETTER = 0.34, 0.065  # inches of a cell, and of a letter of a name
_NUMBERED = 30  # columns up to which cells have their number


@shown_once
@check_arguments()
def plot_concordance(concordance: HeadConcordance, alpha: float = 0.05) -> "Figure":
    """Draw the rank correlation of every two columns: blue above 0, orange below it.

    Numbers are bold where the corrected p-value is at most alpha; lines part the reports. A
    correlation that is not known is grey.

    >>> import contextlib, io
    >>> import flaxattn as fa
    >>> from flaxattn.cli import main
    >>> reports = ["SCORES", "OTHERS"]
    >>> with contextlib.redirect_stdout(io.StringIO()):  # `flaxattn circuits` in a shell
    ...     codes = [main(["circuits", "--seed", str(n), "--out", reports[n]]) for n in (0, 1)]
    >>> figure = fa.plot_concordance(fa.head_concordance(reports, draws=10))
    >>> figure.savefig("concordance.png")

    Args:
        concordance: From `flaxattn.head_concordance`.
        alpha: Largest corrected p-value of a bold number.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: For arguments of other types.
    """
    import matplotlib.pyplot as plt

    names, table = concordance.columns, concordance.spearman
    side = _CELL * len(names) + _LETTER * max(map(len, names))
    figure, ax = plt.subplots(figsize=(side + 1.2, side + 0.6), layout="constrained")
    ax.set_facecolor("0.8")
    image = ax.imshow(table, **even_colours(1.0), interpolation="nearest")
    for i, j in np.argwhere(~np.isnan(table)).tolist() if len(names) <= _NUMBERED else ():
        sure = concordance.p_corrected[i, j] <= alpha
        ax.text(
            j,
            i,
            f"{table[i, j]:.2f}".replace("-0.00", "0.00").replace("-", "−"),
            ha="center",
            va="center",
            fontsize=5.5,
            fontweight="bold" if sure else "normal",
            color=ink_on(image.cmap(image.norm(table[i, j]))),
        )
    for place in np.flatnonzero(np.diff(concordance.sources)) + 0.5:
        ax.axhline(place, color="black", linewidth=0.8)
        ax.axvline(place, color="black", linewidth=0.8)
    ax.set_xticks(range(len(names)), names, rotation=90, fontsize=6)
    ax.set_yticks(range(len(names)), names, fontsize=6)
    write_title(ax, f"{concordance.model}, {concordance.side}: {len(concordance.heads)} heads")
    bar = figure.colorbar(image, ax=ax, shrink=0.6, pad=0.02)
    bar.set_label(f"Spearman's correlation over heads; bold: p ≤ {alpha:g}", fontsize=6)
    bar.ax.tick_params(labelsize=6)
    return figure
