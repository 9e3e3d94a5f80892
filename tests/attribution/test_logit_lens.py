# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The logit lens against hidden states that are normed and unembedded in NumPy."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_decoders import beginning_with_bos, gemma_config
from small_encoders import unigram, write_encoder
from small_models import drawn, with_nan

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.models.decoder import DecoderLM
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

TEXTS = ["The old man and the sea", "It was"]


def wide(array: Any) -> np.ndarray:
    return np.asarray(array, np.float64)


def layer_norm(x: np.ndarray, params: Any, epsilon: float) -> np.ndarray:
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
    return x * wide(params["scale"]) + wide(params["bias"])


def root_mean_square(x: np.ndarray, scale: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * scale


def assert_reads(lens: Any, logits: np.ndarray) -> None:
    """Logits `[N, T, V]` of each state are those that the lens read."""
    shares = logits - logits.max(-1, keepdims=True)
    shares = shares - np.log(np.exp(shares).sum(-1, keepdims=True))
    best = -np.sort(-shares, axis=-1)[..., : lens.likeliest.shape[-1]]
    np.testing.assert_allclose(lens.likeliest, best, atol=2e-4)
    own = shares[:, np.arange(len(lens.target_ids)), lens.target_ids]
    np.testing.assert_allclose(lens.log_probability, own, atol=2e-4)
    at_best = np.take_along_axis(shares, lens.best_ids, -1)
    np.testing.assert_allclose(at_best, best, atol=2e-4)
    closer = (shares > own[..., None] + 1e-3).sum(-1) + 1
    wider = (shares > own[..., None] - 1e-3).sum(-1)
    assert ((closer <= lens.rank) & (lens.rank <= np.maximum(wider, closer))).all()


@pytest.fixture(scope="module")
def tiny() -> Any:
    return fa.from_pretrained("tiny-gpt2")


@pytest.mark.slow
def test_states_of_a_gpt2_go_through_the_final_norm(tiny: Any) -> None:
    for lens, text in zip(fa.logit_lens(tiny, TEXTS, k=4), TEXTS, strict=True):
        ids = tiny.read(text).given["input_ids"]
        states = tiny(input_ids=ids, output_hidden_states=True).hidden_states
        norm, words = tiny.params["model"]["norm"], tiny.params["model"]["words"]["embedding"]
        earlier = [layer_norm(wide(x)[0], norm, 1e-5) for x in states[:-1]]
        assert_reads(lens, np.stack([*earlier, wide(states[-1])[0]]) @ wide(words).T)
        assert lens.names == ("embeddings", "layer 0", "layer 1", "layer 2", "layer 3")
        assert lens.target_ids[:-1].tolist() == ids[0, 1:].tolist()
        assert lens.follows.tolist() == [True] * (ids.shape[1] - 1) + [False]
        assert lens.rank[-1, -1] == 1  # nothing follows; the likeliest token stands for it


def test_the_last_state_is_the_prediction_of_the_model(tiny: Any, translation: Any) -> None:
    for text in TEXTS:  # each by itself, for in a batch sums are rounded in another order
        lens, found = fa.logit_lens(tiny, text), tiny.trace(text, predictions=5).predictions
        np.testing.assert_allclose(lens.likeliest[-1], found.likeliest[0], atol=1e-6)
        np.testing.assert_allclose(lens.log_probability[-1], found.log_probability[0], atol=1e-6)
        assert (lens.rank[-1] == found.rank[0]).all() and list(lens.targets) == found.tokens[0]
        assert lens.alternatives[-1] == found.alternatives[0]
    found = translation.trace("a b c", "d e", predictions=3)[0].predictions
    lens = fa.logit_lens(translation, "a b c", "d e", k=3)
    np.testing.assert_allclose(lens.likeliest[-1], found.likeliest[0], atol=1e-6)
    assert list(lens.targets) == found.tokens[0] and lens.rank.shape[0] == 3


@pytest.mark.slow
def test_a_gemma_is_capped_and_normed_by_one_plus_its_scale() -> None:
    tokenizer = beginning_with_bos()
    config = dataclasses.replace(gemma_config(tokenizer.vocab_size), final_logit_softcapping=3.0)
    module = DecoderLM(config)
    params = drawn(module, np.ones((1, 2), np.int32))
    model = PretrainedDecoder(module, params, tokenizer, config, "gemma")
    ids = model.read("the cat").given["input_ids"]
    states = model(input_ids=ids, output_hidden_states=True).hidden_states
    scale = 1 + wide(params["model"]["norm"]["scale"])
    earlier = [root_mean_square(wide(x)[0], scale, config.norm_eps) for x in states[:-1]]
    logits = (
        np.stack([*earlier, wide(states[-1])[0]]) @ wide(params["model"]["words"]["embedding"]).T
    )
    assert_reads(fa.logit_lens(model, "the cat"), 3 * np.tanh(logits / 3))


@pytest.mark.slow
def test_a_t5_is_read_at_its_decoder(t5: Any) -> None:
    reading = t5.read("a b c", "d e")
    states = t5(**reading.given, output_hidden_states=True).decoder_hidden_states
    scale = wide(t5.params["model"]["decoder_norm"]["scale"])
    earlier = [root_mean_square(wide(x)[0], scale, 1e-6) for x in states[:-1]]
    words = wide(t5.params["model"]["words"]["embedding"])
    logits = np.stack([*earlier, wide(states[-1])[0]]) @ words.T * 16**-0.5
    lens = fa.logit_lens(t5, "a b c", "d e")
    assert_reads(lens, logits)
    assert lens.target_ids.tolist() == reading.written[0].tolist()
    written = fa.logit_lens(t5, "a b c")  # what the model writes itself
    assert written.follows.all() and (written.rank[-1] == 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "esm"])
