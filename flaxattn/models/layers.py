# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The layers models are built of beside attention: embedding, dense, feed-forward, dropout, norms.

They do not know which model they serve; attention is in `multi_head_attention`. Relevance is a
gradient under rules of its own: activations are functions, which no interceptor of modules reaches,
so they ask here which gradient to use. Outputs never change.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.linen.dtypes import promote_dtype
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels import contract
from flaxattn.kernels.contract import Labels
from flaxattn.kernels.dropout import keep_mask
from flaxattn.models.interventions import edited

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


def _gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """GELU through erf as published; `nn.gelu` goes through erfc, at twice the cost on CPU."""
    return 0.5 * x * (1 + jax.lax.erf(x * 0.5**0.5))


_SELECTED_ROWS = 8  # tables of up to so many rows are looked up without a gather

ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "gelu": _gelu,
    "gelu_new": nn.gelu,
    "gelu_pytorch_tanh": nn.gelu,
    "relu": nn.relu,
    "silu": nn.silu,
    "swish": nn.silu,
    "tanh": nn.tanh,
}


def with_defaults(given: Mapping[str, Labels] | None, side: str, **defaults: Any) -> Labels:
    """Labels of positions: those that a caller gave for a side, and a model's own for the rest."""
    labels = Labels(**defaults)
    own = (given or {}).get(side, Labels())
    return labels._replace(**{n: a for n, a in own._asdict().items() if a is not None})


def self_labels(
    given: Mapping[str, Labels] | None,
    side: str,
    tokens: Int[Array, "B S"],
    mask: Bool[Array, "..."] | None,
    *,
    kinds: Int[Array, "B S"] | None = None,
    key_classes: Int[Array, "B S"] | None = None,
) -> Labels:
    """Labels of self-attention, whose queries and keys are the same tokens."""
    return with_defaults(
        given,
        side,
        key_class=key_classes,
        query_segment=kinds,
        key_segment=kinds,
        query_token=tokens,
        key_token=tokens,
        query_mask=mask if mask is not None and mask.ndim == 2 else None,
    )


def at_positions(
    x: Float[Array, "B S E"], positions: Int[Array, "B P"] | None
) -> Float[Array, "B P E"]:
    """Select some positions of every sequence; all of them for None."""
    return x if positions is None else jnp.take_along_axis(x, positions[..., None], axis=1)


def at_last(
    x: Float[Array, "B S E"], attention_mask: Int[Array, "B S"] | None
) -> Float[Array, "B E"]:
    """The last real position of every text, where a classifier reads it."""
    if attention_mask is None:
        return x[:, -1]
    real = jnp.asarray(attention_mask).astype(bool)
    last = real.shape[1] - 1 - real[:, ::-1].argmax(1)
    return jnp.take_along_axis(x, last[:, None, None], axis=1, mode="clip")[:, 0]


