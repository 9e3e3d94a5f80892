# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One measurement of the benchmark: a case, a request and a mode, all contenders taking turns.

Also the roofline that times are set against, measured the same way. bench.py chooses the
measurements and writes their results.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from flaxattn.benchmarks.bench_contenders import InJax, InTorch, PeerUnavailableError, Torch
from flaxattn.benchmarks.bench_peers import in_jax, is_plain, with_gradient
from flaxattn.benchmarks.cases import SIEVES, Case
from flaxattn.kernels.contract import NOTHING, Capture

REQUESTS = {
    "nothing": NOTHING,
    "statistics": Capture(stats=("lse", "entropy", "max", "argmax", *SIEVES[:4])),
    "weights bfloat16": Capture(weights=True, dtype="bfloat16"),
    "weights uint8": Capture(weights=True, dtype="uint8"),
    "received": Capture(stats=("received",)),
    "topk(8)": Capture(stats=("topk(8)",)),
}
"""What is asked, by the name it has in the results."""

MODES = ("forward", "forward + backward")
_TOLERANCE = 0.05  # between outputs in half precision, whose entries are a few units at most


class Turns(NamedTuple):
    """Number of rounds and repetitions with which contenders are timed.

    Attributes:
        rounds: how often each has its turn.
        seconds: a turn lasts at least so long, in as many calls as that takes.
        most: seconds after which a slow contender has no more turns, but for the first three.
    """

    rounds: int
    seconds: float
    most: float = 4.0


def roofline(dtype: str, on_cpu: bool) -> dict[str, float]:
    """The best the device does right now: copying, multiplying, and starting a program."""
    size, n = (2**24, 1024) if on_cpu else (2**29, 8192)
    matrix = jax.random.normal(jax.random.key(0), (n, n)).astype(dtype)
    copied = InJax("copy", lambda x: [-x.reshape(1, -1, 1, 1)], (jnp.ones(size, dtype),))
    product = InJax("matmul", lambda x: [(x @ x)[None, :, None]], (matrix,))
    start = InJax("start", lambda x: [x + 1], (jnp.ones((1, 1, 1, 1)),))

    def best(contender: InJax, calls: int) -> float:
        return min(contender.seconds(calls) / calls for _ in range(10))

    return {
        "copy_bytes_per_second": copied.moved / best(copied, 4),
        "matmul_flops_per_second": 2 * n**3 / best(product, 4),
        "dispatch_seconds": best(start, 100),
    }


