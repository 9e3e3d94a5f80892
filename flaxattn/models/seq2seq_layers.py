# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The layers of an encoder-decoder Transformer and what they read; `seq2seq` stacks them."""

import functools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.call import PairBias
from flaxattn.kernels.contract import NOTHING, Capture, Labels
from flaxattn.models.layers import DropoutLayer, Embedding, FeedForward, RMSNorm, layer_norm
from flaxattn.models.multi_head_attention import MultiHeadAttention
from flaxattn.models.position_tables import UNUSED_ROWS, sinusoids
from flaxattn.models.relative_positions import relative_bias
from flaxattn.models.seq2seq_config import Seq2SeqConfig
from flaxattn.models.t5_config import T5Config

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
