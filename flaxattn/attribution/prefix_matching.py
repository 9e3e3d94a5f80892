# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Prefix matching: how well a head's queries find keys that an earlier head wrote their token to.

Elhage et al. (2021) look at the matrix `M = W_E W_Q W_K^T W_O'^T W_V'^T W_E^T` of an induction head
behind a head of the previous token: rows are tokens of queries, columns the tokens that the earlier
head moved to the keys. An induction head has its largest numbers on the diagonal. The share of
eigenvalues that are positive does not tell whether it has: it is near 1 for almost every pair of
heads where one direction is shared by all embeddings, and it does not see what stands beside the
diagonal. So the mean over tokens is taken from both embeddings, and the score is

    tr(M) / (sqrt(D) ||M||)

in the Frobenius norm: 1 where M is the identity on D directions, about 0 at random.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.attribution.circuit_weights import CircuitWeights
from flaxattn.pretrained.head_projections import HeadProjections


class _Writes(NamedTuple):
    """Factors of what the H heads of an earlier layer write: values, outputs and tokens' size."""

    value: Float[np.ndarray, "H E D"]
    output: Float[np.ndarray, "H D E"]
    size: Float[np.ndarray, "H D D"]


class _Reads(NamedTuple):
    """Factors of what the H heads of a later layer read: keys, queries' tokens and their size."""

    key: Float[np.ndarray, "H E D"]
    query: Float[np.ndarray, "H E D"]
    size: Float[np.ndarray, "H D D"]


def prefix_scores(
    writer: CircuitWeights, reader: CircuitWeights, earlier: Bool[np.ndarray, "M N L H"]
) -> Float[np.ndarray, "M N L H"]:
    """Score of each head behind each earlier one; nan for other pairs, and where all is 0.

    Costs two products `[H D, E] [E, H D]` for each pair of layers, in float64.
    """
    scores = np.full(earlier.shape, np.nan)
    tokens = reader.tokens
    if tokens is None:
        return scores
    reads = []
    for layer in range(len(reader.heads.query)):
        query = reader.heads.query[layer].astype(np.float64)
        size = query.swapaxes(-1, -2) @ tokens.queries @ query
        key = _for_queries(reader.heads, reader.heads.key[layer])
        reads.append(_Reads(key, tokens.matched @ query, size))
    for first in range(len(writer.heads.value)):
        if not earlier[first].any():
            continue
        value = _for_queries(writer.heads, writer.heads.value[first])
        size = value.swapaxes(-1, -2) @ tokens.keys @ value
        writes = _Writes(value, writer.heads.output[first].astype(np.float64), size)
        for second, read in enumerate(reads):
            if earlier[first, :, second].any():
                scores[first, :, second] = _between(writes, read)
    return np.where(earlier, scores, np.nan)


def _between(writes: _Writes, reads: _Reads) -> Float[np.ndarray, "N H"]:
    """Scores of the heads of a layer behind those of an earlier one."""
    depth = writes.output.shape[1]
    composed = _products(writes.output, reads.key)  # W_O' W_K
    matched = _products(writes.value.swapaxes(-1, -2), reads.query)  # W_V'^T W_E^T W_E W_Q
    traces = (composed * matched).sum((-1, -2))
    left = writes.size[:, None] @ composed
    squares = (left * (composed @ reads.size[None])).sum((-1, -2))
    with np.errstate(divide="ignore", invalid="ignore"):
        return traces / np.sqrt(depth * np.maximum(squares, 0))


def _products(
    left: Float[np.ndarray, "N D E"], right: Float[np.ndarray, "H E C"]
) -> Float[np.ndarray, "N H D C"]:
    """Products of every matrix on the left with every one on the right, as one product."""
    count, depth, width = left.shape
    flat = np.moveaxis(right, 1, 0).reshape(width, -1)
    both = (left.reshape(-1, width) @ flat).reshape(count, depth, len(right), -1)
    return np.moveaxis(both, 1, 2)


def _for_queries(
    heads: HeadProjections, kernels: Float[np.ndarray, "G E D"]
) -> Float[np.ndarray, "H E D"]:
    """Kernels of keys or values in float64, repeated for the query heads that share them."""
    shared = heads.query.shape[1] // len(kernels)
    return np.repeat(kernels.astype(np.float64), shared, axis=0)
