# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The numbers of torch's Marian and BART, stored ones everywhere, live ones with torch.

Both go the way a user goes: a checkpoint on disk, `from_pretrained`, a call.
"""

import json
from pathlib import Path
from typing import Any

import make_seq2seq_golden as golden
import numpy as np
import pytest
from rounding import assert_equal_but_rounding

import flaxattn as fa
from flaxattn.models.positions import sinusoids
from flaxattn.models.seq2seq import ARCHITECTURES
from flaxattn.pretrained import model_directory
from flaxattn.trace import tensor_file
from flaxattn.trace.tensor_file import TensorFiles

LOGITS, WEIGHTS = 5e-5, 1e-5


def write(case: Any, folder: Path) -> Path:
    """A Hugging Face directory."""
    folder.mkdir(exist_ok=True)
    settings = {"model_type": case.kind, "architectures": [case.head], **case.config()}
    (folder / "config.json").write_text(json.dumps(settings))
    tensor_file.write(folder / "model.safetensors", golden.tensors(case))
    return folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Outputs of flaxattn for a case, computed once."""
    known: dict[str, dict[str, np.ndarray]] = {}

    def outputs(name: str) -> dict[str, np.ndarray]:
        if name not in known:
            case = golden.CASES[name]
            model = fa.from_pretrained(write(case, tmp_path_factory.mktemp("model")))
            assert not model.report.missing and not model.report.unexpected
            out = model(**golden.inputs(case), output_attentions=True, output_hidden_states=True)
            named = {n: getattr(out, n) for n in out.__dataclass_fields__}
            arrays = {n: np.stack(a) if isinstance(a, tuple) else a for n, a in named.items()}
            known[name] = {n: np.asarray(a) for n, a in arrays.items() if a is not None}
        return known[name]

    return outputs


@pytest.fixture(scope="module")
def stored() -> dict[str, dict[str, np.ndarray]]:
    cases: dict[str, dict[str, np.ndarray]] = {name: {} for name in golden.CASES}
    with np.load(golden.GOLDEN, allow_pickle=False) as arrays:
        for key in arrays:
            name, field = key.split("/")
            cases[name][field] = arrays[key]
    return cases


def check(case: Any, found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Every field that the reference has, at real positions; nothing looks at padding."""
    given = golden.inputs(case)
    source, target = given["attention_mask"] == 1, given["decoder_attention_mask"] == 1
    for name, reference in expected.items():
        assert found[name].shape == reference.shape, name
        queries = source if name.startswith("encoder") else target
        if name in golden.ATTENTIONS:
            difference = np.abs(found[name] - reference).swapaxes(2, 3)[:, queries]
            assert difference.max() <= WEIGHTS, name
            keys = target if name.startswith("decoder") else source
            by_key = found[name].transpose(1, 4, 0, 2, 3)
            assert not by_key[~keys].any(), f"{name}: attention to padding must be exactly 0"
            continue
        difference = np.abs(found[name] - reference)
        difference = difference[:, queries] if name in golden.HIDDEN else difference[queries]
        assert difference.max() <= LOGITS, name


@pytest.mark.few("bart-deep")
@pytest.mark.parametrize("name", golden.CASES)
def test_stored_numbers(name: str, ours: Any, stored: dict[str, dict[str, np.ndarray]]) -> None:
    assert set(golden.ATTENTIONS) < set(stored[name])
    check(golden.CASES[name], ours(name), stored[name])


@pytest.mark.few("marian]", "bart]")
@pytest.mark.parity
@pytest.mark.parametrize("name", golden.CASES)
def test_torch_numbers(name: str, ours: Any, stored: dict[str, dict[str, np.ndarray]]) -> None:
    """Live torch agrees with flaxattn everywhere, and with what is stored: it cannot rot."""
    pytest.importorskip("torch")
    case = golden.CASES[name]
    theirs = golden.torch_outputs(case, golden.tensors(case))
    check(case, ours(name), theirs)
    for field, array in golden.stored(theirs).items():
        assert_equal_but_rounding(stored[name][field], array, field)


def test_the_cases_are_worth_comparing(stored: dict[str, dict[str, np.ndarray]]) -> None:
    """Both kinds and all classes, unequal depth and heads, padding on either side, peaked maps."""
    cases = golden.CASES.values()
    assert len(cases) >= 6 and {case.head for case in cases} == set(ARCHITECTURES)
    settings = [case.config() for case in cases]
    assert any(c["encoder_layers"] != c["decoder_layers"] for c in settings)
    assert any(c["encoder_attention_heads"] != c["decoder_attention_heads"] for c in settings)
    assert {case.left for case in cases} == {True, False}
    for name, arrays in stored.items():
        cross = arrays["cross_attentions"]
        assert cross.max(-1).mean() > 3 / cross.shape[-1], f"{name}: attention is nearly uniform"


@pytest.mark.few("untied", "two-vocabularies")
@pytest.mark.parametrize("name", golden.CASES)
def test_round_trip_is_bit_equal(name: str, tmp_path: Path) -> None:
    """HF -> flaxattn -> HF; the config comes back too."""
    folder = write(golden.CASES[name], tmp_path / "theirs")
    model = fa.from_pretrained(folder)
    model.save_pretrained(tmp_path / "ours")
    theirs, ours = TensorFiles(folder), TensorFiles(tmp_path / "ours")
    assert ours.shapes == theirs.shapes
    for tensor in theirs.shapes:
        assert ours.read(tensor).tobytes() == theirs.read(tensor).tobytes(), tensor
    assert model_directory.read_config(tmp_path / "ours") == model_directory.read_config(folder)


@pytest.mark.few("marian]", "bart]")
@pytest.mark.parity
@pytest.mark.parametrize("name", golden.CASES)
def test_torch_opens_what_we_save(name: str, tmp_path: Path) -> None:
    """Nothing unexpected, and nothing missing but what torch makes itself and never uses."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    case = golden.CASES[name]
    fa.from_pretrained(write(case, tmp_path / "theirs")).save_pretrained(tmp_path / "ours")
    model, info = getattr(transformers, case.head).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    untied = not case.config().get("tie_word_embeddings", True)
    unused = {"model.shared.weight"} if case.kind == "bart" and untied else set()
    made = {f"{side}.embed_positions.weight" for side in ("encoder", "decoder")}
    made = made if case.head == "MarianModel" else set()
    assert set(info.pop("missing_keys")) <= unused | made
    assert not any(info.values()), info
    state = model.state_dict()
    for tensor in made:
        np.testing.assert_allclose(
            state[tensor].numpy(), sinusoids(*state[tensor].shape), atol=1e-6
        )
    for tensor, array in golden.tensors(case).items():
        assert state[tensor].numpy().tobytes() == array.tobytes(), tensor
