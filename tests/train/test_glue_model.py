# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning of encoders other than BERT, on a toy task; that of BERT is in `test_glue`."""

import dataclasses
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.train import glue, glue_model
from flaxattn.train.glue import evaluate
from flaxattn.train.glue_tasks import TASKS
from flaxattn.train.recipe import GlueRecipe
from flaxattn.train.run_folder import RunFolder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SST-2 as the classic download has it; one word tells the label."""
    folder, pick = tmp_path_factory.mktemp("data"), random.Random(0)
    for part, count in (("train", 64), ("dev", 32)):
        labels = [i % 2 for i in range(count)]
        rows = [f"{pick.choice('abcdef')} {('bad', 'good')[one]}\t{one}\n" for one in labels]
        (folder / f"{part}.tsv").write_text("sentence\tlabel\n" + "".join(rows), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def recipe(modern: PretrainedBert, tmp_path_factory: pytest.TempPathFactory) -> GlueRecipe:
    folder = tmp_path_factory.mktemp("start")
    modern.save_pretrained(folder)
    return GlueRecipe(
        task="sst2",
        model=str(folder),
        steps=60,
        batch_size=16,
        learning_rate=3e-3,
        evaluate_every=30,
        max_length=16,
        buckets=(16,),
        seeds=(1,),
        predict_batch=32,
        devices=1,
        log_seconds=1000,
    )


@pytest.mark.slow
def test_a_modernbert_learns_a_task(data: Path, recipe: GlueRecipe, tmp_path: Path) -> None:
    summary: dict[str, Any] = glue.finetune(data, RunFolder(tmp_path), recipe, 2)
    assert summary["metrics"]["accuracy"]["mean"] > 0.9
    model = fa.from_pretrained(tmp_path / "model")
    assert model.config.architectures == ("ModernBertForSequenceClassification",)
    assert not model.report.missing
    again = evaluate(data, dataclasses.replace(recipe, model=str(tmp_path / "model")))
    assert again["metrics"]["dev"]["accuracy"] == summary["metrics"]["accuracy"]["mean"]


@pytest.mark.slow
def test_the_head_of_the_pretraining_is_kept_and_the_classifier_drawn(
    modern: PretrainedBert, recipe: GlueRecipe
) -> None:
    task = TASKS["sst2"]
    base = glue_model.load_base(task, recipe)
    one, other = (glue_model.initial_parameters(task, base, seed) for seed in (1, 2))
    for params in (one, other):
        dense = modern.params["head"]["dense"]["kernel"]
        assert np.array_equal(params["head"]["dense"]["kernel"], dense)
    kernels = [np.asarray(params["classifier"]["kernel"]) for params in (one, other)]
    assert kernels[0].shape == (16, 2) and not np.array_equal(kernels[0], kernels[1])


def test_gates_are_refused_where_a_checkpoint_cannot_lack_heads(
    data: Path, recipe: GlueRecipe, tmp_path: Path
) -> None:
    priced = dataclasses.replace(recipe, gate_price=0.1)
    with pytest.raises(InputError, match="cannot lack any\nleave gate_price out"):
        glue.finetune(data, RunFolder(tmp_path), priced)
