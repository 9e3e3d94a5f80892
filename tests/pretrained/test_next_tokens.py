# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Next-token probabilities of traces, against a softmax of the model's own logits in float64."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.trace.token_predictions import Predictions
from flaxattn.trace.trace import Trace

TEXTS = ["The old man looked at the sea. The old man", "She went"]
DATES = ["march 5, 1999", "7 may 2010"]


@pytest.fixture(scope="module")
def gpt2() -> Pretrained:
    return fa.from_pretrained("tiny-gpt2")


@pytest.fixture(scope="module")
def dates() -> Pretrained:
    return fa.from_pretrained("tiny-dates")


def log_softmax(logits: Any) -> np.ndarray:
    scores = np.asarray(logits, np.float64)
    return scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)


def assert_is_softmax(found: Predictions, scores: np.ndarray, row: int = 0) -> None:
    """The predictions of a text are those of log-probabilities `[T, V]`."""
    length, count = len(scores), found.likeliest.shape[-1]
    places = np.arange(length)
    own = scores[places, found.targets[row, :length]]
    np.testing.assert_allclose(found.log_probability[row, :length], own, atol=2e-5)
    best = -np.sort(-scores, axis=1)[:, :count]
    np.testing.assert_allclose(found.likeliest[row, :length], best, atol=2e-5)
    rank = 1 + (scores > own[:, None]).sum(1)
    np.testing.assert_array_equal(found.rank[row, :length], rank)


def test_probabilities_of_a_decoder_are_its_softmax(gpt2: Any) -> None:
    trace = gpt2.trace(TEXTS, predictions=5)
    for row, one in enumerate(trace):
        length = len(one.tokens[0])
        ids = trace.predictions.ids[row : row + 1, :length]
        assert_is_softmax(trace.predictions, log_softmax(gpt2(input_ids=ids).logits)[0], row)
        own = one.predictions
        np.testing.assert_array_equal(own.targets[0, :-1], ids[0, 1:])
        assert own.tokens[0][:-1] == one.tokens[0][1:]
        assert own.follows[0].tolist() == [True] * (length - 1) + [False]
        assert own.tokens[0][-1] == own.alternatives[0][-1][0]
        assert own.rank[0, -1] == 1
    assert trace[0].predictions.tokens[0][0] == " old"
    assert trace[1].predictions.alternatives[0][-1][0] == " to"


@pytest.mark.slow
def test_probabilities_of_an_encoder_decoder_are_of_what_it_generates(dates: Any) -> None:
    trace = dates.trace(DATES, predictions=3)
    encoded = dates.tokenizer.encode(DATES)
    read = trace.predictions.ids
    logits = dates(encoded.input_ids, encoded.attention_mask, read).logits
    for row, one in enumerate(trace):
        own = one.predictions
        assert own.tokens[0] == one.written[0]
        assert own.follows.all()
        assert_is_softmax(trace.predictions, log_softmax(logits)[row, : own.ids.shape[1]], row)
    given = dates.trace(DATES[0], "2000-01-01", predictions=3)[0]
    assert given.predictions.tokens[0] == given.written[0]
    assert given.predictions.rank.max() > 1  # the model would have written another date


@pytest.mark.slow
@pytest.mark.parametrize("name", ["seq2seq", "t5", "rnn", "translation"])
def test_every_encoder_decoder_has_them(name: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    one = model.trace("the cat is sad", max_new_tokens=4, predictions=2)[0]
    assert one.predictions.tokens[0] == one.written[0]
    assert (np.exp(one.predictions.likeliest).sum(-1) <= 1 + 1e-5).all()


@pytest.mark.slow
def test_asking_for_them_changes_nothing_else(gpt2: Any) -> None:
    plain, requested = gpt2.trace(TEXTS), gpt2.trace(TEXTS, predictions=5)
    np.testing.assert_array_equal(plain.decoder.weights, requested.decoder.weights)
    assert plain.predictions is None
    assert plain.tokens == requested.tokens
    likeliest = {"do_sample": False, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
    text, trace = gpt2.generate(TEXTS, max_new_tokens=6, trace=True, predictions=4, **likeliest)
    assert text == gpt2.generate(TEXTS, max_new_tokens=6, **likeliest)
    for row, one in enumerate(trace):  # what was generated is the likeliest
        written = one.segments[0] == 1
        assert (one.predictions.rank[0, :-1][written[1:]] == 1).all(), text[row]


@pytest.mark.slow
def test_they_are_saved_with_the_trace(gpt2: Any, tmp_path: Any) -> None:
    trace = fa.logit_contributions(gpt2, gpt2.trace(TEXTS, predictions=5))
    again = Trace.load(trace.save(tmp_path / "a.safetensors"))
    for name, array in trace.predictions.arrays().items():
        np.testing.assert_array_equal(getattr(again.predictions, name), array)
        assert getattr(again.predictions, name).dtype == array.dtype
    assert again.predictions.words() == trace.predictions.words()
    assert repr(again.predictions) == repr(trace.predictions)
    assert "5 alternatives, 2.9" in repr(trace.predictions)
    plain = dataclasses.replace(trace, predictions=None)
    assert Trace.load(plain.save(tmp_path / "b.safetensors")).predictions is None
    head = (tmp_path / "b.safetensors").read_bytes()
    assert b"predictions" not in head  # files without them are as before


def test_requests_that_are_refused(gpt2: Any, request: pytest.FixtureRequest) -> None:
    for count in (-1, True, 10**6, 1.5):
        with pytest.raises(InputError, match="number of alternatives from 0 to"):
            gpt2.trace("It was", predictions=count)
    headless = request.getfixturevalue("gpt2_without_head")
    with pytest.raises(InputError, match="scores no next token"):
        headless.trace("the cat", predictions=1)
    assert headless.trace("the cat").predictions is None


@pytest.fixture
def gpt2_without_head(request: pytest.FixtureRequest) -> Pretrained:
    return fa.from_pretrained("tiny-gpt2", head="GPT2Model")


def test_scores_that_are_nan_are_an_error(gpt2: Any) -> None:
    params = {**gpt2.params, "model": dict(gpt2.params["model"])}
    norm = dict(params["model"]["norm"])
    norm["bias"] = np.full(np.shape(norm["bias"]), np.nan, np.float32)
    params["model"]["norm"] = norm  # attention is sound, the scores are not
    broken = dataclasses.replace(gpt2, params=params)
    with pytest.raises(InputError, match="NaN"):
        broken.trace("It was", predictions=2)
    kept = broken.trace("It was", predictions=2, allow_nonfinite=True)
    assert np.isnan(kept.predictions.log_probability).all()
    assert "not finite" in repr(kept.predictions)
