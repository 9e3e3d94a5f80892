# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What cudnn.py makes of an attention that returns averages and the log-sum-exp only.

cuDNN itself needs a GPU, so the one function that calls it is replaced by one that takes the same
arguments, computes the same in XLA, and gives the log-sum-exp no gradient, as cuDNN does.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.benchmarks.cases import Case
from flaxattn.kernels import cudnn, reference
from flaxattn.kernels.call import Call
from flaxattn.kernels.checks import checked
from flaxattn.kernels.contract import Capture, Labels, Sieve

CLASSES = tuple(Sieve(f"class {bit}", key_class=bit) for bit in range(2))
# What is compared has to be right, not fast.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
CAPTURE = Capture(stats=("lse", "entropy", *CLASSES))


def in_xla(q, k, v, lengths, scale, causal, lse):
    """Stands in for cuDNN."""
    assert q.shape[-1] == k.shape[-1] == v.shape[-1] <= cudnn.MAX_DEPTH
    assert q.shape[-1] % 8 == q.shape[1] % 2 == k.shape[1] % 2 == 0
    assert k.shape == v.shape
    with jax.numpy_dtype_promotion("standard"):
        output = jax.nn.dot_product_attention(
            q,
            k,
            v,
            scale=scale,
            is_causal=causal,
            key_value_seq_lengths=lengths,
            implementation="xla",
        )
    if not lse:
        return output, None
    positions = jnp.arange(k.shape[1])
    visible = jnp.ones((q.shape[1], k.shape[1]), bool)[None, None]
    if causal:
        visible = (positions[None] <= positions[:, None])[None, None]
    if lengths is not None:
        visible = visible & (positions[None] < lengths[:, None])[:, None, None]
    k = jnp.repeat(k, q.shape[2] // k.shape[2], axis=2)
    scores = scale * jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
    total = jax.nn.logsumexp(jnp.where(visible, scores, -jnp.inf), axis=-1)
    return output, jax.lax.stop_gradient(total)


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch):
    monkeypatch.setattr(cudnn, "_run", in_xla)


def make(case, dtype="float32", capture=CAPTURE):
    """A checked call; float32 shows the algebra, cuDNN itself takes half precision."""
    arguments = case.arguments(dtype)
    keys = arguments["k"].shape[:2]
    classes = jax.random.randint(jax.random.key(1), keys, 0, 16)
    return checked(Call(**arguments | {"labels": Labels(key_class=classes)}, capture=capture))


def run(attend, call):
    """Output, statistics, and the gradients of a number that depends on all of them."""

    def total(q, k, v):
        output, captured = attend(call._replace(q=q, k=k, v=v))
        leaves = [output, *(captured.stats[name] for name in call.capture.keys)]
        draw = jax.random.split(jax.random.key(2), len(leaves))
        finite = [jnp.where(jnp.isfinite(x), x, 0) for x in leaves]
        parts = [jax.random.normal(key, x.shape) * x for key, x in zip(draw, finite, strict=True)]
        return sum(part.sum() for part in parts), (output, captured.stats)

    slopes = jax.jit(jax.grad(total, (0, 1, 2), has_aux=True), compiler_options=QUICK)
    gradients, results = slopes(call.q, call.k, call.v)
    return *results, gradients


def agree(call):
    """Compares everything with the reference."""
    output, stats, gradients = run(cudnn.attend, call)
    expected, target, slopes = run(plain, call)
    np.testing.assert_allclose(output, expected, rtol=2e-5, atol=2e-6)
    assert list(stats) == list(target)
    for name, stat in target.items():
        np.testing.assert_allclose(stats[name], stat, rtol=2e-5, atol=2e-5, err_msg=name)
    for name, one, other in zip("qkv", gradients, slopes, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=name)
    return output


def plain(call):
    return reference.attention(**call._asdict())


CASES = (
    Case("odd depth", 9, depth=20),
    Case("garbage", 3, keys=12, batch=3, depth=16, padding=True, garbage=True),
    Case("causal", 11, depth=16, causal=True),
    Case("wide", 6, depth=72),
    Case("shared key heads", 9, heads=4, depth=16, groups=2, causal=True),
    Case("shared, padded", 9, heads=4, depth=16, groups=1, padding=True, garbage=True),
    Case("shallow values", 7, depth=24, value_depth=16),
)


