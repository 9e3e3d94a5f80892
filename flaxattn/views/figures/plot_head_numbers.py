# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of numbers of heads and of probes.

Scores, effects, how reports agree, and distances between heads; probes of hidden states for labels,
and structural probes of trees.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import squareform

from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.head_concordance import HeadConcordance
from flaxattn.measures.head_similarity import HeadMap, Likeness
from flaxattn.measures.induction import KINDS, HeadScores
from flaxattn.probes.label_probe import LEVEL, LabelJudged
from flaxattn.probes.structural_probe import StructuralJudged
from flaxattn.views.figures.figure_style import (
    even_colours,
    ink_on,
    sequential,
    shown_once,
    write_title,
)
from flaxattn.views.figures.plot_heads import add_scale, draw_map, map_axes, write_tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_CELL, _MOST = 0.35, 10.0  # inches of a head, and of a side at most


@shown_once
@check_arguments()
def plot_head_values(
    values: Mapping[str, Float[np.ndarray, "L H"]],
    name: str,
    *,
    signed: bool = True,
) -> "Figure":
    """Draw a map for each table of numbers, layers below each other, heads beside each other.

    >>> import numpy as np
    >>> import flaxattn as fa
    >>> figure = fa.plot_head_values({"loss": np.eye(4)}, "nats")

    Args:
        values: Tables by their titles, each on a scale of its own.
        name: What a number is, beside the scale.
        signed: Whether there may be numbers below 0: they are orange, 0 is white, and those above
            it are blue.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: If there is no table, or one that has other dimensions than layer and head.
    """
    import matplotlib.pyplot as plt

    shapes = [np.shape(table) for table in values.values()]
    if not shapes or any(len(shape) != 2 or 0 in shape for shape in shapes):
        raise InputError(
            "plot_head_values cannot use these values.\n"
            f"Expected tables [layer, head] by title, received shapes {shapes}.\n"
            "Pass fa.ablate(task).means, or tables of your own."
        )
    width = sum(min(_CELL * heads, _MOST) + 1.8 for _, heads in shapes)
    height = max(min(_CELL * layers, _MOST) for layers, _ in shapes) + 1.0
    figure, axes = plt.subplots(
        1, len(shapes), figsize=(width, height), squeeze=False, layout="constrained"
    )
    for ax, (title, table) in zip(axes[0], values.items(), strict=True):
        far = float(np.nanmax(np.abs(table), initial=0.0)) or 1.0
        paint = even_colours(far, None if signed else 0)
        image = ax.imshow(table, **paint, interpolation="nearest")
        write_title(ax, title)
        ax.set_xlabel("head", fontsize=7)
        ax.set_ylabel("layer", fontsize=7)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.yaxis.get_major_locator().set_params(integer=True)
        ax.tick_params(labelsize=7)
        bar = figure.colorbar(image, ax=ax, shrink=0.8)
        bar.set_label(name, fontsize=7)
        bar.ax.tick_params(labelsize=7)
    return figure


@shown_once
def plot_pruning_curve(
    shares: Sequence[float], losses: Sequence[float], errors: Sequence[float], name: str = "loss"
) -> "Figure":
    """Draw losses against the share of heads that were removed."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(4.5, 3), layout="constrained")
    middle, spread = np.asarray(losses), np.nan_to_num(np.asarray(errors))
    ax.fill_between(shares, middle - spread, middle + spread, alpha=0.2, linewidth=0)
    ax.plot(shares, middle, marker="o", markersize=3)
    ax.set_xlabel("share of heads removed", fontsize=8)
    ax.set_ylabel(name, fontsize=8)
    ax.tick_params(labelsize=7)
    return figure


@shown_once
@check_arguments()
def plot_head_scores(scores: HeadScores, kinds: Sequence[str] = KINDS) -> "Figure":
    """Draw the scores of `flaxattn.detect_heads`, a square for each head, pale at 0, blue at 1.

    >>> import flaxattn as fa
    >>> scores = fa.detect_heads(fa.from_pretrained("tiny-gpt2"), sequences=2, length=20)
    >>> figure = fa.plot_head_scores(scores)
    >>> figure.savefig("head_scores.png")

    Args:
        scores: Scores of every layer and head.
        kinds: Kinds to draw, side by side.

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


_CORRELATION_CELL, _LETTER = 0.34, 0.065  # inches of a cell, and of a letter of a name
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
    side = _CORRELATION_CELL * len(names) + _LETTER * max(map(len, names))
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


_NAMED = 200  # heads up to which each has its name beside it


