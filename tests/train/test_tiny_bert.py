# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The script that made tiny-bert: what parameters start with, its recipe, and a run."""

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
import tiny_bert
from tiny_bert import SmallBertRecipe, word_vectors

from flaxattn.text.tokenizer import Tokenizer
from flaxattn.train import bert_mlm
from flaxattn.train.report import read_metrics
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.settings import read_recipe

RECIPE = SmallBertRecipe(
    vocab_size=90,
    num_hidden_layers=1,
    num_attention_heads=2,
    hidden_size=32,
    intermediate_size=64,
    max_position_embeddings=16,
    initializer_range=0.1,
    position_init="fourier",
    word_init="cooccurrence",
    unigram_bias=True,
    entropy_price=0.1,
    paragraphs_per_document=1,
    heldout_fraction=0.1,
    lengths=(16,),
    batch_size=8,
    steps=2,
    evaluate_batches=1,
    devices=1,
)


def test_words_of_the_same_company_are_neighbours() -> None:
    """Ids 0-4 stand after 10, ids 5-9 after 12; before 11 stand all: only the left side tells."""
    rng = random.Random(0)
    words: list[int] = []
    for _ in range(4000):
        group = rng.randrange(2)
        words += [10 + 2 * group, 5 * group + rng.randrange(5), 11]
    vectors = word_vectors([np.array(words)], 20, 6, window=1)
    np.testing.assert_allclose((vectors[:13] ** 2).mean(1), 1, rtol=1e-4)
    assert not vectors[13:].any()  # never seen
    unit = vectors[:10] / np.linalg.norm(vectors[:10], axis=1, keepdims=True)
    cosines = unit @ unit.T
    assert cosines[:5, :5].min() > 0.9
    assert cosines[:5, 5:].max() < 0.5


def test_they_are_reproducible() -> None:
    document = np.array([random.Random(n).randrange(30) for n in range(500)])
    one, two = (word_vectors([document], 30, 8, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two updates on documents of one word each."""
    rng = random.Random(0)
    words = "red cat runs home now while big dogs sleep under old trees".split(" ")
    texts = [
        " ".join(" ".join([word] * rng.randint(2, 6)) + "." for _ in range(12))
        for word in rng.choices(words, k=100)
    ]
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "words.txt").write_text("\n\n".join(texts), encoding="utf-8")
    tiny_bert.pretrain([folder / "words.txt"], RunFolder(folder / "run"), RECIPE)
    return folder / "run"


@pytest.mark.slow
def test_the_output_bias_starts_at_the_frequencies(run: Path) -> None:
    first = read_metrics(run / "metrics.jsonl")[0]
    assert abs(first["mlm_loss"] - np.log(12)) < 1, "twelve words and a full stop"


@pytest.mark.slow
def test_training_reports_the_entropy_that_it_pays_for(run: Path) -> None:
    trained = [row for row in read_metrics(run / "metrics.jsonl") if row["kind"] == "training"]
    assert all(0 < row["attention_entropy"] < np.log(16) for row in trained) and trained


@pytest.mark.slow
def test_positions_start_nearly_orthogonal(run: Path) -> None:
    module = bert_mlm.build_module(RECIPE, Tokenizer.from_dir(run / "model"))
    recipe = dataclasses.replace(RECIPE, word_init="normal", unigram_bias=False)
    params = tiny_bert.initial_parameters(recipe, module, [])["bert"]["embeddings"]
    table = np.asarray(params["position"]["embedding"])
    assert table.std() == pytest.approx(0.1, rel=0.1)
    products = table @ table.T
    assert np.abs(products - np.diag(np.diag(products))).max() < 0.1 * products[0, 0]


def test_the_recipe_of_the_built_in_model_is_read(repository: Path) -> None:
    path = repository / "flaxattn/pretrained/tiny-bert/recipe.yaml"
    recipe = read_recipe(SmallBertRecipe, path)
    assert (recipe.word_init, recipe.entropy_price, recipe.steps) == ("cooccurrence", 0.1, 8000)
