# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every bad model directory gives an error in at most three lines, never wrong numbers or a crash.

The words are tested: what is wrong, where, what to do.
"""

import json
import os
import re
import shlex
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bert_checkpoint as golden
import huggingface_hub.errors
import numpy as np
import pytest
import safetensors.numpy

import flaxattn as fa
from flaxattn.errors import CheckpointError, FlaxattnError, InputError, UnavailableError
from flaxattn.pretrained import hub, sentence_modules
from flaxattn.text.tokenizer_files import bert_backend
from flaxattn.trace import tensor_file

Checkpoint = Callable[..., Path]
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def refused(name: Any, kind: type[FlaxattnError] = CheckpointError, **options: Any) -> str:
    """The message of the error that loading gives."""
    with pytest.raises(kind) as caught:
        fa.from_pretrained(name, **options)
    message = str(caught.value)
    assert 1 <= len(message.splitlines()) <= 3, message
    return message


def change_config(folder: Path, **changes: Any) -> Path:
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, **changes}))
    return folder


@pytest.fixture
def built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One built-in model, and a Hub that cannot be reached."""
    (tmp_path / "pretrained" / "tiny-bert").mkdir(parents=True)
    (tmp_path / "pretrained" / "tiny-bert" / "config.json").write_text("{}")
    monkeypatch.setattr(hub, "_BUILT_IN", tmp_path / "pretrained")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.usefixtures("built_in")
def test_no_such_model(tmp_path: Path) -> None:
    message = refused("tiny-brt", UnavailableError, cache_dir=tmp_path)
    assert "No model 'tiny-brt' was found: not built in, no directory" in message
    assert "offline mode is on" in message
    assert "Did you mean 'tiny-bert'? Built in: tiny-bert." in message
    assert message.endswith("hf download tiny-brt")
    message = refused(tmp_path / "nowhere")
    assert "it is not a directory and cannot be a Hub id" in message
    for name in ("../no-such-model", "/x/y", "a/b/c", "https://hub/a/b", "a b", "", "x\0y"):
        assert "cannot be a Hub id" in refused(name)


@pytest.mark.usefixtures("built_in")
def test_a_built_in_name_wins_and_a_path_means_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny-bert").mkdir()
    monkeypatch.chdir(tmp_path)
    assert hub.find("tiny-bert") == tmp_path / "pretrained" / "tiny-bert"
    assert hub.find("./tiny-bert") == Path("tiny-bert")
    assert hub.built_in() == ("tiny-bert",)


