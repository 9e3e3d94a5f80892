# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A store of attention: milliseconds to read one map of many texts, and bytes per text.

    python benchmarks/store_reads.py FOLDER [--texts 100000] [--conllu FILE --sentences 500]

The store of the first part has 2 layers x 2 heads of random float16 weights, texts of 5 to 45
tokens, 4,096 to a shard; it is made in FOLDER unless it is there. A cold read opens the store anew
after the system was told to forget all of its files; a first read is of a shard that the process
has not touched, its files in memory; a warm one is of a shard that was read before.

The second part stores sentences under the built-in tiny-bert with four captures. BertViz's size is
that of `json.dumps` of the float32 weights as lists, as its pages embed them; exBERT's is computed
from shapes: float32 attention, embeddings after every layer and context vectors, uncompressed.
Neither program is run.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import shutil
import time
from pathlib import Path

import numpy as np

import flaxattn as fa
from flaxattn.corpus.texts import Text
from flaxattn.store.commit_shards import write_shard
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace

LAYERS = HEADS = 2
SHARD, READS = 4096, 300


def plan(store, count):
    """Write a plan; its shards and sha256."""
    shards = [{"start": n, "stop": min(n + SHARD, count)} for n in range(0, count, SHARD)]
    data = json.dumps({"texts": count, "model": "", "capture": {}, "shards": shards}).encode()
    store.mkdir(parents=True, exist_ok=True)
    (store / "plan.json").write_bytes(data)
    return shards, hashlib.sha256(data).hexdigest()


def write(store, traces, count):
    """Write a store of the traces that an iterator yields; processor seconds in `write_shard`."""
    shards, sha256 = plan(store, count)
    seconds = 0.0  # of processor time
    for number, shard in enumerate(shards):
        span = range(shard["start"], shard["stop"])
        items = [(Text(n, f"t:{n}", "", None, "corpus.txt", n + 1), next(traces)) for n in span]
        begun = time.process_time()
        write_shard(store, sha256, number, shard, items)
        seconds += time.process_time() - begun
    return seconds


def random_traces():
    """Texts of random length with random weights, without end."""
    rng = np.random.default_rng(0)
    words = [f"word{n}" for n in range(5000)]
    while True:
        n = int(rng.integers(5, 46))
        exact = rng.standard_exponential((LAYERS, 1, HEADS, n, n), np.float32) ** 3
        weights = (exact / exact.sum(-1, keepdims=True)).astype(np.float16)
        tokens = [words[i] for i in rng.integers(0, len(words), n)]
        seen = AttentionRecord(weights=weights, layers=(0, 1), heads=(0, 1), implementation="xla")
        yield Trace(encoder=seen, tokens=[tokens], texts=[(" ".join(tokens),)], model="random")


def forget(store):
    """Ask the system to drop the files of a store from its memory."""
    for path in store.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def milliseconds(read):
    """What one call takes, by the clock and of this process's processor time."""
    begun, worked = time.perf_counter(), time.process_time()
    read()
    return 1e3 * (time.perf_counter() - begun), 1e3 * (time.process_time() - worked)


def reads(path):
    """Times of random reads of one map."""
    rng = np.random.default_rng(1)
    size = len(fa.open_store(path))

    def one(store, shard=None):
        span = (0, size) if shard is None else tuple(store.plan["shards"][shard].values())
        example = int(rng.integers(*span))
        layer, head = rng.integers(0, 2, 2).tolist()
        return lambda: store.weights(example, layer=layer, head=head)

    one(fa.open_store(path))()  # what the process imports and compiles once
    opening = [milliseconds(lambda: fa.open_store(path)) for _ in range(20)]
    first, cold = [], []
    for _ in range(4):
        store = fa.open_store(path)
        first += [milliseconds(one(store, n)) for n in range(len(store.plan["shards"]))]
    for _ in range(30):
        forget(path)
        store = fa.open_store(path)
        cold.append(milliseconds(one(store)))
    store = fa.open_store(path)
    for n in range(len(store.plan["shards"])):
        one(store, n)()
    warm = [milliseconds(one(store)) for _ in range(READS)]
    return {"open": opening, "cold": cold, "first of a shard": first, "warm": warm}


