# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The cache of an attention layer: keys and values of positions that were read before.

A cache of T slots holds position p in slot p mod T. While there are fewer than T positions that is
the order they came in; a layer with a window has no more slots than its window has positions, and
a new one takes the place of the one that left the window. Functions take the attention module whose
collection `cache` they read and write.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.call import PairBias


class VisibleKeys(NamedTuple):
    """Keys and values of a call, and the restrictions on who may attend to them."""

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
        """The bias as a function of positions, also where keys are the slots of a cache."""
        if self.cached is None or not callable(bias):
            return bias
        room, start = self.cached
        return lambda queries, slots: bias(
            jnp.broadcast_to(start, queries.shape), _positions_at(slots, room, start)
        )


def cache_context(
    module: nn.Module, key: Float[Array, "B K G D"], value: Float[Array, "B K G D"]
) -> None:
    """Keep the keys and values of a context for later calls."""
    _put(module, _by_head(key, 1), _by_head(value, 1))


def cached_context(module: nn.Module, mask: Bool[Array, "..."] | None) -> VisibleKeys:
    """Keys and values of a context that was read before."""
    key, value = _cached(module)
    return VisibleKeys(_by_position(key), _by_position(value), mask)


def with_cache(module: nn.Module, keys: VisibleKeys, length: int) -> VisibleKeys:
    """Append keys and values of self-attention to a cache of `length` positions; return all of it.

    Several positions at once attend causally to those before them, and to all in the cache.
    """
    k, v, mask = keys.key, keys.value, keys.mask
    known = module.has_variable("cache", "key")
    start = jnp.asarray(module.get_variable("cache", "length") if known else 0, jnp.int32)
    module.put_variable("cache", "length", start + k.shape[1])
    if not known:  # the first positions see only each other
        room = length if keys.window is None else min(length, keys.window[0] + 1)
        _put(module, _new(k, room), _new(v, room))
        return keys._replace(mask=None if mask is None else mask[:, : k.shape[1]])
    if k.shape[1] > 1:
        return _next_chunk(module, keys, start)
    k, v = (_appended(*pair, start) for pair in zip(_cached(module), (k, v), strict=True))
    _put(module, k, v)
    last = (k.shape[3], jnp.asarray(start))
    return VisibleKeys(_by_position(k), _by_position(v), _visible(k, mask, start), cached=last)


def _next_chunk(module: nn.Module, keys: VisibleKeys, start: Int[Array, ""]) -> VisibleKeys:
    """Several positions at once, which follow those in the cache."""
    k, v, mask, window = keys.key, keys.value, keys.mask, keys.window
    groups, _, rows, room, _ = module.get_variable("cache", "key").shape
    if rows > 1:
        raise ValueError("sequences that share a cache continue by one token, with a mask")
    pairs = zip(_cached(module), (k, v), strict=True)
    if window is None:
        k, v = (_appended(*pair, start) for pair in pairs)
        _put(module, k, v)
        return VisibleKeys(_by_position(k), _by_position(v), mask, True, None, start)
    (k, new_k), (v, new_v) = (_rolled(*pair, start) for pair in pairs)
    _put(module, new_k, new_v)
    real = _real(mask, start - room, k.shape[1], groups)
    return VisibleKeys(k, v, real, True, window, room)


def _put(module: nn.Module, key: Array, value: Array) -> None:
    module.put_variable("cache", "key", key)
    module.put_variable("cache", "value", value)


def _cached(
    module: nn.Module,
) -> tuple[Float[Array, "B G N T D"], Float[Array, "B G N T D"]]:
    """Keys and values of a group's rows, as the cache holds them."""
    return module.get_variable("cache", "key"), module.get_variable("cache", "value")


def _by_head(x: Float[Array, "R S G D"], rows: int) -> Float[Array, "B G N S D"]:
    """Arrays in the order of a cache, which attention reads without transposing it."""
    return x.reshape(-1, rows, *x.shape[1:]).transpose(0, 3, 1, 2, 4)


def _by_position(cache: Float[Array, "B G N T D"]) -> Float[Array, "B K G D"]:
    """Rows of a group one after the other, as the kernel takes them."""
    return cache.reshape(*cache.shape[:2], -1, cache.shape[-1]).swapaxes(1, 2)


def _new(x: Float[Array, "B S G D"], room: int) -> Float[Array, "B G 1 T D"]:
    """A cache with the first positions, the last of them where there are more than it holds."""
    length, x = x.shape[1], _by_head(x, 1)
    if length <= room:
        return jnp.pad(x, [(0, 0)] * 3 + [(0, room - length), (0, 0)])
    return jnp.roll(x[..., -room:, :], length % room, axis=3)


def _appended(
    cache: Float[Array, "B G N T D"], x: Float[Array, "R Q G D"], start: Int[Array, ""]
) -> Float[Array, "B G N T D"]:
    """The cache with more positions, one after the other up to its end."""
    x = _by_head(x, x.shape[0] // cache.shape[0])
    return jax.lax.dynamic_update_slice_in_dim(cache, x, start % cache.shape[3], axis=3)


def _visible(
    cache: Float[Array, "B G N T D"], mask: Bool[Array, "R M"] | None, start: Int[Array, ""]
) -> Bool[Array, "B K"] | Bool[Array, "B 1 N K"]:
    """Mask of the slots that the position `start`, the last in the cache, sees."""
    groups, _, rows, room, _ = cache.shape
    positions = _positions_at(jnp.arange(room), room, start)
    held = positions >= 0
    if mask is None:
        if rows > 1:
            raise ValueError("sequences that share a cache continue by one token, with a mask")
        return jnp.broadcast_to(held[None], (groups, room))
    if mask.shape[-1] == rows * room:  # every position has its slot
        visible = mask.reshape(-1, rows, room) & held[None, None]
    else:
        by_row = mask.reshape(mask.shape[0], rows, -1)
        visible = by_row[..., jnp.maximum(positions, 0)] & held[None, None]
    if rows == 1:
        return visible[:, 0]
    return visible.reshape(groups, 1, rows, rows * room)


def _positions_at(
    slots: Int[Array, "*keys"], room: int, start: Int[Array, ""]
) -> Int[Array, "*keys"]:
    """Positions that slots hold, below 0 where a slot is empty."""
    return start - (start - slots) % room


def _rolled(
    cache: Float[Array, "B G 1 T D"], x: Float[Array, "B Q G D"], start: Int[Array, ""]
) -> tuple[Float[Array, "B K G D"], Float[Array, "B G 1 T D"]]:
    """The last T positions in order with those that follow them, and the cache with the latter."""
    room = cache.shape[3]
    ordered = jnp.roll(cache, -(start % room), axis=3)
    joined = jnp.concatenate([ordered, _by_head(x, 1)], axis=3)
    last = joined[..., -room:, :]
    return _by_position(joined), jnp.roll(last, (start + x.shape[1]) % room, axis=3)


def _real(
    mask: Bool[Array, "B M"] | None, first: Int[Array, ""], count: int, batch: int
) -> Bool[Array, "B K"]:
    """Mask of consecutive positions, those below 0 being none."""
    positions = first + jnp.arange(count)
    held = jnp.broadcast_to((positions >= 0)[None], (batch, count))
    return held if mask is None else held & mask[:, jnp.maximum(positions, 0)]
