# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of spans that stand twice, the second time to be copied from the first.

Induction heads, which attend to what followed the present token before, form late in plain text:
a decoder that is small or reads little never needs them. Random tokens that are repeated can be
predicted in no other way (Olsson et al. 2022, section "Defining induction heads"). A span is

* random tokens, each id of the vocabulary as likely,
* random tokens, each as likely as it is in the text, or
* a passage of the text.

What cannot be known does not count in the loss: the first of two random spans, the token that
begins the second span, and the one that would follow it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int, Int32

from flaxattn.train.corpus import TokenCorpus
from flaxattn.train.lm_data import TextBatch
from flaxattn.train.lm_recipe import LanguageModelRecipe

UNIFORM, FREQUENT, PASSAGE = KINDS = ("uniform", "frequent", "passage")
"""What spans are made of, in the order of the recipe's `repeat_mix`."""
_STREAM = 0x5E9EA7  # sets these draws apart from those of the order of rows, which have one seed


class RepeatedText(NamedTuple):
    """One span, twice.

    Attributes:
        ids: its tokens; may begin with the end of a text.
        labels: the token that follows each; 0 after the last one.
        counted: 1 where a prediction counts.
    """

    ids: Int32[np.ndarray, " m"]
    labels: Int32[np.ndarray, " m"]
    counted: Float32[np.ndarray, " m"]


class RepeatedRows:
    """Rows by number: each depends on the seed, its number and the corpus alone."""

    def __init__(
        self, corpus: TokenCorpus, recipe: LanguageModelRecipe, vocabulary: int, end_id: int
    ) -> None:
        """Take the text that spans and frequencies come from."""
        starts = corpus.sentences[corpus.documents]
        self._begins, self._ends = starts[corpus.members], starts[corpus.members + 1]
        self._before = np.cumsum(self._ends - self._begins) - (self._ends - self._begins)
        self._total = int((self._ends - self._begins).sum())
        self._tokens, self._recipe = corpus.tokens, recipe
        self._known = np.delete(np.arange(vocabulary), end_id)
        self._end = end_id

    def __getitem__(self, number: int) -> TextBatch:
        """The row of a number, from 0, as a batch without B; there is no last one."""
        random = np.random.default_rng([self._recipe.seed, _STREAM, number])
        shortest, longest = self._recipe.repeat_spans
        block = self._recipe.block
        ids, mask, places, segments, labels = np.zeros((5, block), np.int32)
        counted = np.zeros(block, np.float32)
        place, text = 0, 0
        while (room := (block - place) // 2) >= shortest:
            length = int(random.integers(shortest, min(longest, room) + 1))
            one = self._text(random, length, 2 * length < block - place)
            stop, text = place + len(one.ids), text + 1
            ids[place:stop], labels[place:stop], counted[place:stop] = one
            places[place:stop], segments[place:stop] = np.arange(len(one.ids)), text
            mask[place:stop], place = 1, stop
        return TextBatch(ids, mask, places, segments, labels, counted)

    def _text(self, random: np.random.Generator, length: int, may_begin: bool) -> RepeatedText:
        """A span of at most `length` tokens, twice; half of those that have room begin a text."""
        kind = KINDS[random.choice(len(KINDS), p=self._recipe.repeat_mix)]
        span = self._span(random, kind, length)
        begin = int(may_begin and random.random() < 0.5)
        ids = np.concatenate([np.full(begin, self._end), span, span]).astype(np.int32)
        target = np.arange(1, len(ids) + 1)
        second = begin + len(span)
        counted = (target > second) & (target < len(ids))
        if kind == PASSAGE:
            counted |= (target > begin) & (target < second)
        return RepeatedText(ids, np.append(ids[1:], 0), counted.astype(np.float32))

    def _span(
        self, random: np.random.Generator, kind: str, length: int
    ) -> Int[np.ndarray, " length"]:
        """The tokens of a span; a passage is shorter where its document is."""
        if kind == UNIFORM:
            return random.choice(self._known, length)
        if kind == FREQUENT:
            return self._tokens[self._places(random.integers(self._total, size=length))[0]]
        (start,), (document,) = self._places(random.integers(self._total, size=1))
        start = max(self._begins[document], min(start, self._ends[document] - length))
        return self._tokens[start : min(start + length, self._ends[document])]

    def _places(
        self, numbers: Int[np.ndarray, " n"]
    ) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """Find the n-th tokens of this side of the corpus, and the documents that they are in."""
        documents = np.searchsorted(self._before, numbers, side="right") - 1
        return self._begins[documents] + numbers - self._before[documents], documents
