# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What pretraining minimises: masked language modelling plus next-sentence prediction.

Functions of logits and labels; this file runs no model.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

Metrics = dict[str, Float[Array, ""]]


def pretraining_loss(
    prediction_logits: Float[Array, "B P V"],
    next_sentence_logits: Float[Array, "B 2"],
    masked_ids: Int[Array | np.ndarray, "B P"],
    masked_weights: Float[Array | np.ndarray, "B P"],
    next_sentence_label: Int[Array | np.ndarray, " B"],
) -> tuple[Float[Array, ""], Metrics]:
    """Sum of the two losses of BERT pretraining (Devlin et al. 2019 §3.1, as coded).

    Args:
        prediction_logits: vocabulary scores at the gathered positions only.
        next_sentence_logits: score 0 for "follows", 1 for "is random".
        masked_ids: the hidden tokens.
        masked_weights: 1 for a real prediction, 0 for padding of P.
        next_sentence_label: 1 where the second segment is random.

    Returns:
        The loss in nats, and `loss`, `mlm_loss`, `mlm_accuracy`, `nsp_loss`, `nsp_accuracy`,
        all in float32.
    """
    scores = prediction_logits.astype(jnp.float32)
    nll = cross_entropy(scores, masked_ids)
    count = masked_weights.sum() + 1e-5
    mlm_loss = (masked_weights * nll).sum() / count
    hits = (scores.argmax(-1) == masked_ids) * masked_weights
    pair_scores = next_sentence_logits.astype(jnp.float32)
    nsp_loss = cross_entropy(pair_scores, next_sentence_label).mean()
    loss = mlm_loss + nsp_loss
    metrics = {
        "loss": loss,
        "mlm_loss": mlm_loss,
        "mlm_accuracy": hits.sum() / count,
        "nsp_loss": nsp_loss,
        "nsp_accuracy": (pair_scores.argmax(-1) == next_sentence_label).mean(),
    }
    return loss, metrics


def cross_entropy(
    scores: Float[Array, "*N V"], labels: Int[Array | np.ndarray, "*N"]
) -> Float[Array, "*N"]:
    """Negative log-likelihood in nats of each label under softmax(scores)."""
    picked = jnp.take_along_axis(scores, labels[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(scores, axis=-1) - picked
