# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn train lm` on decoders with rotary positions: new ones, and a checkpoint."""

import dataclasses
import json
import random
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from small_decoders import BOS, EOS, write_decoder

import flaxattn as fa
from flaxattn.cli import main
from flaxattn.errors import CheckpointError, InputError
from flaxattn.models.decoder_config import DecoderConfig, GPT2Config
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.train.corpus import TokenCorpus
from flaxattn.train.lm import decoder_update_bytes, train_lm
from flaxattn.train.lm_model import (
    TextBatch,
    TokenRows,
    batch_totals,
    build_module,
    choose_config,
    cut_chunks,
    initial_parameters,
    loss_function,
)
from flaxattn.train.recipe import ARCHITECTURES, LanguageModelRecipe
from flaxattn.train.report import decoder_flops
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.settings import build

NOTES = "do re mi fa so la ti".split()
SETTINGS: dict[str, Any] = {
    "vocab_size": 300,
    "n_layer": 2,
    "n_head": 4,
    "n_embd": 16,
    "unroll": False,
    "dropout": 0.0,
    "block": 12,
    "pack": 4,
    "documents": "lines",
    "heldout_fraction": 0.1,
    "batch_size": 8,
    "steps": 24,
    "warmup_steps": 4,
    "learning_rate": 2e-2,
    "evaluate_every": 12,
    "checkpoint_every": 12,
    "keep_checkpoints": 4,
    "sample_tokens": 3,
    "devices": 1,
    "log_every": 12,
    "log_seconds": 1000,
}
KINDS = {"llama": {"key_heads": 2}, "gemma2": {"key_heads": 1, "dropout": 0.1}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines of notes that go round."""
    pick, rows = random.Random(1), []
    for _ in range(150):
        first, length = pick.randrange(len(NOTES)), pick.randint(2, 14)
        rows.append(" ".join(NOTES[(first + i) % len(NOTES)] for i in range(length)))
    path = tmp_path_factory.mktemp("data") / "notes.txt"
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def words(settings: dict[str, Any]) -> list[str]:
    return [word for item in settings.items() for word in ("--set", "=".join(map(str, item)))]


@pytest.fixture(scope="module", params=KINDS)
def run(request: pytest.FixtureRequest, data: Path, tmp_path_factory: Any) -> Path:
    """A run as a person types it."""
    kind = request.param
    out = tmp_path_factory.mktemp("decoder") / kind
    settings = {**SETTINGS, "architecture": kind, **KINDS[kind]}
    assert main(["train", "lm", "--data", str(data), "--out", str(out), *words(settings)]) == 0
    return out


@pytest.mark.slow
def test_a_new_decoder_learns_and_is_of_its_type(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    before, after = summary["heldout"][0]["nll"], summary["result"]["nll"]
    assert after < 0.7 * before
    config = json.loads((run / "model" / "config.json").read_text())
    assert config["model_type"] == run.name
    assert config["num_key_value_heads"] == KINDS[run.name]["key_heads"]
    assert (config["hidden_size"], config["intermediate_size"]) == (16, 48)
    assert config["max_position_embeddings"] == SETTINGS["block"]
    model: Any = fa.from_pretrained(run / "model")
    assert type(model.module).__name__ == "DecoderLM"
    (text,) = model.generate(["do re"], max_new_tokens=4)
    assert text.startswith("do re") and len(text) > len("do re")
    title = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert f"A decoder ({run.name}) trained on text" in title


@pytest.mark.parity
def test_torch_opens_the_decoder_and_predicts_the_same(run: Path) -> None:
    torch = pytest.importorskip("torch")
    import transformers

    loaded = transformers.AutoModelForCausalLM
    theirs = loaded.from_pretrained(run / "model", attn_implementation="eager").eval()
    assert theirs.config.model_type == run.name
    model: Any = fa.from_pretrained(run / "model")
    ids = np.array([model.tokenizer.ids([" ".join(NOTES * 2)])[0][: SETTINGS["block"]]])
    with torch.no_grad():
        logits = theirs(torch.from_numpy(ids)).logits.numpy()
    np.testing.assert_allclose(model(ids).logits, logits, atol=2e-4)


@pytest.mark.slow
def test_a_stopped_run_ends_with_the_same_bits(run: Path, data: Path, tmp_path: Path) -> None:
    again = tmp_path / run.name
    shutil.copytree(run, again)
    shutil.rmtree(again / "checkpoints" / "step-00000024")
    shutil.rmtree(again / "model")
    settings = {**SETTINGS, "architecture": run.name, **KINDS[run.name]}
    command = ["train", "gpt2-lm", "--data", str(data), "--out", str(again), *words(settings)]
    assert main(command) == 0  # by the other name of the command
    for name in ("metrics.jsonl", "samples.jsonl", "model/config.json"):
        assert (again / name).read_bytes() == (run / name).read_bytes(), name
    one, other = (
        safetensors.numpy.load_file(folder / "model" / "model.safetensors")
        for folder in (run, again)
    )
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(other[name], array)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Gemma 3 with windows shorter than a row, whose texts begin with `<s>`."""
    return write_decoder(tmp_path_factory.mktemp("start") / "gemma")


@pytest.fixture(scope="module")
def continued(start: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("continued") / "run"
    changes = {"block": 40, "steps": 12, "learning_rate": 3e-3}
    names = ("vocab_size", "n_layer", "n_head", "n_embd", "dropout")
    settings = {n: v for n, v in {**SETTINGS, **changes}.items() if n not in names}
    command = ["train", "lm", "--data", str(data), "--out", str(out), "--model", str(start)]
    assert main([*command, *words(settings)]) == 0
    return out


@pytest.mark.slow
def test_a_checkpoint_is_continued_and_keeps_its_config(start: Path, continued: Path) -> None:
    one, other = (
        json.loads((folder / "config.json").read_text()) for folder in (start, continued / "model")
    )
    assert other == one
    assert other["model_type"] == "gemma3_text"
    summary = json.loads((continued / "summary.json").read_text())
    assert summary["result"]["nll"] < summary["heldout"][0]["nll"]
    for document in TokenCorpus(continued / "corpus"):
        assert document[0] == BOS and BOS not in document[1:]
    model: Any = fa.from_pretrained(continued / "model")
    (text,) = model.generate(["do re"], max_new_tokens=4)
    assert text.startswith("do re")


@pytest.mark.slow
def test_a_rotary_model_has_the_loss_of_each_text_alone_in_a_pack(continued: Path) -> None:
    model: Any = fa.from_pretrained(continued / "model")
    params = jax.tree.map(lambda leaf: 2 * leaf, model.params)  # so that neighbours would be felt
    corpus = TokenCorpus(continued / "corpus").split(SETTINGS["heldout_fraction"])[1]
    rows = TokenRows(corpus, cut_chunks(corpus, 40, 40), 40, 4, EOS)
    batch = rows.batch(np.arange(len(rows)))
    segments = np.asarray(batch.segment_ids)
    assert segments.max() > 1 and (segments > 0).sum(1).max() > 12

    @jax.jit
    def nats(ids: Any, labels: Any, **packing: Any) -> jax.Array:
        logits = model.module.apply({"params": params}, ids, **packing).logits
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)[..., 0]

    packing = {n: getattr(batch, n) for n in ("attention_mask", "position_ids", "segment_ids")}
    packed = np.asarray(nats(batch.input_ids, jnp.asarray(batch.labels), **packing))
    compared = 0
    for row, segment in zip(*np.nonzero(np.diff(segments, prepend=0) > 0), strict=True):
        mine = segments[row] == segments[row, segment]
        ids, labels = (np.zeros((1, 40), np.int32) for _ in range(2))
        ids[0, : mine.sum()] = np.asarray(batch.input_ids)[row, mine]
        labels[0, : mine.sum()] = np.asarray(batch.labels)[row, mine]
        alone = np.asarray(nats(ids, jnp.asarray(labels)))[0, : mine.sum()]
        np.testing.assert_allclose(packed[row, mine], alone, atol=1e-5)
        compared += 1
    assert compared == len(corpus)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (
            {"architecture": "lama"},
            ["no architecture 'lama'", "gpt2, llama, mistral", "--set architecture=llama"],
        ),
        ({"architecture": "llama", "key_heads": 3}, ["n_head 4 is not a multiple of key_heads 3"]),
        ({"key_heads": 2}, ["key_heads 2 does not fit architecture gpt2", "leave key_heads out"]),
        ({"architecture": "gpt_neox", "key_heads": 2}, ["does not fit architecture gpt_neox"]),
    ],
)
def test_a_shape_that_no_architecture_has(changes: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(InputError) as error:
        build(LanguageModelRecipe, {**SETTINGS, **changes})
    assert all(part in str(error.value) for part in parts), str(error.value)
    assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"block": 600}, ["block 600 does not fit", "reads up to 512 tokens", "--set block=512"]),
        ({"architecture": "llama"}, ["architecture llama contradicts", "gemma3_text"]),
        ({"key_heads": 1}, ["key_heads 1 contradicts model", "it has key_heads 2"]),
        ({"model": "tiny-bert"}, ["model 'tiny-bert' is not a decoder, but a Bert"]),
    ],
)
def test_settings_that_a_checkpoint_contradicts(
    start: Path, data: Path, tmp_path: Path, changes: dict[str, Any], parts: list[str]
) -> None:
    recipe = build(LanguageModelRecipe, {"model": str(start), "n_layer": 3, "n_head": 4, **changes})
    with pytest.raises((InputError, CheckpointError)) as error:
        train_lm([data], RunFolder(tmp_path / "out"), recipe)
    assert all(part in str(error.value) for part in parts), str(error.value)
    assert len(str(error.value).splitlines()) == 3


