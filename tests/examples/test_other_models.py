# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Models of other libraries keep their outputs, and every head has its statistics."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import other_models
import pytest
from other_models import OtherDecoder, RecordedAttention, make_kernel

X = jax.random.normal(jax.random.key(0), (2, 12, 16))


@pytest.mark.slow
def test_flax_attention_keeps_its_output_and_returns_statistics():
    mask = nn.make_causal_mask(jnp.ones((2, 12)))
    plain = nn.MultiHeadDotProductAttention(num_heads=4)
    recorded = nn.MultiHeadDotProductAttention(num_heads=4, attention_fn=RecordedAttention())
    params = plain.init(jax.random.key(1), X, mask=mask)
    expected = plain.apply(params, X, mask=mask)
    output, state = recorded.apply(params, X, mask=mask, mutable=["intermediates"])
    np.testing.assert_allclose(output, expected, atol=2e-6)
    (record,) = state["intermediates"]["attention_fn"]["attention"]
    assert {name: x.shape for name, x in record.stats.items()} == {
        "max_score": (2, 4, 12),
        "entropy": (2, 4, 12),
    }
    np.testing.assert_allclose(record.stats["entropy"][:, :, 0], 0, atol=1e-6)


def test_flax_dropout_is_refused():
    layer = nn.MultiHeadDotProductAttention(
        num_heads=4, dropout_rate=0.5, deterministic=False, attention_fn=RecordedAttention()
    )
    with pytest.raises(NotImplementedError, match="deterministic=True"):
        layer.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, X)


def by_hand(q, k, v, window, soft_cap):
    """The kernel with all scores, and its statistics."""
    k, v = (jnp.repeat(x, q.shape[0] // x.shape[0], axis=0) for x in (k, v))
    scores = soft_cap * jnp.tanh(jnp.einsum("hqd,hkd->hqk", q, k) / soft_cap)
    offset = jnp.arange(k.shape[1])[None] - jnp.arange(q.shape[1])[:, None]
    scores = jnp.where(((offset <= 0) & (offset >= -window))[None], scores, -jnp.inf)
    weights = jax.nn.softmax(scores)
    logs = jnp.log(jnp.where(weights > 0, weights, 1))
    statistics = {"max_score": scores.max(-1), "entropy": -(weights * logs).sum(-1)}
    return jnp.einsum("hqk,hkd->hqd", weights, v), statistics


@pytest.mark.slow
def test_a_decoder_keeps_its_output_and_every_head_has_its_numbers():
    ours = OtherDecoder(make_kernel(window=(4, 0), soft_cap=2.0))
    theirs = OtherDecoder(lambda q, k, v: by_hand(q, k, v, 4, 2.0))
    params = ours.init(jax.random.key(1), X)
    found, expected = ours.apply(params, X), theirs.apply(params, X)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=5e-6)


@pytest.mark.slow
def test_segments_are_kept_separate():
    kernel = make_kernel(causal=False)
    q, k, v = (jax.random.normal(jax.random.key(n), (2, 6, 8)) for n in range(3))
    together, _ = kernel(q, k, v, jnp.array([0, 0, 0, 1, 1, 1]))
    alone, _ = kernel(q[:, :3], k[:, :3], v[:, :3])
    np.testing.assert_allclose(together[:, :3], alone, atol=2e-6)


@pytest.mark.slow
def test_the_script_prints_a_line_for_each_head(capsys):
    other_models.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and lines[0].startswith("layer 0, head 0: largest score ")
