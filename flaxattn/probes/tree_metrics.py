# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Distances and depths in a tree over words, and the tree that distances tell.

What structural probes should say, of the tree itself and of a control task; which probe says it is
decided in `structural`.
"""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import minimum_spanning_tree

from flaxattn.probes.word_maps import ROOT


class TreeMetric(NamedTuple):
    """A tree as numbers.

    Attributes:
        distances: Edges on the way from each word to each other one.
        depths: Edges from the root to each word.
    """

    distances: Int[np.ndarray, "W W"]
    depths: Int[np.ndarray, " W"]

    def among(self, kept: Sequence[int]) -> "TreeMetric":
        """Restrict the metric to some words; the path between two of them may lead over others."""
        return TreeMetric(self.distances[np.ix_(kept, kept)], self.depths[kept])


def tree_metric(governors: Sequence[int]) -> TreeMetric:
    """Distances and depths of a tree. Cost: W²."""
    count = len(governors)
    below: list[list[int]] = [[] for _ in range(count + 1)]
    for word, governor in enumerate(governors):
        below[governor].append(word)
    (root,) = below[ROOT]
    distances, depths = np.zeros((count, count), np.int32), np.zeros(count, np.int32)
    order = [root]
    for governor in order:  # grows: a word comes after its governor
        for word in below[governor]:
            row = distances[governor, order] + 1
            distances[word, order] = distances[order, word] = row
            depths[word] = depths[governor] + 1
            order.append(word)
    return TreeMetric(distances, depths)


def control_metric(
    types: Sequence[tuple[int, ...]], punctuation: Bool[np.ndarray, " W"], seed: int = 0
) -> TreeMetric:
    """Metric of a random tree that depends on the words alone: our control for structural probes.

    The first word is the root, and the last one hangs on it; a type, that is, a word with the same
    tokens, hangs on the one or on the other, as was drawn for all sentences. Hewitt and Liang
    (2019) let a type attach to itself too, which no word of a tree can do.
    """
    places = np.flatnonzero(~punctuation)
    first, last = (int(places[0]), int(places[-1])) if len(places) else (0, len(types) - 1)
    governors = [ROOT] * len(types)
    for place, positions in enumerate(types):
        if place != first:
            drawn = zlib.crc32(repr((seed, positions)).encode()) % 2
            governors[place] = last if drawn and place != last else first
    return tree_metric(governors)


def chain_metric(count: int) -> TreeMetric:
    """Metric of a chain, each word hanging on the one before: a baseline without a model."""
    places = np.arange(count, dtype=np.int32)
    return TreeMetric(abs(places[:, None] - places), places)


def spanning_edges(
    distances: Float[np.ndarray, "W W"] | Int[np.ndarray, "W W"], counted: Bool[np.ndarray, " W"]
) -> set[tuple[int, int]]:
    """Edges of the tree over some words with the least sum of distances."""
    places = np.flatnonzero(counted)
    # SciPy takes 0 for no edge; one more on every edge leaves the least tree what it is.
    among = distances[np.ix_(places, places)].astype(np.float64) + 1
    edges = np.argwhere(minimum_spanning_tree(among).toarray() > 0)
    pairs = np.sort(places[edges], 1).tolist()
    return {(low, high) for low, high in pairs}
