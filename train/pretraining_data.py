# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Batches for BERT pretraining by number: pairs of stretches of a corpus, their ids, and masks.

Pairs are drawn by number and packed into rows; masks are drawn anew at each step. A batch is a
function of corpus, recipe and step alone, so it is the same for any number of hosts, worker
processes and restarts. No model is run here.
"""

import dataclasses
import functools
import hashlib
import json
import random
import sys
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float32, Int, Int32, UInt64

from flaxattn.errors import InputError
from flaxattn.files import remove_abandoned, sha256_of, written_whole
from flaxattn.pipeline.batches import share_rows
from flaxattn.store.folder_lock import locked
from flaxattn.text.tokenizer import Tokenizer, longest_first
from flaxattn.train.corpus import Column, TokenCorpus, mapped
from flaxattn.train.recipe import PretrainRecipe

_BLOCK = 4  # numbers per count of Philox's counter


def raw_draws(key: str, first: int, rows: int, width: int) -> UInt64[np.ndarray, "B N"]:
    """Uniform 64-bit numbers of some consecutive rows.

    Counter-based (Philox 4x64, Salmon et al. 2011): nothing has to be drawn before.

    Args:
        key: Purpose of the numbers; different keys have independent numbers.
        first: Number of the first row.
        rows: B.
        width: N, numbers per row; part of what a row is, so the same in every call for a key.
    """
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "little")
    blocks = -(-width // _BLOCK)
    source = np.random.Philox(key=seed, counter=first * blocks)
    return source.random_raw(rows * blocks * _BLOCK).reshape(rows, -1)[:, :width]


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
        sentences: First token of every sentence, and the end.
        documents: First sentence of every document, and the end.
        members: Numbers of the documents that may be used.
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


_WINDOW = 2**15  # pairs that rows are made of together

AnyArray = np.ndarray | Array  # NumPy outside of jit, JAX inside


class Packing(NamedTuple):
    """Places of the pairs in packed rows; N is the number of places for pairs in a row.

    Attributes:
        segment_ids: Number of the pair, from 1; 0 on padding.
        position_ids: Place within the pair.
        starts: Position of each pair's [CLS]; 0 for a place without a pair.
        weights: 1 for a pair, 0 for a place without one.
    """

    segment_ids: Int32[AnyArray, "B S"]
    position_ids: Int32[AnyArray, "B S"]
    starts: Int32[AnyArray, "B N"]
    weights: Float32[AnyArray, "B N"]


class PackedPlaces(NamedTuple):
    """Places of n pairs, in order of rows: row, number in the row, first position."""

    row: Int[np.ndarray, " n"]
    number: Int[np.ndarray, " n"]
    start: Int[np.ndarray, " n"]


def row_table(sizes: Int[np.ndarray, " n"], length: int, most: int) -> Int[np.ndarray, "R most"]:
    """Indices of the pairs in each row of `share_rows`, -1 where there is none."""
    rows = share_rows(sizes.tolist(), (length,), most)
    table = np.full((len(rows), most), -1)
    for entries, row in zip(table, rows, strict=True):
        entries[: len(row.members)] = row.members
    return table


def write_packed(source: Path, target: Path, length: int, most: int, key: str) -> int:
    """Write a plan again with `most` entries of `PAIR` per row; empty pairs fill rows up."""
    pairs, count = mapped(source), 0
    with Column(target, PAIR) as column:
        for window, start in enumerate(range(0, len(pairs), _WINDOW)):
            some = np.append(pairs[start : start + _WINDOW], np.zeros(1, PAIR))  # -1 is empty
            table = row_table(lengths(some[:-1]), length, most)
            draws = raw_draws(f"{key}/rows/{window}", 0, 1, len(table))[0]
            column.extend(some[table[np.argsort(draws, kind="stable")]].reshape(-1))
            count += len(table)
    return count


def lengths(pairs: np.ndarray) -> Int32[np.ndarray, " n"]:
    """Tokens of `[CLS] first [SEP] second [SEP]` for each of an array of `PAIR`."""
    return pairs["first_length"] + pairs["second_length"] + np.int32(SPECIAL_TOKENS)


def find_places(rows: np.ndarray) -> PackedPlaces:
    """Find the places of the pairs of rows `[B, N]`, one after the other from the left."""
    row, number = np.nonzero(rows["first_length"])
    return places_of(row, number, lengths(rows[row, number]))


def places_of(
    row: Int[np.ndarray, " n"], number: Int[np.ndarray, " n"], sizes: Int[np.ndarray, " n"]
) -> PackedPlaces:
    """Find the places of n stretches of tokens, one after the other from the left of each row."""
    before = np.cumsum(sizes) - sizes
    return PackedPlaces(row, number, before - before[np.searchsorted(row, row)])


def spread(
    values: Int32[np.ndarray, "n S"],
    sizes: Int32[np.ndarray, " n"],
    places: PackedPlaces,
    rows: int,
) -> Int32[np.ndarray, "B S"]:
    """Move what pairs have in rows of their own to where they lie; 0 elsewhere."""
    length = values.shape[1]
    inside = np.arange(length) < sizes[:, None]
    target = (places.row * length + places.start)[:, None] + np.arange(length)
    result = np.zeros(rows * length, np.int32)
    result[target[inside]] = values[inside]
    return result.reshape(rows, length)


def packing_of(
    sizes: Int32[np.ndarray, " n"], places: PackedPlaces, shape: tuple[int, int, int]
) -> Packing:
    """The description of packed rows."""
    rows, length, most = shape
    numbers = np.broadcast_to(places.number[:, None] + 1, (len(sizes), length))
    place = np.broadcast_to(np.arange(length), numbers.shape)
    starts, weights = np.zeros((rows, most), np.int32), np.zeros((rows, most), np.float32)
    starts[places.row, places.number] = places.start
    weights[places.row, places.number] = 1
    return Packing(
        spread(numbers, sizes, places, rows), spread(place, sizes, places, rows), starts, weights
    )


def gather_predictions(
    positions: Int32[np.ndarray, "n p"],
    ids: Int32[np.ndarray, "n p"],
    weights: Float32[np.ndarray, "n p"],
    places: PackedPlaces,
    shape: tuple[int, int],
) -> tuple[Int32[np.ndarray, "B P"], Int32[np.ndarray, "B P"], Float32[np.ndarray, "B P"]]:
    """Gather the targets of pairs by row; zeros at the end."""
    pair, number = np.nonzero(weights)
    row = places.row[pair]
    column = np.arange(len(row)) - np.searchsorted(row, row)
    all_positions, all_ids = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    all_weights = np.zeros(shape, np.float32)
    all_positions[row, column] = positions[pair, number] + places.start[pair]
    all_ids[row, column] = ids[pair, number]
    all_weights[row, column] = 1
    return all_positions, all_ids, all_weights


class PretrainingBatch(NamedTuple):
    """Batch of one update; P is the number of gathered positions per row.

    Packed rows have N places for pairs, with a label each, and say in `packing` where pairs lie.
    """

    input_ids: Int32[AnyArray, "B S"]
    attention_mask: Int32[AnyArray, "B S"]
    token_type_ids: Int32[AnyArray, "B S"]
    masked_positions: Int32[AnyArray, "B P"]
    masked_ids: Int32[AnyArray, "B P"]
    masked_weights: Float32[AnyArray, "B P"]
    next_sentence_label: Int32[AnyArray, " B"] | Int32[AnyArray, "B N"]
    packing: Packing | None = None


class Pass(NamedTuple):
    """Updates that read one pass over the corpus: from `start` up to `stop`."""

    start: int
    stop: int
    epoch: int
    length: int


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Facts about a tokenizer that batches need; light to send to another process."""

    size: int
    cls_id: int
    sep_id: int
    pad_id: int
    mask_id: int
    continues: Bool[np.ndarray, " V"]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Vocabulary":
        """The special ids and the tokens that continue a word."""
        t = tokenizer
        continuations = continuation_tokens(t)
        return cls(t.vocab_size, t.cls_id, t.sep_id, t.pad_id, t.mask_id, continuations)


