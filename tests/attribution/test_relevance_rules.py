# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""AttnLRP as gradients: conserved in every layer of every family, and no output changes.

The truth for one layer is relevance propagation as the paper writes it, share by share in NumPy.
"""

import jax
import jax.numpy as jnp
import make_family_golden as golden
import numpy as np
import pytest
from flax import linen as nn
from lrp_by_hand import HandMadeGPT2

import flaxattn as fa
from flaxattn.attribution.relevance import absorbed, input_relevance, relevance_rules
from flaxattn.models.bert import BertLayer
from flaxattn.models.decoder import CausalDecoderLayer, DecoderLM
from flaxattn.models.layer_stack import unstacked
from flaxattn.models.layers import Dense, elementwise
from flaxattn.models.modernbert import ModernBertLayer
from flaxattn.models.seq2seq import DecoderLayer, EncoderLayer

LAYERS = (BertLayer, CausalDecoderLayer, ModernBertLayer, DecoderLayer, EncoderLayer)
OUTPUTS = ("logits", "start_logits", "last_hidden_state")
CONSERVED = 1e-4  # of the sum of the sizes of what comes in
CASES = [
    pytest.param(family, name, id=name)
    for family in golden.FAMILIES
    for name in golden.cases_of(family)
]


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    files = {}

    def find(family, name):
        stored = (files.get(family) or files.setdefault(family, golden.read(family)))[name]
        model = fa.from_pretrained(stored.write(tmp_path_factory.mktemp("model") / "theirs"))
        given = {key: jnp.asarray(a, jnp.int32) for key, a in stored.inputs().items()}
        return model, given

    return find


def main_output(module, params, given):
    out = module.apply({"params": params}, **given)
    return next(y for name in OUTPUTS if (y := getattr(out, name, None)) is not None)


def explained(module, params, given):
    """Sum of a random mixture of outputs, its size, and the gradients under the rules."""
    shapes = given["input_ids"].shape, given.get("decoder_input_ids", given["input_ids"]).shape
    probes = {"encoder": jnp.zeros(shapes[0]), "decoder": jnp.zeros(shapes[1])}
    expected = jax.eval_shape(lambda p: main_output(module, p, given), params)
    mixture = np.random.default_rng(0).normal(size=expected.shape).astype(np.float32)

    def total(params, probes):
        with relevance_rules(), input_relevance(probes):
            products = main_output(module, params, given) * mixture
        return products.sum(), jnp.abs(products).sum()

    graded = jax.jit(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))
    return graded(params, probes)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), CASES)
def test_inputs_biases_and_attention_add_up_to_what_is_explained(opened, family, name):
    model, given = opened(family, name)
    (value, size), (gradients, tokens) = explained(model.module, model.params, given)
    lost = absorbed(model.params, gradients)
    inputs = sum(float(np.asarray(one, np.float64).sum()) for one in tokens.values())
    assert abs(inputs + lost["biases"] + lost["attention"] - value) < CONSERVED * size
    assert sum(np.abs(one).sum() for one in tokens.values()) > 1e-3 * abs(value)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), CASES)
def test_outputs_are_the_same_bits_under_the_rules(opened, family, name):
    model, given = opened(family, name)

    def under_rules(params):
        with relevance_rules():
            return main_output(model.module, params, given)

    with jax.disable_jit():
        plain, ruled = main_output(model.module, model.params, given), under_rules(model.params)
    np.testing.assert_array_equal(np.asarray(plain), np.asarray(ruled))


def calls_of_layers(model, given):
    """Every layer that ran: module, parameters, input and other arguments, as numbers."""
    calls = []

    def note(next_call, args, kwargs, context):
        if isinstance(context.module, LAYERS) and context.method_name == "__call__":
            params = context.module.variables["params"]
            calls.append((context.module.clone(parent=None), params, args[0], kwargs))
        return next_call(*args, **kwargs)

    apart = unstacked(jax.tree.map(jnp.asarray, model.params))  # no scan: numbers, not tracers
    with nn.intercept_methods(note):
        main_output(model.module, apart, given)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), CASES)
def test_every_layer_conserves_relevance(opened, family, name):
    model, given = opened(family, name)
    calls = calls_of_layers(model, given)
    assert len(calls) >= model.config.num_hidden_layers
    for number, (layer, params, x, others) in enumerate(calls):
        names = [n for n in ("context", "norm_bias") if others.get(n) is not None]
        read = {n: others.pop(n) for n in names}

        def run(params, x, read, layer=layer, others=others):
            with relevance_rules():
                return layer.apply({"params": params}, x, **read, **others)

        out, pull = jax.vjp(run, params, x, read)
        above = jnp.asarray(np.random.default_rng(number).normal(size=out.shape), out.dtype)
        gradients, by_x, by_read = pull(above)
        lost = absorbed(params, gradients)
        parts = [x * by_x, *(read[n] * by_read[n] for n in names)]
        below = sum(float(np.asarray(part, np.float64).sum()) for part in parts)
        put_out = np.asarray(out * above, np.float64)
        gap = below + lost["biases"] + lost["attention"] - put_out.sum()
        assert abs(gap) < CONSERVED * np.abs(put_out).sum(), (number, gap)


def small_gpt2():
    config = fa.GPT2Config(
        vocab_size=11, n_embd=8, n_layer=1, n_head=2, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    module, rng = DecoderLM(config), np.random.default_rng(5)
    shapes = jax.eval_shape(module.init, jax.random.key(0), np.ones((1, 2), np.int32))["params"]
    params = jax.tree.map(lambda s: rng.normal(0, 0.5, s.shape).astype(np.float32), shapes)
    return module, params


def test_against_relevance_propagation_by_hand():
    module, params = small_gpt2()
    ids, position, token = np.array([[3, 7, 1, 9, 4]], np.int32), 4, 6
    by_hand = HandMadeGPT2(module.config, params, ids[0]).relevance(position, token)

    def logit(probes):
        with relevance_rules(), input_relevance(probes):
            return module.apply({"params": params}, ids).logits[0, position, token]

    value, found = jax.jit(jax.value_and_grad(logit))({"decoder": jnp.zeros((1, 5))})
    np.testing.assert_allclose(value, by_hand.logit, rtol=1e-5)
    np.testing.assert_allclose(found["decoder"][0], by_hand.tokens, rtol=2e-3, atol=2e-5)
    np.testing.assert_allclose(by_hand.tokens.sum() + by_hand.absorbed, by_hand.logit, rtol=1e-9)


def test_a_linear_model_has_gradient_times_input():
    class Linear(nn.Module):
        @nn.compact
        def __call__(self, x):
            return Dense(3, name="query")(Dense(5, name="value")(x))  # names of no attention

    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 4)).astype(np.float32)
    params = Linear().init(jax.random.key(0), x)["params"]
    params = jax.tree.map(lambda p: rng.normal(size=p.shape).astype(np.float32), params)

    def one(x):
        with relevance_rules():
            return Linear().apply({"params": params}, x)[:, 1].sum()

    rows = params["value"]["kernel"] @ params["query"]["kernel"][:, 1]
    np.testing.assert_allclose(x * jax.grad(one)(x), x * rows[None], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_an_activation_passes_relevance_on():
    x = jnp.array([-2.0, -0.5, 0.0, 0.3, 4.0])

    def total(x):
        with relevance_rules():
            return (elementwise(nn.silu, x) * jnp.arange(1.0, 6.0)).sum()

    passed = x * jax.grad(total)(x)
    np.testing.assert_allclose(passed, nn.silu(x) * jnp.arange(1.0, 6.0), rtol=1e-6, atol=1e-7)
    outside = jax.grad(lambda x: elementwise(nn.silu, x).sum())(x)
    np.testing.assert_allclose(outside, jax.grad(lambda x: nn.silu(x).sum())(x))
