# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What `flaxattn probe` reads: files, how much of them, and a model that reads them.

Everything heavy is imported when it runs. What becomes of what was read: see `probe`.
"""

import copy
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flaxattn.commands.text_lines import progress

if TYPE_CHECKING:
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.heads.coreference import PronounScores
    from flaxattn.heads.word_maps import WordMaps


class Files(NamedTuple):
    """Some files, and how many of their sentences are taken.

    Attributes:
        paths: Of the files.
        limit: Most sentences; None for all.
    """

    paths: tuple[Path, ...]
    limit: int | None

    def facts(self) -> dict[str, Any]:
        """Which files, ready for JSON."""
        from flaxattn.commands.head_corpus import described

        return {"files": described(self.paths), "limit": self.limit}


class Reader:
    """A model, and how it reads sentences.

    Attributes:
        name: Of the model, as it was asked for.
        model: Itself.
        truncate: Whether sentences over its limit are cut.
    """

    def __init__(self, name: str, bad: "BadRows", truncate: bool, batch_tokens: int | None) -> None:
        from flaxattn.loading import from_pretrained

        self.name, self.truncate = name, truncate
        self.model = from_pretrained(name)
        self._bad = bad
        self._how: dict[str, Any] = {"truncate": truncate, "batch_tokens": batch_tokens}

    @property
    def left_out(self) -> dict[str, int]:
        """Sentences that could not be used, by the code of the problem."""
        return dict(sorted(self._bad.counts.items()))

    def maps(self, files: Files) -> "Iterator[WordMaps]":
        """Attention between words of sentences with trees, one by one.

        Args:
            files: CoNLL-U.
        """
        from flaxattn.corpus.trees import read_sentences
        from flaxattn.extraction.word_maps import word_maps

        sentences = itertools.islice(read_sentences(files.paths, self._bad), files.limit)
        with progress("reading heads", files.limit) as seen:
            yield from word_maps(self.model, sentences, bad=self._bad, watch=seen, **self._how)

    def pronouns(self, files: Files, form: str) -> "Iterator[PronounScores]":
        """What heads say of pronouns, one by one.

        Args:
            files: Of one form.
            form: See `corpus.pronouns.read_pronouns`.
        """
        from flaxattn.corpus.pronouns import read_pronouns
        from flaxattn.extraction.pronoun_maps import pronoun_maps

        found = itertools.islice(read_pronouns(files.paths, form, self._bad), files.limit)
        with progress("reading heads", files.limit) as seen:
            yield from pronoun_maps(self.model, found, bad=self._bad, watch=seen, **self._how)

    def untrained(self, seed: int) -> "Reader":
        """The same with random parameters; what is wrong with sentences has been told.

        Args:
            seed: Of the parameters.
        """
        from flaxattn.corpus.bad_rows import BadRows
        from flaxattn.extraction.word_maps import untrained

        other = copy.copy(self)
        other.model, other._bad = untrained(self.model, seed), BadRows("skip")
        return other
