# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Masks of any block of query rows, and sanitizing of keys that nobody may see.

The rules are stated in contract.py; this file turns them into one boolean block.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.contract import Call, Sieve


def restricted(call: Call) -> bool:
    """Return whether any pair of positions can be masked by more than a bias of ``-inf``.

    Args:
        call: a checked call.

    Returns:
        A Python bool, known while tracing.
    """
    return call.mask is not None or call.segment_ids is not None or call.causal


def allowed_pairs(
    call: Call, rows: Int[Array, "Q"], mask: Array | None, query_segment: Array | None
) -> Bool[Array, "#B #H #Q #K"] | None:
    """True where a query of this block may attend.

    Args:
        call: a checked call; its key-side arrays are used whole.
        rows: positions of the queries of the block.
        mask: the block's part of ``call.mask``.
        query_segment: the block's part of the queries' segment ids.

    Returns:
        A mask that broadcasts to ``[B, H, Q, K]`` of the block, None when nothing is masked.
    """
    allowed = mask
    if call.causal:
        keys = jnp.arange(call.k.shape[1], dtype=jnp.int32)
        allowed = _and(allowed, (keys[None] <= rows[:, None])[None, None])
    if call.segment_ids is not None and query_segment is not None:
        same = query_segment[:, None, :, None] == call.segment_ids[1][:, None, None, :]
        allowed = _and(allowed, same)
    return allowed


def _and(left: Array | None, right: Array) -> Array:
    return right if left is None else left & right


def sanitized(
    k: Float[Array, "B K H D"], v: Float[Array, "B K H D"]
) -> tuple[Float[Array, "B K H D"], Float[Array, "B K H D"], Float[Array, "B H 1 K"]]:
    """Takes NaN and infinity out of keys and values, so that a weight of 0 really removes them.

    Without this, 0 * NaN would carry a masked key's garbage into outputs and gradients.

    Args:
        k: keys.
        v: values.

    Returns:
        Keys and values with unusable positions set to 0, and what must be added to the scores
        before masking: NaN for those positions, so that whoever may attend to them sees NaN.
    """
    usable = (jnp.isfinite(k) & jnp.isfinite(v)).all(axis=-1, keepdims=True)
    poison = jnp.where(usable[..., 0], 0.0, jnp.nan).astype(jnp.float32)
    poison = jax.lax.stop_gradient(jnp.swapaxes(poison, 1, 2)[:, :, None, :])
    return jnp.where(usable, k, 0), jnp.where(usable, v, 0), poison


def sieve_block(
    sieve: Sieve,
    call: Call,
    rows: Int[Array, "Q"],
    segment: Array | None,
    token: Array | None,
    label: Array | None = None,
) -> Bool[Array, "#B 1 #Q K"]:
    """True for the keys that a sieve holds, for a block of queries.

    Args:
        sieve: the set of keys.
        call: a checked call; the key-side labels are used whole.
        rows: positions of the queries of the block.
        segment: ``labels.query_segment`` of the block, ``[B, Q]``.
        token: ``labels.query_token`` of the block, ``[B, Q]``.
        label: ``labels.query_labels`` of the block, ``[B, A, Q]``.

    Returns:
        A block that broadcasts over heads; masked keys are not taken out of it.
    """
    labels, length = call.labels, call.k.shape[1]
    inside = jnp.ones((1, 1, 1, length), bool)
    if sieve.key_class is not None and labels.key_class is not None:
        bit = (labels.key_class.astype(jnp.uint32) >> sieve.key_class) & 1
        inside = inside & (bit == 1)[:, None, None, :]
    if sieve.offsets is not None:
        offset = jnp.arange(length, dtype=jnp.int32)[None] - rows[:, None]
        near = (offset >= sieve.offsets[0]) & (offset <= sieve.offsets[1])
        inside = inside & near[None, None]
    if segment is not None and sieve.same_segment is not None and labels.key_segment is not None:
        same = segment[:, None, :, None] == labels.key_segment[:, None, None, :]
        inside = inside & (same == sieve.same_segment)
    if token is not None and sieve.same_token is not None and labels.key_token is not None:
        same = token[:, None, :, None] == labels.key_token[:, None, None, :]
        inside = inside & (same == sieve.same_token)
    if label is not None and sieve.same_label is not None and labels.key_labels is not None:
        of_queries, of_keys = (
            label[:, sieve.same_label[0], None, :, None],
            labels.key_labels[:, sieve.same_label[1], None, None, :],
        )
        inside = inside & (of_queries == of_keys) & (of_queries >= 0)
    return inside
