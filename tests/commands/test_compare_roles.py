# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Roles that heads took up, as `fa.compare` finds them on maps whose roles are known."""

import json

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.measures.compare_heads import Comparison, RolesOfBoth, role_lines
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


def summary_of(pairs):
    """Roles that heads took up or gave up over some pairs of traces."""
    found, comparison = RolesOfBoth(Test(tau=3)), Comparison()
    for one, other in pairs:
        found.add(one, other)
        comparison.add(one, other)
    return found.summary(comparison.changes())


@pytest.fixture
def roles():
    return summary_of((trace(n, moved=False), trace(n, moved=True)) for n in LENGTHS)


def test_a_head_that_turned_to_the_delimiter_is_reported(roles):
    changes = roles.changes
    moved = {(c.role, c.layer, c.gained, c.lost) for c in changes if c.gained or c.lost}
    assert moved == {("cls", 1, (1,), ()), ("delimiter", 1, (1,), ())}
    lines = role_lines(changes)
    assert "cls: heads by layer 0 0 -> 0 1; 1 gained, 0 lost" in lines
    assert "local: heads by layer 0 0 -> 0 0; 0 gained, 0 lost" in lines
    facts = json.loads(json.dumps(roles.facts()))
    assert facts["test"]["tau"] == 3 and len(facts["changes"]) == len(changes)
    rows = {row["role"]: row for row in facts["differences"]}
    assert rows.keys() == {"cls", "delimiter"} and all(row["claimed"] for row in rows.values())
    apart = [n - 1 for n in LENGTHS]  # all attention on one key, less 1 for uniform
    assert rows["cls"]["after"] - rows["cls"]["before"] == pytest.approx(np.mean(apart), rel=1e-5)
    low, high = rows["cls"]["interval"]
    assert min(apart) <= low < np.mean(apart) < high <= max(apart)


def test_a_role_that_the_tests_find_in_one_model_only_need_not_have_changed():
    """A score just below tau before and just above it after, on all but alike maps."""

    def local(length, score):
        weights = np.full((1, 1, 1, length, length), 1 / length, np.float32)
        weights[..., 0] = score / length
        weights[..., 1:] = (1 - score / length) / (length - 1)
        special = np.arange(length)[None] == 0
        tokens = ["[CLS]", *(f"w{n}" for n in range(length - 1))]
        return fa.Trace.from_arrays(weights, [tokens], special=special)

    wobble = np.random.default_rng(0).normal(0, 0.001, (2, len(LENGTHS)))
    alike = summary_of(
        (local(n, 2.99 + a), local(n, 3.01 + b)) for n, a, b in zip(LENGTHS, *wobble, strict=True)
    )
    rows = {row.role: row for row in alike.differences}
    assert {"cls", "delimiter"} <= rows.keys()
    assert rows["cls"].interval[0] > 0, "the scores do differ, the attention hardly does"
    assert not any(row.claimed for row in rows.values())
    assert not any(change.gained or change.lost for change in alike.changes)
    assert any(change.unsupported == (0,) for change in alike.changes)
    assert "cls: heads by layer 0 -> 1; 0 gained, 0 lost, 1 unsupported" in role_lines(
        alike.changes
    )


def test_a_role_that_was_taken_up_is_claimed_on_the_page_with_its_texts():
    pairs = [(trace(n, moved=False), trace(n, moved=True)) for n in LENGTHS]
    report = fa.compare(*zip(*pairs, strict=True), page=fa.PageOptions(evidence=2))
    claims = report.facts["evidence"]["claims"]
    by_name = {claim["name"]: claim for claim in claims}
    assert {(c["layer"], c["head"]) for c in claims} == {(1, 1)}, "no other head changed"
    role = by_name["role: cls"]
    rows = report.facts["roles"]["differences"]
    row = next(row for row in rows if row["role"] == "cls")
    assert role["value"] == row["after"] - row["before"]
    assert role["detail"].startswith("taken up: 1.00 → 11.67, change in [9.67, ")
    assert [text["text"] for text in role["texts"]] == [5, 2], "the longest move most"
    head = report.table.to_pylist()[0]
    low, high = head["divergence_low"], head["divergence_high"]
    expected = f"[{low:.3g}, {high:.3g}], cosine {head['cosine']:.3f}, mixed → delimiters"
    assert by_name["divergence"]["detail"] == expected
    page = report.page.html
    assert "role: cls" in page and "role: delimiter" in page


def test_the_same_model_twice_changes_nothing():
    same = summary_of((trace(n, moved=True), trace(n, moved=True)) for n in LENGTHS)
    assert same.differences == [] and not any(c.gained or c.lost for c in same.changes)


def test_lengths_that_allow_no_role_are_reported(roles):
    assert any(
        "block: no text allows a score above 3" in warning for warning in roles.facts()["warnings"]
    )


def test_decoders_have_no_such_roles():
    found = RolesOfBoth(Test())
    weights = np.full((1, 1, 1, 3, 3), 1 / 3, np.float32)
    bare = fa.Trace.from_arrays(weights, [["a", "b", "c"]])
    found.add(bare, bare)
    assert found.summary([]).changes == [] and found.summary([]).facts()["changes"] == []
