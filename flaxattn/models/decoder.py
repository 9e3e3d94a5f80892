# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Decoders with rotary positions: Llama (Touvron et al. 2023) and its relatives, in one file.

Read it upwards from `RotaryDecoder`. Mistral, Qwen, Gemma, Phi-3, SmolLM, OLMo 2, StarCoder 2 and
GPT-NeoX are settings of `DecoderConfig`. Loading, saving and generating text are not done here.
"""

from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp
from flax import linen as nn
from flax.linen.dtypes import promote_dtype
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.contract import NOTHING, Capture, Labels
from flaxattn.models.causal_lm import CausalLM, at_last
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.models.decoder_types import TYPES
from flaxattn.models.layer_stack import Model, hidden_states, masks_of_heads
from flaxattn.models.layers import (
    Dense,
    DropoutLayer,
    Embedding,
    FeedForward,
    RMSNorm,
    elementwise,
    layer_norm,
    real_positions,
    self_labels,
    vocabulary_scores,
)
from flaxattn.models.multi_head_attention import HeadNorm, MultiHeadAttention
from flaxattn.models.outputs import ModelOutput
from flaxattn.models.positions import counted
from flaxattn.models.rotary import Rotation, rotations_at

RotaryKind = Literal["global", "local"]


class RotaryDecoderLayer(nn.Module):
    """Self-attention to what came before, then a feed-forward layer, or both side by side.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
        capture: What attention records.
        implementation: Name of the attention kernel; None chooses.
        cache_length: Positions that a cache has room for.
        window: Positions that a query sees, its own included; None for all before it.
        positions: Which of the model's rotary positions the layer has; None for none.
    """

    config: DecoderConfig
    dtype: Dtype = jnp.float32
    capture: Capture = NOTHING
    implementation: str | None = None
    cache_length: int = 0
    window: int | None = None
    positions: RotaryKind | None = "global"

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B S E"],
        *,
        rotations: Mapping[str, Rotation],
        mask: Bool[Array, "B S"] | None = None,
        segment_ids: Int[Array, "B S"] | None = None,
        labels: Labels | None = None,
        head_mask: Float[Array, "*B H"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B S E"]:
        """Apply the layer; `rotations` are those of the model by name."""
        c = self.config
        before, after = c.norm_places != "after", c.norm_places != "before"
        dropout = DropoutLayer(c.residual_dropout)
        attended = self._attention()(
            self._norm("attention_norm", x) if before else x,
            mask=mask,
            segment_ids=segment_ids,
            labels=labels,
            head_mask=head_mask,
            rotation=None if self.positions is None else rotations[self.positions],
            deterministic=deterministic,
        )
        attended = self._norm("attention_post_norm", attended) if after else attended
        attended = dropout(attended, deterministic)
        x, read = (x + attended, x + attended) if not c.parallel_residual else (x + attended, x)
        fed = self._feed_forward()(self._norm("feed_forward_norm", read) if before else read)
        fed = self._norm("feed_forward_post_norm", fed) if after else fed
        return x + dropout(fed, deterministic)

    def _attention(self) -> MultiHeadAttention:
        c = self.config
        norm = HeadNorm(c.head_norm == "each", c.norm_eps, c.norm == "rms_plus_one")
        return MultiHeadAttention(
            c.num_attention_heads,
            dtype=self.dtype,
            dropout_rate=c.attention_dropout,
            initializer_range=c.initializer_range,
            causal=True,
            capture=self.capture,
            implementation=self.implementation,
            cache_length=self.cache_length,
            key_heads=c.key_heads,
            head_dim=c.head_size,
            input_bias=c.input_bias,
            output_bias=c.output_bias,
            head_norm=None if c.head_norm is None else norm,
            scale=(c.query_pre_attn_scalar or c.head_size) ** -0.5,
            window=None if self.window is None else (self.window - 1, None),
            soft_cap=c.attn_logit_softcapping,
            sinks=c.sinks,
            name="attention",
        )

    def _feed_forward(self) -> FeedForward:
        c = self.config
        return FeedForward(
            c.intermediate_size,
            c.hidden_act,
            self.dtype,
            c.initializer_range,
            gated=c.gated,
            use_bias=c.mlp_bias,
            name="feed_forward",
        )

    def _norm(self, name: str, x: Array) -> Float[Array, "B S E"]:
        return norm(self.config, x, self.dtype, name)


def norm(config: DecoderConfig, x: Array, dtype: Dtype, name: str) -> Float[Array, "B S E"]:
    """The norm of a model, as a submodule of the calling module."""
    if config.norm == "layer":
        return layer_norm(x, epsilon=config.norm_eps, dtype=dtype, name=name)
    return RMSNorm(config.norm_eps, dtype, config.norm == "rms_plus_one", name=name)(x)


class RotaryDecoder(Model):
    """The model without head: Hugging Face's `LlamaModel` and its relatives.

    Attributes:
        cache_length: Positions that a cache has room for; see `GPT2`.
    """

    config: DecoderConfig
    cache_length: int = 0

    @nn.compact
    def __call__(
        self,
        input_ids: Int[Array, "B S"],
        attention_mask: Int[Array, "B S"] | None = None,
        position_ids: Int[Array, "B S"] | None = None,
        *,
        segment_ids: Int[Array, "B S"] | None = None,
        key_classes: Int[Array, "B S"] | None = None,
        labels: Mapping[str, Labels] | None = None,
        head_mask: Float[Array, "..."] | None = None,
        text_lengths: Int[Array, " B"] | None = None,
        deterministic: bool = True,
    ) -> ModelOutput:
        """Run the model; arguments, cache and result as for `GPT2`.

        Rotary positions may depend on `text_lengths`, the number of tokens of each text; default
        up to its last real position. A caller with a cache gives them.
        """
        c = self.config
        mask = real_positions(attention_mask)
        places = counted(input_ids) if position_ids is None else position_ids
        init = nn.initializers.normal(c.initializer_range)
        words = Embedding(
            c.vocab_size, c.hidden_size, self.dtype, embedding_init=init, name="words"
        )
        embedded = words(input_ids)
        if c.scale_embedding:
            embedded *= jnp.asarray(c.hidden_size**0.5, self.dtype)
        embedded = DropoutLayer(c.embedding_dropout)(embedded, deterministic)
        position_labels = None
        if not (self.cache_length and self.is_mutable_collection("cache")):  # else keys are others'
            position_labels = self_labels(
                labels, "decoder", input_ids, mask, kinds=segment_ids, key_classes=key_classes
            )
        layers = self.stack(
            RotaryDecoderLayer,
            c.num_hidden_layers,
            "decoder",
            variants=kinds_of_layers(c),
            cache_length=self.cache_length,
        )
        masks = masks_of_heads(head_mask, c.num_hidden_layers, c.num_attention_heads)
        x, hidden = layers(
            embedded,
            mask=mask,
            segment_ids=segment_ids,
            labels=position_labels,
            rotations=rotations_at(c, places, mask, text_lengths),
            deterministic=deterministic,
            keep_hidden=self.keep_hidden,
            by_layer={"head_mask": masks},
        )
        x = norm(c, x, self.dtype, "norm")
        return ModelOutput(last_hidden_state=x, hidden_states=hidden_states(embedded, hidden, x))


def kinds_of_layers(config: DecoderConfig) -> list[dict[str, Any]]:
    """Attributes of `RotaryDecoderLayer` that differ from layer to layer."""
    rotated = config.rotary_layers or (True,) * config.num_hidden_layers
    kinds = []
    for window, rotary in zip(config.windows, rotated, strict=True):
        local = window is not None and config.local_rotary is not None
        own: RotaryKind | None = None if not rotary else "local" if local else "global"
        kinds.append({"window": window, "positions": own})
    return kinds


class DecoderLM(CausalLM):
    """A decoder that scores the next token: `LlamaForCausalLM` and its relatives."""

    config: DecoderConfig

    def setup(self) -> None:
        """Make the parts."""
        c = self.config
        self.model = RotaryDecoder(**self.settings(), cache_length=self.cache_length)
        if not c.tie_word_embeddings:
            init = nn.initializers.normal(c.initializer_range)
            self.output = self.param("output", init, (c.hidden_size, c.vocab_size))

    def length_arguments(self, text_lengths: Int[Array, " R"]) -> dict[str, Array]:
        """Return the lengths, which rotary positions may depend on; see `CausalLM`."""
        return {"text_lengths": text_lengths}

    def scores(self, x: Float[Array, "*tokens E"]) -> Float[Array, "*tokens V"]:
        """Scores of the token that follows, over the vocabulary, capped where the model does so."""
        c = self.config
        if c.tie_word_embeddings:
            embedding = self.model.variables["params"]["words"]["embedding"]
        else:
            embedding = self.output.T
        logits = vocabulary_scores(x, embedding, dtype=self.dtype)
        cap = c.final_logit_softcapping
        return logits if cap is None else elementwise(lambda x: jnp.tanh(x / cap) * cap, logits)


class DecoderForSequenceClassification(Model):
    """A decoder with a label per text, read at its last real position: `logits [B, labels]`."""

    config: DecoderConfig

    @nn.compact
    def __call__(
        self,
        input_ids: Int[Array, "B S"],
        attention_mask: Int[Array, "B S"] | None = None,
        *inputs: Int[Array, "B S"],
        **options: Any,
    ) -> ModelOutput:
        """Run the model; arguments as for `RotaryDecoder`. Returns `logits` over the labels."""
        c = self.config
        model = RotaryDecoder(**self.settings(), name="model")
        out = model(input_ids, attention_mask, *inputs, **options)
        init = nn.initializers.normal(c.initializer_range)
        score = self.param("score", init, (c.hidden_size, c.num_labels))
        x, kernel = promote_dtype(
            at_last(out.last_hidden_state, attention_mask), score, dtype=self.dtype
        )
        return out.replace(logits=x @ kernel)


class DecoderForTokenClassification(Model):
    """A decoder with a label per position: `logits [B, S, labels]`."""

    config: DecoderConfig

    @nn.compact
    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> ModelOutput:
        """Run the model; arguments as for `RotaryDecoder`. Returns `logits` over the labels."""
        c = self.config
        out = RotaryDecoder(**self.settings(), name="model")(*inputs, **options)
        score = Dense(c.num_labels, self.dtype, c.initializer_range, name="token_score")
        return out.replace(logits=score(out.last_hidden_state))


class DecoderForQuestionAnswering(Model):
    """A decoder that finds where in a text an answer begins and where it ends."""

    config: DecoderConfig

    @nn.compact
    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> ModelOutput:
        """Run the model; arguments as for `RotaryDecoder`.

        Returns `start_logits` and `end_logits [B, S]`. A position sees what stands before it, so
        the question comes first.
        """
        out = RotaryDecoder(**self.settings(), name="model")(*inputs, **options)
        head = Dense(2, self.dtype, self.config.initializer_range, name="qa_head")
        scores = head(out.last_hidden_state)
        return out.replace(start_logits=scores[..., 0], end_logits=scores[..., 1])


def architectures(config: DecoderConfig) -> Mapping[str, type[nn.Module]]:
    """Modules by Hugging Face's class names of a model type, the one without head first."""
    stem = TYPES[config.model_type].stem
    text = f"{stem}Text" if config.model_type == "gemma3_text" else stem
    return {
        f"{text}Model": RotaryDecoder,
        f"{stem}ForCausalLM": DecoderLM,
        f"{text}ForSequenceClassification": DecoderForSequenceClassification,
        f"{stem}ForTokenClassification": DecoderForTokenClassification,
        f"{stem}ForQuestionAnswering": DecoderForQuestionAnswering,
    }
