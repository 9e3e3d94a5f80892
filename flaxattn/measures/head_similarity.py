# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Similarity of the heads of a model: distances between their attention, groups, and a map.

Jensen-Shannon distances as in Clark et al. (2019), section 6; `MeanDistances` takes several texts.
The map is multidimensional scaling: classical scaling (Torgerson 1952) gives a start, majorisation
(SMACOF, de Leeuw 1977) lowers the stress from there. There is no draw in it, and axes and signs are
fixed, so that the same distances give the same map. Two traces are compared elsewhere.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import pdist, squareform

from flaxattn.kernels.dense import entropies

# So many terms of entropies are summed at most; of longer texts, queries are taken evenly spaced.
TERMS = 60_000_000
_ORDERED = 400  # heads up to which leaves are put in the best order, which takes their cube


@dataclasses.dataclass(frozen=True)
class Likeness:
    """N heads, in any order, and how far apart they are.

    Attributes:
        distances: Condensed as scipy has it: 0.1, 0.2, …, 1.2, …; between 0 and 1.
        order: Heads in an order that has like ones side by side.
        groups: Group of each head, from 0, numbered as they appear in that order.
    """

    distances: Float[np.ndarray, " P"]
    order: Int[np.ndarray, " N"]
    groups: Int[np.ndarray, " N"]


