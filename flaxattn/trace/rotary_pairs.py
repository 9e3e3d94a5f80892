# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rotary positions in a trace: queries and keys before rotation, and each pair's share of a score.

Dimensions i and i + P of a head are rotated together by an angle that grows with the position, so a
score is a sum over P pairs, each of which depends on the distance of query and key, and over the
dimensions that are not turned.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from flaxattn.errors import InputError
from flaxattn.trace.record import AttentionRecord, choose


class RotaryPairs(NamedTuple):
    """Vectors and scores of one query of one head. K keys, D dimensions, P pairs.

    Attributes:
        query: The query before it was rotated.
        keys: The keys before they were rotated.
        rotated_query: The query as it was multiplied.
        rotated_keys: The keys as they were multiplied.
        shares: Part of each scaled score that each pair adds.
        rest: Part that dimensions add which are not rotated.
        weights: Attention; None where the record holds none.
    """

    query: Float[np.ndarray, " D"]
    keys: Float[np.ndarray, "K D"]
    rotated_query: Float[np.ndarray, " D"]
    rotated_keys: Float[np.ndarray, "K D"]
    shares: Float[np.ndarray, "K P"]
    rest: Float[np.ndarray, " K"]
    weights: Float[np.ndarray, " K"] | None

    def deciding(self) -> Int[np.ndarray, " K"]:
        """The pair of each key with the largest share, by size."""
        return np.abs(self.shares).argmax(1)

    def summary(self, keys: int = 5) -> str:
        """Scores of some keys in words, a line for each."""
        order = range(len(self.keys))
        if self.weights is not None:
            order = np.argsort(-self.weights, kind="stable")
        count, pairs = self.shares.shape[1], self.deciding()
        return "\n".join(
            f"key {k}: score {self.shares[k].sum() + self.rest[k]:.2f}; pair {pairs[k]} "
            f"(dimensions {pairs[k]} and {pairs[k] + count}) adds the most, "
            f"{self.shares[k, pairs[k]]:.2f}"
            for k in list(order)[:keys]
        )


def rotary_pairs(record: AttentionRecord, layer: int, head: int, query: int) -> RotaryPairs:
    """Read the pairs of one query of one head."""
    if record.rotation is None or record.query is None or record.key is None:
        raise InputError(
            "This trace holds no rotation of queries and keys.\n"
            "Trace a model with rotary positions, such as a Llama, with "
            "capture=fa.Capture(weights=True, query=True, key=True)."
        )
    at = record.layers.index(choose([layer], record.layers, "layer")[0])
    h = record.heads.index(choose([head], record.heads, "head")[0])
    q, k = (np.asarray(a)[at, 0, :, h].astype(np.float32) for a in (record.query, record.key))
    if not 0 <= query < len(q):
        raise InputError(f"There is no query {query}.\nThere are queries 0 to {len(q) - 1}.")
    rotation = np.asarray(record.rotation)[at, 0].astype(np.float32)
    scale = q.shape[-1] ** -0.5 if record.scale is None else record.scale
    products = scale * q[query] * k
    pairs = rotation.shape[-1]
    weights = None
    if record.weights is not None and record.query_window is None and record.key_window is None:
        weights = np.asarray(record.weights)[at, 0, h, query]
        weights = weights.astype(np.float32) / (255 if weights.dtype == np.uint8 else 1)
    return RotaryPairs(
        before_rotation(q, rotation)[query],
        before_rotation(k, rotation),
        q[query],
        k,
        products[:, :pairs] + products[:, pairs : 2 * pairs],
        products[:, 2 * pairs :].sum(1),
        weights,
    )


def before_rotation(
    vectors: Float[np.ndarray, "*H S D"], rotation: Float[np.ndarray, "S 2 P"]
) -> Float[np.ndarray, "*H S D"]:
    """Queries or keys as they were before they were rotated.

    A factor on rotated vectors, which yarn and longrope have, is taken out as well.
    """
    cos, sin = rotation[:, 0], rotation[:, 1]
    count, size = cos.shape[-1], cos**2 + sin**2
    first, second = vectors[..., :count], vectors[..., count : 2 * count]
    rotated = ((first * cos + second * sin) / size, (second * cos - first * sin) / size)
    return np.concatenate([*rotated, vectors[..., 2 * count :]], -1)
