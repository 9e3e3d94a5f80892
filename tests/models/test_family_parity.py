# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The numbers of torch transformers for every family: stored ones everywhere, live ones with torch.

Both go the way a user goes: a checkpoint on disk, `from_pretrained`, a call. A family adds cases in
`tests/golden/cases_FAMILY.py`; nothing here knows one.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import family_case
import make_family_golden as golden
import numpy as np
import pytest
from rounding import assert_equal_but_rounding

import flaxattn as fa
from flaxattn.models import decoder, seq2seq, task_heads
from flaxattn.models.decoder_config import GPT2Config
from flaxattn.models.encoder_config import BertConfig
from flaxattn.trace.tensor_file import TensorFiles

NUMBERS, WEIGHTS = 2e-5, 1e-5  # of numbers of order 1, and of attention weights
HEADS = ("ForMaskedLM", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification")
HEADS += ("LMHeadModel",)
CASES = [(family, name) for family in golden.FAMILIES for name in golden.cases_of(family)]
LABELLED = [case for case in CASES if case[0] not in ("marian", "t5")]
# Padded on the left, upstream scores the first token from padding, which nothing defines.
LOSSES = [
    case
    for case in LABELLED
    for one in [golden.cases_of(case[0])[case[1]]]
    if one.architecture.endswith(HEADS) and not (one.left and one.kind == "decoder")
]
# Said by who wrote the file, not about the model.
UNSTABLE = {"transformers_version", "dtype"}
Loaded = Callable[[str, str], tuple[Any, Any]]
every_case = pytest.mark.parametrize(("family", "name"), CASES, ids=["-".join(c) for c in CASES])


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """What is stored of a case, and our model from a directory that upstream would write."""
    files: dict[str, dict[str, Any]] = {}
    models: dict[tuple[str, str], Any] = {}

    def find(family: str, name: str) -> tuple[Any, Any]:
        stored = (files.get(family) or files.setdefault(family, golden.read(family)))[name]
        if (family, name) not in models:
            folder = stored.write(tmp_path_factory.mktemp("model") / "theirs")
            model = models[family, name] = fa.from_pretrained(folder)
            assert not model.report.missing and not model.report.unexpected, model.report
        return stored, models[family, name]

    return find


def run(model: Any, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Our outputs under upstream's names."""
    out = model(**given, output_attentions=True, output_hidden_states=True)
    found = {name: getattr(out, name, None) for name in golden.SINGLE + golden.STACKED}
    return {n: np.stack(a) if isinstance(a, tuple) else np.asarray(a) for n, a in found.items()}


def differences(
    found: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
    given: dict[str, np.ndarray],
    thinned: bool = False,
) -> dict[str, float]:
    """Largest difference of each field at real positions, as a part of what is allowed."""
    shares = {}
    for name, reference in expected.items():
        if name == "loss":
            continue
        array = found[name]
        real = golden.real_places(name, array.shape, given)
        array = golden.thinned(name, array, real) if thinned else array
        assert array.shape == reference.shape, (name, array.shape, reference.shape)
        gap = np.abs(array - reference)
        gap = gap if real is None else np.where(real, gap, 0)
        if "attentions" in name:
            shares[name] = float(gap.max() / WEIGHTS)
        else:
            shares[name] = float(gap.max() / (NUMBERS * max(1.0, np.abs(reference).max())))
    return shares


def check(found: Any, expected: Any, given: dict[str, np.ndarray], thinned: bool = False) -> None:
    shares = differences(found, expected, given, thinned)
    assert max(shares.values()) <= 1, shares
    for name in ("attentions", "encoder_attentions", "cross_attentions", "decoder_attentions"):
        side = "decoder_attention_mask" if name.startswith("decoder") else "attention_mask"
        if name in expected and side in given:  # without a mask a decoder reads padding too
            padding = found[name].transpose(1, 4, 0, 2, 3)[given[side] == 0]
            assert not padding.any(), f"{name}: attention to padding must be exactly 0"


@pytest.mark.few(
    "llama-left",
    "yarn",
    "gemma3",
    "neox-serial",
    "phi3",
    "olmo2",
    "roberta-mlm-left",
    "distilbert-sequence",
    "electra-discriminator",
    "albert-pretraining",
    "mpnet-far",
    "esm2-mlm",
    "modernbert-masked-lm-left",
    "qwen3-left",
    "pretraining-pair",
    "untied-wide-head",
    "tokens-left",
    "gpt2-padded-left",
    "gpt2-narrow-inner",
    "bart-deep-decoder",
    "two-vocabularies",
)
@every_case
def test_stored_numbers(family: str, name: str, loaded: Loaded) -> None:
    stored, model = loaded(family, name)
    assert "hidden_states" in stored.outputs or "decoder_hidden_states" in stored.outputs
    given = stored.inputs()
    check(run(model, given), stored.outputs, given, thinned=True)


@pytest.mark.few("llama-classifier", "roberta-mlm-untied", "masked-lm-biases", "gpt2-untied")
@pytest.mark.parametrize(("family", "name"), LOSSES, ids=["-".join(c) for c in LOSSES])
def test_stored_losses(family: str, name: str, loaded: Loaded) -> None:
    """`labels=` gives the loss that upstream computes."""
    stored, model = loaded(family, name)
    given = stored.inputs()
    out = model(**given, **family_case.labels(stored.case, stored.config, given))
    assert abs(float(out.loss) - float(stored.outputs["loss"])) <= NUMBERS * max(1.0, out.loss)


@pytest.mark.few(
    "llama-left",
    "qwen3-left",
    "gemma3",
    "neox-serial",
    "phi3",
    "bert-questions",
    "roberta-mlm-untied",
    "distilbert-tokens",
    "electra-generator",
    "albert-mlm-untied",
    "mpnet-far",
    "esm-absolute",
    "modernbert-base",
    "olmo2",
    "starcoder2",
    "untied-wide-head",
    "gpt2-untied",
    "gpt2-classifier",
    "two-vocabularies",
    "untied-unequal-heads",
    "bart-without-head",
)
@every_case
def test_round_trip_is_bit_equal(family: str, name: str, loaded: Loaded, tmp_path: Path) -> None:
    """Upstream -> flaxattn -> upstream: every tensor, and every setting that upstream writes."""
    stored, model = loaded(family, name)
    model.save_pretrained(tmp_path / "ours")
    ours, theirs = TensorFiles(tmp_path / "ours"), stored.tensors()
    for name in stored.case.unused:
        del theirs[name]
    assert set(ours.shapes) - set(stored.buffers) == set(theirs)
    for tensor, array in theirs.items():
        assert ours.read(tensor).tobytes() == array.tobytes(), tensor
    settings = json.loads((tmp_path / "ours" / "config.json").read_text(encoding="utf-8"))
    unstable = UNSTABLE | {*stored.case.changed}
    expected = {key: value for key, value in stored.config.items() if key not in unstable}
    assert {key: settings.get(key, "absent") for key in expected} == expected


def test_the_cases_are_worth_comparing() -> None:
    """Peaked attention, padding on either side, and few bytes."""
    for family in golden.FAMILIES:
        stored = golden.read(family).values()
        assert {one.case.left for one in stored} == {True, False}, family
        for one in stored:
            for field, weights in one.outputs.items():
                if "attentions" in field and weights.shape[-1] > 2:
                    peaks = weights.max(-1)[weights.sum(-1) > 0.5]
                    assert peaks.mean() > 2.2 / weights.shape[-1], (one.case.name, field)
    assert sum(path.stat().st_size for path in golden.FOLDER.glob("*.npz")) < 900_000


def test_every_class_of_the_first_families_has_a_case() -> None:
    offered = {
        "bert": task_heads.architectures_of(BertConfig()),
        "gpt2": decoder.architectures(GPT2Config()),
        "marian": seq2seq.ARCHITECTURES,
    }
    for family, classes in offered.items():
        cases = golden.cases_of(family).values()
        assert {case.architecture for case in cases} == set(classes)


def test_a_wrong_head_is_noticed() -> None:
    """The comparison itself: heads in another order are far outside what is allowed."""
    family, name = CASES[0]
    stored = golden.read(family)[name]
    fields = {n: a for n, a in stored.outputs.items() if "attentions" in n}
    swapped = {n: a[:, :, ::-1] for n, a in fields.items()}
    assert max(differences(swapped, fields, stored.inputs()).values()) > 100


@pytest.mark.few(
    "llama-base]",
    "mistral]",
    "qwen2]",
    "qwen3-left]",
    "gemma]",
    "gemma2]",
    "gemma3]",
    "phi3]",
    "smollm3]",
    "olmo2]",
    "starcoder2]",
    "neox]",
    "roberta-mlm-left]",
    "xlm-roberta]",
    "camembert]",
    "distilbert]",
    "electra]",
    "albert]",
    "mpnet]",
    "esm2]",
    "modernbert-base]",
    "t5-t5]",
    "t5-mt5]",
    "t5-umt5]",
    "bert-pretraining-pair]",
    "gpt2-untied]",
    "marian-marian]",
    "marian-bart]",
)
@pytest.mark.parity
@every_case
def test_torch_numbers(family: str, name: str, loaded: Loaded, tmp_path: Path) -> None:
    """Torch opens what we save, and agrees at lengths from 1 to the limit, padded either way."""
    pytest.importorskip("torch")
    stored, model = loaded(family, name)
    model.save_pretrained(tmp_path / "ours")
    limit = stored.case.limit
    for lengths, left in (((1, 1), False), ((limit, 3, 1), False), ((limit - 1, 4), True)):
        # A new one each time: dynamic rotary positions of upstream remember longer texts.
        theirs = golden.torch_model(stored.case, tmp_path / "ours")
        given = stored.inputs(lengths=lengths, left=left)
        check(run(model, given), golden.run_torch(theirs, given), given)


@pytest.mark.few("llama-left]", "roberta-mlm-left]")
@pytest.mark.parity
@every_case
def test_torch_still_computes_what_is_stored(family: str, name: str, loaded: Loaded) -> None:
    pytest.importorskip("torch")
    stored, _ = loaded(family, name)
    again = golden.torch_case(stored.case)
    assert set(again) >= set(stored.outputs)
    for field, array in stored.outputs.items():
        assert_equal_but_rounding(array, again[field], field)
