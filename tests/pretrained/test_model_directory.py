# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face directories in and out: every layout that is accepted, and nothing lost on the way.

What is refused, and in which words, is in test_bad_checkpoints.py.
"""

import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import make_golden as golden
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from flaxattn.errors import CheckpointError, InputError
from flaxattn.models.bert import ARCHITECTURES
from flaxattn.pretrained import model_directory as weights
from flaxattn.pretrained.bert_names import BERT
from flaxattn.trace import tensor_file as tensorfile
from flaxattn.trace.tensor_file import TensorFiles

HEADS = list(ARCHITECTURES)
LABELS = {"BertForSequenceClassification": 3, "BertForTokenClassification": 5}
Checkpoint = Callable[..., Path]


def settings_of(head: str) -> dict[str, int]:
    return {"num_labels": LABELS[head]} if head in LABELS else {}


def build(folder: Path, head: str | None = None) -> Any:
    config = weights.read_config(folder)
    return ARCHITECTURES[head or config.architectures[0]](config)


def load(folder: Path, head: str | None = None) -> tuple[Any, weights.CheckpointMatch]:
    return weights.load(folder, build(folder, head))


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    files = TensorFiles(folder)
    return {name: files.read(name) for name in files.shapes}


def assert_bit_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].tobytes() == array.tobytes(), name


def same(one: Any, other: Any) -> bool:
    return jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), one, other))


@pytest.mark.parametrize("head", HEADS)
def test_round_trip_is_bit_equal(checkpoint: Checkpoint, head: str, tmp_path: Path) -> None:
    """HF -> flaxattn -> HF, for every architecture; the config comes back too."""
    folder = checkpoint(head, **settings_of(head))
    params, report = load(folder)
    assert report == weights.CheckpointMatch()
    weights.save(tmp_path / "again", build(folder), params)
    assert_bit_equal(tensors_of(tmp_path / "again"), tensors_of(folder))
    assert weights.read_config(tmp_path / "again") == weights.read_config(folder)
    assert same(load(tmp_path / "again")[0], params)


def test_every_parameter_has_one_row_and_every_row_a_parameter(checkpoint: Checkpoint) -> None:
    every = BERT.rows
    assert len({row.ours for row in every}) == len({row.theirs for row in every}) == len(every)
    used = set()
    for number, head in enumerate(HEADS):
        untied = {"tie_word_embeddings": False} if head == "BertForMaskedLM" else {}
        module = build(checkpoint(head, folder=str(number), **settings_of(head), **untied))
        used |= set(BERT.rows_of(weights._parameter_shapes(module), module.config).values())
    assert used == set(every)


@pytest.mark.parity
@pytest.mark.parametrize("head", HEADS)
def test_torch_opens_what_we_save(checkpoint: Checkpoint, head: str, tmp_path: Path) -> None:
    """Nothing missing, nothing unexpected, every tensor as it was."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = checkpoint(head, **settings_of(head))
    weights.save(tmp_path / "ours", build(folder), load(folder)[0])
    model, info = getattr(transformers, head).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info.values()), info
    assert model.dtype == torch.float32
    state = {name: array.numpy() for name, array in model.state_dict().items()}
    for name, array in tensors_of(folder).items():
        assert state[name].tobytes() == array.tobytes(), name


@pytest.mark.parity
def test_we_open_what_torch_saves(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    case = golden.Case("BertForPreTraining")
    model = transformers.BertForPreTraining(transformers.BertConfig(**case.config()))
    model.save_pretrained(tmp_path / "theirs")
    params, report = load(tmp_path / "theirs")
    assert report == weights.CheckpointMatch()
    weights.save(tmp_path / "ours", build(tmp_path / "theirs"), params)
    assert_bit_equal(tensors_of(tmp_path / "ours"), tensors_of(tmp_path / "theirs"))
    assert torch.is_tensor(model.bert.embeddings.word_embeddings.weight)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_stored_dtypes(checkpoint: Checkpoint, dtype: Any, tmp_path: Path) -> None:
    """Half precision in, float32 parameters, and the very same half precision out."""
    tensors = {n: a.astype(dtype) for n, a in golden.tensors(golden.Case()).items()}
    folder = checkpoint(tensors=tensors)
    params, _ = load(folder)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(params)} == {"float32"}
    name = np.dtype(dtype).name
    weights.save(tmp_path / "again", build(folder), params, dtype=name)
    assert_bit_equal(tensors_of(tmp_path / "again"), tensors)
    assert json.loads((tmp_path / "again/config.json").read_text())["dtype"] == name