FOUR = ("entropy", "max", "distance", "sum_sq")
EVERYTHING = fa.Capture(weights=True, stats=("topk(8)", *FOUR))
# What would have been stored under each capture; one pass of the model serves all.
CAPTURES = {
    "float16 weights": lambda seen: {"weights": seen.weights.astype(np.float16), "stats": {}},
    "uint8 weights": lambda seen: {
        "weights": np.round(255 * seen.weights).astype(np.uint8),
        "stats": {},
    },
    "top-8": lambda seen: {
        "weights": None,
        "stats": {name: array for name, array in seen.stats.items() if name.startswith("topk")},
    },
    "four statistics": lambda seen: {
        "weights": None,
        "stats": {name: seen.stats[name] for name in FOUR},
    },
}


def traced(model, sentences):
    """Traces with everything, on the host."""
    for start in range(0, len(sentences), 50):
        whole = model.trace(sentences[start : start + 50], capture=EVERYTHING)
        on_host = whole.encoder.map(lambda _, array: np.asarray(array))
        yield from dataclasses.replace(whole, encoder=on_host)


def sizes(conllu, folder, count):
    """Bytes per text of each capture, and of what others write."""
    lines = conllu.read_text(encoding="utf-8").splitlines()
    sentences = [line[9:] for line in lines if line.startswith("# text = ")][:count]
    model, found = fa.from_pretrained("tiny-bert"), {}
    traces = list(traced(model, sentences))
    tokens = [len(trace.tokens[0]) for trace in traces]
    for name, change in CAPTURES.items():
        kept = (
            dataclasses.replace(t, encoder=dataclasses.replace(t.encoder, **change(t.encoder)))
            for t in traces
        )
        shutil.rmtree(folder, ignore_errors=True)
        write(folder, kept, len(traces))
        total = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        found[name] = total / len(traces)
    bertviz = sum(len(json.dumps(trace.encoder.weights.tolist())) for trace in traces)
    shutil.rmtree(folder)
    config, n = model.config, np.array(tokens)
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    attention = (layers * heads * n**2).mean()
    vectors = ((2 * layers + 1) * config.hidden_size * n).mean()
    found["raw float16 weights, computed"] = 2 * attention
    found["BertViz, JSON of the weights"] = bertviz / len(tokens)
    found["exBERT's arrays, computed"] = 4 * (attention + vectors)
    print(f"tiny-bert: {layers} layers x {heads} heads, width {config.hidden_size}")
    print(f"{len(tokens)} sentences, {n.mean():.1f} pieces each")
    for name, size in found.items():
        print(f"  {name:32} {size:10.0f} bytes per text")


def main():
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--conllu", type=Path)
    parser.add_argument("--sentences", type=int, default=500)
    asked = parser.parse_args()
    path = asked.folder / f"random-{asked.texts}"
    if not path.exists():
        seconds = write(path, random_traces(), asked.texts)
        print(
            f"wrote {asked.texts} texts: {1e6 * seconds / asked.texts:.0f} µs each in write_shard"
        )
    files = [p for p in path.rglob("*") if p.is_file()]
    print(f"{sum(p.stat().st_size for p in files) / 1e6:.0f} MB in {len(files)} files")
    for name, times in reads(path).items():
        (clock, worked), most = np.median(times, 0), np.quantile(times, 0.95, 0)
        print(
            f"  {name:18} median {clock:6.2f} ms, 95 % {most[0]:6.2f} ms; processor "
            f"{worked:5.2f} and {most[1]:5.2f} ms; of {len(times)}"
        )
    if asked.conllu:
        sizes(asked.conllu, asked.folder / "sizes", asked.sentences)


if __name__ == "__main__":
    main()
