# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Weights that are NaN travel with a page; whatever else is wrong with weights is still refused."""

import dataclasses

import numpy as np
import pytest
from page_payload import decode_weights, payload_of

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.trace.trace import Trace


@pytest.fixture(scope="module")
def broken(peaked) -> np.ndarray:
    """A row of head 0.1 and all of head 1.0 are NaN."""
    weights = peaked(2, 3, 4)
    weights[0, 0, 1, 2] = np.nan
    weights[1, 0, 0] = np.nan
    return weights


@pytest.mark.parametrize("precision", ["float16", "uint11", "uint8"])
def test_a_page_holds_nan_where_weights_are_and_no_number_of_such_heads(broken, precision):
    trace = Trace.from_arrays(broken, [list("abcd")])
    found = payload_of(fa.head_view(trace, precision=precision))
    (side,) = found["inputs"][0]["sides"]
    for at, name in enumerate(side["weights"]):
        data = found["blocks"][name]
        if precision != "uint8":
            stored = decode_weights(data, precision, (3, 4, 4))
            np.testing.assert_array_equal(np.isnan(stored), np.isnan(broken[at, 0]))
        else:
            peaks = np.frombuffer(data, "<f2", 12).reshape(3, 4)
            np.testing.assert_array_equal(np.isnan(peaks), np.isnan(broken[at, 0]).any(-1))
    measures = {(i, j): m for i, row in enumerate(side["measures"]) for j, m in enumerate(row)}
    for place, measure in measures.items():
        assert (measure["does"] == "not a number") == (place in {(0, 1), (1, 0)})
    assert "entropy" not in measures[1, 0] and "entropy" in measures[0, 0]


def test_queries_and_keys_beside_nan_are_shown_without_an_explanation(broken):
    vectors = np.ones((2, 1, 4, 3, 2), np.float32)
    trace = Trace.from_arrays(broken, [list("abcd")])
    assert trace.encoder is not None
    record = dataclasses.replace(trace.encoder, query=vectors, key=vectors)
    trace = dataclasses.replace(trace, encoder=record)
    neuron = payload_of(fa.neuron_view(trace))["inputs"][0]["sides"][0]["neuron"]
    assert neuron["scale"] is None and "not numbers (NaN)" in neuron["problem"]


@pytest.mark.parametrize("value", [np.inf, -np.inf, -0.5, 1.5])
def test_other_weights_that_are_none_are_refused_also_beside_nan(broken, value):
    weights = broken.copy()
    weights[0, 0, 0, 0, 0] = value
    with pytest.raises(InputError, match="Attention weights lie between 0 and 1"):
        fa.head_view(Trace.from_arrays(weights, [list("abcd")]))


def test_what_needs_every_weight_refuses_nan(broken):
    trace = Trace.from_arrays(broken, [list("abcd")])
    with pytest.raises(InputError, match="these range from nan to nan"):
        fa.rollout(trace)
