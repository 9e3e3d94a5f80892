# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Beam search on arrays: open and finished hypotheses, and one step of all of them.

The rules are those of Hugging Face: 2 N candidates per step, a finished hypothesis counts where it
is among the best N of them, and a sequence is closed once its best open hypothesis, at its present
length, cannot beat its worst finished one. Nothing here runs a model.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxattn.pretrained.decoding_settings import NEVER, Decoding, allowed

_PART = 128  # tokens whose maximum is looked at as one


class Beams(NamedTuple):
    """Hypotheses of B sequences, N open and N finished ones each; T = prompt and room for more.

    Attributes:
        step: Tokens written so far.
        running: Open hypotheses.
        scores: Their log-probabilities.
        parents: The open hypothesis before the last step that each one continues.
        slots: The place among the hypotheses at which each token of an open one was read, in whose
            row of a cache it therefore is; the prompt was read once, at 0.
        done: Finished hypotheses, the best first.
        done_scores: With the length penalty.
        is_done: Whether there is one at that place.
        open: Whether the sequence can still become better.
    """

    step: Int[Array, ""]
    running: Int[Array, "B N T"]
    scores: Float[Array, "B N"]
    parents: Int[Array, "B N"]
    slots: Int[Array, "B N T"]
    done: Int[Array, "B N T"]
    done_scores: Float[Array, "B N"]
    is_done: Bool[Array, "B N"]
    open: Bool[Array, " B"]


def started(prompt: Int[Array, "B P"], decoding: Decoding) -> Beams:
    """The beams before the first token; only the first hypothesis of each counts."""
    batch, beams = prompt.shape[0], decoding.num_beams
    room = jnp.full((batch, beams, decoding.max_new_tokens), decoding.pad, prompt.dtype)
    begun = jnp.broadcast_to(prompt[:, None], (batch, beams, prompt.shape[1]))
    running = jnp.concatenate([begun, room], axis=2)
    return Beams(
        step=jnp.int32(0),
        running=running,
        scores=jnp.full((batch, beams), NEVER).at[:, 0].set(0.0),
        parents=jnp.zeros((batch, beams), jnp.int32),
        slots=jnp.zeros(running.shape, jnp.int32),
        done=running,
        done_scores=jnp.full((batch, beams), NEVER),
        is_done=jnp.zeros((batch, beams), bool),
        open=jnp.ones(batch, bool),
    )


def advanced(
    beams: Beams,
    logits: Float[Array, "B N V"],
    prompt: int,
    decoding: Decoding,
    padding: Int[Array, " B"] | None = None,
) -> Beams:
    """One token more."""
    batch, count, size = logits.shape
    place = prompt + beams.step
    steps = jax.nn.log_softmax(logits.astype(jnp.float32)).reshape(batch * count, size)
    written = beams.running.reshape(batch * count, -1)
    before = None if padding is None else jnp.repeat(padding, count)
    steps = allowed(steps, written, prompt, beams.step, decoding, before)
    if decoding.renormalize:
        steps = jax.nn.log_softmax(steps)
    kept = max(2, 1 + len(decoding.eos)) * count
    scores, parents, tokens = _best(steps.reshape(logits.shape), beams.scores, kept)
    grown = _take(beams.running, parents).at[:, :, place].set(tokens)
    step = beams.step + 1
    ends = decoding.ends(tokens) | (step >= decoding.max_new_tokens)
    # Open hypotheses: the best N that continue.
    following, order = jax.lax.top_k(jnp.where(ends, NEVER, scores), count)
    # Finished ones: the best N of the old ones and those that just ended among the best N.
    stops = decoding.early_stopping is True
    full = beams.is_done.all(1) & stops
    ended = ends & (jnp.arange(kept) < count)[None] & (beams.open & ~full)[:, None]
    final = jnp.where(ended, decoding.penalised(scores, step), NEVER)
    done_scores, best = jax.lax.top_k(jnp.concatenate([beams.done_scores, final], 1), count)
    is_done = _take(jnp.concatenate([beams.is_done, ended], 1), best)
    worst = jnp.where(is_done, done_scores.min(1, keepdims=True), NEVER)
    reached = decoding.early_stopping == "never" and decoding.length_penalty > 0
    longest = jnp.int32(decoding.max_new_tokens) if reached else step
    hope = decoding.penalised(following[:, :1], longest) > worst
    still = beams.open & hope.any(1) & ~ends.all(1)
    parents = _take(parents, order)
    return Beams(
        step=step,
        running=_take(grown, order),
        scores=following,
        parents=parents,
        slots=_take(beams.slots, parents).at[:, :, place].set(jnp.arange(count)[None]),
        done=_take(jnp.concatenate([beams.done, grown], 1), best),
        done_scores=done_scores,
        is_done=is_done,
        open=still & ~(is_done.all(1) & stops),
    )


def _best(
    steps: Float[Array, "B N V"], scores: Float[Array, "B N"], count: int
) -> tuple[Float[Array, "B C"], Int[Array, "B C"], Int[Array, "B C"]]:
    """The best continuations of all hypotheses: score, hypothesis and token.

    First of each hypothesis, then of all: a tenth of the work of sorting N V numbers.
    """
    batch, _, size = steps.shape
    each, tokens = largest(steps + scores[..., None], min(count, size))
    best, index = jax.lax.top_k(each.reshape(batch, -1), count)
    return best, index // each.shape[2], _take(tokens.reshape(batch, -1), index)


def largest(
    scores: Float[Array, "B N V"], count: int
) -> tuple[Float[Array, "B N C"], Int[Array, "B N C"]]:
    """The largest scores and their places, as `jax.lax.top_k` has them, in a third of its time.

    They are in the parts of the vocabulary with the largest maxima, so only those are sorted.
    """
    size = scores.shape[-1]
    if size < 2 * count * _PART:
        return jax.lax.top_k(scores, count)
    room = [(0, 0), (0, 0), (0, -size % _PART)]
    parts = jnp.pad(scores, room, constant_values=-jnp.inf)
    parts = parts.reshape(*scores.shape[:2], -1, _PART)
    where = jnp.sort(jax.lax.top_k(parts.max(-1), count)[1])  # in order, as ties go to the first
    few = jnp.take_along_axis(parts, where[..., None], axis=2)
    best, index = jax.lax.top_k(few.reshape(*scores.shape[:2], -1), count)
    return best, jnp.take_along_axis(where, index // _PART, axis=2) * _PART + index % _PART


def _take(array: Array, index: Int[Array, "B C"]) -> Array:
    """Rows of axis 1."""
    index = index.reshape(*index.shape, *[1] * (array.ndim - 2))
    return jnp.take_along_axis(array, index, axis=1)
