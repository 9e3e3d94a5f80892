# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Results of patching: the effect of every head or layer on every pair, intervals, tests, control.

Nothing is run here; `flaxattn.attribution.patching` makes the numbers.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.attribution.patch_task import PatchRequest
from flaxattn.corpus.texts import TextPair
from flaxattn.measures.significance import adjusted, bootstrap_interval, sign_flip_test
from flaxattn.trace.result_table import ResultTable, columns_of

LEVEL = 0.95
"""Confidence of intervals."""
DRAWS = 1000
"""Bootstrap samples of pairs."""
ALL_HEADS = -1
"""Number that stands for all heads of a layer together."""


@dataclasses.dataclass(frozen=True)
class JointControl:
    """Effect of all causal heads patched together, beside as many random ones.

    Attributes:
        heads: Number of causal units that were patched together.
        effect: Their mean effect over pairs.
        random: Mean effects of so many units drawn at random, one for each draw.
        p: Share of draws with at least as large an effect, the causal units counted as one more.
    """

    heads: int
    effect: float
    random: Float[np.ndarray, " R"]
    p: float


@dataclasses.dataclass(frozen=True)
class Approximation:
    """Agreement of first-order effects with effects of patching, over units and pairs.

    Attributes:
        units: Number of units that were patched for comparison.
        correlation: Pearson's, over units and pairs; nan where one does not vary.
        error: Mean absolute difference, in units of the metric.
        scale: Mean absolute effect of patching.
        patched: Mean effect of patching each unit; nan for those that were not patched.
        errors: Mean absolute difference of each unit over pairs; nan likewise.
    """

    units: int
    correlation: float
    error: float
    scale: float
    patched: Float[np.ndarray, "L H P"]
    errors: Float[np.ndarray, "L H P"]


@dataclasses.dataclass(frozen=True)
class UnitEffects:
    """Effects of the units of one side: heads or layers, by groups of positions.

    Attributes:
        side: `encoder`, `decoder` or `cross`.
        kind: "" but for mediation, which has "indirect" and "direct".
        each: Metric of the patched run minus that of the run that was patched, by pair; H is 1
            where heads of a layer were patched together.
        means: Mean over pairs.
        low: Lower end of the bootstrap interval over pairs.
        high: Its upper end.
        p: P-value of a two-sided sign-flip test over pairs.
        p_corrected: The same, corrected for all units of the side.
        causal: Where the corrected one is at most alpha.
        control: The causal units together; None where none or all are causal, where it was not
            requested, and of direct effects, which are those of everything but the unit.
        approximation: Approximation of the method attribution.
    """

    side: str
    kind: str
    each: Float[np.ndarray, "L H P T"]
    means: Float[np.ndarray, "L H P"]
    low: Float[np.ndarray, "L H P"]
    high: Float[np.ndarray, "L H P"]
    p: Float[np.ndarray, "L H P"]
    p_corrected: Float[np.ndarray, "L H P"]
    causal: Bool[np.ndarray, "L H P"]
    control: JointControl | None = None
    approximation: Approximation | None = None

    @classmethod
    def of(
        cls,
        side: str,
        kind: str,
        each: Float[np.ndarray, "L H P T"],
        alpha: float,
        correction: str,
        seed: int,
    ) -> "UnitEffects":
        """Effects with their intervals and tests."""
        pairs = np.moveaxis(np.asarray(each, np.float64), -1, 0)
        low, high = bootstrap_interval(pairs, LEVEL, DRAWS, seed)
        means = pairs.mean(0)
        p = sign_flip_test(pairs, seed)
        corrected = adjusted(p, correction)
        return cls(side, kind, each, means, low, high, p, corrected, corrected <= alpha)


@dataclasses.dataclass(frozen=True, repr=False)
class PatchReport(ResultTable):
    """Effects of patching a model on pairs of texts.

    Attributes:
        request: The request.
        model: Name of the model.
        pairs: The pairs, in order.
        positions: Names of the groups of positions.
        clean: Metric of the clean run of each pair.
        corrupted: Metric of the corrupted run.
        effects: By side, and kind where there are several.
        alpha: Largest corrected p-value of a causal unit.
        correction: Name of the correction for many tests.
        seed: Random seed of bootstrap, checks and controls.
    """

    request: PatchRequest
    model: str
    pairs: Sequence[TextPair]
    positions: tuple[str, ...]
    clean: Float[np.ndarray, " T"]
    corrupted: Float[np.ndarray, " T"]
    effects: tuple[UnitEffects, ...]
    alpha: float
    correction: str
    seed: int

    @property
    def total(self) -> float:
        """Mean metric of the run that values come from minus that of the run they go into."""
        gap = float(np.mean(self.clean - self.corrupted))
        return gap if self.request.direction == "denoise" else -gap

    def shares(self, effects: UnitEffects) -> Float[np.ndarray, "L H P"]:
        """Mean effects over the mean difference of the two runs; nan where there is none.

        Args:
            effects: Those of one side.
        """
        return effects.means / self.total if self.total else np.full(effects.means.shape, np.nan)

    def name(self, effects: UnitEffects) -> str:
        """Kind of the effects of a side: that of mediation, or else the method.

        Args:
            effects: Those of one side.
        """
        return effects.kind or self.request.method

    def to_columns(self) -> dict[str, list[Any]]:
        """A row for each unit that was patched, as `rows` gives them."""
        return columns_of(list(self.rows()))

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each unit, the largest effect of a side first; by layer, head is -1.

        The effect of the causal units together and its p-value against random units are in the
        rows of these; effects of patching and the error of a first-order effect, in those of the
        units that were patched for comparison. They are nan elsewhere.
        """
        for effects in self.effects:
            shares = self.shares(effects)
            order = np.argsort(-np.abs(effects.means), axis=None, kind="stable")
            for place in zip(*np.unravel_index(order, effects.means.shape), strict=True):
                layer, head, group = map(int, place)
                numbers = {
                    "effect": effects.means,
                    "low": effects.low,
                    "high": effects.high,
                    "share": shares,
                    "p": effects.p,
                    "p_corrected": effects.p_corrected,
                }
                if (first_order := effects.approximation) is not None:
                    numbers["patched"] = first_order.patched
                    numbers["approximation_error"] = first_order.errors
                control = effects.control if effects.causal[place] else None
                yield {
                    "side": effects.side,
                    "kind": self.name(effects),
                    "layer": layer,
                    "head": head if self.request.by == "head" else ALL_HEADS,
                    "positions": self.positions[group],
                    **{name: float(values[place]) for name, values in numbers.items()},
                    "causal": bool(effects.causal[place]),
                    "joint_effect": math.nan if control is None else control.effect,
                    "joint_p": math.nan if control is None else control.p,
                }

    def pair_columns(self) -> dict[str, np.ndarray]:
        """Columns of a table with a row for each unit and pair, in the order of sides and units."""
        parts: list[dict[str, np.ndarray]] = []
        for effects in self.effects:
            layer, head, group, pair = (grid.ravel() for grid in np.indices(effects.each.shape))
            parts.append(
                {
                    "pair": pair,
                    "side": np.full(pair.shape, effects.side),
                    "kind": np.full(pair.shape, self.name(effects)),
                    "layer": layer,
                    "head": head if self.request.by == "head" else np.full_like(head, ALL_HEADS),
                    "positions": np.array(self.positions)[group],
                    "effect": effects.each.ravel(),
                }
            )
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
