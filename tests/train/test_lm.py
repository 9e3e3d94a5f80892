# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From text to a GPT-2 that writes, on words that follow each other like the months."""

import dataclasses
import itertools
import json
import math
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from jax.sharding import PartitionSpec as P

import flaxattn as fa
from flaxattn.cli import main
from flaxattn.errors import CheckpointError, InputError
from flaxattn.models.decoder_config import GPT2Config
from flaxattn.models.parameter_shardings import state_shardings
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import END, train_byte_bpe, train_wordpiece
from flaxattn.trace.tensor_file import accept_files
from flaxattn.train import loop
from flaxattn.train.corpus import TokenCorpus
from flaxattn.train.lm import train_lm
from flaxattn.train.lm_model import (
    Samples,
    TextBatch,
    TokenRows,
    batch_totals,
    build_module,
    cut_chunks,
    initial_parameters,
    loss_function,
    read_samples,
)
from flaxattn.train.optimizers import decays
from flaxattn.train.recipe import LanguageModelRecipe
from flaxattn.train.report import read_metrics
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.settings import build
from flaxattn.train.state import make_mesh

MONTHS = "Jänner Feber März April Mai Juni Juli August September Oktober".split()
SETTINGS: dict[str, Any] = {
    "vocab_size": 320,
    "n_layer": 2,
    "unroll": False,
    "n_head": 2,
    "n_embd": 16,
    "dropout": 0.0,
    "block": 12,
    "stride": 5,
    "pack": 4,
    "documents": "lines",
    "heldout_fraction": 0.1,
    "batch_size": 8,
    "steps": 60,
    "warmup_steps": 10,
    "learning_rate": 2e-2,
    "evaluate_every": 30,
    "checkpoint_every": 30,
    "keep_checkpoints": 4,
    "sample_tokens": 5,
    "devices": 1,
    "log_every": 15,
    "log_seconds": 1000,
    "on_error": "quarantine",
}


@pytest.fixture(scope="module", autouse=True)
def compiled_once() -> Iterator[None]:
    """A small model: compiling costs more than running what is compiled, so it is done once."""
    compile_update, compiled = loop.compile_update, {}

    def shared(task: loop.Task, recipe: LanguageModelRecipe, *layout: Any) -> loop.Update:
        key = dataclasses.replace(recipe, prompts=())
        if key not in compiled:
            compiled[key] = compile_update(task, recipe, *layout)
        return compiled[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "compile_update", shared)
        yield


def lines(count: int, seed: int, step: int = 1) -> list[str]:
    pick = random.Random(seed)
    found = []
    for _ in range(count):
        first, length = pick.randrange(len(MONTHS)), pick.randint(2, 30)
        found.append(" ".join(MONTHS[(first + step * i) % len(MONTHS)] for i in range(length)))
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text file, one line of which is not UTF-8."""
    path = tmp_path_factory.mktemp("data") / "text.txt"
    text = "".join(f"{line}\n" for line in lines(200, 1))
    path.write_bytes(text.encode() + b"Stra\xdfe\n")
    return path


def words(settings: dict[str, Any]) -> list[str]:
    return [word for item in settings.items() for word in ("--set", "=".join(map(str, item)))]


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as a person types it."""
    out = tmp_path_factory.mktemp("gpt2") / "run"
    assert main(["train", "gpt2-lm", "--data", str(data), "--out", str(out), *words(SETTINGS)]) == 0
    return out


@pytest.fixture(scope="module")
def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


@pytest.fixture(scope="module")
def model(run: Path) -> Any:
    return fa.from_pretrained(run / "model")


def heldout_of(run: Path) -> TokenCorpus:
    return TokenCorpus(run / "corpus").split(SETTINGS["heldout_fraction"])[1]


