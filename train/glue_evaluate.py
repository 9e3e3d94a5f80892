# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A finished classifier on the dev and test sets of a GLUE task, or on a user's own file.

flaxattn evaluate --task mnli --model RUN/model --data GLUE --out metrics.json
flaxattn evaluate --model RUN/model --data dev.csv --out metrics.json
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flaxattn import __version__
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.errors import InputError
from flaxattn.models.encoder_config import EncoderConfig
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.pretrained.pretrained_bert import PretrainedBert
from flaxattn.train import sharding
from flaxattn.train.glue_data import encode
from flaxattn.train.glue_files import read_parts
from flaxattn.train.glue_tasks import GlueTask, find_task
from flaxattn.train.own_task import own_task
from flaxattn.train.predictions import columns_for, judge, predict, write_submissions
from flaxattn.train.recipe import ClassifyRecipe, GlueRecipe
from flaxattn.train.run_folder import write_json


def evaluate(
    data: str | Path, recipe: GlueRecipe, out: Path | None = None, predictions: Path | None = None
) -> dict[str, Any]:
    """Judge a fine-tuned model on every dev part that is there."""
    mesh = sharding.make_mesh(recipe)
    model = from_pretrained(recipe.model)  # in float32, which training keeps parameters in
    module = model.module.clone(dtype=jnp.dtype(recipe.dtype))
    config = model.config
    task = _task(data, recipe, config)
    classifier = config.architectures[0].endswith("ForSequenceClassification")
    if not isinstance(config, EncoderConfig) or not classifier or model.report.missing:
        raise InputError(
            f"{recipe.model} is no classifier: it is a {config.architectures[0]}\n"
            f"expected a model that was fine-tuned on {task.folder}\n"
            f"{task.command} --model {recipe.model} makes one"
        )
    assert isinstance(model, PretrainedBert)
    if model.tokenizer is None:
        raise InputError(f"{recipe.model} came without a tokenizer\nput tokenizer.json beside it")
    columns = columns_for(task, config.labels, recipe.model)
    params = {**model.params, "classifier": _reordered(model.params["classifier"], columns)}
    bad = BadRows(recipe.on_error, out.parent if out else Path())
    wanted = (*task.dev_parts, *(task.test_parts if predictions else ()))
    parts = read_parts(task, data, recipe, bad, wanted)
    length = min(recipe.max_length, model.limit)
    read = {n: encode(p.examples, model.tokenizer, length, bad) for n, p in parts.items()}
    found = {
        name: judge(task, predict(module, params, read[name], recipe, mesh), read[name].label)
        for name in task.dev_parts
        if name in read
    }
    files = []
    if predictions is not None:
        files = write_submissions(task, module, params, read, recipe, predictions, mesh)
    answer = {
        "version": __version__,
        "task": task.name,
        "model": recipe.model,
        "metrics": found,
        "examples": {name: encoded.size for name, encoded in read.items()},
        "truncated": {name: encoded.truncated for name, encoded in read.items()},
        "data": {name: part.sha256 for name, part in parts.items()},
        "rows": bad.summary(),
        "predictions": files,
    }
    if out is not None and jax.process_index() == 0:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(out, answer)
    return answer


def _task(data: str | Path, recipe: GlueRecipe, config: Any) -> GlueTask:
    """The task of GLUE, or that of a user's own file with the labels of the model."""
    if not isinstance(recipe, ClassifyRecipe):
        return find_task(recipe.task)
    regression = getattr(config, "problem_type", None) == "regression"
    names = getattr(config, "labels", ())
    if all(name == f"LABEL_{number}" for number, name in enumerate(names)):
        names = [str(number) for number in range(len(names))]
    recipe = dataclasses.replace(recipe, regression=regression)
    return own_task((), [Path(data)], recipe, names)


def _reordered(classifier: dict[str, Any], columns: list[int]) -> dict[str, Any]:
    """The classifier with its outputs in the order of the task's labels."""
    picked = np.array(columns)
    return {"kernel": classifier["kernel"][:, picked], "bias": classifier["bias"][picked]}
