# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Changes of roles between two models, such as before and after fine-tuning."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.errors import InputError
from flaxattn.measures.head_change import (
    ClaimRule,
    HeadChange,
    PairedTexts,
    corrected,
    excludes_zero,
)
from flaxattn.measures.role_tests import Roles, Test, find_roles
from flaxattn.measures.scores import ScoreAccumulator, Scores, moments_of, scores_of
from flaxattn.measures.significance import paired_test
from flaxattn.measures.specs import ScoreOptions
from flaxattn.pipeline.online_moments import Moments, merged
from flaxattn.trace.trace import Trace

_SCORES = ScoreOptions(annotated=False)
_COUNTED = ("gained", "lost", "unsupported")


@dataclasses.dataclass(frozen=True)
class RoleChange:
    """Change of one role in one layer.

    Attributes:
        role: Name of the role.
        layer: Number of the layer.
        before: Number of its heads that had the role.
        after: Number of heads that have it.
        gained: Heads that have it and had it not.
        lost: Heads that had it and have it not.
        unsupported: Heads that have it in one of the two only, where the difference between the
            two supports no claim; `gained` and `lost` leave them out.
    """

    role: str
    layer: int
    before: int
    after: int
    gained: tuple[int, ...]
    lost: tuple[int, ...]
    unsupported: tuple[int, ...] = ()


def role_changes(
    before: Mapping[str, Bool[np.ndarray, "L H"]],
    after: Mapping[str, Bool[np.ndarray, "L H"]],
    layers: Iterable[int] | None = None,
    supported: Mapping[str, Bool[np.ndarray, "L H"]] | None = None,
) -> list[RoleChange]:
    """Changes of roles, the layers and roles with most changes first.

    Args:
        before: Whether each head has each role, in the first model.
        after: In the second: the same roles and heads.
        layers: Numbers of the layers; default 0, 1, ….
        supported: Whether the difference between the two supports a claim, by role; default it
            does everywhere.

    Returns:
        An entry for every role and layer.

    Raises:
        InputError: If roles or shapes differ.
    """
    if set(before) != set(after):
        differ = ", ".join(sorted(set(before) ^ set(after)))
        raise InputError(f"Only one of the tables has {differ}.\nFind the same roles in both.")
    found = []
    for role, had in before.items():
        old, new = np.asarray(had, bool), np.asarray(after[role], bool)
        numbers = list(range(len(old)) if layers is None else layers)
        if old.shape != new.shape or old.ndim != 2 or len(numbers) != len(old):
            raise InputError(
                f"{role}: tables of shape {list(old.shape)} and {list(new.shape)} for "
                f"{len(numbers)} layers.\nExpected [L, H] both."
            )
        sure = np.ones_like(old) if supported is None else np.asarray(supported[role], bool)
        for number, x, y, z in zip(numbers, old, new, sure, strict=True):
            parts = (y & ~x & z, x & ~y & z, (x ^ y) & ~z)
            heads = [tuple(np.flatnonzero(row).tolist()) for row in parts]
            found.append(RoleChange(role, number, int(x.sum()), int(y.sum()), *heads))
    return sorted(found, key=lambda change: -len(change.gained) - len(change.lost))


@dataclasses.dataclass(frozen=True)
class RoleDifference:
    """A role that the tests find on a head in one of two models only.

    Attributes:
        role: Name of the role.
        layer: Number of the layer.
        head: Number of the head.
        before: Mean score in the first model.
        after: In the second.
        interval: Bootstrap interval of the mean of the paired differences.
        p: P-value of the paired t-test, corrected for heads and roles.
        claimed: Whether a change is claimed.
    """

    role: str
    layer: int
    head: int
    before: float
    after: float
    interval: tuple[float, float]
    p: float
    claimed: bool


