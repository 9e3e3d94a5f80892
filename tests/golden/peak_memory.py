# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The most memory that this process had at once."""

import re
import resource
from pathlib import Path

RECORDS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def highest() -> int:
    """Bytes of the most memory that this process had since `forget`, or since it began."""
    found = re.search(r"VmHWM:\s+(\d+)", RECORDS[1].read_text()) if RECORDS[1].exists() else None
    used = int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * used


def forget() -> None:
    """Count the most memory anew, where the system can."""
    if RECORDS[0].exists():
        RECORDS[0].write_text("5")
