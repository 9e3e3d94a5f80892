# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an encoder over sentences with trees and hands out attention between their words.

Sentences are read as for scores of heads; what probes make of the maps is in `flaxattn.measures`.
"""

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import Sentence
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.pipeline.chunks import TOGETHER
from flaxattn.pipeline.extraction import Options, Texts, extract_shards
from flaxattn.pipeline.labelled_texts import LabelledText, Subject, read_subjects, subject_of
from flaxattn.pretrained.pretrained_bert import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.probes.word_maps import WordMaps, word_maps_of
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.selection import layer_weights

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
) -> Iterator[tuple[LabelledText, AttentionRecord]]:
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
    held: collections.deque[list[LabelledText]] = collections.deque()
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
    held: collections.deque[list[LabelledText]],
) -> Iterator[Texts]:
    """The texts that can be read, window by window; what was read is put aside."""
    rest = iter(subjects)
    while some := list(itertools.islice(rest, _WINDOW)):
        read: list[LabelledText] = []
        for start in range(0, len(some), TOGETHER):
            read += read_subjects(model, some[start : start + TOGETHER], truncate, bad)
        if read:
            held.append(read)
            yield Texts([found.reading.told.texts[0][0] for found in read])
