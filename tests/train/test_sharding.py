# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every parameter of BERT has its place on a mesh, and training there gives the same numbers."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from flaxattn.errors import InputError
from flaxattn.models.encoder_config import BertConfig
from flaxattn.models.parameter_shardings import RULES, state_shardings
from flaxattn.models.task_heads import BertForPreTraining
from flaxattn.train.optimizers import bert_adamw
from flaxattn.train.recipe import Recipe
from flaxattn.train.state import gather, initial_state, make_mesh, place_state

CONFIG = BertConfig(
    vocab_size=64,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
)
MESH = make_mesh(Recipe(devices=8, model_parallel=2))


@pytest.fixture(scope="module")
def state():
    module = BertForPreTraining(CONFIG)
    shapes = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 8), jnp.int32))["params"]
    params = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), shapes)
    return initial_state(params, bert_adamw(Recipe()))


@pytest.mark.slow
def test_every_rule_is_used_and_every_large_array_is_cut(state) -> None:
    placed = place_state(state, MESH)
    for path, leaf in jax.tree_util.tree_flatten_with_path(placed)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        cut = leaf.sharding.shard_shape(leaf.shape)
        if leaf.size >= 128 and "norm" not in name and "bias" not in name:
            parts = leaf.size // np.prod(cut)
            assert parts == (8 if "layers" in name or "word" in name else 4), name
    names = [
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, _ in jax.tree_util.tree_flatten_with_path(state.params)[0]
    ]
    for pattern, _ in RULES:
        if pattern == "output":  # of models with an output layer of its own; see below
            continue
        assert [name for name in names if re.search(f"(^|/){pattern}$", name)], pattern


def test_an_output_layer_is_cut_like_the_embedding() -> None:
    """The largest parameter of a model whose output is not tied to its embedding."""
    like = {"output": jax.ShapeDtypeStruct((64, 128), jnp.float32)}
    like |= {"decoder_words": {"embedding": jax.ShapeDtypeStruct((128, 64), jnp.float32)}}
    like |= {"model": {"words": {"embedding": jax.ShapeDtypeStruct((128, 64), jnp.float32)}}}
    layout = state_shardings(like, MESH)
    assert layout["output"].spec == P("data", "model")
    for embedding in (layout["model"]["words"], layout["decoder_words"]):
        assert embedding["embedding"].spec == P("model", "data")
    assert layout["output"].shard_shape((64, 128)) == (16, 64)


def test_moments_lie_where_their_parameters_lie(state) -> None:
    layout = state_shardings(state, MESH)
    moments = next(part for part in layout.moments if hasattr(part, "mean"))
    assert moments.mean == layout.params == moments.square
    assert layout.step.spec == P()


def test_an_axis_that_does_not_divide_stays_whole() -> None:
    like = {"pooler": {"kernel": jax.ShapeDtypeStruct((6, 4), jnp.float32)}}
    layout = state_shardings(like, MESH)
    assert layout["pooler"]["kernel"].spec == P(None, None)


@pytest.mark.parametrize(("devices", "parallel"), [(16, 1), (8, 3)])
def test_a_mesh_that_cannot_be(devices: int, parallel: int) -> None:
    with pytest.raises(InputError) as error:
        make_mesh(Recipe(devices=devices, model_parallel=parallel))
    lines = str(error.value).splitlines()
    assert lines[0] == f"cannot lay out {devices} devices with model_parallel {parallel}"
    assert lines[1] == "there are 8 of kind cpu"
    assert len(lines) == 3


def test_gathered_arrays_are_whole(state) -> None:
    placed = place_state(state, MESH)
    for got, want in zip(jax.tree.leaves(gather(placed)), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(got, want)
