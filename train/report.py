# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reports of a run: progress on standard error, sealed JSONL files, and the use of the device."""

import hashlib
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import jax

from flaxattn.errors import CheckpointError, UnavailableError
from flaxattn.files import not_written, write_text
from flaxattn.models.decoder_config import DecoderConfig, GPT2Config
from flaxattn.models.encoder_config import EncoderConfig, ModernBertConfig
from flaxattn.pipeline.batches import memory_sentence
from flaxattn.pipeline.progress_reporter import PAUSE, ProgressReporter
from flaxattn.train.recipe import Recipe
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.state import Batch

_PLAIN, _CHECKSUM, _CHAIN = range(3)  # what earlier versions wrote, and what RowChain writes
_SEAL = re.compile(r', "(?:crc32": "([0-9a-f]{8})|chain": "([0-9a-f]{16}))"\}\Z')
_SEAL_LENGTH = len(', "chain": "0123456789abcdef"}')


class RowChain:
    """The lines of one file, from its first row on."""

    def __init__(self) -> None:
        self._digest = ""

    def line(self, row: Mapping[str, Any], *, escape: bool = True) -> str:
        """Return the next row as a line, with its end."""
        text = json.dumps(row, ensure_ascii=escape)
        return f'{text[:-1]}, "chain": "{self.digest(text)}"}}\n'

    def digest(self, text: str) -> str:
        """Return the digest of the next row."""
        whole = hashlib.sha256(f"{self._digest}{text}".encode(errors="surrogatepass"))
        self._digest = whole.hexdigest()[:16]
        return self._digest


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Rows of a file, without their digests.

    The last lines of the file may be missing or cut, as a killed run leaves them.
    """
    *lines, rest = path.read_bytes().split(b"\n")
    if _is_whole(rest):
        lines.append(rest)  # only the end of the line is missing
    elif rest and not rest.startswith(b"{"):
        raise _damaged(path, len(lines) + 1)
    chain = RowChain()
    rows = [_row(path, number, line, chain) for number, line in enumerate(lines, 1)]
    expected = max((kind for _, kind in rows), default=_PLAIN)
    for number, (_, kind) in enumerate(rows, 1):
        if kind != expected:
            raise _damaged(path, number)
    return [row for row, _ in rows]


def _row(path: Path, number: int, line: bytes, chain: RowChain) -> tuple[dict[str, Any], int]:
    """A row, and what seals it."""
    try:
        text = line.decode()
        seal = _SEAL.search(text, max(0, len(text) - _SEAL_LENGTH))
        bare = text if seal is None else text[: seal.start()] + "}"
        row = json.loads(bare)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, number) from error
    # Without a digest a row ends with a number; what ends otherwise had one.
    if not isinstance(row, dict) or (seal is None and text.endswith('"}')):
        raise _damaged(path, number)
    if seal is None:
        return row, _PLAIN
    checksum, digest = seal.groups()
    expected = chain.digest(bare) if checksum is None else f"{zlib.crc32(bare.encode()):08x}"
    if expected != (digest if checksum is None else checksum):
        raise _damaged(path, number)
    return row, _CHAIN if checksum is None else _CHECKSUM


def _is_whole(rest: bytes) -> bool:
    """Return whether the last line holds more than the beginning of a row."""
    try:
        json.JSONDecoder().raw_decode(rest.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return True


def _damaged(path: Path, number: int) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged: line {number} is not what was written\n"
        "it was changed, or rows before it were removed, repeated or moved\n"
        "copy the file again, or start the run again with --fresh"
    )


# Dense bfloat16 operations per second of one device as jax.devices() lists them, as their makers
# state them without sparsity. jax lists a TPU v4 or later by chip.
PEAKS = {
    "NVIDIA A100": 312e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H200": 989e12,
    "NVIDIA GH200": 989e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
}


def peak_flops() -> float | None:
    """Operations per second of one device of this process; None where nobody states them."""
    kind = jax.devices()[0].device_kind
    names = sorted((name for name in PEAKS if kind.startswith(name)), key=len)
    return PEAKS[names[-1]] if names else None


def bert_flops(config: EncoderConfig, rows: int, length: int, scored: int) -> float:
    """Operations of one update of BERT: three times those of the forward pass."""
    width, inner = config.hidden_size, config.intermediate_size
    if isinstance(config, ModernBertConfig):  # gated: three products in place of two
        inner += inner // 2
    layer = 4 * width * width + 2 * width * inner + 2 * length * width
    head = scored * (width * width + width * config.vocab_size)
    return 6.0 * rows * (length * config.num_hidden_layers * layer + head + width * width)


def decoder_flops(config: GPT2Config | DecoderConfig, rows: int, length: int) -> float:
    """Operations of one update of a decoder, which scores every position."""
    width = config.hidden_size
    projections = 2 * width * (config.query_size + config.key_size)
    feed_forward = (2 + config.gated) * width * config.inner_size
    keys = sum(min(length, window or length) for window in config.windows)
    layers = config.num_hidden_layers * (projections + feed_forward) + 2 * keys * config.query_size
    return 6.0 * rows * length * (layers + width * config.vocab_size)


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
        kept = [row for row in read_metrics(path) if row["step"] <= last] if last >= 0 else []
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