def measured(
    case: Case,
    arguments: dict[str, Any],
    bar: jax.Array,
    request: str,
    mode: str,
    turns: Turns,
    torch: Torch | None,
    roof: dict[str, float],
    without: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Times one case, request and mode."""
    capture, backward = REQUESTS[request], mode != MODES[0]
    arrays = {name: arguments[name] for name in ("q", "k", "v")}
    others = {name: arguments[name] for name in arguments if name not in (*arrays, *case.options())}
    makers: dict[str, Callable[[], InJax | InTorch]] = {}
    for name, function in in_jax(case, capture, arguments).items():
        if name.removeprefix("flaxattn ") in without:
            continue
        given = (with_gradient(function), (arrays, others, bar)) if backward else None
        makers[name] = lambda name=name, given=given or (function, (arrays, others)): InJax(
            name, *given
        )
    if torch is not None and is_plain(case):
        for peer in ("eager", "sdpa") if capture == NOTHING else ("eager",):
            makers[f"torch {peer}"] = lambda peer=peer: InTorch(
                f"torch {peer}", torch, peer, capture, backward
            )
    contenders, rows = [], []
    about = {
        "case": case.name,
        "shape": dict(zip("BHQKD", (*case.shape, case.depth), strict=True)),
        "dtype": arrays["q"].dtype.name,
        "request": request,
        "mode": mode,
    }
    for name, make in makers.items():
        try:
            contenders.append(make())
        except PeerUnavailableError as error:
            rows.append(about | {"name": name, "note": str(error)})
    if not contenders:
        return rows
    times, calls = _times(contenders, turns)
    ours = statistics.median(times[0]) if contenders[0].name.startswith("flaxattn") else None
    flops = _flops(case, request, backward)
    moved = min((each.moved for each in contenders if isinstance(each, InJax)), default=0)
    floor = max(flops / roof["matmul_flops_per_second"], moved / roof["copy_bytes_per_second"])
    timed = [
        about
        | {"name": each.name, "note": "", "calls": calls[n], "flops": flops, "bytes": moved}
        | _summary(times[n], floor, ours)
        | _memory(each)
        | {"difference": float(np.abs(each.output - contenders[0].output).max())}
        for n, each in enumerate(contenders)
    ]
    return timed + rows


def faults(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Contenders of this library that could not run, or whose output is not that of the others."""
    found = {}
    for row in rows:
        fault = row["note"]
        if not fault and not row["difference"] <= _TOLERANCE:
            fault = f"its output differs by {row['difference']:.3g}"
        if fault and row["name"].startswith("flaxattn "):
            found.setdefault(row["name"], f"{row['request']}, {row['mode']}: {fault}")
    return found


def _times(
    contenders: Sequence[InJax | InTorch], turns: Turns
) -> tuple[list[list[float]], list[int]]:
    """Seconds per call of every round, contenders taking turns in changing order."""
    calls = []
    for each in contenders:
        once = min(each.seconds(1) for _ in range(2))
        calls.append(int(min(1000, max(1, -(-turns.seconds // once)))))
    times: list[list[float]] = [[] for _ in contenders]
    for number in range(turns.rounds):
        order = range(len(contenders))
        for n in order if number % 2 else reversed(order):
            if number < 3 or sum(times[n]) * calls[n] < turns.most:
                times[n].append(contenders[n].seconds(calls[n]) / calls[n])
    return times, calls


def _flops(case: Case, request: str, backward: bool) -> int:
    """Multiplications and additions of the matrix products that cannot be avoided."""
    products = 2 + 5 * backward + (request == "received")
    return 2 * products * case.batch * case.heads * _pairs(case) * case.depth


def _pairs(case: Case) -> int:
    """Number of pairs of positions of an example that causality, window and segments leave."""
    _, _, queries, keys = case.shape
    rows = np.arange(queries) + case.offset
    left, right = case.window or (None, None)
    if case.causal:
        right = 0 if right is None else min(right, 0)
    first = 0 if left is None else np.maximum(rows - left, 0)
    last = keys - 1 if right is None else np.minimum(rows + right, keys - 1)
    seen = np.broadcast_to(np.maximum(last - first + 1, 0), rows.shape)
    return int(seen.sum()) // max(1, case.segments)


def _summary(seconds: list[float], floor: float, ours: float | None) -> dict[str, Any]:
    """Times of one contender; the spread is between the quartiles."""
    low, middle, high = (float(x) for x in np.quantile(seconds, (0.25, 0.5, 0.75)))
    return {
        "median_seconds": middle,
        "best_seconds": min(seconds),
        "spread_seconds": high - low,
        "rounds": len(seconds),
        "roofline_fraction": floor / middle,
        "over_ours": None if ours is None else middle / ours,
    }


def _memory(contender: InJax | InTorch) -> dict[str, int | None]:
    return {
        "peak_bytes": contender.peak,
        "temporary_bytes": contender.temporary,
        "returned_bytes": contender.returned,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows of one measurement for a person."""
    first = rows[0]
    shape = " x ".join(str(size) for size in first["shape"].values())
    lines = [f"\n{first['case']} ({shape}), {first['request']}, {first['mode']}"]
    for row in rows:
        if row["note"]:
            lines.append(f"  {row['name']:<20} not measured: {row['note']}")
            continue
        ratio = "" if row["over_ours"] is None else f"  {row['over_ours']:6.2f} x ours"
        peak = "" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e6:10.1f} MB"
        lines.append(
            f"  {row['name']:<20} {1e3 * row['median_seconds']:9.3f} ms"
            f"  best {1e3 * row['best_seconds']:9.3f}  ± {1e3 * row['spread_seconds']:7.3f}"
            f"  {row['roofline_fraction']:6.1%} of roofline{ratio}{peak}"
        )
    return "\n".join(lines)
