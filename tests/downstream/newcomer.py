# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Run the first Python block of a README as a newcomer does, and time the first page.

    python newcomer.py README.md

`.ci/run` calls it in an empty folder with the Python of a virtual environment that holds nothing
but the wheel and what it needs.
"""

import re
import runpy
import sys
import time
from pathlib import Path

LIMIT = 60.0  # seconds to the first page


def main(readme: Path) -> None:
    """Run the block; exit with a message if it writes no page in time."""
    block = re.findall(r"^```python\n(.*?)^```$", readme.read_text("utf-8"), re.M | re.S)[0]
    Path("block.py").write_text(block, encoding="utf-8")
    start = time.monotonic()
    runpy.run_path("block.py", run_name="__main__")
    seconds = time.monotonic() - start
    pages = list(Path().glob("*.html"))
    if not pages or seconds > LIMIT:
        sys.exit(f"{len(pages)} pages in {seconds:.1f} s; one within {LIMIT:.0f} s was expected")
    print(f"the first page took {seconds:.1f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
