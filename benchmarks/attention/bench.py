# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The benchmark: named cases and requests, this library beside its peers, interleaved in one run.

Every time is set against a roofline measured on the same device a moment before: a copy of memory
and a matrix product. The result is one JSON file. Nothing here is right or wrong, only fast or
slow; what is right is tested on the cases in cases.py.

    flaxattn bench
    python -m flaxattn.benchmarks.bench --case BERT-base --request nothing --out bench.json
"""

import argparse
import functools
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

from flaxattn.benchmarks import bench_targets, cases
from flaxattn.benchmarks.bench_contenders import PeerUnavailableError, Torch
from flaxattn.benchmarks.bench_peers import is_plain
from flaxattn.benchmarks.bench_rows import MODES, REQUESTS, Turns, measured, roofline, table
from flaxattn.files import check_writable, write_text
from flaxattn.kernels import choice, devices
from flaxattn.pipeline.progress_reporter import ProgressReporter

SCHEMA = 1
_ON_CPU = ("short", "short, padded", "BERT-base, one example")
_ON_ACCELERATORS = ("BERT-base", "long", *cases.RESTRICTED)
Tell = Callable[[str], None]


@dataclass(frozen=True)
class BenchSettings:
    """Settings of a run; None and empty values are chosen to suit the device.

    Attributes:
        cases: names in `flaxattn.benchmarks.cases`.
        requests: names in `REQUESTS`.
        modes: of `MODES`.
        dtype: of q, k and v.
        rounds: how often each contender is timed; they take turns.
        seconds: a turn lasts at least so long, in as many calls as that takes.
        seed: of the arrays.
        torch_python: an interpreter with torch; None for this one, "" for no torch.
        without: implementations of this library that are left out.
    """

    cases: tuple[str, ...] = ()
    requests: tuple[str, ...] = tuple(REQUESTS)
    modes: tuple[str, ...] = MODES
    dtype: str | None = None
    rounds: int = 20
    seconds: float = 0.02
    seed: int = 0
    torch_python: str | None = None
    without: tuple[str, ...] = ()

    def __post_init__(self):
        known = {
            "case": (self.cases, [case.name for case in cases.CASES + cases.BENCHMARKS]),
            "request": (self.requests, list(REQUESTS)),
            "mode": (self.modes, list(MODES)),
            "implementation": (self.without, list(choice.NAMES)),
            "dtype": ((self.dtype or "float32",), ["float32", "bfloat16", "float16"]),
        }
        for what, (names, allowed) in known.items():
            for name in names:
                if name not in allowed:
                    raise ValueError(
                        f"bench: unknown {what} {name!r}.\nKnown: {'; '.join(allowed)}."
                    )
        if self.rounds < 1:
            raise ValueError(f"bench: rounds is {self.rounds}, expected 1 or more.")

    def filled(self, on_cpu: bool) -> "BenchSettings":
        """The same with nothing left open."""
        here = sys.executable if importlib.util.find_spec("torch") else ""
        return replace(
            self,
            cases=self.cases or (_ON_CPU if on_cpu else _ON_ACCELERATORS),
            dtype=self.dtype or ("float32" if on_cpu else "bfloat16"),
            torch_python=here if self.torch_python is None else self.torch_python,
        )


def run(
    settings: BenchSettings,
    tell: Tell,
    progress: ProgressReporter,
    keep: Callable[[dict[str, Any]], object] = id,
) -> dict[str, Any]:
    """Measures everything."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch needs memory too
    device = devices.current()
    settings = settings.filled(device.platform == "cpu")
    counts = [len(part) for part in (settings.cases, settings.requests, settings.modes)]
    progress.announce(
        f"{math.prod(counts):,} rows: {counts[0]} cases x {counts[1]} requests x {counts[2]} "
        f"modes; each contender has up to {settings.rounds} turns of {settings.seconds:g} s or more"
    )
    progress("measuring the roofline", 0)
    process, note = _start_torch(settings, device)
    torch = process
    document = _facts(settings, device) | {"torch": torch.facts if torch else note}
    roof = document["roofline"] = roofline(str(settings.dtype), device.platform == "cpu")
    _tell(
        tell,
        progress,
        f"{device}, {settings.dtype}: copy {roof['copy_bytes_per_second'] / 1e9:.0f} GB/s, "
        f"matmul {roof['matmul_flops_per_second'] / 1e12:.2f} TFLOP/s, torch: {document['torch']}\n"
        "Times in ms: median, best, distance between the quartiles. Memory: arguments, results "
        "and temporaries.",
    )
    turns = Turns(settings.rounds, settings.seconds)
    rows: list[dict[str, Any]] = []
    progress.expect("measuring", math.prod(counts), "rows")
    try:
        for name in settings.cases:
            case = cases.case(name)
            arguments = case.arguments(str(settings.dtype), settings.seed)
            bar = jax.random.normal(jax.random.key(settings.seed + 1), arguments["q"].shape)
            bar = bar.astype(arguments["q"].dtype)
            if torch is not None and is_plain(case):
                torch, document["torch"] = _load(torch, case, arguments, bar)
            for request in settings.requests:
                for mode in settings.modes:
                    progress("measuring", 0, f"{name}, {request}, {mode}")
                    found = measured(
                        case, arguments, bar, request, mode, turns, torch, roof, settings.without
                    )
                    rows += found
                    progress("measuring", 1)
                    keep(document | {"rows": rows, "targets": bench_targets.judged(rows)})
                    if found:
                        _tell(tell, progress, table(found))
    finally:
        if process is not None:
            process.close()
    return document | {"rows": rows, "targets": bench_targets.judged(rows)}


