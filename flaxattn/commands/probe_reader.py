# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs of `flaxattn probe`, and its progress.

Everything heavy is imported when it runs. The probes themselves are in `probe_kinds`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flaxattn.commands.report_run import ReportRun

if TYPE_CHECKING:
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.corpus.dependency_trees import Sentence
    from flaxattn.pipeline.reading_options import ReadingOptions
    from flaxattn.pretrained.pretrained_model import Pretrained


class Files(NamedTuple):
    """Some files, and how many of their sentences are taken.

    Attributes:
        paths: Paths of the files.
        limit: Most sentences; None for all.
    """

    paths: tuple[Path, ...]
    limit: int | None

    def facts(self) -> dict[str, Any]:
        """Describe the input files, ready for JSON."""
        from flaxattn.corpus.input_files import describe_files

        return {"files": describe_files(self.paths), "limit": self.limit}


class Sentences:
    """Sentences with trees, which can be read several times; problems are reported the first time.

    Args:
        files: That hold them.
        bad: Receives the sentences that cannot be used.
    """

    def __init__(self, files: Files, bad: "BadRows") -> None:
        self._files, self._bad = files, bad

    def __iter__(self) -> "Iterator[Sentence]":
        from flaxattn.corpus.bad_rows import BadRows
        from flaxattn.corpus.dependency_trees import read_sentences

        bad, self._bad = self._bad, BadRows("skip")
        return itertools.islice(read_sentences(self._files.paths, bad), self._files.limit)


@dataclasses.dataclass(frozen=True)
class ProbeSpec:
    """Options that every kind of probe has.

    Attributes:
        model: As it was named.
        files: Those to judge on, and those to learn from or to choose on.
        run: Folder of the report, and progress.
        bad: Takes what cannot be used.
        truncate: Whether texts over the model's limit are cut.
        batch_tokens: Positions of a batch.
        seed: Seed of everything that is drawn.
        as_json: Whether a program reads what is printed.
        allow_nonfinite: Whether NaN and infinity leave cells blank; otherwise they are an error.
    """

    model: str
    files: tuple[Files, Files]
    run: ReportRun
    bad: "BadRows"
    truncate: bool
    batch_tokens: int | None
    seed: int
    as_json: bool
    allow_nonfinite: bool = False

    def loaded(self) -> "Pretrained":
        """The model."""
        from flaxattn.pretrained.from_pretrained import from_pretrained

        self.run.progress(f"loading {self.model}", 0)
        return from_pretrained(self.model)

    def trees(self, number: int) -> "Sentences":
        """Sentences to judge on (0), or to learn from (1)."""
        return Sentences(self.files[number], self.bad)

    def data(self) -> list[dict[str, Any]]:
        """Describe the input files, ready for JSON."""
        return [files.facts() for files in self.files]

    def reading(self) -> "ReadingOptions":
        """Return the options with which sentences are read."""
        from flaxattn.pipeline.reading_options import ReadingOptions

        return ReadingOptions(
            self.truncate,
            self.bad,
            self.batch_tokens,
            self.run.progress,
            allow_nonfinite=self.allow_nonfinite,
        )

    def announce(
        self, stage: str, what: str, read: "Callable[[Files, BadRows], Iterable[Any]] | None" = None
    ) -> None:
        """Announce the work. Files are read once before, so that bad rows are refused early."""
        from flaxattn.corpus.bad_rows import BadRows

        bad = BadRows("fail" if self.bad.policy == "fail" else "skip")
        counts = []
        for files in self.files:
            count = 0
            for _ in read(files, bad) if read else Sentences(files, bad):
                self.run.progress("reading texts", 1)
                count += 1
            counts.append(count)
        learnt = f" and {counts[1]:,} to learn from" if self.files[1].paths else ""
        self.run.progress.announce(f"{counts[0]:,} texts to judge{learnt}, {self.model}: {what}")
        self.run.progress.expect(stage, sum(counts))
