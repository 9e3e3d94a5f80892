# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Task heads of encoders: an encoder of `bert.py` or `modernbert.py` and a few layers on top.

Classes have the names that Hugging Face gives them for BERT and ModernBERT. `architectures_of`
names those of the other families, which are the same classes with another configuration.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Float, Int

from flaxattn.models.bert import Bert
from flaxattn.models.encoder_config import BertConfig, EncoderConfig, ModernBertConfig
from flaxattn.models.layer_stack import Model
from flaxattn.models.layers import (
    Dense,
    DropoutLayer,
    activation,
    at_positions,
    layer_norm,
    vocabulary_scores,
)
from flaxattn.models.modernbert import ModernBert
from flaxattn.models.outputs import ModelOutput


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
        self, x: Float[Array, "*tokens E"], embedding: Float[Array, "V W"]
    ) -> Float[Array, "*tokens V"]:
        """Score every position of `x`."""
        c = self.config
        width = embedding.shape[1]
        x = Dense(width, self.dtype, c.initializer_range, name="dense")(x)
        x = activation(c.variant.mlm_act or c.hidden_act, x)
        x = layer_norm(x, epsilon=c.layer_norm_eps, dtype=self.dtype, name="norm")
        if not c.tie_word_embeddings:
            init = nn.initializers.truncated_normal(c.initializer_range)
            shape = (width, c.vocab_size)
            embedding = self.param("decoder", lambda rng: {"kernel": init(rng, shape)})["kernel"].T
        bias = self.param("bias", nn.initializers.zeros, (c.vocab_size,))
        return vocabulary_scores(x, embedding, bias, dtype=self.dtype)


class _BertTask(Model):
    """A model with a BERT in it and a head on top."""

    config: BertConfig

    def _bert(self, add_pooling: bool = True) -> "Bert":
        """The encoder under a task head, with this module's settings."""
        return Bert(**self.settings(), add_pooling=add_pooling, name="bert")

    def _dense(self, features: int, name: str) -> Dense:
        return Dense(features, self.dtype, self.config.initializer_range, name=name)


def _pooled(out: ModelOutput) -> Float[Array, "B E"]:
    """The pooled sequence of an encoder that was built with its pooler."""
    assert out.pooler_output is not None
    return out.pooler_output


def _word_embedding(bert: Bert) -> Float[Array, "V E"]:
    return bert.get_variable("params", "embeddings")["word"]["embedding"]


class BertForPreTraining(_BertTask):
    """BERT with the masked-LM and next-sentence heads it is pre-trained with."""

    @nn.compact
    def __call__(
        self,
        *inputs: Int[Array, "B S"],
        masked_positions: Int[Array, "B P"] | None = None,
        **options: Any,
    ) -> ModelOutput:
        """Run the model."""
        bert = self._bert()
        out = bert(*inputs, **options)
        head = MaskedLMHead(self.config, self.dtype, name="mlm_head")
        words = head(at_positions(out.last_hidden_state, masked_positions), _word_embedding(bert))
        ordered = self.config.model_type == "albert"
        follows = self._dense(self.config.num_labels if ordered else 2, "nsp_head")(_pooled(out))
        field = "sop_logits" if ordered else "seq_relationship_logits"
        return out.replace(prediction_logits=words, **{field: follows})


class BertForMaskedLM(_BertTask):
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
        words = head(at_positions(out.last_hidden_state, masked_positions), _word_embedding(bert))
        return out.replace(logits=words)


class BertForNextSentencePrediction(_BertTask):
    """BERT with the next-sentence head."""

    @nn.compact
    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> ModelOutput:
        """Run the model; arguments as for `Bert`. Returns `logits [B, 2]`; 0 means B follows A."""
        out = self._bert()(*inputs, **options)
        return out.replace(logits=self._dense(2, "nsp_head")(_pooled(out)))


class _Classifier(_BertTask):
    """Dropout and a dense layer, on the pooled sequence or on every position."""

    pooled: bool = True

    @nn.compact
    def __call__(
        self, *inputs: Int[Array, "B S"], deterministic: bool = True, **options: Any
    ) -> ModelOutput:
        """Run the model; arguments as for `Bert`. Returns `logits` over `config.labels`."""
        c = self.config
        dense = c.variant.classifier_act if self.pooled else None
        pooler = self.pooled and dense is None
        out = self._bert(pooler)(*inputs, deterministic=deterministic, **options)
        x = _pooled(out) if pooler else out.last_hidden_state
        rate = c.hidden_dropout_prob if c.classifier_dropout is None else c.classifier_dropout
        if dense is not None:
            starts = options.get("starts")
            first = x[:, 0] if starts is None else at_positions(x, starts)
            x = DropoutLayer(rate)(first, deterministic)
            x = activation(dense, self._dense(c.hidden_size, "classifier_dense")(x))
        x = DropoutLayer(rate)(x, deterministic)
        return out.replace(logits=self._dense(c.num_labels, "classifier")(x))


