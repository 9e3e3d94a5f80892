# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face directories in and out: every layout that is accepted, and nothing lost on the way.

What is refused, and in which words, is in test_bad_checkpoints.py.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bert_checkpoint as golden
import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import flaxattn as fa
from flaxattn.errors import CheckpointError, InputError
from flaxattn.models.encoder_config import BertConfig
from flaxattn.models.task_heads import architectures_of
from flaxattn.pretrained import model_directory
from flaxattn.pretrained.encoder_names import BERT
from flaxattn.trace import tensor_file
from flaxattn.trace.tensor_file import TensorFiles, accept_files

HEADS = list(architectures_of(BertConfig()))
LABELS = {"BertForSequenceClassification": 3, "BertForTokenClassification": 5}
Checkpoint = Callable[..., Path]


def settings_of(head: str) -> dict[str, int]:
    return {"num_labels": LABELS[head]} if head in LABELS else {}


def build(folder: Path, head: str | None = None) -> Any:
    config = model_directory.read_config(folder)
    return architectures_of(BertConfig())[head or config.architectures[0]](config)


def load(folder: Path, head: str | None = None) -> tuple[Any, model_directory.CheckpointMatch]:
    return model_directory.load(TensorFiles(folder), build(folder, head))


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
    assert report == model_directory.CheckpointMatch()
    model_directory.save(tmp_path / "again", build(folder), params)
    assert_bit_equal(tensors_of(tmp_path / "again"), tensors_of(folder))
    assert model_directory.read_config(tmp_path / "again") == model_directory.read_config(folder)
    assert same(load(tmp_path / "again")[0], params)


def test_every_parameter_has_one_row_and_every_row_a_parameter(checkpoint: Checkpoint) -> None:
    every = BERT.rows
    assert len({row.ours for row in every}) == len({row.theirs for row in every}) == len(every)
    used = set()
    for number, head in enumerate(HEADS):
        untied = {"tie_word_embeddings": False} if head == "BertForMaskedLM" else {}
        module = build(checkpoint(head, folder=str(number), **settings_of(head), **untied))
        used |= set(BERT.rows_of(model_directory._parameter_shapes(module), module.config).values())
    assert used == set(every)


