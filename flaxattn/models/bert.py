# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""BERT (Devlin et al. 2019), the whole model in one file: embeddings, encoder, pooler, heads.

Read it upwards from `Bert`. Module classes carry Hugging Face's names, because a checkpoint's
`architectures` names one of them. Loading and saving weights is not done here.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.contract import NOTHING, Capture, Labels
from flaxattn.models.bert_config import BertConfig
from flaxattn.models.layer_stack import Model, masks_of_heads
from flaxattn.models.layers import (
    Dense,
    DropoutLayer,
    FeedForward,
    activation,
    layer_norm,
    vocabulary_scores,
    with_defaults,
)
from flaxattn.models.multi_head_attention import MultiHeadAttention
from flaxattn.models.outputs import ModelOutput


class Embeddings(nn.Module):
    """Sum of word, position and token-type embeddings, normalised, with dropout.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
    """

    config: BertConfig
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        input_ids: Int[Array, "B S"],
        token_type_ids: Int[Array, "B S"],
        position_ids: Int[Array, "B S"],
        deterministic: bool = True,
    ) -> Float[Array, "B S E"]:
        """Embed the ids."""
        word = self._table("word", self.config.vocab_size)(input_ids)
        position = self._table("position", self.config.max_position_embeddings)(position_ids)
        token_type = self._table("token_type", self.config.type_vocab_size)(token_type_ids)
        summed = word + token_type + position
        epsilon = self.config.layer_norm_eps
        normed = layer_norm(summed, epsilon=epsilon, dtype=self.dtype, name="norm")
        return DropoutLayer(self.config.hidden_dropout_prob)(normed, deterministic)

    def _table(self, name: str, count: int) -> nn.Embed:
        init = nn.initializers.truncated_normal(self.config.initializer_range)
        width = self.config.hidden_size
        return nn.Embed(count, width, dtype=self.dtype, embedding_init=init, name=name)


