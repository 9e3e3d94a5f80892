# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients other than the derivative, for functions of single numbers, where a caller asks.

Relevance (`flaxattn.attribution.relevance_rules`) is a gradient under rules of its own. Activations
are functions, which no interceptor of modules reaches, so they ask here. Outputs never change.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Function = Callable[[Array], Array]

_identity_rule: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "flaxattn_identity_rule", default=False
)


@contextlib.contextmanager
def identity_rule() -> Iterator[None]:
    """Trace models whose activations pass relevance on as it is.

    The choice is made while a function is traced: trace it anew, under a jit cache of its own.
    """
    before = _identity_rule.set(True)
    try:
        yield
    finally:
        _identity_rule.reset(before)


def elementwise(function: Function, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Apply a function to every number; under `identity_rule` its slope is that of its secant."""
    return _by_secant(function, x) if _identity_rule.get() else function(x)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _by_secant(function: Function, x: Array) -> Array:
    return function(x)


def _forward(function: Function, x: Array) -> tuple[Array, tuple[Array, Array]]:
    y = function(x)
    return y, (x, y)


def _backward(function: Function, kept: tuple[Array, Array], cotangent: Array) -> tuple[Array]:
    del function
    x, y = kept
    secant = jnp.where(x == 0, 0, y / jnp.where(x == 0, 1, x))
    return (cotangent * secant,)


_by_secant.defvjp(_forward, _backward)
