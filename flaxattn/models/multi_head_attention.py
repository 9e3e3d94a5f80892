# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Multi-head attention, self or cross, with its cache: projections around one call of the kernel.

`MultiHeadAttention`, and beside it only the additive attention of `rnn.py`, calls
`flaxattn.kernels.attention`. Its attention goes into the `intermediates` collection as one
`AttentionRecord`; nothing is recorded unless the caller makes that collection mutable.

A cache of T slots holds position p in slot p mod T. While there are fewer than T positions that is
the order they came in; a layer with a window has no more slots than its window has positions, and
a new one takes the place of the one that left the window.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels import contract
from flaxattn.kernels.attention import attention
from flaxattn.kernels.call import PairBias
from flaxattn.kernels.contract import NOTHING, Capture, Labels
from flaxattn.models.interventions import Heads, edited, edits_of_maps
from flaxattn.models.layers import Dense, RMSNorm, record, recording
from flaxattn.models.rotary import Rotation, rotate
from flaxattn.trace.record import AttentionRecord, among_heads, with_pruned


def by_head(x: Float[Array, "R S G D"], rows: int) -> Float[Array, "B G N S D"]:
    """As a cache holds them: in the order that attention reads, so that no step turns all of it."""
    return x.reshape(-1, rows, *x.shape[1:]).transpose(0, 3, 1, 2, 4)


def by_position(cache: Float[Array, "B G N T D"]) -> Float[Array, "B K G D"]:
    """Rows of a group one after the other, as the kernel takes them."""
    return cache.reshape(*cache.shape[:2], -1, cache.shape[-1]).swapaxes(1, 2)


def new_cache(x: Float[Array, "B S G D"], room: int) -> Float[Array, "B G 1 T D"]:
    """A cache with the first positions, the last of them where there are more than it holds."""
    length, x = x.shape[1], by_head(x, 1)
    if length <= room:
        return jnp.pad(x, [(0, 0)] * 3 + [(0, room - length), (0, 0)])
    return jnp.roll(x[..., -room:, :], length % room, axis=3)


