# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The layers models are built of: dense, attention, feed-forward, dropout and LayerNorm.

`MultiHeadAttention`, and beside it only `additive_attention`, calls `flaxattn.kernels.attention`.
What it saw goes into the `intermediates` collection as one `AttentionRecord`; nothing is recorded
unless the caller makes that collection mutable. This file does not know which model it serves.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.linen.dtypes import promote_dtype
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels import contract
from flaxattn.kernels.attention import attention
from flaxattn.kernels.contract import NOTHING, Capture, Labels
from flaxattn.kernels.dropout import keep_mask
from flaxattn.trace.record import AttentionRecord, among_heads, with_pruned


def _gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """GELU through erf as published; `nn.gelu` goes through erfc, at twice the cost on CPU."""
    return 0.5 * x * (1 + jax.lax.erf(x * 0.5**0.5))


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "gelu": _gelu,
    "gelu_new": nn.gelu,
    "gelu_pytorch_tanh": nn.gelu,
    "relu": nn.relu,
    "silu": nn.silu,
    "swish": nn.silu,
}


def with_defaults(given: Mapping[str, Labels] | None, side: str, **defaults: Any) -> Labels:
    """Labels of positions: those that a caller gave for a side, and a model's own for the rest.

    Args:
        given: Labels by side, for the statistics that are captured, or None.
        side: `encoder`, `decoder` or `cross`.
        **defaults: Fields of `Labels` that the model knows itself.
    """
    labels = Labels(**defaults)
    own = (given or {}).get(side, Labels())
    return labels._replace(**{n: a for n, a in own._asdict().items() if a is not None})


def activation(name: str, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Apply a named activation in float32: the bfloat16 gradient of GELU is many times slower.

    Args:
        name: A key of `ACTIVATIONS`, spelt as in Hugging Face configurations.
        x: Any shape.

    Returns:
        Same shape and dtype as `x`.

    Raises:
        ValueError: For a name that is not in the table.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"hidden_act {name!r} is unknown; choose one of {sorted(ACTIVATIONS)}.")
    return ACTIVATIONS[name](x.astype(jnp.float32)).astype(x.dtype)


class Dense(nn.Module):
    """x W + b, on tokens flattened to two dimensions.

    The bfloat16 gradient of a three-dimensional product is an order of magnitude slower on CPU.

    Attributes:
        features: Width of the result.
        dtype: Computation dtype; parameters stay float32.
        initializer_range: Standard deviation of the initial kernel.
        bias_init: The initial bias.
    """

    features: int
    dtype: Dtype = jnp.float32
    initializer_range: float = 0.02
    bias_init: Callable[..., Array] = nn.initializers.zeros

    @nn.compact
    def __call__(self, x: Float[Array, "*tokens E"]) -> Float[Array, "*tokens F"]:
        """Project the last axis of `x`."""
        init = nn.initializers.truncated_normal(self.initializer_range)
        kernel = self.param("kernel", init, (x.shape[-1], self.features))
        bias = self.param("bias", self.bias_init, (self.features,))
        x, kernel, bias = promote_dtype(x, kernel, bias, dtype=self.dtype)
        flat = x.reshape(-1, x.shape[-1]) @ kernel + bias[None]
        return flat.reshape(*x.shape[:-1], self.features)


def vocabulary_scores(
    x: Float[Array, "*tokens E"],
    embedding: Float[Array, "V E"],
    bias: Float[Array, " V"] | None = None,
    *,
    dtype: Dtype | None = None,
) -> Float[Array, "*tokens V"]:
    """Scores of every piece: products with its embedding, and its bias.

    Args:
        x: Outputs of a model.
        embedding: Of the pieces.
        bias: Of the pieces.
        dtype: Computation dtype; None for that of the arguments.
    """
    x, embedding, bias = promote_dtype(x, embedding, bias, dtype=dtype)
    flat = x.reshape(-1, x.shape[-1])
    # XLA's product of a single row with a transposed matrix is many times slower on CPU.
    scores = (embedding @ flat.T).T if len(flat) == 1 else flat @ embedding.T
    scores = scores if bias is None else scores + bias[None]
    return scores.reshape(*x.shape[:-1], -1)


