# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Roles that heads took up or gave up between two encoders, for `flaxattn compare`.

Scores are read off the maps that are compared anyway; what roles are is in `flaxattn.measures`.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

from flaxattn.measures.role_changes import RoleChange, role_changes
from flaxattn.measures.role_tests import Roles, Test, find_roles
from flaxattn.measures.score_terms import ScoreOptions
from flaxattn.measures.scores import ScoreAccumulator, scores_of

if TYPE_CHECKING:
    from flaxattn.trace.trace import Trace

_ASKED = ScoreOptions(annotated=False)


class RolesOfBoth:
    """Scores of the heads of two models, taken in text by text.

    Args:
        test: How roles are found.
    """

    def __init__(self, test: Test) -> None:
        self._test = test
        self._tallies = ScoreAccumulator(), ScoreAccumulator()

    def add(self, first: "Trace", second: "Trace") -> None:
        """Take in what both saw of a text, if they are encoders.

        Args:
            first: With weights, of one text.
            second: Of the other model.
        """
        for tally, trace in zip(self._tallies, (first, second), strict=True):
            seen = None if trace.decoder is not None else trace.encoder
            if seen is not None and seen.weights is not None and trace.special is not None:
                tally.add(scores_of([trace], _ASKED))

    def found(self) -> tuple[Roles, Roles] | None:
        """Roles of both; None where nothing was taken in."""
        one, other = self._tallies
        if not one.moments or not other.moments:
            return None
        return find_roles(one, _ASKED, self._test), find_roles(other, _ASKED, self._test)

    def changes(self) -> list[RoleChange]:
        """Changes of every role in every layer; empty if no text was added."""
        found = self.found()
        if found is None:
            return []
        tables = ({n: role.found for n, role in roles.roles.items()} for roles in found)
        return role_changes(*tables, layers=found[0].layers)

    def facts(self) -> dict[str, Any]:
        """The test, changes and what to know before they are believed, ready for JSON."""
        found = self.found()
        return {
            "test": dataclasses.asdict(self._test),
            "changes": [dataclasses.asdict(change) for change in self.changes()],
            "warnings": [] if found is None else found[0].warnings(),
        }


def lines_of(changes: list[RoleChange]) -> list[str]:
    """A line for each role: heads by layer, before and after.

    Args:
        changes: Of every role and layer.
    """
    lines = []
    for role in dict.fromkeys(change.role for change in changes):
        own = sorted((c for c in changes if c.role == role), key=lambda change: change.layer)
        before, after = (
            " ".join(str(getattr(c, when)) for c in own) for when in ("before", "after")
        )
        gained, lost = (sum(len(getattr(c, what)) for c in own) for what in ("gained", "lost"))
        lines.append(f"{role}: heads by layer {before} -> {after}; {gained} gained, {lost} lost")
    return lines
