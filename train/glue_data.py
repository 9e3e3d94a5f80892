# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From examples to batches of few shapes: tokens, length buckets, an order per epoch.

Every example is seen exactly once per epoch. Nothing here reads a file: see `glue_files`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.text.tokenizer import Tokenizer, longest_first
from flaxattn.train.glue_files import GlueExample
from flaxattn.train.recipe import GlueRecipe

_WINDOW = 64  # batches whose examples are sorted by length together
_TOGETHER = 1024  # texts per call of the tokenizer


class GlueBatch(NamedTuple):
    """B sequences padded to a bucket S; rows of weight 0 fill the last batch of an epoch.

    Attributes:
        input_ids: token ids.
        attention_mask: 1 on tokens, 0 on padding.
        token_type_ids: 0 for the first text, 1 for the second.
        label: label id, or the number of a regression.
        weight: 1 for an example, 0 for filling.
    """

    input_ids: Int[np.ndarray, "B S"]
    attention_mask: Int[np.ndarray, "B S"]
    token_type_ids: Int[np.ndarray, "B S"]
    label: Float[np.ndarray, " B"]
    weight: Float[np.ndarray, " B"]


class EncodedExamples(NamedTuple):
    """N tokenised examples, one after the other.

    Attributes:
        ids: token ids of all.
        types: token types of all.
        starts: where each begins; the last entry is the end.
        label: label id or number; 0 where there is none.
        position: see `GlueExample`.
        file: number of the file in `files`.
        line: line in it.
        files: their names.
        pad_id: what batches are padded with.
        truncated: how many were cut to fit.
    """

    ids: Int[np.ndarray, " T"]
    types: Int[np.ndarray, " T"]
    starts: Int[np.ndarray, " N+1"]
    label: Float[np.ndarray, " N"]
    position: Int[np.ndarray, " N"]
    file: Int[np.ndarray, " N"]
    line: Int[np.ndarray, " N"]
    files: tuple[str, ...]
    pad_id: int
    truncated: int

    @property
    def size(self) -> int:
        """N."""
        return len(self.label)

    @property
    def lengths(self) -> Int[np.ndarray, " N"]:
        """Tokens of each example."""
        return np.diff(self.starts)

    def name(self, number: int) -> str:
        """File and line of an example."""
        return f"{self.files[self.file[number]]}:{self.line[number]}"

    def batch(
        self, numbers: Int[np.ndarray, " B"], length: int, weight: Float[np.ndarray, " B"]
    ) -> GlueBatch:
        """The batch of some examples."""
        shape = (len(numbers), length)
        ids, types = np.full(shape, self.pad_id, np.int32), np.zeros(shape, np.int32)
        mask = np.zeros(shape, np.int32)
        for row, number in enumerate(numbers):
            begin, end = self.starts[number], self.starts[number + 1]
            ids[row, : end - begin] = self.ids[begin:end]
            types[row, : end - begin] = self.types[begin:end]
            mask[row, : end - begin] = 1
        return GlueBatch(ids, mask, types, self.label[numbers], weight)


def encode(
    examples: Sequence[GlueExample], tokenizer: Tokenizer, max_length: int, bad: BadRows
) -> EncodedExamples:
    """Tokenise examples; those too long lose tokens one by one from their longer text."""
    rows: list[tuple[list[int], list[int]]] = []
    kept: list[GlueExample] = []
    truncated = 0
    for start in range(0, len(examples), _TOGETHER):
        some = examples[start : start + _TOGETHER]
        for example, row in zip(some, _encode(some, tokenizer, max_length), strict=True):
            if row is None:
                empty = "the tokenizer leaves nothing of the text"
                found = excerpt(example.first)
                bad.report(Problem(example.file, example.line, "", "empty", empty, found))
                continue
            rows.append(row[:2])
            kept.append(example)
            truncated += row[2] > 0
    files = tuple(dict.fromkeys(example.file for example in kept))
    number = {file: i for i, file in enumerate(files)}
    flat = [np.array([i for row in rows for i in row[side]], np.int32) for side in (0, 1)]
    return EncodedExamples(
        ids=flat[0],
        types=flat[1].astype(np.int8),
        starts=np.cumsum([0, *(len(row[0]) for row in rows)]),
        label=np.array([0 if e.label is None else e.label for e in kept], np.float32),
        position=np.array([e.position for e in kept], np.int32),
        file=np.array([number[e.file] for e in kept], np.int32),
        line=np.array([e.line for e in kept], np.int64),
        files=files,
        pad_id=tokenizer.pad_id,
        truncated=truncated,
    )


