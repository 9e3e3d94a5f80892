# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The head, token and share of attention that a page opens with, against a search by loops."""

import numpy as np
import pytest
from page_payload import payload_of

import flaxattn as fa
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import usual_mass


def telling(weights: np.ndarray, special: list[int]) -> tuple[int, int, int]:
    """Layer, head and query by the rule, one number at a time; weights `[L, H, Q, K]`."""
    best = (-1.0, (0, 0, 0))
    layers, heads, length = weights.shape[:3]
    for layer in range(layers):
        for head in range(heads):
            rows = {
                q: max(
                    weights[layer, head, q, k]
                    for k in range(1, length)
                    if k != q and k not in special
                )
                for q in range(length)
                if q not in special
            }
            mean = sum(rows.values()) / len(rows)
            if mean > best[0]:
                best = mean, (layer, head, max(rows, key=lambda q: rows[q]))
    return best[1]


def start(page) -> dict:
    return payload_of(page)["start"]


@pytest.mark.parametrize("seed", range(5))
def test_it_opens_at_the_head_with_the_strongest_ordinary_weights(peaked, seed):
    special = [0, 5]
    weights = peaked(3, 4, 6, seed=seed)
    mask = np.isin(np.arange(6)[None], special)
    trace = Trace.from_arrays(weights, [list("abcdef")], special=mask)
    layer, head, query = telling(weights[:, 0], special)
    found = start(fa.head_view(trace))
    assert (found["layer"], found["heads"], found["query"]) == (layer, [head], query)


def test_numbers_are_those_of_the_model(peaked):
    trace = Trace.from_arrays(peaked(2, 2, 4), [list("abcd")], layers=[8, 10], heads=[3, 5])
    found = start(fa.head_view(trace))
    layer, head, _ = telling(peaked(2, 2, 4)[:, 0], [])
    assert (found["layer"], found["heads"]) == ([8, 10][layer], [[3, 5][head]])


@pytest.mark.parametrize(
    "options", [{"layer": 0}, {"heads": [1]}, {"state": {"query": 2}}, {"state": {"key": 1}}]
)
def test_what_is_requested_comes_first(peaked, options):
    found = start(fa.head_view(Trace.from_arrays(peaked(2, 3, 4), [list("abcd")]), **options))
    assert found["layer"] == 0 and found["heads"] == options.get("heads", [0, 1, 2])
    assert found.get("query") == options.get("state", {}).get("query")


def test_a_text_of_special_tokens_and_one_of_a_single_token_open_whole(peaked):
    special = np.ones((1, 4), bool)
    for trace in (
        Trace.from_arrays(peaked(1, 2, 4), [list("abcd")], special=special),
        Trace.from_arrays(np.ones((1, 1, 2, 1, 1), np.float32), [["a"]]),
    ):
        found = start(fa.head_view(trace))
        assert found["heads"] == [0, 1] and "query" not in found


def test_of_two_traces_it_opens_at_the_head_that_differs_most(peaked):
    first, second = peaked(2, 3, 4), peaked(2, 3, 4)
    second[1, 0, 2] = np.eye(4)
    traces = [Trace.from_arrays(weights, [list("abcd")]) for weights in (first, second)]
    found = start(fa.compare_view(*traces))
    assert (found["layer"], found["heads"]) == (1, [2])


@pytest.mark.parametrize(
    ("length", "mass"), [(1, 100), (24, 100), (25, 90), (64, 90), (65, 80), (256, 80), (257, 60)]
)
def test_less_of_a_long_text_is_drawn_at_first(length, mass):
    assert usual_mass(length) == mass


def test_the_page_takes_the_share_of_its_length_or_the_one_requested(peaked):
    trace = Trace.from_arrays(peaked(1, 1, 30), [["t"] * 30])
    assert start(fa.head_view(trace))["mass"] == 90
    assert start(fa.head_view(trace, state={"mass": 100}))["mass"] == 100


def test_a_decoder_says_which_heads_are_of_induction(peaked):
    tokens = list("abcdabcd")
    weights = np.tile(np.eye(8, dtype=np.float32), (1, 1, 3, 1, 1))
    for query in range(4, 8):
        weights[0, 0, 0, query] = np.eye(8)[query - 3]
        weights[0, 0, 1, query] = np.eye(8)[query - 4]
    page = fa.head_view(Trace.from_arrays(weights, [tokens]))
    (side,) = payload_of(page)["inputs"][0]["sides"]
    (row,) = side["measures"]
    assert [measure["does"] for measure in row] == ["induction", "duplicate token", "own token"]
    assert row[0]["induction"] == row[1]["duplicate"] == 1
