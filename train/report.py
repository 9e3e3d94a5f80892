# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What a run tells: a progress bar on a terminal, plain lines elsewhere, always a JSONL file.

It decides when a line is due and how it looks; it computes no metric.
"""

import json
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from flaxattn.train.recipe import Recipe


class Reporter:
    """Shows and records the metrics of one run; a context manager."""

    def __init__(self, path: Path, recipe: Recipe, first: int, fresh: bool):
        """Open the metrics file.

        Args:
            path: JSONL file; on resuming, rows after the checkpoint are dropped.
            recipe: number of steps and seconds between two lines.
            first: step the run starts from.
            fresh: start an empty file.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut(path, -1 if fresh or first == 0 else first)
        self._file = path.open("a", encoding="utf-8")
        self._recipe, self._first = recipe, first
        self._started = self._last = time.monotonic()
        self._tokens: int | None = None
        self._console = Console(file=sys.stderr)
        self._bar = Progress(
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[line]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=recipe.steps, completed=first, line="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
        self._file.close()

    def due(self, done: int) -> bool:
        """Whether it is time for a line after `done` updates."""
        late = time.monotonic() - self._last >= self._recipe.log_seconds
        return late or done == self._recipe.steps

    def training(self, done: int, metrics: dict[str, float], tokens: int, seconds: float) -> None:
        """Record the mean metrics since the last call.

        Args:
            done: updates made.
            metrics: their names and values.
            tokens: real tokens seen since the run began.
            seconds: time spent since the run began.
        """
        row = {"step": done, "kind": "training", **metrics, "tokens": tokens}
        self._write({**row, "seconds": round(seconds, 3)})
        self._last = time.monotonic()
        spent = self._last - self._started
        left = spent / (done - self._first) * (self._recipe.steps - done)
        line = (
            f"loss {metrics['loss']:.3f}  mlm {metrics['mlm_accuracy']:.1%}"
            f"  nsp {metrics['nsp_accuracy']:.1%}  {tokens / max(seconds, 1e-9):,.0f} tokens/s"
            f"  {_clock(left)} left"
        )
        short = line.replace("  ", " ").replace("tokens/s", "tok/s").removesuffix(" left")
        self._bar.update(self._task, completed=done, line=short)  # fits into 80 columns
        self._say(f"step {done}/{self._recipe.steps}  {line}")

    def heldout(self, done: int, metrics: dict[str, float]) -> None:
        """Record an evaluation after `done` updates."""
        self._write({"step": done, "kind": "heldout", **metrics})
        self._say(
            f"step {done}/{self._recipe.steps}  held-out: mlm loss {metrics['mlm_loss']:.3f}"
            f"  mlm {metrics['mlm_accuracy']:.1%}  nsp {metrics['nsp_accuracy']:.1%}"
        )

    def _write(self, row: dict[str, Any]) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def _say(self, line: str) -> None:
        if not self._console.is_terminal:
            print(line, file=sys.stderr, flush=True)


def _cut(path: Path, last: int) -> None:
    if not path.is_file():
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= last]
    path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