class Batches:
    """Any rows of any pass over a corpus as a batch.

    Args:
        corpus: One side of the documents.
        tokenizer: The one whose ids the corpus holds.
        recipe: Rows, masking and seed.
        label: Keeps the random numbers of training and evaluation apart.
        part: Number of the part of every batch that this host takes.
        parts: Number of hosts that share a batch.

    Raises:
        InputError: A batch has no equal parts.
    """

    def __init__(
        self,
        corpus: TokenCorpus,
        tokenizer: Tokenizer,
        recipe: PretrainRecipe,
        label: str,
        part: int,
        parts: int,
    ) -> None:
        self.recipe, self.part, self.parts = recipe, part, parts
        self.corpus, self.vocabulary = corpus, Vocabulary.of(tokenizer)
        self.plans = Plans(corpus, recipe, label, keep_all=label != "train")
        self._open: tuple[tuple[int, int], np.ndarray] | None = None
        for length in recipe.lengths:
            if recipe.rows(length) % parts:
                raise InputError(
                    f"recipe: a batch of {recipe.rows(length)} sequences of length {length} has "
                    f"no {parts} equal parts\nthere are {parts} hosts\nchange batch_size"
                )

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_open": None}  # a map of a file would travel as a copy of it

    def count(self, length: int, epoch: int) -> int:
        """Number of batches of a pass; an incomplete last one is left out."""
        found, rows = self.plans.count(length, epoch), self.recipe.rows(length)
        if found < rows:
            raise InputError(
                f"too little text for one {self.plans.label} batch\n"
                f"it takes {rows} rows, an epoch has {found}\n"
                "add text, or lower batch_size"
            )
        return found // rows

    def rows(self, length: int, epoch: int, number: int, whole: bool = False) -> np.ndarray:
        """The rows of pairs of a batch, `[B, N]`: of all hosts, or of this one."""
        found = self._open  # threads may ask for different passes
        if found is None or found[0] != (length, epoch):
            self._open = found = (length, epoch), self.plans.rows(length, epoch)
        rows = self.recipe.rows(length)
        share = rows if whole else rows // self.parts
        first = number * rows + (0 if whole else self.part * share)
        return found[1][first : first + share]

    def batch(self, length: int, epoch: int, number: int) -> PretrainingBatch:
        """This host's rows of batch `number` of a pass; they are padded to the length."""
        rows = self.rows(length, epoch, number)
        first = (number * self.recipe.rows(length) + self.part * len(rows)) * self.recipe.pack
        most = self.recipe.predictions(length)
        key = f"{self.plans.key(length, epoch)}/masks"
        draws = raw_draws(key, first, rows.size, draws_needed(length, most))
        if self.recipe.pack == 1:
            return self._one_per_row(rows[:, 0], length, draws)
        real = rows.reshape(-1)["first_length"] > 0
        alone = self._one_per_row(rows.reshape(-1)[real], length, draws[real])
        return packed(rows, alone, self.recipe.row_predictions(length), self.vocabulary.pad_id)

    def _one_per_row(self, pairs: np.ndarray, length: int, draws: np.ndarray) -> PretrainingBatch:
        """Each pair in a row of its own."""
        vocabulary, most = self.vocabulary, self.recipe.predictions(length)
        ids, text = lay_out(pairs, self.corpus.tokens, length, vocabulary)
        sizes = lengths(pairs)
        wanted = np.rint(sizes * self.recipe.masked_lm_prob).astype(np.int32)
        masked: Masked = choose_masks(
            ids,
            text,
            np.clip(wanted, 1, most),
            most,
            draws,
            vocabulary=vocabulary.size,
            mask_id=vocabulary.mask_id,
            continues=vocabulary.continues[ids] if self.recipe.whole_word_masking else None,
        )
        place, sizes = np.arange(length), sizes[:, None]
        second = (place > pairs["first_length"][:, None] + 1) & (place < sizes)
        return PretrainingBatch(
            masked.input_ids,
            (place < sizes).astype(np.int32),
            second.astype(np.int32),
            masked.positions,
            masked.ids,
            masked.weights,
            pairs["is_random"].astype(np.int32),
        )

    def names(self, length: int, epoch: int, number: int) -> list[str]:
        """Sources of the rows of the whole batch, for a person to find them."""
        rows = self.rows(length, epoch, number, whole=True)
        starts = self.corpus.sentences[self.corpus.documents[:-1]]
        names = []
        for index, row in enumerate(rows, number * len(rows)):
            for pair in row[row["first_length"] > 0]:
                tokens = pair["first"], pair["second"]
                one, other = np.searchsorted(starts, tokens, side="right") - 1
                names.append(f"epoch {epoch}, row {index}: documents {one} and {other}")
        return names


