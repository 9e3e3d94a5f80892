# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Memory that was freed stays with the process: the next buffer touches no new pages."""

import os
import platform
import subprocess
import sys

SCRIPT = """
import ctypes, resource, sys
from flaxattn.pipeline.allocator import keep_freed_memory
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


def pool(start: str, **environment: str) -> str:
    """What a process that begins with `start` prints, and the allocator of its tables."""
    script = f"{start}\nimport pyarrow\nprint(pyarrow.default_memory_pool().backend_name)"
    command = [sys.executable, "-P", "-c", script]
    own = {name: value for name, value in os.environ.items() if not name.startswith("ARROW_")}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=own | environment
    ).stdout


def test_tables_lie_on_the_same_heap() -> None:
    """With glibc, unless another allocator is named; the command asks before Arrow is there."""
    keep = "from flaxattn.pipeline.allocator import keep_freed_memory; keep_freed_memory()"
    assert (pool(keep) == "system\n") == (platform.libc_ver()[0] == "glibc")
    assert pool(keep, ARROW_DEFAULT_MEMORY_POOL="mimalloc") == "mimalloc\n"
    early = pool("import sys, flaxattn.cli; print('pyarrow' in sys.modules)")
    assert early.startswith("False")