def shard(folder: Path) -> None:
    """Spread `model.safetensors` over two files, as large models are saved."""
    tensors = tensors_of(folder)
    (folder / "model.safetensors").unlink()
    placed = {
        name: f"model-{number % 2 + 1:05}-of-00002.safetensors"
        for number, name in enumerate(tensors)
    }
    for file in sorted(set(placed.values())):
        part = {name: array for name, array in tensors.items() if placed[name] == file}
        safetensors.numpy.save_file(part, folder / file)
    index = {"metadata": {"total_size": 1}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_sharded(checkpoint: Checkpoint) -> None:
    folder = checkpoint("BertForMaskedLM")
    whole, _ = load(folder)
    shard(folder)
    parts, report = load(folder)
    assert report == weights.CheckpointMatch()
    assert same(whole, parts)


def test_a_single_file_replaces_shards(checkpoint: Checkpoint) -> None:
    folder = checkpoint()
    shard(folder)
    params, _ = load(folder)
    (folder / "notes.txt").write_text("mine")
    weights.save(folder, build(folder), params)
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "notes.txt",
    ]


def test_shards_of_a_hub_cache_are_links(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """The Hub's cache holds links to `../../blobs`; those do not count as leaving the directory."""
    folder = checkpoint()
    shard(folder)
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for path in folder.iterdir():
        shutil.move(path, blobs / path.name)
        (snapshot / path.name).symlink_to(Path("../../blobs") / path.name)
    assert load(snapshot)[1] == weights.CheckpointMatch()


def test_old_names_and_prefixes(checkpoint: Checkpoint) -> None:
    """`gamma` and `beta`; a base model saved with `bert.`; a task model saved without."""
    tensors = golden.tensors(golden.Case("BertForPreTraining"))
    expected, _ = load(checkpoint("BertForPreTraining", folder="new"))

    def old(name: str) -> str:
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        return name.replace("LayerNorm.bias", "LayerNorm.beta")

    renamed = {old(name): array for name, array in tensors.items()}
    assert same(load(checkpoint("BertForPreTraining", renamed, "old"))[0], expected)
    bare = {name.removeprefix("bert."): array for name, array in tensors.items()}
    assert same(load(checkpoint("BertForPreTraining", bare, "bare"))[0], expected)
    params, report = load(checkpoint("BertForPreTraining", tensors, "base"), "BertModel")
    assert same(params, expected["bert"])
    assert report.unexpected and all(name.startswith("cls.") for name in report.unexpected)


def test_report_of_missing_unexpected_and_ignored(checkpoint: Checkpoint) -> None:
    tensors = golden.tensors(golden.Case("BertForPreTraining"))
    tensors["bert.embeddings.position_ids"] = np.arange(40, dtype=np.int64)[None]
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"]
    folder = checkpoint("BertForPreTraining")
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    report = load(folder)[1]
    assert report.missing == report.unexpected == ()
    assert report.ignored == (
        "cls.predictions.decoder.bias",
        "cls.predictions.decoder.weight",
        "embeddings.position_ids",
    )
    with pytest.warns(UserWarning, match=r"classifier\.bias.*freshly initialised"):
        params, report = load(folder, "BertForSequenceClassification")
    assert report.missing == ("classifier.bias", "classifier.weight")
    assert set(report.missing) <= set(str(report).split())
    assert "UNEXPECTED  cls.seq_relationship.bias" in report.table()
    assert "MISSING     classifier.weight" in report.table()
    assert params["classifier"]["kernel"].shape == (32, 2)
    assert 0 < float(abs(params["classifier"]["kernel"]).max()) < 0.1


def test_a_fresh_head_follows_the_seed_and_leaves_the_rest_alone(checkpoint: Checkpoint) -> None:
    folder = checkpoint()
    module = build(folder, "BertForSequenceClassification")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        one, two, other = (weights.load(folder, module, seed)[0] for seed in (1, 1, 2))
    assert same(one, two)
    assert not same(one["classifier"], other["classifier"])
    assert same(one["bert"], load(folder)[0])


def test_tensors_that_no_bert_has_are_told(checkpoint: Checkpoint) -> None:
    tensors = golden.tensors(golden.Case())
    for number in range(2):
        tensors[f"encoder.layer.{number}.adapter.weight"] = np.ones((2, 2), np.float32)
    message = r"no BERT has: encoder\.layer\.\*\.adapter\.weight \(layer 0, 1\)"
    with pytest.warns(UserWarning, match=message):
        report = load(checkpoint(tensors=tensors))[1]
    assert len(report.unexpected) == 2


def test_decoder_bias_of_tied_and_untied_models(checkpoint: Checkpoint) -> None:
    """transformers adds `decoder.bias` where the decoder is its own; tied, it is a copy."""
    tensors = golden.tensors(golden.Case("BertForMaskedLM"))
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    params, report = load(checkpoint("BertForMaskedLM", tensors, "tied"))
    assert report == weights.CheckpointMatch()
    assert (params["mlm_head"]["bias"] == tensors["cls.predictions.decoder.bias"]).all()
    case = golden.Case("BertForMaskedLM", settings=(("tie_word_embeddings", False),))
    tensors = golden.tensors(case)
    folder = checkpoint("BertForMaskedLM", tensors, "untied", tie_word_embeddings=False)
    params, _ = load(folder)
    assert (params["mlm_head"]["bias"] == tensors["cls.predictions.decoder.bias"]).all()
    saved = weights.to_hf(build(folder), params)
    assert saved.keys() == tensors.keys()


def test_checksums_are_in_the_header(checkpoint: Checkpoint) -> None:
    folder = checkpoint()
    with safetensors.safe_open(folder / "model.safetensors", "np") as file:
        metadata = file.metadata()
    assert metadata["format"] == "pt"
    digests = json.loads(metadata["flaxattn.sha256"])
    assert digests == {n: tensorfile.digest(a) for n, a in tensors_of(folder).items()}


class _FullDisk:
    def save(self, directory: Path) -> None:
        (directory / "tokenizer.json").write_text("half")
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("existing", [True, False])
def test_a_failed_save_changes_nothing(
    checkpoint: Checkpoint, existing: bool, tmp_path: Path
) -> None:
    folder = checkpoint()
    params, _ = load(folder)
    target = folder if existing else tmp_path / "new"
    before = {p.name: p.read_bytes() for p in target.iterdir()} if existing else None
    with pytest.raises(CheckpointError, match=r"Could not write .*: No space left on device\.\n"):
        weights.save(target, build(folder), params, tokenizer=_FullDisk())
    assert ({p.name: p.read_bytes() for p in target.iterdir()} if existing else None) == before
    assert target.exists() == existing
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_save_over_a_file_or_with_other_parameters(checkpoint: Checkpoint, tmp_path: Path) -> None:
    folder = checkpoint()
    params, _ = load(folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="it is a file, not a directory"):
        weights.save(tmp_path / "file", build(folder), params)
    with pytest.raises(InputError, match=r"not those of BertForMaskedLM: .*\nExpected shape"):
        weights.save(tmp_path / "x", build(folder, "BertForMaskedLM"), params)
    with pytest.raises(InputError, match="dtype 'int8' cannot be stored"):
        weights.save(tmp_path / "x", build(folder), params, dtype="int8")
    large = jax.tree.map(lambda leaf: leaf + 1e5, params)
    with pytest.raises(InputError, match=r"too large for float16: up to 1e\+05"):
        weights.save(tmp_path / "x", build(folder), large, dtype="float16")
    assert not (tmp_path / "x").exists()


def test_saved_files_can_be_read_by_others(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Some writers make their files private to the user who wrote them."""
    folder = checkpoint("BertModel")
    params, _ = load(folder)
    umask = os.umask(0o022)
    try:
        weights.save(tmp_path / "again", build(folder), params)
    finally:
        os.umask(umask)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "again").iterdir()} == {0o644}
