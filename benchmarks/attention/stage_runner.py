# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Runs stages, each in a process of its own that is ended when its time is over.

A stage that hangs or dies costs itself only, and what it printed last is kept. Several may run at a
time. The results of a stage are kept by stage_record.py.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flaxattn.benchmarks.bench_rows import faults
from flaxattn.benchmarks.stage_record import Stage, StageRecord

LINES = 60
_WIDTH = 400
_ERROR = re.compile(r"(E +)?[\w.]*(Error|Exception)\b.*:")
_PAUSE = 0.02  # seconds between two looks at the processes
_DUMP = 3.0  # seconds in which a process that hangs may say where
_DEATH = 10.0  # seconds in which a killed process ends, unless the driver holds it


class RunningStage:
    """The process of a stage, with the files that it writes to.

    Args:
        stage: to start.
        folder: for its files.
        environment: of the process.
    """

    def __init__(self, stage: Stage, folder: Path, environment: Mapping[str, str]):
        self.stage, self.started = stage, time.monotonic()
        self._result = folder / "result.json"
        self._log = folder / "output.txt"
        words = [word.replace("{result}", str(self._result)) for word in stage.command]
        with self._log.open("wb") as log:
            # A session of its own: all that it starts can be ended with it.
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    @property
    def seconds(self) -> float:
        """Time since it was started."""
        return time.monotonic() - self.started

    def stop(self, ask: bool) -> None:
        """End the process and all that it started."""
        if ask and self.process.poll() is None:
            self.process.send_signal(signal.SIGABRT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_DUMP)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_DEATH)

    def output(self) -> list[str]:
        """The last lines that it printed."""
        with self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - LINES * _WIDTH))
            text = log.read().decode(errors="replace")
        return [line[:_WIDTH] for line in text.splitlines()[-LINES:]]

    def result(self) -> Any:
        """The result that it wrote so far, None without one."""
        try:
            return json.loads(self._result.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None


def without_suspects(stages: Sequence[Stage]) -> list[Stage]:
    """The stages in another order: each that may hang comes last, its replacement in its place."""
    doubtful = [replace(stage, instead=None) for stage in stages if stage.instead]
    return [*(stage.instead or stage for stage in stages), *doubtful]


class StageRunner:
    """Runs stages and keeps a record of them.

    Args:
        record: to write to.
        environment: of all processes.
        jobs: stages that may run at the same time.
        tell: takes a line for a person.
    """

    def __init__(
        self,
        record: StageRecord,
        environment: Mapping[str, str],
        jobs: int = 1,
        tell: Callable[[str], None] = print,
    ):
        self.record, self.tell = record, tell
        self._environment, self._jobs = dict(environment), jobs
        self._running: list[RunningStage] = []
        self._folder = tempfile.TemporaryDirectory(prefix="flaxattn-stages-")
        self._count = 0

    def close(self) -> None:
        """Remove the files of the processes."""
        self._folder.cleanup()

    def run(self, stages: Sequence[Stage], end: float) -> list[Stage]:
        """Run stages in order until all have run or the time is over."""
        waiting = list(stages)
        try:
            while (waiting or self._running) and time.monotonic() < end:
                while waiting and self._may_start(waiting[0]):
                    self._start(waiting.pop(0))
                for each in [one for one in self._running if self._is_over(one)]:
                    waiting = self._after(each.stage, self._finish(each), waiting)
                time.sleep(_PAUSE)
        finally:
            cut = [self._cut(each) for each in self._running]
            self._running = []
            self.record.save()
        return [*cut, *waiting]

    def _may_start(self, stage: Stage) -> bool:
        if any(each.stage.alone for each in self._running):
            return False
        return len(self._running) < (1 if stage.alone else self._jobs)

    def _start(self, stage: Stage) -> None:
        """Start a stage, having noted it: the machine itself may not survive it."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        self.record.change(stage.name, reason=f"started at {date}, no outcome yet")
        self.record.save()
        self._count += 1
        folder = Path(self._folder.name, str(self._count))
        try:
            folder.mkdir()
            self._running.append(RunningStage(stage, folder, self._environment))
        except OSError as error:
            reason = f"could not be started: {error.strerror}"
            self.record.change(stage.name, status="failed", reason=reason)
            self.record.save()

    @staticmethod
    def _is_over(running: RunningStage) -> bool:
        return running.process.poll() is not None or running.seconds > running.stage.seconds

    def _finish(self, running: RunningStage) -> str:
        """Note the outcome of a stage; the status."""
        self._running.remove(running)
        code, seconds = running.process.poll(), running.seconds
        running.stop(ask=code is None)
        result, output = running.result(), running.output()
        status, reason = _verdict(running.stage, code, result)
        if status == "failed":
            reason += next(
                (f": {line[:200]}" for line in reversed(output) if _ERROR.match(line)), ""
            )
        if running.process.poll() is None:
            reason += "; its process could not be ended"
        self.record.change(
            running.stage.name,
            status=status,
            reason=reason,
            seconds=round(seconds, 1),
            output=output,
            result=result,
        )
        self.record.save()
        note = f": {reason}" if reason else ""
        self.tell(f"{status:<10} {seconds:6.1f} s  {running.stage.name}{note}")
        return status

    def _after(self, stage: Stage, status: str, waiting: list[Stage]) -> list[Stage]:
        """The stages that wait, when one has an outcome."""
        if status == "passed" or stage.instead is None:
            return waiting
        if status == "timed out":
            # So may the others like it. What works is measured first.
            waiting = without_suspects(waiting)
        waiting = [stage.instead, *waiting]
        known = {entry["name"] for entry in self.record.stages}
        self.record.add([each for each in waiting if each.name not in known])
        return waiting

    def _cut(self, running: RunningStage) -> Stage:
        """End a stage whose time limit had not come yet."""
        seconds = running.seconds
        running.stop(ask=True)
        self.record.change(
            running.stage.name,
            reason=f"ended after {seconds:.0f} s, before it had an outcome",
            seconds=round(seconds, 1),
            output=running.output(),
            result=running.result(),
        )
        return running.stage


def _verdict(stage: Stage, code: int | None, result: Any) -> tuple[str, str]:
    """Status and reason of a stage whose process ended, or did not (None)."""
    if code is None:
        return "timed out", f"no end after {stage.seconds:g} s{_place(result)}"
    if code < 0:
        return "failed", f"died of {_signal(-code)}{_place(result)}"
    if code:
        return "failed", f"exit status {code}{_place(result)}"
    tests = result.get("tests", {}) if isinstance(result, dict) else {}
    if skipped := [test for test, outcome in tests.items() if outcome == "skipped"]:
        return "failed", f"skipped {skipped[0].rpartition('::')[2]}"
    wrong = faults(result.get("rows", []) if isinstance(result, dict) else [])
    return ("failed", "; ".join(map(": ".join, wrong.items()))) if wrong else ("passed", "")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _place(result: Any) -> str:
    """The first test that did not pass, if the result has tests."""
    tests = result.get("tests", {}) if isinstance(result, dict) else {}
    for outcome in ("failed", "running"):
        for test in (test for test, value in tests.items() if value == outcome):
            return f" in {test.rpartition('::')[2]}"
    return ""
