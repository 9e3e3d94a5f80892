# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""BERT's AdamW against float64 NumPy written from its definition, and checkpoints."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flaxattn.errors import CheckpointError
from flaxattn.train.recipe import Recipe
from flaxattn.train.state import (
    TrainState,
    bert_adamw,
    decays,
    learning_rate,
    load_checkpoint,
    save_checkpoint,
)

SHAPES = {"dense/kernel": (3, 4), "dense/bias": (4,), "attention_norm/scale": (4,)}


def draw(rng: np.random.Generator, scale: float) -> dict[str, np.ndarray]:
    return {name: rng.normal(size=shape) * scale for name, shape in SHAPES.items()}


def nested(flat: dict[str, np.ndarray]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        outer, inner = name.split("/")
        tree.setdefault(outer, {})[inner] = jnp.asarray(value, jnp.float32)
    return tree


def by_hand(
    params: dict[str, np.ndarray], gradients: list[dict[str, np.ndarray]], recipe: Recipe
) -> dict[str, np.ndarray]:
    """AdamW as coded for BERT, in float64: no bias correction, eps outside of the root."""
    m = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    v = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    for t, grads in enumerate(gradients):
        norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
        if t < recipe.warmup_steps:
            rate = recipe.learning_rate * t / recipe.warmup_steps
        else:
            rate = recipe.learning_rate * (1 - t / recipe.steps)
        for name in SHAPES:
            g = grads[name] / max(norm, 1.0)
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * g**2
            u = m[name] / (np.sqrt(v[name]) + 1e-6)
            if name == "dense/kernel":
                u = u + 0.01 * params[name]
            params[name] = params[name] - rate * u
    return params


@pytest.mark.parametrize("scale", [0.01, 10.0])  # below and above the clipping norm
@pytest.mark.parametrize("steps", [1, 2, 6])  # the first one has rate 0; the warm-up ends at 3
def test_updates_equal_a_float64_computation(steps: int, scale: float) -> None:
    rng = np.random.default_rng(steps)
    recipe = Recipe(learning_rate=0.1, warmup_steps=3, steps=10)
    start, gradients = draw(rng, 1.0), [draw(rng, scale) for _ in range(steps)]
    optimizer = bert_adamw(recipe)
    params = nested(start)
    moments = optimizer.init(params)
    for grads in gradients:
        updates, moments = optimizer.update(nested(grads), moments, params)
        params = optax.apply_updates(params, updates)
    expected = nested(by_hand(start, gradients, recipe))
    for got, want in zip(jax.tree.leaves(params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6, rtol=1e-6)


def test_the_rate_steps_down_where_the_warm_up_ends() -> None:
    rate = learning_rate(Recipe(learning_rate=1.0, warmup_steps=4, steps=8))
    values = [float(rate(jnp.asarray(step))) for step in range(9)]
    assert values == pytest.approx([0, 0.25, 0.5, 0.75, 0.5, 0.375, 0.25, 0.125, 0])


def test_norms_and_biases_do_not_decay() -> None:
    tree = {
        "embeddings": {"word": {"embedding": 0}, "norm": {"scale": 0, "bias": 0}},
        "feed_forward_norm": {"scale": 0},
        "mlm_head": {"bias": 0, "dense": {"kernel": 0}},
    }
    assert decays(tree) == {
        "embeddings": {"word": {"embedding": True}, "norm": {"scale": False, "bias": False}},
        "feed_forward_norm": {"scale": False},
        "mlm_head": {"bias": False, "dense": {"kernel": True}},
    }


@pytest.fixture
def state() -> TrainState:
    params = nested(draw(np.random.default_rng(0), 1.0))
    return TrainState(params, bert_adamw(Recipe()).init(params), jnp.asarray(7, jnp.int32))


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path: Path, state: TrainState) -> None:
    path = tmp_path / "run" / "checkpoint.safetensors"
    save_checkpoint(path, state, {"tokens": 3})
    blank = jax.tree.map(jnp.zeros_like, state)
    again, progress = load_checkpoint(path, blank)
    assert progress == {"tokens": 3}
    assert jax.tree.structure(again) == jax.tree.structure(state)
    for got, want in zip(jax.tree.leaves(again), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(got, want, strict=True)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_kill_while_saving_leaves_the_old_checkpoint(
    tmp_path: Path, state: TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, state, {"tokens": 1})

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(path, state, {"tokens": 2})
    assert load_checkpoint(path, state)[1] == {"tokens": 1}


@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
def test_a_damaged_checkpoint(tmp_path: Path, state: TrainState, damage: str) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, state, {})
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[:-9], "text": b"not a checkpoint", "empty": b""}[damage])
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(path, state)
    assert f"cannot resume from {path}" in str(error.value)
    assert "--fresh" in str(error.value)
    assert len(str(error.value).splitlines()) <= 3


def test_a_checkpoint_of_another_model(tmp_path: Path, state: TrainState) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, state, {})
    params = {**state.params, "dense": {**state.params["dense"], "bias": jnp.zeros(5)}}
    other = TrainState(params, bert_adamw(Recipe()).init(params), state.step)
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(path, other)
    assert "belongs to another model" in str(error.value)
    assert "expected (5,), found (4,)" in str(error.value)
