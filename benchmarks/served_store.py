# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A large store served by `flaxattn view STORE --serve`: seconds and memory as its texts grow.

    python benchmarks/served_store.py [--texts 1000 100000] [--folder KEPT] [--rounds 5]

Each store is written here, with random text and attention: 1,000 texts to a shard, 16 tokens, one
layer of two heads as bytes. The command runs in a process of its own. "starts_s" is until it says
where it listens, of which `import` is most; then pages are requested over loopback, each kind
`--rounds` times at random places of the list, the first of them with shards that were never opened:
the slowest is told beside the median. Searches: a word of every text, one of a single text in the
last shard, and one of none, which read the tables of texts to the end. Memory is the process's
peak, of all that was asked so far.
"""

import argparse
import hashlib
import http.client
import itertools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from flaxattn.corpus.texts import Text
from flaxattn.store.commit_shards import write_shard
from flaxattn.trace.trace import Trace

PER_SHARD, TOKENS = 1000, 16
WORDS = "the old clock in hall stopped nobody knew why it was so late cat dog found no food".split()


def write(folder: Path, count: int) -> None:
    """A store of random texts; the last holds the word `needle`."""
    cuts = [*range(0, count, PER_SHARD), count]
    shards = [{"start": a, "stop": b} for a, b in itertools.pairwise(cuts)]
    plan = {"texts": count, "model": "random", "capture": {"weights": True}, "shards": shards}
    data = json.dumps(plan).encode()
    folder.mkdir(parents=True)
    (folder / "plan.json").write_bytes(data)
    rng = np.random.default_rng(0)
    for number, span in enumerate(shards):
        texts = range(span["start"], span["stop"])
        weights = rng.dirichlet(np.full(TOKENS, 0.4), (len(texts), 1, 1, 2, TOKENS))
        stored = np.round(255 * weights).astype(np.uint8)
        words = rng.choice(WORDS, (len(texts), TOKENS)).tolist()
        items = []
        for n, own, row in zip(texts, stored, words, strict=True):
            text = f"{' '.join(row)}{' needle' if n == count - 1 else ''}"
            trace = Trace.from_arrays(own, [row], texts=[(text,)])
            items.append((Text(n, f"corpus.txt:{n + 1}", "", None, "corpus.txt", n + 1), trace))
        write_shard(folder, hashlib.sha256(data).hexdigest(), number, span, items)


def peak(process: subprocess.Popen) -> float:
    """Megabytes that a process has held at most."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) / 1e3


def asked(port: int, path: str) -> float:
    """Seconds of one request."""
    start = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {data[:200]!r}")
    finally:
        connection.close()
    return time.perf_counter() - start


def requests(count: int) -> dict[str, object]:
    """Kinds of pages, each with a maker of an address."""
    place = random.Random(0)
    return {
        "list": lambda: f"/?from={place.randrange(count)}",
        "text": lambda: f"/text/{place.randrange(count)}",
        "search_common": lambda: f"/?q=clock&from={place.randrange(count)}",
        "search_last": lambda: "/?q=needle",
        "search_none": lambda: "/?q=thereisnosuchword",
    }


def measure(folder: Path, count: int, rounds: int) -> dict[str, object]:
    """Start the command, ask for pages, and end it."""
    command = [sys.executable, "-P", "-c", "from flaxattn.cli import main; main()"]
    start = time.perf_counter()
    process = subprocess.Popen(
        [*command, "view", str(folder), "--serve", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONUNBUFFERED": "1"},
    )
    try:
        line = process.stdout.readline()
        row = {"texts": count, "starts_s": round(time.perf_counter() - start, 2)}
        port = int(re.search(r"127\.0\.0\.1:(\d+)/", line)[1])
        row["started_MB"] = round(peak(process))
        for name, address in requests(count).items():
            seconds = [asked(port, address()) for _ in range(rounds)]
            row[f"{name}_s"] = round(statistics.median(seconds), 4)
            row[f"{name}_slowest_s"] = round(max(seconds), 4)
            row[f"after_{name}_MB"] = round(peak(process))
        return row
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Measure every size and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--folder", type=Path, help="where stores are, and stay")
    parser.add_argument("--rounds", type=int, default=5)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as spare:
        for count in settings.texts:
            folder = (settings.folder or Path(spare)) / f"store-{count}"
            if not folder.exists():
                start = time.perf_counter()
                write(folder, count)
                print(f"{folder} written in {time.perf_counter() - start:.0f} s", file=sys.stderr)
            row = measure(folder, count, settings.rounds)
            print(json.dumps(row | {"load": round(os.getloadavg()[0], 1)}), flush=True)


if __name__ == "__main__":
    main()
