# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The page of claims is what its script makes of the tutorials and results, and can fail."""

import claims
import pytest


def test_the_page_is_what_the_script_writes() -> None:
    page = (claims.DOCS / "claims.md").read_text(encoding="utf-8")
    assert page == claims.page(), "run python docs/claims.py"


def test_every_tutorial_has_claims() -> None:
    tutorials = {f"tutorials/{path.name}" for path in claims.DOCS.glob("tutorials/*.ipynb")}
    assert tutorials <= set(claims.SOURCES)
    assert {claim.verdict for some in claims.SOURCES.values() for claim in some} == {
        *("yes", "in part", "no")
    }


@pytest.mark.parametrize(("text", "expected"), [("The head gives 12% of it.", "12%"), ("", None)])
def test_a_figure_is_read_or_missed_loudly(text: str, expected: str | None) -> None:
    claim = claims.Claim("Heads give.", "gives {0}", r"gives (\d+%)")
    if expected is not None:
        assert claims.figure_of(claim, text, "a page") == f"gives {expected}"
        return
    with pytest.raises(LookupError, match="a page no longer shows the figure of: Heads give"):
        claims.figure_of(claim, text, "a page")
