# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Relative biases: which range a distance belongs to, gradients, and that no Q x K array exists."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.kernels.attention import attention
from flaxattn.kernels.contract import Capture
from flaxattn.models.positions import buckets_of_offsets, relative_bias


def written_out(offset: int, count: int, far: int, bidirectional: bool) -> int:
    """The range of one relative position, as the paper's code has it, in float64."""
    before = 0
    if bidirectional:
        count //= 2
        before = count * (offset > 0)
        distance = abs(offset)
    else:
        distance = max(-offset, 0)
    near = count // 2
    if distance < near:
        return before + distance
    share = math.log(distance / near) / math.log(far / near)
    return before + min(near + int(share * (count - near) + 1e-6), count - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("count", "far"), [(32, 128), (8, 12), (12, 20), (6, 300)])
def test_ranges_are_those_of_the_paper(count: int, far: int, bidirectional: bool) -> None:
    expected = [written_out(o, count, far, bidirectional) for o in range(-far, far + 1)]
    assert buckets_of_offsets(count, far, bidirectional).tolist() == expected
    assert written_out(9 * far, count, far, bidirectional) == expected[-1]


@pytest.mark.slow
@pytest.mark.few("False-reference-40")
@pytest.mark.parametrize(("implementation", "size"), [("xla", 530), ("xla", 40), ("reference", 40)])
@pytest.mark.parametrize("causal", [True, False])
def test_gradients_are_those_of_an_array(implementation: str, size: int, causal: bool) -> None:
    """Function and array: the same output, statistics and gradients, the table's too."""
    keys = jax.random.split(jax.random.key(size), 5)
    q, k, v, weigh = (jax.random.normal(key, (2, size, 3, 8)) for key in keys[:4])
    table = jax.random.normal(keys[4], (8, 3))
    places = jnp.arange(size)

    def loss(q: Any, k: Any, v: Any, table: Any, dense: bool) -> Any:
        bias: Any = relative_bias(table, 12, not causal)
        bias = bias(places[:, None], places[None])[None] if dense else bias
        output, captured = attention(
            q,
            k,
            v,
            bias=bias,
            causal=causal,
            capture=Capture(stats=("entropy",)),
            implementation=implementation,
        )
        return (output * weigh).sum() + captured.stats["entropy"].sum()

    def found(dense: bool) -> Any:
        of_all = jax.value_and_grad(loss, argnums=(0, 1, 2, 3))
        return jax.jit(of_all, static_argnums=4)(q, k, v, table, dense)

    (one, ours), (other, expected) = found(False), found(True)
    np.testing.assert_allclose(one, other, rtol=1e-5)
    assert np.abs(expected[3]).min(axis=1)[:4].max() > 0.1
    for name, a, b in zip("qkvt", ours, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * max(1, np.abs(b).max()), err_msg=name)


def shapes_in(jaxpr: Any) -> Iterator[tuple[int, ...]]:
    """Shapes of everything that a program makes, its inner programs included."""
    for equation in jaxpr.eqns:
        yield from (getattr(out.aval, "shape", ()) for out in equation.outvars)
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from shapes_in(inner)


@pytest.mark.parametrize("causal", [True, False])
def test_no_array_of_queries_times_keys_for_statistics_and_gradients(causal: bool) -> None:
    size = 2048
    x = jax.ShapeDtypeStruct((1, size, 2, 8), jnp.float32)
    table = jax.ShapeDtypeStruct((32, 2), jnp.float32)

    def loss(x: Any, table: Any) -> Any:
        capture = Capture(stats=("lse", "entropy"))
        bias = relative_bias(table, 128, not causal)
        output, captured = attention(x, x, x, bias=bias, causal=causal, capture=capture)
        return output.sum() + captured.stats["entropy"].sum()

    made = set(shapes_in(jax.make_jaxpr(jax.value_and_grad(loss, (0, 1)))(x, table).jaxpr))
    assert any(shape.count(size) == 1 for shape in made)
    assert not [shape for shape in made if math.prod(shape) >= size * size / 2]


def test_a_whole_t5_makes_none_either(t5: Any) -> None:
    """Encoder, decoder and cross-attention of 2,048 tokens, statistics of all heads."""
    size = 2048
    module = t5.module.clone(capture=Capture(stats=("lse", "entropy")))
    ids = jax.ShapeDtypeStruct((1, size), jnp.int32)

    def captured(params: Any, ids: Any) -> Any:
        return module.apply({"params": params}, ids, None, ids, mutable=["intermediates"])[1]

    made = set(shapes_in(jax.make_jaxpr(captured)(t5.params, ids).jaxpr))
    assert any(shape.count(size) == 1 for shape in made)
    assert not [shape for shape in made if math.prod(shape) >= size * size / 2]
