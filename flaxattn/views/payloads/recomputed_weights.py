# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention weights from recorded queries and keys, by the reference implementation.

The neuron level shows how a weight comes about, so it has to know which scale, mask and bias make
the recorded weights of these queries and keys.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from flaxattn.kernels import reference
from flaxattn.kernels.contract import Capture

_CAPTURE = Capture(weights=True, scores=True)


class Recomputed(NamedTuple):
    """Scores and weights of one layer, `[H, Q, K]`; scores are -inf where masked."""

    scores: Float[np.ndarray, "H Q K"]
    weights: Float[np.ndarray, "H Q K"]


def recomputed(
    query: Sequence[Float[np.ndarray, "H Q D"]],
    key: Sequence[Float[np.ndarray, "H K D"]],
    scale: float,
    causal: bool = False,
    bias: Sequence[Float[np.ndarray, "H Q K"]] | None = None,
    windows: Sequence[tuple[int, int]] | None = None,
) -> Iterator[Recomputed]:
    """Compute attention anew from its terms."""
    for layer, (q, k) in enumerate(zip(query, key, strict=True)):
        q, k = (jnp.asarray(array.swapaxes(0, 1)[None]) for array in (q, k))
        added = None if bias is None else jnp.asarray(bias[layer][None])
        _, found = reference.attention(
            q,
            k,
            k,
            bias=added,
            causal=causal,
            window=None if windows is None else windows[layer],
            scale=scale,
            capture=_CAPTURE,
        )
        yield Recomputed(np.asarray(found.scores)[0], np.asarray(found.weights)[0])
