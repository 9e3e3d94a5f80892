# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Heads as points of a plane, as far apart as their attention is: multidimensional scaling.

Classical scaling (Torgerson 1952) gives a start, majorisation (SMACOF, de Leeuw 1977) lowers the
stress from there. There is no draw in it, and axes and signs are fixed, so that the same distances
give the same map. Distances are made in `head_similarity` and `head_pairs`.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import pdist, squareform

_TURNS, _ENOUGH = 300, 1e-9


class HeadMap(NamedTuple):
    """Coordinates of heads in the plane.

    Attributes:
        points: Of N heads, centred; the first axis has the largest spread.
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
    return HeadMap(_turned(points), best)


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


def _turned(points: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 2"]:
    """Along the axes of largest spread; the point furthest along each one is on its positive side.

    Of points equally far on both sides, the first one decides.
    """
    centred = points - points.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    projected = centred @ axes.T
    far = np.abs(projected)
    furthest = np.argmax(far >= far.max(0) * (1 - 1e-9), axis=0)
    signs = np.sign(projected[furthest, [0, 1]])
    return projected * np.where(signs == 0, 1, signs)
