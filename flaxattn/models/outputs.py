# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Outputs of models, under Hugging Face's field names; None where a field does not apply."""

from typing import Any

import flax.struct
from jaxtyping import Array, Float


class ModelOutput(flax.struct.PyTreeNode):
    """Output of an encoder.

    Attributes:
        last_hidden_state: Output of the last layer.
        pooler_output: The first position after a dense layer and tanh; `[B, N, E]` if packed.
        logits: Scores of the task head: `[B, V]`-like per position, or `[B, labels]`.
        prediction_logits: Masked-LM scores of the pre-training model, per position.
        seq_relationship_logits: Next-sentence scores; index 0 means B follows A.
        start_logits: Scores of every position as the beginning of an answer.
        end_logits: Scores of every position as its end.
        hidden_states: Embeddings and every layer's output, if asked for.
        attentions: Attention weights `[B, H, Q, K]` per layer, if asked for.
    """

    last_hidden_state: Float[Array, "B S E"]
    pooler_output: Float[Array, "B *N E"] | None = None
    logits: Float[Array, "B ..."] | None = None
    prediction_logits: Float[Array, "B S V"] | None = None
    seq_relationship_logits: Float[Array, "B *N 2"] | None = None
    start_logits: Float[Array, "B S"] | None = None
    end_logits: Float[Array, "B S"] | None = None
    hidden_states: tuple[Float[Array, "B S E"], ...] | None = None
    attentions: tuple[Any, ...] | None = None


class Seq2SeqOutput(flax.struct.PyTreeNode):
    """Output of an encoder-decoder.

    Attributes:
        last_hidden_state: Output of the decoder.
        encoder_last_hidden_state: Output of the encoder.
        logits: Scores of the token after each target position, if the model has that head.
        encoder_hidden_states: Embeddings and every layer's output, if asked for.
        decoder_hidden_states: The same of the decoder.
        encoder_attentions: Attention weights `[B, H, S, S]` per layer, if asked for.
        decoder_attentions: `[B, H, T, T]` per layer.
        cross_attentions: `[B, H, T, S]` per layer.
    """

    last_hidden_state: Float[Array, "B T E"]
    encoder_last_hidden_state: Float[Array, "B S E"]
    logits: Float[Array, "B T V"] | None = None
    encoder_hidden_states: tuple[Float[Array, "B S E"], ...] | None = None
    decoder_hidden_states: tuple[Float[Array, "B T E"], ...] | None = None
    encoder_attentions: tuple[Any, ...] | None = None
    decoder_attentions: tuple[Any, ...] | None = None
    cross_attentions: tuple[Any, ...] | None = None
