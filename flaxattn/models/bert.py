# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""BERT (Devlin et al. 2019) and its variants: embeddings, layers, encoder and pooler.

`BertConfig.variant` chooses the form of each part. Task heads are in `task_heads`; loading and
saving weights is not done here.
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
from flaxattn.models.encoder_config import BertConfig, EncoderConfig
from flaxattn.models.layer_stack import Model, hidden_states, masks_of_heads
from flaxattn.models.layers import (
    Dense,
    DropoutLayer,
    Embedding,
    FeedForward,
    at_positions,
    elementwise,
    layer_norm,
    self_labels,
)
from flaxattn.models.multi_head_attention import MultiHeadAttention
from flaxattn.models.outputs import ModelOutput
from flaxattn.models.positions import Rotation, relative_bias, rotations_at

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


class Bert(Model):
    """The encoder with its pooler: Hugging Face's `BertModel`.

    Attributes:
        add_pooling: Whether `pooler_output` is computed.
    """

    config: BertConfig
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
            project = Dense(
                c.hidden_size, self.dtype, c.initializer_range, name="embedding_projection"
            )
            embedded = project(embedded)
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


def _contact_head(rng: Array, inputs: int) -> dict[str, Array]:
    return {
        "kernel": nn.initializers.truncated_normal()(rng, (inputs, 1)),
        "bias": jnp.zeros(1),
    }
