# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Embeddings; dropout, the same wherever the rows lie; edits of heads; initialization."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from flaxattn.errors import InputError
from flaxattn.models.interventions import Intervention
from flaxattn.models.layers import DropoutLayer, Embedding
from flaxattn.models.multi_head_attention import MultiHeadAttention
from flaxattn.train.recipe import Recipe
from flaxattn.train.state import make_mesh


def drop(x, rate, seed=0, deterministic=False):
    return DropoutLayer(rate).apply({}, x, deterministic, rngs={"dropout": jax.random.key(seed)})


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_as_many_as_requested_are_dropped_and_the_rest_grows(rate):
    x = 1 + jnp.arange(16 * 128 * 256, dtype=jnp.float32).reshape(16, 128, 256)
    found = np.asarray(drop(x, rate))
    kept = found != 0
    assert abs(kept.mean() - (1 - rate)) < 4 * (rate * (1 - rate) / x.size) ** 0.5
    np.testing.assert_allclose(found[kept], np.asarray(x)[kept] / (1 - rate), rtol=1e-6)
    for axis in (0, 1, 2):  # no row, position or unit is dropped more than others
        others = tuple({0, 1, 2} - {axis})
        spread = kept.mean(others).std() / (rate * (1 - rate) * x.shape[axis] / x.size) ** 0.5
        assert spread < 1.5, axis


@pytest.mark.slow
def test_one_key_drops_the_same_and_another_drops_others():
    x = jnp.ones((4, 32, 64))
    one, again, other = drop(x, 0.5), drop(x, 0.5), drop(x, 0.5, seed=1)
    assert (one == again).all()
    assert abs(float((one == other).mean()) - 0.5) < 0.03


def test_rate_zero_and_deterministic_change_nothing():
    x = jnp.ones((4, 8))
    assert drop(x, 0.0) is x
    assert drop(x, 0.5, deterministic=True) is x


@pytest.mark.slow
def test_rows_on_several_devices_lose_the_same():
    mesh = make_mesh(Recipe(devices=8))
    x = jax.random.normal(jax.random.key(0), (16, 4, 8))
    cut = jax.device_put(x, NamedSharding(mesh, P("data")))
    with jax.set_mesh(mesh):
        found = jax.jit(lambda x: drop(x, 0.3))(cut)
    assert (found == drop(x, 0.3)).all()


@pytest.mark.slow
def test_the_gradient_goes_where_the_number_stayed():
    x = jnp.full((8, 16), 2.0)
    found = jax.grad(lambda x: drop(x, 0.25).sum())(x)
    np.testing.assert_allclose(found, drop(x, 0.25) / 2, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("pruned", [(), (1,)])
def test_an_addition_to_head_outputs_reaches_the_projection(
    pruned: tuple[int, ...],
) -> None:
    layer = MultiHeadAttention(3, pruned=pruned)
    x = jax.random.normal(jax.random.key(0), (2, 4, 12))
    variables = layer.init(jax.random.key(1), x)
    assert set(variables) == {"params"}
    added = jax.random.normal(jax.random.key(2), (2, 4, 3, 4))

    def loss(addition: jax.Array) -> jax.Array:
        edit = Intervention("head_output", addition, operation="add")
        edits = {"interventions": {"head_output": ((edit, {}),)}}
        return layer.apply({**variables, **edits}, x).sum()

    kernel = variables["params"]["output"]["kernel"].reshape(-1, 4, 12)
    kept = [head for head in range(3) if head not in pruned]
    want = jnp.einsum("bqhd,hde->", added[:, :, np.array(kept)], kernel)
    np.testing.assert_allclose(loss(added) - loss(jnp.zeros_like(added)), want, rtol=1e-4)
    slope = jax.grad(loss)(added)
    assert not slope[:, :, np.array(pruned, int)].any()
    np.testing.assert_allclose(slope[0, 0, kept[0]], kernel[0].sum(-1), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.few("bert")
@pytest.mark.parametrize("family", ["bert", "gpt2", "seq2seq"])
def test_the_output_of_an_initialization_is_that_of_its_parameters(
    family: str, request: pytest.FixtureRequest
) -> None:
    module = request.getfixturevalue(family).module
    ids = jnp.ones((2, 5), jnp.int32)
    further = {"decoder_input_ids": ids} if family == "seq2seq" else {}
    made = jax.jit(module.init_with_output)(jax.random.key(3), ids, **further)
    output, variables = made
    assert list(variables) == ["params"]
    again = jax.jit(module.apply)(variables, ids, **further)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), output, again)


@pytest.mark.parametrize("count", [1, 3])
def test_parameters_of_another_number_of_layers_are_refused(bert: Any, count: int) -> None:
    stacked = bert.params["encoder"]["layers"]
    wrong = jax.tree.map(lambda x: jnp.concatenate([x, x])[:count], stacked)
    params = {**bert.params, "encoder": {"layers": wrong}}
    with pytest.raises(InputError, match=rf"those of {count} layers, the model has 2"):
        bert.module.apply({"params": params}, jnp.ones((1, 3), jnp.int32))


@pytest.mark.slow
@pytest.mark.few("1-float32", "9-bfloat16", "100-float32")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 2, 8, 9, 100])
def test_embeddings_are_rows_of_the_table(rows: int, dtype: str) -> None:
    ids = jnp.arange(rows).repeat(3).reshape(3, rows)
    ours = Embedding(rows, 16, jnp.dtype(dtype))
    variables = ours.init(jax.random.key(0), ids)
    theirs = nn.Embed(rows, 16, jnp.dtype(dtype)).apply(variables, ids)
    found = ours.apply(variables, ids)
    assert found.dtype == theirs.dtype
    np.testing.assert_array_equal(found, theirs)
    assert jnp.isnan(ours.apply(variables, jnp.array([rows]))).all()


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2, 100])
def test_the_gradient_of_an_embedding_is_summed_in_float32(rows: int) -> None:
    rng = np.random.default_rng(0)
    ids, count = rng.integers(0, rows, 50_000), 50_000 // rows
    module = Embedding(rows, 4, jnp.bfloat16)
    variables = module.init(jax.random.key(0), ids)
    output, pullback = jax.vjp(lambda v: module.apply(v, ids), variables)
    cotangents = jnp.asarray(1 + rng.random(output.shape), jnp.bfloat16)
    (found,) = pullback(cotangents)
    exact = np.zeros((rows, 4))
    np.add.at(exact, ids, np.asarray(cotangents, np.float64))
    # Sums of positive numbers: at worst one rounding of float32 for each of them.
    tolerance = 2 * count * np.finfo(np.float32).eps
    np.testing.assert_allclose(found["params"]["embedding"], exact, rtol=tolerance)
