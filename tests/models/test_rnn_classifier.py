# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The recurrent text classifier against loops of NumPy, its loss, and its directory."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.models.rnn import RnnForSequenceClassification
from flaxattn.pretrained.pretrained_encoders import PretrainedRnnClassifier
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.trace import tensor_file

CONFIG = fa.RnnConfig(
    vocab_size=23,
    embedding_size=6,
    hidden_size=8,
    max_position_embeddings=48,
    labels=("bad", "fair", "good"),
    architectures=("RnnForSequenceClassification",),
)
MODULE = RnnForSequenceClassification(CONFIG)
RNG = np.random.default_rng(0)
IDS = RNG.integers(2, 23, (3, 9))
# Whole, padded behind, padded in front.
MASK = np.array([[1] * 9, [1] * 6 + [0] * 3, [0] * 2 + [1] * 7])
LABELS = np.array([2, 0, 1])


def drawn(seed: int = 0) -> Any:
    """Parameters far from their start, biases too."""
    rng = np.random.default_rng(seed)
    tree = jax.eval_shape(MODULE.init, jax.random.key(0), IDS)["params"]
    return jax.tree.map(lambda a: jnp.asarray(rng.normal(0, 0.7, a.shape), a.dtype), tree)


MODEL = PretrainedRnnClassifier(MODULE, drawn(), None, CONFIG, name="drawn")


def last_state(p: Any, words: np.ndarray) -> np.ndarray:
    """The state of a unit that has read all words, in their order."""
    state = np.zeros(CONFIG.hidden_size)
    uz, ur, u = np.split(p["recurrent"], 3, axis=1)
    for x in words:
        gz, gr, g = np.split(x @ p["input"]["kernel"] + p["input"]["bias"], 3)
        z, r = 1 / (1 + np.exp(-(gz + state @ uz))), 1 / (1 + np.exp(-(gr + state @ ur)))
        state = (1 - z) * state + z * np.tanh(g + (r * state) @ u)
    return state


def expected_logits(params: Any, ids: np.ndarray) -> np.ndarray:
    p = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    words = p["words"]["embedding"][ids]
    forward = last_state(p["encoder"]["forward"], words)
    backward = last_state(p["encoder"]["backward"], words[::-1])
    both = np.concatenate([forward, backward])
    return both @ p["classifier"]["kernel"] + p["classifier"]["bias"]


def truth() -> np.ndarray:
    rows = zip(IDS, MASK == 1, strict=True)
    return np.stack([expected_logits(MODEL.params, ids[real]) for ids, real in rows])


def test_logits_and_loss_are_those_of_the_loops() -> None:
    out = MODEL(IDS, MASK, labels=LABELS)
    np.testing.assert_allclose(out.logits, truth(), rtol=0, atol=1e-5)
    shares = np.exp(truth()) / np.exp(truth()).sum(1, keepdims=True)
    expected = -np.log(shares[np.arange(3), LABELS]).mean()
    np.testing.assert_allclose(out.loss, expected, rtol=1e-5)


def test_padding_is_not_read() -> None:
    other = np.where(MASK == 1, IDS, 5)
    np.testing.assert_array_equal(MODEL(IDS, MASK).logits, MODEL(other, MASK).logits)


@pytest.mark.slow
def test_it_learns_by_its_gradient() -> None:
    def loss(params: Any) -> Any:
        logits = MODULE.apply({"params": params}, IDS, MASK).logits
        return -jax.nn.log_softmax(logits)[jnp.arange(3), LABELS].mean()

    params, step = MODEL.params, jax.jit(jax.value_and_grad(loss))
    first = float(step(params)[0])
    for _ in range(60):
        params = jax.tree.map(lambda a, g: a - 0.3 * g, params, step(params)[1])
    assert float(step(params)[0]) < 0.1 * first


@pytest.mark.slow
def test_dropout_drops_only_when_requested() -> None:
    module = RnnForSequenceClassification(dataclasses.replace(CONFIG, dropout=0.5))
    still = module.apply({"params": MODEL.params}, IDS, MASK).logits
    np.testing.assert_allclose(still, truth(), atol=1e-5)
    rngs = {"dropout": jax.random.key(0)}
    dropped = module.apply({"params": MODEL.params}, IDS, MASK, deterministic=False, rngs=rngs)
    assert np.abs(dropped.logits - still).max() > 0.1


def test_a_directory_comes_back(tmp_path: Path) -> None:
    MODEL.save_pretrained(tmp_path / "model")
    again = fa.from_pretrained(tmp_path / "model")
    assert isinstance(again, PretrainedRnnClassifier) and again.config == CONFIG
    assert not again.report.table() and "RnnForSequenceClassification, 1 layer" in repr(again)
    jax.tree.map(np.testing.assert_array_equal, again.params, MODEL.params)
    names = set(tensor_file.TensorFiles(tmp_path / "model").shapes)
    assert {"classifier.weight", "encoder.forward.recurrent.weight"} < names
    assert not [name for name in names if name.startswith(("decoder.", "output."))]
    with pytest.raises(InputError, match="has no attention: there is nothing to trace"):
        again.trace("a text")
    with pytest.raises(InputError, match="reads no pairs"):
        again.read("a", "b")


def reader() -> Tokenizer:
    """One word per token, without special tokens."""
    words = {word: number for number, word in enumerate(["<pad>", "<unk>", *"abcdefgh"])}
    backend = tokenizers.Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<pad>", "<unk>"])
    return Tokenizer(backend, {"pad_token": "<pad>", "unk_token": "<unk>"})


def test_texts_are_classified_and_embedded() -> None:
    model = dataclasses.replace(MODEL, tokenizer=reader())
    texts = ["a b c d", "e", "b a"]
    for text, labels in zip(texts, fa.classify(model, texts), strict=True):
        ids = np.array(["abcdefgh".index(letter) + 2 for letter in text.split()])
        logits = expected_logits(MODEL.params, ids)
        shares = np.exp(logits) / np.exp(logits).sum()
        found = {one.label: one.score for one in labels}
        np.testing.assert_allclose(
            [found[name] for name in CONFIG.labels], shares, rtol=1e-4, atol=1e-6
        )
    alone = model(model.tokenizer.encode(["e"], max_length=8).input_ids).last_hidden_state
    np.testing.assert_allclose(fa.embed(model, texts)[1], alone[0, 0], rtol=1e-5, atol=1e-6)
