# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a run: summary, model card and curves."""

import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from flaxattn import __version__
from flaxattn.train.card import hardware, write_card
from flaxattn.train.curves import draw_curves
from flaxattn.train.loop import Run
from flaxattn.train.recipe import Recipe
from flaxattn.train.report import read_metrics
from flaxattn.train.run_folder import RunFolder, write_json
from flaxattn.train.state import Params

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
