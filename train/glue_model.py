# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The model of a GLUE task: a pretrained encoder, a classifier, its loss, and its predictions.

The data are in `glue_data`. Predictions for a data set have metrics, and become the files in which
GLUE takes them.

Gates on heads are closed by training: Hard Concrete, with a price for every open one (Voita et al.
2019, section 4.1, with the gates of Louizos et al. 2018; formulas and constants from memory of
both). A gate is a factor on what a head puts out: drawn while training, settled afterwards, when it
is multiplied into the output projection, so that what is saved is a model as any other.
"""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Shaped

from flaxattn.errors import InputError
from flaxattn.files import written_whole
from flaxattn.kernels.contract import NOTHING
from flaxattn.models.encoder_config import BertConfig, EncoderConfig, ModernBertConfig
from flaxattn.models.outputs import ModelOutput
from flaxattn.models.task_heads import (
    BertForSequenceClassification,
    ModernBertForSequenceClassification,
)
from flaxattn.pretrained import hub, model_directory
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained, pruned_config, pruned_parameters
from flaxattn.train.glue_data import EncodedExamples, GlueBatch, bucket, bucket_lengths
from flaxattn.train.glue_tasks import GlueTask
from flaxattn.train.objectives import Metrics, Totals, classification_loss, regression_loss
from flaxattn.train.recipe import GlueRecipe
from flaxattn.train.state import LossFunction, Params, batch_sharding, gather

GlueClassifier = BertForSequenceClassification | ModernBertForSequenceClassification
_GATES = 1 << 20  # apart from the numbers that dropout's keys are folded with
_CLASSIFIER = "ForSequenceClassification"
_HEAD_STDDEV = 0.02  # of a new classifier, whatever the model's own initializer_range


def load_base(task: GlueTask, recipe: GlueRecipe) -> PretrainedBert:
    """Load the starting point of fine-tuning: the encoder, or a classifier of its labels."""
    found = model_directory.read_config(hub.find(recipe.model))
    if not isinstance(found, EncoderConfig):
        raise InputError(
            f"recipe: model {recipe.model!r} is not an encoder, but a {found.architectures[0]}\n"
            "GLUE's tasks are learnt by a classifier on an encoder\nname one: --set model=…"
        )
    same = (
        found.architectures[0].endswith(_CLASSIFIER) and found.labels == _config(task, found).labels
    )
    if isinstance(found, ModernBertConfig):
        base = _modern_base(recipe.model, None if same else task.num_outputs)
    else:
        base = _bert_base(recipe.model, found, _CLASSIFIER if same else "base")
    assert isinstance(base, PretrainedBert)
    if base.tokenizer is None:
        raise InputError(
            f"the model {recipe.model!r} came without a tokenizer, so it cannot read text\n"
            "put tokenizer.json or vocab.txt into its directory"
        )
    limit = base.limit
    if recipe.max_length > limit:
        raise InputError(
            f"recipe: max_length {recipe.max_length} does not fit the model\n"
            f"{recipe.model} reads up to {limit} tokens\nlower it: --set max_length={limit}"
        )
    return base


def _bert_base(name: str, config: BertConfig, head: str) -> Pretrained:
    """A BERT with or without a classifier; one that reads no pooler is no worse without it."""
    with warnings.catch_warnings():
        if config.variant.classifier_act is not None:
            warnings.filterwarnings("ignore", message=".*lacks pooler", category=UserWarning)
        return from_pretrained(name, head=head)


def _modern_base(name: str, outputs: int | None) -> Pretrained:
    """A ModernBERT with a classifier, whose dense layer may come from a masked-LM head."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*freshly initialised", category=UserWarning)
        return from_pretrained(name, head=_CLASSIFIER, num_labels=outputs)


def build_module(task: GlueTask, base: PretrainedBert, recipe: GlueRecipe) -> GlueClassifier:
    """The classifier of a task; attention records nothing while it trains."""
    modern = isinstance(base.config, ModernBertConfig)
    kind: Any = ModernBertForSequenceClassification if modern else BertForSequenceClassification
    return kind(
        _config(task, base.config),
        dtype=jnp.dtype(recipe.dtype),
        capture=NOTHING,
        remat=recipe.remat,
        unroll=recipe.unroll or 1,
    )


