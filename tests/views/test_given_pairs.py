# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gold pairs that a caller gives: which forms fit, how they travel, what is refused."""

import base64

import numpy as np
import pytest
from page_payload import payload_of

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.trace.trace import Trace

LAYERS, HEADS, LENGTH = 2, 3, 4


@pytest.fixture(scope="module")
def trace(peaked) -> Trace:
    return Trace.from_arrays(peaked(LAYERS, HEADS, LENGTH), [list("abcd")])


def hits(held, pairs):
    block = held["blocks"][pairs["hits"]]
    raw = np.frombuffer(base64.b64decode(block) if isinstance(block, str) else block, np.uint8)
    codes = (raw[:, None] >> np.arange(0, 8, 2) & 3).ravel()
    count = LAYERS * HEADS * len(pairs["pairs"])
    return codes[:count].reshape(LAYERS, HEADS, -1)


def test_pairs_travel_with_the_heads_that_hit_them(trace):
    held = payload_of(fa.head_view(trace, pairs={"a": [(0, 1), (2, 3), (0, 3)], "b": []}))
    (side,) = held["inputs"][0]["sides"]
    first, second = side["pairs"]
    assert first["pairs"] == [[0, 0, 1, 1, 3, 3], [2, 2, 3, 3]] and second["pairs"] == []
    strongest = np.asarray(trace.encoder.weights)[:, 0].argmax(-1)
    expected = np.stack([np.isin(strongest[..., 0], (1, 3)), strongest[..., 2] == 3], -1)
    np.testing.assert_array_equal(hits(held, first), expected)
    start = held["start"]
    assert start["gold"] == "a" and "query" not in start
    counts = expected.sum(-1)
    assert counts[start["layer"], start["heads"][0]] == counts.max()


def test_every_form_fits(peaked):
    both = Trace.from_arrays(np.repeat(peaked(1, 2, 4), 2, axis=1), [list("abcd")] * 2)
    page = fa.head_view(both, pairs={"a": [[(0, 1)], np.array([[2, 3], [3, 0]])]}, sequence=[1])
    (shaped,) = payload_of(page)["inputs"]
    assert shaped["sides"][0]["pairs"][0]["pairs"] == [[2, 2, 3, 3], [3, 3, 0, 0]]
    one = fa.head_view(both[0], pairs={"a": {"encoder": [[0, 1]]}}, state={"gold": "none"})
    assert payload_of(one)["start"]["gold"] == "none"
    assert "pairs" not in payload_of(fa.head_view(both))["inputs"][0]["sides"][0]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (
            {"a": [(0, 1), (4, 1)]},
            "pairs['a']: there is no pair (4, 1) in the encoder.\n"
            "Its text has queries 0 to 3 and keys 0 to 3.\n"
            "Count positions from 0, without padding.",
        ),
        (
            {"a": [(0, -1)]},
            "pairs['a']: there is no pair (0, -1) in the encoder.\n"
            "Its text has queries 0 to 3 and keys 0 to 3.\n"
            "Count positions from 0, without padding.",
        ),
        (
            [(0, 1)],
            "pairs: expected a mapping from names to pairs, received list.\n"
            'Name them: pairs={"subject": [(3, 1)]}, query before key.',
        ),
        (
            {"none": []},
            "pairs: 'none' cannot be a name.\nName them by what they are, such as 'subject'.",
        ),
        (
            {"a": {"cross": [(0, 1)]}},
            "pairs['a'] are of 'cross'; this trace has weights of encoder.\n"
            "Name one of them: pairs={'a': {'encoder': [(3, 1)]}}.",
        ),
        (
            {"a": [[(0, 1)], []]},
            "pairs['a'] are of 2 texts; the trace has 1.\n"
            "Give a list of pairs for each text; it may be empty.",
        ),
        *(
            (
                {"a": wrong},
                "pairs['a']: expected pairs of a query and a key, such as [(3, 1), (5, 4)].\n"
                "Use whole numbers; of several texts, a list of such pairs for each.",
            )
            for wrong in ([(0, 1.5)], [("x", "y")], 3, [(0, 1, 2)], ["ab"])
        ),
    ],
)
def test_pairs_that_do_not_fit_are_refused(trace, pairs, message):
    with pytest.raises(InputError) as error:
        fa.head_view(trace, pairs=pairs)
    assert str(error.value) == message


def test_a_state_names_pairs_that_the_page_has(trace):
    message = r"^state: gold is 'b', and the page has no such gold pairs.\nIt has a, none; give"
    with pytest.raises(InputError, match=message):
        fa.head_view(trace, pairs={"a": [(0, 1)]}, state={"gold": "b"})


def test_two_traces_are_judged_each_by_its_own_weights(peaked):
    traces = [
        Trace.from_arrays(peaked(LAYERS, HEADS, LENGTH, seed=n), [list("abcd")]) for n in (0, 1)
    ]
    held = payload_of(fa.compare_view(*traces, pairs={"a": [(0, 1), (2, 3)]}))
    (side,) = held["inputs"][0]["sides"]
    for part, trace in zip((side, side["second"]), traces, strict=True):
        strongest = np.asarray(trace.encoder.weights)[:, 0].argmax(-1)
        expected = np.stack([strongest[..., 0] == 1, strongest[..., 2] == 3], -1)
        np.testing.assert_array_equal(hits(held, part["pairs"][0]), expected)