def head_distances(weights: Float[np.ndarray, "N Q K"]) -> Float[np.ndarray, " P"]:
    """Distances between heads: the root of the mean, over queries, of their divergence in bits.

    0 where two heads attend alike, 1 where no query has a key that both attend to. It is a metric.
    Takes N² Q K / 2 terms; where these are more than `TERMS`, fewer queries count, evenly spaced.
    """
    count, queries, keys = weights.shape
    kept = int(np.clip(2 * TERMS // max(1, count * count * keys), 1, queries))
    rows = weights[:, np.linspace(0, queries - 1, kept).astype(int)].astype(np.float32)
    own = entropies(rows)
    parts = [
        entropies((rows[i] + rows[i + 1 :]) / 2) - (own[i] + own[i + 1 :]) / 2
        for i in range(count - 1)
    ]
    return distances_of(np.concatenate([part.mean(-1) for part in parts] or [np.zeros(0)]))


def distances_of(divergences: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The metric between 0 and 1 that mean divergences give: the root of what they are in bits."""
    return np.sqrt(np.clip(np.asarray(divergences, np.float64) / np.log(2), 0, 1))


def head_likeness(weights: Float[np.ndarray, "N Q K"], groups: int = 8) -> Likeness:
    """Order heads so that like ones are side by side, and put them into groups.

    By average linkage over `head_distances`.
    """
    return likeness_of(head_distances(weights), len(weights), groups)


def likeness_of(distances: Float[np.ndarray, " P"], count: int, groups: int = 8) -> Likeness:
    """Order and group heads whose distances are known."""
    if count < 2:
        return Likeness(distances, np.zeros(count, int), np.zeros(count, int))
    tree = linkage(distances, "average", optimal_ordering=count <= _ORDERED)
    order = leaves_list(tree)
    found = fcluster(tree, groups, "maxclust")
    names = {group: number for number, group in enumerate(dict.fromkeys(found[order].tolist()))}
    return Likeness(distances, order, np.array([names[group] for group in found.tolist()]))


class MeanDistances:
    """Distances between all heads over several texts, taken in one at a time.

    A mean divergence counts each text once. Texts are taken until their terms reach `TERMS`, the
    first one in any case, so that the cost is bounded; later ones are passed over.

    Attributes:
        texts: Number of texts taken in.
    """

    def __init__(self) -> None:
        self.texts = 0
        self._terms = 0
        self._sum: Float[np.ndarray, " P"] = np.zeros(0)
        self._known: Int[np.ndarray, " P"] = np.zeros(0, int)

    def add(self, weights: Float[np.ndarray, "N Q K"]) -> None:
        """Add a text, unless it would cost too much."""
        count, queries, keys = weights.shape
        terms = count * count * queries * keys // 2
        if self.texts and self._terms + terms > TERMS:
            return
        squares = head_distances(weights) ** 2
        known = np.isfinite(squares)
        self._sum = np.where(known, squares, 0) + (self._sum if self.texts else 0)
        self._known = known + (self._known if self.texts else 0)
        self._terms += terms
        self.texts += 1

    @property
    def distances(self) -> Float[np.ndarray, " P"]:
        """All pairs, condensed as scipy has it; nan where two heads have no text in common."""
        mean = self._sum / np.maximum(self._known, 1)
        return np.sqrt(np.where(self._known > 0, mean, np.nan))


def nearest_heads(
    distances: Float[np.ndarray, " P"], count: int, most: int
) -> list[list[tuple[int, float]]]:
    """List for each head the others that are nearest to it, the nearest first."""
    square = np.full((count, count), np.nan)
    square[np.triu_indices(count, 1)] = distances
    square = np.fmax(square, square.T)
    orders = np.argsort(square, axis=1, kind="stable")  # nan comes last
    return [
        [(int(j), float(row[j])) for j in order[:most] if not np.isnan(row[j])]
        for row, order in zip(square, orders, strict=True)
    ]


_TURNS, _ENOUGH = 300, 1e-9


class HeadMap(NamedTuple):
    """Coordinates of heads in the plane.

    Attributes:
        points: Points of N heads, centred; the first axis has the largest spread.
        stress: Kruskal's stress-1: 0 where the plane shows all distances as they are; above 0.2 a
            map is commonly called poor.
    """

    points: Float[np.ndarray, "N 2"]
    stress: float


def head_map(distances: Float[np.ndarray, " P"]) -> HeadMap:
    """Points of a plane whose distances are as close to the given ones as can be found.

    Costs N³ operations, and N² for each of at most 300 iterations.
    """
    wanted = squareform(np.asarray(distances, np.float64))
    if len(distances) == 0:
        return HeadMap(np.zeros((1, 2)), 0.0)
    points = _classical(wanted)
    best = stress(distances, points)
    for _ in range(_TURNS):
        moved = _majorised(wanted, points)
        now = stress(distances, moved)
        if now > best - _ENOUGH:
            break
        points, best = moved, now
    return HeadMap(_oriented(points), best)


def stress(distances: Float[np.ndarray, " P"], points: Float[np.ndarray, "N 2"]) -> float:
    """Kruskal's stress-1: the root of squared errors of distances over their squares."""
    shown = pdist(points)
    scale = float((shown**2).sum())
    return float(np.sqrt(((shown - distances) ** 2).sum() / scale)) if scale else 0.0


def _classical(wanted: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N 2"]:
    """The two largest axes of the inner products that distances imply."""
    count = len(wanted)
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-centre @ wanted**2 @ centre / 2)
    top = np.argsort(-values)[:2]
    points = np.zeros((count, 2))
    points[:, : len(top)] = vectors[:, top] * np.sqrt(np.maximum(values[top], 0))
    return points


def _majorised(
    wanted: Float[np.ndarray, "N N"], points: Float[np.ndarray, "N 2"]
) -> Float[np.ndarray, "N 2"]:
    """Guttman's transform: points whose raw stress is at most that of these."""
    shown = squareform(pdist(points))
    ratio = np.divide(wanted, shown, out=np.zeros_like(wanted), where=shown > 0)
    return (ratio.sum(1)[:, None] * points - ratio @ points) / len(wanted)


def _oriented(points: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 2"]:
    """Along the axes of largest spread; the point furthest along each one is on its positive side.

    The first of several points that are equally far decides.
    """
    centred = points - points.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    projected = centred @ axes.T
    far = np.abs(projected)
    furthest = np.argmax(far >= far.max(0) * (1 - 1e-9), axis=0)
    signs = np.sign(projected[furthest, [0, 1]])
    return projected * np.where(signs == 0, 1, signs)
