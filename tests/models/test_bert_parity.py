# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The numbers of torch transformers, case by case: stored ones everywhere, live ones with torch.

Both go the way a user goes: a checkpoint on disk, `from_pretrained`, a call. Not here: whether
files survive a round trip (test_weights.py).
"""

import json
import os
from pathlib import Path
from typing import Any

import make_golden as golden
import numpy as np
import pytest
from rounding import assert_equal_but_rounding

import flaxattn as fa
from flaxattn.models.encoder_config import BertConfig
from flaxattn.models.task_heads import architectures_of
from flaxattn.trace import tensor_file

HIDDEN, WEIGHTS = 2e-5, 1e-5
FIELDS = (
    "last_hidden_state",
    "pooler_output",
    "logits",
    "prediction_logits",
    "seq_relationship_logits",
)


@pytest.fixture(scope="module")
def stored() -> dict[str, dict[str, np.ndarray]]:
    cases: dict[str, dict[str, np.ndarray]] = {name: {} for name in golden.CASES}
    with np.load(golden.GOLDEN, allow_pickle=False) as arrays:
        for key in arrays:
            name, field = key.split("/")
            cases[name][field] = arrays[key]
    return cases


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Outputs of flaxattn for a case, computed once."""
    known: dict[str, dict[str, np.ndarray]] = {}

    def outputs(name: str) -> dict[str, np.ndarray]:
        if name not in known:
            known[name] = _run(golden.CASES[name], tmp_path_factory.mktemp("model"))
        return known[name]

    return outputs


def _run(case: Any, folder: Path) -> dict[str, np.ndarray]:
    settings = {"model_type": "bert", "architectures": [case.head], **case.config()}
    (folder / "config.json").write_text(json.dumps(settings))
    tensor_file.write(folder / "model.safetensors", golden.tensors(case))
    model = fa.from_pretrained(folder)
    out = model(**golden.inputs(case), output_attentions=True, output_hidden_states=True)
    arrays = {name: getattr(out, name) for name in FIELDS}
    arrays |= {name: np.stack(getattr(out, name)) for name in ("attentions", "hidden_states")}
    return {name: np.asarray(array) for name, array in arrays.items() if array is not None}


