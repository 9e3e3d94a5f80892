# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Contribution of attention weights to the output of a layer, judged by the vectors they weigh.

Norms of weighted vectors (Kobayashi et al. 2020), effective attention (Brunner et al. 2020; its
text from memory, the algebra derived), gradient times weight, and zeroing of values (Mohebbi et al.
2023). Arrays in, arrays out: weights, values and what is made of them come from a trace with
`Capture(weights=True, value=True)`, projections from `flaxattn.pretrained.head_projections`. Axes
that are written "..." may be any, such as layers and sequences.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError

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

    A⊥ f = A f, exactly. What is longer than a head is deep has such a part. Rows need not be
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
    """The same from outputs of the layer."""
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
