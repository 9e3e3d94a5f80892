# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reports of a run: progress on standard error, and JSONL files.

metrics.jsonl holds what a rerun reproduces bit for bit, timing.jsonl what it does not; each row
carries a digest of itself and of the rows before it. This file decides which figures are shown; it
computes no metric.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import jax

from flaxattn.errors import UnavailableError
from flaxattn.files import not_written, write_text
from flaxattn.pipeline.memory_estimate import memory_sentence
from flaxattn.pipeline.progress_reporter import PAUSE, ProgressReporter
from flaxattn.train.flops import peak_flops
from flaxattn.train.recipe import Recipe
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.sealed_rows import RowChain, read_rows
from flaxattn.train.state import Batch

_QUIET = ("loss", "grad_norm", "tokens")  # shown first, or in the file only


class Reporter:
    """Shows and records the metrics of one run; a context manager. Only the first host writes."""

    def __init__(
        self,
        folder: RunFolder,
        recipe: Recipe,
        first: int,
        flops: Callable[[Batch], float] | None = None,
        update_bytes: int = 0,
    ) -> None:
        """Open the metrics files."""
        self._primary = jax.process_index() == 0
        self._board = _tensorboard(folder, first) if self._primary and folder.tensorboard else None
        target = folder.path if self._primary else Path(os.devnull)
        names = [target / n if self._primary else target for n in ("metrics.jsonl", "timing.jsonl")]
        last = first if first else -1
        chains = [_cut(path, last) if self._primary else RowChain() for path in names]
        self._metric_rows, self._timing_rows = chains
        self._metrics, self._timing = (path.open("a", encoding="utf-8") for path in names)
        self._recipe, self._flops, self._peak = recipe, flops, peak_flops()
        self._recorded = self._logged = time.monotonic()
        self._operations = self._updates = 0.0
        self._first, self._shown, self._folder = first, first, folder
        self._update_bytes = update_bytes
        self._progress = ProgressReporter(delay=0, pause=recipe.log_seconds or PAUSE)

    def __enter__(self) -> Self:
        if self._primary:
            recipe = self._recipe
            self._progress.start()
            bytes_of = self._update_bytes
            memory = f"; {memory_sentence(bytes_of)}" if bytes_of else ""
            self._progress.announce(
                f"{recipe.steps - self._first:,} of {recipe.steps:,} steps to train, evaluated "
                f"{_every(recipe.evaluate_every)}, saved {_every(recipe.checkpoint_every)} to "
                f"{self._folder.path}{memory}"
            )
            if 0 < recipe.steps < recipe.warmup_steps:
                self._progress.announce(
                    "the learning rate never reaches its peak: "
                    f"warmup_steps is {recipe.warmup_steps:,}, steps is {recipe.steps:,}"
                )
            self._progress.expect("training", recipe.steps, "steps", before=self._first)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._primary:
            (self._progress.finish if error is None else self._progress.stop)()
        for file in (self._metrics, self._timing):
            with suppress(OSError):  # the end of a row that could not be written, see `_append`
                file.close()
        if self._board is not None:
            self._board.close()

    def count(self, batch: Batch) -> None:
        """Add one update's operations to what MFU is computed from."""
        self._operations += self._flops(batch) * jax.process_count() if self._flops else 0.0
        self._updates += 1

    def late(self) -> bool:
        """Return whether no metric came for `log_seconds`; only ever true on a single host."""
        since = time.monotonic() - self._recorded
        return jax.process_count() == 1 and since >= self._recipe.log_seconds

    def training(self, done: int, metrics: dict[str, float], tokens: int, seconds: float) -> None:
        """Record the mean metrics of the updates since the last call."""
        self._write(done, "training", {**metrics, "tokens": tokens})
        now = time.monotonic()
        spent = max(now - self._logged, 1e-9)
        rate = metrics["tokens"] * self._updates / spent
        devices = self._recipe.devices or jax.device_count()
        mfu = self._operations / spent / (self._peak * devices) if self._peak else None
        timing = {"step": done, "seconds": round(seconds, 3), "tokens_per_second": round(rate, 1)}
        _append(self._timing, self._timing_rows.line({**timing, "mfu": mfu and round(mfu, 4)}))
        self._recorded = self._logged = now
        self._operations, self._updates = 0.0, 0
        if not self._primary:
            return
        percent = f"  MFU {mfu:.0%}" if mfu else ""
        figures = f"{_line(metrics)}  {rate:,.0f} tokens/s{percent}"
        self._progress("training", done - self._shown, figures)
        self._shown = done
        if not self._recipe.log_seconds or done == self._recipe.steps:
            self._progress.show()

    def heldout(self, done: int, metrics: dict[str, float]) -> dict[str, float]:
        """Record an evaluation after `done` updates; gives the metrics back."""
        self._write(done, "heldout", metrics)
        if self._primary:
            self._progress.announce(f"step {done}/{self._recipe.steps}  held-out: {_line(metrics)}")
        self._recorded = self._logged = time.monotonic()  # evaluating is not training time
        self._operations = self._updates = 0
        return metrics

    def stopped(self, done: int) -> None:
        """Say that a run that was interrupted can continue."""
        if self._primary:
            self._progress.announce(
                f"saved after update {done}; the same command continues the run"
            )

    def _write(self, done: int, kind: str, metrics: dict[str, float]) -> None:
        _append(self._metrics, self._metric_rows.line({"step": done, "kind": kind, **metrics}))
        if self._board is not None:
            for name, value in metrics.items():
                self._board.add_scalar(f"{kind}/{name}", value, done)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Rows of a metrics file, in the order they were written."""
    return read_rows(path)


def _line(metrics: dict[str, float]) -> str:
    parts = [f"loss {metrics['loss']:.3f}"] if "loss" in metrics else []
    for name, value in metrics.items():
        if name not in _QUIET:
            shown = f"{value:.1%}" if "accuracy" in name else f"{value:.4g}"
            parts.append(f"{name.replace('_', ' ')} {shown}")
    return "  ".join(parts)


def _every(steps: int) -> str:
    return f"every {steps:,}" if steps else "at the end"


def _append(file: TextIO, line: str) -> None:
    """Write a line, so that readers find it."""
    try:
        file.write(line)
        file.flush()
    except OSError as error:
        raise not_written(Path(file.name), error) from error


def _cut(path: Path, last: int) -> RowChain:
    """Drop rows after update `last`, and the one that a killed run was writing."""
    chain = RowChain()
    if path.is_file():
        kept = [row for row in read_rows(path) if row["step"] <= last] if last >= 0 else []
        write_text(path, "".join(map(chain.line, kept)))
    return chain


def _tensorboard(folder: RunFolder, first: int) -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise UnavailableError(
            "--tensorboard needs the package tensorboardX\n"
            "it is not installed\n"
            "pip install 'flaxattn[tensorboard]'"
        ) from error
    return SummaryWriter(str(folder.path / "tensorboard"), purge_step=first)
