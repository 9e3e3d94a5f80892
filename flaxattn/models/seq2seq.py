# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The encoder-decoder Transformer (Vaswani et al. 2017): Marian, BART, their pre-LN kin, and T5.

Read it upwards from `Seq2Seq`. One set of modules serves all of them; what differs is a setting of
`Seq2SeqConfig` or `T5Config`. Task heads on a T5 are those of Hugging Face: labels of texts and
tokens, and answers. Loading, saving and generating text are not done here.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.call import PairBias
from flaxattn.kernels.contract import NOTHING, Capture, Labels
from flaxattn.models.layer_stack import Model, hidden_states, masks_of_heads
from flaxattn.models.layers import (
    Dense,
    DropoutLayer,
    Embedding,
    FeedForward,
    RMSNorm,
    at_last,
    elementwise,
    layer_norm,
    real_positions,
    self_labels,
    vocabulary_scores,
    with_defaults,
)
from flaxattn.models.multi_head_attention import MultiHeadAttention
from flaxattn.models.outputs import ModelOutput, Seq2SeqOutput
from flaxattn.models.positions import UNUSED_ROWS, BiasTable, counted, relative_bias, sinusoids
from flaxattn.models.seq2seq_config import EncoderDecoderConfig, Seq2SeqConfig, T5Config

TransformerConfig = Seq2SeqConfig | T5Config


class Inputs(nn.Module):
    """Word embeddings, positions added where they have any, normalised if configured, with dropout.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
    """

    config: TransformerConfig
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        words: Float[Array, "B S E"],
        position_ids: Int[Array, "B S"],
        deterministic: bool = True,
    ) -> Float[Array, "B S E"]:
        """The input of a stack."""
        c = self.config
        x = words * np.sqrt(c.d_model if c.scale_embedding else 1).astype(words.dtype)
        if c.positions == "learned":
            init = nn.initializers.truncated_normal(c.init_std)
            count = c.max_position_embeddings + UNUSED_ROWS
            table = Embedding(count, c.d_model, self.dtype, embedding_init=init, name="position")
            x = x + table(position_ids + UNUSED_ROWS)
        elif c.positions == "sinusoidal":
            position = jnp.asarray(sinusoids(c.max_position_embeddings, c.d_model), self.dtype)
            x = x + position[position_ids]
        if c.normalize_embedding:
            x = layer_norm(x, epsilon=c.layer_norm_eps, dtype=self.dtype, name="norm")
        return DropoutLayer(c.dropout)(x, deterministic)


class _Layer(nn.Module):
    """Shared parts of encoder and decoder layers: sub-layers with dropout, residual and norm.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
        capture: What attention records.
        implementation: Name of the attention kernel; None chooses.
        cache_length: Positions that a cache has room for.
    """

    config: TransformerConfig
    dtype: Dtype = jnp.float32
    capture: Capture = NOTHING
    implementation: str | None = None
    cache_length: int = 0

    def _add(
        self, name: str, x: Array, sublayer: Callable[[Array], Array], deterministic: bool
    ) -> Float[Array, "B S E"]:
        """`x` plus a sub-layer's output, normalised before or after as configured."""
        c = self.config
        norm = functools.partial(_norm, c, self.dtype, f"{name}_norm")
        dropout = DropoutLayer(c.dropout)
        if c.norm_first:
            return x + dropout(sublayer(norm(x)), deterministic)
        return norm(x + dropout(sublayer(x), deterministic))

    def _attention(self, name: str, heads: int, causal: bool = False) -> MultiHeadAttention:
        return MultiHeadAttention(
            heads,
            dtype=self.dtype,
            dropout_rate=self.config.attention_dropout,
            initializer_range=self.config.init_std,
            causal=causal,
            capture=self.capture,
            implementation=self.implementation,
            cache_length=self.cache_length,
            head_dim=self.config.head_dim,
            input_bias=self.config.use_bias,
            output_bias=self.config.use_bias,
            scale=self.config.score_scale,
            name=name,
        )

    def _bias(self, table: Float[Array, "R H"] | None, causal: bool) -> PairBias | None:
        """The bias of the scores of self-attention."""
        if table is None or not isinstance(self.config, T5Config):
            return None
        return relative_bias(table, self.config.relative_attention_max_distance, not causal)

    def _feed_forward(self, width: int) -> FeedForward:
        c = self.config
        return FeedForward(
            width,
            c.activation_function,
            self.dtype,
            c.init_std,
            c.activation_dropout,
            gated=c.gated,
            use_bias=c.use_bias,
            name="feed_forward",
        )


