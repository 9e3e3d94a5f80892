# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: who may write in it, what it belongs to, and where things are.

    run.json  recipe.yaml  metrics.jsonl  timing.jsonl  checkpoints/  model/

`flaxattn.train.checkpoints` fills checkpoints/.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import jax

from flaxattn import __version__
from flaxattn.errors import CheckpointError
from flaxattn.files import json_digest, write_text
from flaxattn.store import folder_lock
from flaxattn.train.recipe import FREE, Recipe
from flaxattn.train.settings import to_yaml


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A folder, and how to treat what an earlier run left there.

    Attributes:
        path: The folder; made when first used.
        fresh: Ignore an earlier run and start again.
        fallback: Whether to continue from the checkpoint before the newest where that one is
            damaged.
        allow_changes: Continue although recipe, data or tokenizer differ from the earlier run's.
        tensorboard: Write TensorBoard's event files too.
    """

    path: Path
    fresh: bool = False
    fallback: bool = False
    allow_changes: bool = False
    tensorboard: bool = False

    @property
    def metrics(self) -> Path:
        """Rows of training and held-out metrics, the same in every run of one recipe."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """One folder per checkpoint."""
        return self.path / "checkpoints"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder and keep other runs out of it.

        Raises:
            InputError: The folder cannot be written to, or another run is at work in it.
        """
        with nullcontext() if jax.process_index() else folder_lock.held(self.path):
            yield

    def claim(self, recipe: Recipe, identity: Mapping[str, str]) -> None:
        """Write down what the run is made of, or compare it with what an earlier run wrote.

        Args:
            recipe: Settings; those in `FREE` may differ.
            identity: Names and fingerprints of data, tokenizer and the like.

        Raises:
            CheckpointError: Something else differs, and neither `fresh` nor `allow_changes` is set.
        """
        now = {"version": __version__, "recipe": recipe.to_dict(), **identity}
        if not (self.fresh or self.allow_changes):
            self._compare(recipe, now)
        if jax.process_index() == 0:
            write_json(self.path / "run.json", {"sha256": json_digest(now), **now})
            write_text(self.path / "recipe.yaml", to_yaml(recipe))

    def _compare(self, recipe: Recipe, now: Mapping[str, Any]) -> None:
        """Compare what a run is made of with what an earlier one wrote, if it left something."""
        path = self.path / "run.json"
        begun = any(self.checkpoints.glob("step-*"))
        if not path.exists() and begun:
            raise _unknown_run(path, "is missing, though there are checkpoints of a run")
        if not path.exists() or not self.checkpoints.is_dir():
            return
        before = _read(path)
        # An earlier version had no such setting, and did what its default does.
        before["recipe"] = {**recipe.defaults(), **before["recipe"]}
        changes = _changes(before, now)
        if changes:
            more = f" and {len(changes) - 4} more" if len(changes) > 4 else ""
            raise CheckpointError(
                f"{self.path} holds another run\n"
                f"changed: {'; '.join(changes[:4])}{more}\n"
                "start again with --fresh, continue all the same with --allow-changes, or name"
                " another --out"
            )


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _read(path: Path) -> dict[str, Any]:
    """Content of a run.json, whose digest, if it has one, is that of the rest."""
    try:
        before = dict(json.loads(path.read_bytes()))
        seal, recipe = before.pop("sha256", None), dict(before["recipe"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _unknown_run(path, "cannot be read: it was cut or damaged") from error
    if seal is not None and seal != json_digest(before):
        raise _unknown_run(path, "is not what was written (its sha256 differs)")
    return {**before, "recipe": recipe}


def _unknown_run(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"{path} {what}\n"
        "so the recipe and data of its checkpoints are unknown\n"
        "start again with --fresh, or continue all the same with --allow-changes"
    )


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    old = {**before.get("recipe", {}), **{k: v for k, v in before.items() if k != "recipe"}}
    new = {**now["recipe"], **{k: v for k, v in now.items() if k != "recipe"}}
    names = [n for n in new if n not in FREE and n != "version" and old.get(n) != new[n]]
    return [f"{name} {_short(old.get(name))} -> {_short(new[name])}" for name in names]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else text[:12] + "…"
