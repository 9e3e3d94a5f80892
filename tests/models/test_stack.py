# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Layers scanned or laid out one after another: the same numbers, and memory is saved in both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.models.bert import Bert
from flaxattn.models.encoder_config import BertConfig

CONFIG = BertConfig(
    vocab_size=64,
    hidden_size=64,
    num_hidden_layers=4,
    num_attention_heads=2,
    intermediate_size=256,
    max_position_embeddings=64,
)
IDS = jnp.arange(4 * 64).reshape(4, 64) % 64


@pytest.fixture(scope="module")
def params():
    return jax.jit(Bert(CONFIG).init)(jax.random.key(0), IDS)["params"]


def compiled(params, **options):
    """The gradient of something, compiled."""
    module = Bert(CONFIG, **options)

    def loss(params):
        rngs = {"dropout": jax.random.key(1)}
        out = module.apply({"params": params}, IDS, deterministic=False, rngs=rngs)
        return (out.last_hidden_state**3).sum()

    return jax.jit(jax.grad(loss)).lower(params).compile()


@pytest.mark.slow
@pytest.mark.parametrize("remat", [False, True])
def test_the_layout_changes_no_gradient(params, remat):
    """Up to rounding, which for the keys' bias, whose gradient is 0, is all there is."""
    scanned, laid_out = compiled(params), compiled(params, unroll=True, remat=remat)
    grads = [jax.tree.leaves(gradient(params)) for gradient in (scanned, laid_out)]
    largest = max(float(jnp.abs(x).max()) for x in grads[0])
    for one, other in zip(*grads, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6 * largest)


@pytest.mark.slow
@pytest.mark.parametrize("unroll", [1, True])
def test_recomputing_saves_memory(params, unroll):
    whole, remat = (
        compiled(params, unroll=unroll, remat=remat).memory_analysis().temp_size_in_bytes
        for remat in (False, True)
    )
    assert remat < 0.7 * whole
