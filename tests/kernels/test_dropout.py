# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Dropout: the right rate, no patterns, the same mask everywhere, and captures from before it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.kernels import xla
from flaxattn.kernels.attention import attention
from flaxattn.kernels.contract import Capture, Dropout
from flaxattn.kernels.dropout import keep_mask

KEY = jax.random.key(7)
SHAPE = (2, 3, 100, 130)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_rate_is_right_within_four_sigma(rate):
    keep = np.asarray(keep_mask(Dropout(rate, KEY), SHAPE))
    sigma = np.sqrt(rate * (1 - rate) / keep.size)
    assert abs((1 - keep.mean()) - rate) < 4 * sigma
    # Along every axis by itself too: no row, column, head or example is favoured.
    for axis in range(4):
        rest = tuple(other for other in range(4) if other != axis)
        count = keep.size // keep.shape[axis]
        spread = np.abs((1 - keep.mean(rest)) - rate) / np.sqrt(rate * (1 - rate) / count)
        assert spread.max() < 5


def test_entries_are_uncorrelated():
    keep = np.asarray(keep_mask(Dropout(0.5, KEY), SHAPE)) * 2.0 - 1
    for axis in range(4):
        for lag in (1, 2):
            near = (
                np.take(keep, range(keep.shape[axis] - lag), axis)
                if keep.shape[axis] > lag
                else None
            )
            if near is None:
                continue
            far = np.take(keep, range(lag, keep.shape[axis]), axis)
            assert abs((near * far).mean()) < 4 / np.sqrt(near.size)


def test_keys_give_different_masks_and_one_key_the_same():
    one, again, other = (
        keep_mask(Dropout(0.5, key), SHAPE) for key in (KEY, KEY, jax.random.key(8))
    )
    np.testing.assert_array_equal(one, again)
    assert 0.45 < (np.asarray(one) == np.asarray(other)).mean() < 0.55
    raw = keep_mask(Dropout(0.5, jax.random.PRNGKey(7)), SHAPE)
    np.testing.assert_array_equal(one, raw)


@pytest.mark.parametrize("first", [0, 1, 37])
def test_any_block_of_rows_is_a_part_of_the_whole(first):
    whole = np.asarray(keep_mask(Dropout(0.3, KEY), SHAPE))
    block = keep_mask(Dropout(0.3, KEY), (2, 3, 20, 130), first)
    np.testing.assert_array_equal(block, whole[:, :, first : first + 20])


def identity_inputs(length=100):
    """v is the identity, so the output is the dropped weights themselves."""
    q, k = jax.random.normal(jax.random.key(1), (2, 2, length, 3, length))
    v = jnp.broadcast_to(jnp.eye(length)[None, :, None], k.shape)
    return q, k, v


@pytest.mark.slow
def test_every_implementation_and_chunking_drops_the_same(monkeypatch):
    q, k, v = identity_inputs()
    dropout = Dropout(0.25, KEY)
    reference, _ = attention(q, k, v, dropout=dropout, implementation="reference")
    for whole, rows in ((128, 64), (16, 7), (16, 100), (16, 33)):
        monkeypatch.setattr(xla, "WHOLE_ROWS", whole)
        monkeypatch.setattr(xla, "BLOCK_ROWS", rows)
        output, _ = attention(q, k, v, dropout=dropout)
        np.testing.assert_array_equal(np.asarray(output) == 0, np.asarray(reference) == 0)
        np.testing.assert_allclose(output, reference, atol=2e-6)


@pytest.mark.slow
def test_kept_weights_grow_and_captures_do_not_change():
    q, k, v = identity_inputs()
    capture = Capture(weights=True, stats=("max", "sum_sq"))
    without, plain = attention(q, k, v, capture=capture)
    output, captured = attention(q, k, v, dropout=Dropout(0.2, KEY), capture=capture)
    jax.tree.map(np.testing.assert_array_equal, captured, plain)
    keep = np.swapaxes(keep_mask(Dropout(0.2, KEY), (2, 3, 100, 100)), 1, 2)
    np.testing.assert_allclose(output, np.where(keep, without / 0.8, 0), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_expectation_is_preserved():
    q, k, v = identity_inputs(20)
    expected, _ = attention(q, k, v)
    keys = jax.random.split(KEY, 400)

    def one(key):
        return attention(q, k, v, dropout=Dropout(0.3, key))[0]

    outputs = np.asarray(jax.jit(jax.vmap(one))(keys))
    sigma = np.asarray(expected) * np.sqrt(0.3 / 0.7 / len(keys))
    assert (np.abs(outputs.mean(0) - expected) < 5 * sigma + 1e-6).all()


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["xla", "reference"])
def test_the_gradient_uses_the_mask_of_the_output(implementation):
    q, k, v = identity_inputs(130)
    dropout = Dropout(0.4, KEY)

    def run(v):
        return attention(q, k, v, dropout=dropout, implementation=implementation)[0]

    output, pull = jax.vjp(run, v)
    # Linear in v: the gradient of row sums is the column sums of what was used forward.
    (found,) = pull(jnp.ones_like(output))
    np.testing.assert_allclose(found[..., 0], np.asarray(output).sum(1).swapaxes(1, 2), rtol=1e-4)


def test_rate_may_be_traced_and_zero_drops_nothing():
    q, k, v = identity_inputs(20)
    run = jax.jit(lambda rate: attention(q, k, v, dropout=Dropout(rate, KEY))[0])
    np.testing.assert_allclose(
        run(0.25), attention(q, k, v, dropout=Dropout(0.25, KEY))[0], atol=1e-6
    )
    np.testing.assert_allclose(run(0.0), attention(q, k, v)[0], atol=1e-6)
    np.testing.assert_array_equal(
        attention(q, k, v, dropout=Dropout(0, KEY))[0], attention(q, k, v)[0]
    )