def lay_out(
    pairs: np.ndarray, tokens: np.ndarray, length: int, vocabulary: Vocabulary
) -> tuple[Int32[np.ndarray, "B S"], Bool[np.ndarray, "B S"]]:
    """Ids of `[CLS] first [SEP] second [SEP]`, padded, and which of them are text."""
    place, row = np.arange(length), np.arange(len(pairs))
    first, second = pairs["first_length"][:, None], pairs["second_length"][:, None]
    in_first = (place > 0) & (place <= first)
    text = in_first | ((place > first + 1) & (place < first + second + 2))
    source = np.where(in_first, pairs["first"][:, None] - 1, pairs["second"][:, None] - first - 2)
    ids = np.full(text.shape, vocabulary.pad_id, np.int32)
    ids[text] = tokens[(source + place)[text]]
    ids[:, 0] = vocabulary.cls_id
    ids[row, first[:, 0] + 1] = vocabulary.sep_id
    ids[row, first[:, 0] + second[:, 0] + 2] = vocabulary.sep_id
    return ids, text


def packed(rows: np.ndarray, alone: PretrainingBatch, most: int, pad_id: int) -> PretrainingBatch:
    """Pairs that share rows."""
    ids, mask, types, positions, hidden, weights, label = (np.asarray(x) for x in alone[:7])
    places, sizes = find_places(rows), mask.sum(1)
    count, length = len(rows), ids.shape[1]
    packing = packing_of(sizes, places, (count, length, rows.shape[1]))
    ids, types = (spread(values, sizes, places, count) for values in (ids, types))
    labels = np.zeros(rows.shape, np.int32)
    labels[places.row, places.number] = label
    return PretrainingBatch(
        np.where(packing.segment_ids > 0, ids, np.int32(pad_id)),
        (packing.segment_ids > 0).astype(np.int32),
        types,
        *gather_predictions(positions, hidden, weights, places, (count, most)),
        labels,
        packing,
    )