def append_to_cache(
    cache: Float[Array, "B G N T D"], x: Float[Array, "R Q G D"], start: Int[Array, ""]
) -> Float[Array, "B G N T D"]:
    """The cache with more positions, one after the other up to its end."""
    x = by_head(x, x.shape[0] // cache.shape[0])
    return jax.lax.dynamic_update_slice_in_dim(cache, x, start % cache.shape[3], axis=3)


def visible_slots(
    cache: Float[Array, "B G N T D"], mask: Bool[Array, "R M"] | None, start: Int[Array, ""]
) -> Bool[Array, "B K"] | Bool[Array, "B 1 N K"]:
    """Mask of the slots that the position `start`, the last in the cache, sees."""
    groups, _, rows, room, _ = cache.shape
    positions = keys_at_slots(jnp.arange(room), room, start)
    held = positions >= 0
    if mask is None:
        if rows > 1:
            raise ValueError("sequences that share a cache continue by one token, with a mask")
        return jnp.broadcast_to(held[None], (groups, room))
    if mask.shape[-1] == rows * room:  # every position has its slot
        visible_slots = mask.reshape(-1, rows, room) & held[None, None]
    else:
        by_row = mask.reshape(mask.shape[0], rows, -1)
        visible_slots = by_row[..., jnp.maximum(positions, 0)] & held[None, None]
    if rows == 1:
        return visible_slots[:, 0]
    return visible_slots.reshape(groups, 1, rows, rows * room)


def keys_at_slots(
    slots: Int[Array, "*keys"], room: int, start: Int[Array, ""]
) -> Int[Array, "*keys"]:
    """Positions that slots hold, below 0 where a slot is empty."""
    return start - (start - slots) % room


def roll_cache(
    cache: Float[Array, "B G 1 T D"], x: Float[Array, "B Q G D"], start: Int[Array, ""]
) -> tuple[Float[Array, "B K G D"], Float[Array, "B G 1 T D"]]:
    """The last T positions in order with those that follow them, and the cache with the latter."""
    room = cache.shape[3]
    ordered = jnp.roll(cache, -(start % room), axis=3)
    joined = jnp.concatenate([ordered, by_head(x, 1)], axis=3)
    last = joined[..., -room:, :]
    return by_position(joined), jnp.roll(last, (start + x.shape[1]) % room, axis=3)


def real_positions(
    mask: Bool[Array, "B M"] | None, first: Int[Array, ""], count: int, batch: int
) -> Bool[Array, "B K"]:
    """Mask of consecutive positions, those below 0 being none."""
    positions = first + jnp.arange(count)
    held = jnp.broadcast_to((positions >= 0)[None], (batch, count))
    return held if mask is None else held & mask[:, jnp.maximum(positions, 0)]


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


class _Keys(NamedTuple):
    """Keys and values of a call, and what restricts who sees them."""

    key: Float[Array, "B K G D"]
    value: Float[Array, "B K G D"]
    mask: Bool[Array, "..."] | None
    causal: bool = False
    window: tuple[int, int | None] | None = None
    query_offset: int | Int[Array, ""] = 0
    cached: tuple[int, Int[Array, ""]] | None = None  # slots of a row, and the query's position

    def placed(
        self, bias: Float[Array, "#B #H #Q #K"] | PairBias | None
    ) -> Float[Array, "#B #H #Q #K"] | PairBias | None:
        """The bias, whose function reads the positions that the slots of a cache hold."""
        if self.cached is None or not callable(bias):
            return bias
        room, start = self.cached
        return lambda queries, slots: bias(
            jnp.broadcast_to(start, queries.shape), keys_at_slots(slots, room, start)
        )


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
        keys: _Keys,
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
        self, q: Float[Array, "B Q H D"], keys: _Keys
    ) -> tuple[Float[Array, "B Q H D"], _Keys]:
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
    ) -> _Keys:
        """Keys and values, and who may see them."""
        caching = self.cache_length > 0 and self.is_mutable_collection("cache")
        caching = caching and not self.is_initializing()
        known = caching and self.has_variable("cache", "key")
        if context is not None and known:
            k, v = self._cached()
            return _Keys(by_position(k), by_position(v), mask)
        source = x if context is None else context
        count = len(self._present()) if self.key_heads is None else self.key_heads
        k, v = self._heads("key", source, count), self._heads("value", source, count)
        if context is not None:
            if caching:
                self._cache(by_head(k, 1), by_head(v, 1))
            return _Keys(k, v, mask)
        k = self._rotated(k, rotation, "key_norm")
        if not caching:
            return _Keys(k, v, mask, self.causal, self.window)
        start = jnp.asarray(self.get_variable("cache", "length") if known else 0, jnp.int32)
        self.put_variable("cache", "length", start + x.shape[1])
        if not known:  # the first positions see only each other
            room = self.cache_length
            room = room if self.window is None else min(room, self.window[0] + 1)
            self._cache(new_cache(k, room), new_cache(v, room))
            mask = None if mask is None else mask[:, : x.shape[1]]
            return _Keys(k, v, mask, self.causal, self.window)
        if x.shape[1] > 1:
            return self._next_chunk(k, v, mask, start)
        k, v = (append_to_cache(*pair, start) for pair in zip(self._cached(), (k, v), strict=True))
        self._cache(k, v)
        visible = visible_slots(k, mask, start)
        last = (k.shape[3], jnp.asarray(start))
        return _Keys(by_position(k), by_position(v), visible, cached=last)

    def _next_chunk(
        self, k: Array, v: Array, mask: Bool[Array, "B T"] | None, start: Int[Array, ""]
    ) -> _Keys:
        """Several positions at once, which follow those in the cache."""
        groups, _, rows, room, _ = self.get_variable("cache", "key").shape
        if rows > 1:
            raise ValueError("sequences that share a cache continue by one token, with a mask")
        if self.window is None:
            pairs = zip(self._cached(), (k, v), strict=True)
            k, v = (append_to_cache(*pair, start) for pair in pairs)
            self._cache(k, v)
            k, v = by_position(k), by_position(v)
            return _Keys(k, v, mask, True, None, start)
        pairs = zip(self._cached(), (k, v), strict=True)
        (k, new_k), (v, new_v) = (roll_cache(*pair, start) for pair in pairs)
        self._cache(new_k, new_v)
        real = real_positions(mask, start - room, k.shape[1], groups)
        return _Keys(k, v, real, True, self.window, room)

    def _cache(self, k: Array, v: Array) -> None:
        self.put_variable("cache", "key", k)
        self.put_variable("cache", "value", v)

    def _cached(self) -> tuple[Float[Array, "B G N T D"], Float[Array, "B G N T D"]]:
        """Keys and values of a group's rows, as the cache holds them."""
        return self.get_variable("cache", "key"), self.get_variable("cache", "value")

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
