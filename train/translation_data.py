# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs of sentences for translation: files, vocabularies, tokens, and buckets by length."""

import difflib
import functools
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.input_files import kind_of
from flaxattn.corpus.rows import Row, read_rows, text_of
from flaxattn.corpus.texts import read_parallel
from flaxattn.errors import InputError
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import EOS, PAD, train_bpe
from flaxattn.train.recipe import TranslationRecipe

_TABLES = ("tsv", "csv", "jsonl", "parquet")
_NESTED = "translation"
_MOST = 0.1  # share of the pairs that may be held out


class TranslationPair(NamedTuple):
    """A sentence with its translation, and where they come from; the file is the source's."""

    source: str
    target: str
    file: str
    line: int


def read_pairs(
    files: Sequence[Path], source: str, target: str, bad: BadRows
) -> list[TranslationPair]:
    """All usable pairs, in order."""
    kinds = [kind_of(path) for path in files]
    if files and all(kind in _TABLES for kind in kinds):
        named = zip(files, kinds, strict=True)
        pairs = [p for path, kind in named for p in _of_table(path, kind, source, target, bad)]
    elif len(files) == 2 and not any(kind in _TABLES for kind in kinds):
        pairs = list(_of_lines(files[0], files[1], bad))
    else:
        raise InputError(
            "this is not parallel text\n"
            f"received {', '.join(map(str, files)) or 'no file'}\n"
            "name two text files, source first, or tables: .tsv .csv .jsonl .parquet"
        )
    if not pairs:
        left_out = f", {sum(bad.counts.values())} problems" if bad.counts else ""
        raise InputError(
            f"no pair to learn from in {', '.join(map(str, files))}\n"
            f"received {bad.rows_read} rows{left_out}\ngive files that hold sentences"
        )
    return pairs


def held_out(
    pairs: Sequence[TranslationPair], count: int
) -> tuple[list[TranslationPair], list[TranslationPair]]:
    """Pairs to learn from, and others to judge by; equal pairs stay on one side."""
    count = max(1, min(count, int(_MOST * len(pairs))))
    ranks = [_digest(pair.source, pair.target) for pair in pairs]
    limit = sorted(ranks)[count - 1]
    sides: tuple[list[TranslationPair], list[TranslationPair]] = ([], [])
    for pair, rank in zip(pairs, ranks, strict=True):
        sides[rank <= limit].append(pair)
    return sides


def fingerprint(pairs: Sequence[TranslationPair]) -> str:
    """SHA-256 of the texts of pairs, in their order."""
    return _digest(*(text for pair in pairs for text in pair[:2])).hex()


def _digest(*texts: str) -> bytes:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode())
        digest.update(b"\0")
    return digest.digest()


def _of_lines(first: Path, second: Path, bad: BadRows) -> Iterator[TranslationPair]:
    for one, two in read_parallel(first, second, bad):
        yield TranslationPair(one.body.strip(), two.body.strip(), str(first), one.number)


def _of_table(
    path: Path, kind: str, source: str, target: str, bad: BadRows
) -> Iterator[TranslationPair]:
    named = bool(source and target)
    if not named and kind in ("jsonl", "parquet"):
        raise InputError(
            f"{path}: the languages are not named\n"
            f"source is {source!r}, target is {target!r}\n"
            "name both, for example --source-lang de --target-lang en"
        )
    names = (source, target) if named else ("source", "target")
    wanted = names if kind in ("tsv", "csv") else None
    for row in read_rows(path, wanted, bad, header=named):
        values = _translations(row, names, bad)
        read = values and text_of(values, names[0], bad)
        wrote = values and read and text_of(values, names[1], bad)
        if read and wrote:
            yield TranslationPair(read.strip(), wrote.strip(), row.file, row.line)


def _translations(row: Row, names: tuple[str, str], bad: BadRows) -> Row | None:
    """The row with both languages as its values; None, and a report, where one is missing."""
    values: Any = row.values.get(_NESTED, row.values)
    if not isinstance(values, dict):
        message = f"expected an object of languages, received {type(values).__name__}"
        bad.report(Problem(row.file, row.line, _NESTED, "language", message, excerpt(values)))
        return None
    for name in names:
        if name not in values:
            near = difflib.get_close_matches(name, list(values), 1)
            hint = f"the nearest is {near[0]!r}; " if near else ""
            there = ", ".join(excerpt(str(key)) for key in list(values)[:8]) or "none"
            message = f"there is no language {name!r}; {hint}there are: {there}"
            bad.report(Problem(row.file, row.line, "", "language", message))
            return None
    return row._replace(values=values)


class TranslationBatch(NamedTuple):
    """B pairs padded to one bucket, S = T; empty rows fill the last batch of a bucket.

    Attributes:
        input_ids: Source tokens; a filling row has the end token alone.
        attention_mask: 1 on source tokens, 0 on padding.
        labels: Target tokens.
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
