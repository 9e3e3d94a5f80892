# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Maps of a whole trace that say more than attention does: norms, rollout, effective attention.

It hands the weights and values of each text to `flaxattn.attribution.contributions` and
`flaxattn.attribution.rollout`, which do the arithmetic; pages and figures take the result as
`weights`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from flaxattn.attribution.contributions import effective_attention, norm_weights, weighed_vectors
from flaxattn.attribution.rollout import rollout
from flaxattn.errors import InputError, check_arguments
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.selection import layer_weights
from flaxattn.trace.trace import Trace

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
        names: Which of them.
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
