# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Bad input is refused in at most three lines: what came, what was expected, and the fix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.kernels import attention as door
from flaxattn.kernels.contract import Capture, Dropout, Labels, Sieve

Q = jnp.zeros((2, 5, 4, 8))
K = jnp.zeros((2, 7, 4, 8))
SHIFT = Sieve("near", offsets=(0, 1))


def refused(kind, *parts, make):
    """The message of the error, which must hold all parts and stay short."""
    with pytest.raises(kind) as raised:
        make()
    message = str(raised.value)
    for part in parts:
        assert part in message
    assert message.count("\n") < 3
    return message


def call(q=Q, k=K, v=K, **options):
    """A call to refuse."""
    return lambda: door.attention(q, k, v, **options)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (call(q=Q[0]), ("q has shape (5, 4, 8)", "[B, Q, H, D]")),
        (call(k=K[:, :, :3], v=K[:, :, :3]), ("has 4 heads and k (2, 7, 3, 8) has 3", "Fix")),
        (call(k=K[:, :, :2], v=K), ("k (2, 7, 2, 8) and v (2, 7, 4, 8) do not fit",)),
        (call(window=(-1, 2)), ("window is (-1, 2)", "0 or more", "Fix: one number")),
        (call(window=(1, 2, 3)), ("window is (1, 2, 3)", "Fix")),
        (call(soft_cap=0.0), ("soft_cap is 0.0", "above 0", "Fix: soft_cap=None")),
        (call(sinks=np.zeros(3, np.float32)), ("sinks have shape (3,)", "[H] = (4,)")),
        (call(query_offset=np.zeros(3, np.int32)), ("query_offset has shape (3,)", "[B] = (2,)")),
        (
            call(bias=lambda rows, columns: (columns - rows).astype(float)),
            ("returns shape (5, 7)", "Fix"),
        ),
        (call(v=K[:, :6]), ("v (2, 6, 4, 8)", "expected [B, Q, H, D], [B, K, G, D]")),
        (call(q=Q[:, :0]), ("q (2, 0, 4, 8)", "lengths >= 1")),
        (
            call(mask=jnp.ones((2, 5), bool)),
            ("mask has shape (2, 5)", "[B, K] = (2, 7)", "[B, H, Q, K] = (2, 4, 5, 7)", "Fix"),
        ),
        (call(mask=jnp.ones((2, 1, 7, 5), bool)), ("mask has shape (2, 1, 7, 5)", "(2, 4, 5, 7)")),
        (
            call(bias=jnp.zeros((4, 5, 7))),
            ("bias has shape (4, 5, 7)", "(2, 4, 5, 7)", "bias[None]"),
        ),
        (
            call(segment_ids=jnp.zeros((2, 5), int)),
            ("(2, 5) and (2, 5)", "[B, Q] = (2, 5)", "[B, K] = (2, 7)", "(of_queries, of_keys)"),
        ),
        (call(dropout=Dropout(1.5, jax.random.key(0))), ("rate is 1.5", "0 <= rate < 1", "Fix")),
        (
            call(labels=Labels(key_token=jnp.zeros((2, 5), int))),
            ("labels.key_token has shape (2, 5)", "[B, K] = (2, 7)"),
        ),
        (
            call(capture=Capture(stats=(Sieve("same", same_token=True),))),
            ("sieve 'same' needs labels.query_token and labels.key_token", "Fix: labels=Labels("),
        ),
        (call(capture=Capture(heads=(1, 4))), ("head 4", "4 heads, numbered 0 to 3")),
        (
            call(capture=Capture(weights=True, query_window=(4, 6))),
            ("capture.query_window is (4, 6)", "positions end at 5", "Fix: query_window="),
        ),
        (call(capture=Capture(scores=True, key_window=(0, 8))), ("key_window", "end at 7")),
        (call(implementation="xlaa"), ("unknown implementation 'xlaa'", "Did you mean 'xla'?")),
    ],
)
def test_wrong_values_are_named(make, parts):
    refused(ValueError, "attention: ", *parts, make=make)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (call(mask=jnp.ones((2, 7))), ("mask has dtype float32", "expected bool", "bias=")),
        (call(mask=jnp.ones((2, 7), int)), ("mask has dtype int32", "mask != 0")),
        (call(bias=jnp.ones((1, 1, 1, 7), bool)), ("bias has dtype bool", "mask=")),
        (call(q=Q.astype(jnp.bfloat16)), ("bfloat16, float32 and float32", "Fix: cast")),
        (call(q=Q.astype(int)), ("q has dtype int32", "float")),
        (call(segment_ids=(Q[:, :, 0, 0], K[:, :, 0, 0])), ("segment_ids", "float32", "integers")),
        (
            call(labels=Labels(query_mask=jnp.ones((2, 5), int))),
            ("labels.query_mask has dtype int32, expected bool",),
        ),
        (call(capture="weights"), ("capture is 'weights'", "Capture(weights=True)")),
    ],
)
def test_wrong_types_are_named(make, parts):
    refused(TypeError, "attention: ", *parts, make=make)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: Capture(stats=("entropie",)), ("'entropie'", "Did you mean 'entropy'?")),
        (lambda: Capture(stats=("zzz",)), ("unknown statistic 'zzz'", "lse, entropy")),
        (lambda: Capture(stats=("topk(9)",)), ("'topk(9)' is out of range", "topk(8)")),
        (lambda: Capture(stats=("topk(k)",)), ("unknown statistic 'topk(k)'",)),
        (lambda: Capture(stats="lse"), ("expected a tuple", "stats=('lse',)")),
        (lambda: Capture(stats=(SHIFT, SHIFT)), ("'near' is in stats twice",)),
        (lambda: Capture(stats=("topk(2)", "topk(3)")), ("'topk' is in stats twice",)),
        (lambda: Capture(dtype="int8"), ("'int8'", "float32, bfloat16, float16, uint8")),
        (lambda: Capture(key=True, vector_dtype="uint8"), ("vectors is 'uint8'", "float16.")),
        (lambda: Capture(heads=(-1,)), ("heads is (-1,)", "counted from 0")),
        (lambda: Capture(layers=(1, 1)), ("layers is (1, 1)", "layers=None records all")),
        (lambda: Capture(weights=True, query_window=(3, 3)), ("(3, 3)", "0 <= start < stop")),
        (lambda: Capture(weights=True, key_window=7), ("key_window is 7", "takes all positions")),
        (lambda: Capture(key_window=(0, 1)), ("neither is asked", "Fix: weights=True")),
        (lambda: Sieve("x"), ("'x' has no condition", "offsets")),
        (lambda: Sieve("lse", offsets=(0, 0)), ("'lse' is the name of a statistic",)),
        (lambda: Sieve("", offsets=(0, 0)), ("non-empty",)),
        (lambda: Sieve("x", offsets=(2, 1)), ("(2, 1)", "low <= high")),
        (lambda: Sieve("x", key_class=32), ("key_class is 32", "0 to 31")),
    ],
)
def test_a_wrong_request_is_refused_when_it_is_made(make, parts):
    refused(ValueError, *parts, make=make)


def test_a_request_is_normal_and_hashable():
    one = Capture(stats=["lse", SHIFT], heads=[1, 0], dtype=jnp.float16)
    assert one == Capture(stats=("lse", SHIFT), heads=(1, 0), dtype="float16")
    assert hash(one) == hash(Capture(stats=("lse", SHIFT), heads=(1, 0), dtype="float16"))
    assert Capture(stats=("topk(2)", SHIFT)).keys == ("topk_weights", "topk_indices", "near")
