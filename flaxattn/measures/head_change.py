# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The change of one head between two models: its numbers, its rank, and names of what heads do.

`flaxattn.measures.compare_heads` fills it in.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from flaxattn.measures.head_measures import MAJORITY
from flaxattn.measures.significance import adjusted

ALIKE = ("divergence", "cosine")
ROLES = {
    "next": "next token",
    "previous": "previous token",
    "own": "own token",
    "delimiter": "delimiters",
    "first": "first token",
}
"""Names of the shares of which one that is above one half names what a head does."""


@dataclasses.dataclass(frozen=True)
class HeadChange:
    """Difference of one head of the second model from that of the first.

    Attributes:
        side: `encoder`, `decoder` or `cross`.
        layer: Number of the layer.
        head: Number of the head.
        divergence: Jensen-Shannon divergence in nats, mean over queries and then over texts; from
            0 to log 2; nan, as the cosine, where statistics were compared and no maps.
        divergence_error: Standard error of that mean over texts; nan for a single text.
        interval: Bootstrap interval of that mean over texts; nan for a single text.
        changed: Whether a change is claimed, by `ClaimRule`.
        roles: What the head does in the first model and in the second, over all texts; `mixed`
            where nothing gets more than half of its attention, empty where it is not known.
        role_changed: Whether a change of that is claimed, by `ClaimRule`.
        cosine: Of the flattened maps, mean over texts.
        changes: Second minus first of every measure, mean over texts; nan if it is not known.
        p: Of the paired two-sided t-test of each change, corrected.
        significant: Measures whose corrected p is below alpha.
        texts: How many texts the head was compared on.
    """

    side: str
    layer: int
    head: int
    divergence: float
    divergence_error: float
    interval: tuple[float, float]
    changed: bool
    roles: tuple[str, str]
    role_changed: bool
    cosine: float
    changes: Mapping[str, float]
    p: Mapping[str, float]
    significant: tuple[str, ...]
    texts: int


def corrected(
    p: Mapping[tuple[str, str], np.ndarray], correction: str
) -> dict[tuple[str, str], np.ndarray]:
    """P-values of several tables, corrected for all of them together."""
    if not p:
        return {}
    flat = adjusted(np.concatenate([values.ravel() for values in p.values()]), correction)
    parts = np.split(flat, np.cumsum([values.size for values in p.values()])[:-1])
    return {k: part.reshape(p[k].shape) for k, part in zip(p, parts, strict=True)}


def named_role(shares: Mapping[str, float]) -> str:
    """Name of what gets more than half of the attention, or `mixed`."""
    best = max(shares, key=lambda name: shares[name])
    return ROLES[best] if shares[best] > MAJORITY else "mixed"


def rank(change: HeadChange) -> tuple[bool, float, float]:
    """Sort key: largest change first, unknown ones last, then the smallest p-value."""
    surest = min((p for p in change.p.values() if not np.isnan(p)), default=1.0)
    return bool(np.isnan(change.divergence)), -np.nan_to_num(change.divergence), surest
