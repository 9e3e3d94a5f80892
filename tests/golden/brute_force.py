# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention one query at a time in float64: an oracle that shares no code with the package.

It follows the rules of the contract as sentences, loops over batch, heads, queries and keys, and is
meant for a few dozen positions.
"""

import math

import numpy as np


def attention(q, k, v, *, scale=None, **options):
    """Return the output, weights, scores and statistics of every row.

    Args:
        q: ``[B, Q, H, D]``.
        k: ``[B, K, G, D]``.
        v: ``[B, K, G, Dv]``.
        scale: factor on q·k, ``1 / sqrt(D)`` when None.
        options: mask ``[B, K]`` or ``[B, H, Q, K]``, bias (array or function of two integers that
            returns a number for each head), segments, causal, window, soft_cap, sinks, offset.

    Returns:
        A dictionary of arrays.
    """
    q, k, v = (np.asarray(array, np.float64) for array in (q, k, v))
    batch, queries, heads, depth = q.shape
    keys, groups = k.shape[1:3]
    scale = depth**-0.5 if scale is None else scale
    found = {
        "output": np.zeros((batch, queries, heads, v.shape[3])),
        "weights": np.zeros((batch, heads, queries, keys)),
        "scores": np.full((batch, heads, queries, keys), -np.inf),
    }
    rows = ("lse", "entropy", "max", "argmax", "max_score", "sink", "distance", "sum_sq")
    found |= {name: np.zeros((batch, heads, queries)) for name in rows}
    found["received"] = np.zeros((batch, heads, keys))
    offsets = np.broadcast_to(options.get("offset", 0), (batch,))
    for b, h, i in np.ndindex(batch, heads, queries):
        group = h // (heads // groups)
        place = i + int(offsets[b])
        visible = [j for j in range(keys) if allowed(b, h, i, j, place, options)]
        for j in visible:
            score = scale * sum(q[b, i, h, d] * k[b, j, group, d] for d in range(depth))
            if cap := options.get("soft_cap"):
                score = cap * math.tanh(score / cap)
            found["scores"][b, h, i, j] = score + bias_of(b, h, i, j, place, options)
        one = row([found["scores"][b, h, i, j] for j in visible], visible, place, h, options)
        for j, weight in zip(visible, one.pop("weights"), strict=True):
            found["weights"][b, h, i, j] = weight
            found["received"][b, h, j] += weight
            found["output"][b, i, h] += weight * v[b, j, group]
        for name, value in one.items():
            found[name][b, h, i] = value
    return found


def allowed(b, h, i, j, place, options):
    """Whether query row i, at position ``place``, may attend to key j."""
    mask = options.get("mask")
    if mask is not None:
        mask = np.asarray(mask)
        if not (
            mask[b, j] if mask.ndim == 2 else np.broadcast_to(mask, options["shape"])[b, h, i, j]
        ):
            return False
    if options.get("causal") and j > place:
        return False
    left, right = options.get("window") or (None, None)
    if left is not None and j < place - left:
        return False
    if right is not None and j > place + right:
        return False
    segments = options.get("segments")
    return segments is None or segments[0][b, i] == segments[1][b, j]


def bias_of(b, h, i, j, place, options):
    """The bias of one pair."""
    bias = options.get("bias")
    if bias is None:
        return 0.0
    if callable(bias):
        return bias(place, j)[h]
    return np.broadcast_to(np.asarray(bias, np.float64), options["shape"])[b, h, i, j]


def row(scores, visible, place, head, options):
    """Weights and statistics of one row, from the scores of the keys that it may attend to."""
    sinks = options.get("sinks")
    sink = -np.inf if sinks is None else float(sinks[head])
    logits = list(scores) + ([] if sink == -np.inf else [sink])
    if not logits:
        nothing = {"entropy": 0, "max": 0, "argmax": -1, "sink": 0, "distance": 0, "sum_sq": 0}
        return nothing | {"weights": [], "lse": -np.inf, "max_score": -np.inf}
    top = max(logits)
    lse = top + math.log(math.fsum(math.exp(x - top) for x in logits))
    weights = [math.exp(x - lse) for x in scores]
    best = max(range(len(scores)), key=lambda n: scores[n]) if scores else None
    return {
        "weights": weights,
        "lse": lse,
        "entropy": -math.fsum(w * math.log(w) for w in weights if w > 0),
        "max": 0 if best is None else weights[best],
        "argmax": -1 if best is None else visible[best],
        "max_score": -np.inf if best is None else scores[best],
        "sink": math.exp(sink - lse),
        "distance": math.fsum(w * abs(place - j) for w, j in zip(weights, visible, strict=True)),
        "sum_sq": math.fsum(w * w for w in weights),
    }
