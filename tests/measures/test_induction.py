# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Head detectors against attention whose scores are known, and against a head built by hand."""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.kernels.attention import attention
from flaxattn.kernels.contract import Capture
from flaxattn.measures.induction import (
    DUPLICATE,
    INDUCTION,
    KINDS,
    PREVIOUS,
    repeat_capture,
    repeat_scores,
    repeat_tests,
    repeated_tokens,
)
from flaxattn.models.multi_head_attention import MultiHeadAttention
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace

N, S = 6, 13


def looking_back(gap):
    """Every query looks at the key `gap` before it; at itself where there is none."""
    weights = np.zeros((S, S), np.float32)
    for i in range(S):
        weights[i, i - gap if i >= gap else i] = 1
    return weights


def uniform(length=S):
    return np.tril(np.ones((length, length), np.float32)) / np.arange(1, length + 1)[:, None]


def scores_of(*heads, **options):
    weights = np.stack(heads)[None, None]
    tokens = [["x"] * weights.shape[-1]]
    trace = Trace.from_arrays(decoder_weights=weights, tokens=tokens, decoder_tokens=tokens)
    return repeat_scores(trace, N, **options)


def test_exact_patterns_score_one_and_nothing_else():
    found = scores_of(looking_back(1), looking_back(N), looking_back(N - 1))
    for number, kind in enumerate(KINDS):
        np.testing.assert_array_equal(found.scores[kind][0], np.eye(3)[number])
        assert [best.head for best in found.strongest(kind)] == [
            number,
            *(n for n in range(3) if n != number),
        ]


def test_kinds_are_tested_over_sequences_as_scipy_does():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(S), (1, 5, 3, S))  # three heads on five sequences
    weights[:, :, 1] = 0.3 * weights[:, :, 1] + 0.7 * looking_back(N - 1)
    tokens = [["x"] * S] * 5
    trace = Trace.from_arrays(decoder_weights=weights, tokens=tokens, decoder_tokens=tokens)
    found = repeat_scores(trace, N, causal=False)
    tests = repeat_tests(found, tau=2, correction="none")
    masses = [weights[0, :, :, q, q - N + 1] for q in range(1 + N, S)]
    lifts = np.mean(masses, axis=0) * S
    oracle = ttest_1samp(lifts, 2, alternative="greater").pvalue
    p, has = tests[INDUCTION]
    np.testing.assert_allclose(p[0], oracle, rtol=1e-3)
    assert has.tolist() == [[False, True, False]] and not tests[DUPLICATE][1].any()
    corrected = repeat_tests(found, tau=2, correction="bonferroni")[INDUCTION][0]
    np.testing.assert_allclose(corrected[0, 1], p[0, 1] * 9)


@pytest.mark.parametrize("beginning", [0, 1])
def test_uniform_attention_has_a_lift_of_one(beginning):
    length = 2 * N + beginning
    found = scores_of(uniform(length))
    of_half = np.mean([1 / (i + 1) for i in range(beginning + N, length)])
    of_all = np.mean([1 / (i + 1) for i in range(beginning + 1, length)])
    expected = {PREVIOUS: of_all, DUPLICATE: of_half, INDUCTION: of_half}
    for kind in KINDS:
        assert found.scores[kind][0, 0] == pytest.approx(expected[kind])
        assert found.lift(kind)[0, 0] == pytest.approx(1)


def test_without_a_causal_mask_every_key_counts():
    found = scores_of(np.full((S, S), 1 / S, np.float32), causal=False)
    assert [found.lift(kind)[0, 0] for kind in KINDS] == pytest.approx([1, 1, 1])


def test_the_beginning_is_no_previous_token():
    sink = np.zeros((S, S), np.float32)
    sink[:, 0] = 1
    assert scores_of(sink).scores[PREVIOUS] == 0


