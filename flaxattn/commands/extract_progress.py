# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Progress of an extraction: a bar on a terminal, plain lines elsewhere.

All of it goes to standard error. Nothing is computed here but rates.
"""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from flaxattn.pipeline.progress_reporter import duration
from flaxattn.store.job import JobReport, Watcher
from flaxattn.store.job_plan import ShardPlan
from flaxattn.store.shard_writer import ShardReport

_PAUSE = 10.0  # seconds between two lines


class ExtractionProgress(Watcher):
    """Shows how an extraction goes. A context manager.

    Args:
        console: where to.
        clock: seconds; a test has its own.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = (SpinnerColumn(), BarColumn(24), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("starting", total=None)
        self._last = clock()
        self._todo: Sequence[ShardPlan] = ()
        self._done: list[ShardPlan] = []
        self._bytes = 0
        self._began = self._first = clock()

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()

    def planning(self, texts: int, tokens: int) -> None:
        """Texts and tokens that were found until now."""
        self._tell(f"planning: {texts:,} texts, {tokens:,} tokens")

    def planned(self, report: JobReport, shards: Sequence[ShardPlan], free: int) -> None:
        """Announce the work to be done and its size."""
        self._todo, self._began = shards, self._clock()
        if self._bar:
            self._bar.update(self._task, total=sum(shard.tokens for shard in shards) or 1)
        there = f"; {report.there} are there" if report.there else ""
        size = sum(shard.bytes for shard in shards)
        told = (
            f"{report.texts:,} texts, {report.tokens:,} tokens: {len(shards)} of {report.shards} "
            f"shards to compute{there}, at most {amount(size)}; {amount(free)} are free"
        )
        self._console.print(told, highlight=False, soft_wrap=True)
        self._tell("the first shard tells how long it takes", once=bool(shards))

    def committed(self, shard: ShardPlan, reports: Sequence[ShardReport]) -> None:
        """Report the shards that were committed, the rate and the time left."""
        self._done.append(shard)
        self._bytes += sum(report.bytes for report in reports)
        if len(self._done) == 1:
            self._first = self._clock()
        if self._bar:
            self._bar.update(self._task, completed=sum(shard.tokens for shard in self._done))
        self._tell(self._rates(), once=len(self._done) == 1)

    def _rates(self) -> str:
        texts = sum(shard.stop - shard.start for shard in self._done)
        tokens = sum(shard.tokens for shard in self._done)
        seconds = max(self._clock() - self._began, 1e-9)
        return (
            f"shard {len(self._done)} of {len(self._todo)}: {texts:,} texts, "
            f"{texts / seconds:,.1f} texts/s, {tokens / seconds:,.0f} tokens/s, "
            f"{amount(self._bytes)}, {duration(self._left())} left"
        )

    def _left(self) -> float:
        """Seconds, by tokens; the first shard counts only while it is alone: it compiles."""
        done = [shard.tokens for shard in self._done]
        rest = sum(shard.tokens for shard in self._todo) - sum(done)
        since, measured = (
            (self._first, sum(done[1:])) if len(done) > 1 else (self._began, sum(done))
        )
        return (self._clock() - since) * rest / max(measured, 1)

    def _tell(self, line: str, once: bool = False) -> None:
        if self._bar:
            self._bar.update(self._task, description=line)
        elif once or self._clock() - self._last >= _PAUSE:
            self._last = self._clock()
            self._console.print(line, highlight=False, soft_wrap=True)


def amount(size: int) -> str:
    """Bytes as people say them.

    Args:
        size: bytes.
    """
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6), ("kB", 3)):
        if size >= 10**power:
            return f"{size / 10**power:.1f} {unit}"
    return f"{size} bytes"
