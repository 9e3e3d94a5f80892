# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Memory that was freed stays with the process: the next buffer touches no new pages."""

import platform
import subprocess
import sys

SCRIPT = """
import ctypes, resource, sys
from flaxattn.allocator import keep_freed_memory
kept = "keep" in sys.argv and keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def buffer(size=2**25 + 1):  # just over what glibc never keeps by itself
    place = ctypes.c_void_p(libc.malloc(ctypes.c_size_t(size)))
    libc.memset(place, 1, ctypes.c_size_t(size))
    libc.free(place)
buffer()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    buffer()
after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(int(kept), (after - before) // 5)
"""


def buffers(*arguments: str) -> tuple[bool, int]:
    """Whether memory was kept, and page faults of one buffer."""
    command = [sys.executable, "-P", "-c", SCRIPT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kept, faults = done.stdout.split()
    return kept == "1", int(faults)


def test_freed_pages_are_used_again() -> None:
    """With glibc; another C library says no, and nothing changes."""
    kept, faults = buffers("keep")
    assert kept == (platform.libc_ver()[0] == "glibc")
    if kept:
        assert faults < buffers()[1] / 100
