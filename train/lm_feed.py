# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Batches for next-word prediction by number: rows of text in an order of their own, and repeats.

What is in a row is the business of `lm_data` and `lm_repeats`.
"""

import numpy as np
from jaxtyping import Int

from flaxattn.train.lm_data import TextBatch, TokenRows
from flaxattn.train.lm_recipe import LanguageModelRecipe
from flaxattn.train.lm_repeats import RepeatedRows


class TextFeed:
    """Batches by number, as `loop.Feed` wants them.

    Rows of text are shuffled anew in every epoch, by (seed, epoch) alone; a batch may hold the last
    rows of one and the first of the next. Behind them stand the rows of repeated spans, if the
    recipe has any.
    """

    def __init__(
        self,
        rows: TokenRows,
        recipe: LanguageModelRecipe,
        part: int = 0,
        parts: int = 1,
        *,
        repeats: RepeatedRows | None = None,
    ) -> None:
        """Take the rows of all hosts, of which this one gets a part of each batch."""
        self._rows, self._recipe, self._part, self._parts = rows, recipe, part, parts
        self._repeats = repeats
        self._orders: dict[int, Int[np.ndarray, " R"]] = {}

    def __len__(self) -> int:
        return self._recipe.steps

    def __getitem__(self, step: int) -> TextBatch:
        size, text = self._recipe.batch_size, self._recipe.text_rows
        first, stop = self._part * size // self._parts, (self._part + 1) * size // self._parts
        batch = self._rows.batch(self._numbers(step)[first:stop], stop - first)
        if self._repeats is not None:
            begin = step * self._recipe.repeated_rows
            for place in range(max(first, text), stop):
                row = self._repeats[begin + place - text]
                for column, values in zip(batch, row, strict=True):
                    np.asarray(column)[place - first] = values
        return batch

    def names(self, step: int) -> list[str]:
        """Document and tokens of every piece of the batch, and numbers of its repeated rows."""
        count = self._recipe.repeated_rows
        repeats = [f"repeated row {n}" for n in range(step * count, (step + 1) * count)]
        return self._rows.names(self._numbers(step)) + repeats

    def _numbers(self, step: int) -> Int[np.ndarray, " B"]:
        size = self._recipe.text_rows
        epochs, places = np.divmod(np.arange(step * size, (step + 1) * size), len(self._rows))
        known = self._orders
        self._orders = {e: known[e] if e in known else self._order(e) for e in set(epochs.tolist())}
        found = [self._orders[epoch][place] for epoch, place in zip(epochs, places, strict=True)]
        return np.array(found)

    def _order(self, epoch: int) -> Int[np.ndarray, " R"]:
        return np.random.default_rng([self._recipe.seed, epoch]).permutation(len(self._rows))