@pytest.mark.few("PreTraining", "TokenClass")
@pytest.mark.parity
@pytest.mark.parametrize("head", HEADS)
def test_torch_opens_what_we_save(checkpoint: Checkpoint, head: str, tmp_path: Path) -> None:
    """Nothing missing, nothing unexpected, every tensor as it was."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = checkpoint(head, **settings_of(head))
    model_directory.save(tmp_path / "ours", build(folder), load(folder)[0])
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
    assert report == model_directory.CheckpointMatch()
    model_directory.save(tmp_path / "ours", build(tmp_path / "theirs"), params)
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
    model_directory.save(tmp_path / "again", build(folder), params, dtype=name)
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
    assert report == model_directory.CheckpointMatch()
    assert same(whole, parts)


def test_a_single_file_replaces_shards(checkpoint: Checkpoint) -> None:
    folder = checkpoint()
    shard(folder)
    params, _ = load(folder)
    (folder / "notes.txt").write_text("mine")
    model_directory.save(folder, build(folder), params)
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
    assert load(snapshot)[1] == model_directory.CheckpointMatch()


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_fresh_head_follows_the_seed_and_leaves_the_rest_alone(checkpoint: Checkpoint) -> None:
    folder = checkpoint()
    module = build(folder, "BertForSequenceClassification")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        one, two, other = (
            model_directory.load(TensorFiles(folder), module, seed)[0] for seed in (1, 1, 2)
        )
    assert same(one, two)
    assert not same(one["classifier"], other["classifier"])
    assert same(one["bert"], load(folder)[0])


def test_tensors_that_no_bert_has_are_reported(checkpoint: Checkpoint) -> None:
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
    assert report == model_directory.CheckpointMatch()
    assert (params["mlm_head"]["bias"] == tensors["cls.predictions.decoder.bias"]).all()
    case = golden.Case("BertForMaskedLM", settings=(("tie_word_embeddings", False),))
    tensors = golden.tensors(case)
    folder = checkpoint("BertForMaskedLM", tensors, "untied", tie_word_embeddings=False)
    params, _ = load(folder)
    assert (params["mlm_head"]["bias"] == tensors["cls.predictions.decoder.bias"]).all()
    saved = model_directory.to_hf(build(folder), params)
    assert saved.keys() == tensors.keys()


def test_checksums_are_in_the_header(checkpoint: Checkpoint) -> None:
    folder = checkpoint()
    with safetensors.safe_open(folder / "model.safetensors", "np") as file:
        metadata = file.metadata()
    assert metadata["format"] == "pt"
    digests = json.loads(metadata["flaxattn.sha256"])
    assert digests == {n: tensor_file.digest(a) for n, a in tensors_of(folder).items()}


GENERATION = {"generation_config.json": {"num_beams": 2}}


def saved(folder: Path, checkpoint: Checkpoint, **named: Any) -> Path:
    """A directory that flaxattn wrote, with checksums of all its files."""
    source = checkpoint(folder=f"{folder.name}-source")
    model_directory.save(folder, build(source), load(source)[0], **named)
    return folder


BYTES = """
import sys, numpy as np
from flaxattn.trace.tensor_file import write
write(sys.argv[1], {"b": np.ones(3, np.float32), "a": np.ones((2, 2), np.float16)}, {"é.json": "0"})
"""


def test_the_same_model_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    found = set()
    for seed in range(6):
        path = tmp_path / str(seed) / "model.safetensors"
        path.parent.mkdir()
        command = [sys.executable, "-P", "-c", BYTES, str(path)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": str(seed)})
        found.add(path.read_bytes())
        with safetensors.safe_open(path, "np") as file:
            assert set(file.metadata()) == {"flaxattn.files", "flaxattn.sha256", "format"}
            assert file.get_tensor("a").tolist() == [[1, 1], [1, 1]]
    assert len(found) == 1


def test_a_file_that_was_changed_after_saving_is_refused_until_it_is_accepted(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "model", checkpoint, further=GENERATION)
    fa.from_pretrained(folder)
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"layer_norm_eps": 1e-12', '"layer_norm_eps": 1e-10'))
    with pytest.raises(CheckpointError) as caught:
        fa.from_pretrained(folder)
    first, second, line = str(caught.value).splitlines()
    assert first == (
        f"{path} is not the file that was saved with model.safetensors: it was edited or damaged."
    )
    assert second.endswith("If you changed it yourself, accept it as it is now:")
    before = tensors_of(folder)
    program, option, code = shlex.split(line)
    assert program == "python"
    subprocess.run([sys.executable, option, code], check=True, cwd=tmp_path)
    assert fa.from_pretrained(folder).config.layer_norm_eps == 1e-10
    assert_bit_equal(tensors_of(folder), before)
    (folder / "generation_config.json").unlink()
    with pytest.raises(CheckpointError, match=r"generation_config.json is missing; model.safet"):
        fa.from_pretrained(folder)
    accept_files(folder)
    fa.from_pretrained(folder)


def test_what_was_saved_anew_while_it_was_read_is_refused(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "model", checkpoint)
    other = saved(tmp_path / "other", checkpoint, further=GENERATION)
    read = model_directory.load

    def replaced(files: TensorFiles, *given: Any, **options: Any) -> Any:
        shutil.rmtree(folder)
        shutil.copytree(other, folder)
        return read(files, *given, **options)

    monkeypatch.setattr(model_directory, "load", replaced)
    with pytest.raises(CheckpointError, match="was saved anew while it was read"):
        fa.from_pretrained(folder)


def test_saving_over_a_model_removes_its_files_and_keeps_those_of_the_user(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    for inner in (False, True):  # a folder inside keeps the outer one from being exchanged
        folder = saved(
            tmp_path / f"model{inner}",
            checkpoint,
            further=GENERATION,
        )
        (folder / "notes.txt").write_text("mine")
        (folder / "notes.txt").chmod(0o600)
        folder.chmod(0o700)
        if inner:
            (folder / "inner").mkdir()
        source = checkpoint(folder=f"again{inner}")
        model_directory.save(folder, build(source), load(source)[0])
        names = {path.name for path in folder.iterdir()} - {"inner"}
        assert names == {"config.json", "model.safetensors", "notes.txt"}
        assert (folder / "notes.txt").stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == 0o700
        assert not list(tmp_path.glob(".*.part"))


def test_a_header_that_names_a_file_outside_is_refused(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = checkpoint()
    (tmp_path / "secret").write_text("x")
    tensor_file.write(folder / "model.safetensors", tensors_of(folder), {"../secret": "0" * 64})
    with pytest.raises(CheckpointError, match=r"names the file '../secret', which lies outside"):
        fa.from_pretrained(folder)
    source = checkpoint(folder="source")
    model_directory.save(folder, build(source), load(source)[0])
    assert (tmp_path / "secret").read_text() == "x"


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
        model_directory.save(target, build(folder), params, tokenizer=_FullDisk())
    assert ({p.name: p.read_bytes() for p in target.iterdir()} if existing else None) == before
    assert target.exists() == existing
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_save_over_a_file_or_with_other_parameters(checkpoint: Checkpoint, tmp_path: Path) -> None:
    folder = checkpoint()
    params, _ = load(folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="it is a file, not a directory"):
        model_directory.save(tmp_path / "file", build(folder), params)
    with pytest.raises(InputError, match=r"not those of BertForMaskedLM: .*\nExpected shape"):
        model_directory.save(tmp_path / "x", build(folder, "BertForMaskedLM"), params)
    with pytest.raises(InputError, match="dtype 'int8' cannot be stored"):
        model_directory.save(tmp_path / "x", build(folder), params, dtype="int8")
    large = jax.tree.map(lambda leaf: leaf + 1e5, params)
    with pytest.raises(InputError, match=r"too large for float16: up to 1e\+05"):
        model_directory.save(tmp_path / "x", build(folder), large, dtype="float16")
    assert not (tmp_path / "x").exists()


def test_saved_files_can_be_read_by_others(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Some writers make their files private to the user who wrote them."""
    folder = checkpoint("BertModel")
    params, _ = load(folder)
    umask = os.umask(0o022)
    try:
        model_directory.save(tmp_path / "again", build(folder), params)
    finally:
        os.umask(umask)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "again").iterdir()} == {0o644}
