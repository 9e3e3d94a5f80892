# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of probes of hidden states: labels, and structural probes of trees."""

from typing import TYPE_CHECKING

import numpy as np

from flaxattn.probes.label_probe import LEVEL, LabelJudged
from flaxattn.probes.structural_probe import StructuralJudged
from flaxattn.views.figures.figure_style import shown_once

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