@shown_once
def plot_head_map(
    layers: Sequence[int], heads: Sequence[int], likeness: Likeness, places: HeadMap
) -> "Figure":
    """Draw heads as points, dark where their layer is high, and their distances in like order.

    On the left every head is a point named layer.head, as far from the others as the plane allows;
    heads of a group are joined to its middle. On the right are all distances, 0 pale and 1 dark
    blue, with like heads side by side and lines between the groups.
    """
    import matplotlib.pyplot as plt

    figure, (plane, matrix) = plt.subplots(1, 2, figsize=(13, 6), layout="constrained")
    points, groups = places.points, likeness.groups
    for group in np.unique(groups):
        members = points[groups == group]
        middle = members.mean(0)
        for point in members:
            plane.plot(*zip(middle, point, strict=True), color="0.8", linewidth=0.6, zorder=1)
    paint = {"c": list(layers), "cmap": sequential(), "edgecolors": "0.5", "linewidths": 0.5}
    drawn = plane.scatter(*points.T, **paint, s=28, zorder=2)
    if len(points) <= _NAMED:
        for place, layer, head in zip(points.tolist(), layers, heads, strict=True):
            plane.annotate(
                f"{layer}.{head}", (place[0], place[1]), (3, 2), textcoords="offset points", size=6
            )
    plane.set_aspect("equal", adjustable="datalim")
    plane.set_title(f"heads by their attention (stress {places.stress:.2f})")
    figure.colorbar(drawn, ax=plane, label="layer", shrink=0.7)
    order = likeness.order
    distances = squareform(likeness.distances)[np.ix_(order, order)]
    draw_map(matrix, distances, "distances, like order", even=True)
    for cut in np.flatnonzero(np.diff(groups[order])) + 0.5:
        matrix.axhline(cut, color="0.5", linewidth=0.5)
        matrix.axvline(cut, color="0.5", linewidth=0.5)
    matrix.set_xticks([])
    matrix.set_yticks([])
    return figure


@shown_once
def plot_label_probe(judged: LabelJudged) -> "Figure":
    """Draw accuracy and selectivity of each hidden state, with intervals and baselines."""
    import matplotlib.pyplot as plt

    fields = {
        name: np.array([getattr(s, name) for s in judged.scores], float)
        for name in judged.scores[0]._fields
    }
    layers = fields["layer"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.2), layout="constrained")
    left.plot(layers, fields["accuracy"], marker="o", markersize=3, linewidth=1.2, label="probe")
    left.fill_between(layers, fields["low"], fields["high"], alpha=0.2, linewidth=0)
    left.plot(layers, fields["control"], linestyle="--", linewidth=1, label="control task")
    if np.isfinite(fields["untrained"]).any():
        left.plot(layers, fields["untrained"], linestyle="-.", linewidth=1, label="untrained model")
    left.axhline(judged.by_type, linestyle=":", linewidth=1, color="C4", label="word type")
    left.axhline(judged.majority, linestyle=":", linewidth=1, color="C5", label="commonest label")
    left.set_ylim(0, 1)
    left.set_ylabel(f"accuracy of {judged.what}", fontsize=8)
    left.legend(fontsize=7)
    right.plot(layers, fields["selectivity"], marker="o", markersize=3, linewidth=1.2)
    ends = fields["selectivity_low"], fields["selectivity_high"]
    right.fill_between(layers, *ends, alpha=0.2, linewidth=0, label=f"{LEVEL:.0%} interval")
    right.axhline(0, linewidth=0.8, color="0.6")
    right.set_ylabel("selectivity: accuracy - control", fontsize=8)
    right.legend(fontsize=7)
    for ax in (left, right):
        ax.set_xlabel("hidden state", fontsize=8)
        ax.set_xticks(layers)
        ax.tick_params(labelsize=7)
    return figure


_MEASURES = {
    "uuas": "edges found (UUAS)",
    "distance_spearman": "distances (Spearman)",
    "root_accuracy": "roots found",
    "norm_spearman": "depths (Spearman)",
}
_BASELINES = {"chain": ("a chain", ":"), "control": ("control task", "--")}
_UNTRAINED = ("untrained model", "-.")


@shown_once
def plot_structural(judged: StructuralJudged) -> "Figure":
    """Draw four scores of each hidden state; lines across are baselines."""
    import matplotlib.pyplot as plt

    layers = [probe.layer for probe in judged.probes]
    figure, axes = plt.subplots(1, 4, figsize=(11.0, 2.8), layout="constrained", sharex=True)
    others = {name: (getattr(judged, key), line) for key, (name, line) in _BASELINES.items()}
    if judged.untrained is not None:
        others[_UNTRAINED[0]] = judged.untrained, _UNTRAINED[1]
    for ax, (key, title) in zip(axes, _MEASURES.items(), strict=True):
        values = [getattr(scores, key) for scores in judged.scores]
        ax.plot(layers, values, marker="o", markersize=3, linewidth=1.2, label="probe")
        for number, (name, (scores, line)) in enumerate(others.items(), 1):
            color = f"C{number}"
            ax.axhline(getattr(scores, key), linestyle=line, linewidth=1, color=color, label=name)
        ax.set_title(title, fontsize=9)
        ax.set_xlabel("hidden state", fontsize=8)
        ax.set_xticks(layers)
        ax.set_ylim(None if "spearman" in key else 0, 1)
        ax.tick_params(labelsize=7)
    axes[0].legend(fontsize=7)
    return figure
