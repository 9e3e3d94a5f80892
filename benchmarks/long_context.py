# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention over long contexts on this machine: time and peak memory of statistics and windows.

    python benchmarks/long_context.py --lengths 16384 32768 --heads 12

One sequence, causal, float32, heads 64 deep. "statistics" asks for every row statistic and for
what each key received; "window" also for the weights of 256 queries on 256 keys. Each is a process
of its own, because the peak is that of a process, with everything that Python and JAX hold.
"""

import argparse
import resource
import subprocess
import sys
import time

STATISTICS = ("lse", "entropy", "max", "argmax", "distance", "sum_sq", "received")
REQUESTS = ("statistics", "window")
DEPTH = 64


def measure(request, length, heads):
    """Seconds of a call, compiled before, and the peak of this process in GB."""
    import jax

    from flaxattn.kernels.attention import attention
    from flaxattn.kernels.contract import Capture

    end = 3 * length // 4
    window = {"weights": True, "query_window": (end - 256, end), "key_window": (0, 256)}
    capture = Capture(stats=STATISTICS, **(window if request == "window" else {}))
    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (jax.random.normal(key, (1, length, heads, DEPTH)) for key in keys)
    run = jax.jit(lambda q, k, v: attention(q, k, v, causal=True, capture=capture))
    run = run.lower(q, k, v).compile()
    begun = time.perf_counter()
    jax.block_until_ready(run(q, k, v))
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9  # in KiB on Linux
    print(f"{request:<10} {length:>6} positions, {heads} heads: {seconds:7.1f} s, {peak:5.2f} GB")


def main():
    """Measure everything, or one thing in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[16_384, 32_768])
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--one", choices=REQUESTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(options.one, options.lengths[0], options.heads)
        return
    for length in options.lengths:
        for request in REQUESTS:
            sizes = ["--lengths", str(length), "--heads", str(options.heads)]
            subprocess.run([sys.executable, "-P", __file__, *sizes, "--one", request], check=True)


if __name__ == "__main__":
    main()