def test_a_masked_model_predicts_the_tokens_that_stand_there(tmp_path: Path, kind: str) -> None:
    tokenizer = unigram()
    settings = {"pad_token_id": tokenizer.pad_id} if kind == "esm" else {}
    path = write_encoder(tmp_path / kind, "ForMaskedLM", tokenizer, model_type=kind, **settings)
    model = fa.from_pretrained(path)
    text = f"the cat {tokenizer.mask_token} sad"
    reading = model.read(text)
    given = {name: a for name, a in reading.given.items() if name != "key_classes"}
    states = [wide(x)[0] for x in model(**given, output_hidden_states=True).hidden_states]
    params, head = model.params["bert"], model.params["mlm_head"]
    if kind == "esm":  # its last state has gone through the norm already
        norm = params["final_norm"]
        states[:-1] = [layer_norm(x, norm, model.config.layer_norm_eps) for x in states[:-1]]
    x = np.stack(states) @ wide(head["dense"]["kernel"]) + wide(head["dense"]["bias"])
    x = x * 0.5 * (1 + np.vectorize(math.erf)(x / 2**0.5))
    x = layer_norm(x, head["norm"], model.config.layer_norm_eps)
    words = wide(params["embeddings"]["word"]["embedding"])
    lens = fa.logit_lens(model, text)
    assert_reads(lens, x @ words.T + wide(head["bias"]))
    ids = reading.given["input_ids"][0]
    assert lens.follows.tolist() == [
        not special and i != tokenizer.mask_id
        for i, special in zip(ids, reading.metadata.special[0], strict=True)
    ]
    assert (lens.target_ids[lens.follows] == ids[lens.follows]).all()


@pytest.mark.slow
def test_a_modern_bert_has_a_lens(modern: Any) -> None:
    lens = fa.logit_lens(modern, "the cat", k=2)
    ids = modern.read("the cat").given["input_ids"]
    logits = wide(modern(input_ids=ids).logits)[0]
    shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_allclose(lens.likeliest[-1, :, 0], shares.max(-1), atol=1e-4)
    assert lens.rank.shape == (4, ids.shape[1])


def test_rows_are_a_table(tiny: Any) -> None:
    lens = fa.logit_lens(tiny, "It was", k=2)
    rows = lens.rows()
    assert len(rows) == 5 * len(lens.tokens) and rows[0]["layer"] == -1
    last = rows[-len(lens.tokens)]
    assert last["token"] == lens.tokens[0] and last["tokens"] == lens.alternatives[4][0]
    assert last["probability"] == pytest.approx(math.exp(lens.log_probability[4, 0]))
    assert (
        repr(lens)
        == f"LogitLens('tiny-gpt2': 5 states of {len(lens.tokens)} positions, 2 alternatives)"
    )


def test_what_has_no_lens_is_refused_in_words(bert: Any, rnn: Any, gpt2: Any, tiny: Any) -> None:
    for model in (bert, gpt2):
        with pytest.raises(InputError) as caught:
            fa.logit_lens(model, "a b")
        lines = str(caught.value).splitlines()
        assert len(lines) == 3 and lines[0].endswith("which predicts no tokens.")
        assert lines[2].startswith("Name a language model, or load an encoder with head=")
    with pytest.raises(InputError, match="recurrent and has no layers to look into"):
        fa.logit_lens(rnn, "a b", "a")
    with pytest.raises(InputError, match="k: expected a whole number from 1 to 8192"):
        fa.logit_lens(tiny, "a b", k=0)


@pytest.mark.slow
def test_nan_is_refused_by_the_layer_it_appears_behind(tiny: Any) -> None:
    broken = with_nan(tiny)
    with pytest.raises(InputError, match="the scores behind layer 1 of text 0 are NaN"):
        fa.logit_lens(broken, TEXTS)
    lens = fa.logit_lens(broken, "It was", allow_nonfinite=True)
    assert np.isfinite(lens.likeliest[:2]).all() and np.isnan(lens.likeliest[2:]).all()
