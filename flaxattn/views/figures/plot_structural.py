# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of structural probes: their scores by hidden state, beside what needs no tree.

The numbers come from `flaxattn.probes.structural_probe`; nothing is measured here.
"""

from typing import TYPE_CHECKING

from flaxattn.probes.structural_probe import StructuralJudged
from flaxattn.views.figures.shown_once import shown_once

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
