# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every statistic equals a brute-force sum over dense weights in NumPy's float64.

Scores reach the kernel exactly, as a bias on zero queries, so nothing but the statistics is
measured and ties are ties. The tolerances are ten times the errors of the online formulas
measured in float32 on 200 keys; distance is relative to values near 70.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flaxattn.benchmarks.cases import STATISTICS
from flaxattn.kernels import attention as door
from flaxattn.kernels.contract import Capture, Labels, Sieve

SHAPES = [(1, 1), (7, 3), (131, 131)]
TOLERANCE = {"entropy": 6e-6, "distance": 4e-4, "sum_sq": 7e-6, "max": 3e-6, "topk_weights": 6e-6}
MASS_TOLERANCE = 4e-6
SIEVES = tuple(item for item in STATISTICS if isinstance(item, Sieve))


@functools.cache
def compiled(implementation):
    """All statistics of given scores; one compilation for each shape."""

    def run(scores, mask, labels):
        batch, heads, queries, keys = scores.shape
        q, k = jnp.zeros((batch, queries, heads, 4)), jnp.ones((batch, keys, heads, 4))
        capture = Capture(stats=STATISTICS)
        _, captured = door.attention(
            q, k, k, bias=scores, mask=mask, labels=labels, capture=capture,
            implementation=implementation,
        )  # fmt: skip
        return captured.stats

    return jax.jit(run)


