# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Contribution of attention weights to the output of a layer, judged by the vectors they weigh.

Norms of weighted vectors (Kobayashi et al. 2020), effective attention (Brunner et al. 2020; its
text from memory, the algebra derived), gradient times weight, and zeroing of values (Mohebbi et al.
2023). They take arrays: weights, values and what is made of them come from a trace with
`Capture(weights=True, value=True)`, projections from `flaxattn.pretrained.head_projections`. Axes
that are written "..." may be any, such as layers and sequences. Maps of a whole trace are made of
the arrays of each text; pages and figures take them as `weights`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from flaxattn.attribution.rollout import rollout
from flaxattn.errors import InputError, check_arguments
from flaxattn.trace.record import AttentionRecord, layer_weights
from flaxattn.trace.trace import Trace

_TOLERANCE = 1e-6
_ROUNDING = 1e-12  # what a cosine of float64 vectors is off by, and more


def weighed_vectors(
    value: Float[np.ndarray, "... K H D"], projection: Float[np.ndarray, "... H D E"]
) -> Float[np.ndarray, "... H K E"]:
    """f(x), the vectors that a head weighs: values through its part of the output projection.

    The bias of values is part of them; that of the output projection belongs to no head.
    """
    value, projection = np.asarray(value), np.asarray(projection)
    if value.shape[-2:] != projection.shape[-3:-1]:
        raise InputError(
            f"Values have [H, D] = {list(value.shape[-2:])}, the projection has "
            f"{list(projection.shape[-3:-1])}.\nTake both from the same layers and heads."
        )
    return np.einsum("...khd,...hde->...hke", value, projection)


def norm_weights(
    weights: Float[np.ndarray, "... H Q K"], vectors: Float[np.ndarray, "... H K E"]
) -> Float[np.ndarray, "... H Q K"]:
    """‖α f(x)‖ of every head: how long a vector each key adds to each query."""
    _check(weights, vectors)
    return weights * np.linalg.norm(vectors, axis=-1)[..., None, :]


def norm_weights_of_layer(
    weights: Float[np.ndarray, "... H Q K"], vectors: Float[np.ndarray, "... H K E"]
) -> Float[np.ndarray, "... Q K"]:
    """‖Σ α f(x)‖ over heads, in which vectors of different heads may cancel.

    At most the sum of `norm_weights` over heads. Nothing of size Q·K·E is stored: a key's vectors
    meet each other in a matrix H×H.
    """
    _check(weights, vectors)
    products = np.einsum("...hke,...gke->...khg", vectors, vectors)
    squares = np.einsum("...hqk,...khg,...gqk->...qk", weights, products, weights, optimize=True)
    return np.sqrt(np.maximum(squares, 0))


def effective_attention(
    weights: Float[np.ndarray, "... Q K"],
    vectors: Float[np.ndarray, "... K E"],
    tolerance: float = _TOLERANCE,
) -> Float[np.ndarray, "... Q K"]:
    """Attention without its part in the left null space of what it weighs, which does nothing.

    A⊥ f = A f, exactly. Texts longer than the depth of a head have such a part. Rows need not be
    positive or sum to one.
    """
    _check(weights, vectors)
    left, sizes, _ = np.linalg.svd(np.asarray(vectors, np.float64), full_matrices=False)
    kept = sizes > tolerance * sizes.max(-1, keepdims=True)
    basis = left * kept[..., None, :]
    return np.asarray(weights, np.float64) @ basis @ basis.swapaxes(-1, -2)


def gradient_times_weights(
    weights: Float[np.ndarray, "... H Q K"],
    value: Float[np.ndarray, "... K H D"],
    output_gradient: Float[np.ndarray, "... Q H D"],
) -> Float[np.ndarray, "... H Q K"]:
    """α · ∂ loss / ∂ α, without a gradient of size Q·K from the model.

    A weight scales the value of its key on the way to the head's output, so the gradient of the
    weight is the product of both vectors.
    """
    return np.asarray(weights) * np.einsum("...qhd,...khd->...hqk", output_gradient, value)


def value_zeroing(
    weights: Float[np.ndarray, "H Q K"],
    vectors: Float[np.ndarray, "H K E"],
    attended: Float[np.ndarray, "Q E"],
    finish: Callable[[Float[np.ndarray, "Q E"]], Float[np.ndarray, "Q E"]],
) -> Float[np.ndarray, "Q K"]:
    """Change of each position of a layer's output when the value of one key is zeroed.

    The cosine distance between the outputs with and without the key's value, rows divided by their
    sum. Attention weights stay as they are, so no other key takes its place. Calls `finish` K + 1
    times.
    """
    _check(weights, vectors)
    parts = (np.einsum("hq,he->qe", weights[..., k], vectors[:, k]) for k in range(len(vectors[0])))
    without = [finish(attended - part.astype(attended.dtype)) for part in parts]
    return zeroing_shares(np.asarray(finish(attended)), np.stack(without))


def zeroing_shares(
    whole: Float[np.ndarray, "Q E"], without: Float[np.ndarray, "K Q E"]
) -> Float[np.ndarray, "Q K"]:
    """Value-zeroing shares from the outputs of the layer."""
    one, other = np.asarray(whole, np.float64)[None], np.asarray(without, np.float64)
    lengths = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    distance = 1 - (one * other).sum(-1) / np.maximum(lengths, _ROUNDING)
    found = np.where(distance > _ROUNDING, distance, 0).T
    total = found.sum(-1, keepdims=True)
    return np.divide(found, total, out=np.zeros_like(found), where=total > 0)


