# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Learning curves as a PNG, from a run's metrics file.

It reads rows and draws; it computes nothing but a running mean.
"""

import io
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from flaxattn.files import write_bytes
from flaxattn.train.report import read_metrics

_HIDDEN = ("step", "kind", "tokens", "length", "grad_norm")
_WINDOW = 20  # rows in the running mean of a noisy training curve


def draw_curves(metrics: Path, out: Path) -> None:
    """Draw every metric of a run over its updates, training and held-out in one panel."""
    rows = read_metrics(metrics)
    names = [n for n in dict.fromkeys(k for row in rows for k in row) if n not in _HIDDEN]
    columns = min(3, max(1, len(names)))
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.0 * max(1, lines)), layout="constrained")
    for number, name in enumerate(names):
        axes = figure.add_subplot(lines, columns, number + 1)
        axes.set_title(name.replace("_", " "))
        axes.set_xlabel("update")
        for kind, color in (("training", "#0072B2"), ("heldout", "#D55E00")):
            points = [
                (row["step"], row[name]) for row in rows if row["kind"] == kind and name in row
            ]
            if not points:
                continue
            x, y = np.array(points, float).T
            if kind == "training":
                axes.plot(x, y, color=color, alpha=0.25, linewidth=0.8)
                y = _smooth(y)
            label = "held out" if kind == "heldout" else kind
            axes.plot(x, y, color=color, label=label, marker="o" if kind == "heldout" else None)
        axes.grid(alpha=0.3)
        if number == 0:
            axes.legend()
    FigureCanvasAgg(figure)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=120)
    write_bytes(out, drawn.getvalue(), "the curves")


def _smooth(values: np.ndarray) -> np.ndarray:
    window = min(_WINDOW, max(1, len(values) // 15))
    sums = np.cumsum(np.insert(values, 0, 0.0))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    return (sums[ends] - sums[starts]) / (ends - starts)
