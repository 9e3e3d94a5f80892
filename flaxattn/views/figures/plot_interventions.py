# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of interventions: effects of patching, and curves of deletion and insertion."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.attribution.faithfulness import RANDOM, Faithfulness
from flaxattn.attribution.patch_effects import PatchReport, UnitEffects
from flaxattn.errors import check_arguments
from flaxattn.views.figures.figure_style import even_colours, ink_on, shown_once, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


_CELL, _SIDE = 0.36, (1.3, 9.0)  # inches of a cell, and of a map's side at least and at most
_BESIDE = 5  # groups of positions that have a map of layers and heads each
_LABELLED = 60  # rows or columns up to which each has its label
_MARKED = 4000  # cells up to which causal ones are marked
_METRICS = {"logit-diff": "logit difference", "kl": "KL divergence (nats)"}


class _Map(NamedTuple):
    """Effects of some units, and which are causal."""

    title: str
    values: Float[np.ndarray, "N M"]
    causal: Bool[np.ndarray, "N M"]
    rows: Sequence[str]
    columns: Sequence[str]
    names: tuple[str, str]


@shown_once
@check_arguments()
def plot_patch_effects(report: PatchReport) -> "Figure":
    """Draw the mean effect of patching every head or layer, with a ring around causal ones.

    Heads are a map of layers and heads, one for each segment of positions; single positions are
    columns of a map whose rows are heads or layers. Effects above 0 are blue, those below it
    orange; all maps have one scale, direct and indirect effects one each.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> text = "the old king and the {} were happy. the old king and the"
    >>> words = [("lady", "girl"), ("girl", "horse")]
    >>> pairs = [fa.TextPair(text.format(a), text.format(b), a, b) for a, b in words]
    >>> figure = fa.plot_patch_effects(fa.patch(model, pairs, controls=0))
    >>> figure.savefig("patched.png")

    Args:
        report: From `fa.patch`.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: For arguments of other types.
    """
    import matplotlib.pyplot as plt

    rows = [list(_maps(report, effects)) for effects in report.effects]
    widths = [_inches(len(one.columns)) for one in max(rows, key=len)]
    heights = [_inches(len(maps[0].rows)) for maps in rows]
    figure, axes = plt.subplots(
        len(rows),
        len(widths),
        figsize=(sum(widths) + 0.5 * len(widths) + 1.8, sum(heights) + 0.8 * len(rows) + 0.3),
        squeeze=False,
        layout="constrained",
        height_ratios=heights,
    )
    metric = _METRICS.get(report.request.metric, report.request.metric)
    far = {kind: _largest(report, kind) for kind in {one.kind for one in report.effects}}
    for line, maps, effects in zip(axes, rows, report.effects, strict=True):
        images = [_draw(ax, one, far[effects.kind]) for ax, one in zip(line, maps, strict=True)]
        bar = figure.colorbar(images[0], ax=line, shrink=0.8, pad=0.02)
        bar.set_label(f"effect on the {metric}", fontsize=7)
        bar.ax.tick_params(labelsize=7)
    ring = f"ring: causal, p ≤ {report.alpha:g} ({report.correction}), {len(report.pairs):,} pairs"
    figure.supxlabel(ring, fontsize=7)
    return figure


def _largest(report: PatchReport, kind: str) -> float:
    """Largest size of the effects of a kind, on all sides."""
    sizes = [np.abs(one.means).max() for one in report.effects if one.kind == kind]
    return float(max(sizes)) or 1.0


def _inches(count: int) -> float:
    return float(np.clip(_CELL * count, *_SIDE))


def _maps(report: PatchReport, effects: UnitEffects) -> Iterator[_Map]:
    """The maps of one side."""
    means, causal = effects.means, effects.causal
    layers, heads, groups = means.shape
    title = report.name(effects)
    title = title if len(report.effects) == 1 else f"{effects.side}: {title}"
    numbers = [str(n) for n in range(layers)]
    if report.request.by == "head" and groups <= _BESIDE:
        for group, name in enumerate(report.positions):
            message = title if groups == 1 else f"{title}\n{name}" if group == 0 else f"\n{name}"
            columns = [str(n) for n in range(heads)]
            some, marked = means[..., group], causal[..., group]
            yield _Map(message, some, marked, numbers, columns, ("layer", "head"))
        return
    rows, name = numbers, "layer"
    if report.request.by == "head":
        rows, name = [f"{n // heads}.{n % heads}" for n in range(layers * heads)], "head"
    some, marked = (table.reshape(len(rows), groups) for table in (means, causal))
    noun = "segment" if report.request.positions == "segment" else "position"
    yield _Map(title, some, marked, rows, report.positions, (name, noun))


def _draw(ax: "Axes", one: _Map, far: float) -> "AxesImage":
    image = ax.imshow(one.values, **even_colours(far), interpolation="nearest", aspect="auto")
    write_title(ax, one.title)
    for axis, labels, name in zip(
        (ax.yaxis, ax.xaxis), (one.rows, one.columns), one.names, strict=True
    ):
        step = -(-len(labels) // _LABELLED)
        axis.set_ticks(range(0, len(labels), step), labels[::step])
        axis.set_label_text(name, fontsize=7)
    ax.tick_params(labelsize=7)
    if max(map(len, one.columns)) > 2:
        ax.tick_params(axis="x", labelrotation=90)
    if one.values.size <= _MARKED:
        size = min(9.0, 72 * 0.55 * min(_CELL, *(_inches(n) / n for n in one.values.shape)))
        for row, column in np.argwhere(one.causal).tolist():
            ink = ink_on(image.cmap(image.norm(one.values[row, column])))
            ax.plot(column, row, "o", fillstyle="none", markersize=size, color=ink)
    return image


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