def test_errors_are_those_of_a_mean_over_sequences():
    shares = np.random.default_rng(0).dirichlet(np.ones(S), (2, 5, 3, S)).astype(np.float32)
    tokens = [["x"] * S] * 5
    trace = Trace.from_arrays(shares, tokens)
    found = repeat_scores(trace, N)
    queries = np.arange(N + 1, S)
    each = shares[..., queries, queries - N + 1].mean(-1)  # [L, B, H]
    np.testing.assert_allclose(found.scores[INDUCTION], each.mean(1), rtol=1e-6)
    expected = np.sqrt(((each - each.mean(1, keepdims=True)) ** 2).sum(1) / 4 / 5)
    np.testing.assert_allclose(found.errors[INDUCTION], expected, rtol=1e-5)
    (best, *_) = found.strongest(INDUCTION, 2)
    assert best.score == found.scores[INDUCTION].max()
    assert best.lift == pytest.approx(best.score / found.uniform[INDUCTION])
    assert np.isnan(scores_of(uniform()).errors[PREVIOUS]).all()


@given(
    length=st.integers(2, 12),
    sequences=st.integers(1, 4),
    first=st.none() | st.integers(0, 19),
    seed=st.integers(0, 99),
)
def test_sequences_repeat_different_tokens(length, sequences, first, seed):
    made = {"first": first, "avoid": (3, 7), "seed": seed}
    ids = repeated_tokens(sequences, length, 20, **made)
    start = ids.shape[1] - 2 * length
    assert start == (first is not None)
    assert (ids[:, :start] == first).all()
    once, again = ids[:, start : start + length], ids[:, start + length :]
    np.testing.assert_array_equal(once, again)
    assert not np.isin(once, [3, 7, -1 if first is None else first]).any()
    assert all(len(set(row)) == length for row in once.tolist())
    np.testing.assert_array_equal(ids, repeated_tokens(sequences, length, 20, **made))


def one_hot(ids, size):
    return np.eye(size, dtype=np.float32)[ids]


def test_a_circuit_built_by_hand_is_found():
    """Two layers of attention: the first copies the token before, the second looks it up."""
    vocabulary, sharp = 20, 40.0
    ids = repeated_tokens(3, N, vocabulary, first=0)
    token, place = one_hot(ids, vocabulary), one_hot(np.arange(S), S)[None].repeat(3, 0)
    before = np.roll(place, -1, axis=-1)
    before[:, 0] = 0
    pad = ((0, 0), (0, 0), (0, vocabulary - S))
    layer = {}
    capture = Capture(weights=True)
    q, k = np.pad(before, pad), np.pad(place, pad)
    read, layer[0] = attention(
        *(jnp.asarray(x)[:, :, None] for x in (sharp * q, k, token)),
        causal=True,
        scale=1.0,
        capture=capture,
    )
    was = np.asarray(read)
    _, layer[1] = attention(
        *(jnp.asarray(x)[:, :, None] for x in (sharp * token, was[:, :, 0], token)),
        causal=True,
        scale=1.0,
        capture=capture,
    )
    weights = np.stack([layer[0].weights, layer[1].weights])
    found = repeat_scores(
        Trace(decoder=AttentionRecord(weights=weights, layers=(0, 1), heads=(0,))), N
    )
    assert found.scores[PREVIOUS][0, 0] > 0.99
    assert found.scores[INDUCTION][1, 0] > 0.99
    assert found.scores[INDUCTION][0, 0] < 0.01 > found.scores[DUPLICATE].max()
    (best,) = found.strongest(INDUCTION, 1)
    assert (best.layer, best.head, best.error < 0.01) == (1, 0, True)


class Tiny(nn.Module):
    """Ids to causal attention, as a language model has it."""

    capture: Capture = Capture(weights=True)

    @nn.compact
    def __call__(self, input_ids):
        x = nn.Embed(20, 8)(input_ids)
        attend = MultiHeadAttention(2, causal=True, capture=self.capture, name="decoder")
        return attend(x)


