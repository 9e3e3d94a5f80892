# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Decoders: GPT-2 (Radford et al. 2019), Llama (Touvron et al. 2023) and its relatives.

Read it upwards from `CausalDecoder`. GPT-2 is a `GPT2Config`; Llama, Mistral, Qwen, Gemma, Phi-3,
SmolLM, OLMo 2, StarCoder 2 and GPT-NeoX are settings of `DecoderConfig`. Loading, saving and
generating text are not done here.
"""

from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp
from flax import linen as nn
from flax.linen.dtypes import promote_dtype
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.contract import NOTHING, Capture, Labels
from flaxattn.models.decoder_config import DecoderConfig, GPT2Config
from flaxattn.models.decoder_types import TYPES
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
)
from flaxattn.models.multi_head_attention import HeadNorm, MultiHeadAttention
from flaxattn.models.outputs import ModelOutput
from flaxattn.models.positions import Rotation, counted, rotations_at

RotaryKind = Literal["global", "local"]
Config = DecoderConfig | GPT2Config


class CausalDecoderLayer(nn.Module):
    """Self-attention to what came before, then a feed-forward layer, or both side by side.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
        capture: What attention records.
        implementation: Name of the attention kernel; None chooses.
        cache_length: Positions that a cache has room for.
        window: Positions that a query sees, its own included; None for all before it.
        positions: Name of the rotary positions of the layer; None for none.
        pruned: Numbers of heads that the layer lacks.
    """

    config: Config
    dtype: Dtype = jnp.float32
    capture: Capture = NOTHING
    implementation: str | None = None
    cache_length: int = 0
    window: int | None = None
    positions: RotaryKind | None = "global"
    pruned: tuple[int, ...] = ()

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
            pruned=self.pruned,
            key_heads=None if self.pruned else c.key_heads,
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
            c.inner_size,
            c.hidden_act,
            self.dtype,
            c.initializer_range,
            gated=c.gated,
            use_bias=c.mlp_bias,
            name="feed_forward",
        )

    def _norm(self, name: str, x: Array) -> Float[Array, "B S E"]:
        return norm(self.config, x, self.dtype, name)


def norm(config: Config, x: Array, dtype: Dtype, name: str) -> Float[Array, "B S E"]:
    """The norm of a model, as a submodule of the calling module."""
    if config.norm == "layer":
        return layer_norm(x, epsilon=config.norm_eps, dtype=dtype, name=name)
    return RMSNorm(config.norm_eps, dtype, config.norm == "rms_plus_one", name=name)(x)


class CausalDecoder(Model):
    """The model without head: Hugging Face's `GPT2Model`, `LlamaModel` and its relatives.

    Attributes:
        cache_length: Positions that a cache has room for; see a call.
    """

    config: Config
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
        """Run the model.

        With `cache` mutable, the first call fills a cache of `cache_length` positions, and later
        calls continue: they get the next tokens with their `position_ids`, and an `attention_mask`
        as long as the cache.

        Rotary positions may depend on `text_lengths`, the number of tokens of each text; default
        up to its last real position. A caller with a cache gives them.
        """
        c = self.config
        mask = real_positions(attention_mask)
        places = counted(input_ids) if position_ids is None else position_ids
        embedded = self._table("words", c.vocab_size, c.initializer_range)(input_ids)
        if c.scale_embedding:
            embedded *= jnp.asarray(c.hidden_size**0.5, self.dtype)
        if c.learned_positions:
            # Half as wide, as in the code released with GPT-2.
            spread = c.initializer_range / 2
            embedded += self._table("positions", c.max_position_embeddings, spread)(places)
        embedded = DropoutLayer(c.embedding_dropout, name="dropout")(embedded, deterministic)
        position_labels = None
        if not (self.cache_length and self.is_mutable_collection("cache")):  # else keys are others'
            position_labels = self_labels(
                labels, "decoder", input_ids, mask, kinds=segment_ids, key_classes=key_classes
            )
        layers = self.stack(
            CausalDecoderLayer,
            c.num_hidden_layers,
            "decoder",
            c.pruned_heads,
            kinds_of_layers(c),
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

    def _table(self, name: str, rows: int, spread: float) -> Embedding:
        init = nn.initializers.normal(spread)
        return Embedding(rows, self.config.hidden_size, self.dtype, embedding_init=init, name=name)


def kinds_of_layers(config: Config) -> list[dict[str, Any]]:
    """Attributes of `CausalDecoderLayer` that differ from layer to layer."""
    rotated = config.rotary_layers or (True,) * config.num_hidden_layers
    kinds = []
    for window, rotary in zip(config.windows, rotated, strict=True):
        local = window is not None and config.local_rotary is not None
        own: RotaryKind | None = None if not rotary else "local" if local else "global"
        kinds.append({"window": window, "positions": own})
    return kinds


class DecoderLM(Model):
    """A decoder that scores the next token: `GPT2LMHeadModel`, `LlamaForCausalLM` and relatives.

    Attributes:
        cache_length: Positions that a cache has room for.
    """

    config: Config
    cache_length: int = 0

    def setup(self) -> None:
        """Make the parts."""
        c = self.config
        self.model = CausalDecoder(**self.settings(), cache_length=self.cache_length)
        if not c.tie_word_embeddings:
            init = nn.initializers.normal(c.initializer_range)
            self.output = self.param("output", init, (c.hidden_size, c.vocab_size))

    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> ModelOutput:
        """Run the model; arguments as for `CausalDecoder`. Returns `logits [B, S, V]`."""
        out = self.model(*inputs, **options)
        return out.replace(logits=self.scores(out.last_hidden_state))

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

    def generation_context(self, attention_mask: Int[Array, "B P"]) -> Int[Array, "B P"]:
        """Return what stays the same during generation: the mask of the prompt."""
        return attention_mask

    def decode_step(
        self,
        ids: Int[Array, "R S"],
        context: Int[Array, "B P"],
        position_ids: Int[Array, "R S"] | None,
        visible: Bool[Array, "R K"] | None,
    ) -> Float[Array, "R V"]:
        """Scores of the token after the last of `ids`, with `cache` mutable.

        Positions are counted from the first real token, so a prompt is padded on the left.
        """
        batch, length = context.shape
        rows = len(ids) // batch
        if position_ids is None:
            places = jnp.maximum(context.cumsum(1) - 1, 0)[:, : ids.shape[1]]
            mask = context
        else:
            padding = jnp.repeat(prompt_starts(context)[:, None], rows, axis=0)
            places = jnp.maximum(position_ids - padding, 0)
            room = ((0, 0), (0, max(0, self.cache_length - length)))
            real = jnp.pad(context != 0, room, constant_values=True)
            real = jnp.repeat(jnp.tile(real, (1, rows)), rows, axis=0)
            mask = real if visible is None else real & visible
        longest = jnp.maximum((context != 0).sum(1).max(), places.max() + 1)
        lengths = jnp.full(len(ids), longest)
        x = self.model(ids, mask, places, text_lengths=lengths).last_hidden_state
        return self.scores(x[:, -1])


def prompt_starts(context: Int[Array, "B P"]) -> Int[Array, " B"]:
    """Positions before each prompt."""
    return (context != 0).argmax(1)


class DecoderForSequenceClassification(Model):
    """A decoder with a label per text, read at its last real position: `logits [B, labels]`."""

    config: Config

    @nn.compact
    def __call__(
        self,
        input_ids: Int[Array, "B S"],
        attention_mask: Int[Array, "B S"] | None = None,
        *inputs: Int[Array, "B S"],
        **options: Any,
    ) -> ModelOutput:
        """Run the model; arguments as for `CausalDecoder`. Returns `logits` over the labels."""
        c = self.config
        model = CausalDecoder(**self.settings(), name="model")
        out = model(input_ids, attention_mask, *inputs, **options)
        init = nn.initializers.normal(c.initializer_range)
        score = self.param("score", init, (c.hidden_size, c.num_labels))
        x, kernel = promote_dtype(
            at_last(out.last_hidden_state, attention_mask), score, dtype=self.dtype
        )
        return out.replace(logits=x @ kernel)


class DecoderForTokenClassification(Model):
    """A decoder with a label per position: `logits [B, S, labels]`."""

    config: Config

    @nn.compact
    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> ModelOutput:
        """Run the model; arguments as for `CausalDecoder`. Returns `logits` over the labels."""
        c = self.config
        out = CausalDecoder(**self.settings(), name="model")(*inputs, **options)
        score = Dense(c.num_labels, self.dtype, c.initializer_range, name="token_score")
        return out.replace(logits=score(out.last_hidden_state))


class DecoderForQuestionAnswering(Model):
    """A decoder that finds where in a text an answer begins and where it ends."""

    config: Config

    @nn.compact
    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> ModelOutput:
        """Run the model; arguments as for `CausalDecoder`.

        Returns `start_logits` and `end_logits [B, S]`. A position sees what stands before it, so
        the question comes first.
        """
        out = CausalDecoder(**self.settings(), name="model")(*inputs, **options)
        head = Dense(2, self.dtype, self.config.initializer_range, name="qa_head")
        scores = head(out.last_hidden_state)
        return out.replace(start_logits=scores[..., 0], end_logits=scores[..., 1])


def architectures(config: Config) -> Mapping[str, type[nn.Module]]:
    """Modules by Hugging Face's class names of a model type, the one without head first."""
    if isinstance(config, GPT2Config):
        return {
            "GPT2Model": CausalDecoder,
            "GPT2LMHeadModel": DecoderLM,
            "GPT2ForSequenceClassification": DecoderForSequenceClassification,
        }
    stem = TYPES[config.model_type].stem
    text = f"{stem}Text" if config.model_type == "gemma3_text" else stem
    return {
        f"{text}Model": CausalDecoder,
        f"{stem}ForCausalLM": DecoderLM,
        f"{text}ForSequenceClassification": DecoderForSequenceClassification,
        f"{stem}ForTokenClassification": DecoderForTokenClassification,
        f"{stem}ForQuestionAnswering": DecoderForQuestionAnswering,
    }