class PretrainingFeed:
    """The batches of a training run, in the form `flaxattn.train.loop` takes.

    A new pass over the corpus begins where the last one has no whole batch left, and with every
    phase of the recipe. Passes are numbered through all phases.

    Args:
        corpus: One side of the documents.
        tokenizer: The one whose ids the corpus holds.
        recipe: Every number.
        label: Keeps the random numbers of training and evaluation apart.
        part: Number of the part of every batch that this host takes.
        parts: Number of hosts that share a batch.
    """

    def __init__(
        self,
        corpus: TokenCorpus,
        tokenizer: Tokenizer,
        recipe: PretrainRecipe,
        label: str = "train",
        part: int = 0,
        parts: int = 1,
    ) -> None:
        self.recipe = recipe
        self.batches = Batches(corpus, tokenizer, recipe, label, part, parts)
        self._passes: list[Pass] = []

    def __len__(self) -> int:
        return self.recipe.steps

    def __getitem__(self, step: int) -> PretrainingBatch:
        """This host's rows of the batch of an update."""
        now = self.find(step)
        return self.batches.batch(now.length, now.epoch, step - now.start)

    def names(self, step: int) -> list[str]:
        """Sources of the rows of the whole batch."""
        now = self.find(step)
        return self.batches.names(now.length, now.epoch, step - now.start)

    def find(self, step: int) -> Pass:
        """The pass an update falls into."""
        if not 0 <= step < len(self):
            raise IndexError(f"update {step} of {len(self)}")
        passes = self._passes
        while not passes or passes[-1].stop <= step:
            passes = [*passes, self._after(passes)]
        self._passes = max(passes, self._passes, key=len)  # threads may ask for different updates
        return passes[bisect_right(passes, step, key=lambda p: p.start) - 1]

    def _after(self, passes: list[Pass]) -> Pass:
        epoch = len(passes)
        start = passes[-1].stop if passes else 0
        phase = self.recipe.phase(start)
        length = self.recipe.lengths[phase]
        left = bisect_right(range(len(self)), phase, lo=start, key=self.recipe.phase)
        return Pass(start, min(left, start + self.batches.count(length, epoch)), epoch, length)


class HeldoutBatches:
    """The first batches of a corpus at one length, always the same."""

    def __init__(self, batches: Batches, length: int, number: int) -> None:
        self._batches, self._length = batches, length
        self._places: list[tuple[int, int]] = []
        epoch = 0
        while len(self._places) < number:
            count = batches.count(length, epoch)
            self._places += [(epoch, i) for i in range(min(count, number - len(self._places)))]
            epoch += 1

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, number: int) -> PretrainingBatch:
        return self._batches.batch(self._length, *self._places[number])


