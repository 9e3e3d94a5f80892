# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Generation with an encoder-decoder: compiled programs around the loops of `generate`.

The cache begins small and doubles while texts are open, so that attention at every step runs over
few more positions than there are tokens, whatever the limit. Texts and tokenizers are not known
here.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Int

from flaxattn import generate
from flaxattn.decoding import Decoding
from flaxattn.generate import Cache, Follow, Writing, Written

_FIRST_ROOM = 32  # positions of the first cache


def write(
    module: nn.Module,
    params: Any,
    source: dict[str, Int[Any, "B S"]],
    prompt: Int[Any, "B P"],
    decoding: Decoding,
    keys: Array | None = None,
) -> Written:
    """Write a text for every source.

    Args:
        module: With the methods `encode` and `decode`, and an attribute `cache_length`.
        params: Its parameters.
        source: `input_ids` and `attention_mask`.
        prompt: What every text begins with, the start token first.
        decoding: The settings.
        keys: With `do_sample`, a random key per sequence.

    Returns:
        What was written. Memory: the cache of B N hypotheses, twice while it grows.
    """
    length = prompt.shape[1]
    limit = length + decoding.max_new_tokens
    room = min(limit, max(_FIRST_ROOM, 2 * length))
    wide = module.clone(cache_length=room)
    now, encoded = _start(wide, params, source, prompt, keys, decoding)
    while room < limit and bool(generate.unfinished(now, decoding.max_new_tokens)):
        room = min(limit, 2 * room)
        wide = module.clone(cache_length=room)
        mask = source["attention_mask"]
        now = _go_on(wide, params, encoded, mask, now, keys, decoding, length)
    return generate.written(now, decoding)


@functools.partial(jax.jit, static_argnames=("module", "decoding"))
def _start(
    module: nn.Module,
    params: Any,
    source: dict[str, Any],
    prompt: Int[Array, "B P"],
    keys: Array | None,
    decoding: Decoding,
) -> tuple[Writing, Array]:
    """Encoder, prompts, and as many tokens as the cache has room for."""
    mask, length = source["attention_mask"], prompt.shape[1]
    encoded: Any = module.apply({"params": params}, source["input_ids"], mask, method="encode")
    first, cache = _read(module, params, encoded, mask, prompt, {}, None)
    now = generate.begun(first, cache, prompt, decoding, keys)
    follow = _follower(module, params, encoded, mask)
    until = module.cache_length - length
    return generate.continued(follow, now, length, decoding, keys, until), encoded


@functools.partial(jax.jit, static_argnames=("module", "decoding", "length"))
def _go_on(
    module: nn.Module,
    params: Any,
    encoded: Array,
    mask: Int[Array, "B S"],
    now: Writing,
    keys: Array | None,
    decoding: Decoding,
    length: int,
) -> Writing:
    """The same with a larger cache."""
    follow = _follower(module, params, encoded, mask)
    now = generate.widened(now, module.cache_length)
    until = module.cache_length - length
    return generate.continued(follow, now, length, decoding, keys, until)


def _follower(module: nn.Module, params: Any, encoded: Array, mask: Array) -> Follow:
    """The model on one more token of every hypothesis."""

    def follow(tokens: Array, position: Array, cache: Cache) -> tuple[Array, Cache]:
        places = jnp.full((tokens.shape[0], 1), position)
        return _read(module, params, encoded, mask, tokens[:, None], cache, places)

    return follow


def _read(
    module: nn.Module,
    params: Any,
    encoded: Array,
    mask: Array,
    ids: Array,
    cache: Cache,
    positions: Array | None,
) -> tuple[Array, Cache]:
    """Scores of the token after the last one, and the cache."""
    logits, state = module.apply(
        {"params": params, **cache},
        ids,
        encoded,
        mask,
        position_ids=positions,
        mutable=["cache"],
        method="decode",
    )
    return logits[:, -1], {"cache": state["cache"]}


def lengths(ids: Int[np.ndarray, "B T"], prompt: int, decoding: Decoding) -> Int[np.ndarray, " B"]:
    """Tokens of every sequence up to its end, which is included.

    Args:
        ids: Prompt and what was written.
        prompt: Length of the prompt.
        decoding: Says what ends a text.
    """
    ends = np.isin(ids, decoding.eos) & (np.arange(ids.shape[1]) >= prompt)
    return np.where(ends.any(1), ends.argmax(1) + 1, ids.shape[1])


def shortened(ids: Int[np.ndarray, "B T"], prompt: int, decoding: Decoding) -> np.ndarray:
    """Without the columns that are padding in every sequence; arguments as for `lengths`."""
    return ids[:, : lengths(ids, prompt, decoding).max()]