@pytest.fixture(scope="module")
def model():
    module = Tiny()
    params = module.init(jax.random.key(0), jnp.zeros((1, 4), jnp.int32))["params"]
    params["decoder"]["query"]["kernel"] *= 400.0  # away from uniform attention
    config = types.SimpleNamespace(bos_token_id=0, vocab_size=20, n_positions=30)
    return types.SimpleNamespace(module=module, params=params, config=config)


@pytest.mark.slow
def test_a_model_is_scored_alike_by_its_statistics_and_by_its_weights(model):
    found = fa.detect_heads(model, sequences=4, length=N, seed=3)
    ids = repeated_tokens(4, N, 20, first=0, seed=3)
    apply = jax.jit(functools.partial(model.module.apply, mutable=["intermediates"]))
    _, state = apply({"params": model.params}, ids)
    expected = repeat_scores(Trace.from_variables(state), N)
    assert (found.layers, found.heads, found.sequences, found.length) == ((0,), (0, 1), 4, N)
    for kind in KINDS:
        np.testing.assert_allclose(found.scores[kind], expected.scores[kind], atol=1e-6)
        np.testing.assert_allclose(found.errors[kind], expected.errors[kind], atol=1e-6)
        assert found.scores[kind].std() > 0
    assert found.uniform == expected.uniform


class Crossing(Tiny):
    """Ids to attention within them and across."""

    @nn.compact
    def __call__(self, input_ids):
        x = nn.Embed(20, 8)(input_ids)
        attend = MultiHeadAttention(2, capture=self.capture, name="cross_attention")
        return attend(x, x)


def test_an_encoder_decoder_is_refused(model):
    module = Crossing()
    params = module.init(jax.random.key(0), jnp.zeros((1, 4), jnp.int32))["params"]
    crossing = types.SimpleNamespace(module=module, params=params, config=model.config)
    with pytest.raises(InputError, match="this one has an encoder and a decoder") as caught:
        fa.detect_heads(crossing, sequences=1, length=N)
    assert len(str(caught.value).splitlines()) == 2


def test_a_figure_shows_the_scores():
    found = scores_of(looking_back(1), looking_back(N - 1))
    figure = fa.plot_head_scores(found, [PREVIOUS, INDUCTION])
    for ax, kind in zip(figure.axes, (PREVIOUS, INDUCTION), strict=False):
        assert ax.get_title() == kind
        np.testing.assert_array_equal(ax.images[0].get_array(), found.scores[kind])
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["0", "1"]
    assert (figure.axes[0].get_ylabel(), figure.axes[0].get_xlabel()) == ("layer", "head")


WINDOW = dataclasses.replace(
    AttentionRecord(weights=uniform()[None, None, None], layers=(0,), heads=(0,)),
    query_window=(0, S),
)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda model: repeated_tokens(1, 9, 8), "9 different tokens cannot be drawn from 8 ids"),
        (lambda model: fa.detect_heads(model, length=15), "are 31 positions; this model has 30"),
        (lambda model: repeat_scores(Trace(), N), r"capture=repeat_capture\(6\)"),
        (lambda model: repeat_scores(Trace(decoder=WINDOW), N), "this trace holds a window"),
        (lambda model: scores_of(uniform(15)), "12 or 13 real positions, 6 repeated, received 15"),
        (lambda model: scores_of(uniform()).strongest("copying"), "no kind of head 'copying'"),
    ],
)
def test_what_cannot_be_scored_says_so(model, make, message):
    with pytest.raises(InputError, match=message) as caught:
        make(model)
    assert len(str(caught.value).splitlines()) <= 3


def test_the_request_names_its_kinds_and_asks_for_no_weights():
    capture = repeat_capture(N, layers=[1])
    assert (capture.keys, capture.weights, capture.layers) == (KINDS, False, (1,))
    assert [sieve.offsets[0] for sieve in capture.sieves] == [-1, -6, -5]
