# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Progress of long jobs on standard error: a bar on a terminal, plain lines elsewhere.

Nothing is computed here but rates. Callers of `watch(stage, count)` do not depend on the kind of
reporter. The level of the logger `flaxattn.progress` turns it off: above INFO nothing is printed.
"""

import dataclasses
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TextIO

from flaxattn.files import readable_size

DELAY = 2.0  # seconds without a line: shorter jobs print none
PAUSE = 5.0  # seconds between two lines
_SILENCE = 60.0  # seconds after which a report belongs to another job
BYTES = "bytes"  # unit of a stage whose steps are shown as kB, MB or GB

PROGRESS = logging.getLogger("flaxattn.progress")
PROGRESS.setLevel(logging.INFO)

Watch = Callable[[str, int], object]
"""Receives the name of a stage, and how many more texts, heads or epochs it has finished."""


def ignore(stage: str, count: int) -> None:
    """A `Watch` that shows nothing."""


@dataclasses.dataclass
class _Stage:
    """A part of a job.

    Attributes:
        total: Number of steps; None where it is not known.
        began: Time of its beginning.
        done: Number of finished steps.
        unit: Name of the steps; empty where the stage names them.
        before: Number of steps that an earlier run finished.
        first: Time and number of finished steps at the first report, which includes compiling.
        note: Other figures, which take the place of the rate.
    """

    total: int | None
    began: float
    done: int = 0
    unit: str = ""
    before: int = 0
    first: tuple[float, int] | None = None
    note: str = ""

    def rate(self, now: float) -> float:
        """Steps per second, without those that waited for compiling where there are others."""
        time_0, steps = self.first or (self.began, self.before)
        if self.done <= steps:
            time_0, steps = self.began, self.before
        return (self.done - steps) / max(now - time_0, 1e-9)

    def line(self, name: str, now: float) -> str:
        """One line: steps, rate and time left, or the time it has taken so far."""
        if self.done == self.before:
            steps = f"{self._steps()}, " if self.total else ""
            note = f", {self.note}" if self.note else ""
            return f"{name}: {steps}{duration(now - self.began)} so far{note}"
        rate = self.rate(now)
        per_second = readable_size(rate) if self.unit == BYTES else f"{rate:,.1f}"
        line = f"{name}: {self._steps()}, {self.note or f'{per_second}/s'}"
        if self.total is None:
            return line
        left = max(self.total - self.done, 0)
        return f"{line}, {duration(left / rate)} left" if left else f"{line}, done"

    def _steps(self) -> str:
        """Number of finished steps, and of all where it is known."""
        counts = [self.done, *([] if self.total is None else [self.total])]
        if self.unit == BYTES:
            return " of ".join(map(readable_size, counts))
        steps = " of ".join(f"{count:,}" for count in counts)
        return f"{steps} {self.unit}" if self.unit else steps


class ProgressReporter:
    """A `Watch` that prints; a context manager, so that long silent steps are shown too.

    Args:
        stream: Output; default standard error.
        clock: Seconds; a test has its own.
        delay: Seconds without a line; default `DELAY`. With 0, what is announced is printed at
            once, and a job of any length ends with a line.
        pause: Seconds between two lines; default `PAUSE`.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        delay: float | None = None,
        pause: float | None = None,
    ) -> None:
        self._stream, self._clock = stream or sys.stderr, clock
        self._is_quiet = not PROGRESS.isEnabledFor(logging.INFO)
        self._delay = DELAY if delay is None else delay
        self._pause = PAUSE if pause is None else pause
        self._stages: dict[str, _Stage] = {}
        self._name = ""
        self._began, self._last = clock(), clock() + self._delay - self._pause
        self._bar: Any = None
        self._is_shown = False  # whether the last line says all that was reported
        self._held: list[str] = []  # announced lines, which short jobs do not print
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.finish()
        self.stop()

    def start(self) -> None:
        """Begin to show the bar, or to print a line now and then."""
        if self._is_quiet:
            return
        _active.append(self)
        if self._stream is not None and self._stream.isatty():
            self._bar = _bar(self._stream)
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None)
        else:
            self._thread = threading.Thread(target=self._tick, daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Stop after a last line; results may be printed from here on."""
        running = self._thread is not None and not self._ended.is_set()
        self.stop()
        stage = self._stages.get(self._name)
        counted = stage is not None and stage.done > stage.before
        shown = self._is_shown and not self._held
        if running and counted and not shown and self._clock() - self._began >= self._delay:
            self._print(self._line())

    def stop(self) -> None:
        """Take the bar away, or print no further line."""
        self._ended.set()
        if self in _active:
            _active.remove(self)
        if self._bar is not None:
            self._bar.stop()
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Take the bar away while results are printed, and show it again."""
        if self._bar is None:
            yield
            return
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()

    def __call__(self, stage: str, count: int, figures: str | None = None) -> None:
        """Report steps of a stage; a new name begins a stage."""
        now = self._clock()
        with self._lock:
            found = self._stages.setdefault(stage, _Stage(None, now))
            found.done += count
            self._is_shown &= not count
            found.note = found.note if figures is None else figures
            if found.first is None and count:
                found.first = now, found.done
            self._name = stage
        self._show(now)

    def expect(self, stage: str, total: int | None, unit: str = "", *, before: int = 0) -> None:
        """Begin a stage."""
        with self._lock:
            self._stages[stage] = _Stage(total, self._clock(), before, unit, before)
        self(stage, 0)

    def announce(self, line: str) -> None:
        """Print what will be done and what it costs, before it begins."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
            return
        self._held.append(line)
        if self._clock() - self._began >= self._delay:
            self._print("")

    def show(self) -> None:
        """Print the line of the present stage at once; a bar shows it anyway."""
        if self._bar is None:
            self._last = self._clock()
            self._print(self._line())

    def _show(self, now: float) -> None:
        if self._bar is not None:
            stage = self._stages[self._name]
            self._bar.update(
                self._task, description=self._line(), total=stage.total, completed=stage.done
            )
        elif self._thread is None and now - self._last >= self._pause:
            self._last = now
            self._print(self._line())

    def _tick(self) -> None:
        wait = self._delay or self._pause
        while not self._ended.wait(wait):
            self._print(self._line())
            wait = self._pause

    def _line(self) -> str:
        with self._lock:
            now = self._clock()
            if not self._name:
                return f"starting: {duration(now - self._began)} so far"
            return self._stages[self._name].line(self._name, now)

    def _print(self, line: str) -> None:
        if self._is_quiet:
            return
        with self._lock:
            lines, self._held = [*self._held, *([line] if line else [])], []
            self._is_shown |= bool(line)
        try:
            self._stream.write("".join(f"{one}\n" for one in lines))
            self._stream.flush()
        except (AttributeError, OSError, ValueError):  # nobody reads it, which is not an error
            self._ended.set()


@contextmanager
def reporting() -> Iterator[ProgressReporter]:
    """Yield the reporter that is shown, or a new one that ends with the block."""
    if _active:
        yield _active[-1]
        return
    with ProgressReporter() as new:
        yield new


def _bar(stream: TextIO) -> Any:
    """A bar that disappears when the job is done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    line = TextColumn("{task.description}", markup=False, table_column=Column())  # it may wrap
    columns = (SpinnerColumn(), BarColumn(16), line, TimeElapsedColumn())
    console = Console(file=stream, force_jupyter=False)
    # Results go to standard output, which rich would lead to the stream of the bar. What others
    # write to standard error is printed above the bar.
    return Progress(*columns, console=console, transient=True, redirect_stdout=False)


def duration(seconds: float) -> str:
    """A duration with its unit."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


_active: list[ProgressReporter] = []  # reporters that are shown, the innermost one last


@dataclasses.dataclass
class _FunctionJob:
    """A job that Python functions report without saying when it begins or ends."""

    stage: str
    cell: int | None
    last: float
    reporter: ProgressReporter


_job: _FunctionJob | None = None


def show_progress(stage: str, count: int) -> None:
    """Show progress of a Python function: lines on standard error, or under a notebook's cell.

    Inside a `ProgressReporter` that is shown, it reports to that one. Otherwise a job ends where
    another stage or another cell begins, or after a minute without a report; short jobs print
    nothing.

    Args:
        stage: Name of what is done.
        count: Number of further items that were finished.
    """
    global _job
    if _active:
        _active[-1](stage, count)
        return
    cell, now = _cell(), time.monotonic()
    if _job is None or (_job.stage, _job.cell) != (stage, cell) or now - _job.last > _SILENCE:
        _job = _FunctionJob(stage, cell, now, ProgressReporter())
    _job.last = now
    _job.reporter(stage, count)


def _cell() -> int | None:
    """Number of the cell that runs; None outside of notebooks."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return shell.execution_count if shell is not None and hasattr(shell, "kernel") else None
