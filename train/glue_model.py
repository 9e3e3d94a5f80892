# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The model of a GLUE task: a pretrained encoder, a classifier on top, and its loss.

The data are in `glue_data`.
"""

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flaxattn.errors import InputError
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
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.train import gates
from flaxattn.train.glue_data import GlueBatch
from flaxattn.train.glue_tasks import GlueTask
from flaxattn.train.objectives import Metrics, Totals, classification_loss, regression_loss
from flaxattn.train.recipe import GlueRecipe
from flaxattn.train.state import LossFunction, Params

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
        odds = params[gates.NAME]["log_odds"] if gates.NAME in params else None
        out = module.apply(
            {"params": {name: part for name, part in params.items() if name != gates.NAME}},
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
            metrics["open_heads"] = share * gates.open_probability(odds).sum()
            value = value + gate_price * metrics["open_heads"]
        return value, metrics

    return loss


def _gates(log_odds: Array, dropout: Array | None) -> Array:
    """Drawn while training, with a key of their own; settled otherwise."""
    if dropout is None:
        return gates.settled(log_odds)
    return gates.drawn(log_odds, jax.random.fold_in(dropout, _GATES))


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
