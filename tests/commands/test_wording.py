# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Words and tables that people read: what they say is not mistaken for something else."""

import io
import types

import numpy as np
import pytest
from rich.console import Console

from flaxattn.commands import roles, stats
from flaxattn.measures.specs import ScoreSpec


def test_roles_of_a_model_before_training_are_named() -> None:
    by_role = {"block_entropy": 72, "local": 0}
    before = {"found": 72, "tests": 1152, "by_role": by_role}
    (line,) = roles.control_notes({"untrained": before, "other_trees": None, "texts": 40})
    assert line.startswith(
        "by chance: the model before training has 72 roles in 1,152 tests on 40 texts: "
        "72 block_entropy (its score is multiplied by the entropy"
    )
    assert "local" not in line


def test_no_share_is_over_all_attention() -> None:
    assert [roles._mass(share) for share in (0.5, 1.0, 2.6)] == ["50%", "100%", "over 100%"]


@pytest.mark.parametrize(
    "shares", [(*stats._SHOWN, "first"), (*stats._SHOWN[:3], *stats._OTHER_SIDES)]
)
def test_the_table_of_stats_fits_into_80_columns(shares: tuple[str, ...]) -> None:
    one = types.SimpleNamespace(mean=np.full((1, 1), 1.0))
    moments = {ScoreSpec("mean", name): one for name in (*shares, "entropy", "distance")}
    tally = types.SimpleNamespace(layers=(11,), heads=(11,), moments=moments)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(stats._table(tally))  # type: ignore[arg-type]
    text = console.export_text()
    assert "…" not in text and "100%" in text and "11.11" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    names = [stats._HEADINGS.get(name, name) for name in shares]
    assert ["head", *names, "entropy", "distance"] in [line.split() for line in text.splitlines()]


def test_heads_of_a_pattern_are_listed_by_pattern() -> None:
    labels = [(0, 2, "previous token"), (0, 2, "other tokens"), (1, 0, "previous token")]
    rows = [dict(zip(("layer", "head", "label"), row, strict=True)) for row in labels]
    assert stats._patterns(rows) == ["pattern previous token: 0.2 1.0", "pattern other tokens: 0.2"]
