# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From pairs of sentences to batches of few shapes: vocabularies, tokens, buckets by length.

Every pair is seen exactly once per epoch. Nothing here reads a file: see `parallel_text`.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import EOS, PAD, train_bpe
from flaxattn.train.parallel_text import TranslationPair
from flaxattn.train.translation_recipe import TranslationRecipe


class TranslationBatch(NamedTuple):
    """B pairs padded to one bucket, S = T; empty rows fill the last batch of a bucket.

    Attributes:
        input_ids: source tokens; a filling row has the end token alone.
        attention_mask: 1 on source tokens, 0 on padding.
        labels: target tokens.
        label_mask: 1 on target tokens, 0 on padding and on filling rows.
    """

    input_ids: Int[np.ndarray, "B S"]
    attention_mask: Int[np.ndarray, "B S"]
    labels: Int[np.ndarray, "B T"]
    label_mask: Float[np.ndarray, "B T"]


class Vocabularies(NamedTuple):
    """Tokenizers of both languages; `target` is None where they share one vocabulary."""

    source: Tokenizer
    target: Tokenizer | None = None

    @property
    def writer(self) -> Tokenizer:
        """The vocabulary of the target language."""
        return self.target or self.source


class EncodedSide(NamedTuple):
    """N token sequences of one language, one after the other; each ends with `</s>`."""

    ids: Int[np.ndarray, " T"]
    starts: Int[np.ndarray, " N+1"]

    @property
    def lengths(self) -> Int[np.ndarray, " N"]:
        """Tokens of each."""
        return np.diff(self.starts)

    def padded(
        self, numbers: Int[np.ndarray, " b"], shape: tuple[int, int]
    ) -> tuple[Int[np.ndarray, "B S"], Int[np.ndarray, "B S"]]:
        """Ids and mask of some sequences, in the first rows of a batch."""
        ids, mask = np.full(shape, PAD, np.int32), np.zeros(shape, np.int32)
        for row, number in enumerate(numbers):
            begin, end = self.starts[number], self.starts[number + 1]
            ids[row, : end - begin] = self.ids[begin:end]
            mask[row, : end - begin] = 1
        return ids, mask


class EncodedPairs(NamedTuple):
    """N tokenised pairs, and the pairs they were."""

    source: EncodedSide
    target: EncodedSide
    pairs: list[TranslationPair]

    @property
    def size(self) -> int:
        """N."""
        return len(self.pairs)

    @property
    def lengths(self) -> Int[np.ndarray, " N"]:
        """Tokens of the longer side of each pair."""
        return np.maximum(self.source.lengths, self.target.lengths)

    def batch(self, numbers: Int[np.ndarray, " b"], shape: tuple[int, int]) -> TranslationBatch:
        """The batch of some pairs, filled up with empty rows."""
        ids, mask = self.source.padded(numbers, shape)
        labels, label_mask = self.target.padded(numbers, shape)
        ids[len(numbers) :, 0], mask[len(numbers) :, 0] = EOS, 1
        return TranslationBatch(ids, mask, labels, label_mask.astype(np.float32))


def learn_vocabularies(pairs: Sequence[TranslationPair], recipe: TranslationRecipe) -> Vocabularies:
    """One vocabulary of both languages, or one of each."""
    size, limit = recipe.vocab_size, recipe.max_position_embeddings
    learn = functools.partial(
        train_bpe, vocab_size=size, max_length=limit, split_digits=recipe.split_digits
    )
    if recipe.shared_vocabulary:
        both = (text for pair in pairs for text in (pair.source, pair.target))
        return Vocabularies(learn(both))
    return Vocabularies(learn(pair.source for pair in pairs), learn(pair.target for pair in pairs))


def encode_pairs(
    pairs: Sequence[TranslationPair],
    vocabularies: Vocabularies,
    recipe: TranslationRecipe,
    bad: BadRows,
) -> EncodedPairs:
    """Tokenise pairs."""
    sources = vocabularies.source.ids([pair.source for pair in pairs])
    targets = vocabularies.writer.ids([pair.target for pair in pairs])
    limit = recipe.max_length - 1  # room for the end
    kept = []
    for number, (pair, read, wrote) in enumerate(zip(pairs, sources, targets, strict=True)):
        if max(len(read), len(wrote)) <= limit:
            kept.append(number)
            continue
        side, tokens = ("source", read) if len(read) > limit else ("target", wrote)
        found = excerpt(pair.source if side == "source" else pair.target)
        message = f"the {side} has {len(tokens) + 1} tokens, max_length is {recipe.max_length}"
        bad.report(Problem(pair.file, pair.line, "", "over-long", message, found))
    return EncodedPairs(
        _side([sources[number] for number in kept]),
        _side([targets[number] for number in kept]),
        [pairs[number] for number in kept],
    )


def _side(rows: Sequence[Sequence[int]]) -> EncodedSide:
    ids = np.array([token for row in rows for token in (*row, EOS)], np.int32)
    return EncodedSide(ids, np.cumsum([0, *(len(row) + 1 for row in rows)]))


def buckets(
    data: EncodedPairs, recipe: TranslationRecipe, order: Int[np.ndarray, " N"]
) -> list[tuple[int, Int[np.ndarray, " b"]]]:
    """An order of pairs cut into batches: the length that each is padded to, and its pairs."""
    lengths = np.array(recipe.lengths)
    places = np.searchsorted(lengths, data.lengths[order])
    found = []
    for place, length in enumerate(recipe.lengths):
        members, rows = order[places == place], recipe.rows(length)
        found += [(length, members[i : i + rows]) for i in range(0, len(members), rows)]
    return found


class TranslationFeed:
    """Batches by number, as `loop.Feed` wants them.

    In an epoch, pairs are shuffled and dealt to the bucket that holds their longer side; the
    batches of all buckets are shuffled. All of it depends on (seed, epoch) alone.
    """

    def __init__(
        self, data: EncodedPairs, recipe: TranslationRecipe, part: int = 0, parts: int = 1
    ) -> None:
        """Take the pairs of all hosts, of which this one gets a part of each batch."""
        self._data, self._recipe, self._part, self._parts = data, recipe, part, parts
        self._per_epoch = batches_per_epoch(data, recipe)
        self._epoch, self._batches = -1, list[tuple[int, Int[np.ndarray, " b"]]]()

    def __len__(self) -> int:
        return self._recipe.steps

    def __getitem__(self, step: int) -> TranslationBatch:
        length, numbers = self._of(step)
        rows = self._recipe.rows(length)
        whole = self._data.batch(numbers, (rows, length))
        mine = slice(self._part * rows // self._parts, (self._part + 1) * rows // self._parts)
        return TranslationBatch(*(array[mine] for array in whole))

    def names(self, step: int) -> list[str]:
        """File and line of every pair of the batch."""
        pairs = [self._data.pairs[number] for number in self._of(step)[1]]
        return [f"{pair.file}:{pair.line}" for pair in pairs]

    def _of(self, step: int) -> tuple[int, Int[np.ndarray, " b"]]:
        epoch, place = divmod(step, self._per_epoch)
        if epoch != self._epoch:
            random = np.random.default_rng([self._recipe.seed, epoch])
            dealt = buckets(self._data, self._recipe, random.permutation(self._data.size))
            self._epoch, self._batches = epoch, [dealt[i] for i in random.permutation(len(dealt))]
        return self._batches[place]


def batches_per_epoch(data: EncodedPairs, recipe: TranslationRecipe) -> int:
    """Number of batches that hold every pair once."""
    return len(buckets(data, recipe, np.arange(data.size)))