class DropoutLayer(nn.Module):
    """Sets numbers to 0 with probability `rate`, the rest times 1 / (1 - rate).

    Which ones is the hash that attention's own dropout uses: on CPU a training step with the bits
    of `nn.Dropout` takes a tenth longer. They depend on the position in the whole array alone, so
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
    x: Float[Array, "... E"], *, epsilon: float, dtype: Dtype, name: str
) -> Float[Array, "... E"]:
    """LayerNorm as the published models compute it: two-pass variance, everything in float32.

    Args:
        x: Normalised over its last axis.
        epsilon: Added to the variance.
        dtype: Dtype of the result.
        name: Name in the parameter tree of the calling module: `scale [E]` and `bias [E]`.

    Returns:
        Same shape as `x`.
    """
    norm = nn.LayerNorm(epsilon=epsilon, dtype=jnp.float32, use_fast_variance=False, name=name)
    return norm(x.astype(jnp.float32)).astype(dtype)


def real_positions(mask: Int[Array, "B S"] | None) -> Bool[Array, "B S"] | None:
    """A Hugging Face attention mask, non-zero at real positions, as booleans; None stays None."""
    return None if mask is None else jnp.asarray(mask).astype(bool)


def recording(module: nn.Module) -> bool:
    """Return whether the caller asked for the `intermediates` collection; known at trace time.

    Args:
        module: A bound module.

    Returns:
        False during `init`, whatever is mutable then.
    """
    return module.is_mutable_collection("intermediates") and not module.is_initializing()


def record(module: nn.Module, name: str, value: Any) -> None:
    """Sow `value` as it is: the last call wins, and no one-tuple is wrapped around it.

    Args:
        module: The module in whose scope the value appears.
        name: Key within that scope; must not be the name of a submodule.
        value: Any pytree.
    """
    module.sow("intermediates", name, value, init_fn=lambda: None, reduce_fn=lambda _, x: x)


class MultiHeadAttention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2), self or cross.

    Parameters: `query`, `key`, `value`, `output`, each a `Dense`.

    With a `cache_length`, where the collection `cache` is mutable, keys and values are kept there
    for later calls with the positions that follow: self-attention appends to its own,
    cross-attention reads its context only once. A cached context may serve several sequences each,
    which follow one another; so may a cache of self-attention, where each of the N sequences of a
    group appends to a row of its own and `mask [B N, N T]` says which of all rows it sees.

    Linen's collection `perturbations` may hold `head_output [B, Q, H, D]`, which is added to the
    heads' outputs: a place to take gradients at, or to leave a part out. `init` makes none.

    Attributes:
        num_heads: H; must divide the width of the input.
        dtype: Computation dtype.
        dropout_rate: Dropout on the weights, when not deterministic.
        initializer_range: Standard deviation of the initial kernels.
        causal: Whether position i may attend only to positions up to i.
        capture: What to record, as `AttentionRecord`, when `intermediates` is mutable.
        implementation: Name of the kernel; None chooses.
        cache_length: T, positions that a cache of self-attention has room for; 0 for no cache.
        pruned: Numbers of heads that were removed; the others keep their numbers, in requests, in
            masks and in what is recorded, where a removed head saw nothing.
    """

    num_heads: int
    dtype: Dtype = jnp.float32
    dropout_rate: float = 0.0
    initializer_range: float = 0.02
    causal: bool = False
    capture: Capture = NOTHING
    implementation: str | None = None
    cache_length: int = 0
    pruned: tuple[int, ...] = ()

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B Q E"],
        context: Float[Array, "B K E"] | None = None,
        *,
        mask: Bool[Array, "B K"] | Bool[Array, "B #H Q K"] | None = None,
        segment_ids: Int[Array, "B S"] | None = None,
        labels: Labels | None = None,
        head_mask: Float[Array, " H"] | Float[Array, "B H"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B Q E"]:
        """Attend from `x` to `context` (default: to itself).

        Args:
            x: Queries come from here.
            context: Keys and values come from here.
            mask: True where a key may be attended; `[B, T]` with a cache of self-attention, the
                rows of a group one after the other.
            segment_ids: Of packed sequences, which attend each to themselves.
            labels: What sieve statistics need to know about the positions.
            head_mask: Factor on the output of each head, before it is projected; 0 silences it.
            deterministic: Disables dropout; otherwise the rng stream `dropout` is used.

        Returns:
            The heads' outputs, concatenated and projected.
        """
        q = self._heads("query", x)
        k, v, mask, causal = self._keys(x, context, mask)
        shared = q.shape[0] // k.shape[0]  # sequences per cached context
        scale = q.shape[-1] ** -0.5
        wanted = among_heads(self.capture, self._present()) if recording(self) else NOTHING
        output, saw = attention(
            q if shared == 1 else q.reshape(k.shape[0], -1, *q.shape[2:]),
            k,
            v,
            mask=mask,
            segment_ids=segment_ids,
            causal=causal,
            scale=scale,
            dropout=self._dropout(deterministic),
            labels=labels,
            capture=wanted,
            implementation=self.implementation,
        )
        if wanted != NOTHING:
            seen = AttentionRecord.of(
                wanted, saw, scale, query=q, key=k, value=v, head_output=output
            )
            if self.pruned:
                seen = with_pruned(seen, self._present(), self.capture.heads, self.num_heads)
            record(self, "seen", seen)
        output = output.reshape(*x.shape[:-1], *output.shape[2:])
        output = self._perturbed(output)
        if head_mask is not None:
            output = output * self._factors(head_mask).astype(output.dtype)
        return self._dense("output", x.shape[-1])(output.reshape(*x.shape[:-1], -1))

    def _present(self) -> tuple[int, ...]:
        """Numbers of the heads that there are."""
        return tuple(head for head in range(self.num_heads) if head not in self.pruned)

    def _perturbed(self, output: Float[Array, "B Q N D"]) -> Float[Array, "B Q N D"]:
        """The outputs of the N heads that there are, with the perturbation of all H added."""
        if self.is_initializing():
            return output
        present = np.asarray(self._present())
        every = output
        if self.pruned:
            shape = (*output.shape[:2], self.num_heads, output.shape[-1])
            every = jnp.zeros(shape, output.dtype).at[:, :, present].set(output)
        every = self.perturb("head_output", every).astype(output.dtype)
        return every[:, :, present] if self.pruned else every

    def _factors(self, head_mask: Array) -> Float[Array, "#B 1 H 1"]:
        """Factors on the outputs of the heads that there are."""
        rows = head_mask if head_mask.ndim == 2 else head_mask[None]
        rows = rows[:, np.asarray(self._present())] if self.pruned else rows
        return rows[:, None, :, None]

    def _keys(
        self, x: Array, context: Array | None, mask: Array | None
    ) -> tuple[Float[Array, "B K H D"], Float[Array, "B K H D"], Bool[Array, "..."] | None, bool]:
        """Keys and values, who may see them, and whether that follows from the order alone."""
        caching = self.cache_length > 0 and self.is_mutable_collection("cache")
        caching = caching and not self.is_initializing()
        known = caching and self.has_variable("cache", "key")
        if context is not None and known:
            return *self._cached(), mask, False
        source = x if context is None else context
        k, v = self._heads("key", source), self._heads("value", source)
        if not caching:
            return k, v, mask, self.causal and context is None
        if context is not None:
            self._cache(_by_head(k, 1), _by_head(v, 1))
            return k, v, mask, False
        start = self.get_variable("cache", "length") if known else 0
        self.put_variable("cache", "length", jnp.int32(start + x.shape[1]))
        if not known:  # the first positions see only each other
            room = [(0, 0)] * 3 + [(0, self.cache_length - x.shape[1]), (0, 0)]
            self._cache(jnp.pad(_by_head(k, 1), room), jnp.pad(_by_head(v, 1), room))
            return k, v, None if mask is None else mask[:, : x.shape[1]], self.causal
        self._append(k, v, start)
        return *self._cached(), self._visible(x, mask, start), False

    def _append(self, k: Array, v: Array, start: Array | int) -> None:
        """Keys and values of the positions from `start` on into the cache."""
        for name, new in {"key": k, "value": v}.items():
            old = self.get_variable("cache", name)
            new = _by_head(new, new.shape[0] // old.shape[0])
            new = jax.lax.dynamic_update_slice_in_dim(old, new, start, axis=3)
            self.put_variable("cache", name, new)

    def _visible(self, x: Array, mask: Array | None, start: Array | int) -> Bool[Array, "..."]:
        """Mask of the cached keys that each query sees, up to itself."""
        groups, _, rows, room, _ = self.get_variable("cache", "key").shape
        seen = jnp.arange(room)[None] <= start + jnp.arange(x.shape[1])[:, None]  # [Q, T]
        seen = jnp.tile(seen, (1, rows))[None]
        if rows == 1:
            visible = jnp.broadcast_to(seen, (groups, *seen.shape[1:]))
            visible = visible if mask is None else visible & mask[:, None]
            return visible[:, 0] if x.shape[1] == 1 else visible[:, None]
        if mask is None or x.shape[1] != 1:
            raise ValueError("sequences that share a cache go on by one token, with a mask")
        return (seen & mask[:, None]).reshape(groups, 1, rows, -1)

    def _cache(self, k: Array, v: Array) -> None:
        self.put_variable("cache", "key", k)
        self.put_variable("cache", "value", v)

    def _cached(self) -> tuple[Float[Array, "B K H D"], Float[Array, "B K H D"]]:
        """Keys and values of a group's rows, one row after the other."""
        pair = (self.get_variable("cache", name) for name in ("key", "value"))
        k, v = (a.reshape(*a.shape[:2], -1, a.shape[-1]).swapaxes(1, 2) for a in pair)
        return k, v

    def _dense(self, name: str, features: int) -> Dense:
        return Dense(features, self.dtype, self.initializer_range, name=name)

    def _heads(self, name: str, x: Array) -> Float[Array, "B S H D"]:
        heads, width = len(self._present()), x.shape[-1]
        projected = self._dense(name, width // self.num_heads * heads)(x)
        return projected.reshape(*x.shape[:-1], heads, -1)

    def _dropout(self, deterministic: bool) -> contract.Dropout | None:
        if deterministic or self.dropout_rate == 0.0:
            return None
        return contract.Dropout(self.dropout_rate, self.make_rng("dropout"))


def _by_head(x: Float[Array, "R S H D"], rows: int) -> Float[Array, "B H N S D"]:
    """As a cache holds them: in the order that attention reads, so that no step turns all of it.

    Args:
        x: Keys or values.
        rows: N, sequences of a group.
    """
    return x.reshape(-1, rows, *x.shape[1:]).transpose(0, 3, 1, 2, 4)


class FeedForward(nn.Module):
    """Two dense layers with an activation between them (Vaswani et al. 2017, section 3.3).

    Attributes:
        features: F, the inner width.
        hidden_act: A name in `ACTIVATIONS`.
        dtype: Computation dtype.
        initializer_range: Standard deviation of the initial kernels.
        dropout_rate: Dropout on the activations.
    """

    features: int
    hidden_act: str = "gelu"
    dtype: Dtype = jnp.float32
    initializer_range: float = 0.02
    dropout_rate: float = 0.0

    @nn.compact
    def __call__(
        self, x: Float[Array, "*tokens E"], deterministic: bool = True
    ) -> Float[Array, "*tokens E"]:
        """Apply the layer to every position by itself."""
        up = Dense(self.features, self.dtype, self.initializer_range, name="up")
        down = Dense(x.shape[-1], self.dtype, self.initializer_range, name="down")
        inner = activation(self.hidden_act, up(x))
        return down(DropoutLayer(self.dropout_rate)(inner, deterministic))