def _answer(error: type[Exception]) -> Callable[..., str]:
    def snapshot_download(*_: Any, **__: Any) -> str:
        raise error.__new__(error)  # their constructors want a whole HTTP response

    return snapshot_download


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            "RepositoryNotFoundError",
            CheckpointError,
            "the Hub has no such model (or it is private)",
        ),
        ("GatedRepoError", UnavailableError, "log in with `hf auth login`"),
        ("RevisionNotFoundError", CheckpointError, "has no revision 'v9'"),
        ("LocalEntryNotFoundError", UnavailableError, "the Hub cannot be reached"),
    ],
)
def test_what_the_hub_answers(
    monkeypatch: pytest.MonkeyPatch, error: str, kind: type[FlaxattnError], words: str
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    answer = _answer(getattr(huggingface_hub.errors, error))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", answer)
    assert words in refused("somebody/bert", kind, revision="v9")


def test_no_code_and_no_pickle_is_requested_from_the_hub(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: dict[str, Any] = {}
    folder = checkpoint()

    def snapshot_download(name: str, **options: Any) -> str:
        requested.update(options, name=name)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    model = fa.from_pretrained("somebody/bert", revision="v1", cache_dir="c", local_files_only=True)
    assert model.name == requested["name"] == "somebody/bert"
    assert (requested["revision"], requested["cache_dir"], requested["local_files_only"]) == (
        "v1",
        "c",
        True,
    )
    assert not [
        p for p in requested["allow_patterns"] if re.search(r"\.(py|bin|pt|h5|msgpack)$|\*$", p)
    ]
    assert {*sentence_modules.HUB_PATTERNS} <= set(requested["allow_patterns"])


def test_not_a_model_directory(checkpoint: Checkpoint, tmp_path: Path) -> None:
    folder = checkpoint()
    message = refused(folder / "config.json")
    assert "is a file; expected the directory of a model" in message
    (folder / "config.json").unlink()
    message = refused(folder)
    assert "has no config.json" in message and "It holds model.safetensors." in message
    (tmp_path / "empty").mkdir()
    assert "It holds nothing." in refused(tmp_path / "empty")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read as JSON"),
        ("[1]", "holds a JSON list; expected an object"),
        ("\udcff", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"hidden_size": "768"}', "wrong type"),
        ('{"num_hidden_layers": null}', "wrong type"),
        ('{"id2label": [1, 2]}', "wrong type"),
        ('{"hidden_size": 10, "num_attention_heads": 3}', "not a multiple"),
        ('{"num_hidden_layers": 0}', "num_hidden_layers must be at least 1, got 0"),
        ('{"model_type": "opt"}', "model_type is 'opt' which flaxattn does not have.\nIt has bert"),
        (
            '{"model_type": "mixtral"}',
            "'mixtral', a mixture of experts, which flaxattn does not have.",
        ),
        ('{"position_embedding_type": "relative_key"}', "position_embedding_type"),
        ('{"hidden_act": "gleu"}', "hidden_act is 'gleu'; flaxattn has gelu, "),
        ('{"layer_norm_eps": NaN}', "layer_norm_eps is nan, expected a number above 0"),
        ('{"layer_norm_eps": -1}', "layer_norm_eps is -1, expected a number above 0"),
        ('{"layer_norm_eps": Infinity}', "layer_norm_eps is inf, expected a number above 0"),
        ('{"layer_norm_eps": "1e-5"}', "layer_norm_eps is '1e-5', expected a number above 0"),
        ('{"hidden_dropout_prob": 1.0}', "hidden_dropout_prob is 1.0, expected a number from 0 to"),
        ('{"attention_probs_dropout_prob": NaN}', "attention_probs_dropout_prob is nan, expected"),
        ('{"classifier_dropout": -0.5}', "classifier_dropout is -0.5, expected a number from 0 to"),
        ('{"initializer_range": NaN}', "initializer_range is nan, expected a number from 0"),
        ('{"model_type": "gpt2", "layer_norm_epsilon": 0}', "layer_norm_epsilon is 0, expected"),
        ('{"model_type": "gpt2", "attn_pdrop": NaN}', "attn_pdrop is nan, expected a number from"),
        ('{"model_type": "marian", "init_std": -1}', "init_std is -1, expected a number from 0"),
        (
            '{"model_type": "marian", "decoder_start_token_id": 58101}',
            "decoder_start_token_id is 58101, the embedding table has ids 0 to 58100",
        ),
    ],
)
def test_bad_config(checkpoint: Checkpoint, text: str, words: str) -> None:
    folder = checkpoint()
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert words in refused(folder)


def test_unknown_architecture(checkpoint: Checkpoint) -> None:
    folder = checkpoint("BertForMaskedLM")
    with pytest.warns(UserWarning, match="lacks pooler"):
        fa.from_pretrained(folder, head="base")
    assert "architecture 'BertForAll'" in refused(folder, InputError, head="BertForAll")
    assert "dtype int8: expected one of float32" in refused(folder, InputError, dtype="int8")


def test_no_weights(checkpoint: Checkpoint) -> None:
    folder = checkpoint()
    (folder / WEIGHTS).unlink()
    assert "holds no weights: expected model.safetensors or" in refused(folder)
    snapshot = folder.parent / "models--a--b" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (folder / "config.json").rename(snapshot / "config.json")
    message = refused(snapshot)
    assert "The Hub model 'a/b' has no model.safetensors" in message
    assert "hf download a/b --local-dir model\n" in message


