# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Dropout mask as a hash of (key, batch, head, query, key position).

A counter-based generator: no state and no order, so a fused kernel, a chunk of rows and the
backward pass all find the same mask without storing it. Not a general random generator: use
jax.random for anything else.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from flaxattn.kernels.contract import Dropout

# Odd constants with well-spread bits: the golden ratio and the multipliers of MurmurHash3.
_GOLDEN = 0x9E3779B9
_FIRST = 0x85EBCA6B
_SECOND = 0xC2B2AE35
_RATE_BITS = 24


def _mix(x: Array) -> Array:
    """MurmurHash3's finaliser: a bijection of 32 bits in which every bit changes half of all."""
    x = (x ^ (x >> 16)) * jnp.uint32(_FIRST)
    x = (x ^ (x >> 13)) * jnp.uint32(_SECOND)
    return x ^ (x >> 16)


def row_words(
    dropout: Dropout, batch: int, heads: int, rows: Int[Array, "Q"]
) -> UInt32[Array, "2 B H Q"]:
    """64 random bits for every query row.

    Args:
        dropout: Its key seeds the bits.
        batch: Number of examples B.
        heads: Number of heads H.
        rows: Query positions.

    Returns:
        Two words for each row.
    """
    words = jax.random.bits(dropout.key, (2, 1, 1, 1), jnp.uint32)
    b = jnp.arange(batch, dtype=jnp.uint32)[None, :, None, None]
    numbers = jnp.arange(heads) if dropout.heads is None else dropout.heads
    h = numbers.astype(jnp.uint32)[None, None, :, None]
    i = rows.astype(jnp.uint32)[None, None, None]
    for position in (b, h, i):
        words = _mix(words + jnp.uint32(_GOLDEN) * (position + 1))
    return words


def keep_block(
    rate: float | Float[Array, ""], words: UInt32[Array, "2 B H Q"], keys: Int[Array, "K"]
) -> Bool[Array, "B H Q K"]:
    """True where a weight stays.

    Args:
        rate: Probability of False, to 24 bits.
        words: Words of the rows, from `row_words`.
        keys: Key positions.

    Returns:
        The mask, two multiplications per entry.
    """
    first, second = jax.lax.bitcast_convert_type(words, jnp.int32)[..., None]
    return pair_bits(first, second, keys[None, None, None]) >= threshold(rate)


def pair_bits(
    first: Int[Array, "*#pairs"], second: Int[Array, "*#pairs"], keys: Int[Array, "*#pairs"]
) -> Int[Array, "*#pairs"]:
    """24 random bits for a query and a key, in signed arithmetic that every device has.

    Args:
        first: First word of the query's row, as int32.
        second: Its second word.
        keys: Key positions, int32.

    Returns:
        int32 from 0 to 2^24 - 1.
    """
    x = first ^ (keys * _signed(_GOLDEN))
    x = (x ^ _shift(x, 16)) * _signed(_FIRST) + second
    x = (x ^ _shift(x, 15)) * _signed(_SECOND)
    return _shift(x ^ _shift(x, 16), 32 - _RATE_BITS)


def threshold(rate: float | Float[Array, ""]) -> Int[Array, ""]:
    """The smallest value of `pair_bits` with which a weight stays.

    Args:
        rate: Probability of dropping.

    Returns:
        An int32.
    """
    return jnp.round(jnp.asarray(rate, jnp.float32) * 2**_RATE_BITS).astype(jnp.int32)


def _signed(constant: int) -> int:
    """The int32 with the bits of an uint32."""
    return constant - 2**32 if constant >= 2**31 else constant


def _shift(x: Array, bits: int) -> Array:
    return jax.lax.shift_right_logical(x, jnp.full_like(x, bits))


def keep_mask(
    dropout: Dropout, shape: tuple[int, int, int, int], first_row: int = 0
) -> Bool[Array, "B H Q K"]:
    """True where a weight stays, for rows ``first_row`` onwards.

    Args:
        dropout: Rate and key.
        shape: ``(B, H, Q, K)`` of the block.
        first_row: Position of the first query of the block.

    Returns:
        The mask of that block; blocks of any size agree with the whole.
    """
    batch, heads, queries, keys = shape
    words = row_words(dropout, batch, heads, first_row + jnp.arange(queries, dtype=jnp.int32))
    return keep_block(dropout.rate, words, jnp.arange(keys, dtype=jnp.int32))
