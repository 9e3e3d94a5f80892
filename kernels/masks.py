# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Masks of any block of query rows, and sanitizing of keys that nobody may see.

The rules are stated in contract.py; this file turns them into one boolean block.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.call import Band, Call
from flaxattn.kernels.contract import Sieve


class Positions(NamedTuple):
    """Positions and labels of one side of a block, those of queries or those of keys.

    Attributes:
        at: Positions; those of queries may differ between examples.
        segment: Packed sequence, for masking.
        key_class: Bits of the classes of keys.
        label_segment: Segment, for sieves.
        label_token: Token id, for sieves.
        labels: Integer labels, for sieves.
    """

    at: Int[Array, "#B S"]
    segment: Int[Array, "B S"] | None = None
    key_class: Int[Array, "B S"] | None = None
    label_segment: Int[Array, "B S"] | None = None
    label_token: Int[Array, "B S"] | None = None
    labels: Int[Array, "B N S"] | None = None


def sides(call: Call) -> tuple[Positions, Positions]:
    """Return positions and labels of all queries and of all keys.

    Args:
        call: A checked call.
    """
    labels, ids = call.labels, call.segment_ids
    of_queries, of_keys = ids if isinstance(ids, tuple) else (None, None)
    return (
        Positions(
            call.query_positions,
            of_queries,
            None,
            labels.query_segment,
            labels.query_token,
            labels.query_labels,
        ),
        Positions(
            jnp.arange(call.k.shape[1], dtype=jnp.int32)[None],
            of_keys,
            labels.key_class,
            labels.key_segment,
            labels.key_token,
            labels.key_labels,
        ),
    )


def restricted(call: Call) -> bool:
    """Return whether any pair of positions can be masked by more than a bias of ``-inf``.

    Args:
        call: A checked call.

    Returns:
        A Python bool, known while tracing.
    """
    return call.mask is not None or call.segment_ids is not None or not call.band.whole


def allowed_pairs(
    band: Band, mask: Bool[Array, "#B #H #Q #K"] | None, queries: Positions, keys: Positions
) -> Bool[Array, "#B #H #Q #K"] | None:
    """True where a query of a block may attend to a key of the block.

    Args:
        band: Offsets between positions that are allowed.
        mask: The block's part of ``call.mask``.
        queries: Queries of the block.
        keys: Keys of the block.

    Returns:
        A mask that broadcasts to ``[B, H, Q, K]`` of the block, None when nothing is masked.
    """
    allowed = mask
    rows, columns = queries.at[:, None, :, None], keys.at[:, None, None]
    if band.high is not None:
        allowed = _and(allowed, columns <= rows + band.high)
    if band.low is not None:
        allowed = _and(allowed, columns >= rows + band.low)
    if queries.segment is not None and keys.segment is not None:
        allowed = _and(allowed, _equal(queries.segment, keys.segment))
    return allowed


def _and(left: Array | None, right: Array) -> Array:
    return right if left is None else left & right


def _equal(of_queries: Int[Array, "B Q"], of_keys: Int[Array, "B K"]) -> Bool[Array, "B 1 Q K"]:
    return of_queries[:, None, :, None] == of_keys[:, None, None]


def sanitized(
    k: Float[Array, "B K G D"], v: Float[Array, "B K G Dv"]
) -> tuple[Float[Array, "B K G D"], Float[Array, "B K G Dv"], Float[Array, "B G 1 K"]]:
    """Takes NaN and infinity out of keys and values, so that a weight of 0 really removes them.

    Without this, 0 * NaN would carry a masked key's garbage into outputs and gradients.

    Args:
        k: Keys.
        v: Values.

    Returns:
        Keys and values with unusable positions set to 0, and what must be added to the scores
        before masking: NaN for those positions, so that whoever may attend to them sees NaN.
    """
    usable = jnp.isfinite(k).all(-1, keepdims=True) & jnp.isfinite(v).all(-1, keepdims=True)
    poison = jnp.where(usable[..., 0], 0.0, jnp.nan).astype(jnp.float32)
    poison = jax.lax.stop_gradient(jnp.swapaxes(poison, 1, 2)[:, :, None, :])
    return jnp.where(usable, k, 0), jnp.where(usable, v, 0), poison


def sieve_block(sieve: Sieve, queries: Positions, keys: Positions) -> Bool[Array, "#B 1 #Q K"]:
    """True for the keys that a sieve holds, for a block of queries and keys.

    Args:
        sieve: The set of keys.
        queries: Queries of the block, with the labels that the sieve reads.
        keys: Keys of the block, with the labels that the sieve reads.

    Returns:
        A block that broadcasts over heads; masked keys are not taken out of it.
    """
    inside = jnp.ones((1, 1, 1, keys.at.shape[1]), bool)
    if sieve.key_class is not None and keys.key_class is not None:
        bit = (keys.key_class.astype(jnp.uint32) >> sieve.key_class) & 1
        inside = inside & (bit == 1)[:, None, None, :]
    if sieve.offsets is not None:
        offset = keys.at[:, None, None] - queries.at[:, None, :, None]
        inside = inside & (offset >= sieve.offsets[0]) & (offset <= sieve.offsets[1])
    for wanted, name in (
        (sieve.same_segment, "label_segment"),
        (sieve.same_token, "label_token"),
    ):
        of_queries, of_keys = getattr(queries, name), getattr(keys, name)
        if wanted is not None and of_queries is not None and of_keys is not None:
            inside = inside & (_equal(of_queries, of_keys) == wanted)
    if sieve.same_label is not None and queries.labels is not None and keys.labels is not None:
        of_queries = queries.labels[:, sieve.same_label[0]]
        of_keys = keys.labels[:, sieve.same_label[1]]
        inside = inside & _equal(of_queries, of_keys) & (of_queries >= 0)[:, None, :, None]
    return inside
