# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 (Radford et al. 2019): a Transformer decoder that predicts the next token.

Read it upwards from `GPT2`. Loading, saving and generating text are not done here.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax.linen.dtypes import promote_dtype
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.contract import NOTHING, Capture, Labels
from flaxattn.models.causal_lm import CausalLM, at_last
from flaxattn.models.gpt2_config import GPT2Config
from flaxattn.models.layer_stack import Model, hidden_states, masks_of_heads
from flaxattn.models.layers import (
    DropoutLayer,
    Embedding,
    FeedForward,
    layer_norm,
    real_positions,
    self_labels,
    vocabulary_scores,
)
from flaxattn.models.multi_head_attention import MultiHeadAttention
from flaxattn.models.outputs import ModelOutput
from flaxattn.models.positions import counted


class GPT2Layer(nn.Module):
    """Self-attention to what came before, then feed-forward; each reads a normalised input.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
        capture: What attention records.
        implementation: Name of the attention kernel; None chooses.
        cache_length: Positions that a cache has room for.
        pruned: Numbers of heads that the layer lacks.
    """

    config: GPT2Config
    dtype: Dtype = jnp.float32
    capture: Capture = NOTHING
    implementation: str | None = None
    cache_length: int = 0
    pruned: tuple[int, ...] = ()

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B S E"],
        *,
        mask: Bool[Array, "B S"] | None = None,
        segment_ids: Int[Array, "B S"] | None = None,
        labels: Labels | None = None,
        head_mask: Float[Array, "*B H"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B S E"]:
        """Apply the layer."""
        c = self.config
        attend = MultiHeadAttention(
            c.n_head,
            dtype=self.dtype,
            dropout_rate=c.attn_pdrop,
            initializer_range=c.initializer_range,
            causal=True,
            capture=self.capture,
            implementation=self.implementation,
            cache_length=self.cache_length,
            pruned=self.pruned,
            name="attention",
        )
        feed_forward = FeedForward(
            c.inner_size,
            c.activation_function,
            self.dtype,
            c.initializer_range,
            name="feed_forward",
        )
        dropout = DropoutLayer(c.resid_pdrop)
        given = {"mask": mask, "segment_ids": segment_ids, "labels": labels, "head_mask": head_mask}
        attended = attend(self._norm("attention", x), **given, deterministic=deterministic)
        x = x + dropout(attended, deterministic)
        fed = feed_forward(self._norm("feed_forward", x), deterministic)
        return x + dropout(fed, deterministic)

    def _norm(self, name: str, x: Array) -> Float[Array, "B S E"]:
        epsilon = self.config.layer_norm_epsilon
        return layer_norm(x, epsilon=epsilon, dtype=self.dtype, name=f"{name}_norm")


class GPT2(Model):
    """The model without head: Hugging Face's `GPT2Model`.

    Attributes:
        cache_length: Positions that a cache has room for; see a call.
    """

    config: GPT2Config
    cache_length: int = 0

    def setup(self) -> None:
        """Make the parts."""
        c = self.config
        self.words = self._embedding(c.vocab_size, c.initializer_range)
        # Half as wide, as in the code released with the paper.
        self.positions = self._embedding(c.n_positions, c.initializer_range / 2)
        self.dropout = DropoutLayer(c.embd_pdrop)
        lacking = {"pruned": c.pruned_heads, "cache_length": self.cache_length}
        self.decoder = self.stack(GPT2Layer, c.n_layer, **lacking)
        self.norm = nn.LayerNorm(
            epsilon=c.layer_norm_epsilon, dtype=jnp.float32, use_fast_variance=False
        )

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
        deterministic: bool = True,
    ) -> ModelOutput:
        """Run the model.

        With `cache` mutable, the first call fills a cache of `cache_length` positions, and later
        calls continue: they get the next tokens with their `position_ids`, and an `attention_mask`
        as long as the cache.
        """
        mask = real_positions(attention_mask)
        places = counted(input_ids) if position_ids is None else position_ids
        embedded = self.words(input_ids) + self.positions(places)
        embedded = self.dropout(embedded, deterministic)
        if self.cache_length and self.is_mutable_collection("cache"):
            position_labels = None  # keys are not of this call alone
        else:
            position_labels = self_labels(
                labels, "decoder", input_ids, mask, kinds=segment_ids, key_classes=key_classes
            )
        x, hidden = self.decoder(
            embedded,
            mask=mask,
            segment_ids=segment_ids,
            labels=position_labels,
            deterministic=deterministic,
            keep_hidden=self.keep_hidden,
            by_layer={
                "head_mask": masks_of_heads(head_mask, self.config.n_layer, self.config.n_head)
            },
        )
        x = self.norm(x.astype(jnp.float32)).astype(self.dtype)
        return ModelOutput(last_hidden_state=x, hidden_states=hidden_states(embedded, hidden, x))

    def _embedding(self, count: int, spread: float) -> Embedding:
        init = nn.initializers.normal(spread)
        return Embedding(count, self.config.n_embd, dtype=self.dtype, embedding_init=init)


class GPT2LM(CausalLM):
    """GPT-2 that predicts the next token: `GPT2LMHeadModel`."""

    config: GPT2Config

    def setup(self) -> None:
        """Make the parts."""
        self.model = GPT2(**self.settings(), cache_length=self.cache_length)
        c = self.config
        if not c.tie_word_embeddings:
            init = nn.initializers.normal(c.initializer_range)
            self.output = self.param("output", init, (c.n_embd, c.vocab_size))

    def scores(self, x: Float[Array, "*tokens E"]) -> Float[Array, "*tokens V"]:
        """Scores of the token that follows, over the vocabulary."""
        tied = self.config.tie_word_embeddings
        embedding = self.model.words.embedding if tied else self.output.T
        return vocabulary_scores(x, embedding, dtype=self.dtype)


class GPT2ForSequenceClassification(Model):
    """GPT-2 with a label per text, predicted at its last real position: `logits [B, labels]`."""

    config: GPT2Config

    def setup(self) -> None:
        """Make the parts."""
        c = self.config
        self.model = GPT2(**self.settings())
        init = nn.initializers.normal(c.initializer_range)
        self.score = self.param("score", init, (c.n_embd, c.num_labels))

    def __call__(
        self,
        input_ids: Int[Array, "B S"],
        attention_mask: Int[Array, "B S"] | None = None,
        *inputs: Int[Array, "B S"],
        **options: Any,
    ) -> ModelOutput:
        """Run the model; arguments as for `GPT2`. Returns `logits` over `config.labels`."""
        out = self.model(input_ids, attention_mask, *inputs, **options)
        x = at_last(out.last_hidden_state, attention_mask)
        x, kernel = promote_dtype(x, self.score, dtype=self.dtype)
        return out.replace(logits=x @ kernel)


ARCHITECTURES: Mapping[str, type[nn.Module]] = {
    "GPT2Model": GPT2,
    "GPT2LMHeadModel": GPT2LM,
    "GPT2ForSequenceClassification": GPT2ForSequenceClassification,
}
