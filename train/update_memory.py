# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes of the arrays that an update of a decoder holds at once, from the sizes of model and batch.

It is an estimate: the compiler decides which arrays share their place.
"""

import jax
import jax.numpy as jnp

from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.models.gpt2_config import GPT2Config
from flaxattn.train.lm_recipe import LanguageModelRecipe
from flaxattn.train.state import Params

_FLOAT = 4
_OF_PARAMETERS = 5  # gradients, a checkpoint with two moments, and the copy that writes samples
_OF_LOGITS = 3  # scores, their logarithms and their gradient, all float32
_OF_MAPS = 2  # weights of attention, and those that dropout left
_OF_STATES = 4  # what a layer keeps at the width of the model: inputs and outputs of its parts
_OF_QUERIES = 2  # queries, and what their heads put out
_OF_KEYS = 2  # keys and values


def decoder_update_bytes(
    config: GPT2Config | DecoderConfig, recipe: LanguageModelRecipe, params: Params
) -> int:
    """Bytes of an update, beside the parameters and moments that are there before it."""
    rows, length = -(-recipe.batch_size // recipe.accumulate), recipe.block
    item = jnp.dtype(recipe.dtype).itemsize
    maps = _OF_MAPS * config.num_attention_heads * length * length
    inner = (4 if config.gated else 2) * config.inner_size  # before and after the activation
    heads = _OF_QUERIES * config.query_size + _OF_KEYS * config.key_size
    states = length * (_OF_STATES * config.hidden_size + heads + inner)
    layers = 1 if recipe.remat else config.num_hidden_layers
    kept = config.num_hidden_layers * length * config.hidden_size  # the input of every layer
    parameters = sum(leaf.size for leaf in jax.tree.leaves(params))
    logits = _OF_LOGITS * _FLOAT * rows * length * config.vocab_size
    return (
        logits
        + item * rows * (layers * (maps + states) + kept)
        + _OF_PARAMETERS * _FLOAT * parameters
    )