def small(**changes: Any) -> DecoderConfig:
    shape = {
        "vocab_size": 64,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32,
    }
    return DecoderConfig(**{**shape, **changes})


PLAIN = GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=2, n_head=4)


@pytest.mark.parametrize(
    "config",
    [PLAIN, small(), small(gated=False), small(num_key_value_heads=1, head_dim=6)],
    ids=["gpt2", "gated", "plain", "deep heads"],
)
def test_operations_are_those_of_the_kernels_and_of_attention(config: Any) -> None:
    shapes = initial_parameters(build_module(config, LanguageModelRecipe()), 0)
    kernels = [
        leaf.size
        for path, leaf in jax.tree_util.tree_flatten_with_path(shapes["model"])[0]
        if "kernel" in jax.tree_util.keystr(path)
    ]
    attended = 2 * config.num_hidden_layers * config.query_size
    scored = config.hidden_size * config.vocab_size
    for length in (8, 32):
        expected = 6 * 3 * length * (sum(kernels) + attended * length + scored)
        assert decoder_flops(config, 3, length) == expected


def test_a_window_takes_fewer_operations_and_shared_keys_less_memory() -> None:
    wide, narrow = small(), small(sliding_window=5)
    saved = 6 * 3 * 32 * 2 * 2 * wide.query_size * (32 - 5)
    assert decoder_flops(wide, 3, 32) - decoder_flops(narrow, 3, 32) == saved
    recipe = LanguageModelRecipe(batch_size=3, block=32)

    def needed(config: Any) -> int:
        return decoder_update_bytes(config, recipe, {})

    item = 4 * 3 * 32 * 2  # of float32, rows, positions and layers
    own = dataclasses.replace(wide, num_key_value_heads=4)
    assert needed(own) - needed(wide) == item * 2 * (own.key_size - wide.key_size)
    ungated = dataclasses.replace(wide, gated=False)
    assert needed(wide) - needed(ungated) == item * 2 * wide.inner_size
    more = dataclasses.replace(wide, vocab_size=164)
    assert needed(more) - needed(wide) == 3 * 4 * 3 * 32 * 100


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["rms", "rms_plus_one", "layer"])
def test_norms_of_a_new_decoder_begin_as_those_of_the_module(norm: Any) -> None:
    module = build_module(small(norm=norm, head_norm="each"), LanguageModelRecipe())
    params = initial_parameters(module, 0)
    expected = jax.jit(module.init)(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    assert jax.tree.structure(params) == jax.tree.structure(expected)
    compared = 0
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        if jax.tree_util.keystr(path).endswith(("['scale']", "['bias']")):
            own = expected
            for part in path:
                own = own[part.key]
            np.testing.assert_array_equal(leaf, own)
            compared += 1
    assert compared >= 5


@pytest.mark.parametrize("kind", ARCHITECTURES[1:])
def test_every_architecture_makes_a_new_model(kind: str, start: Path) -> None:
    backend = Tokenizer.from_dir(start).backend
    tokenizer = Tokenizer(backend, {"eos_token": "</s>"})
    heads, depth = (2, 8) if kind == "gpt_neox" else (4, 4)
    groups = heads if kind == "gpt_neox" else 2
    shape = {"architecture": kind, "n_head": heads, "key_heads": groups}
    recipe = build(LanguageModelRecipe, {**SETTINGS, **shape})
    config = choose_config(recipe, tokenizer, None)
    assert isinstance(config, DecoderConfig)
    assert (config.model_type, config.key_heads, config.head_size) == (kind, groups, depth)
    assert config.bos_token_id == BOS and config.end_ids == (EOS,)
    written = DecoderConfig.from_hf(config.to_hf())
    assert written == config
    shapes = jax.eval_shape(
        build_module(config, recipe).init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32)
    )
    assert shapes["params"]["model"]["words"]["embedding"].shape == (tokenizer.vocab_size, 16)


