# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Relevance of inputs through all layers, from attention weights times their gradients.

The update rules of Chefer et al. 2021, "Generic Attention-model Explainability for Interpreting
Bi-Modal and Encoder-Decoder Transformers". Arrays in, arrays out.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float


def generic_relevance(
    products: Mapping[str, Float[np.ndarray, "L H Q K"]],
) -> dict[str, Float[np.ndarray, "L 1 Q K"]]:
    """Relevance maps of every side after each of its layers.

    Of self-attention R <- R + A R, from the identity, with A the mean over heads of the positive
    part of weights times gradients. A decoder beside an encoder passes the relevance of the source
    on likewise, and adds to it N(R)ᵀ A N(R_encoder) at its cross-attention, where N divides what a
    row has beyond the identity by its sum.
    """
    means = {
        side: np.maximum(maps, 0).mean(1).astype(np.float64) for side, maps in products.items()
    }
    found = {side: _self_relevance(means[side]) for side in ("encoder", "decoder") if side in means}
    if "cross" in means:
        source = _normalised(found["encoder"][-1])
        own = np.concatenate([np.eye(means["decoder"].shape[-1])[None], found["decoder"]])
        across, steps = np.zeros(means["cross"].shape[1:]), []
        for layer, (inner, outer) in enumerate(zip(means["decoder"], means["cross"], strict=True)):
            across = across + inner @ across
            across = across + _normalised(own[layer + 1]).T @ outer @ source
            steps.append(across)
        found["cross"] = np.stack(steps)
    return {side: maps[:, None] for side, maps in found.items()}


def _self_relevance(means: Float[np.ndarray, "L S S"]) -> Float[np.ndarray, "L S S"]:
    relevance, steps = np.eye(means.shape[-1]), []
    for layer in means:
        relevance = relevance + layer @ relevance
        steps.append(relevance)
    return np.stack(steps)


def _normalised(relevance: Float[np.ndarray, "S S"]) -> Float[np.ndarray, "S S"]:
    """Rows whose part beyond the identity sums to one, or is 0 where there is none."""
    one = np.eye(len(relevance))
    beyond = relevance - one
    total = beyond.sum(-1, keepdims=True)
    return np.divide(beyond, total, out=np.zeros_like(beyond), where=total > 0) + one