def test_a_pickle_is_never_opened(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """A `pytorch_model.bin` that would run a command when read."""
    folder = checkpoint()
    (folder / WEIGHTS).unlink()
    canary = tmp_path / "canary"
    (folder / "pytorch_model.bin").write_bytes(
        b"cposix\nsystem\n(S'touch " + os.fsencode(canary) + b"'\ntR."
    )
    message = refused(folder)
    assert not canary.exists()
    assert "a pickle, which can run code; flaxattn never opens one" in message
    line = message.splitlines()[2]
    program, option, code = shlex.split(line)
    assert (program, option) == ("python", "-c")
    compile(code, "line", "exec")
    assert "weights_only=True" in code


@pytest.mark.parity
def test_the_line_that_converts_a_pickle_works(checkpoint: Checkpoint, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    folder = checkpoint(folder="it's [1]")
    arrays = golden.tensors(golden.Case())
    expected = tensor_file.TensorFiles(folder)
    (folder / WEIGHTS).unlink()
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    first = dict(list(tensors.items())[:5])
    torch.save(first, folder / "pytorch_model-00001-of-00002.bin")
    rest = {name: tensor for name, tensor in tensors.items() if name not in first}
    torch.save(rest, folder / "pytorch_model-00002-of-00002.bin")
    _, option, code = shlex.split(refused(folder).splitlines()[2])
    subprocess.run([sys.executable, option, code], check=True, cwd=tmp_path)
    assert tensor_file.TensorFiles(folder).shapes == expected.shapes
    fa.from_pretrained(folder)


def raw(header: Any, data: bytes = b"\0" * 8, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(start: int = 0, end: int = 8, dtype: str = "F32", shape: Any = (2,)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


HOSTILE = {
    "empty file": b"",
    "no whole length": b"\1\2\3",
    "length beyond the file": raw({"a": entry()}, length=10_000),
    "enormous length": raw({"a": entry()}, length=2**63),
    "no JSON": raw(b"{'a': 1}"),
    "bad UTF-8": raw(b'{"\xff": {}}'),
    "deep nesting": raw(b'{"a":' * 50_000),
    "a list": raw([1]),
    "data cut": raw({"a": entry()}, data=b"\0" * 7),
    "data left over": raw({"a": entry()}, data=b"\0" * 9),
    "hole": raw({"a": entry(), "b": entry(12, 20)}, data=b"\0" * 20),
    "overlap": raw({"a": entry(), "b": entry(4, 12)}, data=b"\0" * 12),
    "negative offset": raw({"a": entry(-8, 0)}),
    "backward offsets": raw({"a": entry(8, 0)}),
    "shape against size": raw({"a": entry(shape=(3,))}),
    "enormous shape": raw({"a": entry(shape=(2**62, 2**62))}),
    "negative shape": raw({"a": entry(shape=(-2,))}),
    "unknown dtype": raw({"a": entry(dtype="F33")}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers(checkpoint: Checkpoint, name: str) -> None:
    folder = checkpoint()
    (folder / WEIGHTS).write_bytes(HOSTILE[name])
    message = refused(folder)
    assert f"{folder / WEIGHTS} is not a whole safetensors file" in message
    assert "Download or copy it again." in message


def test_a_giant_header_is_refused_before_it_is_read(checkpoint: Checkpoint) -> None:
    folder = checkpoint()
    with (folder / WEIGHTS).open("wb") as file:  # sparse: takes no space
        file.write(struct.pack("<Q", 90 * 2**20))
        file.truncate(100 * 2**20)
    assert "its header claims 94371840 bytes" in refused(folder)


def test_truncated_anywhere(checkpoint: Checkpoint) -> None:
    folder = checkpoint()
    whole = (folder / WEIGHTS).read_bytes()
    for length in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        (folder / WEIGHTS).write_bytes(whole[:length])
        message = refused(folder)
        assert f"({length} bytes): it was cut short or damaged" in message


def test_one_flipped_bit_is_noticed(checkpoint: Checkpoint) -> None:
    """In what flaxattn saved: each data byte is under a checksum, the header under the format."""
    folder = checkpoint(num_hidden_layers=1)
    whole = (folder / WEIGHTS).read_bytes()
    start = 8 + struct.unpack("<Q", whole[:8])[0]
    random = np.random.RandomState(0)
    for place in random.randint(start, len(whole), 25):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << random.randint(8)
        (folder / WEIGHTS).write_bytes(damaged)
        message = refused(folder)
        assert re.search(r"is damaged: tensor \S+ is not what was saved", message), message


def test_a_flipped_bit_in_the_header_is_noticed_or_harmless(checkpoint: Checkpoint) -> None:
    folder = checkpoint(num_hidden_layers=1)
    whole = (folder / WEIGHTS).read_bytes()
    names = set(tensor_file.TensorFiles(folder).shapes)
    start = 8 + struct.unpack("<Q", whole[:8])[0]
    random = np.random.RandomState(1)
    for place in random.randint(0, start, 60):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << random.randint(8)
        (folder / WEIGHTS).write_bytes(damaged)
        try:
            files = tensor_file.TensorFiles(folder)
            assert set(files.shapes) == names
            arrays = golden.tensors(golden.Case(settings=(("num_hidden_layers", 1),)))
            assert all((files.read(name) == arrays[name]).all() for name in names)
        except CheckpointError as error:
            assert len(str(error).splitlines()) <= 3


def test_tensors_that_are_no_floats(checkpoint: Checkpoint) -> None:
    tensors = golden.tensors(golden.Case())
    tensors["pooler.dense.bias"] = tensors["pooler.dense.bias"].astype(np.int32)
    folder = checkpoint()
    safetensors.numpy.save_file(tensors, folder / WEIGHTS)
    message = refused(folder)
    assert "tensor pooler.dense.bias has dtype I32; expected one of F16, BF16, F32" in message


def test_missing_tensors_are_all_named(checkpoint: Checkpoint) -> None:
    tensors = golden.tensors(golden.Case(settings=(("num_hidden_layers", 4),)))
    gone = [f"encoder.layer.{n}.output.dense.bias" for n in range(4)]
    gone += ["embeddings.LayerNorm.bias", "encoder.layer.1.intermediate.dense.weight"]
    for name in gone:
        del tensors[name]
    message = refused(checkpoint(tensors=tensors, num_hidden_layers=4))
    assert "does not match its config.json: it lacks 6 tensors." in message
    assert "embeddings.LayerNorm.bias" in message
    assert "encoder.layer.*.output.dense.bias (layer 0 to 3)" in message
    assert "encoder.layer.*.intermediate.dense.weight (layer 1)" in message
    assert "Likely cause: an incomplete copy" in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocab_size": 98}, "vocab_size is 98 in config.json, 97 in the tensors"),
        ({"hidden_size": 64}, "hidden_size is 64 in config.json, 32 in the tensors"),
        ({"intermediate_size": 40}, "intermediate_size is 40 in config.json, 48 in the tensors"),
        ({"max_position_embeddings": 9}, "max_position_embeddings is 9 in config.json, 40"),
        ({"num_hidden_layers": 1}, "num_hidden_layers is 1, the tensors have 2 layers"),
        ({"num_hidden_layers": 3}, "num_hidden_layers is 3, the tensors have 2 layers"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000, the tensors have 2"),
        ({"num_labels": 7}, "num_labels is 7 in config.json, 3 in the tensors"),
    ],
)
def test_config_and_weights_of_different_models(
    checkpoint: Checkpoint, change: dict[str, int], words: str
) -> None:
    folder = checkpoint("BertForSequenceClassification", num_labels=3)
    message = refused(change_config(folder, **change))
    assert words in message
    assert "does not match its config.json" in message


def test_shapes_are_named(checkpoint: Checkpoint) -> None:
    message = refused(change_config(checkpoint(), vocab_size=98))
    assert "embeddings.word_embeddings.weight [97, 32] instead of [98, 32]" in message


def test_a_different_decoder_under_a_config_that_ties_it(checkpoint: Checkpoint) -> None:
    folder = checkpoint("BertForMaskedLM", tie_word_embeddings=False)
    message = refused(change_config(folder, tie_word_embeddings=True))
    assert "ties cls.predictions.decoder.weight to embeddings.word_embeddings.weight" in message
    assert '"tie_word_embeddings": false' in message


def test_another_kind_of_model(checkpoint: Checkpoint) -> None:
    message = refused(checkpoint(tensors={"transformer.wte.weight": np.ones((2, 2), np.float32)}))
    assert "does not hold a BERT: no tensor is called encoder.layer.0." in message
    assert "It holds transformer.wte.weight." in message


def test_one_tensor_under_two_names(checkpoint: Checkpoint) -> None:
    tensors = golden.tensors(golden.Case())
    tensors["bert.pooler.dense.bias"] = tensors["pooler.dense.bias"].copy()
    message = refused(checkpoint(tensors=tensors))
    assert "one tensor under two names: " in message


def index(folder: Path, **files: str) -> Path:
    """Turn the single file into a shard `part` and write an index that names `files`."""
    tensors = {n: a for n, a in golden.tensors(golden.Case()).items()}
    (folder / WEIGHTS).unlink()
    safetensors.numpy.save_file(tensors, folder / "part")
    placed = dict.fromkeys(tensors, "part") | files
    (folder / INDEX).write_text(json.dumps({"weight_map": placed}))
    return folder


@pytest.mark.parametrize(
    "file", ["../secret", "/etc/passwd", "sub/part", "..", ".", "", "..\\secret", "a\0b"]
)
def test_an_index_that_leads_outside(checkpoint: Checkpoint, file: str, tmp_path: Path) -> None:
    safetensors.numpy.save_file({"x": np.ones(2, np.float32)}, tmp_path / "secret")
    message = refused(index(checkpoint(), x=file))
    assert f"names the file {file!r}, which lies outside the directory" in message
    assert "Do not trust this one." in message


def test_a_shard_that_links_outside(checkpoint: Checkpoint, tmp_path: Path) -> None:
    folder = index(checkpoint(), x="link")
    safetensors.numpy.save_file({"x": np.ones(2, np.float32)}, tmp_path / "secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    assert "names the file 'link', which lies outside the directory" in refused(folder)


def test_incomplete_shards(checkpoint: Checkpoint) -> None:
    folder = index(checkpoint(), x="part-2")
    assert "names part-2, which is not there" in refused(folder)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"x": "part"}}))
    message = refused(folder)
    assert "lacks 1 tensors that model.safetensors.index.json says it holds: x" in message
    for text in ('{"weight_map": []}', '{"weight_map": {"x": 3}}', "{}"):
        (folder / INDEX).write_text(text)
        assert "has no usable weight_map" in refused(folder)


def test_a_token_without_a_row_is_refused_where_a_text_has_it(checkpoint: Checkpoint) -> None:
    folder = checkpoint()
    vocabulary = {
        "[PAD]": 0,
        "[UNK]": 1,
        "[CLS]": 2,
        "[SEP]": 3,
        "[MASK]": 4,
        "near": 96,
        "far": 97,
    }
    bert_backend(vocabulary, {}).save(str(folder / "tokenizer.json"))
    model = fa.from_pretrained(folder)
    assert model.trace("near").tokens == [["[CLS]", "near", "[SEP]"]]
    for read in (model.trace, model.read, lambda text: fa.embed(model, text)):
        with pytest.raises(InputError, match=r"text 1 has the token 'far'\n.* 97 .* of 97\n"):
            read(["near", "near far"])


def test_a_tokenizer_whose_special_tokens_have_no_row(checkpoint: Checkpoint) -> None:
    folder = checkpoint()
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    bert_backend(vocabulary, {}).save(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    settings["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", 98], "cls": ["x", 2]}
    (folder / "tokenizer.json").write_text(json.dumps(settings), encoding="utf-8")
    assert "gives texts the id 98" in refused(folder)
