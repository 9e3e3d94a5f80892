# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Language models that are read from left to right: one step of generation, with a cache.

`GPT2LM` and `DecoderLM` are such models; how tokens are chosen is not known here.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxattn.models.layer_stack import Model
from flaxattn.models.outputs import ModelOutput


class CausalLM(Model):
    """A decoder that scores the token after each position.

    A subclass makes `model`, the decoder without head, and says what `scores` are.

    Attributes:
        cache_length: Positions that a cache has room for.
    """

    cache_length: int = 0

    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> ModelOutput:
        """Run the model; arguments as for the decoder without head. Returns `logits [B, S, V]`."""
        out = self.model(*inputs, **options)
        return out.replace(logits=self.scores(out.last_hidden_state))

    def scores(self, x: Float[Array, "*tokens E"]) -> Float[Array, "*tokens V"]:
        """Scores of the token that follows, over the vocabulary."""
        raise NotImplementedError

    def length_arguments(self, text_lengths: Int[Array, " R"]) -> dict[str, Array]:
        """Return arguments that give the decoder the lengths of texts; none by default."""
        del text_lengths
        return {}

    def begin(self, attention_mask: Int[Array, "B P"]) -> Int[Array, "B P"]:
        """Return what stays the same during generation: the mask of the prompt."""
        return attention_mask

    def follow(
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
        lengths = self.length_arguments(jnp.full(len(ids), longest))
        x = self.model(ids, mask, places, **lengths).last_hidden_state
        return self.scores(x[:, -1])


def prompt_starts(context: Int[Array, "B P"]) -> Int[Array, " B"]:
    """Positions before each prompt."""
    return (context != 0).argmax(1)


def at_last(
    x: Float[Array, "B S E"], attention_mask: Int[Array, "B S"] | None
) -> Float[Array, "B E"]:
    """The last real position of every text, where a classifier reads it."""
    if attention_mask is None:
        return x[:, -1]
    real = jnp.asarray(attention_mask).astype(bool)
    last = real.shape[1] - 1 - real[:, ::-1].argmax(1)
    return jnp.take_along_axis(x, last[:, None, None], axis=1, mode="clip")[:, 0]