class RolesOfBoth:
    """Scores of the heads of two models, added text by text.

    Memory: a few numbers per head and role, and for intervals one per text, of 20,000 at most.

    Args:
        test: How roles are found.
        rule: How changes are claimed; default at the level and with the correction of the test.
    """

    def __init__(self, test: Test, rule: ClaimRule | None = None) -> None:
        self._test = test
        self._rule = rule or ClaimRule(test.alpha, test.correction)
        self._tallies = ScoreAccumulator(), ScoreAccumulator()
        self._texts: dict[str, PairedTexts] = {}
        self._moments: dict[str, Moments] = {}

    def add(self, first: Trace, second: Trace) -> dict[str, Float[np.ndarray, "L H"]]:
        """Add the attention of both models to a text, if they are encoders."""
        found: list[Scores] = []
        for tally, trace in zip(self._tallies, (first, second), strict=True):
            record = None if trace.decoder is not None else trace.encoder
            if record is not None and record.weights is not None and trace.special is not None:
                found.append(scores_of([trace], _SCORES))
                tally.add(found[-1])
        if len(found) < 2:
            return {}
        one, other = (scores.values for scores in found)
        differences = {
            column.name: np.subtract(other[column], one[column], dtype=np.float64)
            for column in one
            if column.kind == "score" and column in other
        }
        for name, values in differences.items():
            self._texts.setdefault(name, PairedTexts()).add(values[0])
            moments, before = moments_of(values), self._moments.get(name)
            self._moments[name] = moments if before is None else merged(before, moments)
        return {name: values[0] for name, values in differences.items()}

    @property
    def names(self) -> list[str]:
        """Names of the roles that were compared."""
        return list(self._moments)

    def table(self, name: str) -> Float[np.ndarray, "L H"]:
        """Mean over texts of second less first of the score of a role."""
        return self._moments[name].mean

    def found(self) -> tuple[Roles, Roles] | None:
        """Roles of both; None where nothing was taken in."""
        one, other = self._tallies
        if not one.moments or not other.moments:
            return None
        return find_roles(one, _SCORES, self._test), find_roles(other, _SCORES, self._test)

    def summary(self, heads: Sequence[HeadChange]) -> "RoleSummary":
        """Changes of every role in every layer, and what they rest on."""
        found = self.found()
        if found is None:
            return RoleSummary(self._test, [], [], [])
        layers, numbers = found[0].layers, found[0].heads
        changed = np.zeros((len(layers), len(numbers)), bool)
        for head in heads:
            if head.side == "encoder":
                changed[layers.index(head.layer), numbers.index(head.head)] = head.changed
        tests = {("", n): paired_test(m)[1] for n, m in self._moments.items()}
        p = {name: table for (_, name), table in corrected(tests, self._rule.correction).items()}
        ends = {n: kept.interval(self._moments[n], self._rule) for n, kept in self._texts.items()}
        claimed = {
            name: changed & excludes_zero(*ends[name]) & (p[name] < self._rule.alpha) for name in p
        }
        tables = [{n: role.found for n, role in roles.roles.items()} for roles in found]
        changes = role_changes(tables[0], tables[1], layers, claimed)
        differences = [
            RoleDifference(
                name,
                layers[i],
                numbers[j],
                float(found[0].roles[name].score[i, j]),
                float(found[1].roles[name].score[i, j]),
                (float(ends[name][0][i, j]), float(ends[name][1][i, j])),
                float(p[name][i, j]),
                bool(claimed[name][i, j]),
            )
            for name in tables[0]
            for i, j in np.argwhere(tables[0][name] ^ tables[1][name]).tolist()
        ]
        return RoleSummary(self._test, changes, differences, found[0].warnings())


@dataclasses.dataclass(frozen=True)
class RoleSummary:
    """Changes of roles between two models.

    Attributes:
        test: How roles were found.
        changes: Changes of every role in every layer; empty if no text was added.
        differences: Roles that the tests find in one of the two models only.
        warnings: To be read before the counts are believed.
    """

    test: Test
    changes: Sequence[RoleChange]
    differences: Sequence[RoleDifference]
    warnings: Sequence[str]

    def facts(self) -> dict[str, Any]:
        """All of them, ready for JSON."""
        return {
            "test": dataclasses.asdict(self.test),
            "changes": [dataclasses.asdict(change) for change in self.changes],
            "differences": [dataclasses.asdict(row) for row in self.differences],
            "warnings": list(self.warnings),
        }


def role_lines(changes: Sequence[RoleChange]) -> list[str]:
    """Describe each role in a line: heads by layer, before and after."""
    lines = []
    for role in dict.fromkeys(change.role for change in changes):
        own = sorted((c for c in changes if c.role == role), key=lambda change: change.layer)
        before, after = (
            " ".join(str(getattr(c, when)) for c in own) for when in ("before", "after")
        )
        counts = {what: sum(len(getattr(c, what)) for c in own) for what in _COUNTED}
        message = ", ".join(f"{n} {what}" for what, n in counts.items() if n or what != _COUNTED[2])
        lines.append(f"{role}: heads by layer {before} -> {after}; {message}")
    return lines
