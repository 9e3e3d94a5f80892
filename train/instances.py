# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sentence pairs from stretches of a corpus: BERT's instances as pointers, not as ids.

The construction is that of the BERT paper's code (`create_pretraining_data.py`). It looks at the
lengths of sentences only. Masks are drawn later, see `flaxattn.train.pretraining_data`.
"""

import random
from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flaxattn.errors import InputError
from flaxattn.text.tokenizer import longest_first
from flaxattn.train.columns import Column, mapped
from flaxattn.train.corpus import TokenCorpus
from flaxattn.train.draws import raw_draws

SPECIAL_TOKENS = 3  # [CLS] first [SEP] second [SEP]
_AT_ONCE = 2**16  # pairs

# A segment is `length` tokens of the corpus from token `start` on.
PAIR = np.dtype(
    [
        ("first", np.int64),
        ("second", np.int64),
        ("first_length", np.int32),
        ("second_length", np.int32),
        ("is_random", np.bool_),
    ]
)


class SegmentPair(NamedTuple):
    """Two segments, by their first token in the corpus and their length; a row of `PAIR`."""

    first: int
    second: int
    first_length: int
    second_length: int
    is_random: bool


class Outline(NamedTuple):
    """Starts of documents and sentences of a corpus; indexing gives plain ints, quickly.

    Attributes:
        sentences: first token of every sentence, and the end.
        documents: first sentence of every document, and the end.
        members: numbers of the documents that may be used.
    """

    sentences: memoryview
    documents: memoryview
    members: memoryview

    @classmethod
    def of(cls, corpus: TokenCorpus) -> "Outline":
        """The outline of a corpus, still on disk."""
        return cls(*map(memoryview, (corpus.sentences, corpus.documents, corpus.members)))


def cut_document(
    outline: Outline, number: int, length: int, short_prob: float, rng: random.Random
) -> list[SegmentPair]:
    """Sentence pairs of one document (BERT paper §A.2, as coded)."""
    bounds, room, draw = outline.sentences, length - SPECIAL_TOKENS, rng.random
    target = 2 + int(draw() * (room - 1)) if draw() < short_prob else room
    i, end = outline.documents[number], outline.documents[number + 1]
    pairs = []
    while i < end:
        start = bounds[i]
        stop = bisect_left(bounds, start + target, i + 1, end)
        middle = i + 1 + int(draw() * (stop - i - 1)) if stop - i > 1 else stop
        first_length = bounds[middle] - start
        is_random = stop - i == 1 or draw() < 0.5
        if is_random:
            second, second_length = _random_segment(outline, number, target - first_length, rng)
            i = middle  # the unused sentences go back
        else:
            second = bounds[middle]
            second_length = bounds[stop] - second
            i = stop
        excess = first_length + second_length - room
        if excess > 0:
            kept = longest_first((first_length, second_length), excess)
            start += _front(first_length - kept[0], rng)
            second += _front(second_length - kept[1], rng)
            first_length, second_length = kept
        pairs.append(SegmentPair(start, second, first_length, second_length, is_random))
    return pairs


def _front(cut: int, rng: random.Random) -> int:
    """Number of tokens to drop from the front: each with probability one half."""
    return rng.getrandbits(cut).bit_count()


def _random_segment(
    outline: Outline, number: int, wanted: int, rng: random.Random
) -> tuple[int, int]:
    """Start and length of some sentences of another document, up to the first that is enough."""
    bounds, members = outline.sentences, outline.members
    other = number
    for _ in range(10):
        other = members[int(rng.random() * len(members))]
        if other != number:
            break
    begin, end = outline.documents[other], outline.documents[other + 1]
    i = begin + int(rng.random() * (end - begin))
    start = bounds[i]
    return start, bounds[bisect_left(bounds, start + wanted, i + 1, end)] - start


def write_plan(path: Path, corpus: TokenCorpus, length: int, short_prob: float, key: str) -> int:
    """Write the pairs of one pass over a corpus, shuffled, as an array of `PAIR`.

    Takes 16 bytes of memory per pair while they are shuffled.
    """
    if length < SPECIAL_TOKENS + 2:
        raise InputError(f"recipe: length {length} has no room for a pair of sentences; 5 has")
    ordered = path.with_name(f"{path.stem}-ordered.npy")
    outline, rng = Outline.of(corpus), random.Random()
    with Column(ordered, PAIR) as column:
        pairs: list[SegmentPair] = []
        for number in outline.members:
            rng.seed(f"{key}/{number}")
            pairs += cut_document(outline, number, length, short_prob, rng)
            if len(pairs) >= _AT_ONCE:
                column.extend(np.array(pairs, PAIR))
                pairs = []
        column.extend(np.array(pairs, PAIR))
    count = len(column)
    order = np.argsort(raw_draws(f"{key}/order", 0, 1, count)[0], kind="stable")
    source = mapped(ordered)
    with Column(path, PAIR) as column:
        for start in range(0, count, _AT_ONCE):
            column.extend(source[order[start : start + _AT_ONCE]])
    ordered.unlink()
    return count