def draw(shape, seed, size, steps, density):
    """Scores with ties when ``steps`` is set, a mask with fully masked rows, and labels."""
    rng = np.random.default_rng(seed)
    queries, keys = shape
    scores = rng.normal(size=(2, 2, queries, keys)) * size
    scores = (np.round(scores * steps) / steps if steps else scores).astype(np.float32)
    mask = rng.random((2, 1, queries, keys)) < density
    mask &= rng.random((2, 1, queries, 1)) < 0.9
    mask[1, ..., (keys + 1) // 2 :] = False
    numbers = functools.partial(rng.integers, dtype=np.int32)
    labels = Labels(
        key_class=numbers(0, 4, (2, keys)),
        query_segment=numbers(0, 2, (2, queries)),
        key_segment=numbers(0, 2, (2, keys)),
        query_token=numbers(0, 5, (2, queries)),
        key_token=numbers(0, 5, (2, keys)),
        query_mask=rng.random((2, queries)) < 0.8,
        query_labels=numbers(-1, 4, (2, 1, queries)),
        key_labels=numbers(-1, 4, (2, 2, keys)),
        pairs=np.stack([numbers(-1, queries, (2, 6)), numbers(-1, keys, (2, 6))], -1),
    )
    return scores, mask, labels


def chosen(weights, pairs):
    """Weights [H, P] of the pairs of one example."""
    return np.array(
        [[0 if min(pair) < 0 else head[tuple(pair)] for pair in pairs] for head in weights]
    )


def brute_force(scores, mask, labels):
    """The definitions, in float64."""
    s = np.where(mask, scores.astype(np.float64), -np.inf)
    some = mask.any(-1, keepdims=True) & np.ones_like(s[..., :1], bool)
    shift = np.where(some, s.max(-1, keepdims=True), 0)
    e = np.exp(s - shift)
    total = np.where(some, e.sum(-1, keepdims=True), 1)
    p = e / total
    i, j = np.arange(s.shape[2])[:, None], np.arange(s.shape[3])[None]
    order = np.argsort(-s, axis=-1, kind="stable")[..., :3]
    short = [(0, 0)] * 3 + [(0, 3 - order.shape[-1])]
    there = np.take_along_axis(s, order, -1) > -np.inf
    stats = {
        "lse": np.where(some, shift + np.log(total), -np.inf)[..., 0],
        "entropy": -(p * np.log(np.where(p > 0, p, 1))).sum(-1),
        "max": p.max(-1),
        "argmax": np.where(some[..., 0], s.argmax(-1), -1),
        "topk_weights": np.pad(np.take_along_axis(p, order, -1), short),
        "topk_indices": np.pad(np.where(there, order, -1), short, constant_values=-1),
        "distance": (p * abs(i - j)).sum(-1),
        "sum_sq": (p * p).sum(-1),
        "max_score": np.where(some, s.max(-1, keepdims=True), -np.inf)[..., 0],
        "sink": np.zeros(s.shape[:3]),
        "received": (p * labels.query_mask[:, None, :, None]).sum(-2),
        "pairs": np.stack([chosen(one, at) for one, at in zip(p, labels.pairs, strict=True)]),
    }
    segment = labels.query_segment[:, :, None] == labels.key_segment[:, None]
    token = labels.query_token[:, :, None] == labels.key_token[:, None]
    inside = {
        "next": (j == i + 1)[None],
        "near": (abs(j - i) <= 2)[None],
        "delimiter": (labels.key_class[:, None] // 2 % 2 == 1) & np.ones_like(segment),
        "same segment": segment,
        "other segment, same token": ~segment & token,
    }
    label = labels.query_labels[:, 0, :, None]
    inside["label 1 of the key"] = (
        (label == labels.key_labels[:, 1, None]) & (label >= 0) & (j < i) & (j >= i - 90)
    )
    stats |= {name: (p * where[:, None]).sum(-1) for name, where in inside.items()}
    delimiters = inside["delimiter"][:, None] & np.ones_like(p, bool)
    among = np.where(delimiters, s, -np.inf)
    stats["strongest delimiter"] = np.where((among > -np.inf).any(-1), among.argmax(-1), -1)
    part = np.where((inside["same segment"] & inside["delimiter"])[:, None], e, 0)
    mass = part.sum(-1, keepdims=True)
    # Weights that float32 cannot hold are none there.
    share = part / np.where(mass > 0, mass, 1)
    entropy = -(share * np.log(np.where(share > 0, share, 1))).sum(-1)
    return stats | {"entropy in segment": entropy}


@pytest.mark.few("xla")
@pytest.mark.parametrize("implementation", ["xla", "reference"])
@given(
    shape=st.sampled_from(SHAPES),
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([0.1, 2.0, 30.0]),
    steps=st.sampled_from([None, 1, 4]),
    density=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
)
@example(shape=(1, 1), seed=0, size=1.0, steps=None, density=1.0)
@example(shape=(1, 1), seed=0, size=1.0, steps=None, density=0.0)
@example(shape=(131, 131), seed=0, size=2.0, steps=None, density=0.0)
@example(shape=(131, 131), seed=1, size=2.0, steps=1, density=1.0)
def test_statistics_equal_brute_force(implementation, shape, seed, size, steps, density):
    scores, mask, labels = draw(shape, seed, size, steps, density)
    found = compiled(implementation)(scores, mask, labels)
    expected = brute_force(scores, mask, labels)
    assert set(found) == set(expected)
    for name, value in expected.items():
        result = np.asarray(found[name])
        if result.dtype == np.int32:
            np.testing.assert_array_equal(result, value, err_msg=name)
            continue
        np.testing.assert_array_equal(np.isfinite(result), np.isfinite(value), err_msg=name)
        finite = np.isfinite(value)
        # lse is as large as the scores and rounds like them.
        tolerance = TOLERANCE.get(name, 4e-7 * max(10, np.abs(scores).max()))
        tolerance = MASS_TOLERANCE if name in {sieve.name for sieve in SIEVES} else tolerance
        tolerance *= shape[0] / 10 if name == "received" else 1
        np.testing.assert_allclose(
            result[finite], value[finite], rtol=0, atol=max(tolerance, 1e-6), err_msg=name
        )


def test_uniform_attention_has_known_statistics():
    keys = 20
    zeros = jnp.zeros((1, keys, 1, 4))
    middle = Sieve("three", offsets=(-1, 1))
    capture = Capture(stats=("lse", "entropy", "sum_sq", "received", middle))
    _, captured = jax.jit(functools.partial(door.attention, capture=capture))(zeros, zeros, zeros)
    stats = {name: np.asarray(value)[0, 0] for name, value in captured.stats.items()}
    np.testing.assert_allclose(stats["lse"], np.log(keys), rtol=1e-6)
    np.testing.assert_allclose(stats["entropy"], np.log(keys), rtol=1e-6)
    np.testing.assert_allclose(stats["sum_sq"], 1 / keys, rtol=1e-6)
    np.testing.assert_allclose(stats["received"], 1, rtol=1e-6)
    np.testing.assert_allclose(stats["three"], [2 / keys, *[3 / keys] * 18, 2 / keys], rtol=1e-6)


@pytest.mark.few("xla")
@pytest.mark.parametrize("implementation", ["xla", "reference"])
def test_a_fully_masked_row_has_the_stated_values(implementation):
    q = jnp.ones((1, 3, 1, 4))
    mask = jnp.array([[True] * 3, [False] * 3, [True] * 3])[None, None]
    everything = ("lse", "entropy", "max", "argmax", "topk(2)", "distance", "sum_sq", "received")
    near = Sieve("near", offsets=(0, 1))
    capture = Capture(weights=True, scores=True, stats=(*everything, near))
    options = {"capture": capture, "implementation": implementation}
    attend = jax.jit(functools.partial(door.attention, **options))
    output, captured = attend(q, q, q, mask=mask)
    row = {name: np.asarray(value)[0, 0, 1] for name, value in captured.stats.items()}
    assert (row["lse"], row["entropy"], row["max"], row["argmax"]) == (-np.inf, 0, 0, -1)
    assert (row["distance"], row["sum_sq"], row["near"]) == (0, 0, 0)
    assert row["topk_weights"].tolist() == [0, 0] and row["topk_indices"].tolist() == [-1, -1]
    assert not np.asarray(output)[0, 1].any() and not np.asarray(captured.weights)[0, 0, 1].any()
    assert (np.asarray(captured.scores)[0, 0, 1] == -np.inf).all()
    np.testing.assert_allclose(captured.stats["received"], 2 / 3, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("keys", [5, 32, 33, 200])
def test_the_eight_largest_are_those_of_a_stable_sort(keys):
    """Scores with many equals, over several groups of keys; rows of NaN and with few keys."""
    rng = np.random.default_rng(keys)
    scores = np.round(rng.normal(size=(1, 2, 40, keys)) * 1.5).astype(np.float32)
    scores[0, 0, ::3] = np.where(rng.random((14, keys)) < 0.97, -np.inf, scores[0, 0, ::3])
    scores[0, 1, 0], scores[0, 1, 1] = 1.0, np.nan
    zeros = jnp.zeros((1, max(40, keys), 2, 4))
    _, captured = door.attention(
        zeros[:, :40], zeros[:, :keys], zeros[:, :keys], bias=jnp.asarray(scores),
        capture=Capture(weights=True, stats=("topk(8)", "argmax")), implementation="xla",
    )  # fmt: skip
    indices, weights = (np.array(captured.stats[name]) for name in ("topk_indices", "topk_weights"))
    order = np.argsort(-scores, axis=-1, kind="stable")[..., :8]
    expected = np.where(np.take_along_axis(scores, order, -1) == -np.inf, -1, order)
    expected[0, 1, 1] = -1
    expected = np.pad(expected, [(0, 0)] * 3 + [(0, 8 - order.shape[-1])], constant_values=-1)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(captured.stats["argmax"], expected[..., 0])
    known = np.take_along_axis(np.asarray(captured.weights), np.maximum(indices, 0), -1)
    known = np.where(indices >= 0, known, 0)
    assert np.isnan(weights[0, 1, 1, 0])
    known[0, 1, 1] = weights[0, 1, 1] = 0
    np.testing.assert_allclose(weights, known, rtol=1e-6)
