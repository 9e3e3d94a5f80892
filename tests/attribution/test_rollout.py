# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rollout and flow through layers, against products and maximum flows written out by hand."""

import itertools
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.attribution.rollout import attention_flow, largest_flows, rolled_out, rollout
from flaxattn.errors import InputError


def maps(seed: int, layers: int = 3, heads: int = 2, length: int = 4) -> np.ndarray:
    """Attention [L, 1, H, S, S] with rows that sum to one, some of its weights zero."""
    drawn = np.random.default_rng(seed)
    weights = drawn.gamma(0.5, size=(layers, 1, heads, length, length))
    weights *= drawn.uniform(size=weights.shape) > 0.3
    weights[..., 0] += 1e-3
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def trace(weights: np.ndarray, **fields: Any) -> fa.Trace:
    tokens = [[str(n) for n in range(weights.shape[-1])]] * weights.shape[1]
    return fa.Trace.from_arrays(weights, tokens, **fields)


def mixed(weights: np.ndarray, residual: float = 0.5) -> np.ndarray:
    eye = np.eye(weights.shape[-1])
    return (1 - residual) * weights[:, 0].mean(1).astype(np.float64) + residual * eye


@hypothesis.given(st.integers(0, 10**6), st.floats(0, 1))
def test_rollout_is_the_product_and_its_rows_are_shares(seed: int, residual: float) -> None:
    weights = maps(seed)
    found = rollout(trace(weights), residual=residual)
    layers = mixed(weights, residual)
    product = layers[0]
    np.testing.assert_allclose(found[0], product, atol=1e-6)
    for number in (1, 2):
        product = layers[number] @ product
        np.testing.assert_allclose(found[number], product, atol=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-9)
    assert (found >= 0).all()


def test_rollout_over_paths() -> None:
    """The share of an input is the sum over all ways up of the products along the way."""
    weights = maps(5, layers=2, length=3)
    first, second = mixed(weights)
    found = rollout(trace(weights))[-1]
    for i, j in itertools.product(range(3), repeat=2):
        paths = sum(second[i, k] * first[k, j] for k in range(3))
        assert found[i, j] == pytest.approx(paths, abs=1e-6)


def test_rollout_of_one_head() -> None:
    weights = maps(6)
    found = rollout(trace(weights), head=(1, 0))
    expected = weights[1, 0, 0] @ mixed(weights)[0]
    np.testing.assert_allclose(found[-1], expected, atol=1e-6)
    assert len(found) == 2
    np.testing.assert_allclose(rollout(trace(weights), head=(0, 1))[-1], weights[0, 0, 1])


def test_identity_goes_nowhere_and_a_chain_goes_far() -> None:
    eye = np.broadcast_to(np.eye(4, dtype=np.float32), (3, 1, 1, 4, 4))
    np.testing.assert_array_equal(rollout(trace(eye))[-1], np.eye(4))
    np.testing.assert_allclose(attention_flow(trace(eye)), np.eye(4), atol=1e-6)
    back = np.eye(4, k=-1, dtype=np.float32)  # each position attends to the one before it
    back[0, 0] = 1
    chain = np.broadcast_to(back, (3, 1, 1, 4, 4))
    np.testing.assert_array_equal(rollout(trace(chain), residual=0)[-1], chain[0, 0, 0] * 0 + FIRST)
    np.testing.assert_allclose(attention_flow(trace(chain), residual=0), FIRST, atol=1e-6)


FIRST = np.array([[1, 0, 0, 0]] * 4, np.float32)


@pytest.mark.slow
@hypothesis.given(st.integers(0, 10**6))
def test_flow_is_the_largest_and_stays_within_capacities(seed: int) -> None:
    """Against augmenting paths found by depth-first search; no cut lets more through."""
    layers = mixed(maps(seed))
    found = largest_flows(layers)
    for i, j in itertools.product(range(4), repeat=2):
        assert found[i, j] == pytest.approx(augmented(layers, i, j), abs=1e-5)
    assert (found <= 1 + 1e-6).all(), "what leaves a position"
    assert (found <= layers[0].sum(0)[None] + 1e-6).all(), "what enters an input"
    widest = np.minimum.reduce([layer.max() for layer in layers]) * 4
    assert found.max() <= widest + 1e-6
    assert (found + 1e-6 >= rolled_out(layers)[-1]).all(), "rollout is one flow of many"


