# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Changes of heads between two models: numbers on paired texts, intervals, and names.

Numbers of every head on each of many texts are kept for bootstrap intervals of their means, with
the rule by which a change is claimed, also in words. `compare_heads` and `role_changes` decide
which numbers are compared.
"""

import dataclasses
from collections.abc import Mapping
from typing import Self

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from flaxattn.errors import InputError
from flaxattn.measures.head_measures import MAJORITY
from flaxattn.measures.significance import CORRECTIONS, adjusted, bootstrap_interval
from flaxattn.pipeline.online_moments import Moments

LEAST_DIVERGENCE = 0.01
"""Nats that the interval of a head's divergence must exceed for a change to be claimed."""

_KEPT = 20_000  # texts whose numbers stay in memory
_NAMES: dict[str, str] = dict(
    zip(
        CORRECTIONS,
        (
            "without correction",
            "Bonferroni’s correction",
            "Holm’s correction",
            "Benjamini and Hochberg’s correction",
        ),
        strict=True,
    )
)


@dataclasses.dataclass(frozen=True)
class ClaimRule:
    """Conditions on which a change between two models is claimed.

    Attributes:
        alpha: Level of the tests; intervals hold 1 - alpha.
        correction: For the number of tests: `none`, `bonferroni` or `bh`.
        draws: Number of draws of the bootstrap.
        seed: Seed of the draws.

    Raises:
        InputError: For an unknown correction or an alpha outside 0 to 1.
    """

    alpha: float = 0.05
    correction: str = "bh"
    draws: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise InputError(f"alpha is {self.alpha}, expected a number between 0 and 1.")
        if self.correction not in CORRECTIONS:
            raise InputError(
                f"correction {self.correction!r} is unknown.\n"
                f"Choose one of {', '.join(CORRECTIONS)}."
            )

    def __str__(self) -> str:
        """The rule in words, for reports and pages."""
        level = f"{100 * (1 - self.alpha):g} %"
        return (
            f"A head is said to have changed where the {level} bootstrap interval of its "
            f"divergence over the texts ({self.draws:,} draws, seed {self.seed}) lies above "
            f"{LEAST_DIVERGENCE} nats and a one-sided t-test agrees at {self.alpha:g}, with "
            f"{_NAMES[self.correction]} for the number of heads. Of such a head, a role is said to "
            f"have changed where the {level} interval of the paired difference of its share or "
            "score excludes 0 and the paired t-test agrees, corrected for heads and roles. "
            "With a single text nothing is claimed."
        )


class PairedTexts:
    """Numbers of every head, text by text.

    Memory: one number for each head and text, of 20,000 texts at most. With more texts none is
    kept, and intervals are those of the t distribution.
    """

    def __init__(self) -> None:
        self._values: list[Float[np.ndarray, "L H"]] = []
        self._count = 0

    def add(self, values: Float[np.ndarray, "L H"]) -> None:
        """Add a text."""
        self._values.append(np.asarray(values, np.float32))
        self._count += 1
        self._drop()

    def merge(self, other: Self) -> None:
        """Add all texts of another one."""
        self._values.extend(other._values)
        self._count += other._count
        self._drop()

    def _drop(self) -> None:
        if self._count > _KEPT:
            self._values.clear()

    def interval(
        self, moments: Moments, rule: ClaimRule
    ) -> tuple[Float[np.ndarray, "L H"], Float[np.ndarray, "L H"]]:
        """Interval of the mean over texts, whatever the order of the texts.

        Returns:
            Lower and upper end; nan where fewer than two texts have a number.
        """
        if self._count > _KEPT:
            return _t_interval(moments, rule.alpha)
        shape = moments.mean.shape
        flat = np.sort(np.stack(self._values).astype(np.float64).reshape(self._count, -1), axis=0)
        counts = (~np.isnan(flat)).sum(0)
        ends = np.full((2, flat.shape[1]), np.nan)
        for count in np.unique(counts):  # sorted, what is known comes first
            some = counts == count
            parts = flat[:count, some], 1 - rule.alpha, rule.draws, rule.seed
            ends[:, some] = bootstrap_interval(*parts)
        return ends[0].reshape(shape), ends[1].reshape(shape)


def excludes_zero(
    low: Float[np.ndarray, "*shape"], high: Float[np.ndarray, "*shape"]
) -> Bool[np.ndarray, "*shape"]:
    """Return whether intervals lie on one side of 0."""
    return (low > 0) | (high < 0)


def _t_interval(moments: Moments, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean plus and minus its standard error times the quantile of the t distribution."""
    count = np.asarray(moments.counts, np.float64)
    freedom = np.maximum(count - 1, 1)
    error = np.sqrt(np.maximum(moments.m2, 0) / freedom / np.maximum(count, 1))
    reach = stats.t.ppf(1 - alpha / 2, freedom) * error
    few = count < 2
    return (
        np.where(few, np.nan, moments.mean - reach),
        np.where(few, np.nan, moments.mean + reach),
    )


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
        cosine: Cosine of the flattened maps, mean over texts.
        changes: Second minus first of every measure, mean over texts; nan if it is not known.
        p: P-value of the paired two-sided t-test of each change, corrected.
        significant: Measures whose corrected p is below alpha.
        texts: Number of texts that the head was compared on.
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
