# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What the scripts that write pages of results share: tables in Markdown, clocks, the two files.

A page is `render(facts)`, and `facts` lie beside it as JSON, so that a test can write it anew.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from flaxattn.reports.report import finite

FOLDER = Path(__file__).resolve().parent


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown; all columns but the first are aligned to the right.

    Args:
        header: Names of the columns.
        rows: Cells; None is left empty.
    """
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    cells = [["" if cell is None else str(cell) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def write_page(name: str, facts: dict[str, Any], render: Callable[[dict[str, Any]], str]) -> None:
    """Write NAME.json and NAME.md into this folder.

    Args:
        name: Of the page.
        facts: All that is on it.
        render: Makes it of them.
    """
    text = json.dumps(finite(facts), indent=1, allow_nan=False) + "\n"
    (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")
    (FOLDER / f"{name}.md").write_text(render(json.loads(text)), encoding="utf-8")


class Clock:
    """Seconds that pieces of work took: of the wall, and of processors, all threads added up."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def __enter__(self) -> "Clock":
        self._from = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter() - self._from[0]
        self.cpu += time.process_time() - self._from[1]

    def told(self) -> dict[str, float]:
        """Both, rounded."""
        return {"wall": round(self.wall, 1), "cpu": round(self.cpu, 1)}
