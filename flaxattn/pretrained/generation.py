# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Generation with a model: compiled programs around the loops of `generate`.

The cache begins small and doubles while texts are open, so that attention at every step runs over
few more positions than there are tokens, whatever the limit. It takes and returns token ids; it
uses no tokenizer.
"""

import functools
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Int

from flaxattn.models.decoder import DecoderLM, prompt_starts
from flaxattn.models.positions import next_change
from flaxattn.pretrained import generation_loop
from flaxattn.pretrained.decoding_settings import Decoding
from flaxattn.pretrained.generation_loop import (
    Beams,
    Cache,
    DecodeStep,
    Generated,
    GeneratedRows,
    GenerationState,
)

_FIRST_CAPACITY = 32  # positions of the first cache
_CHUNK = 256  # positions of a long prompt that are read at once; padded lengths are multiples
_READ_AGAIN = 64  # positions that are read at once where the cache is made anew
_LOOK = 16  # tokens between two looks at texts that may have to stop


@functools.partial(jax.jit, static_argnames=("capacity", "windows"))
def _widened(
    state: GenerationState, capacity: int, windows: tuple[int | None, ...]
) -> GenerationState:
    return generation_loop.widened(state, capacity, windows)


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
    return generation_loop.initial_state(first, cache, prompt, decoding, keys, padding), context


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
    return generation_loop.continued(
        decode_step, state, length, decoding, keys, until, capacity, padding
    )


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
    rows, cache = generation_loop.separate_caches(state)
    ids = generation_loop.hypotheses(state)[:, :capacity]
    real = jnp.pad(context != 0, ((0, 0), (0, capacity - context.shape[1])), constant_values=True)
    real = jnp.repeat(real, rows, axis=0) & (jnp.arange(capacity) <= place)[None]
    size, done = min(_READ_AGAIN, capacity), jnp.int32(0)
    for each in (size, 1):
        read = _part_reader(module, params, real.astype(jnp.int32), ids, each)

        def step(number: Array, cache: Cache, read: Any = read) -> Cache:
            return read(number, (None, cache))[1]

        cache = jax.lax.fori_loop(done // each, place // each, step, cache)
        done = place // each * each
    return generation_loop.with_separate_caches(state, cache, rows, place)


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
    rows = generation_loop.generated(state, decoding)
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
                if not bool(generation_loop.unfinished(state, most)):
                    break
                state = _read_again(wide, layers, context, state, jnp.int32(length + done - 1))
            done += count
            state = _continue(wide, layers, context, state, keys, done, decoding, length)
        if until >= most or not bool(generation_loop.unfinished(state, most)):
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