def augmented(layers: np.ndarray, start: int, end: int) -> float:
    """Maximum flow by Ford and Fulkerson, on nodes (layer, position)."""
    room: dict[tuple[Any, Any], float] = {}
    for number, layer in enumerate(layers):
        for (i, j), capacity in np.ndenumerate(layer):
            if capacity > 0:
                room[(number + 1, i), (number, j)] = float(capacity)
    source, sink, total = (len(layers), start), (0, end), 0.0
    while path := way(room, source, sink):
        amount = min(room[edge] for edge in path)
        for above, below in path:
            room[above, below] -= amount
            room[below, above] = room.get((below, above), 0.0) + amount
        total += amount
    return total


def way(room: dict[Any, float], source: Any, sink: Any) -> list[Any]:
    """Edges of a shortest path with room left, or nothing."""
    paths: dict[Any, list[Any]] = {source: []}
    queue = [source]
    for node in queue:
        for (above, below), capacity in room.items():
            if above == node and capacity > 1e-9 and below not in paths:
                paths[below] = [*paths[node], (above, below)]
                queue.append(below)
    return paths.get(sink, [])


def test_flow_of_some_positions_and_from_a_lower_layer() -> None:
    weights = maps(8)
    whole = attention_flow(trace(weights))
    np.testing.assert_array_equal(attention_flow(trace(weights), positions=[2, 0]), whole[[2, 0]])
    lower = attention_flow(trace(weights), layer=0)
    np.testing.assert_allclose(lower, mixed(weights)[0], atol=1e-6)


def test_a_decoder_keeps_to_what_came_before() -> None:
    weights = np.tril(maps(3, length=4) + 0.01)
    weights /= weights.sum(-1, keepdims=True)
    tokens = [["a", "b", "c", "d"]]
    read = fa.Trace.from_arrays(decoder_weights=weights, decoder_tokens=tokens, tokens=tokens)
    assert not np.triu(rollout(read)[-1], 1).any()
    assert not np.triu(attention_flow(read), 1).any()


def test_padding_is_left_out() -> None:
    weights = maps(9, length=5)
    weights[..., 3:] = 0
    weights /= weights.sum(-1, keepdims=True)
    mask = np.array([[True, True, True, False, False]])
    found = rollout(trace(weights, mask=mask))
    assert found.shape == (3, 3, 3)
    np.testing.assert_allclose(found, rollout(trace(weights[..., :3, :3])), atol=1e-6)


def test_weights_stored_in_a_byte() -> None:
    weights = maps(10)
    stored = np.round(weights * 255).astype(np.uint8)
    found = rollout(trace(stored))
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-9)
    np.testing.assert_allclose(found, rollout(trace(weights)), atol=0.02)


def test_bad_requests() -> None:
    weights = maps(1)
    some = fa.Trace.from_arrays(weights[1:], [["a"] * 4], layers=(1, 2))
    long = np.full((1, 1, 1, 128, 128), 1 / 128, np.float32)
    stats = fa.Trace.from_arrays(tokens=[["a"] * 4], stats={"lse": np.zeros((3, 1, 2, 4))})
    calls = {
        "holds layers 1, 2": lambda: rollout(some),
        "no head 2 in layer 0": lambda: rollout(trace(weights), head=(0, 2)),
        "holds none of self-attention": lambda: rollout(stats),
        "no layer 3": lambda: attention_flow(trace(weights), layer=3),
        "no position 4": lambda: attention_flow(trace(weights), positions=[4]),
        "the limit is 127": lambda: attention_flow(trace(long)),
        "residual is 1.5": lambda: rollout(trace(weights), residual=1.5),
    }
    for words, call in calls.items():
        with pytest.raises(InputError, match=words) as caught:
            call()
        assert len(str(caught.value).splitlines()) <= 3
