# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention written as its formulas: dense, float32, slow. It defines the right answers.

Read this first. Nothing here is chunked or fused; statistics come from the full weights. The
masks are built here once more, on purpose, so that an error elsewhere shows.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.call import Call, PairBias
from flaxattn.kernels.checks import checked
from flaxattn.kernels.contract import NOTHING, Capture, Dropout, Edits, Intermediates, Labels, Sieve
from flaxattn.kernels.dropout import keep_mask
from flaxattn.kernels.masks import sanitized

EXACT = jax.lax.Precision.HIGHEST


def attention(
    q: Float[Array, "B Q H D"],
    k: Float[Array, "B K G D"],
    v: Float[Array, "B K G Dv"],
    *,
    mask: Bool[Array, "B K"] | Bool[Array, "#B #H #Q #K"] | None = None,
    bias: Float[Array, "#B #H #Q #K"] | PairBias | None = None,
    segment_ids: Int[Array, "B S"] | tuple[Int[Array, "B Q"], Int[Array, "B K"]] | None = None,
    causal: bool = False,
    window: int | tuple[int | None, int | None] | None = None,
    soft_cap: float | None = None,
    sinks: Float[Array, " H"] | None = None,
    query_offset: int | Int[Array, ""] | Int[Array, " B"] = 0,
    scale: float | Float[Array, ""] | None = None,
    dropout: Dropout | None = None,
    labels: Labels | None = None,
    capture: Capture = NOTHING,
    edits: Edits | None = None,
) -> tuple[Float[Array, "B Q H Dv"], Intermediates]:
    """softmax(scale q·k + bias) v, in float32 (float64 for float64 inputs).

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        mask: True where attention is allowed.
        bias: Added to the scaled scores.
        segment_ids: Attention stays within equal ids.
        causal: Attention to keys not after the query only.
        window: Attention to keys so far before and after the query only.
        soft_cap: Limit of the absolute score before the bias.
        sinks: A logit of each head beside those of the keys.
        query_offset: Position of the first query.
        scale: Factor on q·k, 1/sqrt(D) when None.
        dropout: Dropout on the weights that make the output.
        labels: Positions' labels for sieves and ``received``.
        capture: Fields to return beside the output.
        edits: Functions that change scores and weights.

    Returns:
        The output in q's dtype and the intermediates. Memory: several times B·H·Q·K floats.

    Raises:
        ValueError: Under the conditions of `flaxattn.kernels.attention.attention`.
        TypeError: Under the same conditions as there.
    """
    given = Labels() if labels is None else labels
    options = (mask, bias, segment_ids, causal, scale, dropout, given, capture)
    call = checked(Call(q, k, v, *options, window, soft_cap, sinks, query_offset, edits))
    scores, values = _scores(call)
    if edits is not None and edits.scores is not None:
        scores = edits.scores(scores)
    sink_logits = _sink_logits(call)
    weights, sink = _softmax(scores, sink_logits)
    if edits is not None and edits.weights is not None:
        weights = edits.weights(weights)
        scores, sink_logits = _log(weights), _log(sink)[..., None]
    output = _output(call, weights, values)
    chosen = slice(None) if capture.heads is None else list(capture.heads)
    scores, weights, sink = scores[:, chosen], weights[:, chosen], sink[:, chosen]
    rows, columns = slice(*capture.query_window or (None,)), slice(*capture.key_window or (None,))
    part = (..., rows, columns)
    return output.astype(call.q.dtype), Intermediates(
        weights=_in_dtype(weights[part], capture.dtype) if capture.weights else None,
        scores=scores[part] if capture.scores else None,
        stats=_statistics(call, scores, weights, sink, sink_logits[:, chosen]),
        implementation="reference",
    )


def _scores(call: Call) -> tuple[Float[Array, "B H Q K"], Float[Array, "B K H Dv"]]:
    """Scaled, biased scores with -inf where masked; and the values without masked garbage."""
    dtype = call.dtype
    q, k, v = (array.astype(dtype) for array in (call.q, call.k, call.v))
    k, v = (jnp.repeat(array, call.group, axis=2) for array in (k, v))
    k, v, poison = sanitized(k, v)
    scores = call.factor * jnp.einsum("bqhd,bkhd->bhqk", q, k, precision=EXACT)
    if call.soft_cap is not None:
        scores = call.soft_cap * jnp.tanh(scores / call.soft_cap)
    if callable(call.bias):
        keys = jnp.arange(k.shape[1], dtype=jnp.int32)[None]
        of_each = [call.bias(rows[:, None], keys) for rows in _rows(call)]
        scores = scores + jnp.stack(of_each).astype(dtype)
    elif call.bias is not None:
        scores = scores + call.bias.astype(dtype)
    return jnp.where(_allowed(call), scores + poison.astype(dtype), -jnp.inf), v