def bucket_lengths(recipe: GlueRecipe) -> tuple[int, ...]:
    """Lengths that batches are padded to, ascending; none above `max_length`."""
    return tuple(sorted({min(length, recipe.max_length) for length in recipe.buckets}))


def bucket(length: int, buckets: Sequence[int]) -> int:
    """The shortest of `buckets` that holds a length."""
    return next(size for size in buckets if size >= length)


class GlueFeed:
    """Batches by number, as `loop.Feed` wants them.

    In an epoch, examples are shuffled, cut into windows of 64 batches, sorted by length inside a
    window and cut into batches, which are shuffled. All of it depends on (seed, epoch) alone.
    """

    def __init__(
        self, data: EncodedExamples, recipe: GlueRecipe, part: int = 0, parts: int = 1
    ) -> None:
        """Take the examples of all hosts, of which this one gets a part of each batch."""
        self._data, self._recipe, self._part, self._parts = data, recipe, part, parts
        self._buckets = bucket_lengths(recipe)
        self._epoch, self._order = -1, list[Int[np.ndarray, " B"]]()

    def __len__(self) -> int:
        return self._recipe.steps

    def __getitem__(self, step: int) -> GlueBatch:
        numbers = self._numbers(step)
        size = self._recipe.batch_size
        weight = np.zeros(size, np.float32)
        weight[: len(numbers)] = 1
        length = bucket(int(self._data.lengths[numbers].max()), self._buckets)
        filled = np.concatenate([numbers, np.repeat(numbers[:1], size - len(numbers))])
        mine = slice(self._part * size // self._parts, (self._part + 1) * size // self._parts)
        return self._data.batch(filled[mine], length, weight[mine])

    def names(self, step: int) -> list[str]:
        """File and line of every example of the batch."""
        return [self._data.name(number) for number in self._numbers(step)]

    def _numbers(self, step: int) -> Int[np.ndarray, " b"]:
        per_epoch = -(-self._data.size // self._recipe.batch_size)
        epoch, place = divmod(step, per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._batches(epoch)
        return self._order[place]

    def _batches(self, epoch: int) -> list[Int[np.ndarray, " b"]]:
        random = np.random.default_rng([self._recipe.seed, epoch])
        order, size = random.permutation(self._data.size), self._recipe.batch_size
        lengths, batches = self._data.lengths, []
        for start in range(0, len(order), size * _WINDOW):
            window = order[start : start + size * _WINDOW]
            window = window[np.argsort(lengths[window], kind="stable")]
            batches += [window[i : i + size] for i in range(0, len(window), size)]
        return [batches[i] for i in random.permutation(len(batches))]


def _encode(
    examples: Sequence[GlueExample], tokenizer: Tokenizer, limit: int
) -> list[tuple[list[int], list[int], int] | None]:
    """Ids, types and how many tokens were cut; None where a text has no token."""
    backend = tokenizer.backend
    pairs = examples[0].second is not None
    extra = backend.num_special_tokens_to_add(pairs)
    ones = backend.encode_batch_fast([e.first for e in examples], add_special_tokens=False)
    seconds = [e.second or "" for e in examples] if pairs else []
    twos = backend.encode_batch_fast(seconds, add_special_tokens=False)
    rows: list[tuple[list[int], list[int], int] | None] = []
    for number, one in enumerate(ones):
        two = twos[number] if pairs else None
        lengths = (len(one), 0 if two is None else len(two))
        if not lengths[0] or (pairs and not lengths[1]):
            rows.append(None)
            continue
        removed = max(0, sum(lengths) + extra - limit)
        if removed:
            keep = longest_first(lengths, removed)
            one.truncate(keep[0])
            if two is not None:
                two.truncate(keep[1])
        joined = backend.post_process(one, two, True)
        rows.append((joined.ids, joined.type_ids, removed))
    return rows
