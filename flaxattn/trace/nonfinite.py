# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of attention that hold NaN or infinity, counted before anything is reduced or rounded.

A row whose scores hold NaN or +infinity has such an lse too, in every kernel, whatever else is
asked. A row without any key has -infinity, which is right. The caller adds the names of the model
and the text.
"""

import dataclasses
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.contract import Capture
from flaxattn.trace.record import AttentionRecord

_OF_QUERIES, _OF_KEYS = ("query", "head_output"), ("key", "value")


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["counts", "first"],
    meta_fields=["layers", "heads"],
)
@dataclasses.dataclass(frozen=True)
class NonFinite:
    """Positions of a side whose attention is NaN or infinite: a pytree, padding not counted.

    Attributes:
        counts: Number of such positions of each head, `[L, B, H]`.
        first: The first of them, `[L, B]`; -1 where there is none.
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
    """

    counts: Int[Array, "L B H"]
    first: Int[Array, "L B"]
    layers: tuple[int, ...]
    heads: tuple[int, ...]


def with_lse(capture: Capture) -> Capture:
    """Add `lse`, in which NaN shows, to a request for attention."""
    attends = capture.weights or capture.scores or capture.stats
    if not attends or "lse" in capture.names:
        return capture
    return dataclasses.replace(capture, stats=(*capture.stats, "lse"))


def without_added_lse(record: AttentionRecord, capture: Capture) -> AttentionRecord:
    """A record made with `with_lse`, without the statistics that the caller did not want."""
    stats = {name: array for name, array in record.stats.items() if name in capture.keys}
    return dataclasses.replace(record, stats=stats)


def count_nonfinite(
    record: AttentionRecord, side: str, inputs: Mapping[str, Int[Array, "B S"]]
) -> NonFinite:
    """Count the positions of a record that hold NaN or infinity."""
    source = inputs.get("attention_mask")
    target = inputs.get("decoder_attention_mask", source)
    of_queries = source if side == "encoder" else target
    of_keys = target if side == "decoder" else source
    broken = [_among(of_queries, jnp.isnan(a) | (a == jnp.inf)) for a in _lse(record)]
    for names, mask in ((_OF_QUERIES, of_queries), (_OF_KEYS, of_keys)):
        arrays = (getattr(record, name) for name in names)
        broken += [_among(mask, _broken_vectors(a)) for a in arrays if a is not None]
    if record.hidden is not None:  # the layer's, so of all of its heads
        rows = ~jnp.isfinite(record.hidden).all(-1)[:, :, None]
        rows = jnp.broadcast_to(rows, (*rows.shape[:2], len(record.heads), rows.shape[3]))
        broken.append(_among(of_queries, rows))
    counts = sum(rows.sum(-1, dtype=jnp.int32) for rows in broken)
    firsts = [_first(rows.any(2)) for rows in broken]
    first = functools.reduce(lambda a, b: jnp.where(a < 0, b, a), firsts)
    return NonFinite(jnp.asarray(counts), first, record.layers, record.heads)


def _lse(record: AttentionRecord) -> list[Float[Array, "L B H Q"]]:
    return [record.stats["lse"]] if "lse" in record.stats else []


def _broken_vectors(array: Float[Array, "L B S H D"]) -> Bool[Array, "L B H S"]:
    return jnp.swapaxes(~jnp.isfinite(array).all(-1), 2, 3)


def _among(mask: Array | None, rows: Bool[Array, "L B H S"]) -> Bool[Array, "L B H S"]:
    """The rows that are not padding."""
    return rows if mask is None else rows & (mask != 0)[None, :, None]


def _first(rows: Bool[Array, "L B S"]) -> Int[Array, "L B"]:
    return jnp.where(rows.any(-1), rows.argmax(-1), -1).astype(jnp.int32)
