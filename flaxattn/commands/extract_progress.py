# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Progress of an extraction: its plan, its size, and the shards that are committed.

Nothing is computed here but rates. How it is shown is decided in `pipeline.progress_reporter`.
"""

import time
from collections.abc import Callable, Sequence

from flaxattn.files import readable_size
from flaxattn.pipeline.progress_reporter import ProgressReporter
from flaxattn.store.job import JobReport, Watcher
from flaxattn.store.job_plan import ShardPlan
from flaxattn.store.shard_writer import ShardReport


class ExtractionProgress(Watcher):
    """Tells a reporter how an extraction goes.

    Args:
        progress: Shows it.
        clock: Seconds; a test has its own.
    """

    def __init__(
        self, progress: ProgressReporter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._progress, self._clock = progress, clock
        self._planned = 0
        self._todo: Sequence[ShardPlan] = ()
        self._done: list[ShardPlan] = []
        self._bytes = 0
        self._began = clock()

    def planning(self, texts: int, tokens: int) -> None:
        """Texts and tokens that were found until now."""
        if not self._planned:
            self._progress.expect("planning", None, "texts")
        self._progress("planning", texts - self._planned, f"{tokens:,} tokens")
        self._planned = texts

    def planned(self, report: JobReport, shards: Sequence[ShardPlan], free: int) -> None:
        """Announce the work to be done and its size."""
        self._todo, self._began = shards, self._clock()
        there = f"; {report.there} are there" if report.there else ""
        size = sum(shard.bytes for shard in shards)
        self._progress.announce(
            f"{report.texts:,} texts, {report.tokens:,} tokens: {len(shards)} of {report.shards} "
            f"shards to compute{there}, at most {readable_size(size)}; "
            f"{readable_size(free)} are free"
        )
        if shards:
            self._progress.announce("the time left is known after the first shard")
            self._progress.expect("extracting", sum(shard.tokens for shard in shards), "tokens")

    def committed(self, shard: ShardPlan, reports: Sequence[ShardReport]) -> None:
        """Report the shards that were committed, the rate and the time left."""
        self._done.append(shard)
        self._bytes += sum(report.bytes for report in reports)
        self._progress("extracting", shard.tokens, self._rates())

    def _rates(self) -> str:
        texts = sum(shard.stop - shard.start for shard in self._done)
        tokens = sum(shard.tokens for shard in self._done)
        seconds = max(self._clock() - self._began, 1e-9)
        return (
            f"shard {len(self._done)} of {len(self._todo)}: {texts:,} texts, "
            f"{texts / seconds:,.1f} texts/s, {tokens / seconds:,.0f} tokens/s, "
            f"{readable_size(self._bytes)}"
        )
