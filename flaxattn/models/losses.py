# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Losses of labels under the scores of a head, as Hugging Face's models compute them.

Functions of arrays; this file runs no model. Training weighs and sums losses by itself
(`flaxattn.train.objectives`), from the same `cross_entropy`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from flaxattn.errors import InputError
from flaxattn.models.outputs import ModelOutput, Seq2SeqOutput

IGNORED = -100  # label of a position that has no loss
# Of models that are pretrained with pairs of texts: the label of a pair, and its scores.
PAIR_LABELS = {
    "BertForPreTraining": ("next_sentence_label", "seq_relationship_logits"),
    "AlbertForPreTraining": ("sentence_order_label", "sop_logits"),
}
LABEL_NAMES = (
    "labels",
    "next_sentence_label",
    "sentence_order_label",
    "start_positions",
    "end_positions",
)
Problem = Literal["regression", "single_label_classification", "multi_label_classification"]


def cross_entropy(
    scores: Float[Array, "*N V"], labels: Int[Array | np.ndarray, "*N"]
) -> Float[Array, "*N"]:
    """Negative log-likelihood in nats of each label under softmax(scores).

    Args:
        scores: Scores of each class.
        labels: Numbers of classes.
    """
    picked = jnp.take_along_axis(scores, labels[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(scores, axis=-1) - picked


def mean_cross_entropy(
    scores: Float[Array, "*N V"], labels: Int[Array | np.ndarray, "*N"]
) -> Float[Array, ""]:
    """Mean negative log-likelihood of the labels that are not `IGNORED`; NaN if all are."""
    counted = jnp.asarray(labels) != IGNORED
    losses = cross_entropy(scores.astype(jnp.float32), jnp.where(counted, labels, 0))
    return jnp.where(counted, losses, 0).sum() / counted.sum().astype(jnp.float32)


def next_token_loss(
    scores: Float[Array, "B S V"], labels: Int[Array | np.ndarray, "B S"]
) -> Float[Array, ""]:
    """Mean negative log-likelihood of the token after each position; the labels are the texts."""
    return mean_cross_entropy(scores[:, :-1], labels[:, 1:])


def problem_of(config: Any, labels: Any) -> Problem:
    """Problem that a sequence classifier solves, from its configuration or from its labels."""
    if (problem := getattr(config, "problem_type", None)) is not None:
        return problem
    if config.num_labels == 1:
        return "regression"
    whole = jnp.issubdtype(labels.dtype, jnp.integer)
    return "single_label_classification" if whole else "multi_label_classification"


def classifier_loss(logits: Float[Array, "B C"], labels: Any, config: Any) -> Float[Array, ""]:
    """Loss of a sequence classifier."""
    logits, labels = logits.astype(jnp.float32), jnp.asarray(labels)
    problem = problem_of(config, labels)
    if problem == "single_label_classification":
        return mean_cross_entropy(logits, labels.reshape(-1))
    labels = labels.astype(jnp.float32).reshape(logits.shape)
    if problem == "regression":
        return ((logits - labels) ** 2).mean()
    return (jax.nn.softplus(logits) - labels * logits).mean()


def head_loss(
    architecture: str,
    out: ModelOutput | Seq2SeqOutput,
    labels: Mapping[str, Any],
    config: Any,
) -> Float[Array, ""]:
    """Loss of a model's head."""
    check_names(architecture, labels)
    if architecture.endswith("ForQuestionAnswering"):
        return _of_spans(out, labels)
    if (pair := PAIR_LABELS.get(architecture)) is not None:
        label, scores = pair
        follows = jnp.asarray(labels[label]).reshape(-1)
        words = mean_cross_entropy(out["prediction_logits"], labels["labels"])
        return words + mean_cross_entropy(out[scores], follows)
    logits, given = out["logits"], jnp.asarray(labels["labels"])
    if architecture.endswith("ForSequenceClassification"):
        return classifier_loss(logits, given, config)
    if architecture.endswith(("ForCausalLM", "LMHeadModel")):
        return next_token_loss(logits, given)
    return mean_cross_entropy(logits, given.reshape(logits.shape[:-1]))


def label_names(architecture: str) -> tuple[str, ...]:
    """Arguments with labels that a class takes; none for a model without head."""
    if architecture.endswith("ForQuestionAnswering"):
        return "start_positions", "end_positions"
    if architecture in PAIR_LABELS:
        return "labels", PAIR_LABELS[architecture][0]
    heads = ("ForMaskedLM", "ForCausalLM", "LMHeadModel", "Classification", "Prediction")
    heads += ("MTModel", "ForConditionalGeneration", "RnnLM")
    return ("labels",) if architecture.endswith(heads) else ()


def check_names(architecture: str, labels: Iterable[str]) -> None:
    """Check that labels are those of a class."""
    names = label_names(architecture)
    if not names or set(labels) != set(names):
        raise InputError(
            f"{architecture} takes {' and '.join(names) or 'no labels: it has no head'}; received "
            f"{' and '.join(labels) or 'none'}.\nGive all labels that its loss is made of."
        )


def _of_spans(out: Any, labels: Mapping[str, Any]) -> Float[Array, ""]:
    """Mean of the losses of first and last tokens; places beyond the text have none."""
    total = jnp.float32(0)
    for side in ("start", "end"):
        logits = out[f"{side}_logits"]
        places = jnp.asarray(labels[f"{side}_positions"]).reshape(-1)
        beyond = jnp.maximum(places, 0) >= logits.shape[1]
        total += mean_cross_entropy(logits, jnp.where(beyond, IGNORED, jnp.maximum(places, 0)))
    return total / 2