def activation(name: str, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Apply a named activation in float32: the bfloat16 gradient of GELU is many times slower."""
    if name not in ACTIVATIONS:
        raise ValueError(f"hidden_act {name!r} is unknown; choose one of {sorted(ACTIVATIONS)}.")
    return elementwise(ACTIVATIONS[name], x.astype(jnp.float32)).astype(x.dtype)


class Embedding(nn.Embed):
    """Rows of a table by their number, cast to `dtype` after they were looked up.

    The outputs are those of `nn.Embed`, which casts the whole table first; but the gradient of a
    row, a sum over all tokens that have it, is summed in the table's dtype and not in `dtype`.
    """

    def __call__(self, inputs: Int[Array, "*tokens"]) -> Float[Array, "*tokens E"]:
        """Look up ids; those that are not in the table give NaN."""
        table = self.embedding
        if self.num_embeddings > _SELECTED_ROWS:
            rows = jnp.take(table, inputs, axis=0)
        else:
            # Adding up the gradients of many tokens in few rows takes most of a training step on
            # a GPU where it is a scatter; the gradient of a selection is a sum.
            rows = jnp.full((), jnp.nan, table.dtype)
            for number in range(self.num_embeddings):
                rows = jnp.where((inputs == number)[..., None], table[number], rows)
        return rows.astype(self.dtype or table.dtype)


class Dense(nn.Module):
    """x W + b, on tokens flattened to two dimensions.

    The bfloat16 gradient of a three-dimensional product is an order of magnitude slower on CPU.

    Attributes:
        features: Width of the result.
        dtype: Computation dtype; parameters stay float32.
        initializer_range: Standard deviation of the initial kernel.
        bias_init: The initial bias.
        use_bias: Whether there is a bias.
    """

    features: int
    dtype: Dtype = jnp.float32
    initializer_range: float = 0.02
    bias_init: Callable[..., Array] = nn.initializers.zeros
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: Float[Array, "*tokens E"]) -> Float[Array, "*tokens F"]:
        """Project the last axis of `x`."""
        init = nn.initializers.truncated_normal(self.initializer_range)
        kernel = self.param("kernel", init, (x.shape[-1], self.features))
        bias = self.param("bias", self.bias_init, (self.features,)) if self.use_bias else None
        x, kernel, bias = promote_dtype(x, kernel, bias, dtype=self.dtype)
        flat = x.reshape(-1, x.shape[-1]) @ kernel
        flat = flat if bias is None else flat + bias[None]
        return flat.reshape(*x.shape[:-1], self.features)


def vocabulary_scores(
    x: Float[Array, "*tokens E"],
    embedding: Float[Array, "V E"],
    bias: Float[Array, " V"] | None = None,
    *,
    dtype: Dtype | None = None,
) -> Float[Array, "*tokens V"]:
    """Scores of every token: products with its embedding, and its bias."""
    x, embedding, bias = promote_dtype(x, embedding, bias, dtype=dtype)
    flat = x.reshape(-1, x.shape[-1])
    # XLA's product of a single row with a transposed matrix is many times slower on CPU.
    scores = (embedding @ flat.T).T if len(flat) == 1 else flat @ embedding.T
    scores = scores if bias is None else scores + bias[None]
    return scores.reshape(*x.shape[:-1], -1)


class DropoutLayer(nn.Module):
    """Sets numbers to 0 with probability `rate`, the rest times 1 / (1 - rate).

    The choice is a hash, as in the dropout of attention: on CPU a training step with the bits of
    `nn.Dropout` takes a tenth longer. They depend on the position in the whole array alone, so
    sharding changes none.

    Attributes:
        rate: Probability of dropping.
    """

    rate: float

    @nn.compact
    def __call__(self, x: Float[Array, "*tokens E"], deterministic: bool) -> Float[Array, "..."]:
        """Drop, with the rng stream `dropout`; `x` itself if deterministic or at rate 0."""
        if deterministic or self.rate == 0.0:
            return x
        tokens, width = x.size // x.shape[-1], x.shape[-1]
        dropout = contract.Dropout(self.rate, self.make_rng("dropout"))
        keep = keep_mask(dropout, (1, 1, tokens, width)).reshape(x.shape)
        return jnp.where(keep, x / (1 - self.rate), 0)


def layer_norm(
    x: Float[Array, "... E"], *, epsilon: float, dtype: Dtype, name: str, use_bias: bool = True
) -> Float[Array, "... E"]:
    """LayerNorm as the published models compute it: two-pass variance, everything in float32."""
    norm = nn.LayerNorm(
        epsilon=epsilon, dtype=jnp.float32, use_fast_variance=False, use_bias=use_bias, name=name
    )
    return norm(x.astype(jnp.float32)).astype(dtype)


class RMSNorm(nn.Module):
    """Division by the root mean square (Zhang and Sennrich 2019), in float32.

    Attributes:
        epsilon: Added to the mean square.
        dtype: Dtype of the result.
        plus_one: Whether the scale is 1 + the parameter, which then begins at 0.
    """

    epsilon: float
    dtype: Dtype = jnp.float32
    plus_one: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "... E"]) -> Float[Array, "... E"]:
        """Normalise the last axis of `x`."""
        init = nn.initializers.zeros if self.plus_one else nn.initializers.ones
        scale = self.param("scale", init, (x.shape[-1],)).astype(jnp.float32)
        scale = 1 + scale if self.plus_one else scale
        x = x.astype(jnp.float32)
        normed = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + self.epsilon)
        return (normed * scale.reshape(*(1,) * (x.ndim - 1), -1)).astype(self.dtype)


def real_positions(mask: Int[Array, "B S"] | None) -> Bool[Array, "B S"] | None:
    """A Hugging Face attention mask, non-zero at real positions, as booleans; None stays None."""
    return None if mask is None else jnp.asarray(mask).astype(bool)


def recording(module: nn.Module) -> bool:
    """Return whether the caller requested the `intermediates` collection; known at trace time."""
    return module.is_mutable_collection("intermediates") and not module.is_initializing()


def record(module: nn.Module, name: str, value: Any) -> None:
    """Sow `value` as it is: the last call wins, and no one-tuple is wrapped around it."""
    module.sow("intermediates", name, value, init_fn=lambda: None, reduce_fn=lambda _, x: x)


class FeedForward(nn.Module):
    """Two dense layers with an activation between them (Vaswani et al. 2017, section 3.3).

    Attributes:
        features: F, the inner width.
        hidden_act: A name in `ACTIVATIONS`.
        dtype: Computation dtype.
        initializer_range: Standard deviation of the initial kernels.
        dropout_rate: Dropout on the activations.
        gated: Whether the activation of a third dense layer, `gate`, multiplies the inner layer
            (Shazeer 2020) in place of an activation of its own.
        use_bias: Whether the layers have a bias.
    """

    features: int
    hidden_act: str = "gelu"
    dtype: Dtype = jnp.float32
    initializer_range: float = 0.02
    dropout_rate: float = 0.0
    gated: bool = False
    use_bias: bool = True

    @nn.compact
    def __call__(
        self, x: Float[Array, "*tokens E"], deterministic: bool = True
    ) -> Float[Array, "*tokens E"]:
        """Apply the layer to every position by itself."""
        up, down = self._dense("up", self.features), self._dense("down", x.shape[-1])
        if self.gated:
            gate = self._dense("gate", self.features)
            inner = activation(self.hidden_act, gate(x)) * up(x)
        else:
            inner = activation(self.hidden_act, up(x))
        fed = down(DropoutLayer(self.dropout_rate)(inner, deterministic))
        return edited(self, "feed_forward_output", fed)

    def _dense(self, name: str, features: int) -> Dense:
        spread = self.initializer_range
        return Dense(features, self.dtype, spread, use_bias=self.use_bias, name=name)
