# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`fa.fill_mask` names the likeliest tokens behind masks, with their probabilities."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_decoders import write_decoder

import flaxattn as fa
from flaxattn.errors import InputError

TEXT = "the [MASK] sat on the mat ."


@pytest.fixture(scope="module")
def tiny():
    return fa.from_pretrained("tiny-bert", "ForMaskedLM")


def expected(model, text: str) -> list[np.ndarray]:
    """Probabilities of the whole vocabulary at each mask, from the logits of every position."""
    given = model.tokenizer([text], return_tensors="np")
    logits = np.asarray(model(**given)["logits"][0], np.float64)
    scores = np.exp(logits - logits.max(-1, keepdims=True))
    places = np.flatnonzero(given["input_ids"][0] == model.tokenizer.mask_id)
    return list((scores / scores.sum(-1, keepdims=True))[places])


def test_the_likeliest_tokens_in_order(tiny) -> None:
    (found,) = fa.fill_mask(tiny, TEXT)
    (shares,) = expected(tiny, TEXT)
    assert [one.id for one in found] == np.argsort(-shares, kind="stable")[:5].tolist()
    np.testing.assert_allclose([one.probability for one in found], np.sort(shares)[::-1][:5], 1e-5)
    assert fa.fill_mask(tiny, TEXT, k=1) == [found[:1]]
    for one in found:
        assert one.token == tiny.tokenizer.convert_ids_to_tokens([one.id])[0]
        assert one.text == TEXT.replace("[MASK]", one.token.removeprefix("##"))


@pytest.mark.slow
def test_every_mask_of_every_text_in_order(tiny) -> None:
    texts = ["a [MASK] and a [MASK] and a [MASK]", TEXT, "[MASK]"] * 7  # more than run together
    found = fa.fill_mask(tiny, texts, k=2)
    assert [len(masks) for masks in found] == [3, 1, 1] * 7
    for text, masks in zip(texts[:3], found[:3], strict=True):
        for shares, fillings in zip(expected(tiny, text), masks, strict=True):
            best = np.argsort(-shares, kind="stable")[:2]
            assert [one.id for one in fillings] == best.tolist()
            np.testing.assert_allclose([f.probability for f in fillings], shares[best], 2e-5)
    first, second, third = (masks[0].text for masks in found[0])
    assert first.endswith("and a [MASK] and a [MASK]")
    assert second.startswith("a [MASK] and a ")
    assert second.endswith(" and a [MASK]")
    assert third.startswith("a [MASK] and a [MASK] and a ")


@pytest.mark.slow
def test_pretraining_models_and_modernbert_fill_masks(modern) -> None:
    model = fa.from_pretrained("tiny-bert", "ForPreTraining")
    assert fa.fill_mask(model, TEXT) == fa.fill_mask(fa.from_pretrained("tiny-bert"), TEXT)
    mask = modern.tokenizer.backend.id_to_token(modern.tokenizer.mask_id)
    (found,) = fa.fill_mask(modern, f"the {mask} sat", k=3)
    assert len(found) == 3


@pytest.mark.slow
def test_a_long_text_is_refused_or_cut(tiny) -> None:
    long = "[MASK] " + "mat " * 600 + "[MASK]"
    with pytest.raises(InputError, match="604 tokens, the limit is 128"):
        fa.fill_mask(tiny, long)
    assert len(fa.fill_mask(tiny, long, truncate=True)) == 1


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("no hole here", {}, "text 0 has no mask: 'no hole here'\nexpected \\[MASK\\]"),
        (["a [MASK]", "none"], {}, "text 1 has no mask"),
        (TEXT, {"k": 0}, "0 tokens are requested for each mask\nexpected 1 to"),
        (TEXT, {"k": 10**6}, "1000000 tokens are requested"),
    ],
)
def test_what_cannot_be_filled_is_refused(tiny, text, options, words: str) -> None:
    with pytest.raises(InputError, match=words):
        fa.fill_mask(tiny, text, **options)


def test_other_models_are_refused(tiny, tmp_path) -> None:
    decoder = fa.from_pretrained(write_decoder(tmp_path / "decoder"))
    for model in (decoder, fa.from_pretrained("tiny-bert", "base")):
        with pytest.raises(InputError, match="which predicts no masked tokens\nname a model"):
            fa.fill_mask(model, TEXT)
    with pytest.raises(InputError, match="came without a tokenizer"):
        fa.fill_mask(dataclasses.replace(tiny, tokenizer=None), TEXT)


def test_scores_that_are_nan_are_refused(tiny) -> None:
    broken = dataclasses.replace(tiny, params=jax.tree.map(lambda a: a * jnp.nan, tiny.params))
    with pytest.raises(InputError, match="scores of words behind masks are NaN or inf"):
        fa.fill_mask(broken, TEXT)
