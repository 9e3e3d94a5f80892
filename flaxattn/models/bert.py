# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""BERT (Devlin et al. 2019) and its variants: the encoder, its parts and its task heads.

Module classes carry the names that Hugging Face gives them for BERT; `architectures_of` names those
of the other families, which are the same classes with another configuration. Which form a part has
is said by `BertConfig.variant`. Loading and saving weights is not done here.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.call import PairBias
from flaxattn.kernels.contract import NOTHING, Capture, Labels
from flaxattn.models.bert_config import BertConfig
from flaxattn.models.layer_stack import Model, hidden_states, masks_of_heads
from flaxattn.models.layers import (
    Dense,
    DropoutLayer,
    Embedding,
    FeedForward,
    activation,
    at_positions,
    elementwise,
    layer_norm,
    self_labels,
    vocabulary_scores,
)
from flaxattn.models.modernbert_config import EncoderConfig
from flaxattn.models.multi_head_attention import MultiHeadAttention
from flaxattn.models.outputs import ModelOutput
from flaxattn.models.positions import relative_bias
from flaxattn.models.rotary import Rotation, rotations_at

_MASKED_IN_TRAINING = 0.15 * 0.8  # part of the tokens that were masks when ESM was trained
_FAR = 128  # distance from which on all share a bias of MPNet


def default_positions(config: EncoderConfig, input_ids: Int[Any, "B S"]) -> Int[Any, "B S"]:
    """Rows of the table of positions where a caller names none."""
    if config.variant.positions_from_ids and config.position_embedding_type == "absolute":
        real = (input_ids != config.pad_token_id).astype("int32")
        return real.cumsum(1, dtype="int32") * real + config.first_position - 1
    xp = np if isinstance(input_ids, np.ndarray) else jnp
    return xp.broadcast_to(xp.arange(input_ids.shape[1], dtype=xp.int32), input_ids.shape)


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
        mask: Bool[Array, "B S"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B S W"]:
        """Embed the ids."""
        c = self.config
        summed = self._table("word", c.vocab_size)(input_ids)
        if c.token_dropout:
            summed = _without_masks(c, summed, input_ids, mask)
        if c.variant.token_types:
            kinds = jnp.minimum(token_type_ids, c.type_vocab_size - 1)
            summed = summed + self._table("token_type", c.type_vocab_size)(kinds)
        if c.position_embedding_type == "absolute":
            summed = summed + self._table("position", c.max_position_embeddings)(position_ids)
        if c.variant.pre_norm:
            return self._unnormalised(summed, mask)
        normed = layer_norm(summed, epsilon=c.layer_norm_eps, dtype=self.dtype, name="norm")
        return DropoutLayer(c.hidden_dropout_prob)(normed, deterministic)

    def _unnormalised(
        self, x: Float[Array, "B S W"], mask: Bool[Array, "B S"] | None
    ) -> Float[Array, "B S W"]:
        """The sum, normalised only where the configuration says so, and zero at padding."""
        if self.config.emb_layer_norm_before:
            x = layer_norm(x, epsilon=self.config.layer_norm_eps, dtype=self.dtype, name="norm")
        return x if mask is None else x * mask[..., None].astype(x.dtype)

    def _table(self, name: str, count: int) -> Embedding:
        init = nn.initializers.truncated_normal(self.config.initializer_range)
        width = self.config.embedding_size
        assert width is not None  # the configuration fills it in
        return Embedding(count, width, dtype=self.dtype, embedding_init=init, name=name)


def _without_masks(
    config: BertConfig,
    words: Float[Array, "B S W"],
    input_ids: Int[Array, "B S"],
    mask: Bool[Array, "B S"] | None,
) -> Float[Array, "B S W"]:
    """Embeddings with masked tokens at zero, and the others scaled as if trained with so many."""
    masked = input_ids == (-1 if config.mask_token_id is None else config.mask_token_id)
    sizes = jnp.full(len(words), words.shape[1]) if mask is None else mask.sum(1)
    share = masked.sum(1).astype(jnp.float32) / sizes.astype(jnp.float32)
    scaled = jnp.where(masked[..., None], 0, words).astype(jnp.float32) * (1 - _MASKED_IN_TRAINING)
    return (scaled / (1 - share)[:, None, None]).astype(words.dtype)


class RelativeBias(nn.Module):
    """Bias of a score by the distance between query and key, one set for all layers (MPNet).

    Attributes:
        config: Shape and settings.
    """

    config: BertConfig

    @nn.compact
    def __call__(self) -> PairBias:
        """The bias of every head as a function of positions."""
        c = self.config
        init = nn.initializers.normal(c.initializer_range)
        shape = (c.relative_attention_num_buckets, c.num_attention_heads)
        table = self.param("embedding", init, shape)
        return relative_bias(table, _FAR)


class BertLayer(nn.Module):
    """One encoder layer: attention and feed-forward, each added to its input and normalised.

    The sum is normalised, or, with `variant.pre_norm`, what goes into attention and feed-forward.

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
        rotation: Rotation | None = None,
        bias: PairBias | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B S E"]:
        """Apply the layer."""
        c, before = self.config, self.config.variant.pre_norm
        given = {"mask": mask, "segment_ids": segment_ids, "labels": labels, "head_mask": head_mask}
        dropout = functools.partial(
            DropoutLayer(c.hidden_dropout_prob), deterministic=deterministic
        )
        norm = functools.partial(layer_norm, epsilon=c.layer_norm_eps, dtype=self.dtype)
        attention = MultiHeadAttention(
            c.num_attention_heads,
            dtype=self.dtype,
            dropout_rate=c.attention_probs_dropout_prob,
            initializer_range=c.initializer_range,
            capture=self.capture,
            implementation=self.implementation,
            pruned=self.pruned,
            name="attention",
        )
        feed_forward = FeedForward(
            c.intermediate_size, c.hidden_act, self.dtype, c.initializer_range, name="feed_forward"
        )
        given |= {"rotation": rotation, "bias": bias}
        source = norm(x, name="attention_norm") if before else x
        x = x + dropout(attention(source, **given, deterministic=deterministic))
        x = x if before else norm(x, name="attention_norm")
        source = norm(x, name="feed_forward_norm") if before else x
        x = x + dropout(feed_forward(source))
        return x if before else norm(x, name="feed_forward_norm")


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
        return elementwise(nn.tanh, Dense(width, self.dtype, spread, name="dense")(x))


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