class BertLayer(nn.Module):
    """One encoder layer: attention and feed-forward, each added to its input and normalised after.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
        capture: What attention records.
        implementation: Name of the attention kernel; None chooses.
        pruned: Numbers of heads that the layer lacks.
    """

    config: BertConfig
    dtype: Dtype = jnp.float32
    capture: Capture = NOTHING
    implementation: str | None = None
    pruned: tuple[int, ...] = ()

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B S E"],
        *,
        mask: Bool[Array, "B S"] | Bool[Array, "B 1 S S"] | None = None,
        segment_ids: Int[Array, "B S"] | None = None,
        labels: Labels | None = None,
        head_mask: Float[Array, "*B H"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B S E"]:
        """Apply the layer."""
        c = self.config
        given = {"mask": mask, "segment_ids": segment_ids, "labels": labels, "head_mask": head_mask}
        dropout = functools.partial(
            DropoutLayer(c.hidden_dropout_prob), deterministic=deterministic
        )
        norm = functools.partial(layer_norm, epsilon=c.layer_norm_eps, dtype=self.dtype)
        attended = MultiHeadAttention(
            c.num_attention_heads,
            dtype=self.dtype,
            dropout_rate=c.attention_probs_dropout_prob,
            initializer_range=c.initializer_range,
            capture=self.capture,
            implementation=self.implementation,
            pruned=self.pruned,
            name="attention",
        )(x, **given, deterministic=deterministic)
        x = norm(x + dropout(attended), name="attention_norm")
        fed = FeedForward(
            c.intermediate_size, c.hidden_act, self.dtype, c.initializer_range, name="feed_forward"
        )(x)
        return norm(x + dropout(fed), name="feed_forward_norm")


class _Model(Model):
    """A model with a BERT in it."""

    config: BertConfig

    def _bert(self, add_pooling: bool = True) -> "Bert":
        """The encoder under a task head, with this module's settings."""
        return Bert(**self.settings(), add_pooling=add_pooling, name="bert")

    def _dense(self, features: int, name: str) -> Dense:
        return Dense(features, self.dtype, self.config.initializer_range, name=name)


class Bert(_Model):
    """The encoder with its pooler: Hugging Face's `BertModel`.

    Attributes:
        add_pooling: Whether `pooler_output` is computed.
    """

    add_pooling: bool = True

    @nn.compact
    def __call__(
        self,
        input_ids: Int[Array, "B S"],
        attention_mask: Int[Array, "B S"] | Int[Array, "B S S"] | None = None,
        token_type_ids: Int[Array, "B S"] | None = None,
        position_ids: Int[Array, "B S"] | None = None,
        *,
        segment_ids: Int[Array, "B S"] | None = None,
        starts: Int[Array, "B N"] | None = None,
        key_classes: Int[Array, "B S"] | None = None,
        labels: Mapping[str, Labels] | None = None,
        head_mask: Float[Array, "..."] | None = None,
        deterministic: bool = True,
    ) -> ModelOutput:
        """Run the model.

        Args:
            input_ids: Word pieces.
            attention_mask: Non-zero where a position may be attended; default everywhere.
            token_type_ids: 0 for sentence A, 1 for sentence B; default 0.
            position_ids: Default 0, 1, …, also for sequences padded on the left, as published.
            segment_ids: Which of several packed sequences a position belongs to; it attends to
                those of its own only. Give `position_ids` with it, which start anew in each.
            starts: First position of each packed sequence, where it is pooled; default 0.
            key_classes: Bitmask of each position's classes, for sieve statistics.
            labels: Labels of positions by side, for statistics; the model's own for those left out.
            head_mask: Factors on the outputs of heads, `[H]`, `[L, H]` or `[L, B, H]`: 1 leaves a
                head as it is, 0 silences it. What attention saw is recorded all the same.
            deterministic: Disables dropout; otherwise the rng stream `dropout` is used.

        Returns:
            `last_hidden_state`, `pooler_output`, and `hidden_states` if kept.
        """
        if token_type_ids is None:
            token_type_ids = jnp.zeros_like(input_ids)
        if position_ids is None:
            position_ids = jnp.broadcast_to(jnp.arange(input_ids.shape[1]), input_ids.shape)
        mask = None if attention_mask is None else jnp.asarray(attention_mask) != 0
        position_labels = with_defaults(
            labels,
            "encoder",
            key_class=key_classes,
            query_segment=token_type_ids,
            key_segment=token_type_ids,
            query_token=input_ids,
            key_token=input_ids,
            query_mask=mask if mask is not None and mask.ndim == 2 else None,
        )
        embedded = Embeddings(self.config, self.dtype, name="embeddings")(
            input_ids, token_type_ids, position_ids, deterministic
        )
        c = self.config
        masks = masks_of_heads(head_mask, c.num_hidden_layers, c.num_attention_heads)
        layers = self.stack(BertLayer, c.num_hidden_layers, "encoder", c.pruned_heads)
        x, hidden = layers(
            embedded,
            mask=mask[:, None] if mask is not None and mask.ndim == 3 else mask,
            segment_ids=segment_ids,
            labels=position_labels,
            deterministic=deterministic,
            keep_hidden=self.keep_hidden,
            by_layer={"head_mask": masks},
        )
        pool = Pooler(self.config, self.dtype, name="pooler") if self.add_pooling else None
        pooled = None if pool is None else pool(x[:, 0] if starts is None else _at(x, starts))
        states = None if hidden is None else (embedded, *hidden)
        return ModelOutput(last_hidden_state=x, pooler_output=pooled, hidden_states=states)


class Pooler(nn.Module):
    """The first position of a sequence through a dense layer and tanh.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
    """

    config: BertConfig
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "*sequences E"]) -> Float[Array, "*sequences E"]:
        """Pool sequences, of which it gets the first positions."""
        width, spread = self.config.hidden_size, self.config.initializer_range
        return nn.tanh(Dense(width, self.dtype, spread, name="dense")(x))


class MaskedLMHead(nn.Module):
    """Scores over the vocabulary: dense, activation, LayerNorm, then the word embedding.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
    """

    config: BertConfig
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "*tokens E"], embedding: Float[Array, "V E"]
    ) -> Float[Array, "*tokens V"]:
        """Score every position of `x`."""
        c = self.config
        x = Dense(c.hidden_size, self.dtype, c.initializer_range, name="dense")(x)
        x = activation(c.hidden_act, x)
        x = layer_norm(x, epsilon=c.layer_norm_eps, dtype=self.dtype, name="norm")
        if not c.tie_word_embeddings:
            init = nn.initializers.truncated_normal(c.initializer_range)
            shape = (c.hidden_size, c.vocab_size)
            embedding = self.param("decoder", lambda rng: {"kernel": init(rng, shape)})["kernel"].T
        bias = self.param("bias", nn.initializers.zeros, (c.vocab_size,))
        return vocabulary_scores(x, embedding, bias, dtype=self.dtype)


