# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Predictions of a classifier for a data set: metrics, and the files in which GLUE takes them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Shaped

from flaxattn.errors import InputError
from flaxattn.files import written_whole
from flaxattn.kernels.contract import NOTHING
from flaxattn.train.glue_data import EncodedExamples, GlueBatch, bucket, bucket_lengths
from flaxattn.train.glue_tasks import GlueTask
from flaxattn.train.recipe import GlueRecipe
from flaxattn.train.state import Params, batch_sharding, gather

Numbers = Shaped[np.ndarray, " N"]


def matthews(predicted: Int[np.ndarray, " N"], true: Int[np.ndarray, " N"]) -> float:
    """Matthews' correlation of two classifications; 0 where either is constant."""
    from sklearn.metrics import matthews_corrcoef

    if _is_constant(predicted) or _is_constant(true):
        return 0.0
    return float(matthews_corrcoef(true, predicted))


def accuracy(predicted: Int[np.ndarray, " N"], true: Int[np.ndarray, " N"]) -> float:
    """Share of equal labels."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(true, predicted))


def f1(predicted: Int[np.ndarray, " N"], true: Int[np.ndarray, " N"]) -> float:
    """F1 of label 1; 0 where nothing is, or is predicted to be, of that label."""
    from sklearn.metrics import f1_score

    if not ((true == 1) | (predicted == 1)).any():
        return 0.0
    return float(f1_score(true, predicted, labels=[1], average="micro"))


def macro_f1(predicted: Int[np.ndarray, " N"], true: Int[np.ndarray, " N"]) -> float:
    """Mean over labels of the F1 of each, of those that occur or are predicted."""
    from sklearn.metrics import f1_score

    return float(f1_score(true, predicted, average="macro"))


def pearson(predicted: Float[np.ndarray, " N"], true: Float[np.ndarray, " N"]) -> float:
    """Pearson's correlation; 0 where either side is constant."""
    from scipy.stats import pearsonr

    if _is_constant(predicted) or _is_constant(true):
        return 0.0
    found: Any = pearsonr(predicted.astype(np.float64), true)
    return float(found.statistic)


def spearman(predicted: Float[np.ndarray, " N"], true: Float[np.ndarray, " N"]) -> float:
    """Spearman's rank correlation; 0 where either side is constant."""
    from scipy.stats import spearmanr

    if _is_constant(predicted) or _is_constant(true):
        return 0.0
    found: Any = spearmanr(predicted.astype(np.float64), true)
    return float(found.statistic)


METRICS: Mapping[str, Callable[[Numbers, Numbers], float]] = {
    "matthews": matthews,
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "pearson": pearson,
    "spearman": spearman,
}


def measure(names: Sequence[str], predicted: Numbers, true: Numbers) -> dict[str, float]:
    """Some metrics, and `score`, GLUE's score of a task: their mean."""
    values = {name: METRICS[name](predicted, true) for name in names}
    return {**values, "score": float(np.mean(list(values.values())))}


def over_seeds(runs: Sequence[Mapping[str, float]]) -> dict[str, dict[str, Any]]:
    """Mean and deviation of each metric over runs."""
    found = {}
    for name in runs[0]:
        values = [run[name] for run in runs]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        found[name] = {"mean": float(np.mean(values)), "deviation": spread}
    return found


def _is_constant(values: Numbers) -> bool:
    return len(values) < 2 or bool((values == values[0]).all())


