# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a run: summary, model card and learning curves."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from flaxattn import __version__
from flaxattn.files import write_bytes
from flaxattn.train.loop import Run
from flaxattn.train.recipe import Recipe
from flaxattn.train.report import read_metrics
from flaxattn.train.run_folder import RunFolder, write_json
from flaxattn.train.settings import to_yaml
from flaxattn.train.state import Params


def write_card(
    folder: Path,
    title: str,
    command: str,
    recipe: Recipe,
    facts: Mapping[str, Any],
    heldout: Sequence[Mapping[str, Any]],
) -> None:
    """Write README.md into a model directory."""
    rows = {"flaxattn": __version__, **facts}
    table = "".join(f"| {name} | {value} |\n" for name, value in rows.items())
    text = (
        f"---\nlibrary_name: flaxattn\n---\n# {title}\n\n"
        f"Made by `{command}`.\n\n| | |\n|---|---|\n{table}\n"
        f"## Held-out results\n\n{_results(heldout)}\n"
        "No licence is stated here: it follows from the data, which only its owner knows.\n\n"
        f"## Recipe\n\n```yaml\n{to_yaml(recipe)}```\n"
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def hardware() -> str:
    """The devices that a run had, and the jax that drove them."""
    kind = jax.devices()[0].device_kind
    return f"{jax.device_count()} x {kind}, jax {jax.__version__}"


def _results(heldout: Sequence[Mapping[str, Any]]) -> str:
    if not heldout:
        return "Not measured.\n"
    shown = [heldout[0], heldout[-1]] if len(heldout) > 1 else list(heldout)
    names = [name for name in shown[0] if name not in ("kind", "step")]
    lines = ["| update | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row in shown:
        values = " | ".join(f"{row[name]:.4g}" for name in names)
        lines.append(f"| {row['step']} | {values} |")
    return "\n".join(lines) + "\n"


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


_NOT_IN_CARD = ("heldout", "version", "best", "result", "rows", "start")


def run_summary(
    done: Run, params: Params, recipe: Recipe, identity: Mapping[str, str], folder: RunFolder
) -> dict[str, Any]:
    """The entries of `summary.json` that every run has."""
    return {
        "version": __version__,
        "steps": int(done.state.step),
        "tokens": done.tokens,
        "seconds": round(done.seconds, 1),
        "seed": recipe.seed,
        **identity,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "best": done.best,
        "heldout": [row for row in read_metrics(folder.metrics) if row["kind"] == "heldout"],
    }


def best_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """Held-out metrics of the step that was best."""
    step = summary["best"]["step"]
    best = next(row for row in summary["heldout"] if row["step"] == step)
    return {name: value for name, value in best.items() if name not in ("step", "kind")}


def write_results(
    folder: RunFolder, title: str, command: str, recipe: Recipe, summary: Mapping[str, Any]
) -> None:
    """Write the card of the model in `folder`, its curves, and `summary.json`."""
    result = {f"held-out {k}": f"{v:.4g}" for k, v in summary.get("result", {}).items()}
    facts = {k: v for k, v in summary.items() if k not in _NOT_IN_CARD}
    facts |= {**result, "hardware": hardware()}
    write_card(folder.path / "model", title, command, recipe, facts, summary["heldout"])
    draw_curves(folder.metrics, folder.path / "curves.png")
    write_json(folder.path / "summary.json", summary)


def parameters_digest(params: Params) -> str:
    """SHA-256 of parameters, which says what a run started from."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        found.update(np.asarray(leaf).tobytes())
    return found.hexdigest()
