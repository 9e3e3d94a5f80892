# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Objectives of training: masked words with next sentences, labels of a task, generated tokens.

Functions of logits and labels; this file runs no model. Every sum is divided by `totals` that the
caller computed from the whole batch, so that the losses of its parts add up to the batch's loss.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from flaxattn.models.outputs import cross_entropy

Metrics = dict[str, Float[Array, ""]]
Totals = dict[str, Float[Array, ""]]


def pretraining_totals(
    attention_mask: Int[Array | np.ndarray, "B S"],
    masked_weights: Float[Array | np.ndarray, "B P"],
    pair_weights: Float[Array | np.ndarray, "B N"] | None = None,
) -> Totals:
    """Predictions (plus 1e-5, as published), rows and pairs of a whole batch."""
    words = jnp.asarray(masked_weights, jnp.float32).sum() + 1e-5
    rows = jnp.asarray(attention_mask.shape[0], jnp.float32)
    pairs = rows if pair_weights is None else jnp.asarray(pair_weights, jnp.float32).sum()
    return {"words": words, "rows": rows, "pairs": pairs}


def pretraining_loss(
    prediction_logits: Float[Array, "B P V"],
    next_sentence_logits: Float[Array, "*pairs 2"] | None,
    masked_ids: Int[Array | np.ndarray, "B P"],
    masked_weights: Float[Array | np.ndarray, "B P"],
    next_sentence_label: Int[Array | np.ndarray, "*pairs"],
    totals: Totals,
    pair_weights: Float[Array | np.ndarray, "*pairs"] | float = 1.0,
) -> tuple[Float[Array, ""], Metrics]:
    """Sum of the two losses of BERT pretraining (Devlin et al. 2019 §3.1, as coded).

    Returns:
        The loss in nats, and `loss`, `mlm_loss`, `mlm_accuracy`, and for a model that judges
        pairs `nsp_loss` and `nsp_accuracy`, all in float32.
    """
    scores = prediction_logits.astype(jnp.float32)
    mlm_loss = (masked_weights * cross_entropy(scores, masked_ids)).sum() / totals["words"]
    hits = (scores.argmax(-1) == masked_ids) * masked_weights
    accuracy = hits.sum() / totals["words"]
    if next_sentence_logits is None:
        return mlm_loss, {"loss": mlm_loss, "mlm_loss": mlm_loss, "mlm_accuracy": accuracy}
    pair_scores = next_sentence_logits.astype(jnp.float32)
    nsp_losses = cross_entropy(pair_scores, next_sentence_label)
    nsp_loss = (pair_weights * nsp_losses).sum() / totals["pairs"]
    nsp_hits = (pair_scores.argmax(-1) == next_sentence_label) * pair_weights
    loss = mlm_loss + nsp_loss
    metrics = {
        "loss": loss,
        "mlm_loss": mlm_loss,
        "mlm_accuracy": accuracy,
        "nsp_loss": nsp_loss,
        "nsp_accuracy": nsp_hits.sum() / totals["pairs"],
    }
    return loss, metrics


def token_loss(
    logits: Float[Array, "B T V"],
    labels: Int[Array | np.ndarray, "B T"],
    label_mask: Float[Array | np.ndarray, "B T"],
    totals: Totals,
    smoothing: float = 0.0,
) -> tuple[Float[Array, ""], Metrics]:
    """Mean cross-entropy of tokens against smoothed labels, padding left out.

    Of a translation's target, or of the token that follows each of a text.

    The label distribution is (1 - smoothing) on the right token plus smoothing / V on every token
    of the vocabulary, the right one and the special ones included (Szegedy et al. 2016 §7, cited
    by Vaswani et al. 2017 §5.4; `label_smoothing=` of torch's cross-entropy). tensor2tensor spreads
    over the other V - 1 tokens instead and subtracts the entropy of the labels.

    Returns:
        The loss in nats per token, and, in float32, `loss`; `nll`, the same without smoothing,
        whose exponential is the perplexity; `accuracy`, the share of tokens with the best score.
    """
    scores = logits.astype(jnp.float32)
    nll = cross_entropy(scores, labels)
    smooth = nll
    if smoothing:
        spread = jax.nn.logsumexp(scores, axis=-1) - scores.mean(-1)
        smooth = (1 - smoothing) * nll + smoothing * spread
    hits = (scores.argmax(-1) == labels).astype(jnp.float32)
    found = {"loss": smooth, "nll": nll, "accuracy": hits}
    metrics = {name: (label_mask * x).sum() / totals["words"] for name, x in found.items()}
    return metrics["loss"], metrics


def classification_loss(
    logits: Float[Array, "B C"],
    label: Float[Array | np.ndarray, " B"],
    weight: Float[Array | np.ndarray, " B"],
    totals: Totals,
) -> tuple[Float[Array, ""], Metrics]:
    """Weighted mean cross-entropy of the labels of sequences.

    Returns:
        The loss in nats, and `loss` and `accuracy`, in float32.
    """
    scores, ids = logits.astype(jnp.float32), jnp.asarray(label, jnp.int32)
    loss = (weight * cross_entropy(scores, ids)).sum() / totals["weight"]
    hits = (weight * (scores.argmax(-1) == ids)).sum() / totals["weight"]
    return loss, {"loss": loss, "accuracy": hits}


def regression_loss(
    logits: Float[Array, "B 1"],
    label: Float[Array | np.ndarray, " B"],
    weight: Float[Array | np.ndarray, " B"],
    totals: Totals,
) -> tuple[Float[Array, ""], Metrics]:
    """Weighted mean squared error; arguments as for `classification_loss`, one output.

    Returns:
        The loss, and `loss`, in float32.
    """
    error = logits[:, 0].astype(jnp.float32) - label
    loss = (weight * error**2).sum() / totals["weight"]
    return loss, {"loss": loss}
