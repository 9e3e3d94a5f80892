# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Memory that was freed stays with the process: calls of a program touch no new pages."""

import platform
import subprocess
import sys

SCRIPT = """
import resource, sys
from flaxattn.allocator import keep_freed_memory
kept = "keep" in sys.argv and keep_freed_memory()
import jax, jax.numpy as jnp
step = jax.jit(lambda x: x[:, :8] @ x[:8])
x = jnp.ones((3000, 3000))  # 36 MB, as is the result
for _ in range(10):
    step(x).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step(x).block_until_ready()
after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(int(kept), (after - before) // 20)
"""


def calls(*arguments: str) -> tuple[bool, int]:
    """Whether memory was kept, and page faults of one call."""
    command = [sys.executable, "-P", "-c", SCRIPT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kept, faults = done.stdout.split()
    return kept == "1", int(faults)


def test_calls_touch_far_fewer_new_pages() -> None:
    """With glibc; another C library says no, and nothing changes."""
    kept, faults = calls("keep")
    assert kept == (platform.libc_ver()[0] == "glibc")
    if kept:
        assert faults < calls()[1] / 4
