# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Long work that pages of a server wait for: one job at a time, its progress, the last results."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from flaxattn.store.find_texts import Watch

_KEPT = 16  # results that are kept in memory
_PATIENCE = 1.0  # seconds that an answer waits for a result before it returns the progress


class Progress(NamedTuple):
    """A job that is not finished.

    Attributes:
        share: Finished part of its work, from 0 to 1.
    """

    share: float


class _StoppedError(Exception):
    """Nobody wants the result any more."""


class _Job:
    """Work that was requested.

    Attributes:
        share: Finished part of it.
        future: Where its result will be.
    """

    def __init__(self) -> None:
        self.share, self._is_stopped = 0.0, False
        self.future: Future[Any] = Future()

    def watch(self, share: float) -> None:
        """Take down the progress, and end the work where it was stopped."""
        if self._is_stopped:
            raise _StoppedError
        self.share = share

    def stop(self) -> None:
        """End the work at its next report, or keep it from beginning."""
        self._is_stopped = True
        self.future.cancel()


class BackgroundJobs:
    """Results by key; each is computed once, in a thread of its own, one after the other."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "flaxattn-store")
        self._lock = threading.Lock()
        self._jobs: OrderedDict[Hashable, _Job] = OrderedDict()

    def result(self, key: Hashable, make: Callable[[Watch], Any]) -> Any:
        """A result, or how far its computation is."""
        job = self._job(key, make)
        try:
            return job.future.result(_PATIENCE)
        except (TimeoutError, CancelledError):
            if not job.future.done() or job.future.cancelled():
                return Progress(job.share)
            raise
        except _StoppedError:
            return Progress(job.share)
        finally:
            if job.future.done() and (job.future.cancelled() or job.future.exception()):
                self._forget(key, job)

    def close(self) -> None:
        """End all work; what runs ends at its next report."""
        with self._lock:
            for job in self._jobs.values():
                job.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _job(self, key: Hashable, make: Callable[[Watch], Any]) -> _Job:
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = _Job()
                job.future = self._pool.submit(make, job.watch)
            self._jobs.move_to_end(key)
            while len(self._jobs) > _KEPT:
                self._jobs.popitem(last=False)[1].stop()
            return job

    def _forget(self, key: Hashable, job: _Job) -> None:
        with self._lock:
            if self._jobs.get(key) is job:
                del self._jobs[key]
