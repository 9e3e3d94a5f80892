# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The JSON file of a run in stages: on disk after every change, so that it survives a hang.

A stage is a command with a time limit. stage_runner.py runs the stages.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flaxattn.files import write_text

SCHEMA = 1
STATUSES = ("passed", "failed", "timed out", "not reached")
WAITING = "its turn did not come"


@dataclass(frozen=True)
class Stage:
    """One step of a run: a command that passes or not.

    Attributes:
        name: unique in the run.
        part: of the run: "device", "primitives", "conformance" or "timing".
        command: words of the command; ``{result}`` stands for the file of its result.
        seconds: time limit.
        about: implementations whose trust depends on it.
        alone: whether nothing else may run at the same time.
        instead: stage to run where this one does not pass.
    """

    name: str
    part: str
    command: tuple[str, ...]
    seconds: float
    about: tuple[str, ...] = ()
    alone: bool = False
    instead: "Stage | None" = None


class StageRecord:
    """State of every stage of a run, in memory and in a JSON file.

    Args:
        path: of the file.
        facts: of the run: version, commit, date and what else belongs to it.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]):
        self.path = path
        self.document: dict[str, Any] = {"schema": SCHEMA, **facts, "stages": []}
        self.problem = ""

    @property
    def stages(self) -> list[dict[str, Any]]:
        """An entry for each stage, in the order in which they were added."""
        return self.document["stages"]

    def save(self) -> None:
        """Replace the file, in one step. Where that fails, the run goes on with a note of it."""
        try:
            write_text(self.path, json.dumps(self.document, indent=1) + "\n", "the record")
        except OSError as error:
            self.problem = f"{self.path} could not be written: {error.strerror}"
        else:
            self.problem = ""

    def add(self, stages: Sequence[Stage]) -> None:
        """Add stages that have not run yet."""
        self.stages.extend(
            {"name": each.name, "part": each.part, "about": list(each.about)} for each in stages
        )
        for each in stages:
            self.change(each.name, status="not reached", reason=WAITING, seconds=0.0)
        self.save()

    def entry(self, name: str) -> dict[str, Any]:
        """The entry of a stage."""
        return next(entry for entry in self.stages if entry["name"] == name)

    def change(self, name: str, **fields: Any) -> None:
        """Change the entry of a stage in memory."""
        self.entry(name).update(fields)

    def passed(self) -> bool:
        """Return whether every stage passed."""
        return all(entry["status"] == "passed" for entry in self.stages)


def resumed(
    record: StageRecord, stages: Sequence[Stage], earlier: Mapping[str, Any]
) -> list[Stage]:
    """The stages that are left to do, when those that passed before need not run again."""
    done = {
        entry["name"]: entry
        for entry in earlier.get("stages", [])
        if entry.get("status") == "passed"
    }
    for stage in stages:
        if stage.name in done:
            record.entry(stage.name).update(done[stage.name])
    record.save()
    return [stage for stage in stages if stage.name not in done]
