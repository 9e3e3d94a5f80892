# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""BERT's AdamW and LAMB against float64 NumPy written from their definitions; schedules."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flaxattn.train.optimizers import bert_adamw, decays, lamb, learning_rate
from flaxattn.train.recipe import Recipe

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


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("bert", [0, 0.25, 0.5, 0.75, 0.5, 0.375, 0.25, 0.125, 0]),
        ("linear", [0, 0.25, 0.5, 0.75, 1, 0.75, 0.5, 0.25, 0]),
        ("polynomial", [0, 0.25, 0.5, 0.75, 1, 0.75**0.5, 0.5**0.5, 0.5, 0]),
        ("constant", [0, 0.25, 0.5, 0.75, 1, 1, 1, 1, 1]),
    ],
)
def test_rates(schedule: str, expected: list[float]) -> None:
    rate = learning_rate(Recipe(learning_rate=1.0, warmup_steps=4, steps=8, schedule=schedule))
    assert [float(rate(jnp.asarray(step))) for step in range(9)] == pytest.approx(expected)


def test_without_warm_up_the_first_update_has_the_full_rate() -> None:
    assert float(learning_rate(Recipe(learning_rate=1.0, warmup_steps=0))(jnp.asarray(0))) == 1


def lamb_by_hand(
    weight: np.ndarray, gradients: list[np.ndarray], *, corrected: bool, decay: float
) -> np.ndarray:
    """LAMB of one tensor in float64, at rate 0.1; a tensor without decay keeps ratio 1."""
    m, v = np.zeros_like(weight), np.zeros_like(weight)
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        m_hat, v_hat = (m / (1 - 0.9**t), v / (1 - 0.999**t)) if corrected else (m, v)
        u = m_hat / (np.sqrt(v_hat) + 1e-6) + decay * weight
        norms = np.linalg.norm(weight), np.linalg.norm(u)
        ratio = norms[0] / norms[1] if decay and min(norms) > 0 else 1.0
        weight = weight - 0.1 * ratio * u
    return weight


@pytest.mark.parametrize("corrected", [False, True])
def test_lamb_equals_a_float64_computation(corrected: bool) -> None:
    """A stacked tensor counts as one per layer, zero weights and zero updates have ratio 1."""
    rng = np.random.default_rng(0)
    kernel, bias = rng.normal(size=(3, 2, 4)), rng.normal(size=(2, 4))
    kernel[1] = 0
    gradients = [(rng.normal(size=(3, 2, 4)), rng.normal(size=(2, 4))) for _ in range(3)]
    recipe = Recipe(
        optimizer="lamb",
        bias_correction=corrected,
        learning_rate=0.1,
        warmup_steps=0,
        schedule="constant",
        clip_norm=1e9,
    )

    def tree(pair: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
        arrays = [jnp.asarray(x, jnp.float32) for x in pair]
        return {"layers": {"dense": {"kernel": arrays[0], "bias": arrays[1]}}}

    params = tree((kernel, bias))
    optimizer = lamb(recipe)
    moments = optimizer.init(params)
    for grads in gradients:
        updates, moments = optimizer.update(tree(grads), moments, params)
        params = optax.apply_updates(params, updates)
    got = params["layers"]["dense"]
    for layer in range(3):
        mine = [g[0][layer] for g in gradients]
        want = lamb_by_hand(kernel[layer], mine, corrected=corrected, decay=0.01)
        np.testing.assert_allclose(got["kernel"][layer], want, atol=2e-6)
    want = lamb_by_hand(bias, [g[1] for g in gradients], corrected=corrected, decay=0.0)
    np.testing.assert_allclose(got["bias"], want, atol=2e-6)


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


def test_lamb_rescales_layers_apart_as_it_does_stacked_ones() -> None:
    """A pruned model has its layers in a tuple; each tensor keeps a norm of its own."""
    rng = np.random.default_rng(0)
    kernels, grads = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    stacked = {"layers": {"kernel": jnp.asarray(kernels)}}, {"layers": {"kernel": grads}}
    apart = tuple({"layers": tuple({"kernel": a} for a in x)} for x in (kernels, grads))
    recipe = Recipe(warmup_steps=0, optimizer="lamb", schedule="constant")
    updates = []
    for params, gradient in (stacked, apart):
        transformation = lamb(recipe)
        state = transformation.init(params)
        for _ in range(2):
            changes, state = transformation.update(gradient, state, params)
        updates.append([np.asarray(leaf) for leaf in jax.tree.leaves(changes)])
    np.testing.assert_allclose(updates[0][0], np.stack(updates[1]), rtol=1e-6)
    assert np.abs(updates[0][0]).max() > 0
