# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""BERT's AdamW as it was coded, LAMB, Adam, and their learning rates, as optax transformations.

`loop` applies them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Int

from flaxattn.train.recipe import Recipe

Params = Any


class AdamMoments(NamedTuple):
    """Running means of the gradient and of its square, and how many updates they have seen."""

    mean: Params
    square: Params
    updates: Int[Array, ""]


def optimizer(recipe: Recipe) -> optax.GradientTransformation:
    """Return the optimizer that the recipe names: `bert_adamw`, `lamb` or `adam`."""
    return {"adamw": bert_adamw, "lamb": lamb, "adam": adam}[recipe.optimizer](recipe)


def faster(
    transformation: optax.GradientTransformation, name: str, speed: float
) -> optax.GradientTransformation:
    """An optimizer with larger updates of one subtree of the parameters."""

    def chosen(params: Params) -> Params:
        return {key: jax.tree.map(lambda _, k=key: k == name, part) for key, part in params.items()}

    return optax.chain(transformation, optax.masked(optax.scale(speed), chosen))


def bert_adamw(recipe: Recipe) -> optax.GradientTransformation:
    """Clip by global norm, then AdamW as in the code of Devlin et al. 2019.

    u = m / (sqrt(v) + eps) + weight_decay * p, the second term only where `decays` says so;
    p -= lr(step) * u, where step counts from 0, so the first update changes nothing but m and v.
    """
    return optax.chain(
        optax.clip_by_global_norm(recipe.clip_norm),
        _direction(recipe, recipe.bias_correction),
        optax.add_decayed_weights(recipe.weight_decay, decays),
        optax.scale_by_learning_rate(learning_rate(recipe)),
    )


def lamb(recipe: Recipe) -> optax.GradientTransformation:
    """Clip by global norm, then LAMB (You et al. 2020): AdamW's update, rescaled per tensor.

    The update of a tensor of every layer gets the norm of the tensor in that layer: the stacked
    parameters under `layers` count as one tensor per layer. Norms and biases are neither decayed
    nor rescaled. With `bias_correction` as in the paper, without it as most implementations.
    """
    return optax.chain(
        optax.clip_by_global_norm(recipe.clip_norm),
        _direction(recipe, recipe.bias_correction),
        optax.add_decayed_weights(recipe.weight_decay, decays),
        scale_by_trust_ratio(),
        optax.scale_by_learning_rate(learning_rate(recipe)),
    )


def adam(recipe: Recipe) -> optax.GradientTransformation:
    """Clip by global norm, then Adam (Kingma & Ba 2015, algorithm 1), with decoupled weight decay.

    Vaswani et al. 2017 §5.3 take b1 0.9, b2 0.98, eps 1e-9 and no decay.
    """
    return optax.chain(
        optax.clip_by_global_norm(recipe.clip_norm),
        _direction(recipe, bias_correction=True),
        optax.add_decayed_weights(recipe.weight_decay, decays),
        optax.scale_by_learning_rate(learning_rate(recipe)),
    )


def _direction(recipe: Recipe, bias_correction: bool) -> optax.GradientTransformation:
    b1, b2, eps = recipe.adam_b1, recipe.adam_b2, recipe.adam_eps
    return scale_by_bert_adam(b1, b2, eps, bias_correction=bias_correction)


def learning_rate(recipe: Recipe) -> optax.Schedule:
    """Linear warm-up, then what `recipe.schedule` names; updates are counted from 0.

    "bert" is as coded for BERT: the decaying line starts at the peak in update 0, so that the rate
    steps down to it at the end of the warm-up. "linear" starts at the end of the warm-up. "noam"
    and "inverse-sqrt" count from 1, as published (Vaswani et al. 2017 §5.3):
    peak * min(t / warmup, sqrt(warmup / t)).
    """
    peak, warmup, steps = recipe.peak, recipe.warmup_steps, max(recipe.steps, 1)

    def inverse_root(count: ArrayLike) -> Array:
        step, begun = jnp.asarray(count, jnp.float32) + 1, max(warmup, 1)
        return peak * jnp.minimum(step / begun, jnp.sqrt(begun / step))

    def rate(count: ArrayLike) -> Array:
        step = jnp.asarray(count, jnp.float32)
        start = 0 if recipe.schedule in ("bert", "constant") else warmup
        left = jnp.clip(1.0 - (step - start) / max(steps - start, 1), 0.0, 1.0)
        if recipe.schedule == "constant":
            left = jnp.ones_like(left)
        after = peak * (jnp.sqrt(left) if recipe.schedule == "polynomial" else left)
        return jnp.where(step < warmup, peak * step / max(warmup, 1), after)

    return inverse_root if recipe.schedule in ("noam", "inverse-sqrt") else rate


def scale_by_bert_adam(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-6, *, bias_correction: bool = False
) -> optax.GradientTransformation:
    """Adam's direction m / (sqrt(v) + eps), by default without bias correction.

    Without it the first update is (1 - b1) / sqrt(1 - b2) = 3.16 times the usual one; warm-up
    hides it.
    """

    def init(params: Params) -> AdamMoments:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return AdamMoments(zeros, jax.tree.map(jnp.copy, zeros), jnp.zeros((), jnp.int32))

    def update(
        updates: optax.Updates, state: optax.OptState, params: Params | None = None
    ) -> tuple[Params, AdamMoments]:
        del params
        assert isinstance(state, AdamMoments)
        mean = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mean, updates)
        square = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.square, updates)
        count = state.updates + 1
        lack_m, lack_v = 1.0, 1.0
        if bias_correction:
            lack_m, lack_v = (1 - b ** count.astype(jnp.float32) for b in (b1, b2))
        change = jax.tree.map(lambda m, v: m / lack_m / (jnp.sqrt(v / lack_v) + eps), mean, square)
        return change, AdamMoments(mean, square, count)

    return optax.GradientTransformation(init, update)


def scale_by_trust_ratio() -> optax.GradientTransformation:
    """Multiply each decayed tensor's update by ||p|| / ||u||, by 1 where either is 0."""

    def update(
        updates: optax.Updates, state: optax.OptState, params: Params | None = None
    ) -> tuple[Params, optax.OptState]:
        def rescale(path: tuple[Any, ...], change: Array, weight: Array) -> Array:
            if not _decays(path):
                return change
            stacked = "layers" in _names(path) and not any(map(_is_number, path))
            axes = tuple(range(1 if stacked else 0, weight.ndim))
            size = jnp.sqrt(jnp.sum(weight**2, axes, keepdims=True))
            step = jnp.sqrt(jnp.sum(change**2, axes, keepdims=True))
            safe = jnp.where(step > 0, step, 1.0)
            return change * jnp.where((size > 0) & (step > 0), size / safe, 1.0)

        return jax.tree_util.tree_map_with_path(rescale, updates, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def decays(params: Params) -> Params:
    """Tree of bool: True where weight decay applies, which is not on norms and biases."""
    return jax.tree_util.tree_map_with_path(lambda path, _: _decays(path), params)


def _decays(path: tuple[Any, ...]) -> bool:
    names = _names(path)
    return names[-1] not in ("bias", "log_odds") and not any("norm" in name for name in names)


def _names(path: tuple[Any, ...]) -> list[str]:
    return [str(part.idx if _is_number(part) else part.key) for part in path]


def _is_number(part: Any) -> bool:
    """Return whether a step of a path is into a tuple, as into the layers of a pruned model."""
    return isinstance(part, jax.tree_util.SequenceKey)
