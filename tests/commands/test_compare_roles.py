# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What `flaxattn compare` says of roles that heads took up, on maps whose roles are known."""

import json

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.commands.compare_roles import RolesOfBoth, lines_of
from flaxattn.measures.role_tests import Test

LENGTHS = (10, 11, 13, 10, 12, 14)


def trace(length, *, moved):
    """Two layers of two heads, uniform; where moved, head 1 of layer 1 looks at `[CLS]` only."""
    weights = np.full((2, 1, 2, length, length), 1 / length, np.float32)
    if moved:
        weights[1, 0, 1] = np.eye(length, dtype=np.float32)[0]
    tokens = ["[CLS]", *(f"w{n}" for n in range(length - 2)), "[SEP]"]
    special = np.isin(tokens, ("[CLS]", "[SEP]"))[None]
    return fa.Trace.from_arrays(weights, [tokens], special=special)


@pytest.fixture
def roles():
    found = RolesOfBoth(Test(tau=3))
    for length in LENGTHS:
        found.add(trace(length, moved=False), trace(length, moved=True))
    return found


def test_a_head_that_turned_to_the_delimiter_is_told(roles):
    changes = roles.changes()
    moved = {(c.role, c.layer, c.gained, c.lost) for c in changes if c.gained or c.lost}
    assert moved == {("cls", 1, (1,), ()), ("delimiter", 1, (1,), ())}
    lines = lines_of(changes)
    assert "cls: heads by layer 0 0 -> 0 1; 1 gained, 0 lost" in lines
    assert "local: heads by layer 0 0 -> 0 0; 0 gained, 0 lost" in lines
    told = json.loads(json.dumps(roles.facts()))
    assert told["test"]["tau"] == 3 and len(told["changes"]) == len(changes)


def test_lengths_that_allow_no_role_are_said(roles):
    assert any(
        "block: no text allows a score above 3" in told for told in roles.facts()["warnings"]
    )


def test_decoders_have_no_such_roles():
    found = RolesOfBoth(Test())
    weights = np.full((1, 1, 1, 3, 3), 1 / 3, np.float32)
    bare = fa.Trace.from_arrays(weights, [["a", "b", "c"]])
    found.add(bare, bare)
    assert found.changes() == [] and found.facts()["changes"] == []
