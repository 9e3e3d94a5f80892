# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Writing text, token by token: the loops around a model that keeps a cache.

Each loop is one compiled program for its shapes and settings. What a step may choose is decided in
`decoding_settings`, what a beam keeps in `beam_search`; this file knows when the model runs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxattn.pretrained.beam_search import Beams, advanced, started
from flaxattn.pretrained.decoding_settings import Decoding, allowed, chosen

Cache = Any
# Next tokens [R], their position, the cache, and with beams which cached positions each hypothesis
# sees [R, N K], to scores [R, V] and the cache.
Follow = Callable[[Array, Int[Array, ""], Cache, Array | None], tuple[Float[Array, "R V"], Cache]]


class Written(NamedTuple):
    """Generated sequences, the best of each first; R = `num_return_sequences`.

    Attributes:
        ids: The prompt and what was written, padded after the end.
        scores: Log-probability of what was written, with beams under the length penalty.
    """

    ids: Int[Array, "B R T"]
    scores: Float[Array, "B R"]


class Writing(NamedTuple):
    """State of generation between two tokens.

    Attributes:
        text: What was written: one hypothesis per sequence, or beams.
        cache: Of the model, for every open hypothesis.
    """

    text: "GeneratedRows | Beams"
    cache: Cache


class GeneratedRows(NamedTuple):
    """One hypothesis per sequence; T = prompt and room for more.

    Attributes:
        step: Tokens written so far.
        ids: The prompt and what was written.
        scores: Log-probability of what was written.
        ended: Whether the text is at its end.
    """

    step: Int[Array, ""]
    ids: Int[Array, "B T"]
    scores: Float[Array, " B"]
    ended: Bool[Array, " B"]


def begun(
    first: Float[Array, "B V"],
    cache: Cache,
    prompt: Int[Array, "B P"],
    decoding: Decoding,
    keys: Array | None = None,
    padding: Int[Array, " B"] | None = None,
) -> Writing:
    """The first token after prompts that the model has read."""
    batch, length = prompt.shape
    if decoding.num_beams == 1:
        room = jnp.full((batch, decoding.max_new_tokens), decoding.pad, prompt.dtype)
        ids = jnp.concatenate([prompt, room], axis=1)
        line = GeneratedRows(jnp.int32(0), ids, jnp.zeros(batch), jnp.zeros(batch, bool))
        return Writing(_extended(line, first, length, decoding, keys, padding), cache)
    count = decoding.num_beams
    logits = jnp.broadcast_to(first[:, None], (batch, count, first.shape[-1]))
    beams = advanced(started(prompt, decoding), logits, length, decoding, padding)
    rows = [(0, 0), (0, 0), (0, count - 1), (0, 0), (0, 0)]
    cache = _changed(cache, _KEPT, lambda leaf: jnp.pad(leaf, rows))
    return Writing(beams, _changed(cache, _MOVED, lambda leaf: jnp.repeat(leaf, count, axis=0)))


def unfinished(now: Writing, until: int | Int[Array, ""]) -> Bool[Array, ""]:
    """Return whether any sequence can continue."""
    text = now.text
    still = text.open.any() if isinstance(text, Beams) else ~text.ended.all()
    return (text.step < until) & still


def continued(
    follow: Follow,
    now: Writing,
    prompt: int,
    decoding: Decoding,
    keys: Array | None = None,
    until: int | Int[Array, ""] | None = None,
    room: int | None = None,
    padding: Int[Array, " B"] | None = None,
) -> Writing:
    """Write on until every text is at its end."""
    limit = decoding.max_new_tokens
    most = limit if until is None else jnp.minimum(until, limit)
    held = prompt + limit if room is None else room

    def go_on(now: Writing) -> Writing:
        text, cache = now
        place = prompt + text.step - 1
        if isinstance(text, GeneratedRows):
            last = jax.lax.dynamic_index_in_dim(text.ids, place, axis=1, keepdims=False)
            logits, cache = follow(last, place, cache, None)
            return Writing(_extended(text, logits, prompt, decoding, keys, padding), cache)
        batch, count = text.parents.shape
        rows = (text.parents + jnp.arange(batch)[:, None] * count).reshape(-1)
        cache = _changed(cache, _MOVED, lambda leaf: jnp.take(leaf, rows, axis=0))
        last = jax.lax.dynamic_index_in_dim(text.running, place, axis=2, keepdims=False)
        logits, cache = follow(last.reshape(-1), place, cache, _visible(text.slots[..., :held]))
        logits = logits.reshape(batch, count, -1)
        return Writing(advanced(text, logits, prompt, decoding, padding), cache)

    return jax.lax.while_loop(lambda now: unfinished(now, most), go_on, now)