def _allowed(call: Call) -> Bool[Array, "B H Q K"]:
    batch, queries, heads, _ = call.q.shape
    keys = call.k.shape[1]
    allowed = jnp.ones((batch, heads, queries, keys), bool)
    if call.mask is not None:
        allowed = jnp.logical_and(allowed, call.mask)
    if call.segment_ids is not None:
        of_queries, of_keys = call.segment_ids
        allowed = jnp.logical_and(allowed, (of_queries[:, :, None] == of_keys[:, None, :])[:, None])
    offset = _offsets(call)[:, None]
    if call.causal:
        allowed = jnp.logical_and(allowed, offset <= 0)
    if isinstance(call.window, tuple):
        left, right = call.window
        if left is not None:
            allowed = jnp.logical_and(allowed, offset >= -left)
        if right is not None:
            allowed = jnp.logical_and(allowed, offset <= right)
    return allowed


def _rows(call: Call) -> Int[Array, "B Q"]:
    """Position of each query."""
    rows = jnp.arange(call.q.shape[1], dtype=jnp.int32)[None]
    offset = jnp.broadcast_to(jnp.asarray(call.query_offset, jnp.int32), call.q.shape[:1])
    return offset[:, None] + rows


def _offsets(call: Call) -> Int[Array, "B Q K"]:
    """Position of each key minus that of each query."""
    keys = jnp.arange(call.k.shape[1], dtype=jnp.int32)
    return keys[None, None] - _rows(call)[:, :, None]


def _sink_logits(call: Call) -> Float[Array, "B H Q 1"]:
    """The logit of the sink of every row, -inf where there is none."""
    batch, queries, heads, _ = call.q.shape
    logits = jnp.full(heads, -jnp.inf) if call.sinks is None else call.sinks
    return jnp.broadcast_to(
        logits.astype(call.dtype)[None, :, None, None], (batch, heads, queries, 1)
    )


def _softmax(
    scores: Float[Array, "B H Q K"], sink: Float[Array, "B H Q 1"]
) -> tuple[Float[Array, "B H Q K"], Float[Array, "B H Q"]]:
    """exp(s) / sum exp(s) of the keys and of the sink, 0 for a row where all is masked."""
    scores = jnp.concatenate([scores, sink], axis=-1)
    attendable = scores != -jnp.inf
    shift = jnp.max(scores, axis=-1, keepdims=True)
    shift = jax.lax.stop_gradient(jnp.where(shift == -jnp.inf, 0, shift))
    exponentials = jnp.where(attendable, jnp.exp(jnp.where(attendable, scores, 0) - shift), 0)
    total = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / jnp.where(total == 0, 1, total)
    return weights[..., :-1], weights[..., -1]


def _log(weights: Float[Array, "B H Q *K"]) -> Float[Array, "B H Q *K"]:
    """Logarithms of weights, -inf where a weight is not above 0: scores that they stand for."""
    return jnp.where(weights > 0, jnp.log(jnp.where(weights > 0, weights, 1)), -jnp.inf)


def _output(call: Call, weights: Array, v: Array) -> Float[Array, "B Q H D"]:
    if call.dropout is not None:
        batch, heads, queries, keys = weights.shape
        keep = keep_mask(call.dropout, (batch, heads, queries, keys))
        weights = jnp.where(keep, weights / (1 - call.dropout.rate), 0)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v, precision=EXACT)


def _in_dtype(weights: Array, dtype: str) -> Array:
    if dtype == "uint8":
        return jnp.round(255 * weights).astype(jnp.uint8)
    return weights.astype(dtype)