class EncoderLayer(_Layer):
    """Self-attention and feed-forward."""

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B S E"],
        *,
        mask: Bool[Array, "B S"] | None = None,
        labels: Labels | None = None,
        head_mask: Float[Array, "*B H"] | None = None,
        relative: Float[Array, "R H"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B S E"]:
        """Apply the layer."""
        c = self.config
        given = {"labels": labels, "head_mask": head_mask, "deterministic": deterministic}
        given["bias"] = self._bias(relative, causal=False)
        attend = self._attention("attention", c.encoder_attention_heads)
        feed = self._feed_forward(c.encoder_ffn_dim)
        x = self._add("attention", x, lambda y: attend(y, mask=mask, **given), deterministic)
        return self._add("feed_forward", x, lambda y: feed(y, deterministic), deterministic)


class DecoderLayer(_Layer):
    """Self-attention to what came before, attention to the encoder's output, and feed-forward."""

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T E"],
        *,
        context: Float[Array, "B S E"],
        mask: Bool[Array, "B T"] | None = None,
        context_mask: Bool[Array, "B S"] | None = None,
        labels: Labels | None = None,
        context_labels: Labels | None = None,
        head_mask: Float[Array, "*B H"] | None = None,
        cross_head_mask: Float[Array, "*B H"] | None = None,
        relative: Float[Array, "R H"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B T E"]:
        """Apply the layer."""
        c, heads = self.config, self.config.decoder_attention_heads
        attend = self._attention("attention", heads, causal=True)
        attend_across = self._attention("cross_attention", heads)
        feed = self._feed_forward(c.decoder_ffn_dim)

        def own(y: Array) -> Array:
            given = {"mask": mask, "labels": labels, "head_mask": head_mask}
            bias = self._bias(relative, causal=True)
            return attend(y, **given, bias=bias, deterministic=deterministic)

        def across(y: Array) -> Array:
            given = {"mask": context_mask, "labels": context_labels, "head_mask": cross_head_mask}
            return attend_across(y, context, **given, deterministic=deterministic)

        x = self._add("attention", x, own, deterministic)
        x = self._add("cross_attention", x, across, deterministic)
        return self._add("feed_forward", x, lambda y: feed(y, deterministic), deterministic)


def _norm(
    config: TransformerConfig, dtype: Dtype, name: str, x: Float[Array, "B S E"]
) -> Float[Array, "B S E"]:
    """A sub-layer's norm."""
    epsilon = config.layer_norm_eps
    if config.root_mean_square:
        return RMSNorm(epsilon, dtype, name=name)(x)
    return layer_norm(x, epsilon=epsilon, dtype=dtype, name=name)


class Seq2Seq(Model):
    """Encoder and decoder: Hugging Face's `MarianModel`, `BartModel` and `T5Model`.

    `encode` and `decode` are the two halves of a call, for generation.

    Attributes:
        cache_length: Target positions that a cache has room for; see `decode`.
    """

    config: TransformerConfig
    cache_length: int = 0

    def setup(self) -> None:
        """Make the parts."""
        c = self.config
        self.words = self._embedding(c.vocab_size)
        if not c.share_encoder_decoder_embeddings:
            self.decoder_words = self._embedding(c.target_size)
        self.encoder_inputs = Inputs(c, self.dtype)
        self.decoder_inputs = Inputs(c, self.dtype)
        self.encoder = self.stack(EncoderLayer, c.encoder_layers)
        self.decoder = self.stack(DecoderLayer, c.decoder_layers, cache_length=self.cache_length)
        if c.norm_first:
            self.encoder_norm, self.decoder_norm = self._norm(), self._norm()
        self.output_dropout = DropoutLayer(c.dropout if isinstance(c, T5Config) else 0.0)
        if isinstance(c, T5Config):
            self.encoder_bias = self._relative(c, c.encoder_layers)
            self.decoder_bias = self._relative(c, c.decoder_layers)

    def __call__(
        self,
        input_ids: Int[Array, "B S"],
        attention_mask: Int[Array, "B S"] | None = None,
        decoder_input_ids: Int[Array, "B T"] | None = None,
        decoder_attention_mask: Int[Array, "B T"] | None = None,
        *,
        head_mask: Float[Array, "..."] | None = None,
        decoder_head_mask: Float[Array, "..."] | None = None,
        cross_attn_head_mask: Float[Array, "..."] | None = None,
        labels: Mapping[str, Labels] | None = None,
        deterministic: bool = True,
    ) -> Seq2SeqOutput:
        """Run the model."""
        if decoder_input_ids is None:
            decoder_input_ids = shifted_right(input_ids, self.config)
        encoded, encoder_hidden = self.encode(
            input_ids,
            attention_mask,
            head_mask=head_mask,
            labels=labels,
            deterministic=deterministic,
        )
        decoded, decoder_hidden = self.decode(
            decoder_input_ids,
            encoded,
            attention_mask,
            decoder_attention_mask,
            head_mask=decoder_head_mask,
            cross_attn_head_mask=cross_attn_head_mask,
            labels=labels,
            deterministic=deterministic,
        )
        return Seq2SeqOutput(
            last_hidden_state=decoded,
            encoder_last_hidden_state=encoded,
            encoder_hidden_states=encoder_hidden,
            decoder_hidden_states=decoder_hidden,
        )

    def encode(
        self,
        input_ids: Int[Array, "B S"],
        attention_mask: Int[Array, "B S"] | None = None,
        *,
        head_mask: Float[Array, "..."] | None = None,
        labels: Mapping[str, Labels] | None = None,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B S E"], tuple[Float[Array, "B S E"], ...] | None]:
        """Run the encoder; arguments as for a call. Returns its output, and the hidden states."""
        c = self.config
        mask = real_positions(attention_mask)
        embedded = self.encoder_inputs(self.words(input_ids), counted(input_ids), deterministic)
        x, hidden = self.encoder(
            embedded,
            mask=mask,
            labels=self_labels(labels, "encoder", input_ids, mask),
            deterministic=deterministic,
            keep_hidden=self.keep_hidden,
            by_layer={
                "head_mask": masks_of_heads(head_mask, c.encoder_layers, c.encoder_attention_heads),
                "relative": self.encoder_bias() if c.positions == "relative" else None,
            },
        )
        if c.norm_first:
            x = self.output_dropout(self.encoder_norm(x).astype(self.dtype), deterministic)
        return x, hidden_states(embedded, hidden, x)

    def decode(
        self,
        decoder_input_ids: Int[Array, "B T"],
        encoded: Float[Array, "B S E"],
        attention_mask: Int[Array, "B S"] | None = None,
        decoder_attention_mask: Int[Array, "B T"] | None = None,
        position_ids: Int[Array, "B T"] | None = None,
        *,
        head_mask: Float[Array, "..."] | None = None,
        cross_attn_head_mask: Float[Array, "..."] | None = None,
        labels: Mapping[str, Labels] | None = None,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B T E"], tuple[Float[Array, "B T E"], ...] | None]:
        """Run the decoder on what `encode` returned.

        With `cache` mutable, the first call fills a cache of `cache_length` positions, and later
        calls continue: they get the next tokens with their `position_ids`, and a
        `decoder_attention_mask` as long as the cache. From then on `encoded` is not looked at, and
        several sequences in a row may share one source.

        Returns:
            The decoder's output, and the hidden states if kept.
        """
        mask, context_mask = real_positions(decoder_attention_mask), real_positions(attention_mask)
        counts = (self.config.decoder_layers, self.config.decoder_attention_heads)
        words = self.words if self.config.share_encoder_decoder_embeddings else self.decoder_words
        positions = counted(decoder_input_ids) if position_ids is None else position_ids
        embedded = self.decoder_inputs(words(decoder_input_ids), positions, deterministic)
        query_mask = mask if mask is not None and mask.shape == decoder_input_ids.shape else None
        own = None
        if not (self.cache_length and self.is_mutable_collection("cache")):  # keys are of this call
            tokens = {"query_token": decoder_input_ids, "key_token": decoder_input_ids}
            own = with_defaults(labels, "decoder", **tokens, query_mask=query_mask)
        x, hidden = self.decoder(
            embedded,
            context=encoded,
            mask=mask,
            context_mask=context_mask,
            labels=own,
            context_labels=with_defaults(labels, "cross", query_mask=query_mask),
            deterministic=deterministic,
            keep_hidden=self.keep_hidden,
            by_layer={
                "head_mask": masks_of_heads(head_mask, *counts, "decoder_head_mask"),
                "cross_head_mask": masks_of_heads(
                    cross_attn_head_mask, *counts, "cross_attn_head_mask"
                ),
                "relative": self.decoder_bias() if self.config.positions == "relative" else None,
            },
        )
        if self.config.norm_first:
            x = self.output_dropout(self.decoder_norm(x).astype(self.dtype), deterministic)
        return x, hidden_states(embedded, hidden, x)

    def target_embedding(self) -> Float[Array, "V E"]:
        """Word embedding of the target side."""
        shared = self.config.share_encoder_decoder_embeddings
        return (self.words if shared else self.decoder_words).embedding

    def _embedding(self, count: int) -> Embedding:
        init = nn.initializers.truncated_normal(self.config.init_std)
        return Embedding(count, self.config.d_model, dtype=self.dtype, embedding_init=init)

    def _norm(self) -> nn.Module:
        epsilon = self.config.layer_norm_eps
        if self.config.root_mean_square:
            return RMSNorm(epsilon)
        return nn.LayerNorm(epsilon=epsilon, dtype=jnp.float32, use_fast_variance=False)

    def _relative(self, config: T5Config, layers: int) -> BiasTable:
        count, heads = config.relative_attention_num_buckets, config.num_heads
        return BiasTable(layers, count, heads, config.bias_by_layer, config.init_std)


class Seq2SeqLM(Model):
    """An encoder-decoder that scores target tokens: `MarianMTModel` and the like.

    Attributes:
        cache_length: Target positions that a cache has room for.
    """

    config: TransformerConfig
    cache_length: int = 0

    def setup(self) -> None:
        """Make the parts."""
        self.model = Seq2Seq(**self.settings(), cache_length=self.cache_length)
        c = self.config
        if c.use_bias:
            self.logits_bias = self.param("logits_bias", nn.initializers.zeros, (c.target_size,))
        if not c.tie_word_embeddings:
            init = nn.initializers.truncated_normal(c.init_std)
            self.output = self.param("output", init, (c.d_model, c.target_size))

    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> Seq2SeqOutput:
        """Run the model; arguments as for `Seq2Seq`. Returns `logits [B, T, V]` too."""
        out = self.model(*inputs, **options)
        return out.replace(logits=self.scores(out.last_hidden_state))

    def encode(self, *inputs: Int[Array, "B S"], **options: Any) -> Float[Array, "B S E"]:
        """The encoder's output; arguments as for `Seq2Seq.encode`."""
        return self.model.encode(*inputs, **options)[0]

    def decode(self, *inputs: Array, **options: Any) -> Float[Array, "B T V"]:
        """Scores of the tokens after those given; arguments as for `Seq2Seq.decode`."""
        return self.scores(self.model.decode(*inputs, **options)[0])

    def generation_context(self, input_ids: Array, attention_mask: Array) -> tuple[Array, Array]:
        """Return what stays the same during generation: the encoder's output, and its mask."""
        return self.encode(input_ids, attention_mask), attention_mask

    def decode_step(
        self,
        ids: Int[Array, "R T"],
        context: tuple[Array, Array],
        position_ids: Int[Array, "R T"] | None,
        visible: Bool[Array, "R K"] | None,
    ) -> Float[Array, "R V"]:
        """Scores of the token after the last of `ids`, with `cache` mutable."""
        x, _ = self.model.decode(ids, *context, visible, position_ids)
        return self.scores(x[:, -1])

    def scores(self, x: Float[Array, "*tokens E"]) -> Float[Array, "*tokens V"]:
        """Scores over the target vocabulary."""
        c = self.config
        embedding = self.model.target_embedding() if c.tie_word_embeddings else self.output.T
        bias = self.logits_bias if c.use_bias else None
        return vocabulary_scores(x * c.output_scale, embedding, bias, dtype=self.dtype)


class T5Encoder(Model):
    """The encoder alone: `T5EncoderModel`."""

    config: TransformerConfig

    def setup(self) -> None:
        """Make the parts."""
        self.model = Seq2Seq(**self.settings())

    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> ModelOutput:
        """Run the encoder; arguments as for `Seq2Seq.encode`."""
        x, hidden = self.model.encode(*inputs, **options)
        return ModelOutput(last_hidden_state=x, hidden_states=hidden)


def shifted_right(ids: Int[Array, "B T"], config: EncoderDecoderConfig) -> Int[Array, "B T"]:
    """Shift target tokens by one position, the start token first: the input that yields `ids`."""
    return jnp.roll(ids, 1, axis=1).at[:, 0].set(config.decoder_start_token_id)


ARCHITECTURES: Mapping[str, type[nn.Module]] = {
    "MarianModel": Seq2Seq,
    "MarianMTModel": Seq2SeqLM,
    "BartModel": Seq2Seq,
    "BartForConditionalGeneration": Seq2SeqLM,
}


class T5ForSequenceClassification(Model):
    """A T5 with a label per text: `logits [B, labels]`.

    The label is predicted from the decoder's output at the last `eos_token_id` of the source; the
    decoder reads the source shifted by one position.
    """

    config: T5Config

    def setup(self) -> None:
        """Make the parts."""
        c = self.config
        self.model = Seq2Seq(**self.settings())
        self.drop = DropoutLayer(c.classifier_dropout)
        self.score_dense = Dense(c.d_model, self.dtype, c.init_std)
        self.score = Dense(c.num_labels, self.dtype, c.init_std)

    def __call__(
        self,
        input_ids: Int[Array, "B S"],
        *inputs: Int[Array, "B S"],
        deterministic: bool = True,
        **options: Any,
    ) -> Seq2SeqOutput:
        """Run the model; arguments as for `Seq2Seq`. Returns `logits` over the labels too."""
        out = self.model(input_ids, *inputs, deterministic=deterministic, **options)
        x = at_last(out.last_hidden_state, input_ids == self.config.eos_token_id)
        x = self.drop(x, deterministic)
        x = self.drop(elementwise(jnp.tanh, self.score_dense(x)), deterministic)
        return out.replace(logits=self.score(x))


class T5ForTokenClassification(Model):
    """The encoder of a T5 with a label per position: `logits [B, S, labels]`."""

    config: T5Config

    def setup(self) -> None:
        """Make the parts."""
        self.model = Seq2Seq(**self.settings())
        self.drop = DropoutLayer(self.config.classifier_dropout)
        self.token_score = Dense(self.config.num_labels, self.dtype, self.config.init_std)

    def __call__(
        self, *inputs: Int[Array, "B S"], deterministic: bool = True, **options: Any
    ) -> ModelOutput:
        """Run the model; arguments as for `Seq2Seq.encode`. Returns `logits` over the labels."""
        x, hidden = self.model.encode(*inputs, deterministic=deterministic, **options)
        logits: Float[Array, "B S labels"] = self.token_score(self.drop(x, deterministic))
        return ModelOutput(last_hidden_state=x, hidden_states=hidden, logits=logits)


class T5ForQuestionAnswering(Model):
    """A T5 that finds where in a text an answer begins and where it ends.

    The decoder reads the source shifted by one position, so that it has a score for each.
    """

    config: T5Config

    def setup(self) -> None:
        """Make the parts."""
        self.model = Seq2Seq(**self.settings())
        self.qa_head = Dense(2, self.dtype, self.config.init_std)

    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> Seq2SeqOutput:
        """Run the model; arguments as for `Seq2Seq`. Returns `start_logits`, `end_logits` too."""
        out = self.model(*inputs, **options)
        scores = self.qa_head(out.last_hidden_state)
        return out.replace(start_logits=scores[..., 0], end_logits=scores[..., 1])


_HEADS: Mapping[str, type[nn.Module]] = {
    "Model": Seq2Seq,
    "ForConditionalGeneration": Seq2SeqLM,
    "EncoderModel": T5Encoder,
    "ForSequenceClassification": T5ForSequenceClassification,
    "ForTokenClassification": T5ForTokenClassification,
    "ForQuestionAnswering": T5ForQuestionAnswering,
}


def architectures(config: T5Config) -> Mapping[str, type[nn.Module]]:
    """Modules by Hugging Face's class names, those of the model's own kind first."""
    stems = {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}
    own = [stems.pop(config.kind)]
    return {
        stem + head: module
        for stem in own + list(stems.values())
        for head, module in _HEADS.items()
    }
