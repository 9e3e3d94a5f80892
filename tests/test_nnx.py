# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The NNX adapter gives the numbers and the trace of the Linen module, and leaves nothing over."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from flaxattn.errors import InputError
from flaxattn.models.bert import Bert
from flaxattn.models.encoder_config import BertConfig
from flaxattn.models.interventions import Intervention, site_values, with_interventions
from flaxattn.nnx import apply_interventions, pop_trace, to_nnx
from flaxattn.trace.trace import Trace

CONFIG = BertConfig(
    vocab_size=30,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=16,
)
IDS = np.arange(14, dtype=np.int32).reshape(2, 7)


@pytest.fixture(scope="module")
def pair():
    module = Bert(CONFIG)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(module.init, jax.random.key(0), IDS)["params"]
    params = jax.tree.map(lambda a: jnp.asarray(rng.normal(0, 0.3, a.shape), a.dtype), shapes)
    return module, params, to_nnx(module, params)


def test_same_output(pair):
    module, params, wrapped = pair
    ours = jax.jit(module.apply)({"params": params}, IDS).last_hidden_state
    np.testing.assert_allclose(wrapped(IDS).last_hidden_state, ours, atol=1e-6)


def test_same_trace_once(pair):
    module, params, wrapped = pair
    wrapped(IDS, mutable=["intermediates"])
    trace = pop_trace(wrapped, tokens=[["x"] * 7] * 2)
    _, state = module.apply({"params": params}, IDS, mutable=["intermediates"])
    expected = Trace.from_variables(state).encoder.weights
    np.testing.assert_allclose(trace.encoder.weights, expected, atol=1e-6)
    assert len(trace.tokens) == 2
    with pytest.raises(InputError, match="nothing was recorded"):
        pop_trace(wrapped)


def test_nothing_is_kept_on_the_module_without_a_request(pair):
    _, _, wrapped = pair
    wrapped(IDS)
    assert not jax.tree.leaves(nnx.state(wrapped, nnx.Intermediate))


@pytest.mark.slow
def test_parameters_train(pair):
    _, _, wrapped = pair
    gradient = nnx.grad(lambda m: jnp.mean(m(IDS).pooler_output ** 2))(wrapped)
    leaves = jax.tree.leaves(gradient)
    assert len(leaves) == len(jax.tree.leaves(pair[1]))
    assert any(float(jnp.abs(leaf).max()) > 0 for leaf in leaves)


@pytest.mark.slow
def test_interventions_are_those_of_the_linen_module(pair):
    module, params, wrapped = pair
    edits = [
        Intervention("head_output", 0.0, layers=(1,), heads=(0,)),
        Intervention("head_output", operation="record"),
    ]
    out, state = apply_interventions(wrapped, edits, IDS, mutable=["sites"])
    expected = module.apply(with_interventions(params, edits), IDS)
    plain = np.asarray(wrapped(IDS).last_hidden_state)
    np.testing.assert_allclose(out.last_hidden_state, expected.last_hidden_state, atol=1e-6)
    assert np.abs(out.last_hidden_state - plain).max() > 1e-3
    assert not np.any(site_values(state)["encoder"]["head_output"][1, :, :, 0])
    np.testing.assert_array_equal(wrapped(IDS).last_hidden_state, plain)


@pytest.mark.slow
def test_interventions_have_gradients_in_parameters_and_values(pair):
    _, _, wrapped = pair

    @nnx.jit
    def loss(model, value):
        edit = Intervention("layer_input", value, layers=(1,), operation="add")
        return jnp.mean(apply_interventions(model, edit, IDS).last_hidden_state ** 3)

    step = jnp.zeros((1, 1, 16)).at[..., 3].set(1e-2)
    slope = nnx.grad(loss, argnums=1)(wrapped, jnp.zeros((1, 1, 16)))
    quotient = (loss(wrapped, step) - loss(wrapped, -step)) / 2e-2
    np.testing.assert_allclose(slope[0, 0, 3], quotient, rtol=2e-2, atol=1e-5)
    assert any(float(jnp.abs(g).max()) > 0 for g in jax.tree.leaves(nnx.grad(loss)(wrapped, step)))
