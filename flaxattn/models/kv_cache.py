# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Keys or values of earlier positions, as attention keeps them between calls.

A cache of T slots holds position p in slot p mod T. While there are fewer than T positions that is
the order they came in; a layer with a window has no more slots than its window has positions, and
a new one takes the place of the one that left the window.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def by_head(x: Float[Array, "R S G D"], rows: int) -> Float[Array, "B G N S D"]:
    """As a cache holds them: in the order that attention reads, so that no step turns all of it."""
    return x.reshape(-1, rows, *x.shape[1:]).transpose(0, 3, 1, 2, 4)


def by_position(cache: Float[Array, "B G N T D"]) -> Float[Array, "B K G D"]:
    """Rows of a group one after the other, as the kernel takes them."""
    return cache.reshape(*cache.shape[:2], -1, cache.shape[-1]).swapaxes(1, 2)


def begun(x: Float[Array, "B S G D"], room: int) -> Float[Array, "B G 1 T D"]:
    """A cache with the first positions, the last of them where there are more than it holds."""
    length, x = x.shape[1], by_head(x, 1)
    if length <= room:
        return jnp.pad(x, [(0, 0)] * 3 + [(0, room - length), (0, 0)])
    return jnp.roll(x[..., -room:, :], length % room, axis=3)


def appended(
    cache: Float[Array, "B G N T D"], x: Float[Array, "R Q G D"], start: Int[Array, ""]
) -> Float[Array, "B G N T D"]:
    """The cache with more positions, one after the other up to its end."""
    x = by_head(x, x.shape[0] // cache.shape[0])
    return jax.lax.dynamic_update_slice_in_dim(cache, x, start % cache.shape[3], axis=3)


def visible(
    cache: Float[Array, "B G N T D"], mask: Bool[Array, "R M"] | None, start: Int[Array, ""]
) -> Bool[Array, "B K"] | Bool[Array, "B 1 N K"]:
    """Mask of the slots that the position `start`, the last in the cache, sees."""
    groups, _, rows, room, _ = cache.shape
    positions = of_slots(jnp.arange(room), room, start)
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


def of_slots(slots: Int[Array, "*keys"], room: int, start: Int[Array, ""]) -> Int[Array, "*keys"]:
    """Positions that slots hold, below 0 where a slot is empty."""
    return start - (start - slots) % room


def rolled(
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
