# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Generation token by token: the loops around a model that keeps a cache, and beam search.

Each loop is one compiled program for its shapes and settings. `decoding_settings` restricts the
tokens that a step may choose. Beams follow the rules of Hugging Face: 2 N candidates per step, a
finished hypothesis counts where it is among the best N of them, and a sequence is closed once its
best open hypothesis, at its present length, cannot beat its worst finished one.

The cache begins small and doubles while texts are open, so that attention at every step runs over
few more positions than there are tokens, whatever the limit. Generation takes and returns token
ids; it uses no tokenizer.
"""

import functools
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from flaxattn.models.decoder import DecoderLM, prompt_starts
from flaxattn.models.positions import next_change
from flaxattn.pretrained.decoding_settings import NEVER, Decoding, allowed, chosen

_PART = 128  # tokens whose maximum is looked at as one


class Beams(NamedTuple):
    """Hypotheses of B sequences, N open and N finished ones each; T = prompt and room for more.

    Attributes:
        step: Number of generated tokens.
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
    capacity = jnp.full((batch, beams, decoding.max_new_tokens), decoding.pad, prompt.dtype)
    initial_state = jnp.broadcast_to(prompt[:, None], (batch, beams, prompt.shape[1]))
    running = jnp.concatenate([initial_state, capacity], axis=2)
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
    generated = beams.running.reshape(batch * count, -1)
    before = None if padding is None else jnp.repeat(padding, count)
    steps = allowed(steps, generated, prompt, beams.step, decoding, before)
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
    capacity = [(0, 0), (0, 0), (0, -size % _PART)]
    parts = jnp.pad(scores, capacity, constant_values=-jnp.inf)
    parts = parts.reshape(*scores.shape[:2], -1, _PART)
    where = jnp.sort(jax.lax.top_k(parts.max(-1), count)[1])  # in order, as ties go to the first
    few = jnp.take_along_axis(parts, where[..., None], axis=2)
    best, index = jax.lax.top_k(few.reshape(*scores.shape[:2], -1), count)
    return best, jnp.take_along_axis(where, index // _PART, axis=2) * _PART + index % _PART


def _take(array: Array, index: Int[Array, "B C"]) -> Array:
    """Rows of axis 1."""
    index = index.reshape(*index.shape, *[1] * (array.ndim - 2))
    return jnp.take_along_axis(array, index, axis=1)


Cache = Any
# Next tokens [R], their position, the cache, and with beams which cached positions each hypothesis
# sees [R, N K], to scores [R, V] and the cache.
DecodeStep = Callable[
    [Array, Int[Array, ""], Cache, Array | None], tuple[Float[Array, "R V"], Cache]
]


class Generated(NamedTuple):
    """Generated sequences, the best of each first; R = `num_return_sequences`.

    Attributes:
        ids: The prompt and the generated tokens, padded after the end.
        scores: Log-probability of the generated tokens, with beams under the length penalty.
    """

    ids: Int[Array, "B R T"]
    scores: Float[Array, "B R"]


class GenerationState(NamedTuple):
    """State of generation between two tokens.

    Attributes:
        text: The tokens so far: one hypothesis per sequence, or beams.
        cache: Cache of the model, for every open hypothesis.
    """

    text: "GeneratedRows | Beams"
    cache: Cache


class GeneratedRows(NamedTuple):
    """One hypothesis per sequence; T = prompt and room for more.

    Attributes:
        step: Number of generated tokens.
        ids: The prompt and the generated tokens.
        scores: Log-probability of the generated tokens.
        ended: Whether the text is at its end.
    """

    step: Int[Array, ""]
    ids: Int[Array, "B T"]
    scores: Float[Array, " B"]
    ended: Bool[Array, " B"]


def initial_state(
    first: Float[Array, "B V"],
    cache: Cache,
    prompt: Int[Array, "B P"],
    decoding: Decoding,
    keys: Array | None = None,
    padding: Int[Array, " B"] | None = None,
) -> GenerationState:
    """The first token after prompts that the model has read."""
    batch, length = prompt.shape
    if decoding.num_beams == 1:
        blank = jnp.full((batch, decoding.max_new_tokens), decoding.pad, prompt.dtype)
        ids = jnp.concatenate([prompt, blank], axis=1)
        line = GeneratedRows(jnp.int32(0), ids, jnp.zeros(batch), jnp.zeros(batch, bool))
        return GenerationState(_extended(line, first, length, decoding, keys, padding), cache)
    count = decoding.num_beams
    logits = jnp.broadcast_to(first[:, None], (batch, count, first.shape[-1]))
    beams = advanced(started(prompt, decoding), logits, length, decoding, padding)
    rows = [(0, 0), (0, 0), (0, count - 1), (0, 0), (0, 0)]
    cache = _changed(cache, _KEPT, lambda leaf: jnp.pad(leaf, rows))
    return GenerationState(
        beams, _changed(cache, _MOVED, lambda leaf: jnp.repeat(leaf, count, axis=0))
    )


def unfinished(state: GenerationState, until: int | Int[Array, ""]) -> Bool[Array, ""]:
    """Return whether any sequence can continue."""
    text = state.text
    still = text.open.any() if isinstance(text, Beams) else ~text.ended.all()
    return (text.step < until) & still


def continued(
    decode_step: DecodeStep,
    state: GenerationState,
    prompt: int,
    decoding: Decoding,
    keys: Array | None = None,
    until: int | Int[Array, ""] | None = None,
    capacity: int | None = None,
    padding: Int[Array, " B"] | None = None,
) -> GenerationState:
    """Generate until every text is at its end."""
    limit = decoding.max_new_tokens
    most = limit if until is None else jnp.minimum(until, limit)
    held = prompt + limit if capacity is None else capacity

    def step(state: GenerationState) -> GenerationState:
        text, cache = state
        place = prompt + text.step - 1
        if isinstance(text, GeneratedRows):
            last = jax.lax.dynamic_index_in_dim(text.ids, place, axis=1, keepdims=False)
            logits, cache = decode_step(last, place, cache, None)
            return GenerationState(_extended(text, logits, prompt, decoding, keys, padding), cache)
        batch, count = text.parents.shape
        rows = (text.parents + jnp.arange(batch)[:, None] * count).reshape(-1)
        cache = _changed(cache, _MOVED, lambda leaf: jnp.take(leaf, rows, axis=0))
        last = jax.lax.dynamic_index_in_dim(text.running, place, axis=2, keepdims=False)
        logits, cache = decode_step(
            last.reshape(-1), place, cache, _visible(text.slots[..., :held])
        )
        logits = logits.reshape(batch, count, -1)
        return GenerationState(advanced(text, logits, prompt, decoding, padding), cache)

    return jax.lax.while_loop(lambda state: unfinished(state, most), step, state)


def generated(state: GenerationState, decoding: Decoding) -> Generated:
    """Return the generated tokens: the best hypotheses of each sequence."""
    if isinstance(state.text, GeneratedRows):
        return Generated(state.text.ids[:, None], state.text.scores[:, None])
    best = slice(0, decoding.num_return_sequences)
    return Generated(state.text.done[:, best], state.text.done_scores[:, best])


def widened(
    state: GenerationState, capacity: int, windows: tuple[int | None, ...] = ()
) -> GenerationState:
    """A state whose cache has room for more positions."""

    def wider(path: tuple[Any, ...], leaf: Array) -> Array:
        if _kind(path) != _KEPT:
            return leaf
        most = windows[_layer(path)] if windows else None
        more = (capacity if most is None else min(capacity, most)) - leaf.shape[3]
        return jnp.pad(leaf, [(0, 0)] * 3 + [(0, more), (0, 0)])

    return state._replace(cache=jax.tree_util.tree_map_with_path(wider, state.cache))


def hypotheses(state: GenerationState) -> Int[Array, "R T"]:
    """Prompt and generated tokens of every open hypothesis."""
    text = state.text
    ids = text.running if isinstance(text, Beams) else text.ids
    return ids.reshape(-1, ids.shape[-1])


def separate_caches(state: GenerationState) -> tuple[int, Cache]:
    """Number of hypotheses that share a cache, and an empty cache for each of them alone."""
    rows = state.text.parents.shape[1] if isinstance(state.text, Beams) else 1

    def empty(leaf: Array) -> Array:
        return jnp.zeros((leaf.shape[0] * rows, leaf.shape[1], 1, *leaf.shape[3:]), leaf.dtype)

    return rows, _changed(_changed(state.cache, _KEPT, empty), _SHARED, jnp.zeros_like)


def with_separate_caches(
    state: GenerationState, cache: Cache, rows: int, place: Int[Array, ""]
) -> GenerationState:
    """A state with a cache that was filled for each hypothesis separately."""

    def joined(leaf: Array) -> Array:
        return leaf.reshape(-1, rows, leaf.shape[1], *leaf.shape[3:]).swapaxes(1, 2)

    text = state.text
    if isinstance(text, Beams):
        held = (jnp.arange(text.slots.shape[2]) < place)[None, None]
        text = text._replace(slots=jnp.where(held, jnp.arange(rows)[None, :, None], text.slots))
    return GenerationState(text, _changed(cache, _KEPT, joined))


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


_FIRST_CAPACITY = 32  # positions of the first cache
_CHUNK = 256  # positions of a long prompt that are read at once; padded lengths are multiples
_READ_AGAIN = 64  # positions that are read at once where the cache is made anew
_LOOK = 16  # tokens between two looks at texts that may have to stop


@functools.partial(jax.jit, static_argnames=("capacity", "windows"))
def _widened(
    state: GenerationState, capacity: int, windows: tuple[int | None, ...]
) -> GenerationState:
    return widened(state, capacity, windows)


@functools.partial(jax.jit, static_argnames=("module", "decoding"))
def _prefill(
    module: nn.Module,
    params: Any,
    given: dict[str, Any],
    prompt: Int[Array, "B P"],
    keys: Array | None,
    decoding: Decoding,
) -> tuple[GenerationState, Any]:
    """Sources, prompts, and the first token."""
    context = module.apply({"params": params}, **given, method="generation_context")
    size = _chunk(module, prompt)
    first, cache = _read(module, params, context, prompt[:, :size], {}, None, None)
    if size < prompt.shape[1]:
        first, cache = _rest(module, params, context, prompt, cache, size)
    padding = _padding(module, context)
    return initial_state(first, cache, prompt, decoding, keys, padding), context


def _padding(module: nn.Module, context: Any) -> Int[Array, " B"] | None:
    """Positions before each prompt; those that follow a source have none."""
    return prompt_starts(context) if isinstance(module, DecoderLM) else None


def _chunk(module: nn.Module, prompt: Array) -> int:
    """Positions of a prompt that are read at once: all of them, unless it is long."""
    length = prompt.shape[1]
    whole = length <= _CHUNK or length % _CHUNK or not isinstance(module, DecoderLM)
    return length if whole else _CHUNK


def _rest(
    module: nn.Module, params: Any, context: Any, prompt: Array, cache: Cache, size: int
) -> tuple[Array, Cache]:
    """Scores of the token after a prompt of which the first chunk is in the cache."""
    read = _part_reader(module, params, context, prompt, size)
    after_first = read(jnp.int32(1), (jnp.zeros(()), cache))
    return jax.lax.fori_loop(2, prompt.shape[1] // size, read, after_first)


def _part_reader(
    module: nn.Module, params: Any, context: Any, ids: Int[Array, "R T"], size: int
) -> Callable[[Array, tuple[Any, Cache]], tuple[Array, Cache]]:
    """Read one of the consecutive parts of some size: body of a loop over their numbers."""

    def read(number: Array, before: tuple[Any, Cache]) -> tuple[Array, Cache]:
        start = number * size
        part = jax.lax.dynamic_slice_in_dim(ids, start, size, axis=1)
        places = jnp.broadcast_to(start + jnp.arange(size)[None], part.shape)
        return _read(module, params, context, part, before[1], places, None)

    return read


@functools.partial(jax.jit, static_argnames=("module", "decoding", "length"), donate_argnums=3)
def _continue(
    module: nn.Module,
    params: Any,
    context: Any,
    state: GenerationState,
    keys: Array | None,
    until: Int[Array, ""],
    decoding: Decoding,
    length: int,
) -> GenerationState:
    """Generate up to the next stop."""
    decode_step, capacity = _decode_step(module, params, context), module.cache_length
    padding = _padding(module, context)
    return continued(decode_step, state, length, decoding, keys, until, capacity, padding)


def _decode_step(module: nn.Module, params: Any, context: Any) -> DecodeStep:
    """The model on one more token of every hypothesis."""

    def decode_step(
        tokens: Array, position: Array, cache: Cache, visible: Array | None
    ) -> tuple[Array, Cache]:
        places = jnp.full((tokens.shape[0], 1), position)
        return _read(module, params, context, tokens[:, None], cache, places, visible)

    return decode_step


@functools.partial(jax.jit, static_argnames="module", donate_argnums=3)
def _read_again(
    module: nn.Module, params: Any, context: Any, state: GenerationState, place: Int[Array, ""]
) -> GenerationState:
    """Fill the cache anew with what stands before `place`, as part of a text that ends there."""
    capacity = module.cache_length
    rows, cache = separate_caches(state)
    ids = hypotheses(state)[:, :capacity]
    real = jnp.pad(context != 0, ((0, 0), (0, capacity - context.shape[1])), constant_values=True)
    real = jnp.repeat(real, rows, axis=0) & (jnp.arange(capacity) <= place)[None]
    size, done = min(_READ_AGAIN, capacity), jnp.int32(0)
    for each in (size, 1):
        read = _part_reader(module, params, real.astype(jnp.int32), ids, each)

        def step(number: Array, cache: Cache, read: Any = read) -> Cache:
            return read(number, (None, cache))[1]

        cache = jax.lax.fori_loop(done // each, place // each, step, cache)
        done = place // each * each
    return with_separate_caches(state, cache, rows, place)


def _read(
    module: nn.Module,
    params: Any,
    context: Any,
    ids: Array,
    cache: Cache,
    places: Array | None,
    visible: Array | None,
) -> tuple[Array, Cache]:
    """Scores of the token after the last one, and the cache."""
    scores, state = module.apply(
        {"params": params, **cache},
        ids,
        context,
        places,
        visible,
        mutable=["cache"],
        method="decode_step",
    )
    return scores, {"cache": state["cache"]}


def generate_rows(
    module: nn.Module,
    params: Any,
    layers: Any,
    given: Mapping[str, Int[Any, "B S"]],
    prompt: Int[Any, "B P"],
    decoding: Decoding,
    seed: int,
    enough: Callable[[np.ndarray, np.ndarray], bool] | None = None,
) -> Generated:
    """Write, with random keys and as many texts of each prompt as are requested."""
    length = prompt.shape[1]
    step = length + decoding.max_new_tokens if enough is None else _LOOK
    state = None
    for state in stages(module, params, layers, given, prompt, decoding, seed, step):
        if enough is None or isinstance(state.text, Beams):
            continue
        if enough(tokens_so_far(state, length), np.asarray(state.text.ended)):
            break
    assert state is not None
    rows = generated(state, decoding)
    return Generated(*(part.reshape(len(prompt), -1, *part.shape[2:]) for part in rows))


def stages(
    module: nn.Module,
    params: Any,
    layers: Any,
    given: Mapping[str, Int[Any, "B S"]],
    prompt: Int[Any, "B P"],
    decoding: Decoding,
    seed: int,
    step: int,
) -> Iterator[GenerationState]:
    """Write for every prompt as many texts as are requested, and stop now and then to be looked at.

    A short prompt is read by a scan over the layers, which compiles sooner; all else by layers laid
    out one by one, which run faster.

    Memory: the cache of B N hypotheses, twice while it grows.
    """
    given, prompt, keys = _drawn(given, prompt, decoding, seed)
    length, most = prompt.shape[1], decoding.max_new_tokens
    capacity = min(length + most, max(_FIRST_CAPACITY, 2 * length))
    wide = module.clone(cache_length=capacity)
    reading = layers if length >= _CHUNK else params
    state, context = _prefill(wide, reading, given, prompt, keys, decoding)
    until_change = functools.partial(_until_change, module, given.get("attention_mask"))
    done, until = 1, min(step, capacity - length)
    while True:
        while done < until:
            again, count = until_change(length + done - 1, until - done)
            if again:
                if not bool(unfinished(state, most)):
                    break
                state = _read_again(wide, layers, context, state, jnp.int32(length + done - 1))
            done += count
            state = _continue(wide, layers, context, state, keys, done, decoding, length)
        if until >= most or not bool(unfinished(state, most)):
            break
        yield state
        if until == capacity - length:
            capacity = min(length + most, 2 * capacity)
            wide = module.clone(cache_length=capacity)
            state = _widened(
                state, capacity, module.config.windows if isinstance(module, DecoderLM) else ()
            )
        until = min(until + step, capacity - length)
    yield state


def _until_change(
    module: nn.Module, mask: Int[Any, "B P"] | None, place: int, wanted: int
) -> tuple[bool, int]:
    """Return whether the cache must be filled anew, and how many tokens it then serves."""
    if not isinstance(module, DecoderLM):
        return False, wanted
    length = place - int((np.asarray(mask) != 0).argmax(1).min())  # of the longest text so far
    change = next_change(module.config, length)
    again = change == length + 1
    if again:
        change = next_change(module.config, length + 1)
    return again, wanted if change is None else min(wanted, change - length - 1)


def _drawn(
    given: Mapping[str, Int[Any, "B S"]], prompt: Int[Any, "B P"], decoding: Decoding, seed: int
) -> tuple[dict[str, Any], Int[Any, "R P"], Array | None]:
    """Sources and prompts once per text that is drawn, each with a random key; else as given."""
    if not decoding.do_sample:
        return dict(given), prompt, None
    count = decoding.num_return_sequences
    ids = given.get("input_ids", prompt)
    keys = random_keys(seed, ids, given["attention_mask"], count)
    rows = {name: np.repeat(array, count, axis=0) for name, array in given.items()}
    return rows, np.repeat(prompt, count, axis=0), keys


def tokens_so_far(state: GenerationState, prompt: int) -> Int[np.ndarray, "R T"]:
    """Return the generated tokens after the prompts, one text for each."""
    assert isinstance(state.text, GeneratedRows)
    return np.asarray(state.text.ids)[:, prompt : prompt + int(state.text.step)]


def random_keys(seed: int, ids: Int[Any, "B S"], mask: Int[Any, "B S"], samples: int) -> Array:
    """A random key per text that is drawn, whatever else is drawn beside it."""
    rows = zip(np.asarray(ids, "<i4"), np.asarray(mask) != 0, strict=True)
    marks = jnp.array([zlib.crc32(row[real].tobytes()) for row, real in rows], jnp.uint32)
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    sources = fold(jax.random.key(seed), marks)
    return jax.vmap(fold, (0, None))(sources, jnp.arange(samples)).reshape(-1)


def lengths(ids: Int[np.ndarray, "B T"], prompt: int, decoding: Decoding) -> Int[np.ndarray, " B"]:
    """Tokens of every sequence up to its end, which is included."""
    ends = np.isin(ids, decoding.eos) & (np.arange(ids.shape[1]) >= prompt)
    return np.where(ends.any(1), ends.argmax(1) + 1, ids.shape[1])


def shortened(ids: Int[np.ndarray, "B T"], prompt: int, decoding: Decoding) -> np.ndarray:
    """Without the columns that are padding in every sequence; arguments as for `lengths`."""
    return ids[:, : lengths(ids, prompt, decoding).max()]