def heldout_batches(
    corpus: TokenCorpus,
    tokenizer: Tokenizer,
    recipe: PretrainRecipe,
    length: int,
    part: int = 0,
    parts: int = 1,
) -> HeldoutBatches:
    """Yield the batches of an evaluation at one length: the recipe's `evaluate_batches`.

    A small corpus is gone through several times, with other pairs and masks.
    """
    batches = Batches(corpus, tokenizer, recipe, "heldout", part, parts)
    return HeldoutBatches(batches, length, recipe.evaluate_batches)


_LAST = np.uint64(2**64 - 1)


class Masked(NamedTuple):
    """A batch with hidden tokens; rows with fewer than P have zeros at the end.

    Attributes:
        input_ids: Ids that the model reads.
        positions: Chosen positions, ascending.
        ids: Ids that stood there before masking.
        weights: 1 where a position was chosen.
    """

    input_ids: Int32[np.ndarray, "B S"]
    positions: Int32[np.ndarray, "B P"]
    ids: Int32[np.ndarray, "B P"]
    weights: Float32[np.ndarray, "B P"]


def continuation_tokens(tokenizer: Tokenizer) -> Bool[np.ndarray, " V"]:
    """Mask of the tokens of a WordPiece vocabulary that continue a word, such as `##ing`."""
    table = np.zeros(tokenizer.vocab_size, bool)
    for token, number in tokenizer.backend.get_vocab(with_added_tokens=True).items():
        table[number] = token.startswith("##") and len(token) > 2
    return table


def draws_needed(length: int, most: int) -> int:
    """Numbers per row that `choose_masks` takes."""
    return length + 2 * most


def choose_masks(
    ids: Int32[np.ndarray, "B S"],
    candidates: Bool[np.ndarray, "B S"],
    counts: Int32[np.ndarray, " B"],
    most: int,
    draws: UInt64[np.ndarray, "B N"],
    *,
    vocabulary: int,
    mask_id: int,
    continues: Bool[np.ndarray, "B S"] | None = None,
) -> Masked:
    """Hide tokens: 80 % become the mask, 10 % stay, 10 % become any id of the vocabulary."""
    length = ids.shape[1]
    keys = np.where(candidates, draws[:, :length], _LAST)
    if continues is None:
        order = np.argsort(keys, axis=1)[:, :most]
        counts = np.minimum(counts, candidates.sum(1))
        chosen = np.where(np.arange(order.shape[1]) < counts[:, None], order, length)
    else:
        picked = _whole_words(candidates, continues, counts, keys)
        chosen = np.where(picked, np.arange(length), length)
    chosen = np.sort(chosen, axis=1)[:, :most]
    chosen = np.pad(chosen, ((0, 0), (0, most - chosen.shape[1])), constant_values=length)
    real = chosen < length
    positions = np.where(real, chosen, 0).astype(np.int32)
    before = np.take_along_axis(ids, positions, axis=1)
    kind = draws[:, length : length + most] / 2.0**64
    anything = draws[:, length + most :] % np.uint64(vocabulary)
    after = np.where(kind < 0.8, mask_id, np.where(kind < 0.9, before, anything.astype(np.int32)))
    hidden = ids.copy()
    hidden[np.nonzero(real)[0], chosen[real]] = after[real]
    return Masked(hidden, positions, np.where(real, before, 0), real.astype(np.float32))


def _whole_words(
    candidates: Bool[np.ndarray, "B S"],
    continues: Bool[np.ndarray, "B S"],
    counts: Int32[np.ndarray, " B"],
    keys: UInt64[np.ndarray, "B S"],
) -> Bool[np.ndarray, "B S"]:
    """Positions of whole words, taken in random order as long as they fit."""
    rows, length = candidates.shape
    inside = candidates & continues
    inside[:, 1:] &= candidates[:, :-1]
    inside[:, 0] = False
    starts = candidates & ~inside
    word = np.where(candidates, np.cumsum(starts, axis=1), 0)  # from 1; 0 is not a word
    places = word + np.arange(rows)[:, None] * (length + 1)
    sizes = np.bincount(places[candidates], minlength=rows * (length + 1)).reshape(rows, -1)
    order = np.argsort(np.where(starts, keys, _LAST), axis=1)
    ranked = np.take_along_axis(word, order, axis=1)
    room, row = counts.astype(np.int64), np.arange(rows)
    taken = np.zeros(sizes.shape, bool)
    for rank in range(int(starts.sum(1).max(initial=0))):
        number = ranked[:, rank]
        size = sizes[row, number]
        fits = starts[row, order[:, rank]] & (size <= room)
        taken[row[fits], number[fits]] = True
        room = room - size * fits
        if not room.any():
            break
    return np.take_along_axis(taken, word, axis=1) & candidates


