# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Outputs of models, under Hugging Face's field names; None where a field does not apply.

They are pytrees, and mappings of the fields that Hugging Face's output of the same model has, in
its order: of a model with a head, the attributes `last_hidden_state` and `pooler_output` are not
among these.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import flax.struct
from jaxtyping import Array, Float

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