def _tell(tell: Tell, progress: ProgressReporter, text: str) -> None:
    """Print a piece of the table where the bar is."""
    with progress.hidden():
        tell(text)


def _start_torch(settings: BenchSettings, device: devices.Device) -> tuple[Torch | None, str]:
    """The torch process, or why there is none."""
    if not settings.torch_python:
        return None, "not measured: no torch here"
    try:
        kind = "cuda" if device.platform == "gpu" else "cpu"
        return Torch(settings.torch_python, kind), ""
    except PeerUnavailableError as error:
        return None, f"not measured: {error}"


def _load(
    torch: Torch, case: cases.Case, arguments: dict[str, Any], bar: jax.Array
) -> tuple[Torch | None, Any]:
    """Hands torch the arrays of a case; the torch to go on with, and what to say of it."""
    try:
        torch.load(case, arguments, bar)
    except PeerUnavailableError as error:
        return None, f"not measured from {case.name!r} on: {error}"
    return torch, torch.facts


def _facts(settings: BenchSettings, device: devices.Device) -> dict[str, Any]:
    """Facts that are needed to repeat a measurement."""
    packages = ("flaxattn", "jax", "jaxlib", "numpy")
    return {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "settings": asdict(settings) | {"torch_python": bool(settings.torch_python)},
        "device": device._asdict() | {"count": jax.local_device_count()},
        "host": {
            "machine": f"{platform.system()} {platform.machine()}",
            "cores": os.cpu_count(),
            "load": [round(load, 2) for load in os.getloadavg()],
        },
        "versions": {"python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in packages},
    }


def write(document: dict[str, Any], path: Path) -> None:
    """Writes a result whole, or leaves the file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(document, indent=1), "the result")


def measure(settings: BenchSettings, out: Path | None, tell: Tell = print) -> None:
    """Measures, prints the targets, and writes the result after each piece: the whole command."""
    start = time.monotonic()
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        check_writable(out, "the results")
    keep = (lambda document: None) if out is None else functools.partial(write, path=out)
    with ProgressReporter() as progress:
        document = run(settings, tell, progress, keep)
    tell("\n" + bench_targets.as_text(document["targets"]))
    if out is not None:
        write(document, out)
        tell(f"\nwrote {out.resolve()} after {time.monotonic() - start:.0f} s")


def main(words: Sequence[str] | None = None) -> None:
    """`python -m flaxattn.benchmarks.bench`."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--case", action="append", default=[], help="repeat for several")
    parser.add_argument("--request", action="append", choices=REQUESTS, help="default all")
    parser.add_argument("--mode", action="append", choices=MODES, help="default both")
    parser.add_argument("--dtype", help="default bfloat16, on CPU float32")
    parser.add_argument("--rounds", type=int, default=BenchSettings.rounds)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--torch-python", help="another Python that has torch; '' for none")
    parser.add_argument(
        "--without", action="append", default=[], choices=choice.NAMES, help="repeat for several"
    )
    parser.add_argument("--out", type=Path, default=Path("flaxattn-bench.json"))
    given = parser.parse_args(words)
    try:
        settings = BenchSettings(
            cases=tuple(given.case),
            requests=tuple(given.request or REQUESTS),
            modes=tuple(given.mode or MODES),
            dtype=given.dtype,
            rounds=given.rounds,
            seed=given.seed,
            torch_python=given.torch_python,
            without=tuple(given.without),
        )
    except ValueError as error:
        parser.error(str(error))
    measure(settings, given.out)


if __name__ == "__main__":
    main()