@pytest.mark.few("garbage")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_and_gradients_are_those_of_the_reference(case):
    call = make(case)
    refused = [reason for no, reason in cudnn._limits(call, case.queries, case.depth) if no]
    assert refused == ["takes bfloat16 and float16, not float32"]
    agree(call)


@pytest.mark.slow
def test_a_statistic_alone_has_its_gradient():
    agree(make(CASES[1], capture=Capture(stats=("entropy",))))


@pytest.mark.slow
def test_keys_may_be_masked_anywhere_and_all():
    case = Case("any", 10, batch=3, depth=16)
    mask = jnp.asarray(np.random.default_rng(0).random((3, 10)) < 0.5).at[1].set(False)
    output = agree(checked(make(case)._replace(mask=mask)))
    assert (output[1] == 0).all()


def test_garbage_reaches_those_who_may_see_it_and_nobody_else():
    call = make(Case("causal", 6, depth=16, causal=True))
    k, v = call.k.at[0, 3, 1].set(jnp.nan), call.v.at[1, 4, 0].set(jnp.inf)
    run = jax.jit(lambda k, v: cudnn.attend(call._replace(k=k, v=v)))
    (output, captured), (clean, expected) = run(k, v), run(call.k, call.v)
    spoiled = np.zeros((2, 6, 3), bool)
    spoiled[0, 3:, 1] = spoiled[1, 4:, 0] = True
    assert (np.isnan(output).all(axis=-1) == spoiled).all()
    np.testing.assert_array_equal(output[~spoiled], clean[~spoiled])
    for name, stat in captured.stats.items():
        assert (np.isnan(stat) == spoiled.swapaxes(1, 2)).all(), name
        kept = ~spoiled.swapaxes(1, 2)
        np.testing.assert_array_equal(stat[kept], expected.stats[name][kept])


@pytest.mark.slow
def test_half_precision_costs_the_rounding_of_the_output():
    call = make(Case("half", 40, depth=32, padding=True), "bfloat16")
    assert cudnn.refusal(call) is None
    output, captured = jax.jit(lambda: cudnn.attend(call))()
    _, expected = plain(call)
    assert output.dtype == jnp.bfloat16
    np.testing.assert_allclose(captured.stats["lse"], expected.stats["lse"], atol=1e-4)
    for sieve in CLASSES:
        assert captured.stats[sieve.name].dtype == jnp.float32
        np.testing.assert_allclose(
            captured.stats[sieve.name], expected.stats[sieve.name], rtol=0.02, atol=1e-3
        )
    np.testing.assert_allclose(captured.stats["entropy"], expected.stats["entropy"], atol=0.05)


def test_calls_are_few(monkeypatch):
    widths = []

    def counted(q, *others):
        widths.append(q.shape[-1])
        return in_xla(q, *others)

    monkeypatch.setattr(cudnn, "_run", counted)
    for depth, capture, expected in (
        (64, Capture(), [64]),
        (64, Capture(stats=CLASSES), [72]),
        (64, Capture(stats=("entropy",)), [128]),
        (64, CAPTURE, [72, 72]),
        (128, Capture(stats=CLASSES), [128, 128]),
    ):
        widths.clear()
        call = make(Case("any", 4, depth=depth), capture=capture)
        jax.eval_shape(lambda call=call: cudnn.attend(call))
        assert widths == expected


@pytest.mark.slow
def test_some_heads_under_vmap_and_jit():
    capture = Capture(stats=("lse", "entropy", CLASSES[1]), heads=(2, 0))
    call = make(CASES[1], capture=capture)

    def stats_of(q):
        return cudnn.attend(call._replace(q=q))[1].stats

    stats = jax.jit(jax.vmap(stats_of))(jnp.stack([call.q, 2 * call.q]))
    _, expected = plain(call)
    for name, stat in expected.stats.items():
        assert stats[name].shape == (2, 3, 2, 3)
        np.testing.assert_allclose(stats[name][0], stat, rtol=2e-5, atol=2e-5)
