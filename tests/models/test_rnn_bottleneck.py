# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The recurrent encoder-decoder without attention: one vector of the source, loops of NumPy.

`published` is the decoder of Cho et al. 2014 with the units of Bahdanau et al. 2015, written down
once more: float64, one sentence and one position at a time.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.models.rnn import RnnLM
from flaxattn.pretrained.pretrained_model import run
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq
from flaxattn.trace import tensor_file

CONFIG = fa.RnnConfig(
    vocab_size=23,
    decoder_vocab_size=19,
    embedding_size=6,
    hidden_size=8,
    attention=False,
    readout_size=5,
    max_position_embeddings=48,
)
MODULE = RnnLM(CONFIG)
RNG = np.random.default_rng(0)
SOURCE, TARGET = RNG.integers(2, 23, (3, 9)), RNG.integers(2, 19, (3, 7))
# Whole, padded behind, padded in front.
MASK = np.array([[1] * 9, [1] * 6 + [0] * 3, [0] * 2 + [1] * 7])
PLACES = [np.flatnonzero(row) for row in MASK]
INPUTS = {"input_ids": SOURCE, "attention_mask": MASK, "decoder_input_ids": TARGET}


def drawn(module: RnnLM, seed: int = 0) -> Any:
    """Parameters far from their start, biases too."""
    rng = np.random.default_rng(seed)
    tree = jax.eval_shape(module.init, jax.random.key(0), SOURCE)["params"]
    return jax.tree.map(lambda a: jnp.asarray(rng.normal(0, 0.7, a.shape), a.dtype), tree)


PARAMS = drawn(MODULE)


def unit(p: Any, state: np.ndarray, incoming: np.ndarray) -> np.ndarray:
    """(1 - z) s + z tanh(… + U (r s)); `incoming` is what does not come from the state."""
    uz, ur, u = np.split(p["recurrent"], 3, axis=1)
    gz, gr, g = np.split(incoming, 3)
    z, r = 1 / (1 + np.exp(-(gz + state @ uz))), 1 / (1 + np.exp(-(gr + state @ ur)))
    return (1 - z) * state + z * np.tanh(g + (r * state) @ u)


def last_state(p: Any, words: np.ndarray) -> np.ndarray:
    """The state of a unit that has read all words, in their order."""
    state = np.zeros(CONFIG.hidden_size)
    for x in words:
        state = unit(p, state, x @ p["input"]["kernel"] + p["input"]["bias"])
    return state


def published(params: Any, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Logits of one sentence without padding."""
    p = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    words, decoder = p["words"]["embedding"][source], p["decoder"]
    forward = last_state(p["encoder"]["forward"], words)
    backward = last_state(p["encoder"]["backward"], words[::-1])
    c = np.concatenate([forward, backward])
    state = np.tanh(backward @ decoder["start"]["kernel"] + decoder["start"]["bias"])
    logits = []
    for word in target:
        y = p["decoder_words"]["embedding"][word]
        pairs = np.concatenate([state, y, c]) @ decoder["readout"]["kernel"]
        pairs = pairs + decoder["readout"]["bias"]
        t = np.array([max(pairs[2 * j], pairs[2 * j + 1]) for j in range(len(pairs) // 2)])
        logits.append(t @ p["output"]["kernel"] + p["output"]["bias"])
        read = y @ decoder["unit"]["input"]["kernel"] + decoder["unit"]["input"]["bias"]
        state = unit(decoder["unit"], state, read + c @ decoder["context"])
    return np.stack(logits)


def test_every_number_is_that_of_the_formulas() -> None:
    out, records = run(MODULE.clone(capture=fa.Capture(weights=True)), PARAMS, INPUTS, True)
    assert not records, "there is no attention to record"
    for b, places in enumerate(PLACES):
        expected = published(PARAMS, SOURCE[b, places], TARGET[b])
        np.testing.assert_allclose(out.logits[b], expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_only_the_last_states_reach_the_decoder() -> None:
    """Another source with the same last states would write the same; here states are swapped in."""
    encoded = MODULE.apply({"params": PARAMS}, SOURCE, MASK, method="encode")
    between = np.array(encoded)
    between[:, 3:5] = 7.0  # neither first nor last position of any row
    decode = jax.jit(functools.partial(MODULE.apply, method="decode"))
    both = [decode({"params": PARAMS}, TARGET, states, MASK) for states in (encoded, between)]
    np.testing.assert_array_equal(*both)


@pytest.mark.slow
def test_there_are_no_parameters_of_attention() -> None:
    assert "cross_attention" not in PARAMS["decoder"]
    attending = RnnLM(dataclasses.replace(CONFIG, attention=True, attention_size=4))
    names = {"cross_attention", *PARAMS["decoder"]}
    assert set(drawn(attending)["decoder"]) == names


@pytest.mark.few("4")
@pytest.mark.parametrize("first", [1, 4])
def test_a_cache_changes_nothing(first: int) -> None:
    whole = run(MODULE, PARAMS, INPUTS, False)[0]
    cache: dict[str, Any] = {}
    begin, module = 0, MODULE.clone(cache_length=7)
    for end in [first, *range(first + 1, 8)]:
        encoded = jnp.zeros((3, 9, 16)) if cache else whole.encoder_last_hidden_state
        logits, cache = module.apply(
            {"params": PARAMS, **cache},
            TARGET[:, begin:end],
            encoded,
            MASK,
            position_ids=np.broadcast_to(np.arange(begin, end), (3, end - begin)),
            mutable=["cache"],
            method="decode",
        )
        np.testing.assert_allclose(logits, whole.logits[:, begin:end], rtol=0, atol=1e-5)
        begin = end


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 3])
def test_generated_text_is_the_likeliest(beams: int) -> None:
    model = PretrainedSeq2Seq(MODULE, PARAMS, None, CONFIG)
    settings = {"max_new_tokens": 6, "num_beams": beams}
    ids = model.generate(input_ids=SOURCE, attention_mask=MASK, **settings)
    for b, places in enumerate(PLACES):
        alone = model.generate(input_ids=SOURCE[b : b + 1, places], **settings)[0]
        np.testing.assert_array_equal(alone, ids[b, : len(alone)])
        if beams == 1:
            expected = published(PARAMS, SOURCE[b, places], alone[:-1]).argmax(1)
            np.testing.assert_array_equal(alone[1:], expected)


@pytest.mark.slow
def test_a_directory_comes_back_and_asking_for_attention_is_refused(tmp_path: Path) -> None:
    PretrainedSeq2Seq(MODULE, PARAMS, None, CONFIG).save_pretrained(tmp_path / "model")
    model = fa.from_pretrained(tmp_path / "model")
    assert model.config == CONFIG and model.counts() == (1, 0)
    jax.tree.map(np.testing.assert_array_equal, model.params, PARAMS)
    names = tensor_file.TensorFiles(tmp_path / "model").shapes
    assert not [name for name in names if "cross_attention" in name]
    with pytest.raises(InputError, match=r"has no attention: there is nothing to trace\.\n.*base"):
        model(**INPUTS, output_attentions=True)
    with pytest.raises(InputError, match="has no attention"):
        fa.extract(model, ["a"])
    assert model(**INPUTS).cross_attentions is None