def predict(
    module: nn.Module,
    params: Params,
    data: EncodedExamples,
    recipe: GlueRecipe,
    mesh: Mesh | None = None,
) -> Float[np.ndarray, "N C"]:
    """Logits of every example, without dropout."""
    quiet = module.clone(capture=NOTHING)
    parts = mesh.shape["data"] if mesh else 1
    rows, buckets = -(-recipe.predict_batch // parts) * parts, bucket_lengths(recipe)
    order = np.argsort(data.lengths, kind="stable")
    waiting = []
    for start in range(0, len(order), rows):
        numbers = order[start : start + rows]
        length = bucket(int(data.lengths[numbers].max()), buckets)
        filled = np.concatenate([numbers, np.repeat(numbers[:1], rows - len(numbers))])
        batch = data.batch(filled, length, np.ones(rows, np.float32))
        if mesh:
            batch = jax.device_put(batch, batch_sharding(mesh))
        waiting.append((numbers, _logits(quiet, params, batch)))
    logits = np.zeros((data.size, module.config.num_labels), np.float32)
    for numbers, found in waiting:
        logits[numbers] = gather(found)[: len(numbers)]
    return logits


def answers(task: GlueTask, logits: Float[np.ndarray, "N C"]) -> Shaped[np.ndarray, " N"]:
    """Label ids, or the numbers of a regression."""
    return logits[:, 0] if task.is_regression else logits.argmax(-1)


def judge(
    task: GlueTask, logits: Float[np.ndarray, "N C"], label: Float[np.ndarray, " N"]
) -> dict[str, float]:
    """The task's metrics, their mean `score`, and the mean loss."""
    wide = logits.astype(np.float64)
    if task.is_regression:
        loss, true = float(((wide[:, 0] - label) ** 2).mean()), label
    else:
        true = label.astype(np.int64)
        top = wide.max(-1)
        total = np.log(np.exp(wide - top[:, None]).sum(-1)) + top
        loss = float((total - wide[np.arange(len(true)), true]).mean())
    found = measure(task.metrics, answers(task, logits), true) if task.metrics else {}
    return {"loss": loss, **found}


def submission(
    task: GlueTask, predicted: Shaped[np.ndarray, " N"], index: Shaped[np.ndarray, " N"]
) -> str:
    """A submission file: a header, then index and prediction of each example."""
    if task.is_regression:
        written = [f"{value:.3f}" for value in np.clip(predicted, *task.limits)]
    elif task.writes_names:
        written = [task.labels[int(value)] for value in predicted]
    else:
        written = [str(int(value)) for value in predicted]
    rows = [f"{i}\t{value}\n" for i, value in zip(index, written, strict=True)]
    return "index\tprediction\n" + "".join(rows)


def write_submissions(
    task: GlueTask,
    module: nn.Module,
    params: Params,
    parts: Mapping[str, EncodedExamples],
    recipe: GlueRecipe,
    folder: Path,
    mesh: Mesh | None = None,
) -> list[str]:
    """Predict every test part and write all files, or none."""
    texts = {}
    for part, data in parts.items():
        if part in task.submissions:
            predicted = answers(task, predict(module, params, data, recipe, mesh))
            texts[task.submissions[part]] = submission(task, predicted, data.position)
    if texts and jax.process_index() == 0:
        with written_whole(folder) as staging:
            for name, text in texts.items():
                (staging / name).write_text(text, encoding="utf-8")
    return sorted(texts)


def columns_for(task: GlueTask, labels: Sequence[str], where: str) -> list[int]:
    """Columns of a model's outputs, in the order of the task's labels."""
    width = task.num_outputs
    if task.is_regression or all(name == f"LABEL_{i}" for i, name in enumerate(labels)):
        if len(labels) == width:
            return list(range(width))
    elif set(labels) == set(task.labels):
        return [list(labels).index(name) for name in task.labels]
    raise InputError(
        f"{where} was not made for {task.folder}\n"
        f"expected the labels {', '.join(task.labels) or 'of a regression'}, "
        f"it has {', '.join(labels[:4])}\n"
        f"fine-tune it: {task.command} --model {where}"
    )


def _apply(module: nn.Module, params: Params, batch: GlueBatch) -> Float[Array, "B C"]:
    inputs = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
    out: Any = module.apply({"params": params}, *inputs)
    return out.logits


_logits = jax.jit(_apply, static_argnums=0)