_COUNTS = "counts.json"
_KEPT = 2  # of the plans of one training run
_SAID_FROM = 50_000_000  # tokens; fewer are planned in seconds


@dataclasses.dataclass(frozen=True)
class Plans:
    """Plans of one label.

    Attributes:
        corpus: Corpus to plan.
        recipe: Seed, share of short sequences and pairs per row.
        label: Keeps the random numbers of training and evaluation apart.
        keep_all: Whether old plans stay.
    """

    corpus: TokenCorpus
    recipe: PretrainRecipe
    label: str
    keep_all: bool = False

    @property
    def folder(self) -> Path:
        """Folder of the plans."""
        return self.corpus.folder / "plans"

    @functools.cached_property
    def _prefix(self) -> str:
        made_of = [self.corpus.digest, self.recipe.seed, self.recipe.short_sequence_prob]
        made_of += [self.recipe.pack] * (self.recipe.pack > 1)
        return f"{self.label}-{hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]}"

    def key(self, length: int, epoch: int) -> str:
        """Key that the random numbers of a pass are drawn from."""
        return f"{self.recipe.seed}/{self.label}/{length}/{epoch}"

    def rows(self, length: int, epoch: int) -> np.ndarray:
        """The plan of a pass: an array `[R, N]` of `PAIR`, read through a map."""
        name = self._name(length, epoch)
        with locked(self.folder / ".lock"):
            self._clean(epoch)
            if not self._intact(name):
                self._make(name, length, epoch)
            return mapped(self.folder / f"{name}.npy").reshape(-1, self.recipe.pack)

    def count(self, length: int, epoch: int) -> int:
        """R, how many rows a pass has."""
        name = self._name(length, epoch)
        if name not in (counts := self._counts()):
            self.rows(length, epoch)
            counts = self._counts()
        return counts[name]["rows"]

    def _name(self, length: int, epoch: int) -> str:
        return f"{self._prefix}-{length}-{epoch}"

    def _counts(self) -> dict[str, Any]:
        try:
            found = json.loads((self.folder / _COUNTS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _intact(self, name: str) -> bool:
        path, known = self.folder / f"{name}.npy", self._counts().get(name)
        return known is not None and path.is_file() and sha256_of(path) == known["sha256"]

    def _make(self, name: str, length: int, epoch: int) -> None:
        recipe, key = self.recipe, self.key(length, epoch)
        if (size := len(self.corpus.tokens)) >= _SAID_FROM:
            what = f"pass {epoch + 1} at length {length} ({self.label})"
            print(f"planning {what}: {size:,} tokens", file=sys.stderr, flush=True)
        with written_whole(self.folder, last=_COUNTS) as staging:
            path = staging / f"{name}.npy"
            rows = write_plan(path, self.corpus, length, recipe.short_sequence_prob, key)
            if recipe.pack > 1:
                loose = path.rename(staging / f"{name}-loose.npy")
                rows = write_packed(loose, path, length, recipe.pack, key)
                loose.unlink()
            counts = {**self._counts(), name: {"rows": rows, "sha256": sha256_of(path)}}
            (staging / _COUNTS).write_text(json.dumps(counts, indent=1), encoding="utf-8")

    def _clean(self, epoch: int) -> None:
        """Remove plans that are no longer needed, and what killed processes left."""
        remove_abandoned(self.folder, ".*.part")
        if not self.keep_all:
            for path in self.folder.glob(f"{self.label}-*.npy"):
                ours = path.name.startswith(f"{self._prefix}-")
                if not ours or int(path.stem.rsplit("-", 1)[1]) <= epoch - _KEPT:
                    path.unlink(missing_ok=True)