def initial_parameters(task: GlueTask, base: PretrainedBert, seed: int) -> Params:
    """The parameters a seed starts from.

    A classifier that came with the base is kept; otherwise one is drawn, as published: truncated
    normal of 0.02, bias 0. What a ModernBERT lacks of its head begins as in a new model.
    """
    if isinstance(base.config, ModernBertConfig):
        return _with_fresh_head(base, seed)
    if "classifier" in base.params:
        return base.params
    width, key = base.config.hidden_size, jax.random.key(seed)
    draw = jax.nn.initializers.truncated_normal(_HEAD_STDDEV)

    def dense(number: int, outputs: int) -> Params:
        kernel = draw(jax.random.fold_in(key, number), (width, outputs), jnp.float32)
        return {"kernel": kernel, "bias": jnp.zeros(outputs)}

    found = {"bert": base.params, "classifier": dense(1, task.num_outputs)}
    if base.config.variant.classifier_act is None:
        return found
    encoder = {name: part for name, part in base.params.items() if name != "pooler"}
    return found | {"bert": encoder, "classifier_dense": dense(2, width)}


def _with_fresh_head(base: PretrainedBert, seed: int) -> Params:
    """The parameters of a classifier; modules that the checkpoint lacked are drawn by the seed."""
    lacking = {name.partition(".")[0] for name in base.report.missing}
    if not lacking:
        return base.params
    ids = jnp.zeros((1, 1), jnp.int32)
    fresh = jax.jit(base.module.init)(jax.random.key(seed), ids)["params"]
    return {name: (fresh if name in lacking else base.params)[name] for name in base.params}


def loss_function(module: GlueClassifier, task: GlueTask, gate_price: float = 0.0) -> LossFunction:
    """Loss of the module on a batch, in the form the loop takes."""
    objective = regression_loss if task.is_regression else classification_loss

    def loss(
        params: Params, batch: GlueBatch, dropout: Array | None, totals: Totals
    ) -> tuple[Array, Metrics]:
        odds = params[NAME]["log_odds"] if NAME in params else None
        out = module.apply(
            {"params": {name: part for name, part in params.items() if name != NAME}},
            batch.input_ids,
            batch.attention_mask,
            batch.token_type_ids,
            head_mask=None if odds is None else _gates(odds, dropout),
            deterministic=dropout is None,
            rngs=None if dropout is None else {"dropout": dropout},
        )
        assert isinstance(out, ModelOutput)
        assert out.logits is not None
        value, metrics = objective(out.logits, batch.label, batch.weight, totals)
        metrics["tokens"] = (batch.attention_mask * batch.weight[:, None]).sum()
        if odds is not None:
            share = batch.weight.sum() / totals["weight"]  # of the batch, where it is in parts
            metrics["open_heads"] = share * open_probability(odds).sum()
            value = value + gate_price * metrics["open_heads"]
        return value, metrics

    return loss


def _gates(log_odds: Array, dropout: Array | None) -> Array:
    """Drawn while training, with a key of their own; settled otherwise."""
    if dropout is None:
        return settled(log_odds)
    return drawn(log_odds, jax.random.fold_in(dropout, _GATES))


def batch_totals(batch: GlueBatch) -> Totals:
    """Denominators of a batch's losses."""
    return {"weight": jnp.asarray(batch.weight.sum(), jnp.float32)}


def _config(task: GlueTask, config: EncoderConfig) -> EncoderConfig:
    return dataclasses.replace(
        config,
        architectures=(config.variant.prefix + _CLASSIFIER,),
        labels=task.labels or ("LABEL_0",),
        problem_type="regression" if task.is_regression else "single_label_classification",
    )