def _check(weights: np.ndarray, vectors: np.ndarray) -> None:
    """Weights of as many keys as there are vectors, of the same heads."""
    if np.shape(weights)[:-2] != np.shape(vectors)[:-2] or weights.shape[-1] != vectors.shape[-2]:
        raise InputError(
            f"Weights {list(np.shape(weights))} and vectors {list(np.shape(vectors))} are not of "
            "the same heads and keys.\nExpected [..., Q, K] and [..., K, E]."
        )


Projections = Mapping[str, Float[np.ndarray, "L H D E"]]
Maps = dict[str, list[Float[np.ndarray, "L H Q K"]]]
"""By side, one array for each text, without padding."""
TextMaps = dict[str, Float[np.ndarray, "L H Q K"]]
"""By side, the maps of one text."""


@check_arguments()
def contributions(
    trace: Trace,
    names: Sequence[str] = ("rollout",),
    *,
    projections: Projections | None = None,
) -> dict[str, Maps]:
    """Attribution maps of every head of a trace: norms, rollout and effective attention.

    - `norm`: ‖α f(x)‖, how long a vector a key adds (Kobayashi et al. 2020).
    - `rollout`: the input positions that a head reads, through all layers below it (Abnar & Zuidema
      2020): its weights times the rollout of the layer below. Rows sum to one.
    - `effective`: attention without the part that values cancel (Brunner et al. 2020).

    Cost in NumPy: of `norm` one product with the projection for each layer; of `rollout` one of
    S×S matrices for each head; of `effective` one singular value decomposition for each head.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> maps = fa.contributions(trace, ["rollout"])
    >>> maps["rollout"]["encoder"][0].shape  # [L, H, Q, K]
    (4, 4, 8, 8)

    Args:
        trace: With weights; of all layers for `rollout`, with values for the other two.
        names: Maps to compute, of those above.
        projections: Output projections by side, from
            `flaxattn.pretrained.head_projections.output_projections`; for `norm`.

    Returns:
        By name and side, one array `[L, H, Q, K]` for each text, without its padding: what
        `weights` of `flaxattn.head_view` and of figures takes. Layers and heads are the trace's.

    Raises:
        InputError: If a name is unknown, or the trace or the projections lack what it needs.
    """
    makers: dict[str, Callable[[Trace], Any]] = {
        "norm": lambda one: _norms(one, projections),
        "rollout": _rollout,
        "effective": _effective,
    }
    if unknown := [name for name in names if name not in makers]:
        raise InputError(
            f"There are no weights {unknown[0]!r} to compute.\nThere are {', '.join(makers)}."
        )
    found: dict[str, Maps] = {}
    for name in names:
        maps = [makers[name](one) for one in trace]
        found[name] = {side: [one[side] for one in maps] for side in maps[0]}
    return found


def _norms(one: Trace, projections: Projections | None) -> dict[str, np.ndarray]:
    """Norm-weighted maps of each side that has values and a projection."""
    if projections is None:
        raise InputError(
            "Norms need the output projections of the model that made the trace.\n"
            "Give them: projections=output_projections(model), from "
            "flaxattn.pretrained.head_projections."
        )
    return {
        side: np.stack(
            [
                norm_weights(weights, weighed_vectors(value, _projection(rows, record, layer)))
                for layer, weights, value in zip(record.layers, *_parts(record), strict=True)
            ]
        )
        for side, record in _with_values(one).items()
        if (rows := projections.get(side)) is not None
    }


def _projection(
    rows: np.ndarray, record: AttentionRecord, layer: int
) -> Float[np.ndarray, "H D E"]:
    """The rows of one layer that belong to the heads of a record."""
    if layer >= len(rows) or max(record.heads) >= rows.shape[1]:
        raise InputError(
            f"The projections have {len(rows)} layers of {rows.shape[1]} heads; the trace has "
            f"layer {layer} and head {max(record.heads)}.\nTake them from the model of the trace."
        )
    return rows[layer][list(record.heads)]


def _rollout(one: Trace) -> dict[str, np.ndarray]:
    """Rollout of self-attention: heads by themselves above whole layers."""
    below = rollout(one)
    side = "encoder" if one.encoder is not None else "decoder"
    record = one.sides[side]
    weights = layer_weights(record, record.layers).astype(np.float64)
    total = weights.sum(-1, keepdims=True)
    shares = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return {side: np.concatenate([shares[:1], shares[1:] @ below[:-1, None]])}


def _effective(one: Trace) -> dict[str, np.ndarray]:
    return {
        side: np.stack(
            [
                effective_attention(weights, value.swapaxes(0, 1))
                for weights, value in zip(*_parts(record), strict=True)
            ]
        )
        for side, record in _with_values(one).items()
    }


def _parts(record: AttentionRecord) -> tuple[np.ndarray, np.ndarray]:
    """Weights `[L, H, Q, K]` and values `[L, K, H, D]` of a record of one text."""
    return layer_weights(record, record.layers), np.asarray(record.value)[:, 0].astype(np.float32)


def _with_values(one: Trace) -> dict[str, AttentionRecord]:
    """Sides that have weights and values."""
    held = {
        side: record
        for side, record in one.sides.items()
        if record.weights is not None and record.value is not None
    }
    if not held:
        raise InputError(
            "Norms and effective attention weigh values; this trace holds none beside weights.\n"
            "Capture them: model.trace(text, capture=fa.Capture(weights=True, value=True))."
        )
    for record in held.values():
        record.require_whole("What keys contribute")
    return held
