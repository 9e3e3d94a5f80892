# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Writing text, token by token: the loops around a model that keeps a cache.

Each loop is one compiled program for its shapes and settings. What a step may choose is decided in
`decoding`, what a beam keeps in `beams`; this file knows when the model runs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxattn.beams import Beams, advanced, started
from flaxattn.decoding import Decoding, allowed, chosen

Cache = Any
# Next tokens [R], their position and the cache, to scores [R, V] and the cache.
Follow = Callable[[Int[Array, " R"], Int[Array, ""], Cache], tuple[Float[Array, "R V"], Cache]]


class Written(NamedTuple):
    """Generated sequences, the best of each first; R = `num_return_sequences`.

    Attributes:
        ids: The prompt and what was written, padded after the end.
        scores: Log-probability of what was written, with beams under the length penalty.
    """

    ids: Int[Array, "B R T"]
    scores: Float[Array, "B R"]


def write(
    follow: Follow,
    first: Float[Array, "B V"],
    cache: Cache,
    prompt: Int[Array, "B P"],
    decoding: Decoding,
    keys: Array | None = None,
) -> Written:
    """Continue prompts that the model has read.

    Args:
        follow: Runs the model on one more token of every sequence.
        first: Scores of the token after each prompt.
        cache: Of the prompts; leaves of cross-attention belong to sources, others to sequences.
        prompt: What was read.
        decoding: The settings.
        keys: With `do_sample`, a random key per sequence.

    Returns:
        What was written. Memory: the cache of B N sequences.
    """
    if decoding.num_beams > 1:
        return _search(follow, first, cache, prompt, decoding)
    return _one_by_one(follow, first, cache, prompt, decoding, keys)


class _Line(NamedTuple):
    """State of writing one hypothesis per sequence."""

    step: Int[Array, ""]
    ids: Int[Array, "B T"]
    last: Int[Array, " B"]
    scores: Float[Array, " B"]
    ended: Bool[Array, " B"]
    cache: Cache


def _one_by_one(
    follow: Follow,
    first: Float[Array, "B V"],
    cache: Cache,
    prompt: Int[Array, "B P"],
    decoding: Decoding,
    keys: Array | None,
) -> Written:
    """The best token of each step, or one that is drawn."""
    batch, length = prompt.shape
    room = jnp.full((batch, decoding.max_new_tokens), decoding.pad, prompt.dtype)
    ids = jnp.concatenate([prompt, room], axis=1)

    def extended(line: _Line, logits: Float[Array, "B V"]) -> _Line:
        scores = allowed(logits.astype(jnp.float32), line.ids, length, line.step, decoding)
        drawn = None if keys is None else jax.vmap(jax.random.fold_in, (0, None))(keys, line.step)
        token = jnp.where(line.ended, decoding.pad, chosen(scores, drawn, decoding))
        gain = jnp.take_along_axis(jax.nn.log_softmax(scores), token[:, None], axis=1)[:, 0]
        return line._replace(
            step=line.step + 1,
            ids=line.ids.at[:, length + line.step].set(token.astype(ids.dtype)),
            last=token,
            scores=line.scores + jnp.where(line.ended, 0.0, gain),
            ended=line.ended | decoding.ends(token),
        )

    def unfinished(line: _Line) -> Bool[Array, ""]:
        return (line.step < decoding.max_new_tokens) & ~line.ended.all()

    def go_on(line: _Line) -> _Line:
        logits, cache = follow(line.last, length + line.step - 1, line.cache)
        return extended(line._replace(cache=cache), logits)

    begun = _Line(
        step=jnp.int32(0),
        ids=ids,
        last=prompt[:, -1],
        scores=jnp.zeros(batch),
        ended=jnp.zeros(batch, bool),
        cache=cache,
    )
    line = jax.lax.while_loop(unfinished, go_on, extended(begun, first))
    return Written(line.ids[:, None], line.scores[:, None])


def _search(
    follow: Follow,
    first: Float[Array, "B V"],
    cache: Cache,
    prompt: Int[Array, "B P"],
    decoding: Decoding,
) -> Written:
    """Beam search."""
    batch, length = prompt.shape
    count = decoding.num_beams
    logits = jnp.broadcast_to(first[:, None], (batch, count, first.shape[-1]))
    beams = advanced(started(prompt, decoding), logits, length, decoding)
    cache = _by_sequence(cache, lambda leaf: jnp.repeat(leaf, count, axis=1))

    def unfinished(state: tuple[Beams, Cache]) -> Bool[Array, ""]:
        beams = state[0]
        return (beams.step < decoding.max_new_tokens) & beams.open.any()

    def go_on(state: tuple[Beams, Cache]) -> tuple[Beams, Cache]:
        beams, cache = state
        rows = (beams.parents + jnp.arange(batch)[:, None] * count).reshape(-1)
        cache = _by_sequence(cache, lambda leaf: jnp.take(leaf, rows, axis=1))
        place = length + beams.step - 1
        last = jax.lax.dynamic_index_in_dim(beams.running, place, axis=2, keepdims=False)
        logits, cache = follow(last.reshape(-1), place, cache)
        return advanced(beams, logits.reshape(batch, count, -1), length, decoding), cache

    beams, _ = jax.lax.while_loop(unfinished, go_on, (beams, cache))
    best = slice(0, decoding.num_return_sequences)
    return Written(beams.done[:, best], beams.done_scores[:, best])


def _by_sequence(cache: Cache, change: Callable[[Array], Array]) -> Cache:
    """The cache with the leaves `[L, R, …]` that hold one row per sequence changed."""

    def leaf(path: tuple[Any, ...], array: Array) -> Array:
        shared = "cross_attention" in jax.tree_util.keystr(path) or array.ndim < 2
        return array if shared else change(array)

    return jax.tree_util.tree_map_with_path(leaf, cache)
