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
from flaxattn.models.bert_config import BertConfig
from flaxattn.nnx import pop_trace, to_nnx
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
    ours = module.apply({"params": params}, IDS).last_hidden_state
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


def test_nothing_is_kept_on_the_module_unasked(pair):
    _, _, wrapped = pair
    wrapped(IDS)
    assert not jax.tree.leaves(nnx.state(wrapped, nnx.Intermediate))


def test_parameters_train(pair):
    _, _, wrapped = pair
    gradient = nnx.grad(lambda m: jnp.mean(m(IDS).pooler_output ** 2))(wrapped)
    leaves = jax.tree.leaves(gradient)
    assert len(leaves) == len(jax.tree.leaves(pair[1]))
    assert any(float(jnp.abs(leaf).max()) > 0 for leaf in leaves)
