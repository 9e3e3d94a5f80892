# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an encoder over sentences with trees and hands out attention between their words.

Sentences are read as for scores of heads; what probes make of the maps is in `flaxattn.heads`.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator

import jax
import numpy as np

from flaxattn.bert_handle import PretrainedBert
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.trees import Sentence
from flaxattn.errors import InputError
from flaxattn.extraction.chunks import TOGETHER
from flaxattn.extraction.extract import Options, Texts, extract_shards
from flaxattn.extraction.head_scores import Read, Subject, read_subjects, subject_of
from flaxattn.handle import Pretrained
from flaxattn.kernels.contract import Capture
from flaxattn.probes.word_maps import WordMaps, word_maps_of
from flaxattn.records import layer_weights
from flaxattn.seen import Seen
from flaxattn.seq2seq_handle import PretrainedSeq2Seq

_WINDOW = 4 * TOGETHER  # sentences whose maps between pieces are in memory


def word_maps(
    model: Pretrained,
    sentences: Iterable[Sentence],
    *,
    truncate: bool = False,
    bad: BadRows | None = None,
    batch_tokens: int | None = None,
    watch: Callable[[int], object] = lambda count: None,
) -> Iterator[WordMaps]:
    """Attention between the words of sentences, in order.

    Memory: 4 L H N² bytes for each of 256 sentences of N positions, and what the caller keeps.

    Args:
        model: A BERT with its tokenizer.
        sentences: With their trees.
        truncate: Whether sentences over the model's limit are cut; words beyond are left out.
        bad: Takes sentences that cannot be used: over the limit, or with a word that the tokenizer
            leaves nothing of. Default: the first one raises.
        batch_tokens: Positions of a batch, padding counted.
        watch: Told how many sentences were computed.

    Yields:
        Maps of a sentence.

    Raises:
        InputError: For a model that is no BERT, or a sentence that cannot be used.
        UnavailableError: If memory does not suffice for small batches.
    """
    if not isinstance(model, PretrainedBert):
        raise InputError(
            f"probes read the attention of encoders; {model.name!r} is none\nname a BERT"
        )
    bad = BadRows() if bad is None else bad
    subjects = map(subject_of, sentences)
    for read, seen in whole_maps(model, subjects, truncate, bad, batch_tokens, watch):
        weights = layer_weights(seen, seen.layers)
        yield word_maps_of(weights, read.layout, seen.layers, seen.heads)


def whole_maps(
    model: PretrainedBert,
    subjects: Iterable[Subject],
    truncate: bool,
    bad: BadRows,
    batch_tokens: int | None,
    watch: Callable[[int], object],
) -> Iterator[tuple[Read, Seen]]:
    """Attention between the pieces of texts, in order; arguments as for `word_maps`.

    Args:
        model: A BERT with its tokenizer.
        subjects: The texts.
        truncate: Whether those over the limit are cut.
        bad: Takes those that cannot be used.
        batch_tokens: Positions of a batch.
        watch: Told how many were computed.

    Yields:
        What was read, and what attention saw of it.
    """
    held: collections.deque[list[Read]] = collections.deque()
    options = Options(capture=Capture(weights=True), truncate=truncate, batch_tokens=batch_tokens)
    texts = _texts(model, subjects, truncate, bad, held)
    for (shard,) in extract_shards([model], texts, options):
        read = held.popleft()
        for found, trace in zip(read, shard.traces, strict=True):
            assert trace.encoder is not None
            yield found, trace.encoder
        watch(len(read))


def _texts(
    model: PretrainedBert,
    subjects: Iterable[Subject],
    truncate: bool,
    bad: BadRows,
    held: collections.deque[list[Read]],
) -> Iterator[Texts]:
    """The texts that can be read, window by window; what was read is put aside."""
    rest = iter(subjects)
    while some := list(itertools.islice(rest, _WINDOW)):
        read: list[Read] = []
        for start in range(0, len(some), TOGETHER):
            read += read_subjects(model, some[start : start + TOGETHER], truncate, bad)
        if read:
            held.append(read)
            yield Texts([found.reading.told.texts[0][0] for found in read])


def untrained(model: Pretrained, seed: int = 0) -> Pretrained:
    """The same model with parameters as before any training: a baseline for probes.

    Args:
        model: A BERT, a GPT-2 or an encoder-decoder.
        seed: Of the parameters.
    """
    given = {"input_ids": np.ones((1, 2), np.int32)}
    if isinstance(model, PretrainedSeq2Seq):
        given["decoder_input_ids"] = given["input_ids"]
    params = jax.jit(model.module.init)(jax.random.key(seed), **given)["params"]
    return dataclasses.replace(model, params=params, name=f"{model.name}, untrained")
