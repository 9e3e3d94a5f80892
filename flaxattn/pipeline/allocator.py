# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of the C library's allocator for memory that was freed.

XLA on CPU allocates the buffers of a program anew at every call. The C library hands blocks that
large straight back to the system, which zeroes each page again when it is next touched: a seventh
of a training step of a small model went there (BENCHMARKS.md).
"""

import ctypes
import os
import platform

# From glibc's malloc.h, with what mallopt(3) says of them.
_MMAP_MAX, _TRIM_THRESHOLD, _ARENA_MAX = -4, -1, -8


def keep_freed_memory() -> bool:
    """Keep what is freed for the next allocation, for the rest of the process.

    For a process of our own, such as the `flaxattn` command: it then holds its peak memory until
    it ends. Large blocks come from one heap that never shrinks, and so do Arrow's tables, unless
    `ARROW_DEFAULT_MEMORY_POOL` says otherwise or pyarrow was imported before: the allocator that
    Arrow brings along touches new pages for a long while before it uses old ones again, a tenth
    of the memory of a long extraction (BENCHMARKS.md).

    Returns:
        Whether it was done; only glibc can.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_ARENA_MAX, 1))
    return all([mallopt(name, value) for name, value in settings])