class BertForSequenceClassification(_Classifier):
    """BERT with one label (or one number) per sequence: `logits [B, labels]`."""

    pooled: bool = True


class BertForTokenClassification(_Classifier):
    """BERT with one label per position: `logits [B, S, labels]`."""

    pooled: bool = False


class BertForQuestionAnswering(_BertTask):
    """BERT that finds where in a text an answer begins and where it ends."""

    @nn.compact
    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> ModelOutput:
        """Run the model; arguments as for `Bert`. Returns `start_logits` and `end_logits [B, S]`.

        The question is the first text of a pair, the text with the answer the second.
        """
        out = self._bert(add_pooling=False)(*inputs, **options)
        scores = self._dense(2, "qa_head")(out.last_hidden_state)
        return out.replace(start_logits=scores[..., 0], end_logits=scores[..., 1])


class ReplacedTokenDetector(_BertTask):
    """ELECTRA's discriminator: which tokens are not the original ones."""

    @nn.compact
    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> ModelOutput:
        """Run the model; arguments as for `Bert`. Returns `logits [B, S]`, above 0 if replaced."""
        out = self._bert(add_pooling=False)(*inputs, **options)
        x = self._dense(self.config.hidden_size, "detector_dense")(out.last_hidden_state)
        x = activation(self.config.hidden_act, x)
        return out.replace(logits=self._dense(1, "detector")(x)[..., 0])


class PredictionHead(nn.Module):
    """Dense layer, activation and LayerNorm, which every task head begins with.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
    """

    config: ModernBertConfig
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "*tokens E"]) -> Float[Array, "*tokens E"]:
        """Apply it to every position, or to pooled sequences."""
        c = self.config
        spread = c.initializer_range
        dense = Dense(c.hidden_size, self.dtype, spread, use_bias=c.classifier_bias, name="dense")
        x = activation(c.classifier_activation, dense(x))
        norm = {"epsilon": c.norm_eps, "use_bias": c.norm_bias}
        return layer_norm(x, **norm, dtype=self.dtype, name="norm")


class _ModernBertTask(Model):
    """A model with a ModernBERT in it and a prediction head on top."""

    config: ModernBertConfig

    def _model(self) -> ModernBert:
        return ModernBert(**self.settings(), name="model")

    def _head(self) -> PredictionHead:
        return PredictionHead(self.config, self.dtype, name="head")

    def _classified(
        self, x: Float[Array, "*tokens E"], features: int, deterministic: bool
    ) -> Float[Array, "*tokens C"]:
        c = self.config
        x = DropoutLayer(c.classifier_dropout)(self._head()(x), deterministic)
        return Dense(features, self.dtype, c.hidden_size**-0.5, name="classifier")(x)


class ModernBertForMaskedLM(_ModernBertTask):
    """ModernBERT with the masked-LM head."""

    @nn.compact
    def __call__(
        self,
        *inputs: Int[Array, "B S"],
        masked_positions: Int[Array, "B P"] | None = None,
        **options: Any,
    ) -> ModelOutput:
        """Run the model."""
        c = self.config
        model = self._model()
        out = model(*inputs, **options)
        x = at_positions(out.last_hidden_state, masked_positions)
        embedding = model.get_variable("params", "embeddings")["word"]["embedding"]
        decoder = OutputLayer(c, self.dtype, name="decoder")
        return out.replace(logits=decoder(self._head()(x), embedding))


class OutputLayer(nn.Module):
    """Scores over the vocabulary: products with the word embedding, or with a table of its own.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
    """

    config: ModernBertConfig
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "*tokens E"], embedding: Float[Array, "V E"]
    ) -> Float[Array, "*tokens V"]:
        """Score every position of `x`."""
        c = self.config
        if not c.tie_word_embeddings:
            init = nn.initializers.truncated_normal(c.initializer_range)
            embedding = self.param("kernel", init, (c.hidden_size, c.vocab_size)).T
        zeros = nn.initializers.zeros
        bias = self.param("bias", zeros, (c.vocab_size,)) if c.decoder_bias else None
        return vocabulary_scores(x, embedding, bias, dtype=self.dtype)


