# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Contributions to logits: they add up, and each is what its part does, computed another way."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dense_gemma import DenseGemma, normed
from small_decoders import beginning_with_bos, gemma_config, write_decoder
from small_models import drawn

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.models.decoder import CausalDecoderLayer, DecoderLM
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

TEXTS = ["the cat sat on a mat and the cat", "a dog"]
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
OTHERS = {
    "llama": {},
    "llama, biased and tied": {
        "input_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    "gpt_neox": {
        "norm": "layer",
        "norm_eps": 1e-5,
        "gated": False,
        "hidden_act": "gelu",
        "input_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "parallel_residual": True,
    },
    "olmo2": {"norm_places": "after", "head_norm": "all"},
    "flaxattn_decoder": {"norm": "layer", "norm_places": "both", "gated": False},
}


def decoder(name: str) -> PretrainedDecoder:
    """A random model of a type."""
    tokenizer = beginning_with_bos()
    kind = name.split(",")[0]
    config = DecoderConfig(
        model_type=kind, vocab_size=tokenizer.vocab_size, **(SIZES | OTHERS[name])
    )
    module = DecoderLM(config)
    return PretrainedDecoder(
        module, drawn(module, np.ones((1, 2), np.int32)), tokenizer, config, name
    )


@pytest.fixture(scope="module")
def gpt2() -> Any:
    return fa.from_pretrained("tiny-gpt2")


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return fa.from_pretrained(write_decoder(tmp_path_factory.mktemp("models") / "gemma"))


def logits_of_targets(model: Any, predictions: Any, mask: np.ndarray) -> np.ndarray:
    """The model's logit of each target, 0 at padding."""
    logits = model(input_ids=predictions.ids, attention_mask=mask.astype(np.int32)).logits
    chosen = np.take_along_axis(np.asarray(logits), predictions.targets[..., None], -1)[..., 0]
    return np.where(mask, chosen, 0)


def assert_adds_up(model: Any) -> Any:
    trace = fa.logit_contributions(model, model.trace(TEXTS, predictions=3))
    found = trace.predictions
    expected = logits_of_targets(model, found, trace.mask)
    np.testing.assert_allclose(np.where(trace.mask, found.logits(), 0), expected, atol=1e-4)
    assert abs(expected).max() > 0.5
    return trace


