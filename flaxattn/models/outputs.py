# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Outputs of models, under Hugging Face's field names, and the losses of labels.

Outputs are pytrees, and mappings of the fields that Hugging Face's output of the same model has, in
its order; a field that does not apply is None. Losses are functions of arrays, computed as by
Hugging Face's models; training weighs and sums losses by itself (`flaxattn.train.objectives`), from
the same `cross_entropy`.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from flaxattn.errors import InputError

_OF_BACKBONE = ("last_hidden_state", "pooler_output")


class OutputMapping(Mapping[Any, Any]):
    """A dataclass as the mapping of its fields that are not None; integers and slices index too."""

    def fields(self) -> dict[str, Any]:
        """Fields that are there, by name, in Hugging Face's order."""
        every: Any = self
        named = {field.name: getattr(self, field.name) for field in dataclasses.fields(every)}
        there = {name: value for name, value in named.items() if value is not None}
        has_head = any(name.endswith("logits") for name in there)
        return {n: v for n, v in there.items() if not (has_head and n in _OF_BACKBONE)}

    def to_tuple(self) -> tuple[Any, ...]:
        """The values, without names."""
        return tuple(self.fields().values())

    def __getitem__(self, key: Any) -> Any:
        """A field by name, or the value at a place, or the tuple of those of a slice."""
        if not isinstance(key, str):
            return self.to_tuple()[key]
        fields = self.fields()
        if key not in fields:
            raise KeyError(f"{key!r} is not in this output, which has {', '.join(fields)}")
        return fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields())

    def __len__(self) -> int:
        return len(self.fields())


class ModelOutput(flax.struct.PyTreeNode, OutputMapping, kw_only=True):
    """Output of an encoder or of a decoder.

    Attributes:
        loss: Mean loss of the labels, where labels were given.
        last_hidden_state: Output of the last layer.
        pooler_output: The first position after a dense layer and tanh; `[B, N, E]` if packed.
        logits: Scores of the task head: `[B, V]`-like per position, or `[B, labels]`.
        prediction_logits: Masked-LM scores of the pre-training model, per position.
        seq_relationship_logits: Next-sentence scores; index 0 means B follows A.
        sop_logits: Sentence-order scores of an ALBERT; index 0 means the order is the original.
        start_logits: Scores of every position as the beginning of an answer.
        end_logits: Scores of every position as its end.
        hidden_states: Embeddings and every layer's output, if requested.
        attentions: Attention weights `[B, H, Q, K]` per layer, if requested.
    """

    loss: Float[Array, ""] | None = None
    logits: Float[Array, "B ..."] | None = None
    prediction_logits: Float[Array, "B S V"] | None = None
    seq_relationship_logits: Float[Array, "B *N 2"] | None = None
    sop_logits: Float[Array, "B 2"] | None = None
    start_logits: Float[Array, "B S"] | None = None
    end_logits: Float[Array, "B S"] | None = None
    last_hidden_state: Float[Array, "B S E"]
    pooler_output: Float[Array, "B *N E"] | None = None
    hidden_states: tuple[Float[Array, "B S E"], ...] | None = None
    attentions: tuple[Any, ...] | None = None

    @property
    def token_scores(self) -> Array | None:
        """Scores over the vocabulary, under either name that Hugging Face has for them."""
        return self.logits if self.prediction_logits is None else self.prediction_logits


class Seq2SeqOutput(flax.struct.PyTreeNode, OutputMapping, kw_only=True):
    """Output of an encoder-decoder.

    Attributes:
        loss: Mean loss of the labels, where labels were given.
        last_hidden_state: Output of the decoder.
        encoder_last_hidden_state: Output of the encoder.
        logits: Scores of the token after each target position, or of the labels `[B, labels]`.
        start_logits: Scores of every position as the beginning of an answer.
        end_logits: Scores of every position as its end.
        encoder_hidden_states: Embeddings and every layer's output, if requested.
        decoder_hidden_states: The same of the decoder.
        encoder_attentions: Attention weights `[B, H, S, S]` per layer, if requested.
        decoder_attentions: `[B, H, T, T]` per layer.
        cross_attentions: `[B, H, T, S]` per layer.
    """

    loss: Float[Array, ""] | None = None
    logits: Float[Array, "B ..."] | None = None
    start_logits: Float[Array, "B T"] | None = None
    end_logits: Float[Array, "B T"] | None = None
    last_hidden_state: Float[Array, "B T E"]
    decoder_hidden_states: tuple[Float[Array, "B T E"], ...] | None = None
    decoder_attentions: tuple[Any, ...] | None = None
    cross_attentions: tuple[Any, ...] | None = None
    encoder_last_hidden_state: Float[Array, "B S E"]
    encoder_hidden_states: tuple[Float[Array, "B S E"], ...] | None = None
    encoder_attentions: tuple[Any, ...] | None = None


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
