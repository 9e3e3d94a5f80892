# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The numbers of torch's GPT-2, stored ones everywhere, live ones with torch.

Both go the way a user goes: a checkpoint on disk, `from_pretrained`, a call.
"""

import json
from pathlib import Path
from typing import Any

import jax
import make_gpt2_golden as golden
import numpy as np
import pytest
from rounding import assert_equal_but_rounding

import flaxattn as fa
from flaxattn.models.decoder import architectures
from flaxattn.models.decoder_config import GPT2Config
from flaxattn.pretrained import model_directory
from flaxattn.trace import tensor_file
from flaxattn.trace.tensor_file import TensorFiles

LOGITS, WEIGHTS, LOSS = 5e-5, 1e-5, 1e-5
CASES = list(golden.CASES)


def write(case: Any, folder: Path) -> Path:
    """A Hugging Face directory."""
    folder.mkdir(exist_ok=True)
    settings = {"model_type": "gpt2", "architectures": [case.head], **case.config()}
    (folder / "config.json").write_text(json.dumps(settings))
    tensor_file.write(folder / "model.safetensors", golden.tensors(case))
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = {
        name: fa.from_pretrained(write(case, tmp_path_factory.mktemp("model")))
        for name, case in golden.CASES.items()
    }
    assert not any(model.report.missing or model.report.unexpected for model in found.values())
    return found


@pytest.fixture(scope="module")
def stored() -> dict[str, dict[str, np.ndarray]]:
    cases: dict[str, dict[str, np.ndarray]] = {name: {} for name in CASES}
    with np.load(golden.GOLDEN, allow_pickle=False) as arrays:
        for key in arrays:
            name, field = key.split("/")
            cases[name][field] = arrays[key]
    return cases


def check(case: Any, model: Any, expected: dict[str, np.ndarray]) -> None:
    """Every field that the reference has, at real positions; nothing looks at padding."""
    given = golden.inputs(case)
    out = model(**given, output_attentions=True, output_hidden_states=True)
    real = given["attention_mask"] == 1
    for name, reference in expected.items():
        if name == "loss":
            logs = np.asarray(jax.nn.log_softmax(out.logits[:, :-1]))
            targets = given["input_ids"][:, 1:, None]
            both = real[:, 1:] & real[:, :-1]
            found = -np.take_along_axis(logs, targets, axis=2)[..., 0]
            assert np.abs(found - reference)[both].max() <= LOSS
            continue
        found = getattr(out, name)
        found = np.stack(found) if isinstance(found, tuple) else np.asarray(found)
        assert found.shape == reference.shape, name
        if name == "attentions":
            assert np.abs(found - reference).swapaxes(2, 3)[:, real].max() <= WEIGHTS
            assert not found.transpose(1, 4, 0, 2, 3)[~real].any(), "attention to padding"
        elif name == "hidden_states":
            assert np.abs(found - reference)[:, real].max() <= LOGITS
        else:
            places = slice(None) if case.head == golden.CLASSIFIER else real
            assert np.abs(found - reference)[places].max() <= LOGITS, name


@pytest.mark.few("padded-left", "narrow", "untied")
@pytest.mark.parametrize("name", CASES)
def test_stored_numbers(
    name: str, models: dict[str, Any], stored: dict[str, dict[str, np.ndarray]]
) -> None:
    fields = {n: a for n, a in stored[name].items() if n not in golden.WAYS}
    assert "attentions" in fields and ("loss" in fields) == (golden.CASES[name].head == golden.LM)
    check(golden.CASES[name], models[name], fields)


@pytest.mark.few("untied")
@pytest.mark.parity
@pytest.mark.parametrize("name", CASES)
def test_torch_numbers(
    name: str, models: dict[str, Any], stored: dict[str, dict[str, np.ndarray]]
) -> None:
    """Live torch agrees with flaxattn everywhere, and with what is stored: it cannot rot."""
    pytest.importorskip("torch")
    case = golden.CASES[name]
    theirs = golden.torch_outputs(case)
    check(case, models[name], theirs)
    for field, array in golden.stored(theirs).items():
        assert_equal_but_rounding(stored[name][field], array, field)


def test_the_cases_are_worth_comparing(stored: dict[str, dict[str, np.ndarray]]) -> None:
    """All classes, padding on either side, peaked maps, texts that differ."""
    cases = golden.CASES.values()
    assert len(cases) >= 6 and {case.head for case in cases} == set(architectures(GPT2Config()))
    assert {case.left for case in cases} == {True, False}
    for name, arrays in stored.items():
        assert arrays["attentions"].max(-1).mean() > 0.5, f"{name}: attention is nearly uniform"
    for name in golden.WRITERS:
        texts = stored[name]["greedy"][:, 12:]
        assert (stored[name]["beam"][:, 12:] != texts).any(1).sum() > golden.PROMPTS / 8
        assert len({text.tobytes() for text in texts}) > 0.8 * golden.PROMPTS
        assert np.mean([len(set(text)) for text in texts.tolist()]) > 5


@pytest.mark.slow
@pytest.mark.parametrize("way", ["greedy", pytest.param("beam", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["untied", pytest.param("narrow-inner", marks=pytest.mark.slow)])
def test_every_token_is_torchs(
    name: str, way: str, models: dict[str, Any], stored: dict[str, dict[str, np.ndarray]]
) -> None:
    """64 prompts of 1 to 12 pieces in one batch, 64 pieces after each."""
    given = golden.prompts(golden.CASES[name])
    ids = models[name].generate(**given, max_new_tokens=golden.NEW_TOKENS, **golden.WAYS[way])
    expected = stored[name][way]
    padded = np.pad(ids, ((0, 0), (0, expected.shape[1] - ids.shape[1])), constant_values=1)
    np.testing.assert_array_equal(padded, expected)


@pytest.mark.few("untied-greedy")
@pytest.mark.parity
@pytest.mark.parametrize("way", golden.WAYS)
@pytest.mark.parametrize("name", golden.WRITERS)
def test_torch_still_writes_what_is_stored(
    name: str, way: str, stored: dict[str, dict[str, np.ndarray]]
) -> None:
    pytest.importorskip("torch")
    found = golden.torch_written(golden.CASES[name], way)
    np.testing.assert_array_equal(found, stored[name][way])


@pytest.mark.parametrize("name", CASES)
def test_round_trip_is_bit_equal(name: str, models: dict[str, Any], tmp_path: Path) -> None:
    """HF -> flaxattn -> HF; the config comes back too."""
    folder = write(golden.CASES[name], tmp_path / "theirs")
    models[name].save_pretrained(tmp_path / "ours")
    theirs, ours = TensorFiles(folder), TensorFiles(tmp_path / "ours")
    assert ours.shapes == theirs.shapes
    for tensor in theirs.shapes:
        assert ours.read(tensor).tobytes() == theirs.read(tensor).tobytes(), tensor
    assert model_directory.read_config(tmp_path / "ours") == model_directory.read_config(folder)


@pytest.mark.few("untied")
@pytest.mark.parity
@pytest.mark.parametrize("name", CASES)
def test_torch_opens_what_we_save(name: str, models: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    models[name].save_pretrained(tmp_path / "ours")
    model, info = getattr(transformers, golden.CASES[name].head).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not info["unexpected_keys"] and not info["mismatched_keys"], info
    assert not {n for n in info["missing_keys"] if n != "lm_head.weight"}, info
    state = model.state_dict()
    for tensor, array in golden.tensors(golden.CASES[name]).items():
        np.testing.assert_array_equal(state[tensor].numpy(), array)
