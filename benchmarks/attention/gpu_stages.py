# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Stages of the first hour on a GPU: what is run, in which order, and how long each may take.

stage_runner.py runs the stages, first_hour.py collects their results.
"""

import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flaxattn.benchmarks import cases
from flaxattn.benchmarks.bench_rows import REQUESTS
from flaxattn.benchmarks.bench_targets import BASE, LONG
from flaxattn.benchmarks.stage_record import Stage

IMPLEMENTATIONS = ("mosaic_gpu", "cudnn", "xla")
"""Implementations that the tests try on a GPU, the least tried one first."""

_TESTS_OF_A_GROUP = 4
_START = 60.0  # seconds until jax has found the device, with much to spare
_TEST = 45.0  # seconds of a test: it compiles about ten programs
_SECONDS = {BASE: 120.0, LONG: 180.0}


@dataclass(frozen=True)
class FirstHourPlan:
    """Everything that is to be run on a device.

    Attributes:
        device: writes facts about the device; without them nothing else is run.
        listing: writes the names of the conformance tests.
        primitives: stages of the primitives.
        timings: stages of the benchmark.
        tests: words for pytest that come before the names of tests.
    """

    device: Stage
    listing: Stage
    primitives: tuple[Stage, ...]
    timings: tuple[Stage, ...]
    tests: tuple[str, ...] = ()

    def groups(self, names: Sequence[str]) -> list[Stage]:
        """Stages of the conformance tests, from the smallest case to the largest."""
        found = []
        for implementation in (*IMPLEMENTATIONS, ""):
            own = sorted((n for n in names if _implementation(n) == implementation), key=_size)
            parts = [
                own[at : at + _TESTS_OF_A_GROUP] for at in range(0, len(own), _TESTS_OF_A_GROUP)
            ]
            for number, part in enumerate(parts, 1):
                label = f"{implementation or 'others'} {number} of {len(parts)}"
                stage = Stage(
                    f"{label}: {', '.join(dict.fromkeys(map(_label, part)))}",
                    "conformance",
                    (*self.tests, *part),
                    _START + _TEST * len(part),
                    about=(implementation,) if implementation else (),
                )
                found.append((_size(part[-1]), stage))
        return [stage for _, stage in sorted(found, key=lambda pair: pair[0])]


def _parameters(test: str) -> str:
    """The text in brackets after a test's name."""
    return test.partition("[")[2].removesuffix("]")


def _implementation(test: str) -> str:
    """The implementation that a test tries, empty for none."""
    words = _parameters(test).split("-")
    named = [name for name in IMPLEMENTATIONS if name in words or f"_{name}_" in test]
    return named[0] if named else ""


def _case(test: str) -> cases.Case | None:
    """The case that a test tries."""
    text = _parameters(test)
    found = [each for each in cases.CASES if text == each.name or text.endswith(f"-{each.name}")]
    return max(found, key=lambda each: len(each.name), default=None)


def _label(test: str) -> str:
    case = _case(test)
    return case.name if case else test.rpartition("::")[2]


def _size(test: str) -> tuple[float, str]:
    """A key to sort tests by: the size of the case, then its name; unknown sizes come last."""
    case = _case(test)
    return (math.inf, test) if case is None else (math.prod(case.shape) * case.depth, case.name)


def _python(module: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", f"flaxattn.benchmarks.{module}", *words)


def _primitives(names: Sequence[str]) -> Iterator[Stage]:
    for name in names:
        command = _python("gpu_primitives", name)
        yield Stage(name, "primitives", command, _START, about=("mosaic_gpu",))


def _timings() -> Iterator[Stage]:
    """A stage for each case and request; what needs the most memory comes last of a case.

    The plain request alone shows what masks cost.
    """
    requests = sorted(REQUESTS, key=lambda name: name.startswith("weights"))
    rows = [(case, request) for case in (BASE, LONG) for request in requests]
    rows += [(case, "nothing") for case in cases.RESTRICTED]
    for case, request in rows:
        command = _python("bench", "--case", case, "--request", request, "--out", "{result}")
        name, seconds = f"{case}, {request}", _SECONDS[BASE if case.startswith(BASE) else LONG]
        others = Stage(
            f"{name}, without mosaic_gpu",
            "timing",
            (*command, "--without", "mosaic_gpu"),
            seconds,
            alone=True,
        )
        yield Stage(name, "timing", command, seconds, ("mosaic_gpu",), True, others)


def plan(folder: Path) -> FirstHourPlan:
    """The stages for a GPU."""
    # Here and not above: Pallas takes its time.
    from flaxattn.benchmarks.gpu_primitives import PRIMITIVES

    fixtures = str(folder.absolute().parent / "fixtures")
    path = os.pathsep.join([fixtures, *filter(None, [os.environ.get("PYTHONPATH")])])
    pytest = (
        *("env", f"PYTHONPATH={path}", "FLAXATTN_OUTCOMES={result}"),
        *(sys.executable, "-P", "-m", "pytest", "-p", "outcome_file", "-p", "no:cacheprovider"),
        # What tests/conftest.py imports for other tests need not be installed beside a GPU.
        *("--noconftest", "--override-ini=addopts=--import-mode=importlib"),
        *("--verbose", "--tb=short", "-m", "gpu"),
    )
    return FirstHourPlan(
        device=Stage("device", "device", _python("device_facts", "{result}"), 2 * _START),
        listing=Stage(
            "list of tests", "conformance", (*pytest, "--collect-only", str(folder)), 2 * _START
        ),
        primitives=tuple(_primitives([each.name for each in PRIMITIVES])),
        timings=tuple(_timings()),
        tests=pytest,
    )