def test_it_learns_and_says_what_it_did(run: Path, summary: dict[str, Any]) -> None:
    rows = [row for row in read_metrics(run / "metrics.jsonl") if row["kind"] == "heldout"]
    assert [row["step"] for row in rows] == [0, 30, 60]
    assert set(rows[0]) == {
        *("step", "kind", "loss", "nll", "accuracy", "perplexity", "bits_per_byte"),
    }
    assert rows[0]["accuracy"] < 0.1 < 0.6 < rows[-1]["accuracy"]
    assert rows[0]["nll"] > summary["unigram_loss"] > 2 * rows[-1]["nll"]
    for row in rows:
        assert row["perplexity"] == pytest.approx(np.exp(row["nll"]))
    best = next(row for row in rows if row["step"] == summary["best"]["step"])
    assert best["nll"] == summary["best"]["value"] == min(row["nll"] for row in rows[1:])
    assert summary["result"] == {k: v for k, v in best.items() if k not in ("step", "kind")}
    assert summary["rows"] == {"rows": 201, "kept": 200, "bad": {"encoding": 1}}
    assert summary["training_tokens"] + summary["heldout_tokens"] == len(
        TokenCorpus(run / "corpus").tokens
    )
    assert 0.8 < summary["filled"] <= 1
    names = ("curves.png", "model/README.md", "recipe.yaml", "errors.jsonl", "timing.jsonl")
    assert all((run / name).is_file() for name in names)
    assert "held-out bits_per_byte" in (run / "model" / "README.md").read_text(encoding="utf-8")


def told_alone(apply: Any, model: Any, ids: list[int], stride: int) -> float:
    """Sum of the nats of a document's tokens, each scored by a pass of its own over its window."""
    end, block, total = model.config.eos_token_id, SETTINGS["block"], 0.0
    text, scored = [*ids, end], 1
    for begin in range(0, len(text), stride):
        for target in range(max(scored, begin + 1), min(begin + block, len(text) - 1) + 1):
            context = np.full((1, block), end)  # what comes later is not seen
            context[0, : target - begin] = text[begin:target]
            scores = np.asarray(apply(context)[0, target - begin - 1], np.float64)
            total += float(np.log(np.exp(scores).sum()) - scores[text[target]])
            scored = target + 1
    return total


@pytest.mark.slow
def test_perplexity_and_bits_per_byte_are_those_of_the_windows_one_by_one(
    run: Path, model: Any, summary: dict[str, Any]
) -> None:
    documents = [ids.tolist() for ids in heldout_of(run)]
    assert max(map(len, documents)) > 2 * SETTINGS["block"]
    apply = jax.jit(lambda ids: model.module.apply({"params": model.params}, ids).logits)
    nats = sum(told_alone(apply, model, ids, SETTINGS["stride"]) for ids in documents)
    predictions = sum(map(len, documents))  # all but the first, and the end
    sizes = [len(model.tokenizer.decode(ids[1:]).encode()) for ids in documents]
    assert summary["result"]["nll"] == pytest.approx(nats / predictions, rel=1e-5)
    assert summary["result"]["perplexity"] == pytest.approx(math.exp(nats / predictions), rel=1e-4)
    assert summary["result"]["bits_per_byte"] == pytest.approx(
        nats / math.log(2) / sum(sizes), rel=1e-5
    )


@pytest.fixture(scope="module")
def strong(model: Any) -> Any:
    """The model with parameters large enough for every neighbour to be felt, if it were seen."""
    module = model.module.clone(capture=fa.Capture())
    return dataclasses.replace(
        model, module=module, params=jax.tree.map(lambda leaf: 2 * leaf, model.params)
    )


@pytest.fixture(scope="module")
def batch(run: Path, strong: Any) -> TextBatch:
    """All of the held-out text, packed, and three empty rows."""
    corpus, block = heldout_of(run), SETTINGS["block"]
    rows = TokenRows(corpus, cut_chunks(corpus, block, block), block, 4, strong.config.eos_token_id)
    return rows.batch(np.arange(len(rows)), len(rows) + 3)


@pytest.fixture(scope="module")
def alone(batch: TextBatch, strong: Any) -> np.ndarray:
    """Nats of every label of the batch, each piece read in a pass of its own."""
    module, params, found = strong.module, strong.params, np.zeros(batch.labels.shape)
    plain = jax.jit(lambda ids: jax.nn.log_softmax(module.apply({"params": params}, ids).logits))
    for row, segment in itertools.product(range(len(found)), range(1, 5)):
        mine = np.asarray(batch.segment_ids[row]) == segment
        ids, labels = (np.asarray(x)[row][mine] for x in (batch.input_ids, batch.labels))
        padded = np.zeros((1, SETTINGS["block"]), np.int32)  # what comes later is not seen
        padded[0, : len(ids)] = ids
        found[row, mine] = -np.asarray(plain(padded))[0, np.arange(len(ids)), labels]
    return found


