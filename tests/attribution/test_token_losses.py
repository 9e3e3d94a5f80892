# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Changes of the loss at each token against single calls, and against the means of `fa.ablate`."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from small_models import drawn, with_nan

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.task_heads import BertForMaskedLM, BertForSequenceClassification

TEXTS = ["the cat is very sad", "a b c", "very sad , the cat is a h ."]


def with_head(model: Any, kind: Any) -> Any:
    """The small model with a language-model head."""
    module = kind(model.config)
    params = drawn(module, np.ones((1, 2), np.int32))
    return dataclasses.replace(model, module=module, params=params)


@pytest.fixture(scope="module")
def lm(gpt2: Any) -> Any:
    return with_head(gpt2, DecoderLM)


def of_tokens(model: Any, text: str, *changes: fa.Intervention) -> np.ndarray:
    """Loss of every token but the first, from one call without padding, in NumPy."""
    ids = model.read(text).given["input_ids"]
    variables = fa.with_interventions(model.params, list(changes))
    logits = np.asarray(model.module.apply(variables, ids).logits[0], np.float64)
    logits -= logits.max(-1, keepdims=True)
    normal = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -normal[np.arange(ids.shape[1] - 1), ids[0, 1:]]


@pytest.mark.slow
@pytest.mark.parametrize("removal", ["zero", "mean"])
def test_each_token_of_a_language_model_is_a_single_call(lm: Any, removal: Any) -> None:
    value: Any = np.zeros((2, 1, 1, 2, 8), np.float32)
    if removal == "mean":
        recorded = []
        for text in TEXTS:
            ids = lm.read(text).given["input_ids"]
            requested = fa.Intervention("head_output", operation="record")
            variables = fa.with_interventions(lm.params, requested)
            _, state = lm.module.apply(variables, ids, mutable=["sites"])
            recorded.append(np.asarray(fa.site_values(state)["decoder"]["head_output"])[:, 0])
        value = np.concatenate(recorded, 1).mean(1)[:, None, None]
    results = fa.token_losses(lm, TEXTS, removal=removal, batch=2)
    for text, found in zip(TEXTS, results, strict=True):
        assert [token.strip("▁ ") for token in found.tokens] == text.split()
        assert found.counted.tolist() == [False] + [True] * (len(found.tokens) - 1)
        base = of_tokens(lm, text)
        np.testing.assert_allclose(found.losses[1:], base, atol=1e-4)
        assert found.losses[0] == 0 and (found.changes["decoder"][..., 0] == 0).all()
        for layer, head in np.ndindex(2, 2):
            change = fa.Intervention("head_output", value[layer], layers=(layer,), heads=(head,))
            expected = of_tokens(lm, text, change) - base
            np.testing.assert_allclose(
                found.changes["decoder"][layer, head, 1:], expected, atol=1e-4
            )
    assert np.abs(results[0].changes["decoder"]).max() > 1e-3


@pytest.mark.few("seq2seq")
@pytest.mark.parametrize("family", ["gpt2", "bert", "seq2seq"])
def test_means_over_tokens_are_the_ablation(family: str, request: pytest.FixtureRequest) -> None:
    model, second = request.getfixturevalue(family), None
    masks = {"encoder": "head_mask", "decoder": "head_mask"}
    if family == "seq2seq":
        masks |= {"decoder": "decoder_head_mask", "cross": "cross_attn_head_mask"}
        second = ["very sad", "the a b c", "is"]
    else:
        model = with_head(model, {"gpt2": DecoderLM, "bert": BertForMaskedLM}[family])
    ablated = fa.ablate(fa.head_task(model, TEXTS, second, batch=2))
    results = fa.token_losses(model, TEXTS, second, batch=2)
    for number, found in enumerate(results):
        assert found.counted.any()
        assert found.tokens and "[MASK]" not in found.tokens
        for side, changes in found.changes.items():
            expected = ablated.each[masks[side]][..., number]
            np.testing.assert_allclose(changes[..., found.counted].mean(-1), expected, atol=1e-5)
            assert (changes[..., ~found.counted] == 0).all()


def test_what_has_no_loss_of_tokens_is_refused(lm: Any) -> None:
    with pytest.raises(InputError) as raised:
        fa.token_losses(lm, TEXTS, removal="noise")  # type: ignore[arg-type]
    assert str(raised.value) == "There is no removal 'noise'.\nChoose zero or mean."
    config = fa.BertConfig(12, architectures=("BertForSequenceClassification",))
    classifier = dataclasses.replace(
        lm, module=BertForSequenceClassification(config), config=config
    )
    with pytest.raises(InputError) as raised:
        fa.token_losses(classifier, TEXTS)
    first, second = str(raised.value).splitlines()
    assert first == "'g' is a BertForSequenceClassification, which predicts no tokens."
    assert second == "Name a language model, or measure its heads with fa.ablate."
    with pytest.raises(InputError, match="the loss of text 0 is NaN or infinite"):
        fa.token_losses(with_nan(lm), TEXTS)


@pytest.mark.slow
def test_the_figure_has_a_row_for_each_head_and_masks_what_is_not_predicted(seq2seq: Any) -> None:
    (found,) = fa.token_losses(seq2seq, TEXTS[:1], ["a b c"])
    ax = fa.plot_token_losses(found, "cross", first=0, count=4).axes[0]
    image = ax.images[0].get_array()
    assert image.shape == (4, 4) and image.mask[:, 0].all() and not image.mask[:, 1:].any()
    np.testing.assert_allclose(image[:, 1:], found.changes["cross"][0, :, 1:4])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0.0", "0.1", "0.2", "0.3"]
    assert fa.plot_token_losses(found).axes[0].get_ylabel() == "head of the encoder"
    with pytest.raises(InputError, match="'s' has no side 'left'"):
        fa.plot_token_losses(found, "left")
    with pytest.raises(InputError, match="expected positions 0 to"):
        fa.plot_token_losses(found, first=99)