class ModernBertForSequenceClassification(_ModernBertTask):
    """ModernBERT with one label (or one number) per sequence: `logits [B, labels]`."""

    @nn.compact
    def __call__(
        self,
        input_ids: Int[Array, "B S"],
        attention_mask: Int[Array, "B S"] | None = None,
        *inputs: Int[Array, "B S"],
        segment_ids: Int[Array, "B S"] | None = None,
        starts: Int[Array, "B N"] | None = None,
        deterministic: bool = True,
        **options: Any,
    ) -> ModelOutput:
        """Run the model; arguments as for `ModernBert`. Returns `logits` over `config.labels`.

        With `starts`, `logits [B, N, labels]` of every packed sequence.
        """
        out = self._model()(
            input_ids,
            attention_mask,
            *inputs,
            segment_ids=segment_ids,
            deterministic=deterministic,
            **options,
        )
        x = out.last_hidden_state
        if self.config.classifier_pooling == "mean":
            x = _means(x, attention_mask, segment_ids, starts)
        elif starts is None:
            x = x[:, 0]
        else:
            x = jnp.take_along_axis(x, starts[..., None], axis=1)
        return out.replace(logits=self._classified(x, self.config.num_labels, deterministic))


def _means(
    x: Float[Array, "B S E"],
    mask: Int[Array, "B S"] | None,
    segments: Int[Array, "B S"] | None,
    starts: Int[Array, "B N"] | None,
) -> Float[Array, "B *N E"]:
    """Mean over the real positions of every sequence, packed or not."""
    members = (
        jnp.ones(x.shape[:2]) if mask is None else (jnp.asarray(mask) != 0).astype(jnp.float32)
    )
    members = members[:, None]
    if starts is not None and segments is not None:
        own = jnp.take_along_axis(segments, starts, axis=1)
        members = jnp.where(segments[:, None] == own[:, :, None], members, 0)
    sums = jnp.einsum("bns,bse->bne", members, x.astype(jnp.float32))
    means = (sums / jnp.maximum(members.sum(-1), 1)[..., None]).astype(x.dtype)
    return means[:, 0] if starts is None else means


class ModernBertForTokenClassification(_ModernBertTask):
    """ModernBERT with one label per position: `logits [B, S, labels]`."""

    @nn.compact
    def __call__(
        self, *inputs: Int[Array, "B S"], deterministic: bool = True, **options: Any
    ) -> ModelOutput:
        """Run the model; arguments as for `ModernBert`. Returns `logits` over `config.labels`."""
        out = self._model()(*inputs, deterministic=deterministic, **options)
        labels = self.config.num_labels
        return out.replace(logits=self._classified(out.last_hidden_state, labels, deterministic))


class ModernBertForQuestionAnswering(_ModernBertTask):
    """ModernBERT that finds where in a text an answer begins and where it ends."""

    @nn.compact
    def __call__(
        self, *inputs: Int[Array, "B S"], deterministic: bool = True, **options: Any
    ) -> ModelOutput:
        """Run the model; arguments as for `ModernBert`. Returns `start_logits`, `end_logits`."""
        out = self._model()(*inputs, deterministic=deterministic, **options)
        scores = self._classified(out.last_hidden_state, 2, deterministic)
        return out.replace(start_logits=scores[..., 0], end_logits=scores[..., 1])


_BERT: Mapping[str, type[nn.Module]] = {
    "Model": Bert,
    "ForPreTraining": BertForPreTraining,
    "ForMaskedLM": BertForMaskedLM,
    "ForNextSentencePrediction": BertForNextSentencePrediction,
    "ForSequenceClassification": BertForSequenceClassification,
    "ForTokenClassification": BertForTokenClassification,
    "ForQuestionAnswering": BertForQuestionAnswering,
}

_MODERNBERT: Mapping[str, type[nn.Module]] = {
    "ModernBertModel": ModernBert,
    "ModernBertForMaskedLM": ModernBertForMaskedLM,
    "ModernBertForSequenceClassification": ModernBertForSequenceClassification,
    "ModernBertForTokenClassification": ModernBertForTokenClassification,
    "ModernBertForQuestionAnswering": ModernBertForQuestionAnswering,
}


def architectures_of(config: EncoderConfig) -> Mapping[str, type[nn.Module]]:
    """Classes by the names that Hugging Face gives them, the one without head first."""
    if isinstance(config, ModernBertConfig):
        return _MODERNBERT
    variant = config.variant
    heads = {**_BERT, **({"ForPreTraining": ReplacedTokenDetector} if variant.detects else {})}
    return {variant.prefix + head: heads[head] for head in variant.heads}