def _statistics(
    call: Call, scores: Array, weights: Array, sink: Array, sink_logits: Array
) -> dict[str, Array]:
    """Every statistic that was asked, straight from the dense weights."""
    capture, keys = call.capture, call.k.shape[1]
    some = (scores != -jnp.inf).any(axis=-1)
    stats: dict[str, Array] = {"sink": sink}
    if "lse" in capture.names:
        logits = jnp.concatenate([scores, sink_logits], axis=-1)
        stats["lse"] = jax.nn.logsumexp(logits, axis=-1, where=logits != -jnp.inf)
    if "entropy" in capture.names:
        logs = jnp.log(jnp.where(weights > 0, weights, 1))
        stats["entropy"] = -(weights * logs).sum(axis=-1)
    first = jnp.where(some, jnp.argmax(scores, axis=-1), -1).astype(jnp.int32)
    if "argmax" in capture.names:
        stats["argmax"] = first
    if "max" in capture.names:
        is_first = jnp.arange(keys, dtype=jnp.int32)[None, None, None] == first[..., None]
        stats["max"] = jnp.where(is_first, weights, 0).sum(axis=-1)
    if "max_score" in capture.names:
        is_first = jnp.arange(keys, dtype=jnp.int32)[None, None, None] == first[..., None]
        largest = jnp.where(is_first, scores, 0).sum(axis=-1)
        stats["max_score"] = jnp.where(some, largest, -jnp.inf)
    if capture.topk:
        stats["topk_weights"], stats["topk_indices"] = _topk(scores, weights, capture.topk)
    if "distance" in capture.names:
        gap = jnp.abs(_offsets(call))[:, None]
        stats["distance"] = (weights * gap.astype(weights.dtype)).sum(axis=-1)
    if "sum_sq" in capture.names:
        stats["sum_sq"] = (weights**2).sum(axis=-1)
    if "received" in capture.names:
        counted = call.labels.query_mask
        counted = jnp.ones(call.q.shape[:2], bool) if counted is None else counted
        stats["received"] = jnp.where(counted[:, None, :, None], weights, 0).sum(axis=-2)
    if "pairs" in capture.names:
        stats["pairs"] = _pairs(weights, jnp.asarray(call.labels.pairs))
    for sieve in capture.sieves:
        inside = _inside(sieve, call.labels, _offsets(call))[:, None]
        if sieve.statistic == "argmax":
            among = jnp.where(inside, scores, -jnp.inf)
            known = (among != -jnp.inf).any(axis=-1)
            first = jnp.argmax(among, axis=-1).astype(jnp.int32)
            stats[sieve.name] = jnp.where(known, first, -1)
            continue
        chosen = jnp.where(inside, weights, 0)
        mass = chosen.sum(axis=-1)
        if sieve.statistic == "entropy":
            chosen = chosen / jnp.where(mass == 0, 1, mass)[..., None]
            logs = jnp.log(jnp.where(chosen > 0, chosen, 1))
            mass = -(chosen * logs).sum(axis=-1)
        stats[sieve.name] = mass
    return {name: stats[name] for name in capture.keys}


def _pairs(weights: Float[Array, "B H Q K"], pairs: Int[Array, "B P 2"]) -> Float[Array, "B H P"]:
    """The weights of pairs of positions, 0 for a pair that is none."""
    there = (pairs >= 0).all(axis=-1)
    query, key = (jnp.maximum(pairs[..., n], 0) for n in (0, 1))
    one = jax.vmap(lambda weights, query, key: weights[:, query, key])
    return jnp.where(there[:, None], one(weights, query, key), 0)


def _topk(scores: Array, weights: Array, k: int) -> tuple[Array, Array]:
    """The k keys with the highest scores, earlier ones first among equals."""
    order = jnp.argsort(-scores, axis=-1, stable=True)[..., :k]
    chosen = jnp.take_along_axis(weights, order, axis=-1)
    indices = jnp.where(jnp.take_along_axis(scores, order, axis=-1) == -jnp.inf, -1, order)
    missing = [(0, 0)] * (indices.ndim - 1) + [(0, k - indices.shape[-1])]
    indices = jnp.pad(indices.astype(jnp.int32), missing, constant_values=-1)
    return jnp.pad(chosen, missing), indices


def _inside(sieve: Sieve, labels: Labels, offset: Int[Array, "B Q K"]) -> Bool[Array, "B Q K"]:
    """Mask of the keys in a sieve, for every query: the conditions, one after the other."""
    inside = jnp.ones(offset.shape, bool)
    if sieve.key_class is not None:
        of_class = (jnp.asarray(labels.key_class)[:, None, :] >> sieve.key_class) & 1 == 1
        inside = jnp.logical_and(inside, of_class)
    if sieve.offsets is not None:
        low, high = sieve.offsets
        inside = jnp.logical_and(inside, (low <= offset) & (offset <= high))
    if sieve.same_segment is not None:
        equal = _equal(labels.query_segment, labels.key_segment)
        inside = jnp.logical_and(inside, equal == sieve.same_segment)
    if sieve.same_token is not None:
        equal = _equal(labels.query_token, labels.key_token)
        inside = jnp.logical_and(inside, equal == sieve.same_token)
    if sieve.same_label is not None:
        of_queries = jnp.asarray(labels.query_labels)[:, sieve.same_label[0]]
        of_keys = jnp.asarray(labels.key_labels)[:, sieve.same_label[1]]
        equal = jnp.logical_and(_equal(of_queries, of_keys), (of_queries >= 0)[:, :, None])
        inside = jnp.logical_and(inside, equal)
    return inside


def _equal(of_queries: Array | None, of_keys: Array | None) -> Bool[Array, "B Q K"]:
    return jnp.asarray(of_queries)[:, :, None] == jnp.asarray(of_keys)[:, None, :]
