# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reading a record for measures and pictures: which layers and heads, and weights as shares.

It picks and checks; it measures and draws nothing.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.trace.record import AttentionRecord


def choose(requested: Sequence[int] | None, known: Sequence[int], what: str) -> list[int]:
    """The numbers requested, each of which must be known; all known ones if None."""
    wanted = list(known if requested is None else requested)
    missing = [number for number in wanted if number not in known]
    if missing or not wanted:
        what_is_wrong = (
            f"There is no {what} {missing[0]}." if missing else f"No {what} was requested."
        )
        raise InputError(f"{what_is_wrong}\nThere are {what}s {', '.join(map(str, known))}.")
    return list(dict.fromkeys(int(number) for number in wanted))


def layer_weights(
    record: AttentionRecord, layers: Sequence[int], sequence: int = 0, *, allow_nan: bool = False
) -> Float[np.ndarray, "L H Q K"]:
    """Weights of one sequence in the chosen layers, as float32 between 0 and 1."""
    assert record.weights is not None
    everything = np.asarray(record.weights)  # on the host once, however many sequences are read
    stored = np.stack([everything[record.layers.index(n), sequence] for n in layers])
    weights = stored.astype(np.float32) / (255 if stored.dtype == np.uint8 else 1)
    known = weights[~np.isnan(weights)] if allow_nan else weights
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    if not (low >= 0 and high <= 1.001):
        raise InputError(
            f"Attention weights lie between 0 and 1; these range from {low:.4g} to {high:.4g}.\n"
            "Apply the softmax over keys first."
        )
    return np.minimum(weights, 1)


def without_first(weights: Float[np.ndarray, "*heads Q K"]) -> Float[np.ndarray, "*heads Q K"]:
    """Weights without those on the first key, every row scaled up to a sum of one again.

    Many heads of a language model leave most of their attention on the first token, whatever it
    says, when they find nothing to look at (Vig & Belinkov 2019 leave it out as null attention).

    The first column is 0. A row whose weight was all there is 0 throughout; NaN in the rest stays
    NaN.
    """
    rest = weights.copy()
    rest[..., 0] = 0
    total = rest.sum(axis=-1, keepdims=True)
    shares = np.divide(rest, total, out=np.zeros_like(rest), where=total > 0)
    return np.where(np.isnan(total), total, shares)
