# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Options of every function that reads texts and runs a model over them: `ReadingOptions`."""

import dataclasses
from typing import Self

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.pipeline.progress_reporter import Watch, show_progress


@dataclasses.dataclass(frozen=True)
class ReadingOptions:
    """Options for reading texts, and for choosing those that count.

    >>> import flaxattn as fa
    >>> model, texts = fa.from_pretrained("tiny-bert"), ["The cat is very sad.", "It sleeps."]
    >>> stats = fa.head_stats(model, texts, reading=fa.ReadingOptions(limit=1))
    >>> stats.moments["mean", "next"].counts[0, 0]
    np.int64(1)

    Attributes:
        truncate: Whether texts over the model's limit are cut; words beyond it count nowhere.
        bad: Receives the texts that cannot be used: over the limit, or with a word that the
            tokenizer makes no token of; None raises at the first one.
        batch_tokens: Number of positions in a batch, padding included; None for the default of the
            device.
        watch: Receives progress; the default prints it to standard error.
        limit: Largest number of texts; None for all.
        lengths: Fewest and most positions of texts that count, special tokens included: scores
            compare best on texts of like lengths.
        allow_nonfinite: Whether attention and hidden states that are NaN or infinite are kept, and
            scores of them left out; otherwise they are an error that names model, layer and text.
    """

    truncate: bool = False
    bad: BadRows | None = None
    batch_tokens: int | None = None
    watch: Watch = show_progress
    limit: int | None = None
    lengths: tuple[int, int] | None = None
    allow_nonfinite: bool = False

    @property
    def problems(self) -> BadRows:
        """Receiver of texts that cannot be used, in any case."""
        return BadRows() if self.bad is None else self.bad

    @property
    def again(self) -> Self:
        """The same options for a second pass, in which bad texts are skipped without a report."""
        return dataclasses.replace(self, bad=BadRows("skip"))


DEFAULTS = ReadingOptions()
