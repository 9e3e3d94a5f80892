# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""ModernBERT (Warner et al. 2024): embeddings, layers and encoder.

Read it upwards from `ModernBert`. Layers alternate between attention to the whole text and
attention to a window; positions are rotary, so none are embedded. Task heads are in `task_heads`;
loading and saving weights is not done here.
"""

from collections.abc import Mapping

import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.contract import NOTHING, Capture, Labels
from flaxattn.models.encoder_config import ModernBertConfig
from flaxattn.models.layer_stack import Model, hidden_states, masks_of_heads
from flaxattn.models.layers import (
    DropoutLayer,
    Embedding,
    FeedForward,
    layer_norm,
    self_labels,
)
from flaxattn.models.multi_head_attention import MultiHeadAttention
from flaxattn.models.outputs import ModelOutput
from flaxattn.models.positions import Rotation, counted, rotations_at


class WordEmbeddings(nn.Module):
    """Word embeddings, normalised, with dropout.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
    """

    config: ModernBertConfig
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, input_ids: Int[Array, "B S"], deterministic: bool = True
    ) -> Float[Array, "B S E"]:
        """Embed the ids."""
        c = self.config
        init = nn.initializers.truncated_normal(c.initializer_range)
        table = Embedding(c.vocab_size, c.hidden_size, self.dtype, embedding_init=init, name="word")
        x = _norm(c, table(input_ids), self.dtype, "norm")
        return DropoutLayer(c.embedding_dropout)(x, deterministic)


class ModernBertLayer(nn.Module):
    """One encoder layer: attention and a gated feed-forward layer, each normalised before.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
        capture: What attention records.
        implementation: Name of the attention kernel; None chooses.
        window: Positions before and behind a query that it sees; None for all.
        first: Whether it is the first layer, whose input is normalised already.
    """

    config: ModernBertConfig
    dtype: Dtype = jnp.float32
    capture: Capture = NOTHING
    implementation: str | None = None
    window: tuple[int, int] | None = None
    first: bool = False

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B S E"],
        *,
        rotations: Mapping[str, Rotation],
        norm_scale: Float[Array, " E"] | None = None,
        norm_bias: Float[Array, " E"] | None = None,
        mask: Bool[Array, "B S"] | Bool[Array, "B 1 S S"] | None = None,
        segment_ids: Int[Array, "B S"] | None = None,
        labels: Labels | None = None,
        head_mask: Float[Array, "*B H"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B S E"]:
        """Apply the layer."""
        c = self.config
        attended = MultiHeadAttention(
            c.num_attention_heads,
            dtype=self.dtype,
            dropout_rate=c.attention_dropout,
            initializer_range=c.initializer_range,
            capture=self.capture,
            implementation=self.implementation,
            input_bias=c.attention_bias,
            output_bias=c.attention_bias,
            window=self.window,
            name="attention",
        )(
            x if self.first else self._normalised(x, norm_scale, norm_bias),
            mask=mask,
            segment_ids=segment_ids,
            labels=labels,
            head_mask=head_mask,
            rotation=rotations["global" if self.window is None else "local"],
            deterministic=deterministic,
        )
        x = x + DropoutLayer(c.attention_dropout)(attended, deterministic)
        return x + self._feed_forward()(_norm(c, x, self.dtype, "feed_forward_norm"), deterministic)

    def _normalised(
        self, x: Array, scale: Float[Array, " E"] | None, bias: Float[Array, " E"] | None
    ) -> Float[Array, "B S E"]:
        """LayerNorm with parameters that are not this layer's own, for the first layer has none."""
        norm = nn.LayerNorm(
            epsilon=self.config.norm_eps,
            dtype=jnp.float32,
            use_scale=False,
            use_bias=False,
            use_fast_variance=False,
        )
        x = norm(x.astype(jnp.float32))
        x = x if scale is None else x * scale.astype(jnp.float32)[None, None]
        x = x if bias is None else x + bias.astype(jnp.float32)[None, None]
        return x.astype(self.dtype)

    def _feed_forward(self) -> FeedForward:
        c = self.config
        return FeedForward(
            c.intermediate_size,
            c.hidden_activation,
            self.dtype,
            c.initializer_range,
            c.mlp_dropout,
            gated=True,
            use_bias=c.mlp_bias,
            name="feed_forward",
        )


class AttentionNorms(nn.Module):
    """Parameters of the LayerNorms before attention, of all layers but the first.

    Attributes:
        config: Shape and settings.
    """

    config: ModernBertConfig

    @nn.compact
    def __call__(self) -> dict[str, Float[Array, "L E"] | None]:
        """Parameters by argument of `ModernBertLayer`; those of the first layer do nothing."""
        c = self.config
        shape = (c.num_hidden_layers - 1, c.hidden_size)
        scale = self.param("scale", nn.initializers.ones, shape)
        bias = self.param("bias", nn.initializers.zeros, shape) if c.norm_bias else None
        behind_first = ((1, 0), (0, 0))
        return {
            "norm_scale": jnp.pad(scale, behind_first, constant_values=1),
            "norm_bias": None if bias is None else jnp.pad(bias, behind_first),
        }


class ModernBert(Model):
    """The encoder without head: Hugging Face's `ModernBertModel`."""

    config: ModernBertConfig

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
        del starts
        c = self.config
        if token_type_ids is None:
            token_type_ids = jnp.zeros_like(input_ids)
        places = counted(input_ids) if position_ids is None else position_ids
        mask = None if attention_mask is None else jnp.asarray(attention_mask) != 0
        position_labels = self_labels(
            labels, "encoder", input_ids, mask, kinds=token_type_ids, key_classes=key_classes
        )
        embedded = WordEmbeddings(c, self.dtype, name="embeddings")(input_ids, deterministic)
        kinds = [{"window": w, "first": number == 0} for number, w in enumerate(c.windows)]
        layers = self.stack(ModernBertLayer, c.num_hidden_layers, "encoder", variants=kinds)
        masks = masks_of_heads(head_mask, c.num_hidden_layers, c.num_attention_heads)
        x, hidden = layers(
            embedded,
            mask=mask[:, None] if mask is not None and mask.ndim == 3 else mask,
            segment_ids=segment_ids,
            labels=position_labels,
            rotations=rotations_at(c, places, mask),
            deterministic=deterministic,
            keep_hidden=self.keep_hidden,
            by_layer={"head_mask": masks, **AttentionNorms(c, name="attention_norms")()},
        )
        x = _norm(c, x, self.dtype, "norm")
        return ModelOutput(last_hidden_state=x, hidden_states=hidden_states(embedded, hidden, x))


def _norm(config: ModernBertConfig, x: Array, dtype: Dtype, name: str) -> Float[Array, "... E"]:
    bias = config.norm_bias
    return layer_norm(x, epsilon=config.norm_eps, dtype=dtype, name=name, use_bias=bias)
