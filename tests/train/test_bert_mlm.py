# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From text files to a Hugging Face directory, and a model that can learn a tiny text by heart."""

import dataclasses
import random
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from jaxtyping import Array

from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.models.task_heads import BertForPreTraining
from flaxattn.pretrained import model_directory
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.trace.tensor_file import TensorFiles
from flaxattn.trace.trace import Trace
from flaxattn.train import bert_mlm
from flaxattn.train.bert_mlm import initial_parameters
from flaxattn.train.optimizers import bert_adamw
from flaxattn.train.pretraining_data import PretrainingBatch
from flaxattn.train.recipe import PretrainRecipe
from flaxattn.train.report import read_metrics
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.settings import read_recipe

RECIPE = PretrainRecipe(
    vocab_size=90,
    num_hidden_layers=1,
    num_attention_heads=2,
    hidden_size=32,
    intermediate_size=64,
    max_position_embeddings=16,
    initializer_range=0.1,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    paragraphs_per_document=1,
    heldout_fraction=0.1,
    lengths=(16,),
    batch_size=8,
    steps=250,
    learning_rate=3e-3,
    warmup_steps=10,
    evaluate_every=1000,
    evaluate_batches=1,
    checkpoint_every=1000,
    log_seconds=1000,
    devices=1,
)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents that say one word over and over: what is hidden can be read beside it."""
    rng = random.Random(0)
    words = "red cat runs home now while big dogs sleep under old trees".split(" ")
    documents = []
    for _ in range(100):
        word = rng.choice(words)
        sentences = [" ".join([word] * rng.randint(2, 6)).capitalize() + "." for _ in range(12)]
        documents.append(" ".join(sentences))
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text("\n\n".join(documents), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    bert_mlm.pretrain([text], RunFolder(out), RECIPE)
    return out


@pytest.mark.slow
def test_it_learns_what_context_tells(run: Path) -> None:
    """Without context the loss would be the unigram loss; with it, there is little to guess."""
    first, *_, last = [
        row for row in read_metrics(run / "metrics.jsonl") if row["kind"] == "heldout"
    ]
    unigram = yaml.safe_load((run / "summary.json").read_text())["unigram_loss"]
    assert first["mlm_loss"] > 2.0
    assert last["mlm_loss"] < unigram - 1.0
    assert last["mlm_accuracy"] > 0.6


@pytest.mark.slow
def test_the_run_directory_holds_everything_to_run_again(run: Path) -> None:
    assert read_recipe(PretrainRecipe, run / "recipe.yaml") == RECIPE
    assert (run / "curves.png").stat().st_size > 10_000
    names = {path.name for path in (run / "model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "vocab.txt", "README.md"} <= names
    assert Tokenizer.from_dir(run / "model").max_length == 16


@pytest.mark.slow
def test_the_model_directory_opens_with_the_trained_weights(run: Path) -> None:
    tokenizer = Tokenizer.from_dir(run / "model")
    module = BertForPreTraining(model_directory.read_config(run / "model"))
    params, _ = model_directory.load(TensorFiles(run / "model"), module)
    encoded = tokenizer.encode("trees trees [MASK] trees", "trees trees.")
    out = module.apply({"params": params}, encoded.input_ids, None, encoded.token_type_ids)
    guess = int(out.prediction_logits[0, 3].argmax())
    assert tokenizer.backend.id_to_token(guess) == "trees"


@pytest.fixture(scope="module")
def batch(run: Path) -> PretrainingBatch:
    """Two sequences of one length, and one that is shorter."""
    size = Tokenizer.from_dir(run / "model").vocab_size
    ids = np.random.default_rng(0).integers(5, size, (3, 16), dtype=np.int32)
    mask = (np.arange(16) < np.array([16, 16, 9])[:, None]).astype(np.int32)
    places = np.tile(np.array([1, 4], np.int32), (3, 1))
    return PretrainingBatch(
        ids,
        mask,
        np.zeros_like(ids),
        places,
        np.take_along_axis(ids, places, 1),
        np.ones((3, 2), np.float32),
        np.array([0, 1, 1], np.int32),
    )


@pytest.mark.slow
def test_dropout_is_on_in_training_only_and_follows_its_key(
    run: Path, batch: PretrainingBatch
) -> None:
    recipe = dataclasses.replace(RECIPE, hidden_dropout_prob=0.5)
    module = bert_mlm.build_module(recipe, Tokenizer.from_dir(run / "model"))
    params = initial_parameters(module, RECIPE)
    loss = jax.jit(bert_mlm.loss_function(module))
    keys = (None, None, jax.random.key(0), jax.random.key(0), jax.random.key(1))
    totals = bert_mlm.batch_totals(batch)
    off, again, one, same, two = (float(loss(params, batch, key, totals)[0]) for key in keys)
    assert off == again
    assert one == same
    assert len({off, one, two}) == 3


@pytest.mark.slow
def test_a_term_that_reads_attention_is_charged_while_training_only(
    run: Path, batch: PretrainingBatch
) -> None:
    """Heads without queries attend evenly, so the entropy is the logarithm of the length."""

    def mean_entropy(trace: Trace, batch: PretrainingBatch) -> Array:
        mask = jnp.asarray(batch.attention_mask)
        entropies = trace.encoder.stats["entropy"]  # [L, B, H, Q]
        return (entropies * mask[None, :, None]).mean((0, 2)).sum() / mask.sum()

    module = bert_mlm.build_module(RECIPE, Tokenizer.from_dir(run / "model"))
    params = initial_parameters(module, RECIPE)
    attention = params["bert"]["encoder"]["layers"]["attention"]
    attention["query"] = jax.tree.map(jnp.zeros_like, attention["query"])
    term = bert_mlm.AttentionLoss(Capture(stats=("entropy",)), "entropy", 0.5, mean_entropy)
    loss = jax.jit(bert_mlm.loss_function(module, term))
    totals = bert_mlm.batch_totals(batch)
    total, metrics = loss(params, batch, jax.random.key(0), totals)
    lengths = batch.attention_mask.sum(1)
    expected = (lengths * np.log(lengths)).sum() / lengths.sum()
    assert float(metrics["entropy"]) == pytest.approx(expected, rel=1e-5)
    assert float(total - metrics["loss"]) == pytest.approx(0.5 * expected, rel=1e-4)
    total, metrics = loss(params, batch, None, totals)
    assert float(total) == float(metrics["loss"])


@pytest.mark.slow
def test_decay_spares_exactly_norms_and_biases_of_the_real_model(run: Path) -> None:
    tokenizer = Tokenizer.from_dir(run / "model")
    params = initial_parameters(bert_mlm.build_module(RECIPE, tokenizer), RECIPE)
    recipe = PretrainRecipe(learning_rate=1.0, warmup_steps=0, weight_decay=0.5, steps=10)
    optimizer = bert_adamw(recipe)
    zeros = jax.tree.map(jnp.zeros_like, params)
    ones = jax.tree.map(jnp.ones_like, params)
    updates, _ = jax.jit(optimizer.update)(zeros, optimizer.init(ones), ones)
    for path, update in jax.tree_util.tree_flatten_with_path(updates)[0]:
        name = jax.tree_util.keystr(path)
        expected = 0.0 if "norm" in name or "bias" in name else -0.5
        np.testing.assert_allclose(update, expected, err_msg=name)


@pytest.mark.parametrize(
    ("files", "part"),
    [(["absent.txt"], "no such text file: absent.txt"), ([], "no text to train on")],
)
def test_missing_files(tmp_path: Path, files: list[str], part: str) -> None:
    with pytest.raises(InputError) as error:
        bert_mlm.pretrain([Path(name) for name in files], RunFolder(tmp_path / "run"), RECIPE)
    assert not (tmp_path / "run").exists()
    assert part in str(error.value)


@pytest.mark.parametrize(
    ("side", "changes"),
    [
        ("heldout", {"heldout_fraction": 0.05, "batch_size": 40}),
        ("heldout", {"lengths": (8, 16), "length_shares": (0.5, 0.5), "batch_size": 100}),
        ("train", {"heldout_fraction": 0.9, "batch_size": 100}),
    ],
)
def test_too_little_text_for_a_batch_is_refused_before_training(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str, changes: dict
) -> None:
    monkeypatch.setattr("flaxattn.train.loop.run", None)
    recipe = dataclasses.replace(RECIPE, **changes)
    with pytest.raises(InputError, match=f"^too little text for one {side} batch\n") as refused:
        bert_mlm.pretrain([text], RunFolder(tmp_path / "run"), recipe)
    assert len(str(refused.value).splitlines()) == 3
    assert not (tmp_path / "run/checkpoints").exists()
    assert not (tmp_path / "run/metrics.jsonl").exists()
