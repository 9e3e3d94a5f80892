# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""jit, vmap, grad, remat, scan and shard_map leave the numbers of a call as they are."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from flaxattn.benchmarks.cases import SIEVES
from flaxattn.kernels.attention import attention
from flaxattn.kernels.contract import Capture, Labels

SEGMENTS = SIEVES[3]
CAPTURE = Capture(weights=True, stats=("lse", "entropy", "topk(2)", "received", SEGMENTS))


@functools.cache
def inputs(batch=4, length=140, heads=4):
    """q, k, v, mask and labels; so many rows make several blocks."""
    q, k, v = jax.random.normal(jax.random.key(0), (3, batch, length, heads, 8))
    mask = jnp.arange(length)[None] < (length - 9 * jnp.arange(batch))[:, None]
    halves = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32) // 30, (batch, length))
    return q, k, v, mask, Labels(query_segment=halves, key_segment=halves, query_mask=mask)


def run(q, k, v, mask, labels, capture=CAPTURE):
    """One call with a mask, causal, with labels."""
    return attention(q, k, v, mask=mask, causal=True, labels=labels, capture=capture)


@functools.cache
def expected():
    """The compiled call by itself."""
    return jax.jit(run)(*inputs())


def assert_same(found, expected, **tolerance):
    tolerance = {"rtol": 1e-5, "atol": 1e-5, **tolerance}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), found, expected)


@pytest.mark.slow
def test_jit_equals_eager():
    output, captured = run(*inputs(), Capture(weights=True, stats=("lse",)))
    expected_output, expected_seen = expected()
    assert_same(output, expected_output)
    assert_same(captured.weights, expected_seen.weights)
    assert_same(captured.stats["lse"], expected_seen.stats["lse"])


def test_a_capture_is_a_static_argument():
    compiled = jax.jit(run, static_argnames="capture")
    _, captured = compiled(*inputs(), capture=Capture(stats=("lse",)))
    np.testing.assert_allclose(captured.stats["lse"], expected()[1].stats["lse"], rtol=1e-6)


@pytest.mark.slow
def test_vmap_over_examples():

    def one(*arrays):
        return run(*jax.tree.map(lambda x: x[None], arrays))

    found = jax.jit(jax.vmap(one))(*inputs())
    assert_same(jax.tree.map(lambda x: x[:, 0], found), expected())


@pytest.mark.slow
def test_vmap_over_stacks_of_queries():
    q, *rest = inputs()
    stack = jnp.stack([q, 2 * q])
    found = jax.jit(jax.vmap(run, in_axes=(0, None, None, None, None)))(stack, *rest)
    assert_same(jax.tree.map(lambda x: x[0], found), expected())


STATISTICS = Capture(stats=CAPTURE.stats)


def loss(q, k, v, mask, labels):
    """Of the output and of every float statistic."""
    output, captured = run(q, k, v, mask, labels, STATISTICS)
    floats = [x for x in captured.stats.values() if x.dtype == jnp.float32]
    return (output**2).sum() + sum((x * jnp.cos(x)).sum() for x in floats)


@functools.cache
def expected_gradients():
    return jax.jit(jax.grad(loss, (0, 1, 2)))(*inputs())


@pytest.mark.slow
def test_remat_keeps_gradients():
    found = jax.jit(jax.grad(jax.checkpoint(loss), (0, 1, 2)))(*inputs())
    assert_same(found, expected_gradients(), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_gradient_by_example():

    def one(*arrays):
        return loss(*jax.tree.map(lambda x: x[None], arrays))

    found = jax.jit(jax.vmap(jax.grad(one, (0, 1, 2))))(*inputs())
    assert_same(found, expected_gradients(), rtol=1e-4, atol=1e-4)


def test_scan_over_layers():
    q, k, v, mask, labels = inputs()

    def layer(x, k):
        output, captured = run(x, k, v, mask, labels)
        return output, captured.stats

    output, stats = jax.jit(lambda: jax.lax.scan(layer, q, jnp.stack([k, k + 1])))()
    first, captured = expected()
    second, seen_second = jax.jit(run)(first, k + 1, v, mask, labels)
    assert_same(output, second)
    assert_same(
        stats["entropy"], np.stack([captured.stats["entropy"], seen_second.stats["entropy"]])
    )


@pytest.fixture(scope="module")
def mesh():
    """Eight devices: four groups of examples, two groups of heads."""
    return jax.make_mesh((4, 2), ("data", "heads"), axis_types=(AxisType.Auto, AxisType.Auto))


def specs():
    """Where batch and heads are in arguments and results."""
    rows = P("data")
    labels = Labels(query_segment=rows, key_segment=rows, query_mask=rows)
    arguments = (*[P("data", None, "heads")] * 3, rows, labels)
    return arguments, (P("data", None, "heads"), P("data", "heads"))


def test_shard_map_over_batch_and_heads(mesh):
    arguments, results = specs()
    sharded = jax.shard_map(run, mesh=mesh, in_specs=arguments, out_specs=results)
    assert_same(jax.jit(sharded)(*inputs()), expected())


@pytest.mark.slow
def test_gradients_under_shard_map(mesh):
    arguments, _ = specs()

    def summed(*arrays):
        return jax.lax.psum(loss(*arrays), ("data", "heads"))

    total = jax.shard_map(summed, mesh=mesh, in_specs=arguments, out_specs=P())
    found = jax.jit(jax.grad(total, (0, 1, 2)))(*inputs())
    assert_same(found, expected_gradients(), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_sharded_arrays_under_jit_stay_where_they_are(mesh):
    arguments, _ = specs()

    def place(array, spec):
        return jax.device_put(array, NamedSharding(mesh, spec))

    placed = jax.tree.map(place, inputs(), arguments)
    compiled = jax.jit(run).lower(*placed).compile()
    assert_same(compiled(*placed), expected())
    assert "all-gather" not in compiled.as_text()
