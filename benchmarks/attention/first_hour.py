# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The first hour on a Hopper GPU: facts, primitives, conformance tests and timings, in stages.

Every stage is a process with a time limit, and its outcome is in one JSON file at once, so nothing
that hangs or crashes costs more than itself. At the end a summary says which kernel to trust. The
stages are in gpu_stages.py. Run it in the root of a checkout (`make gpu`):

    python -m flaxattn.benchmarks.first_hour --minutes 20
    python -m flaxattn.benchmarks.first_hour --minutes 20 --resume
    python -m flaxattn.benchmarks.first_hour --show
"""

import argparse
import importlib.metadata
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flaxattn import kernels
from flaxattn.benchmarks import bench_targets, first_hour_summary, gpu_stages
from flaxattn.benchmarks.gpu_stages import FirstHourPlan
from flaxattn.benchmarks.stage_record import Stage, StageRecord, resumed
from flaxattn.benchmarks.stage_runner import StageRunner, without_suspects
from flaxattn.files import json_digest, sha256_of

ENVIRONMENT = {
    "JAX_PLATFORMS": "cuda",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONSAFEPATH": "1",
    "PYTHONUNBUFFERED": "1",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # several processes share the device
}
BEFORE_TIMING = 0.5
"""Share of the time that checks may take before the timings have their turn."""

_SAME = ("version", "commit", "sources", "device")


@dataclass(frozen=True)
class FirstHourSettings:
    """Settings of a run.

    Attributes:
        out: the JSON file; an earlier one is kept beside it.
        minutes: time for everything.
        jobs: checks that run at the same time.
        resume: whether stages that passed before, on the same sources and device, are skipped.
        tests: folder of the conformance tests.
    """

    out: Path = Path("flaxattn-gpu.json")
    minutes: float = 20.0
    jobs: int = 1
    resume: bool = False
    tests: Path = Path("tests/kernels")


class FirstHour:
    """One run of a plan.

    Args:
        plan: to run.
        settings: of the run.
        tell: takes lines for a person.
    """

    def __init__(
        self, plan: FirstHourPlan, settings: FirstHourSettings, tell: Callable[[str], None]
    ):
        self.plan, self.settings, self.tell = plan, settings, tell
        self.start = time.monotonic()
        self.earlier = _set_aside(settings.out)
        self.record = StageRecord(settings.out, _facts(settings))
        self.runner = StageRunner(
            self.record, os.environ | ENVIRONMENT, max(1, settings.jobs), tell
        )

    def _end(self, share: float = 1.0) -> float:
        return self.start + 60 * self.settings.minutes * share

    def run(self) -> int:
        """Run everything, or as much as there is time for, and print the summary."""
        plan, settings = self.plan, self.settings
        self.tell(f"Ends after {settings.minutes:g} minutes; outcomes are in {settings.out}.")
        try:
            self.record.add([plan.device, plan.listing, *plan.primitives, *plan.timings])
            if self._device_is_there():
                self._run_stages()
        except KeyboardInterrupt:
            self.tell("Stopped. What has an outcome is kept; --resume goes on from there.")
        finally:
            self.runner.close()
        document = self.record.document
        targets = bench_targets.judged(first_hour_summary.rows_of(document))
        document |= {"targets": targets, "trust": first_hour_summary.trust(document)}
        document["finished"] = _now()
        self.record.save()
        if self.record.problem:
            self.tell(f"{self.record.problem}. What follows is all there is.")
        self.tell("\n" + first_hour_summary.summary(document))
        if settings.resume and self.record.entry(plan.device.name)["status"] != "passed":
            _put_back(settings.out)
        return 0 if self.record.passed() and not self.record.problem else 1

    def _device_is_there(self) -> bool:
        """Write facts about the device into the record; False where nothing else can run."""
        self.runner.run([self.plan.device], self._end())
        entry = self.record.entry(self.plan.device.name)
        self.record.document["device"] = entry.get("result")
        self.record.save()
        if entry["status"] != "passed":
            self.tell("\n".join(entry.get("output", [])))
            self.tell("There is no device to run on, or jax cannot use it: all else is left out.")
        return entry["status"] == "passed"

    def _run_stages(self) -> None:
        """Checks for their share of the time, then timings, then the checks that are left."""
        plan, share = self.plan, self._end(BEFORE_TIMING)
        first = self._left([plan.listing, *plan.primitives])
        rest = self.runner.run(first, share)
        listed = self.record.entry(plan.listing.name).get("result") or {}
        groups = plan.groups(list(listed.get("tests", {})))
        self.record.add(groups)
        rest = self.runner.run([*rest, *self._left(groups)], share)
        timings = self._left(plan.timings)
        if self._suspects(timings):
            timings = without_suspects(timings)
            known = {entry["name"] for entry in self.record.stages}
            self.record.add([each for each in timings if each.name not in known])
            timings = self._left(timings)
        self.runner.run(timings, self._end())
        self.runner.run(rest, self._end())

    def _left(self, stages: Sequence[Stage]) -> list[Stage]:
        """The stages that did not pass before."""
        earlier, now = self.earlier, self.record.document
        if not self.settings.resume or any(earlier.get(key) != now.get(key) for key in _SAME):
            return list(stages)
        return resumed(self.record, stages, earlier)

    def _suspects(self, timings: Sequence[Stage]) -> set[str]:
        """Implementations in the timings that hung in a check."""
        hung = (entry for entry in self.record.stages if entry["status"] == "timed out")
        return {name for entry in hung for name in entry["about"]} & {
            name for stage in timings for name in stage.about
        }


def _previous(path: Path) -> Path:
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def _put_back(path: Path) -> None:
    """Let an earlier file have its name again: nothing was added to it."""
    if _previous(path).is_file():
        _previous(path).replace(path)


def _set_aside(path: Path) -> Mapping[str, Any]:
    """The document of an earlier run, empty without one; its file gets another name."""
    if not path.is_file():
        return {}
    kept = _previous(path)
    path.replace(kept)
    try:
        return json.loads(kept.read_text(encoding="utf-8"))
    except ValueError:
        return {}


def _facts(settings: FirstHourSettings) -> dict[str, Any]:
    return {
        "version": importlib.metadata.version("flaxattn"),
        "commit": _commit(),
        "sources": _sources(settings.tests),
        "date": _now(),
        "minutes": settings.minutes,
        "device": None,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--match="]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def _sources(tests: Path) -> str:
    """A digest of the files that outcomes depend on, committed or not."""
    folders = [Path(str(kernels.__file__)).parent, Path(__file__).parent, tests]
    paths = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    return json_digest({f"{path.parent.name}/{path.name}": sha256_of(path) for path in paths})


def _tell(text: str) -> None:
    """Print, unless the terminal is gone."""
    with suppress(OSError, ValueError):
        print(text, flush=True)


def _interrupt(*_: Any) -> None:
    """Stop once: what ends the stages must not be stopped itself."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def guarded() -> None:
    """Let a closed terminal stop nothing, Ctrl-C and SIGTERM stop in order, and no core be left."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def main(words: Sequence[str] | None = None) -> int:
    """`python -m flaxattn.benchmarks.first_hour`."""
    defaults = FirstHourSettings()
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--minutes", type=float, default=defaults.minutes, help="time for everything (20)"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="skip stages that passed before, on the same commit and device",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=max(1, min(4, (os.cpu_count() or 1) // 4)),
        help="checks that run at the same time (one for 4 processors, at most 4)",
    )
    parser.add_argument("--tests", type=Path, default=defaults.tests, help="folder of the tests")
    parser.add_argument("--out", type=Path, default=defaults.out, help="JSON file of the results")
    parser.add_argument(
        "--show", action="store_true", help="print the summary of the JSON file; run nothing"
    )
    options = vars(parser.parse_args(words))
    if options.pop("show"):
        try:
            document = json.loads(options["out"].read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            parser.error(f"cannot read {options['out']}: {error}")
        print(first_hour_summary.summary(document))
        return 0 if all(each["status"] == "passed" for each in document["stages"]) else 1
    guarded()
    settings = FirstHourSettings(**options)
    return FirstHour(gpu_stages.plan(settings.tests), settings, _tell).run()


if __name__ == "__main__":
    sys.exit(main())