@pytest.mark.slow
def test_a_document_in_a_pack_has_the_loss_it_has_alone(
    run: Path, batch: TextBatch, strong: Any, alone: np.ndarray
) -> None:
    assert np.asarray(batch.segment_ids).max() > 1
    assert (alone > 0).sum() == sum(map(len, heldout_of(run)))

    @jax.jit
    def nats(batch: TextBatch) -> jax.Array:
        out = strong.module.apply(
            {"params": strong.params},
            batch.input_ids,
            batch.attention_mask,
            batch.position_ids,
            segment_ids=batch.segment_ids,
        )
        scores = jax.nn.log_softmax(out.logits)
        picked = jnp.take_along_axis(scores, jnp.asarray(batch.labels)[..., None], -1)[..., 0]
        return -picked * batch.label_mask

    np.testing.assert_allclose(nats(batch), alone, atol=1e-5)


def test_the_loss_is_the_mean_over_real_tokens_and_drops_out_only_while_it_trains(
    batch: TextBatch, strong: Any, alone: np.ndarray
) -> None:
    drops = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.3)
    module = strong.module.clone(config=dataclasses.replace(strong.config, **drops))
    loss = jax.jit(loss_function(module))
    totals = batch_totals(batch)

    def value(batch: TextBatch, seed: int | None = None) -> tuple[float, float]:
        key = None if seed is None else jax.random.key(seed)
        total, metrics = loss(strong.params, batch, key, totals)
        assert float(total) == float(metrics["nll"]) == float(metrics["loss"])
        return float(total), float(metrics["accuracy"])

    mask = np.asarray(batch.label_mask)
    assert value(batch)[0] == pytest.approx(alone.sum() / mask.sum(), rel=1e-5)
    other = batch._replace(labels=np.where(mask == 0, 7, batch.labels))
    assert value(other) == value(batch)
    one, same, two = (value(batch, seed)[0] for seed in (1, 1, 2))
    assert one == same
    assert len({value(batch)[0], one, two}) == 3


@pytest.mark.slow
def test_samples_are_reported_and_kept(
    run: Path, model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    prompts = {row["prompt"] for row in rows}
    texts = [model.tokenizer.decode(ids.tolist()) for ids in heldout_of(run)]
    assert 1 <= len(prompts) <= 3
    assert all(any(text.startswith(prompt) for text in texts) for prompt in prompts)
    assert [row["step"] for row in rows] == [s for s in (0, 30, 60) for _ in prompts]
    recipe = LanguageModelRecipe(prompts=("März April",), sample_tokens=4, sample_temperature=0.0)
    path = tmp_path / "samples.jsonl"
    samples = Samples(model.module, model.tokenizer, recipe, heldout_of(run), path)
    for step in (0, 3, 6, 3):  # the run is stopped, and continues from before step 3
        (text,) = samples(model.params, step)
    assert text.strip().startswith("Mai")
    kept = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(row["step"], row["prompt"]) for row in kept] == [(0, "März April"), (3, "März April")]
    printed = f"step 3  {' '.join(('März April|' + kept[1]['text']).split())}"
    assert printed in capsys.readouterr().err.splitlines()


