# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of a model at the answered position of each text, and the metrics that patching moves."""

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from flaxattn.models.causal_lm import CausalLM
from flaxattn.models.layers import at_positions
from flaxattn.models.seq2seq import Seq2SeqLM
from flaxattn.pretrained.model_types import MASKED_LM

Metric = Literal["logit-diff", "logit", "probability", "kl"]
METRICS: tuple[Metric, ...] = ("logit-diff", "logit", "probability", "kl")
"""Metrics: the logit of the answer minus that of the wrong one; the logit of the answer; its
probability; the Kullback-Leibler divergence from the clean run, in nats."""


def scores_at(
    module: nn.Module,
    variables: Mapping[str, Any],
    inputs: Mapping[str, Array],
    places: Int[Any, " B"],
    mutable: tuple[str, ...] = (),
) -> tuple[Float[Array, "B V"], Mapping[str, Any]]:
    """Scores of the answer's candidates, and the mutable collections.

    Of a language model only the answered positions are multiplied with the vocabulary.
    """

    def run(bound: Any, inputs: Mapping[str, Array]) -> Array:
        if isinstance(module, CausalLM | Seq2SeqLM):
            hidden = bound.model(**inputs).last_hidden_state
            return bound.scores(at_positions(hidden, places[:, None])[:, 0])
        if isinstance(module, MASKED_LM):
            return bound(**inputs, masked_positions=places[:, None]).token_scores[:, 0]
        return bound(**inputs).logits

    result: Any = module.apply(variables, inputs, method=run, mutable=list(mutable) or False)
    scores, state = result if mutable else (result, {})
    return scores.astype(jnp.float32), state


def metric_values(
    metric: Metric,
    scores: Float[Array, "B V"],
    answers: Int[Any, " B"],
    wrong: Int[Any, " B"],
    clean_scores: Float[Array, "B V"],
) -> Float[Array, " B"]:
    """The metric of each text."""
    rows = jnp.arange(len(scores))
    if metric == "kl":
        clean, other = (jax.nn.log_softmax(s) for s in (clean_scores, scores))
        return (jnp.exp(clean) * (clean - other)).sum(-1)
    if metric == "probability":
        return jnp.exp(jax.nn.log_softmax(scores)[rows, answers])
    right = scores[rows, answers]
    return right if metric == "logit" else right - scores[rows, wrong]
