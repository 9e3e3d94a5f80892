# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Predictions in input order whatever the batches, and the files in which GLUE takes them."""

import dataclasses
import random
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.errors import CheckpointError, InputError
from flaxattn.models.encoder_config import BertConfig
from flaxattn.models.task_heads import BertForSequenceClassification
from flaxattn.train import glue_model
from flaxattn.train.glue_data import EncodedExamples
from flaxattn.train.glue_tasks import TASKS
from flaxattn.train.recipe import GlueRecipe
from flaxattn.train.state import make_mesh

RECIPE = GlueRecipe(max_length=16, buckets=(8, 16), predict_batch=6, task="mnli")


@pytest.fixture(scope="module")
def data() -> EncodedExamples:
    pick = random.Random(1)
    lengths = [pick.randint(2, 16) for _ in range(23)]
    ids = np.array([pick.randint(5, 30) for _ in range(sum(lengths))], np.int32)
    numbers = np.arange(23, dtype=np.int32)
    return EncodedExamples(
        ids=ids,
        types=np.zeros(len(ids), np.int8),
        starts=np.cumsum([0, *lengths]),
        label=(numbers % 3).astype(np.float32),
        position=numbers * 2,
        file=np.zeros(23, np.int32),
        line=numbers.astype(np.int64),
        files=("a",),
        pad_id=0,
        truncated=0,
    )


@pytest.fixture(scope="module")
def model() -> tuple[BertForSequenceClassification, Any]:
    config = BertConfig(
        vocab_size=31,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        labels=TASKS["mnli"].labels,
    )
    module = BertForSequenceClassification(config)
    shapes = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 4), jnp.int32))["params"]
    noise = np.random.default_rng(3)
    return module, jax.tree.map(lambda x: noise.standard_normal(x.shape, np.float32), shapes)


@pytest.mark.slow
def test_every_example_is_answered_in_its_place(data: EncodedExamples, model: Any) -> None:
    module, params = model
    whole = data.batch(np.arange(data.size), 16, np.ones(data.size, np.float32))
    out = jax.jit(module.apply)({"params": params}, whole.input_ids, whole.attention_mask)
    expected = np.asarray(out.logits)
    found = glue_model.predict(module, params, data, RECIPE)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert len(set(expected.argmax(-1).tolist())) > 1
    spread = dataclasses.replace(RECIPE, predict_batch=3, buckets=(16,), devices=2)
    mesh = make_mesh(spread)
    found = glue_model.predict(module, params, data, spread, mesh)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_loss_and_metrics() -> None:
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]], np.float32)
    found = glue_model.judge(TASKS["mrpc"], logits, np.array([0.0, 1.0, 1.0], np.float32))
    by_hand = np.log1p(np.exp([-2.0, -1.0, 3.0])).mean()
    assert found["loss"] == pytest.approx(by_hand)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["score"] == pytest.approx((2 / 3 + 2 / 3) / 2)
    numbers = np.array([[1.0], [3.0], [2.0]], np.float32)
    found = glue_model.judge(TASKS["stsb"], numbers, np.array([1.0, 2.0, 5.0], np.float32))
    assert found["loss"] == pytest.approx((0 + 1 + 9) / 3)
    assert found["spearman"] == pytest.approx(0.5)


def test_submission_formats() -> None:
    index = np.array([0, 1, 3])
    cola = glue_model.submission(TASKS["cola"], np.array([1, 0, 1]), index)
    assert cola == "index\tprediction\n0\t1\n1\t0\n3\t1\n"
    rte = glue_model.submission(TASKS["rte"], np.array([0, 1, 1]), index)
    assert rte.splitlines()[1:] == ["0\tentailment", "1\tnot_entailment", "3\tnot_entailment"]
    ax = glue_model.submission(TASKS["ax"], np.array([0, 1, 2]), index)
    assert [row.split("\t")[1] for row in ax.splitlines()[1:]] == list(TASKS["ax"].labels)
    stsb = glue_model.submission(TASKS["stsb"], np.array([-0.3, 2.34567, 7.0]), index)
    assert stsb.splitlines()[1:] == ["0\t0.000", "1\t2.346", "3\t5.000"]


def test_files_are_written_together_or_not_at_all(
    data: EncodedExamples, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, params = model
    parts = {"dev": data, "test": data, "test_mismatched": data, "ax": data}
    folder = tmp_path / "predictions"
    made = glue_model.write_submissions(TASKS["mnli"], module, params, parts, RECIPE, folder)
    assert made == ["AX.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"]
    assert sorted(path.name for path in folder.iterdir()) == made
    lines = (folder / "AX.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines[1:]] == [str(2 * i) for i in range(23)]
    before = (folder / "AX.tsv").read_bytes()
    first = Path.write_text

    def full(path: Path, text: str, **options: Any) -> int:
        if path.name == "MNLI-mm.tsv":
            raise OSError(28, "No space left on device")
        return first(path, text, **options)

    monkeypatch.setattr(Path, "write_text", full)
    changed = jax.tree.map(lambda x: -x, params)
    with pytest.raises(CheckpointError, match="No space left"):
        glue_model.write_submissions(TASKS["mnli"], module, changed, parts, RECIPE, folder)
    assert (folder / "AX.tsv").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == made


def test_outputs_are_put_in_the_order_of_the_task() -> None:
    mnli, stsb = TASKS["mnli"], TASKS["stsb"]
    assert glue_model.columns_for(mnli, ("contradiction", "entailment", "neutral"), "m") == [
        *(1, 2, 0)
    ]
    assert glue_model.columns_for(mnli, ("LABEL_0", "LABEL_1", "LABEL_2"), "m") == [0, 1, 2]
    assert glue_model.columns_for(stsb, ("LABEL_0",), "m") == [0]
    for labels in (("negative", "positive"), ("LABEL_0", "LABEL_1")):
        with pytest.raises(InputError, match="was not made for MNLI") as caught:
            glue_model.columns_for(mnli, labels, "m")
        assert len(str(caught.value).splitlines()) == 3
    with pytest.raises(InputError, match="of a regression"):
        glue_model.columns_for(stsb, mnli.labels, "m")