@pytest.mark.parametrize(
    ("kind", "width", "parts"),
    [
        ("llama", 12, ["n_embd 12 over n_head 4", "3 of 3 of each head", "a multiple of 2"]),
        ("gpt_neox", 16, ["architecture gpt_neox", "1 of 4 of each head", "a multiple of 8"]),
    ],
)
def test_heads_that_have_no_pairs_to_rotate(
    kind: str, width: int, parts: list[str], start: Path
) -> None:
    tokenizer = Tokenizer(Tokenizer.from_dir(start).backend, {"eos_token": "</s>"})
    recipe = build(LanguageModelRecipe, {**SETTINGS, "architecture": kind, "n_embd": width})
    with pytest.raises(InputError) as error:
        choose_config(recipe, tokenizer, None)
    assert all(part in str(error.value) for part in parts), str(error.value)
    assert len(str(error.value).splitlines()) == 3


@pytest.mark.slow
def test_devices_share_a_decoder_whose_key_heads_they_cannot_divide(
    data: Path, tmp_path: Path
) -> None:
    changes = {"architecture": "llama", "key_heads": 1, "steps": 4, "warmup_steps": 1}
    losses = []
    for devices, parallel in ((1, 1), (4, 2)):
        layout = {"devices": devices, "model_parallel": parallel, "sample_tokens": 0}
        recipe = build(LanguageModelRecipe, {**SETTINGS, **changes, **layout})
        summary = train_lm([data], RunFolder(tmp_path / str(devices)), recipe)
        losses.append([row["nll"] for row in summary["heldout"]])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


@pytest.mark.slow
def test_recomputed_layers_have_the_same_gradients(start: Path) -> None:
    """A model whose layers differ: with windows and without."""
    base: Any = fa.from_pretrained(start)
    ids = np.random.default_rng(0).integers(5, 300, (2, 16)).astype(np.int32)
    places = np.broadcast_to(np.r_[0:9, 0:7], ids.shape)
    segments = np.broadcast_to(np.r_[[1] * 9, [2] * 7], ids.shape)
    batch = TextBatch(ids, np.ones_like(ids), places, segments, ids[:, ::-1], np.ones(ids.shape))
    found = []
    for remat in (False, True):
        module = build_module(base.config, LanguageModelRecipe(remat=remat))
        gradients = jax.jit(jax.grad(loss_function(module), has_aux=True))
        found.append(gradients(base.params, batch, None, batch_totals(batch))[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), *found)
