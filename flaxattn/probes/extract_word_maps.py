# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an encoder over sentences with trees and hands out attention between their words.

Sentences are read as for scores of heads; what probes make of the maps is in `flaxattn.measures`.
"""

import collections
import itertools
from collections.abc import Iterable, Iterator

from flaxattn.corpus.dependency_trees import Sentence
from flaxattn.corpus.texts import Text, annotated_text
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.pipeline.extraction import Options, extract_shards
from flaxattn.pipeline.labelled_texts import LabelledText, label_texts
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pipeline.tokenize_texts import TOGETHER, groups_of
from flaxattn.pretrained.pretrained_bert import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.probes.word_maps import WordMaps, word_maps_of
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.selection import layer_weights

_WINDOW = 4 * TOGETHER  # sentences whose maps between tokens are in memory


def word_maps(
    model: Pretrained,
    sentences: Iterable[Sentence],
    reading: ReadingOptions = DEFAULTS,
) -> Iterator[WordMaps]:
    """Attention between the words of sentences, in order.

    Memory: 4 L H N² bytes for each of 256 sentences of N positions, and what the caller keeps.

    Args:
        model: A BERT with its tokenizer.
        sentences: With their trees.
        reading: How they are read.

    Yields:
        Maps of a sentence.

    Raises:
        InputError: For a model that is not a BERT, or a sentence that cannot be used.
        UnavailableError: If memory does not suffice for small batches.
    """
    if not isinstance(model, PretrainedBert):
        raise InputError(
            f"probes read the attention of encoders; {model.name!r} is none\nname a BERT"
        )
    for read, record in whole_maps(model, map(annotated_text, sentences), reading):
        weights = layer_weights(record, record.layers, allow_nan=True)
        yield word_maps_of(weights, read.layout, record.layers, record.heads)


def whole_maps(
    model: PretrainedBert, texts: Iterable[Text], reading: ReadingOptions
) -> Iterator[tuple[LabelledText, AttentionRecord]]:
    """Attention between the tokens of texts, in order."""
    held: collections.deque[list[LabelledText]] = collections.deque()
    maps, tokens = Capture(weights=True), reading.batch_tokens
    options = Options(
        capture=maps,
        truncate=reading.truncate,
        batch_tokens=tokens,
        allow_nonfinite=reading.allow_nonfinite,
    )
    for (shard,) in extract_shards([model], _labelled(model, texts, reading, held), options):
        read = held.popleft()
        for found, trace in zip(read, shard.traces, strict=True):
            assert trace.encoder is not None
            yield found, trace.encoder
        reading.watch("reading heads", len(read))


def _labelled(
    model: PretrainedBert,
    texts: Iterable[Text],
    reading: ReadingOptions,
    held: collections.deque[list[LabelledText]],
) -> Iterator[list[Text]]:
    """The texts that can be read, window by window; `held` gets them with their labels."""
    for window in groups_of(itertools.islice(texts, reading.limit), _WINDOW):
        groups = groups_of(window, TOGETHER)
        read = [one for g in groups for one in label_texts(model, g, reading)]
        if read:
            held.append(read)
            yield [one.text for one in read]