def test_samples_are_sealed_and_those_of_earlier_versions_are_read(
    run: Path, model: Any, tmp_path: Path
) -> None:
    path, whole = tmp_path / "samples.jsonl", (run / "samples.jsonl").read_bytes()
    path.write_bytes(whole)
    rows = read_samples(path)
    lines = whole.splitlines(keepends=True)
    assert len(rows) == len(lines) and {*rows[0]} == {"prompt", "text", "step"}
    recipe = LanguageModelRecipe(prompts=("März April",), sample_tokens=4, sample_temperature=0.0)
    samples = Samples(model.module, model.tokenizer, recipe, heldout_of(run), path)
    changes = {
        "removed": lines[1:],
        "repeated": [lines[0], *lines],
        "moved": [lines[1], lines[0], *lines[2:]],
        "changed": [lines[0].replace(b'"step": 0', b'"step": 1'), *lines[1:]],
    }
    for change, some in changes.items():
        path.write_bytes(b"".join(some))
        with pytest.raises(CheckpointError, match=r"samples.jsonl is damaged: line ") as refused:
            samples(model.params, 60)
        assert len(str(refused.value).splitlines()) == 3, change
    samples(model.params, 0)  # a run from the beginning keeps nothing
    assert [row["step"] for row in read_samples(path)] == [0]
    assert "März April" in path.read_text(encoding="utf-8")
    old = {"step": 0, "prompt": "März", "text": "ein"}
    path.write_text(json.dumps(old, ensure_ascii=False) + "\n", encoding="utf-8")
    samples(model.params, 3)
    first, second = read_samples(path)
    path.write_text('{"step": 0, "text": \n', encoding="utf-8")
    with pytest.raises(CheckpointError, match="a line is not a sample"):
        samples(model.params, 3)
    assert first == old and second["step"] == 3


