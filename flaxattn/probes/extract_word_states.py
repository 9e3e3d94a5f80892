# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a model over sentences with trees and hands out hidden states of their words.

Pieces become words on the device; what probes make of the vectors is in `flaxattn.measures`.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from flaxattn.corpus.dependency_trees import Sentence
from flaxattn.corpus.texts import annotated_text
from flaxattn.kernels.contract import NOTHING
from flaxattn.pipeline.batch_loop import each_batch
from flaxattn.pipeline.batches import Batch, planned
from flaxattn.pipeline.extraction import room_for
from flaxattn.pipeline.finite_batches import check_vectors
from flaxattn.pipeline.hidden_states import arguments, fetched, state_number, states_of
from flaxattn.pipeline.labelled_texts import LabelledText, label_texts
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pipeline.tokenize_texts import TOGETHER, groups_of
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.probes.word_states import Kept, WordStates, kept_words, word_states_of

_WINDOW = 16 * TOGETHER  # sentences that are sorted by length together


def word_states(
    model: Pretrained,
    sentences: Iterable[Sentence],
    layers: Sequence[int] | None = None,
    reading: ReadingOptions = DEFAULTS,
) -> Iterator[WordStates]:
    """Hidden states of the words of sentences, in order; of the encoder in a seq2seq model.

    A word's vector is the mean of those of its pieces (Hewitt & Manning 2019). A word that has no
    piece for itself, because an earlier one has all of them, is left out, though not of the tree.

    Memory: 4 L W E bytes for each of 1,024 sentences of W words, and what the caller keeps.
    """
    given = range(state_number(model, -1) + 1) if layers is None else layers
    chosen = tuple(sorted({state_number(model, layer) for layer in given}))
    texts = map(annotated_text, itertools.islice(sentences, reading.limit))
    for window in groups_of(texts, _WINDOW):
        groups = groups_of(window, TOGETHER)
        read = [one for g in groups for one in label_texts(model, g, reading)]
        kept = [kept_words(one.layout) for one in read]
        for number, vectors in enumerate(
            _computed(model, read, kept, chosen, reading.batch_tokens)
        ):
            for place, layer in enumerate(() if reading.allow_nonfinite else chosen):
                what = f"hidden states of layer {layer}"
                check_vectors(model, vectors[place], read[number].text, what)
            one = read[number]
            assert one.text.sentence is not None
            words = one.text.sentence.words
            yield word_states_of(vectors, one.layout, kept[number], chosen, words)
        reading.watch("reading hidden states", len(read))


def _computed(
    model: Pretrained,
    read: Sequence[LabelledText],
    kept: Sequence[Kept],
    layers: tuple[int, ...],
    batch_tokens: int | None,
) -> list[Float[np.ndarray, "L W E"]]:
    module = model.module.clone(capture=NOTHING, keep_hidden=True)
    room = room_for([model], NOTHING, 1, batch_tokens)._replace(packs=False)
    rows = [one.reading for one in read]
    batches = planned([row.lengths for row in rows], model.limit, room)
    found: list[np.ndarray] = [np.zeros(0)] * len(rows)

    def begin(batch: Batch) -> Array:
        given = arguments(model, rows, batch)
        return _averaged(module, model.params, given, _laid_out(kept, batch), layers)

    for batch, vectors in each_batch(batches, begin, fetched):
        for place in batch.places:
            found[place.text] = vectors[:, place.row, : len(kept[place.text].numbers)].copy()
    return found


@functools.partial(jax.jit, static_argnames=("module", "layers"))
def _averaged(
    module: nn.Module,
    params: Any,
    given: Any,
    shares: Float[Array, "B S W"],
    layers: tuple[int, ...],
) -> Float[Array, "L B W E"]:
    """Means over pieces; heads of tasks and the decoder are not computed."""
    states = states_of(module.apply({"params": params}, **given))
    hidden = jnp.stack([states[layer] for layer in layers]).astype(jnp.float32)
    # What is no number at padding shall not reach a sum.
    hidden = jnp.where(shares.any(-1)[..., None], hidden, 0)
    return jnp.einsum("bsw,lbse->lbwe", shares, hidden, precision=jax.lax.Precision.HIGHEST)


def _laid_out(kept: Sequence[Kept], batch: Batch) -> Float[np.ndarray, "B S W"]:
    """Shares of positions in words; there is room for a word at each position."""
    found = np.zeros((batch.rows, batch.widths[0], batch.widths[0]), np.float32)
    for place in batch.places:
        shares = kept[place.text].shares
        found[place.row, : shares.shape[0], : shares.shape[1]] = shares
    return found
