# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What is not requested is not computed: checked on the compiled program and its memory plan."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.benchmarks.cases import STATISTICS
from flaxattn.kernels.attention import attention
from flaxattn.kernels.contract import NOTHING, Capture, Dropout, Labels

LENGTH = 192
ONLY_STATISTICS = Capture(stats=STATISTICS)
GIB = 2**30


def arrays(length, heads=2, depth=8, queries=None):
    """q, k, v and labels as shapes only."""
    q = jax.ShapeDtypeStruct((1, queries or length, heads, depth), jnp.float32)
    k = jax.ShapeDtypeStruct((1, length, heads, depth), jnp.float32)
    of_keys = jax.ShapeDtypeStruct((1, length), jnp.int32)
    of_queries = jax.ShapeDtypeStruct((1, queries or length), jnp.int32)
    labels = Labels(of_keys, of_queries, of_keys, of_queries, of_keys)
    labels = labels._replace(
        query_labels=jax.ShapeDtypeStruct((1, 1, queries or length), jnp.int32),
        key_labels=jax.ShapeDtypeStruct((1, 2, length), jnp.int32),
        pairs=jax.ShapeDtypeStruct((1, 8, 2), jnp.int32),
    )
    return q, k, k, labels


def call(capture, **options):
    """A function of arrays alone."""
    return lambda q, k, v, labels: attention(q, k, v, labels=labels, capture=capture, **options)


def square_buffers(compiled, length=LENGTH):
    """Types of the arrays of the program that hold length x length numbers.

    What a fused computation names inside itself is a value in a register, not an array.
    """
    functions = compiled.as_text().split("\n\n")
    text = "\n".join(each for each in functions if not each.startswith("%fused_computation"))
    shapes = set(re.findall(r"\b([a-z]+\d+)\[([\d,]+)\]", text))
    sizes = {(kind, dims): np.prod([int(n) for n in dims.split(",")]) for kind, dims in shapes}
    return {kind for (kind, _), size in sizes.items() if size >= length * length}


def test_statistics_need_no_square_buffer():
    dropout = Dropout(0.1, jax.random.key(0))
    compiled = jax.jit(call(ONLY_STATISTICS, causal=True, dropout=dropout)).lower(*arrays(LENGTH))
    assert square_buffers(compiled.compile()) == set()


@pytest.mark.slow
def test_their_gradients_need_no_square_buffer():
    def loss(q, k, v, labels):
        output, captured = call(ONLY_STATISTICS, causal=True)(q, k, v, labels)
        return output.sum() + sum(
            x.sum() for x in captured.stats.values() if x.dtype == jnp.float32
        )

    compiled = jax.jit(jax.grad(loss, (0, 1, 2))).lower(*arrays(LENGTH)).compile()
    assert square_buffers(compiled) == set()


def test_short_sequences_need_none_either():
    compiled = jax.jit(call(ONLY_STATISTICS)).lower(*arrays(128)).compile()
    assert square_buffers(compiled, 2 * 128) == set()


@pytest.mark.parametrize(
    ("dtype", "kind"), [("bfloat16", "bf16"), ("float32", "f32"), ("uint8", "u8")]
)
def test_weights_exist_once_and_in_the_requested_dtype(dtype, kind):
    compiled = jax.jit(call(Capture(weights=True, dtype=dtype))).lower(*arrays(LENGTH)).compile()
    assert square_buffers(compiled) == {kind}
    memory = compiled.memory_analysis()
    size = 2 * LENGTH * LENGTH * jnp.dtype(dtype).itemsize
    assert size < memory.output_size_in_bytes < size + 2**17
    # Written in place: what is needed beside the result stays below another copy in float32.
    assert memory.temp_size_in_bytes < size + 2 * LENGTH * LENGTH * 4


def test_one_head_of_the_weights_costs_one_head():
    compiled = jax.jit(call(Capture(weights=True, heads=(1,)))).lower(*arrays(LENGTH)).compile()
    size = LENGTH * LENGTH * 4
    assert size < compiled.memory_analysis().output_size_in_bytes < 1.2 * size


def test_nothing_requested_gives_nothing_but_the_output():
    lowered = jax.jit(call(NOTHING)).lower(*arrays(LENGTH))
    assert len(jax.tree.leaves(lowered.out_info)) == 1
    assert square_buffers(lowered.compile()) == set()


@pytest.mark.slow
def test_32768_positions_with_all_statistics_fit_in_two_gigabytes():
    compiled = jax.jit(call(ONLY_STATISTICS)).lower(*arrays(32_768, heads=1, depth=64)).compile()
    memory = compiled.memory_analysis()
    peak = memory.temp_size_in_bytes + memory.output_size_in_bytes + memory.argument_size_in_bytes
    assert peak < 2 * GIB


@pytest.mark.slow
def test_32768_keys_run():
    keys = jax.random.split(jax.random.key(0), 3)
    q = jax.random.normal(keys[0], (1, 96, 1, 64))
    k, v = (jax.random.normal(key, (1, 32_768, 1, 64)) for key in keys[1:])
    run = jax.jit(lambda q, k, v: attention(q, k, v, capture=Capture(stats=("lse", "entropy"))))
    output, captured = run(q, k, v)
    scores = np.einsum("qd,kd->qk", q[0, :, 0], k[0, :, 0], dtype=np.float64) / 8
    weights = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    np.testing.assert_allclose(output[0, :, 0], weights @ np.asarray(v[0, :, 0]), atol=1e-5)
    entropy = -(weights * np.log(weights)).sum(1)
    np.testing.assert_allclose(captured.stats["entropy"][0, 0], entropy, rtol=1e-5)