def worst(
    found: dict[str, np.ndarray], expected: dict[str, np.ndarray], real: np.ndarray
) -> dict[str, float]:
    """Largest difference of each field that the reference has, over real positions `[B, S]`."""
    step = max(1, real.shape[1] // 8) if len(real[0]) != expected["attentions"].shape[-2] else 1
    real = real[:, ::step]
    differences = {}
    for name, reference in expected.items():
        array = found[name][..., ::step, :] if reference.ndim > 2 else found[name]
        assert array.shape == reference.shape, name
        difference = np.abs(array - reference)
        if name == "attentions":
            difference = difference.swapaxes(2, 3)[:, real]
        elif name == "hidden_states":
            difference = difference[:, real]
        elif reference.ndim > 2:
            difference = difference[real]
        differences[name] = float(difference.max())
    return differences


def check(
    found: dict[str, np.ndarray], expected: dict[str, np.ndarray], real: np.ndarray
) -> dict[str, float]:
    differences = worst(found, expected, real)
    for name, difference in differences.items():
        assert difference <= (WEIGHTS if name == "attentions" else HIDDEN), (name, difference)
    to_padding = found["attentions"].transpose(1, 4, 0, 2, 3)[~real]
    assert not to_padding.any(), "attention to padding must be exactly 0"
    return differences


def real_positions(case: Any) -> np.ndarray:
    given = golden.inputs(case)
    return given.get("attention_mask", np.ones_like(given["input_ids"])) == 1


@pytest.mark.few("pretraining", "wide-head", "left-padding")
@pytest.mark.parametrize("name", golden.CASES)
def test_stored_numbers(name: str, ours: Any, stored: dict[str, dict[str, np.ndarray]]) -> None:
    case = golden.CASES[name]
    assert {"attentions", "hidden_states"} < set(stored[name]) <= set(ours(name))
    check(ours(name), stored[name], real_positions(case))


@pytest.mark.few("pretraining", "token-labels")
@pytest.mark.parity
@pytest.mark.parametrize("name", golden.CASES)
def test_torch_numbers(name: str, ours: Any, stored: dict[str, dict[str, np.ndarray]]) -> None:
    """Live torch agrees with flaxattn everywhere, and with what is stored: it cannot rot."""
    pytest.importorskip("torch")
    case = golden.CASES[name]
    theirs = golden.torch_outputs(case, golden.tensors(case))
    check(ours(name), theirs, real_positions(case))
    to_padding = theirs["attentions"].transpose(1, 4, 0, 2, 3)[~real_positions(case)]
    assert not to_padding.any()
    again = golden.thinned(theirs)
    assert again.keys() == stored[name].keys()
    for field, array in again.items():
        assert_equal_but_rounding(stored[name][field], array, field)


def test_the_cases_are_worth_comparing(stored: dict[str, dict[str, np.ndarray]]) -> None:
    """Peaked attention, every head class, every kind of padding, lengths 1 to 512."""
    assert len(golden.CASES) >= 8
    elsewhere = {"BertForQuestionAnswering"}  # test_family_parity
    assert {case.head for case in golden.CASES.values()} | elsewhere == set(
        architectures_of(BertConfig())
    )
    lengths = {length for case in golden.CASES.values() for length in case.lengths}
    assert {1, 512} <= lengths
    for arrays in stored.values():
        weights = arrays["attentions"]
        if weights.shape[-1] > 8:
            assert weights.max(-1).mean() > 3 / weights.shape[-1], "attention is nearly uniform"


@pytest.mark.slow
def test_a_broken_model_is_noticed(ours: Any, stored: dict[str, dict[str, np.ndarray]]) -> None:
    """The comparison itself: one wrong head, or a bias left out, is far outside the tolerance."""
    swapped = {**ours("plain"), "attentions": ours("plain")["attentions"][:, :, ::-1]}
    with pytest.raises(AssertionError, match="attentions"):
        check(swapped, stored["plain"], real_positions(golden.CASES["plain"]))


@pytest.fixture(scope="module")
def real_checkpoint() -> Path:
    """A published BERT: the directory that FLAXATTN_REAL_BERT names."""
    folder = os.environ.get("FLAXATTN_REAL_BERT")
    if not folder:
        pytest.skip("FLAXATTN_REAL_BERT is not set")
    return Path(folder)


@pytest.mark.parity
def test_real_checkpoint(real_checkpoint: Path) -> None:
    """A published model on real sentences, hidden states and attention of every layer."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    ours = fa.from_pretrained(real_checkpoint)
    theirs = transformers.BertModel.from_pretrained(real_checkpoint, attn_implementation="eager")
    assert ours.tokenizer is not None
    encoded = ours.tokenizer.encode(
        ["The cat is very sad.", "Berlin lies on the Spree, and İstanbul on two continents."],
        ["Because it could not find food to eat.", "So they say."],
    )
    given = {
        "input_ids": encoded.input_ids,
        "attention_mask": encoded.attention_mask,
        "token_type_ids": encoded.token_type_ids,
    }
    with torch.no_grad():
        reference = theirs.eval()(
            **{name: torch.from_numpy(array).long() for name, array in given.items()},
            output_attentions=True,
            output_hidden_states=True,
        )
    out = ours(**given, output_attentions=True, output_hidden_states=True)
    several = ("attentions", "hidden_states")
    expected = {name: np.stack([one.numpy() for one in reference[name]]) for name in several}
    found = {name: np.stack(getattr(out, name)) for name in several}
    check(found, expected, encoded.attention_mask == 1)
