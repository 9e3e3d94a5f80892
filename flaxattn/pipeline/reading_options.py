# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Options of every function that reads texts and runs a model over them: `ReadingOptions`."""

from collections.abc import Callable
from typing import NamedTuple, Self

from flaxattn.corpus.bad_rows import BadRows

Watch = Callable[[str, int], None]
"""Receives the name of a stage, and how many more texts, or epochs, it has finished."""


def _ignore(stage: str, count: int) -> None:
    """Report progress to nobody."""


class ReadingOptions(NamedTuple):
    """Options for reading texts.

    Attributes:
        truncate: Whether texts over the model's limit are cut; words beyond it count nowhere.
        bad: Receives the texts that cannot be used; None raises at the first one.
        batch_tokens: Number of positions in a batch, padding included.
        watch: Receives progress.
    """

    truncate: bool = False
    bad: BadRows | None = None
    batch_tokens: int | None = None
    watch: Watch = _ignore

    @property
    def again(self) -> Self:
        """The same options for a second pass, in which bad texts are skipped without a report."""
        return self._replace(bad=BadRows("skip"))
