# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Targets of the kernels on a Hopper GPU, and whether the rows of a benchmark meet them.

A target that could not be measured is neither passed nor failed, and says so.
"""

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
Find = Callable[..., float | None]
OURS = "flaxattn mosaic_gpu"
BASE, LONG = "BERT-base", "long"
_FORWARD, _BOTH = "forward", "forward + backward"


def judged(rows: list[Row]) -> list[dict[str, Any]]:
    """Every target with its value."""

    def find(
        case: str,
        request: str,
        name: str = OURS,
        mode: str = _FORWARD,
        field: str = "median_seconds",
    ) -> float | None:
        for row in rows:
            key = row["case"], row["request"], row["name"], row["mode"], row["dtype"]
            if key == (case, request, name, mode, "bfloat16"):
                return row.get(field)
        return None

    found = []
    for case in (BASE, LONG):
        found += _ratios(case, find)
    found += _of_base(find) + _of_long(find)
    return found


def _target(case: str, words: str, value: float | None, sense: str, limit: float | None) -> Row:
    passed = None
    if value is not None and limit is not None:
        passed = value >= limit if sense == ">=" else value <= limit
    return {
        "target": words,
        "case": case,
        "value": value,
        "sense": sense,
        "limit": limit,
        "passed": passed,
    }


def _over(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


def _ratios(case: str, find: Find) -> list[Row]:
    """Ratios of times, requested at both shapes."""
    plain, statistics = find(case, "nothing"), find(case, "statistics")
    both = find(case, "nothing", mode=_BOTH)
    cudnn = find(case, "nothing", "jax cuDNN")
    cudnn_both = find(case, "nothing", "jax cuDNN", _BOTH)
    received, topk = find(case, "received"), find(case, "topk(8)")
    eager = {name: find(case, name, "torch eager") for name in ("statistics", "topk(8)")}
    return [
        _target(case, "plain forward, rate over cuDNN's", _over(cudnn, plain), ">=", 0.9),
        _target(
            case, "plain forward + backward, rate over cuDNN's", _over(cudnn_both, both), ">=", 0.8
        ),
        _target(case, "statistics, time over our plain", _over(statistics, plain), "<=", 1.25),
        _target(
            case,
            "statistics, torch eager's time over ours",
            _over(eager["statistics"], statistics),
            ">=",
            8.0,
        ),
        _target(case, "received, time over our plain", _over(received, plain), "<=", 1.9),
        _target(
            case, "top 8, torch eager's time over ours", _over(eager["topk(8)"], topk), ">=", 4.0
        ),
    ]


def _of_base(find: Find) -> list[Row]:
    """Weights at length 512."""
    half, small = find(BASE, "weights bfloat16"), find(BASE, "weights uint8")
    eager = find(BASE, "weights bfloat16", "torch eager")
    return [
        _target(
            BASE, "bfloat16 weights, torch eager's time over ours", _over(eager, half), ">=", 3.5
        ),
        _target(BASE, "bfloat16 weights, seconds", half, "<=", 230e-6),
        _target(BASE, "uint8 weights, seconds", small, "<=", 160e-6),
    ]


def _of_long(find: Find) -> list[Row]:
    """Memory at length 16,384: nothing of Q x K, and hardly more than torch SDPA."""
    request = "statistics"
    temporary = find(LONG, request, field="temporary_bytes")
    pairs = find(LONG, request, field="flops")
    # Two products of 2 B·H·Q·K·64 operations each: what a byte for each pair would take.
    pairs = None if pairs is None else pairs / (4 * 64)
    peak = find(LONG, request, field="peak_bytes")
    statistics = _less(
        find(LONG, request, field="returned_bytes"), find(LONG, "nothing", field="returned_bytes")
    )
    sdpa = find(LONG, "nothing", "torch sdpa", field="peak_bytes")
    return [
        _target(LONG, "statistics, temporary bytes, under one per pair", temporary, "<=", pairs),
        _target(
            LONG,
            "statistics, peak memory without the statistics themselves over torch SDPA's",
            _over(_less(peak, statistics), sdpa),
            "<=",
            1.05,
        ),
    ]


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def as_text(targets: list[dict[str, Any]]) -> str:
    """Targets for a person."""
    lines = ["Targets on a Hopper GPU, bfloat16:"]
    for each in targets:
        if each["passed"] is not None:
            mark = "reached" if each["passed"] else "MISSED "
            lines.append(
                f"  {mark} {each['case']}: {each['target']}: {each['value']:.4g} "
                f"({each['sense']} {each['limit']:.4g})"
            )
    missing = sum(each["passed"] is None for each in targets)
    if missing:
        lines.append(
            f"  {missing} of {len(targets)} not measured: they need a Hopper GPU and torch"
        )
    return "\n".join(lines)
