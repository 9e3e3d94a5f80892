# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Multi-head attention, self or cross: projections around one call of the kernel.

`MultiHeadAttention`, and beside it only the additive attention of `rnn.py`, calls
`flaxattn.kernels.attention`. Its attention goes into the `intermediates` collection as one
`AttentionRecord`; nothing is recorded unless the caller makes that collection mutable.
"""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels import contract
from flaxattn.kernels.attention import attention
from flaxattn.kernels.call import PairBias
from flaxattn.kernels.contract import NOTHING, Capture, Labels
from flaxattn.models.attention_cache import VisibleKeys, cache_context, cached_context, with_cache
from flaxattn.models.interventions import Heads, edited, edits_of_maps
from flaxattn.models.layers import Dense, RMSNorm, record, recording
from flaxattn.models.positions import Rotation, rotate
from flaxattn.trace.record import AttentionRecord, among_heads, with_pruned


class HeadNorm(NamedTuple):
    """RMS normalisation of queries and keys before they are rotated.

    Attributes:
        each: Whether every head is normalised by itself; otherwise all of them together.
        epsilon: Added to the mean square.
        plus_one: Whether the scale is 1 + the parameter.
    """

    each: bool
    epsilon: float
    plus_one: bool = False


class MultiHeadAttention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2), self or cross.

    Parameters: `query`, `key`, `value`, `output`, each a `Dense`; `query_norm` and `key_norm` with
    a `head_norm`; `sinks [H]` where there are any.

    With a `cache_length`, where the collection `cache` is mutable, keys and values are kept there
    for later calls with the positions that follow: self-attention appends to its own,
    cross-attention reads its context only once. A cached context may serve several sequences each,
    which follow one another; so may a cache of self-attention, where each of the N sequences of a
    group appends to a row of its own and `mask [B N, N T]` says which of all rows it sees. A layer
    with a window keeps no more positions than the window has.

    Linen's collection `interventions` may hold edits of `query`, `key`, `value`, `scores`,
    `weights`, `head_output` and `attention_output`; see `flaxattn.models.interventions`.

    Attributes:
        num_heads: H; must divide the width of the input where `head_dim` is None.
        dtype: Computation dtype.
        dropout_rate: Dropout on the weights, when not deterministic.
        initializer_range: Standard deviation of the initial kernels.
        causal: Whether position i may attend only to positions up to i.
        capture: What to record, as `AttentionRecord`, when `intermediates` is mutable.
        implementation: Name of the kernel; None chooses.
        cache_length: T, positions that a cache of self-attention has room for; 0 for no cache.
        pruned: Numbers of heads that were removed; the others keep their numbers, in requests, in
            masks and in what is recorded, where a removed head attends to nothing.
        key_heads: G, heads of keys and values, which H / G query heads share; None for H.
        head_dim: D, depth of a head; None for the width of the input over H.
        input_bias: Whether queries, keys and values have a bias.
        output_bias: Whether the output has a bias.
        head_norm: Normalisation of queries and keys; None for none.
        scale: Factor on q·k; None for 1 / sqrt(D).
        window: `(left, right)`: positions before and behind a query that it may attend to.
        soft_cap: Scores become `soft_cap * tanh(score / soft_cap)`; None for no cap.
        sinks: Whether every head has a learned logit that takes part in the softmax.
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
    key_heads: int | None = None
    head_dim: int | None = None
    input_bias: bool = True
    output_bias: bool = True
    head_norm: HeadNorm | None = None
    scale: float | None = None
    window: tuple[int, int | None] | None = None
    soft_cap: float | None = None
    sinks: bool = False

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
        rotation: Rotation | None = None,
        bias: Float[Array, "#B #H #Q #K"] | PairBias | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B Q E"]:
        """Attend from `x` to `context` (default: to itself)."""
        q = self._rotated(self._heads("query", x, len(self._present())), rotation)
        keys = self._keys(x, context, mask, rotation)
        q, keys = self._edited(q, keys)
        shared = q.shape[0] // keys.key.shape[0]  # sequences per cached context
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        wanted = among_heads(self.capture, self._present()) if recording(self) else NOTHING
        output, intermediates = attention(
            q if shared == 1 else q.reshape(keys.key.shape[0], -1, *q.shape[2:]),
            keys.key,
            keys.value,
            mask=keys.mask,
            bias=keys.placed(bias),
            segment_ids=segment_ids,
            causal=keys.causal,
            window=keys.window,
            soft_cap=self.soft_cap,
            sinks=self._sinks(),
            query_offset=keys.query_offset,
            scale=scale,
            dropout=self._dropout(deterministic),
            labels=labels,
            capture=wanted,
            edits=edits_of_maps(self, self._numbered()),
            implementation=self.implementation,
        )
        output = edited(self, "head_output", output, self._numbered())
        if wanted != NOTHING:
            self._record(wanted, intermediates, scale, q, keys, output, rotation)
        output = output.reshape(*x.shape[:-1], *output.shape[2:])
        if head_mask is not None:
            output = output * self._factors(head_mask).astype(output.dtype)
        project = self._dense("output", x.shape[-1], self.output_bias)
        projected = project(output.reshape(*x.shape[:-1], -1))
        return edited(self, "attention_output", projected)

    def _record(
        self,
        wanted: Capture,
        intermediates: contract.Intermediates,
        scale: float,
        q: Float[Array, "B Q H D"],
        keys: VisibleKeys,
        output: Float[Array, "B Q H D"],
        rotation: Rotation | None,
    ) -> None:
        """Sow the record; shared keys and values appear once for each head that reads them."""
        shared = q.shape[2] // keys.key.shape[2]
        by_head = functools.partial(jnp.repeat, repeats=shared, axis=2)
        k, v = (a if shared == 1 else by_head(a) for a in (keys.key, keys.value))
        rotated = None
        if rotation is not None and wanted.query and wanted.key and not self.cache_length:
            rotated = jnp.stack(rotation, axis=2)
            rotated = jnp.broadcast_to(rotated, (len(q), *rotated.shape[1:]))
        entry = AttentionRecord.of(
            wanted,
            intermediates,
            scale,
            rotated,
            self.window,
            query=q,
            key=k,
            value=v,
            head_output=output,
        )
        if self.pruned:
            entry = with_pruned(entry, self._present(), self.capture.heads, self.num_heads)
        record(self, "attention_record", entry)

    def _present(self) -> tuple[int, ...]:
        """Numbers of the heads that there are."""
        return tuple(head for head in range(self.num_heads) if head not in self.pruned)

    def _numbered(self) -> Heads | None:
        """Numbers of the heads that there are, where some are not; None where all are."""
        return Heads(self._present(), self.num_heads) if self.pruned else None

    def _edited(
        self, q: Float[Array, "B Q H D"], keys: VisibleKeys
    ) -> tuple[Float[Array, "B Q H D"], VisibleKeys]:
        """Queries, keys and values after interventions, these by query head where any changes."""
        q = edited(self, "query", q, self._numbered())
        changes = {}
        for site in ("key", "value"):
            array: Array = getattr(keys, site)
            if self.has_variable("interventions", site):
                array = jnp.repeat(array, q.shape[2] // array.shape[2], axis=2)
                changes[site] = edited(self, site, array, self._numbered())
        if not changes:
            return q, keys
        every = functools.partial(jnp.repeat, repeats=q.shape[2] // keys.key.shape[2], axis=2)
        return q, keys._replace(**{"key": every(keys.key), "value": every(keys.value)} | changes)

    def _factors(self, head_mask: Array) -> Float[Array, "#B 1 H 1"]:
        """Factors on the outputs of the heads that there are."""
        rows = head_mask if head_mask.ndim == 2 else head_mask[None]
        rows = rows[:, np.asarray(self._present())] if self.pruned else rows
        return rows[:, None, :, None]

    def _keys(
        self, x: Array, context: Array | None, mask: Array | None, rotation: Rotation | None
    ) -> VisibleKeys:
        """Keys and values, and who may see them."""
        caching = self.cache_length > 0 and self.is_mutable_collection("cache")
        caching = caching and not self.is_initializing()
        if context is not None and caching and self.has_variable("cache", "key"):
            return cached_context(self, mask)
        source = x if context is None else context
        count = len(self._present()) if self.key_heads is None else self.key_heads
        k, v = self._heads("key", source, count), self._heads("value", source, count)
        if context is not None:
            if caching:
                cache_context(self, k, v)
            return VisibleKeys(k, v, mask)
        keys = VisibleKeys(
            self._rotated(k, rotation, "key_norm"), v, mask, self.causal, self.window
        )
        return with_cache(self, keys, self.cache_length) if caching else keys

    def _dense(self, name: str, features: int, bias: bool) -> Dense:
        return Dense(features, self.dtype, self.initializer_range, use_bias=bias, name=name)

    def _heads(self, name: str, x: Array, heads: int) -> Float[Array, "B S H D"]:
        depth = x.shape[-1] // self.num_heads if self.head_dim is None else self.head_dim
        projected = self._dense(name, depth * heads, self.input_bias)(x)
        return projected.reshape(*x.shape[:-1], heads, -1)

    def _rotated(
        self, x: Float[Array, "B S H D"], rotation: Rotation | None, norm: str = "query_norm"
    ) -> Float[Array, "B S H D"]:
        """Queries or keys normalised and rotated, where the model does so."""
        if self.head_norm is not None:
            each, epsilon, plus_one = self.head_norm
            flat = x if each else x.reshape(*x.shape[:2], -1)
            flat = RMSNorm(epsilon, self.dtype, plus_one, name=norm)(flat)
            x = flat.reshape(x.shape)
        return x if rotation is None else rotate(x, rotation)

    def _sinks(self) -> Float[Array, " H"] | None:
        if not self.sinks:
            return None
        init = nn.initializers.normal(self.initializer_range)
        return self.param("sinks", init, (self.num_heads,))

    def _dropout(self, deterministic: bool) -> contract.Dropout | None:
        if deterministic or self.dropout_rate == 0.0:
            return None
        return contract.Dropout(self.dropout_rate, self.make_rng("dropout"))
