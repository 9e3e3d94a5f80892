# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Two processes that do the same work, timed in turns, one round at a time.

Each side is a process of its own, so that neither meets the other's threads, and torch may live in
another Python than jax. Rounds alternate, so that whatever else the machine does hits both. The
benchmark that imports this file defines the work; each side runs it with `--serve SIDE`.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGES = {"torch": ("torch", "transformers"), "flaxattn": ("jax", "flax")}
WARM_UP = 2  # rounds of each side that do not count


def parser(doc):
    """The options that every comparison has."""
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
    made.add_argument("dtypes", nargs="*", default=["float32", "bfloat16"])
    made.add_argument("--rounds", type=int, default=20)
    made.add_argument("--torch-python", default=sys.executable, help="Python that has torch")
    made.add_argument("--serve", choices=PACKAGES, help=argparse.SUPPRESS)
    made.add_argument("--folder", help=argparse.SUPPRESS)
    return made


def serve(side, work):
    """Run the process of a side: report its versions, then time a round for each line of input."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES[side]}
    print(json.dumps(versions | {"python": platform.python_version()}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        work()
        print(time.perf_counter() - start, flush=True)


def started(script, python, side, folder, arguments, platforms):
    """A serving process and what it said of itself."""
    words = [python, script, "--serve", side, "--folder", folder, *arguments]
    environment = {**os.environ, "JAX_PLATFORMS": platforms}
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # both sides share the device
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"the {side} side did not start; see its error above")
    return process, json.loads(line)


def one_round(process):
    """Seconds of one piece of work."""
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def reset_peak(process):
    """Forget the largest memory of a process so far, where the system can."""
    path = Path(f"/proc/{process.pid}/clear_refs")
    if path.exists():
        path.write_text("5")


def peak_gb(process):
    """Largest resident memory of a process since then; None where the system does not say."""
    path = Path(f"/proc/{process.pid}/status")
    lines = path.read_text().splitlines() if path.exists() else []
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    return round(kilobytes[0] * 1024 / 1e9, 2) if kilobytes else None


def compare(script, options, arguments, difference, platforms="cpu"):
    """One row: times of both sides, torch's time over ours, and how far their results are apart.

    `difference` gets the folder that both sides were given. Torch starts first, so that it may
    leave its weights there. `platforms` are those that jax may use.
    """
    with tempfile.TemporaryDirectory() as folder:
        torch, theirs = started(script, options.torch_python, "torch", folder, arguments, platforms)
        ours, mine = started(script, sys.executable, "flaxattn", folder, arguments, platforms)
        gap = difference(Path(folder))
        times = {"torch": [], "flaxattn": []}
        for number in range(options.rounds + WARM_UP):
            sides = [("torch", torch), ("flaxattn", ours)]
            if number == WARM_UP:
                for _, process in sides:
                    reset_peak(process)
            for side, process in sides[:: 1 if number % 2 else -1]:
                seconds = one_round(process)
                if number >= WARM_UP:
                    times[side].append(seconds)
        peaks = {"torch": peak_gb(torch), "flaxattn": peak_gb(ours)}
        for process in (torch, ours):
            process.stdin.close()
            process.wait()
    best = {side: 1e3 * min(seconds) for side, seconds in times.items()}
    middle = {side: 1e3 * statistics.median(seconds) for side, seconds in times.items()}
    return {
        "rounds": options.rounds,
        "best_ms": {side: round(ms, 1) for side, ms in best.items()},
        "median_ms": {side: round(ms, 1) for side, ms in middle.items()},
        "ratio_of_best": round(best["torch"] / best["flaxattn"], 3),
        "ratio_of_medians": round(middle["torch"] / middle["flaxattn"], 3),
        "peak_gb": peaks,
        "largest_difference": gap,
        "versions": {"torch": theirs, "flaxattn": mine},
        "load": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
    }


def show(label, row):
    """Print a row for people, then for programs."""
    print(
        f"{label:<24} best {row['best_ms']} ms, median {row['median_ms']} ms, "
        f"ratio {row['ratio_of_best']} (best) {row['ratio_of_medians']} (median), "
        f"peak {row['peak_gb']} GB"
    )
    print(json.dumps(row), flush=True)
