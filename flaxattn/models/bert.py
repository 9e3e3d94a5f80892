# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""BERT (Devlin et al. 2019) and its variants: the encoder and its task heads.

Module classes carry the names that Hugging Face gives them for BERT; `architectures_of` names those
of the other families, which are the same classes with another configuration. Parts are in
`bert_layers`. Loading and saving weights is not done here.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from flaxattn.kernels.contract import Labels
from flaxattn.models.bert_config import BertConfig
from flaxattn.models.bert_layers import (
    BertLayer,
    Embeddings,
    MaskedLMHead,
    Pooler,
    RelativeBias,
    default_positions,
)
from flaxattn.models.layer_stack import Model, hidden_states, masks_of_heads
from flaxattn.models.layers import (
    Dense,
    DropoutLayer,
    activation,
    at_positions,
    layer_norm,
    self_labels,
)
from flaxattn.models.outputs import ModelOutput
from flaxattn.models.rotary import rotations_at


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
        """Run the model."""
        if token_type_ids is None:
            token_type_ids = jnp.zeros_like(input_ids)
        places = default_positions(self.config, input_ids) if position_ids is None else position_ids
        mask = None if attention_mask is None else jnp.asarray(attention_mask) != 0
        position_labels = self_labels(
            labels, "encoder", input_ids, mask, kinds=token_type_ids, key_classes=key_classes
        )
        flat = mask if mask is not None and mask.ndim == 2 else None
        embedded = Embeddings(self.config, self.dtype, name="embeddings")(
            input_ids, token_type_ids, places, flat, deterministic
        )
        c = self.config
        if c.projects:
            embedded = self._dense(c.hidden_size, "embedding_projection")(embedded)
        relative = RelativeBias(c, name="relative_bias")() if c.variant.relative else None
        masks = masks_of_heads(head_mask, c.num_hidden_layers, c.num_attention_heads)
        layers = self.stack(
            BertLayer, c.num_hidden_layers, "encoder", c.pruned_heads, shared=c.variant.shared
        )
        x, hidden = layers(
            embedded,
            mask=mask[:, None] if mask is not None and mask.ndim == 3 else mask,
            segment_ids=segment_ids,
            labels=position_labels,
            rotation=rotations_at(c, places, mask).get("global"),
            bias=relative,
            deterministic=deterministic,
            keep_hidden=self.keep_hidden,
            by_layer={"head_mask": masks},
        )
        if c.variant.pre_norm:
            x = layer_norm(x, epsilon=c.layer_norm_eps, dtype=self.dtype, name="final_norm")
        if c.contact_inputs:  # of checkpoints; it reads attention, and no output depends on it
            self.param("contact_head", _contact_head, c.contact_inputs)
        pools = self.add_pooling and c.variant.pooler
        pool = Pooler(c, self.dtype, name="pooler") if pools else None
        pooled = (
            None if pool is None else pool(x[:, 0] if starts is None else at_positions(x, starts))
        )
        states = hidden_states(embedded, hidden, x)
        return ModelOutput(last_hidden_state=x, pooler_output=pooled, hidden_states=states)


def _pooled(out: ModelOutput) -> Float[Array, "B E"]:
    """The pooled sequence of an encoder that was built with its pooler."""
    assert out.pooler_output is not None
    return out.pooler_output


def _contact_head(rng: Array, inputs: int) -> dict[str, Array]:
    return {
        "kernel": nn.initializers.truncated_normal()(rng, (inputs, 1)),
        "bias": jnp.zeros(1),
    }


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
        """Run the model."""
        bert = self._bert()
        out = bert(*inputs, **options)
        head = MaskedLMHead(self.config, self.dtype, name="mlm_head")
        words = head(at_positions(out.last_hidden_state, masked_positions), _word_embedding(bert))
        ordered = self.config.model_type == "albert"
        follows = self._dense(self.config.num_labels if ordered else 2, "nsp_head")(_pooled(out))
        field = "sop_logits" if ordered else "seq_relationship_logits"
        return out.replace(prediction_logits=words, **{field: follows})


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
        words = head(at_positions(out.last_hidden_state, masked_positions), _word_embedding(bert))
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


class BertForQuestionAnswering(_Model):
    """BERT that finds where in a text an answer begins and where it ends."""

    @nn.compact
    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> ModelOutput:
        """Run the model; arguments as for `Bert`. Returns `start_logits` and `end_logits [B, S]`.

        The question is the first text of a pair, the text with the answer the second.
        """
        out = self._bert(add_pooling=False)(*inputs, **options)
        scores = self._dense(2, "qa_head")(out.last_hidden_state)
        return out.replace(start_logits=scores[..., 0], end_logits=scores[..., 1])


class ReplacedTokenDetector(_Model):
    """ELECTRA's discriminator: which tokens are not the original ones."""

    @nn.compact
    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> ModelOutput:
        """Run the model; arguments as for `Bert`. Returns `logits [B, S]`, above 0 if replaced."""
        out = self._bert(add_pooling=False)(*inputs, **options)
        x = self._dense(self.config.hidden_size, "detector_dense")(out.last_hidden_state)
        x = activation(self.config.hidden_act, x)
        return out.replace(logits=self._dense(1, "detector")(x)[..., 0])


_HEADS: Mapping[str, type[nn.Module]] = {
    "Model": Bert,
    "ForPreTraining": BertForPreTraining,
    "ForMaskedLM": BertForMaskedLM,
    "ForNextSentencePrediction": BertForNextSentencePrediction,
    "ForSequenceClassification": BertForSequenceClassification,
    "ForTokenClassification": BertForTokenClassification,
    "ForQuestionAnswering": BertForQuestionAnswering,
}


def architectures_of(config: BertConfig) -> Mapping[str, type[nn.Module]]:
    """Classes by the names that Hugging Face gives them, the one without head first."""
    variant = config.variant
    heads = {**_HEADS, **({"ForPreTraining": ReplacedTokenDetector} if variant.detects else {})}
    return {variant.prefix + head: heads[head] for head in variant.heads}


ARCHITECTURES = architectures_of(BertConfig())
