# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Statistics of weights that exist already: those of a trace, a store, or somebody else's array.

The definitions are those of contract.py, on NumPy arrays in float64. No softmax is here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.kernels.contract import Labels, Sieve

Weights = Float[np.ndarray, "*heads Q K"]


def entropies(weights: Float[Any, "... K"]) -> Float[Any, "..."]:
    """Entropy of each row in nats; 0 of a row of zeros.

    Args:
        weights: NumPy or JAX, in whose dtype it is computed.
    """
    space = weights.__array_namespace__()
    # A weight too small for a logarithm adds nothing; this is much faster than a special case.
    return -(weights * space.log(space.maximum(weights, 1e-30))).sum(-1)


def statistics(
    weights: Weights, stats: Sequence[str | Sieve], labels: Labels
) -> dict[str, np.ndarray]:
    """Statistics of dense weights by name.

    Args:
        weights: of one example, 0 where masked; any axes before the last two.
        stats: names and sieves, as `Capture.stats`; all but "lse" and "topk(k)".
        labels: of that example: arrays without the axis B.

    Returns:
        "[*heads, Q]" each, "received" "[*heads, K]" and "pairs" "[*heads, P]"; float64 but for
        the indices.
    """
    weights = np.asarray(weights, np.float64)
    return {
        item if isinstance(item, str) else item.name: _statistic(weights, item, labels)
        for item in stats
    }


def _statistic(weights: Weights, item: str | Sieve, labels: Labels) -> np.ndarray:
    queries, keys = weights.shape[-2:]
    offset = np.arange(keys) - np.arange(queries)[:, None]
    if isinstance(item, Sieve):
        return _of_sieve(weights, item, np.broadcast_to(inside(item, labels, offset), offset.shape))
    if item == "entropy":
        return entropies(weights)
    if item == "max":
        return weights.max(-1)
    if item == "argmax":
        return _largest(weights)
    if item == "distance":
        return np.sum(weights * abs(offset), axis=-1)
    if item == "sum_sq":
        return np.sum(weights**2, axis=-1)
    if item == "received":
        counted = labels.query_mask
        return weights.sum(-2) if counted is None else weights[..., np.asarray(counted), :].sum(-2)
    if item == "pairs":
        query, key = np.asarray(labels.pairs).reshape(-1, 2).T
        there = (query >= 0) & (key >= 0)
        flat = weights.reshape(*weights.shape[:-2], -1)  # taken from twice as fast as from rows
        return np.where(there, np.take(flat, np.where(there, query * keys + key, 0), -1), 0)
    raise ValueError(f"{item!r} does not follow from weights alone")


def _of_sieve(weights: Weights, sieve: Sieve, members: Bool[np.ndarray, "Q K"]) -> np.ndarray:
    if sieve.statistic == "argmax":
        return _largest(np.where(members, weights, 0))
    if sieve.statistic == "mass":
        return np.sum(weights, axis=-1, where=members)
    chosen = np.where(members, weights, 0)
    mass = chosen.sum(-1, keepdims=True)
    return entropies(chosen / np.where(mass > 0, mass, 1))


def _largest(weights: Weights) -> np.ndarray:
    """The first of the largest weights of each row, -1 where none is above 0."""
    return np.where(weights.max(-1) > 0, weights.argmax(-1), -1)


def inside(sieve: Sieve, labels: Labels, offset: np.ndarray) -> Bool[np.ndarray, "#Q K"]:
    """Mask of the keys in a sieve, for every query of one example.

    Args:
        sieve: the set of keys.
        labels: arrays without the axis B.
        offset: key position minus query position, "[Q, K]".
    """
    members = np.ones((1, offset.shape[1]), bool)
    if sieve.key_class is not None:
        members = members & (np.asarray(labels.key_class) >> sieve.key_class & 1 == 1)
    if sieve.offsets is not None:
        members = members & (sieve.offsets[0] <= offset) & (offset <= sieve.offsets[1])
    if sieve.same_segment is not None:
        same = np.asarray(labels.query_segment)[:, None] == np.asarray(labels.key_segment)
        members = members & (same == sieve.same_segment)
    if sieve.same_token is not None:
        same = np.asarray(labels.query_token)[:, None] == np.asarray(labels.key_token)
        members = members & (same == sieve.same_token)
    if sieve.same_label is not None:
        of_queries = np.asarray(labels.query_labels)[sieve.same_label[0]][:, None]
        of_keys = np.asarray(labels.key_labels)[sieve.same_label[1]]
        members = members & (of_queries == of_keys) & (of_queries >= 0)
    return members