def tensors(run: Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(run / "model" / "model.safetensors")


def test_a_stopped_run_continues_as_if_nothing_had_happened(
    run: Path, data: Path, summary: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000060")
    shutil.rmtree(tmp_path / "run" / "model")
    again = train_lm([data], RunFolder(tmp_path / "run"), build(LanguageModelRecipe, SETTINGS))
    for name in ("metrics.jsonl", "samples.jsonl", "model/tokenizer.json"):
        assert (tmp_path / "run" / name).read_bytes() == (run / name).read_bytes(), name
    for name, array in tensors(run).items():
        np.testing.assert_array_equal(tensors(tmp_path / "run")[name], array)
    assert again["result"] == summary["result"]


def test_a_run_of_other_text_is_refused(run: Path, data: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "text.txt").write_text("\n".join(lines(50, 2)), encoding="utf-8")
    with pytest.raises(InputError, match="holds the tokens of other data"):
        train_lm(
            [tmp_path / "text.txt"],
            RunFolder(tmp_path / "run"),
            build(LanguageModelRecipe, SETTINGS),
        )
    changed = build(LanguageModelRecipe, {**SETTINGS, "learning_rate": 1e-2})
    with pytest.raises(CheckpointError, match=r"learning_rate 0\.02 -> 0\.01"):
        train_lm([data], RunFolder(tmp_path / "run"), changed)


@pytest.mark.slow
def test_it_continues_from_a_model(run: Path, summary: dict[str, Any], tmp_path: Path) -> None:
    """Text that counts backwards; judged by a file of its own."""
    for name, count in (("train", 60), ("heldout", 12)):
        text = "\n".join(lines(count, len(name), step=-1))
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    shutil.copytree(run / "model", tmp_path / "start")
    (tmp_path / "start" / "generation_config.json").write_text('{"max_new_tokens": 7}')
    changes = {
        "steps": 20,
        "evaluate_every": 20,
        "vocab_size": 8192,
        "save_dtype": "float16",
        "sample_tokens": 0,
    }
    command = ["train", "gpt2-lm", "--data", str(tmp_path / "train.txt")]
    command += ["--heldout", str(tmp_path / "heldout.txt"), "--out", str(tmp_path / "run")]
    command += ["--model", str(tmp_path / "start"), *words({**SETTINGS, **changes})]
    assert main(command) == 0
    found = json.loads((tmp_path / "run" / "summary.json").read_text())
    before, after = found["heldout"][0], found["result"]
    assert before["perplexity"] > 3 * summary["result"]["perplexity"]
    assert after["perplexity"] < 0.5 * before["perplexity"]
    ours, theirs = tmp_path / "run" / "model", tmp_path / "start"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    for name, change in (("config.json", {"dtype": "float16"}), ("generation_config.json", {})):
        one, other = (json.loads((folder / name).read_text()) for folder in (ours, theirs))
        assert one == {**other, **change}
    assert not (tmp_path / "run" / "tokenizer").exists()
    assert not (tmp_path / "run" / "samples.jsonl").exists()
    assert {array.dtype.name for array in tensors(tmp_path / "run").values()} == {"float16"}
    assert "fine-tuned on text" in (tmp_path / "run" / "model" / "README.md").read_text()


def test_the_directory_is_a_gpt2(run: Path, model: Any) -> None:
    settings = json.loads((run / "model" / "config.json").read_text())
    assert settings["model_type"] == "gpt2"
    assert settings["architectures"] == ["GPT2LMHeadModel"]
    end = model.tokenizer.backend.token_to_id(END)
    assert (settings["bos_token_id"], settings["eos_token_id"]) == (end, end)
    assert settings["n_positions"] == SETTINGS["block"]
    assert settings["vocab_size"] == model.tokenizer.vocab_size <= 320


@pytest.mark.parity
def test_torch_opens_the_model_and_predicts_the_same(run: Path, model: Any) -> None:
    torch = pytest.importorskip("torch")
    import transformers

    theirs = transformers.GPT2LMHeadModel.from_pretrained(run / "model").eval()
    reader = transformers.AutoTokenizer.from_pretrained(run / "model")
    for text in lines(5, 9):
        ids = model.tokenizer.ids([text])[0]
        assert reader(text).input_ids == ids
        assert reader.decode(ids) == text
        some = np.array([ids[: SETTINGS["block"]]])
        with torch.no_grad():
            logits = theirs(torch.from_numpy(some)).logits.numpy()
        ours = model.module.apply({"params": model.params}, some).logits
        np.testing.assert_allclose(ours, logits, atol=5e-4)


def test_a_new_model_starts_as_published() -> None:
    recipe = LanguageModelRecipe(n_layer=8, n_embd=128, n_head=2, vocab_size=600, block=128)
    config = GPT2Config(vocab_size=600, n_positions=128, n_embd=128, n_layer=8, n_head=2)
    params = initial_parameters(build_module(config, recipe), 0)["model"]
    layers = params["decoder"]["layers"]
    plain = (params["words"]["embedding"], layers["attention"]["query"]["kernel"])
    for leaf in (*plain, layers["feed_forward"]["up"]["kernel"]):
        assert float(leaf.std()) == pytest.approx(0.02, rel=0.05)
    assert float(params["positions"]["embedding"].std()) == pytest.approx(0.01, rel=0.05)
    for part in (layers["attention"]["output"], layers["feed_forward"]["down"]):
        assert float(part["kernel"].std()) == pytest.approx(0.02 / 4, rel=0.05)  # sqrt(2 x 8)
        assert not part["bias"].any()
    for path, decayed in jax.tree_util.tree_flatten_with_path(decays(params))[0]:
        name = jax.tree_util.keystr(path)
        assert decayed == ("norm" not in name and "bias" not in name), name


def test_layers_are_shared_by_devices_as_those_of_bert_are() -> None:
    config = GPT2Config(vocab_size=64, n_positions=8, n_embd=16, n_layer=2, n_head=2)
    params = initial_parameters(build_module(config, LanguageModelRecipe()), 0)
    mesh = make_mesh(LanguageModelRecipe(devices=8, model_parallel=2))
    placed = state_shardings(params, mesh)["model"]
    layers = placed["decoder"]["layers"]
    for part in (layers["attention"]["query"], layers["feed_forward"]["up"]):
        assert part["kernel"].spec == P(None, "data", "model")
    for part in (layers["attention"]["output"], layers["feed_forward"]["down"]):
        assert part["kernel"].spec == P(None, "model", "data")
    assert placed["words"]["embedding"].spec == P("model", "data")


def attempt(folder: Path, text: str, tokenizer: Path | None = None, **changes: Any) -> str:
    """What a run says that cannot begin."""
    (folder / "in.txt").write_text(text, encoding="utf-8")
    recipe = build(LanguageModelRecipe, {**SETTINGS, **changes})
    with pytest.raises((InputError, CheckpointError)) as error:
        train_lm([folder / "in.txt"], RunFolder(folder / "out"), recipe, tokenizer=tokenizer)
    message = str(error.value)
    assert len(message.splitlines()) <= 3
    assert not (folder / "out" / "checkpoints").exists()
    return message


def test_too_little_text(tmp_path: Path) -> None:
    message = attempt(tmp_path, "a\nb\nc\nd\ne\n", block=400, stride=0)
    assert message == (
        "too little text for one block: 3 tokens to learn from\n"
        "a row takes block 400 of them\nadd text, or lower block"
    )
    shutil.rmtree(tmp_path / "out")
    assert attempt(tmp_path, "one\n").startswith("too little text: 1 documents in 1 files")


def test_a_batch_that_devices_cannot_share_is_refused_before_training(tmp_path: Path) -> None:
    text = "\n".join(f"the cat sat on a mat {n} times" for n in range(40))
    message = attempt(tmp_path, text, batch_size=3, devices=2)
    assert message.startswith("a batch of 3 sequences cannot be shared evenly\n")


def test_text_that_is_missing_or_empty(tmp_path: Path) -> None:
    assert "no text to learn a vocabulary from" in attempt(tmp_path, "\n \n")
    (tmp_path / "empty").mkdir()
    assert "the file is empty" in attempt(tmp_path / "empty", "", on_error="fail")
    for files, part in (([Path("absent.txt")], "no such text file: absent.txt"), ([], "no text")):
        with pytest.raises(InputError, match=part):
            train_lm(files, RunFolder(tmp_path / "none"), build(LanguageModelRecipe, SETTINGS))
    assert not (tmp_path / "none").exists()


def test_a_tokenizer_that_does_not_fit(run: Path, tmp_path: Path) -> None:
    larger = train_byte_bpe(["".join(map(chr, range(200, 900)))], 900)
    larger.save(tmp_path / "larger")
    text, start = "\n".join(lines(40, 3)), str(run / "model")
    message = attempt(tmp_path, text, tmp_path / "larger", model=start)
    size = Tokenizer.from_dir(run / "model").vocab_size
    assert message == (
        f"the tokenizer does not fit the model {start!r}\n"
        f"it has {larger.vocab_size} tokens, the model's embedding {size}\n"
        "leave --tokenizer out to use the model's own"
    )
    train_wordpiece(lines(40, 3), 80, lowercase=True).save(tmp_path / "endless")
    message = attempt(tmp_path, text, tmp_path / "endless")
    assert "the tokenizer has no end of a text" in message
    shutil.copytree(run / "model", tmp_path / "mute")
    (tmp_path / "mute" / "tokenizer.json").unlink()
    accept_files(tmp_path / "mute")
    message = attempt(tmp_path, text, model=str(tmp_path / "mute"))
    assert "came without a tokenizer, so it cannot read text" in message


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"block": 16}, ["block 16 does not fit the model", "reads up to 12 tokens", "block=12"]),
        ({"n_layer": 3}, ["n_layer 3 contradicts model", "it has n_layer 2", "leave n_layer out"]),
        ({"model": "tiny-bert"}, ["model 'tiny-bert' is not a decoder", "name a decoder"]),
        ({"model": "nowhere/at/all"}, ["No model 'nowhere/at/all' was found"]),
        ({"prompts": ["Mai " * 12]}, ["leaves no room for an answer", "reads up to 12"]),
    ],
)
def test_settings_that_the_model_contradicts(
    run: Path, tmp_path: Path, changes: dict[str, Any], parts: list[str]
) -> None:
    settings = {"model": str(run / "model"), **changes}
    message = attempt(tmp_path, "\n".join(lines(40, 3)), **settings)
    assert all(part in message for part in parts), message


def test_words_of_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, data: Path
) -> None:
    assert main(["train", "gpt2-lm", "--print-config", "--model", "tiny-gpt2"]) == 0
    assert "model: tiny-gpt2\n" in capsys.readouterr().out
    assert main(["train", "gpt2-lm", "--out", str(tmp_path / "x")]) == 2
    assert "--data" in capsys.readouterr().err
    command = ["train", "gpt2-lm", "--data", str(data), "--out", str(tmp_path / "y")]
    assert main([*command, "--set", "stride=900"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(
        "error: recipe: stride 900 would leave tokens out between two windows"
    )
    assert len(printed.splitlines()) == 3
