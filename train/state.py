# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters, optimiser and step of a run, and how they survive a kill.

BERT's AdamW as it was coded, not as it is usually described; see `bert_adamw`. The checkpoints of
this file are training state: the finished model is written by `flaxattn.weights`.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Int
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from flaxattn.errors import CheckpointError
from flaxattn.train.recipe import Recipe

Params = Any


class TrainState(NamedTuple):
    """What one update changes."""

    params: Params
    moments: optax.OptState
    step: Int[Array, ""]


class AdamMoments(NamedTuple):
    """Running means of the gradient and of its square."""

    mean: Params
    square: Params


def learning_rate(recipe: Recipe) -> optax.Schedule:
    """Linear warm-up, then the line from the peak at update 0 to zero at the last one.

    As coded for BERT: at the end of the warm-up the rate steps down to where the decaying line is.
    """

    def rate(count: ArrayLike) -> Array:
        step = jnp.asarray(count)
        warm = recipe.learning_rate * step / max(recipe.warmup_steps, 1)
        decayed = recipe.learning_rate * jnp.maximum(0.0, 1.0 - step / recipe.steps)
        return jnp.where(step < recipe.warmup_steps, warm, decayed)

    return rate


def scale_by_uncorrected_adam(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-6
) -> optax.GradientTransformation:
    """Adam's direction m / (sqrt(v) + eps) without bias correction.

    The first update is (1 - b1) / sqrt(1 - b2) = 3.16 times the usual one; warm-up hides it.
    """

    def init(params: Params) -> AdamMoments:
        return AdamMoments(
            jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params)
        )

    def update(
        updates: optax.Updates, state: optax.OptState, params: Params | None = None
    ) -> tuple[Params, AdamMoments]:
        del params
        assert isinstance(state, AdamMoments)
        mean = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mean, updates)
        square = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.square, updates)
        change = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mean, square)
        return change, AdamMoments(mean, square)

    return optax.GradientTransformation(init, update)


def decays(params: Params) -> Params:
    """Tree of bool: True where weight decay applies, which is not on norms and biases."""

    def decides(path: tuple[Any, ...], leaf: Any) -> bool:
        del leaf
        names = [str(part.key) for part in path]
        return names[-1] != "bias" and not any("norm" in name for name in names)

    return jax.tree_util.tree_map_with_path(decides, params)


def bert_adamw(recipe: Recipe) -> optax.GradientTransformation:
    """Clip by global norm, then AdamW as in the code of Devlin et al. 2019.

    u = m / (sqrt(v) + 1e-6) + weight_decay * p, the second term only where `decays` says so;
    p -= lr(step) * u, where step counts from 0, so the first update changes nothing but m and v.
    """
    return optax.chain(
        optax.clip_by_global_norm(recipe.clip_norm),
        scale_by_uncorrected_adam(),
        optax.add_decayed_weights(recipe.weight_decay, decays),
        optax.scale_by_learning_rate(learning_rate(recipe)),
    )


def save_checkpoint(path: Path, state: TrainState, progress: dict[str, Any]) -> None:
    """Write the state so that a kill at any moment leaves either the old file or the new one.

    Args:
        path: file to replace.
        state: arrays of any device.
        progress: JSON values stored beside the arrays.
    """
    arrays = {name: np.asarray(leaf) for name, leaf in _named(state).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    save_file(arrays, partial, metadata={"progress": json.dumps(progress)})
    with partial.open("rb") as handle:
        os.fsync(handle.fileno())
    partial.replace(path)


def load_checkpoint(path: Path, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """Read what `save_checkpoint` wrote.

    Args:
        path: the file.
        like: a state of the same model and optimiser, whose arrays only give names and shapes.

    Returns:
        The state and the progress.

    Raises:
        CheckpointError: the file is damaged, or belongs to another shape of model.
    """
    expected = _named(like)
    try:
        with safe_open(path, framework="numpy") as file:
            progress = json.loads(file.metadata()["progress"])
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dict
    except (SafetensorError, OSError, TypeError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"cannot resume from {path}\n{error}\ndelete it, or start again with --fresh"
        ) from error
    shapes = {name: leaf.shape for name, leaf in found.items()}
    wanted = {name: leaf.shape for name, leaf in expected.items()}
    if shapes != wanted:
        names = sorted(n for n in {*shapes, *wanted} if shapes.get(n) != wanted.get(n))
        raise CheckpointError(
            f"{path} belongs to another model\n"
            f"{names[0]}: expected {wanted.get(names[0])}, found {shapes.get(names[0])}\n"
            "use the recipe of that run, another --out, or --fresh"
        )
    leaves = [jnp.asarray(found[name]) for name in expected]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), progress


def _named(state: TrainState) -> dict[str, Array]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
