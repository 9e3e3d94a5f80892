# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Batches for BERT pretraining by number: rows of a plan, their ids, and masks drawn afresh.

A batch is a function of corpus, recipe and step alone, so it is the same for any number of hosts,
worker processes and restarts. This file knows no model and no loss.
"""

import dataclasses
from bisect import bisect_right
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32

from flaxattn.errors import InputError
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.train.corpus import TokenCorpus
from flaxattn.train.draws import raw_draws
from flaxattn.train.masking import Masked, choose_masks, continuation_pieces, draws_needed
from flaxattn.train.packing import (
    AnyArray,
    Packing,
    find_places,
    gather_predictions,
    lengths,
    packing_of,
    spread,
)
from flaxattn.train.plans import Plans
from flaxattn.train.recipe import PretrainRecipe


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
        """The special ids and the pieces that go on with a word."""
        t = tokenizer
        pieces = continuation_pieces(t)
        return cls(t.vocab_size, t.cls_id, t.sep_id, t.pad_id, t.mask_id, pieces)


class Batches:
    """Any rows of any pass over a corpus as a batch.

    Args:
        corpus: one side of the documents.
        tokenizer: the one whose ids the corpus holds.
        recipe: rows, masking and seed.
        label: keeps the random numbers of training and evaluation apart.
        part: which part of every batch this host wants.
        parts: how many hosts share a batch.

    Raises:
        InputError: a batch has no equal parts.
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
        corpus: one side of the documents.
        tokenizer: the one whose ids the corpus holds.
        recipe: every number.
        label: keeps the random numbers of training and evaluation apart.
        part: which part of every batch this host wants.
        parts: how many hosts share a batch.
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