def silenced(model: Any, part: str) -> Any:
    """The model whose parameters of a part are all 0."""

    def zero(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return np.zeros_like(leaf) if part in name else leaf

    return dataclasses.replace(model, params=jax.tree_util.tree_map_with_path(zero, model.params))


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_contributions_add_up_to_the_logit(name: str) -> None:
    assert_adds_up(decoder(name))


@pytest.mark.slow
def test_contributions_of_trained_and_of_post_norm_models_add_up(gpt2: Any, gemma: Any) -> None:
    trace = assert_adds_up(gpt2)
    assert trace.predictions.heads.shape == (2, 9, 4, 6)
    assert trace[1].predictions.heads.shape == (1, len(trace[1].tokens[0]), 4, 6)
    assert_adds_up(gemma)
    assert_adds_up(gpt2.prune({0: [1], 2: [0, 5]}))


@pytest.mark.few("olmo2")
@pytest.mark.parametrize("name", OTHERS)
def test_a_feed_forward_layer_without_weights_adds_nothing(name: str) -> None:
    """What is not a head's, an embedding's or a bias's is a feed-forward layer's, and only its."""
    trace = assert_adds_up(silenced(decoder(name), "feed_forward"))
    assert abs(trace.predictions.feed_forward).max() < 1e-5
    assert abs(trace.predictions.heads).max() > 0.05
    trace = assert_adds_up(silenced(decoder(name), "attention/output/"))
    assert abs(trace.predictions.heads).max() < 1e-6


@pytest.mark.slow
def test_a_head_adds_what_its_weighted_values_do(gpt2: Any) -> None:
    """From attention weights and values, with the last norm spelt out."""
    requested = Capture(weights=True, value=True)
    one = fa.logit_contributions(gpt2, gpt2.trace(TEXTS[0], capture=requested, predictions=1))[0]
    found, p = one.predictions, gpt2.params["model"]
    ids = found.ids
    x = np.asarray(gpt2(input_ids=ids, output_hidden_states=True).hidden_states[-1], np.float64)
    normal = (x - np.asarray(p["norm"]["bias"])) / np.asarray(p["norm"]["scale"])
    layers = p["decoder"]["layers"]["attention"]["output"]
    for layer in range(4):
        kernel = np.asarray(layers["kernel"], np.float64)[layer].reshape(6, -1, x.shape[-1])
        value, weights = (
            np.asarray(a, np.float64) for a in (one.decoder.value, one.decoder.weights)
        )
        mixed = np.einsum("hqk,khd->hqd", weights[layer, 0], value[layer, 0])
        added = np.einsum("hqd,hde->qhe", mixed, kernel)
        added -= added.mean(-1, keepdims=True)
        spread = spread_of(gpt2, ids, normal)
        words = np.asarray(p["words"]["embedding"], np.float64)[found.targets[0]]
        scaled = words * np.asarray(p["norm"]["scale"], np.float64)
        expected = np.einsum("qhe,qe->qh", added, scaled) / spread[:, None]
        np.testing.assert_allclose(found.heads[0, :, layer], expected, atol=1e-4)


def spread_of(model: Any, ids: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Standard deviation of the last residual stream: from the embeddings and what layers add.

    The stream itself is not an output of the model; its norm is, so the stream is known up to this
    one number, which the layer before and the last layer's own output tell.
    """
    hidden = model(input_ids=ids, output_hidden_states=True).hidden_states
    last = jax.tree.map(lambda a: jnp.asarray(a)[-1], model.params["model"]["decoder"]["layers"])
    layer = CausalDecoderLayer(model.config, positions=None)
    after = layer.apply({"params": last}, jnp.asarray(hidden[-2]), rotations={})
    stream = np.asarray(after, np.float64)[0]
    centred = stream - stream.mean(-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(-1) + model.config.layer_norm_epsilon)
    np.testing.assert_allclose(centred / spread[:, None], normal[0], atol=1e-4)
    return spread


@pytest.mark.slow
def test_a_head_behind_a_norm_adds_what_the_norm_lets_through(gemma: Any) -> None:
    """Against a model in NumPy that holds what every head adds before the norm after attention."""
    one = fa.logit_contributions(gemma, gemma.trace(TEXTS[0], predictions=1))[0]
    found, dense = one.predictions, DenseGemma(gemma)
    ids = found.ids[0]
    layers = dense.run(ids)[0]
    words = np.asarray(gemma.params["model"]["words"]["embedding"], np.float64)
    final = 1 + np.asarray(gemma.params["model"]["norm"]["scale"], np.float64)
    shares = []
    for number, layer in enumerate(layers):
        by_head = np.einsum("hqk,hke->hqe", layer.weights, layer.vectors)
        scale = dense.parameter(number, "attention_post_norm/scale")
        whole = by_head.sum(0)
        # The norm divides by one number for each position and scales each dimension.
        factor = np.sqrt((whole**2).mean(-1) + gemma.config.norm_eps)
        through = by_head * (1 + scale) / factor[None, :, None]
        np.testing.assert_allclose(through.sum(0), normed(whole, scale), atol=1e-6)
        raw = np.einsum("hqe,qe->qh", through, words[found.targets[0]] * final)
        shares.append(found.heads[0, :, number] / raw)
    # What is left is 1 over the root mean square of the last stream, one number for a position.
    every = np.stack(shares)
    np.testing.assert_allclose(every, np.broadcast_to(every[:1, :, :1], every.shape), rtol=1e-3)
    assert (every > 0).all()


@pytest.mark.slow
def test_a_capped_logit_is_the_sum_before_its_cap() -> None:
    tokenizer = beginning_with_bos()
    config = dataclasses.replace(gemma_config(tokenizer.vocab_size), final_logit_softcapping=3.0)
    module = DecoderLM(config)
    params = drawn(module, np.ones((1, 2), np.int32))
    model = PretrainedDecoder(module, params, tokenizer, config, "capped")
    trace = fa.logit_contributions(model, model.trace(TEXTS, predictions=3))
    found = trace.predictions
    capped = 3 * np.tanh(np.where(trace.mask, found.logits(), 0) / 3)
    np.testing.assert_allclose(capped, logits_of_targets(model, found, trace.mask), atol=1e-4)


def test_what_has_no_contributions(gpt2: Any, bert: Any) -> None:
    with pytest.raises(InputError, match="holds no predictions"):
        fa.logit_contributions(gpt2, gpt2.trace("It was"))
    trace = gpt2.trace("It was", predictions=1)
    with pytest.raises(InputError, match="decoder that scores next tokens"):
        fa.logit_contributions(bert, trace)
    with pytest.raises(InputError, match="decoder that scores next tokens"):
        fa.logit_contributions(fa.from_pretrained("tiny-dates"), trace)
    with pytest.raises(InputError, match="of the model 'tiny-gpt2'; this one is 'llama'"):
        fa.logit_contributions(decoder("llama"), trace)