def written(now: Writing, decoding: Decoding) -> Written:
    """Return the generated tokens: the best hypotheses of each sequence."""
    if isinstance(now.text, GeneratedRows):
        return Written(now.text.ids[:, None], now.text.scores[:, None])
    best = slice(0, decoding.num_return_sequences)
    return Written(now.text.done[:, best], now.text.done_scores[:, best])


def widened(now: Writing, room: int, windows: tuple[int | None, ...] = ()) -> Writing:
    """The same with room for more positions in the cache."""

    def wider(path: tuple[Any, ...], leaf: Array) -> Array:
        if _kind(path) != _KEPT:
            return leaf
        most = windows[_layer(path)] if windows else None
        more = (room if most is None else min(room, most)) - leaf.shape[3]
        return jnp.pad(leaf, [(0, 0)] * 3 + [(0, more), (0, 0)])

    return now._replace(cache=jax.tree_util.tree_map_with_path(wider, now.cache))


def hypotheses(now: Writing) -> Int[Array, "R T"]:
    """Prompt and generated tokens of every open hypothesis."""
    text = now.text
    ids = text.running if isinstance(text, Beams) else text.ids
    return ids.reshape(-1, ids.shape[-1])


def separate_caches(now: Writing) -> tuple[int, Cache]:
    """Number of hypotheses that share a cache, and an empty cache for each of them alone."""
    rows = now.text.parents.shape[1] if isinstance(now.text, Beams) else 1

    def empty(leaf: Array) -> Array:
        return jnp.zeros((leaf.shape[0] * rows, leaf.shape[1], 1, *leaf.shape[3:]), leaf.dtype)

    return rows, _changed(_changed(now.cache, _KEPT, empty), _SHARED, jnp.zeros_like)


def with_separate_caches(now: Writing, cache: Cache, rows: int, place: Int[Array, ""]) -> Writing:
    """The same with a cache that was filled for each hypothesis alone."""

    def joined(leaf: Array) -> Array:
        return leaf.reshape(-1, rows, leaf.shape[1], *leaf.shape[3:]).swapaxes(1, 2)

    text = now.text
    if isinstance(text, Beams):
        held = (jnp.arange(text.slots.shape[2]) < place)[None, None]
        text = text._replace(slots=jnp.where(held, jnp.arange(rows)[None, :, None], text.slots))
    return Writing(text, _changed(cache, _KEPT, joined))


def _extended(
    line: GeneratedRows,
    logits: Float[Array, "B V"],
    prompt: int,
    decoding: Decoding,
    keys: Array | None,
    padding: Int[Array, " B"] | None,
) -> GeneratedRows:
    """One token more; padding where the text is at its end."""
    scores = allowed(logits.astype(jnp.float32), line.ids, prompt, line.step, decoding, padding)
    drawn = None if keys is None else jax.vmap(jax.random.fold_in, (0, None))(keys, line.step)
    token = jnp.where(line.ended, decoding.pad, chosen(scores, drawn, decoding))
    gain = jnp.take_along_axis(jax.nn.log_softmax(scores), token[:, None], axis=1)[:, 0]
    return GeneratedRows(
        step=line.step + 1,
        ids=line.ids.at[:, prompt + line.step].set(token.astype(line.ids.dtype)),
        scores=line.scores + jnp.where(line.ended, 0.0, gain),
        ended=line.ended | decoding.ends(token),
    )


# What a leaf of a cache is: kept where it was written, moved with its hypothesis, or neither.
_KEPT, _MOVED, _SHARED = "kept", "moved", "shared"


def _kind(path: tuple[Any, ...]) -> str:
    text = jax.tree_util.keystr(path, simple=True, separator="/")
    if "cross_attention" in text or text.endswith("length"):
        return _SHARED
    return _KEPT if text.endswith(("attention/key", "attention/value")) else _MOVED


def _layer(path: tuple[Any, ...]) -> int:
    """Number of the layer that a leaf of a cache belongs to."""
    return next(key.idx for key in path if isinstance(key, jax.tree_util.SequenceKey))


def _changed(cache: Cache, kind: str, change: Callable[[Array], Array]) -> Cache:
    """The cache with the leaves of one kind changed."""

    def leaf(path: tuple[Any, ...], array: Array) -> Array:
        return change(array) if _kind(path) == kind else array

    return jax.tree_util.tree_map_with_path(leaf, cache)


def _visible(slots: Int[Array, "B N K"]) -> Bool[Array, "R NK"]:
    """Mask of the positions of cache rows that belong to each hypothesis."""
    batch, count, length = slots.shape
    own = slots[:, :, None] == jnp.arange(count)[None, None, :, None]
    return own.reshape(batch * count, count * length)
