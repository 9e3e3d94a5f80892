# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Norms, rollout and effective attention of whole traces: each against its definition."""

import dataclasses

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.trace.trace import Trace

LAYERS, HEADS, LENGTH, DEPTH, WIDTH = 3, 2, 5, 3, 4


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Two texts, the first of which is padded by one position, with values."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(LAYERS, 2, HEADS, LENGTH, LENGTH)) * 2
    scores[:, 0, :, :, -1] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], bool)
    made = Trace.from_arrays(shares.astype(np.float32), [list("abcd_"), list("vwxyz")], mask=mask)
    value = rng.normal(size=(LAYERS, 2, LENGTH, HEADS, DEPTH)).astype(np.float32)
    return dataclasses.replace(made, encoder=dataclasses.replace(made.encoder, value=value))


@pytest.fixture(scope="module")
def projections() -> dict[str, np.ndarray]:
    """`[L, H, D, E]` of the encoder."""
    shape = (LAYERS, HEADS, DEPTH, WIDTH)
    return {"encoder": np.random.default_rng(1).normal(size=shape).astype(np.float32)}


def test_norms_are_lengths_of_weighed_vectors(trace, projections):
    found = fa.contributions(trace, ["norm"], projections=projections)["norm"]["encoder"]
    assert [array.shape for array in found] == [(3, 2, 4, 4), (3, 2, 5, 5)]
    weights, values = np.asarray(trace.encoder.weights), trace.encoder.value
    for layer, head, query, key in [(0, 0, 0, 0), (1, 1, 3, 2), (2, 0, 2, 3)]:
        vector = values[layer, 0, key, head] @ projections["encoder"][layer, head]
        expected = weights[layer, 0, head, query, key] * np.linalg.norm(vector)
        assert found[0][layer, head, query, key] == pytest.approx(expected, rel=1e-4)


def test_norms_are_of_the_layers_and_heads_that_were_captured(trace, projections):
    record = trace.encoder
    part = dataclasses.replace(
        record,
        weights=record.weights[1:, :, 1:],
        value=record.value[1:, :, :, 1:],
        layers=(1, 2),
        heads=(1,),
    )
    some = dataclasses.replace(trace, encoder=part)
    found = fa.contributions(some, ["norm"], projections=projections)["norm"]["encoder"]
    whole = fa.contributions(trace, ["norm"], projections=projections)["norm"]["encoder"]
    np.testing.assert_allclose(found[1], whole[1][1:, 1:], rtol=1e-5)


@pytest.mark.parametrize("sequence", [0, 1])
def test_rollout_of_a_head_is_that_of_flow(trace, sequence):
    found = fa.contributions(trace)["rollout"]["encoder"][sequence]
    for layer, head in np.ndindex(LAYERS, HEADS):
        expected = fa.rollout(trace, sequence, head=(layer, head))[-1]
        np.testing.assert_allclose(found[layer, head], expected, atol=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)


def test_effective_attention_puts_out_the_same(trace):
    found = fa.contributions(trace, ["effective"])["effective"]["encoder"][1]
    weights = np.asarray(trace.encoder.weights)[:, 1]
    value = trace.encoder.value[:, 1].swapaxes(1, 2)
    np.testing.assert_allclose(found @ value, weights @ value, atol=1e-5)
    assert (np.linalg.norm(found, axis=-1) < np.linalg.norm(weights, axis=-1)).any()


def test_what_is_missing_is_refused_in_three_lines(trace, projections):
    bare = Trace.from_arrays(np.asarray(trace.encoder.weights), trace.tokens)
    small = {"encoder": projections["encoder"][:2]}
    for given, request, message in [
        (trace, {"names": ["flow"]}, "There are no weights 'flow' to compute."),
        (trace, {"names": ["norm"]}, "Norms need the output projections of the model"),
        (bare, {"names": ["effective"]}, "this trace holds none beside weights."),
        (trace, {"names": ["norm"], "projections": small}, "The projections have 2 layers"),
    ]:
        with pytest.raises(InputError) as caught:
            fa.contributions(given, **request)
        assert message in str(caught.value) and len(str(caught.value).splitlines()) <= 3
