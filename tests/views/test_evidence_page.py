# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What the page of a report holds: as many texts as fit, links between claims and their places."""

import numpy as np
import pytest
from page_payload import payload_of

from flaxattn.measures.claims import Claim, TopText
from flaxattn.trace.trace import Trace
from flaxattn.views import evidence_page as evidence
from flaxattn.views.evidence_page import EvidenceReport, Numbers, evidence_page

VALUES = {"local": np.array([[1.0, np.nan], [1e-9, 12345.678]])}
REPORT = EvidenceReport("Roles", "m", "About.", {"encoder": Numbers((3, 5), (0, 2), VALUES)})


def trace(length, layers=(3, 5), heads=(0, 2)):
    shares = np.full((2, 1, 2, length, length), 1 / length, np.float32)
    tokens = [f"</script>{n}" for n in range(length)]
    return Trace.from_arrays(shares, [tokens], layers=layers, heads=heads)


def claim(*texts):
    return Claim("local", 5, 2, 12345.678, "p", texts=[TopText(n, float(n)) for n in texts])


def test_claims_know_the_places_of_their_texts():
    found = payload_of(evidence_page(REPORT, [claim(8, 2), claim(4)], (2, 8), map(trace, (3, 4))))
    assert [one["shown"] for one in found["report"]["claims"]] == [[[1, 8, 8.0], [0, 2, 2.0]], []]
    assert found["report"]["values"] == {"encoder": {"local": [[1.0, None], [1e-9, 12350.0]]}}
    assert found["report"]["lacking"].endswith("1 of 2 claims have none of them.")
    assert found["levels"] == ["claims", "model", "head", "text"] and found["precision"] == "uint8"
    sides = [shaped["sides"][0] for shaped in found["inputs"]]
    assert [side["layers"] for side in sides] == [[3, 5], [3, 5]]
    assert not any("likeness" in side for side in sides)
    assert found["start"]["measure"] == "local"


def test_texts_that_do_not_fit_stay_out(monkeypatch):
    monkeypatch.setattr(evidence, "BYTES", 900)
    claims = [claim(0), claim(1), claim(2)]
    found = payload_of(evidence_page(REPORT, claims, (0, 1, 2), map(trace, (4, 20, 4))))
    assert [len(one["texts"]["source"]["tokens"]) for one in found["inputs"]] == [4, 4]
    assert [bool(one["shown"]) for one in found["report"]["claims"]] == [True, False, True]
    assert found["report"]["lacking"].startswith("2 of the 3 texts")


def test_one_trace_is_in_memory_at_a_time():
    live = []

    def traces():
        for number in range(3):
            live.append(number)
            yield trace(4)
            assert live == list(range(number + 1))

    evidence_page(REPORT, [claim(0, 1, 2)], (0, 1, 2), traces())
    assert len(live) == 3


def test_nothing_claimed():
    found = payload_of(evidence_page(REPORT, [], (), ()))
    assert found["report"]["lacking"] == "Nothing is claimed of any head."
    assert found["levels"] == ["claims"] and found["start"]["measure"] == "local"


@pytest.mark.parametrize("traces", [[], [trace(3)]])
def test_the_same_report_gives_the_same_page(traces):
    pages = [evidence_page(REPORT, [claim(0)], (0,), traces).html for _ in range(2)]
    assert pages[0] == pages[1] and "</script>0" not in pages[0]
