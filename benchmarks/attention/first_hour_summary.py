# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Summary of a run in stages: stages, targets, tables in Markdown, and the kernel to trust.

Everything is made from the document of a `StageRecord`; nothing is run here.
"""

from collections.abc import Mapping
from typing import Any

from flaxattn.benchmarks import bench_targets
from flaxattn.benchmarks.bench_rows import faults
from flaxattn.benchmarks.gpu_stages import IMPLEMENTATIONS
from flaxattn.benchmarks.stage_record import STATUSES, WAITING

Document = Mapping[str, Any]
_CHECKS = ("primitives", "conformance")


def rows_of(document: Document) -> list[dict[str, Any]]:
    """Rows of the benchmark that were written, those with all contenders first."""
    timed = [entry for entry in document["stages"] if entry["part"] == "timing"]
    timed.sort(key=lambda entry: not entry["about"])
    return [row for entry in timed for row in (entry.get("result") or {}).get("rows", [])]


def trust(document: Document) -> str:
    """The implementation to trust on the device, in one line with the reason.

    It is the first one all of whose checks passed. Timings count where they failed, not where
    they were not reached.
    """
    doubts = []
    for name in IMPLEMENTATIONS:
        doubt = _doubt(document, name)
        if doubt is None:
            return f"trust {name}: " + "; ".join([*doubts, _proof(document, name)])
        doubts.append(doubt)
    return "trust none of the implementations: " + "; ".join(doubts)


def _proof(document: Document, name: str) -> str:
    """The checks that an implementation passed, and how fast it is beside cuDNN."""
    own = [entry["part"] for entry in document["stages"] if name in entry["about"]]
    passed = f"groups of tests ({own.count('conformance')}) passed, all there are"
    if "primitives" in own:
        passed = f"primitives ({own.count('primitives')}) and {passed}"
    rate = bench_targets.judged(rows_of(document))[0]["value"] if name == "mosaic_gpu" else None
    return passed if rate is None else f"{passed}; plain forward at {rate:.2f} of cuDNN's rate"


def _doubt(document: Document, name: str) -> str | None:
    """The reason not to trust an implementation, None without one."""
    own = [entry for entry in document["stages"] if name in entry["about"]]
    checks = [entry for entry in own if entry["part"] in _CHECKS]
    bad = [entry for entry in own if entry["status"] in ("failed", "timed out")]
    bad = [entry for entry in bad if _is_fault_of(name, entry)]
    missing = sum(entry["status"] == "not reached" for entry in checks)
    if bad:
        more = f" and {len(bad) - 1} more stages" if len(bad) > 1 else ""
        verb = "hung" if bad[0]["status"] == "timed out" else "failed"
        return f"{name} {verb} in {bad[0]['name']!r} ({bad[0]['reason']}){more}"
    if not any(entry["part"] == "conformance" for entry in checks):
        return f"{name} was not tested"
    if missing:
        return f"{name} passed {len(checks) - missing} of {len(checks)} checks, others not reached"
    return None


def _is_fault_of(name: str, entry: Mapping[str, Any]) -> bool:
    """Return whether a stage failed because of an implementation, as far as its rows tell."""
    wrong = faults((entry.get("result") or {}).get("rows", []))
    of_others = entry["status"] == "failed" and wrong and f"flaxattn {name}" not in wrong
    return not of_others


def summary(document: Document) -> str:
    """The whole summary."""
    targets = bench_targets.judged(rows_of(document))
    parts = [
        _stages(document),
        bench_targets.as_text(targets),
        "For BENCHMARKS.md:",
        _table_of_targets(document, targets),
        _table_of_times(document),
        trust(document),
    ]
    return "\n\n".join(part for part in parts if part)


def _stages(document: Document) -> str:
    """Number of stages of each part by status, and those that did not pass."""
    lines = [f"flaxattn {document['version']}, commit {document['commit']}, {document['date']}"]
    stages = document["stages"]
    for part in dict.fromkeys(entry["part"] for entry in stages):
        own = [entry["status"] for entry in stages if entry["part"] == part]
        counts = (f"{own.count(status)} {status}" for status in STATUSES if status in own)
        lines.append(f"  {part:<12} {', '.join(counts)}")
    bad = [entry for entry in stages if entry["status"] != "passed"]
    bad = [entry for entry in bad if entry["reason"] != WAITING]
    lines += [f"  {entry['status']}: {entry['name']}: {entry['reason']}" for entry in bad]
    return "\n".join(lines)


def _device(document: Document) -> str:
    facts = document.get("device") or {}
    return facts.get("gpu") or (facts.get("device") or {}).get("kind") or "unknown device"


def _number(target: Mapping[str, Any], value: float) -> str:
    if "bytes" in target["target"]:
        return f"{value / 1e6:.1f} MB"
    return f"{value * 1e6:.0f} µs" if target["target"].endswith("seconds") else f"{value:.2f}"


def _cell(target: Mapping[str, Any] | None) -> str:
    if target is None:
        return ""
    if target["passed"] is None:
        return "not measured"
    limit = f"{target['sense']} {_number(target, target['limit'])}"
    verdict = "reached" if target["passed"] else "missed"
    return f"{_number(target, target['value'])} ({limit}: {verdict})"


def _markdown(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _table_of_targets(document: Document, targets: list[dict[str, Any]]) -> str:
    """A row for each target, a column for each shape."""
    by_place = {(each["target"], each["case"]): each for each in targets}
    shapes = (bench_targets.BASE, bench_targets.LONG)
    body = [
        [words, *(_cell(by_place.get((words, shape))) for shape in shapes)]
        for words in dict.fromkeys(each["target"] for each in targets)
    ]
    return _markdown([f"target, on {_device(document)}", "base", "long"], body)


def _table_of_times(document: Document) -> str:
    """Median milliseconds of every contender; empty without rows."""
    rows = rows_of(document)
    names = list(dict.fromkeys(row["name"] for row in rows))
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        place = cells.setdefault((row["case"], row["request"], row["mode"]), {})
        time = row.get("median_seconds")
        place.setdefault(row["name"], "failed" if time is None else f"{1e3 * time:.3f}")
    body = [[*place, *(own.get(name, "") for name in names)] for place, own in cells.items()]
    return _markdown(["case", "request", "ms", *names], body) if body else ""
