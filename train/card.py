# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The model card of a trained model: what a stranger must know, from the run's own numbers.

Markdown with Hugging Face's header. Nothing in it is typed by hand.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from flaxattn import __version__
from flaxattn.train.recipe import Recipe
from flaxattn.train.settings import to_yaml


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
