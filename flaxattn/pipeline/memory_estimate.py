# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Memory that a job will take, as its command says before it begins.

A job knows the sizes of its own arrays; here are added the process as it is, and the compiler.
"""

import resource
import sys

from flaxattn.files import readable_size

# Programs of a job and the compiler, while it works: 350 to 550 MB for the built-in models.
_PROGRAMS = 450_000_000
_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of what getrusage counts


def memory_needed(arrays: int) -> int:
    """Bytes that this process will take at most, within about half as much again.

    Args:
        arrays: Bytes of the arrays that the job holds at once, beside what is loaded already.
    """
    present = _UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return present + _PROGRAMS + arrays


def memory_sentence(arrays: int) -> str:
    """Say how much memory a job needs.

    Args:
        arrays: As for `memory_needed`.
    """
    return f"about {readable_size(memory_needed(arrays))} of memory"
