# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as trainers write them: names of wrappers, tied tensors held once, other files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import make_family_golden as golden
import numpy as np
import pytest
import safetensors.numpy

import flaxattn as fa
from flaxattn.errors import CheckpointError, InputError
from flaxattn.pretrained import hub
from flaxattn.pretrained.model_types import family_of

# A checkpoint of each family whose output layer or embeddings are tied.
CHECKPOINTS: dict[str, tuple[str, str]] = {
    "bert": ("", "tiny-bert"),
    "gpt2": ("", "tiny-gpt2"),
    "seq2seq": ("", "tiny-dates"),
    **{name: ("decoders", name) for name in ("gemma3", "smollm3")},
    **{name: ("encoders", name) for name in ("roberta-mlm-left", "distilbert-mlm", "mpnet-mlm")},
    **{name: ("t5", name) for name in ("t5", "umt5")},
    "modernbert": ("modernbert", "masked-lm"),
}
# What a trainer's wrappers make of a name.
WRAPPERS: dict[str, Callable[[str], str]] = {
    "parallel": "module.{}".format,
    "compiled": "_orig_mod.{}".format,
    "compiled in parallel": "module._orig_mod.{}".format,
    "module of a trainer": "model.{}".format,
    "two modules": "net.encoder.{}".format,
    "sharded": lambda name: "_fsdp_wrapped_module." + name.replace("layer.", "layer._orig_mod."),
    "recomputed": lambda name: name.replace("self.", "_checkpoint_wrapped_module.self."),
}
Weights = tuple[Path, dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Weights]:
    """Directory and tensors of a checkpoint."""
    held: dict[str, Weights] = {}

    def find(kind: str) -> Weights:
        if kind not in held:
            family, name = CHECKPOINTS[kind]
            if family:
                target = tmp_path_factory.mktemp("model") / "theirs"
                folder = golden.read(family)[name].write(target)
            else:
                folder = hub.find(name)
            held[kind] = folder, safetensors.numpy.load_file(folder / "model.safetensors")
        return held[kind]

    return find


def rewritten(folder: Path, source: Path, tensors: dict[str, np.ndarray]) -> Path:
    """A copy of a model directory with other tensors, and without checksums."""
    folder.mkdir()
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    safetensors.numpy.save_file(arrays, folder / "model.safetensors", {"format": "pt"})
    return folder


def check_same(folder: Path, source: Path) -> None:
    """Both directories hold the same parameters, and nothing is missing or left over."""
    found, expected = fa.from_pretrained(folder), fa.from_pretrained(source)
    jax.tree.map(np.testing.assert_array_equal, found.params, expected.params)
    assert not found.report.missing and not found.report.unexpected


@pytest.mark.few("bert-parallel", "bert-two modules", "bert-recomputed", "gpt2-module of a trainer")
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_names_below_those_of_wrappers(
    kind: str, wrapper: str, weights: Callable[[str], Weights], tmp_path: Path
) -> None:
    source, tensors = weights(kind)
    renamed = {WRAPPERS[wrapper](name): array for name, array in tensors.items()}
    check_same(rewritten(tmp_path / "wrapped", source, renamed), source)


def test_tensors_beside_a_wrapped_model(weights: Callable[[str], Weights], tmp_path: Path) -> None:
    source, tensors = weights("bert")
    renamed = {f"model.{name}": array for name, array in tensors.items()}
    renamed["loss.weight"] = np.ones(3, np.float32)
    with pytest.warns(UserWarning, match=r"loss\.weight"):
        model = fa.from_pretrained(rewritten(tmp_path / "wrapped", source, renamed))
    assert model.report.unexpected == ("loss.weight",)


@pytest.mark.few("gpt2", "smollm3", "bert")
@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_tied_tensor_under_any_of_its_names(
    kind: str, weights: Callable[[str], Weights], tmp_path: Path
) -> None:
    """As safetensors.torch.save_model keeps the first of them in the alphabet."""
    source, tensors = weights(kind)
    config = fa.from_pretrained(source).config
    family = family_of(config)
    names = family.canonical(tensors, config)
    tied = family.idle(config, {row.ours for row in family.rows})
    pairs = [(copy, name) for copy, name in tied.items() if name in names and name is not None]
    assert pairs
    for number, (copy, name) in enumerate(pairs):
        prefix = names[name].removesuffix(name)
        kept = {theirs: a for theirs, a in tensors.items() if theirs not in _of(names, tied, name)}
        kept[(prefix if (prefix + copy) in tensors else "") + copy] = tensors[names[name]]
        check_same(rewritten(tmp_path / str(number), source, kept), source)


def _of(names: dict[str, str], tied: Any, original: str) -> set[str]:
    """What a checkpoint calls a tensor and its copies."""
    copies = [original, *(copy for copy, name in tied.items() if name == original)]
    return {names[copy] for copy in copies if copy in names}


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "fp8", "compressed-tensors"])
def test_quantized_weights_are_refused_by_their_method(
    method: str, weights: Callable[[str], Weights], tmp_path: Path
) -> None:
    source, tensors = weights("bert")
    folder = rewritten(tmp_path / "quantized", source, tensors)
    settings = json.loads((folder / "config.json").read_bytes())
    settings["quantization_config"] = {"quant_method": method, "bits": 4}
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=f"quantized with {method!r}"):
        fa.from_pretrained(folder)


@pytest.mark.parametrize("kind", ["LORA", "IA3", "PROMPT_TUNING"])
def test_an_adapter_is_refused_with_the_name_of_its_model(kind: str, tmp_path: Path) -> None:
    stated = {"peft_type": kind, "base_model_name_or_path": "example/base"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(stated))
    with pytest.raises(CheckpointError, match=r"adapter .*'example/base'[^\n]*\n.*merge"):
        fa.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("bert", "BertForMultipleChoice"),
        ("bert", "HF_ColBERT"),
        ("gpt2", "GPT2DoubleHeadsModel"),
        ("smollm3", "SmolLM3ForRewards"),
        ("modernbert", "ModernBertForMultipleChoice"),
    ],
)
def test_a_head_that_there_is_not_leaves_the_model_without_head(
    kind: str, name: str, weights: Callable[[str], Weights], tmp_path: Path
) -> None:
    source, tensors = weights(kind)
    folder = rewritten(tmp_path / "other", source, tensors)
    settings = json.loads((folder / "config.json").read_bytes()) | {"architectures": [name]}
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.warns(UserWarning, match=f"'{name}'.* without its head"):
        found = fa.from_pretrained(folder)
    expected = fa.from_pretrained(source, head="base")
    jax.tree.map(np.testing.assert_array_equal, found.params, expected.params)
    with pytest.raises(InputError, match=name):
        fa.from_pretrained(source, head=name)
