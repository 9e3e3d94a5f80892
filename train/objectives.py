# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What training minimises: masked words with next sentences, or the labels of a task.

Functions of logits and labels; this file runs no model. Every sum is divided by `totals` that the
caller computed from the whole batch, so that the losses of its parts add up to the batch's loss.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

Metrics = dict[str, Float[Array, ""]]
Totals = dict[str, Float[Array, ""]]


def pretraining_totals(
    attention_mask: Int[Array | np.ndarray, "B S"],
    masked_weights: Float[Array | np.ndarray, "B P"],
) -> Totals:
    """Predictions (plus 1e-5, as published) and sequences of a whole batch."""
    words = jnp.asarray(masked_weights, jnp.float32).sum() + 1e-5
    return {"words": words, "pairs": jnp.asarray(attention_mask.shape[0], jnp.float32)}


def pretraining_loss(
    prediction_logits: Float[Array, "B P V"],
    next_sentence_logits: Float[Array, "B 2"],
    masked_ids: Int[Array | np.ndarray, "B P"],
    masked_weights: Float[Array | np.ndarray, "B P"],
    next_sentence_label: Int[Array | np.ndarray, " B"],
    totals: Totals,
) -> tuple[Float[Array, ""], Metrics]:
    """Sum of the two losses of BERT pretraining (Devlin et al. 2019 §3.1, as coded).

    Args:
        prediction_logits: vocabulary scores at the gathered positions only.
        next_sentence_logits: score 0 for "follows", 1 for "is random".
        masked_ids: the hidden tokens.
        masked_weights: 1 for a real prediction, 0 for padding of P.
        next_sentence_label: 1 where the second segment is random.
        totals: from `pretraining_totals`.

    Returns:
        The loss in nats, and `loss`, `mlm_loss`, `mlm_accuracy`, `nsp_loss`, `nsp_accuracy`,
        all in float32.
    """
    scores = prediction_logits.astype(jnp.float32)
    mlm_loss = (masked_weights * cross_entropy(scores, masked_ids)).sum() / totals["words"]
    hits = (scores.argmax(-1) == masked_ids) * masked_weights
    pair_scores = next_sentence_logits.astype(jnp.float32)
    nsp_loss = cross_entropy(pair_scores, next_sentence_label).sum() / totals["pairs"]
    nsp_hits = (pair_scores.argmax(-1) == next_sentence_label).astype(jnp.float32)
    loss = mlm_loss + nsp_loss
    metrics = {
        "loss": loss,
        "mlm_loss": mlm_loss,
        "mlm_accuracy": hits.sum() / totals["words"],
        "nsp_loss": nsp_loss,
        "nsp_accuracy": nsp_hits.sum() / totals["pairs"],
    }
    return loss, metrics


def cross_entropy(
    scores: Float[Array, "*N V"], labels: Int[Array | np.ndarray, "*N"]
) -> Float[Array, "*N"]:
    """Negative log-likelihood in nats of each label under softmax(scores)."""
    picked = jnp.take_along_axis(scores, labels[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(scores, axis=-1) - picked


def classification_loss(
    logits: Float[Array, "B C"],
    label: Float[Array | np.ndarray, " B"],
    weight: Float[Array | np.ndarray, " B"],
    totals: Totals,
) -> tuple[Float[Array, ""], Metrics]:
    """Weighted mean cross-entropy of the labels of sequences.

    Args:
        logits: a score per class.
        label: class ids.
        weight: 1 for an example, 0 for filling.
        totals: `weight`, the sum of the weights of the whole batch.

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