def _at(x: Float[Array, "B S E"], positions: Int[Array, "B P"] | None) -> Float[Array, "B P E"]:
    """The given positions of every sequence; all of them for None."""
    return x if positions is None else jnp.take_along_axis(x, positions[..., None], axis=1)


def _pooled(out: ModelOutput) -> Float[Array, "B E"]:
    """The pooled sequence of an encoder that was built with its pooler."""
    assert out.pooler_output is not None
    return out.pooler_output


def _word_embedding(bert: Bert) -> Float[Array, "V E"]:
    return bert.get_variable("params", "embeddings")["word"]["embedding"]


class BertForPreTraining(_Model):
    """BERT with the masked-LM and next-sentence heads it is pre-trained with."""

    @nn.compact
    def __call__(
        self,
        *inputs: Int[Array, "B S"],
        masked_positions: Int[Array, "B P"] | None = None,
        **options: Any,
    ) -> ModelOutput:
        """Run the model.

        Args:
            *inputs: As for `Bert`, by position or by name.
            masked_positions: Score only these positions; default all.
            **options: As for `Bert`.

        Returns:
            The encoder's output with `prediction_logits` and `seq_relationship_logits`.
        """
        bert = self._bert()
        out = bert(*inputs, **options)
        head = MaskedLMHead(self.config, self.dtype, name="mlm_head")
        words = head(_at(out.last_hidden_state, masked_positions), _word_embedding(bert))
        follows = self._dense(2, "nsp_head")(_pooled(out))
        return out.replace(prediction_logits=words, seq_relationship_logits=follows)


class BertForMaskedLM(_Model):
    """BERT with the masked-LM head, without pooler."""

    @nn.compact
    def __call__(
        self,
        *inputs: Int[Array, "B S"],
        masked_positions: Int[Array, "B P"] | None = None,
        **options: Any,
    ) -> ModelOutput:
        """Run the model; arguments as for `BertForPreTraining`. Returns `logits [B, S|P, V]`."""
        bert = self._bert(add_pooling=False)
        out = bert(*inputs, **options)
        head = MaskedLMHead(self.config, self.dtype, name="mlm_head")
        words = head(_at(out.last_hidden_state, masked_positions), _word_embedding(bert))
        return out.replace(logits=words)


class BertForNextSentencePrediction(_Model):
    """BERT with the next-sentence head."""

    @nn.compact
    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> ModelOutput:
        """Run the model; arguments as for `Bert`. Returns `logits [B, 2]`; 0 means B follows A."""
        out = self._bert()(*inputs, **options)
        return out.replace(logits=self._dense(2, "nsp_head")(_pooled(out)))


class _Classifier(_Model):
    """Dropout and a dense layer, on the pooled sequence or on every position."""

    pooled: bool = True

    @nn.compact
    def __call__(
        self, *inputs: Int[Array, "B S"], deterministic: bool = True, **options: Any
    ) -> ModelOutput:
        """Run the model; arguments as for `Bert`. Returns `logits` over `config.labels`."""
        c = self.config
        out = self._bert(self.pooled)(*inputs, deterministic=deterministic, **options)
        x = _pooled(out) if self.pooled else out.last_hidden_state
        rate = c.hidden_dropout_prob if c.classifier_dropout is None else c.classifier_dropout
        x = DropoutLayer(rate)(x, deterministic)
        return out.replace(logits=self._dense(c.num_labels, "classifier")(x))


class BertForSequenceClassification(_Classifier):
    """BERT with one label (or one number) per sequence: `logits [B, labels]`."""

    pooled: bool = True


class BertForTokenClassification(_Classifier):
    """BERT with one label per position: `logits [B, S, labels]`."""

    pooled: bool = False


ARCHITECTURES: Mapping[str, type[nn.Module]] = {
    "BertModel": Bert,
    "BertForPreTraining": BertForPreTraining,
    "BertForMaskedLM": BertForMaskedLM,
    "BertForNextSentencePrediction": BertForNextSentencePrediction,
    "BertForSequenceClassification": BertForSequenceClassification,
    "BertForTokenClassification": BertForTokenClassification,
}
