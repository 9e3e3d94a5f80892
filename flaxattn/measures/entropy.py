# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Entropy of rows of weights; that of scores is in `flaxattn.kernels.reductions`."""

from typing import Any

from jaxtyping import Float


def entropies(weights: Float[Any, "... K"]) -> Float[Any, "..."]:
    """Entropy of each row in nats; 0 of a row of zeros.

    Args:
        weights: NumPy or JAX, in whose dtype it is computed.
    """
    space = weights.__array_namespace__()
    # A weight too small for a logarithm adds nothing; this is much faster than a special case.
    return -(weights * space.log(space.maximum(weights, 1e-30))).sum(-1)
