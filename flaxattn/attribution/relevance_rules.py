# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of AttnLRP (Achtibat et al. 2024) as gradients that any model of flaxattn is traced with.

Relevance is gradient times number, where the gradient is taken under these rules; what a model puts
out stays the same, bit by bit. They come in by way of an interceptor of Linen's module calls:

- a product of two inputs gives half to each: through attention half of the cotangent of values
  and a quarter of those of queries and keys, so any kernel is used as it is; half to each part of a
  gated feed-forward layer;
- softmax has its derivative (its Taylor rule), norms have the derivative at a constant standard
  deviation, activations the slope of their secant (`flaxattn.models.gradient_rules`);
- linear layers have their derivative, in which biases absorb their own share.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from flaxattn.models.gradient_rules import identity_rule
from flaxattn.models.layer_stack import Stack
from flaxattn.models.layers import Dense, FeedForward, RMSNorm
from flaxattn.models.multi_head_attention import MultiHeadAttention

Probes = Mapping[str, Float[Array, "B S"]]
_SHARES = {"query": 0.25, "key": 0.25, "value": 0.5}
_BIASES = ("bias", "logits_bias")


@contextlib.contextmanager
def relevance_rules() -> Iterator[None]:
    """Trace models under the rules: their gradients are those of AttnLRP.

    Trace a function anew inside of it, under a jit cache of its own.
    """
    with identity_rule(), nn.intercept_methods(_under_rules):
        yield


@contextlib.contextmanager
def input_relevance(probes: Probes, scale: Float[Array, " B"] | None = None) -> Iterator[None]:
    """Trace models so that the gradient of a probe is the relevance of what a stack reads.

    Input is what the first layer of a stack reads at a position: the embeddings of the token and of
    its position together, after their normalisation where there is one. Gradients end there.
    """

    def tap(next_call: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
        if not isinstance(context.module, Stack) or context.method_name != "__call__":
            return next_call(*args, **kwargs)
        x, *rest = args
        x = _tapped(x, probes[str(context.module.name)])
        if scale is not None:
            x = x * scale[:, None, None].astype(x.dtype)
        return next_call(x, *rest, **kwargs)

    with nn.intercept_methods(tap):
        yield


def absorbed(params: Any, gradients: Any) -> dict[str, Float[np.ndarray, ""]]:
    """Relevance that reaches no input, from gradients under the rules by all parameters.

    A linear layer passes on the sum of kernel times gradient; bias times gradient stays with it.
    """
    shares = jax.tree.map(lambda p, g: np.sum(np.asarray(p, np.float64) * g), params, gradients)
    found = {"biases": 0.0, "attention": 0.0}
    _add_absorbed(shares, found)
    return {name: np.asarray(value) for name, value in found.items()}


def _add_absorbed(shares: Any, found: dict[str, float]) -> None:
    if isinstance(shares, tuple | list):
        for part in shares:
            _add_absorbed(part, found)
    if not isinstance(shares, Mapping):
        return
    for name, part in shares.items():
        if name in _BIASES:
            found["biases"] += float(part)
        _add_absorbed(part, found)
    parts = [shares.get(name) for name in (*_SHARES, "output")]
    if all(isinstance(part, Mapping) and "kernel" in part for part in parts):
        *read, put_out = [float(part["kernel"]) for part in parts if part is not None]
        biases = sum(float(part.get("bias", 0)) for part in parts[:-1] if part is not None)
        found["attention"] += put_out - sum(read) - biases


def _under_rules(next_call: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
    """A call of a module, with the gradient of its rule."""
    y, module = next_call(*args, **kwargs), context.module
    if context.method_name != "__call__" or module.is_initializing():
        return y
    if isinstance(module, Dense):
        share = _share(module)
        return y if share is None else _scaled_cotangent(share, y)
    if isinstance(module, nn.LayerNorm | RMSNorm):
        return _replaced(y, _at_constant_scale(module, args[0]).astype(y.dtype))
    return y


def _share(module: Dense) -> float | None:
    """Part of the relevance of a product that goes to what a layer puts into it."""
    above = module.parent
    if isinstance(above, MultiHeadAttention):
        return _SHARES.get(str(module.name))
    gated = isinstance(above, FeedForward) and above.gated
    return 0.5 if gated and module.name in ("up", "gate") else None


def _at_constant_scale(module: nn.LayerNorm | RMSNorm, x: Float[Array, "... E"]) -> Array:
    """Output of a norm as a linear function of `x`."""
    params = module.variables.get("params", {})
    rows = {name: jnp.asarray(p, jnp.float32) for name, p in params.items()}
    rows = {name: row.reshape(*(1,) * (x.ndim - 1), -1) for name, row in rows.items()}
    x = x.astype(jnp.float32)
    if isinstance(module, nn.LayerNorm):
        x = x - x.mean(-1, keepdims=True)
    squares = (x * x).mean(-1, keepdims=True)
    normed = x * jax.lax.stop_gradient(jax.lax.rsqrt(squares + module.epsilon))
    if "scale" in rows:
        one_more = isinstance(module, RMSNorm) and module.plus_one
        normed = normed * (1 + rows["scale"] if one_more else rows["scale"])
    return normed + rows["bias"] if "bias" in rows else normed


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _scaled_cotangent(factor: float, x: Array) -> Array:
    """`x`, whose cotangent is multiplied."""
    del factor
    return x


_scaled_cotangent.defvjp(lambda factor, x: (x, None), lambda factor, kept, g: (g * factor,))


@jax.custom_vjp
def _replaced(x: Array, linear: Array) -> Array:
    """`x`, with the gradient of another array in place of its own."""
    del linear
    return x


_replaced.defvjp(lambda x, linear: (x, None), lambda kept, g: (jnp.zeros_like(g), g))


@jax.custom_vjp
def _tapped(x: Float[Array, "B S E"], probe: Float[Array, "B S"]) -> Array:
    """`x`; the gradient of the probe is that of `x` times `x`, and no other gradient passes."""
    del probe
    return x


def _relevance(x: Array, cotangent: Array) -> tuple[Array, Array]:
    products = x.astype(jnp.float32) * cotangent.astype(jnp.float32)
    return jnp.zeros_like(x), products.sum(-1)


_tapped.defvjp(lambda x, probe: (x, x), _relevance)
