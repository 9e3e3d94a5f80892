# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Classifiers and question answering on a T5; the scores are compared in `test_family_parity`."""

import json
from pathlib import Path
from typing import Any

import make_family_golden as golden
import numpy as np
import pytest
from family_case import labels
from safetensors.numpy import load_file

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture

HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
CASES = ("mt5-sequence", "umt5-tokens", "t5-questions")
IDS = np.array([[5, 6, 7, 1], [9, 4, 3, 1]])


def stored_model(name: str, folder: Path, **options: Any) -> Any:
    return fa.from_pretrained(golden.read("t5")[name].write(folder / name), **options)


@pytest.mark.few("umt5")
@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_torch(name: str, tmp_path: Path) -> None:
    stored, model = golden.read("t5")[name], stored_model(name, tmp_path)
    given = stored.inputs()
    out = model(**given, **labels(stored.case, stored.config, given))
    assert next(iter(out)) == "loss"
    np.testing.assert_allclose(out.loss, stored.outputs["loss"], rtol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_a_head_on_a_checkpoint_without(head: str, tmp_path: Path) -> None:
    """The backbone is read, the head drawn, both are saved under upstream's names and come back."""
    stored_model("t5", tmp_path)
    with pytest.warns(UserWarning, match="freshly initialised"):
        model = fa.from_pretrained(tmp_path / "t5", head=head)
    out, encoder = model(IDS), fa.from_pretrained(tmp_path / "t5", head="T5EncoderModel")
    expected = encoder(IDS).last_hidden_state
    states = out.last_hidden_state if "Token" in head else out.encoder_last_hidden_state
    np.testing.assert_array_equal(states, expected)
    model.save_pretrained(tmp_path / "saved")
    names = load_file(tmp_path / "saved" / "model.safetensors")
    prefix = "transformer." if head.endswith("Classification") else ""
    assert f"{prefix}shared.weight" in names
    decoder = [name for name in names if name.startswith(f"{prefix}decoder.")]
    assert bool(decoder) == ("Token" not in head)
    again = fa.from_pretrained(tmp_path / "saved")
    assert not again.report.missing and not again.report.unexpected
    for name, scores in out.items():
        if name.endswith("logits"):
            np.testing.assert_array_equal(again(IDS)[name], scores)


@pytest.mark.slow
def test_classes_of_their_own(tmp_path: Path) -> None:
    stored_model("t5", tmp_path)
    with pytest.warns(UserWarning, match="freshly initialised"):
        model = fa.from_pretrained(tmp_path / "t5", head=HEADS[0], num_labels=5)
    assert model(IDS).logits.shape == (2, 5)
    model.save_pretrained(tmp_path / "saved")
    settings = json.loads((tmp_path / "saved" / "config.json").read_text(encoding="utf-8"))
    assert settings["id2label"] == {str(i): f"LABEL_{i}" for i in range(5)}


@pytest.mark.slow
def test_the_label_is_predicted_at_the_last_end(tmp_path: Path) -> None:
    """Padding after the end changes no label; of several ends the last one counts."""
    model = stored_model("mt5-sequence", tmp_path)
    padded = np.array([[5, 6, 7, 1, 0, 0], [9, 4, 3, 1, 0, 0]])
    scores = model(padded, (padded != 0).astype(int)).logits
    np.testing.assert_allclose(scores, model(IDS).logits, atol=2e-6)
    out = model(np.array([[5, 1, 7, 1, 0]]), np.array([[1, 1, 1, 1, 0]]))
    dense, score = model.params["score_dense"], model.params["score"]
    pooled = np.tanh(out.last_hidden_state @ dense["kernel"] + dense["bias"][None, None])
    every = pooled @ np.asarray(score["kernel"]) + score["bias"][None, None]
    np.testing.assert_allclose(out.logits, every[:, 3], atol=1e-5)
    assert np.abs(out.logits - every[:, 1]).max() > 1e-3


def test_what_a_classifier_cannot_read(tmp_path: Path) -> None:
    model = stored_model("mt5-sequence", tmp_path)
    with pytest.raises(InputError, match=r"row 1 has no token 1 \(eos_token_id\)"):
        model(np.array([[5, 6, 1], [5, 6, 7]]))
    with pytest.raises(InputError, match=r"decoder_input_ids: expected 4 tokens .* received 2"):
        model(IDS, decoder_input_ids=IDS[:, :2])
    with pytest.raises(InputError, match="takes labels; received start_positions"):
        model(IDS, start_positions=[0, 0], end_positions=[1, 1])


@pytest.mark.parametrize("head", [HEADS[0], HEADS[2]])
def test_nothing_is_generated(head: str, tmp_path: Path) -> None:
    stored_model("t5", tmp_path)
    with pytest.warns(UserWarning, match="freshly initialised"):
        model = fa.from_pretrained(tmp_path / "t5", head=head)
    with pytest.raises(InputError, match=f"is a T5{head}, which writes no text"):
        model.generate(input_ids=IDS)
    with pytest.raises(InputError, match=f"is a T5{head}, which writes no text"):
        model.decoding(4, 1, {"num_beams": 2})


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_attention_is_that_of_the_backbone(head: str, t5: Any, tmp_path: Path) -> None:
    t5.save_pretrained(tmp_path / "t5")
    with pytest.warns(UserWarning, match="freshly initialised"):
        model = fa.from_pretrained(tmp_path / "t5", head=head)
    if head != HEADS[1]:
        with pytest.raises(InputError, match="which writes no text"):
            model.trace("the cat", num_beams=2)
    trace = model.trace("the cat", capture=Capture(weights=True))
    expected = fa.from_pretrained(tmp_path / "t5").trace("the cat")
    np.testing.assert_array_equal(trace.encoder.weights, expected.encoder.weights)
    assert trace.encoder.weights.shape[0] == t5.config.num_layers


def test_an_unknown_keyword_is_refused(t5: Any, tmp_path: Path) -> None:
    decoder = fa.from_pretrained("tiny-gpt2")
    for model in (t5, stored_model("mt5-sequence", tmp_path), decoder):
        with pytest.raises(TypeError, match="unexpected keyword argument 'output_attention'"):
            model(IDS, output_attention=True)


@pytest.mark.slow
def test_extraction_reads_the_source_on_both_sides(t5: Any, tmp_path: Path) -> None:
    t5.save_pretrained(tmp_path / "t5")
    with pytest.warns(UserWarning, match="freshly initialised"):
        model = fa.from_pretrained(tmp_path / "t5", head=HEADS[0])
    texts = ["the cat", "a cat and the dog"]
    rows = list(fa.extract(model, texts))
    for row, text in zip(rows, texts, strict=True):
        alone = model.trace(text)
        for side in ("encoder", "decoder", "cross"):
            ours, expected = getattr(row, side).weights, getattr(alone, side).weights
            np.testing.assert_allclose(np.asarray(ours, np.float32), expected, atol=1e-5)
    shifted = rows[0].decoder_tokens[0]
    assert shifted[1:] == rows[0].tokens[0][:-1]
    with pytest.raises(InputError, match="num_beams: nothing is written here"):
        list(fa.extract(model, texts, num_beams=2))


@pytest.mark.slow
def test_the_own_kind_of_a_model_comes_first(tmp_path: Path) -> None:
    """An mT5 without head is an MT5Model."""
    model = stored_model("mt5", tmp_path, head="base")
    assert model.config.architectures == ("MT5Model",)
    with pytest.warns(UserWarning, match="freshly initialised"):
        model = fa.from_pretrained(tmp_path / "mt5", head="ForQuestionAnswering")
    assert model.config.architectures == ("MT5ForQuestionAnswering",)
