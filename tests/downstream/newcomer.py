# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Run the blocks of a README as a newcomer does, and time them.

    python newcomer.py README.md
    python newcomer.py README.md --shell

The first runs the first Python block and times the first page, the second the block of commands.
`.ci/wheel` calls both in an empty folder with the Python of a virtual environment that holds
nothing but the wheel and what it needs.
"""

import os
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 60.0  # seconds to the first page
ALL = 360.0  # seconds of all commands


def blocks(readme: Path, language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", readme.read_text("utf-8"), re.M | re.S)


def first_page(readme: Path) -> None:
    """Run the first Python block; exit with a message if it writes no page in time."""
    Path("block.py").write_text(blocks(readme, "python")[0], encoding="utf-8")
    start = time.monotonic()
    runpy.run_path("block.py", run_name="__main__")
    seconds = time.monotonic() - start
    pages = list(Path().glob("*.html"))
    if not pages or seconds > LIMIT:
        sys.exit(f"{len(pages)} pages in {seconds:.1f} s; one within {LIMIT:.0f} s was expected")
    print(f"the first page took {seconds:.1f} s")


def commands(readme: Path) -> None:
    """Run the block of commands; exit with a message if a line fails, or it takes long."""
    (block,) = (b for b in blocks(readme, "sh") if b.startswith("flaxattn demo"))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    start = time.monotonic()
    shell = ["bash", "-euc", block]
    code = subprocess.run(shell, env={**os.environ, "PATH": path}, check=False).returncode
    seconds = time.monotonic() - start
    if code or seconds > ALL:
        sys.exit(f"README's commands ended with {code} after {seconds:.0f} s of {ALL:.0f}")
    print(f"README's commands took {seconds:.0f} s")


if __name__ == "__main__":
    run = commands if "--shell" in sys.argv else first_page
    run(Path(sys.argv[1]).resolve())