NAME = "head_gates"
"""Name of the parameters of the gates, beside those of the model."""
_TEMPERATURE, _LOW, _HIGH = 2 / 3, -0.1, 1.1
_START = 3.0  # the settled gate is 1, and it is drawn open 995 times in 1,000


def with_gates(params: Params, config: EncoderConfig) -> Params:
    """The parameters of a model, with gates on its heads that begin open."""
    if not isinstance(config, BertConfig):
        raise InputError(
            f"gates remove heads, and a checkpoint of a {config.architectures[0]} cannot lack any\n"
            "leave gate_price out, or start from a BERT"
        )
    if config.pruned_heads:
        raise InputError(
            "gates close heads of a whole model\nthe model that training starts from lacks some: "
            "config.json has pruned_heads\nstart from the model before it was pruned"
        )
    shape = (config.num_hidden_layers, config.num_attention_heads)
    return {**params, NAME: {"log_odds": jnp.full(shape, _START)}}


def drawn(log_odds: Float[Array, "L H"], key: Array) -> Float[Array, "L H"]:
    """Gates for one update: 0 and 1 have a probability of their own, and there is a gradient."""
    tiny = jnp.finfo(log_odds.dtype).eps
    uniform = jax.random.uniform(key, log_odds.shape, log_odds.dtype, tiny, 1 - tiny)
    noise = jnp.log(uniform) - jnp.log1p(-uniform)
    return _stretched(jax.nn.sigmoid((log_odds + noise) / _TEMPERATURE))


def settled(log_odds: Float[Array, "L H"]) -> Float[Array, "L H"]:
    """Gates without chance, as they are used after training: between 0 and 1, often just these."""
    return _stretched(jax.nn.sigmoid(log_odds))


def open_probability(log_odds: Float[Array, "L H"]) -> Float[Array, "L H"]:
    """Probability that a drawn gate is not 0; their sum is the expected L0 norm."""
    return jax.nn.sigmoid(log_odds - _TEMPERATURE * float(np.log(-_LOW / _HIGH)))


def folded(params: Params) -> Params:
    """The parameters without gates: the settled ones are multiplied into the output projections."""
    return _folded(params) if NAME in params else params


@jax.jit
def _folded(params: Params) -> Params:
    gates = settled(params[NAME]["log_odds"])

    def scale(path: tuple[Any, ...], leaf: Array) -> Array:
        names = [str(part.key) for part in path]
        if names[-4:] != ["layers", "attention", "output", "kernel"]:
            return leaf
        factors = jnp.repeat(gates, leaf.shape[1] // gates.shape[1], axis=1)
        return leaf * factors[..., None].astype(leaf.dtype)

    whole = {name: part for name, part in params.items() if name != NAME}
    return jax.tree_util.tree_map_with_path(scale, whole)


def closed_heads(params: Params) -> list[tuple[int, int]]:
    """Layer and head of every gate that is settled at 0."""
    if NAME not in params:
        return []
    places = np.argwhere(np.asarray(settled(jnp.asarray(params[NAME]["log_odds"]))) == 0)
    return [(int(layer), int(head)) for layer, head in places]


def without_closed(
    params: Params, config: EncoderConfig, closed: list[tuple[int, int]]
) -> tuple[Params, EncoderConfig]:
    """Parameters and configuration without the heads whose gates closed.

    A layer whose gates are all closed keeps its first head, whose output counts nothing.
    """
    if not isinstance(config, BertConfig):
        return params, config  # such a model has no gates
    count = config.num_attention_heads
    gone = [[h for n, h in closed if n == layer] for layer in range(config.num_hidden_layers)]
    kept = tuple(tuple(heads[1:] if len(heads) == count else heads) for heads in gone)
    after = dataclasses.replace(config, pruned_heads=pruned_config((), kept, count))
    return pruned_parameters(params, config, after), after


def _stretched(share: Float[Array, "L H"]) -> Float[Array, "L H"]:
    """Gates stretched beyond 0 and 1, and clipped there."""
    return jnp.clip(share * (_HIGH - _LOW) + _LOW, 0, 1)


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
