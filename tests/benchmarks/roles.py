# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of all roles on a BERT-base, beside loops of NumPy over stored maps, in turns.

    python tests/benchmarks/roles.py en_ewt-ud-dev.conllu --sentences 1000

Random parameters, real sentences. Both sides run the model on the same texts: one keeps no map and
sums on the device; the other writes the maps of a slice of texts as float16 .npy files and then
goes over texts, layers, heads, roles and queries, as the paper's notebooks do. The sides take turns
slice by slice, so whatever else the machine does hits both. Each has compiled before it is timed.
"""

import argparse
import itertools
import json
import os
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import flaxattn as fa
from flaxattn.bert import Bert
from flaxattn.bert_handle import PretrainedBert
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.trees import read_sentences
from flaxattn.extraction import head_scores as engine
from flaxattn.heads.scores import Scores
from flaxattn.heads.terms import Asked, Column


def base(like):
    """A BERT-base at random, with the vocabulary of a small model."""
    tokenizer = fa.from_pretrained(like).tokenizer
    config = fa.BertConfig(vocab_size=tokenizer.vocab_size)
    module = Bert(config, add_pooling=False)
    shapes = jax.eval_shape(module.init, jax.random.key(0), np.ones((1, 2), np.int32))["params"]
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda s: rng.normal(0, 0.05, s.shape).astype(np.float32), shapes)
    return PretrainedBert(module, params, tokenizer, config, "base")


def by_numpy(weights, layout, relations):
    """Scores of every role `[L, H]`, one map and one query after the other."""
    layers, heads, count = weights.shape[:3]
    ends = np.flatnonzero(layout.separators)
    inner = np.flatnonzero(layout.plain)
    found = {}

    def put(name, layer, head, value):
        found.setdefault(name, np.zeros((layers, heads)))[layer, head] = value

    for layer in range(layers):
        for head in range(heads):
            one = weights[layer, head].astype(np.float32)
            local = [one[t, max(0, t - 2) : t + 3].mean() * count for t in range(count)]
            put("local", layer, head, np.mean(local))
            put("cls", layer, head, np.mean([one[t, 0] * count for t in range(count)]))
            sep = [one[t, ends].mean() * count for t in range(count)]
            put("sep", layer, head, np.mean(sep))
            both = [one[t, [0, *ends]].mean() * count for t in range(count)]
            put("delimiter", layer, head, np.mean(both))
            block = [one[t, inner].mean() * count for t in range(count)]
            put("block", layer, head, np.mean(block))
            entropies = [-(row[row > 0] * np.log(row[row > 0])).sum() for row in one]
            put("block_entropy", layer, head, np.mean(np.multiply(block, entropies)))
            for relation in (*relations, "any"):
                arcs = layout.linked(relation, relations)
                for side in ("governor", "dependent"):
                    scores = []
                    for arc in arcs:
                        ends_of = (arc.dependent, arc.governor)
                        a, b = ends_of if side == "governor" else ends_of[::-1]
                        pieces = np.ix_(layout.words[a], layout.words[b])
                        scores.append(one[pieces].mean() * count)
                    if scores:
                        put(f"{side}({relation})", layer, head, np.mean(scores))
    return found


class Clock:
    """Seconds of wall and of processors, all threads counted, that a piece of work took."""

    def __init__(self):
        self.wall = self.cpu = 0.0

    def __enter__(self):
        self._from = time.perf_counter(), time.process_time()

    def __exit__(self, *_):
        self.wall += time.perf_counter() - self._from[0]
        self.cpu += time.process_time() - self._from[1]


def texts_of(subjects):
    """Their texts."""
    return [subject.text for subject in subjects]


def ours(model, subjects, asked):
    """One side: no map."""
    return Scores.joined(list(engine.head_scores(model, subjects, asked)))


def stored(model, subjects, folder):
    """The other side's first part: maps to disk."""
    for number, trace in enumerate(fa.extract(model, texts_of(subjects))):
        weights = np.asarray(trace.encoder.weights)[:, 0].astype(np.float16)
        np.save(folder / f"{number}.npy", weights, allow_pickle=False)


def looped(reads, relations, folder):
    """Its second part: loops over stored maps."""
    found = []
    for number, read in enumerate(reads):
        weights = np.load(folder / f"{number}.npy", allow_pickle=False)
        found.append(by_numpy(weights, read.layout, relations))
    return found


def alone(model, subjects):
    """The model, as far as attention needs it: one small statistic is kept."""
    fa.extract(model, texts_of(subjects), capture=fa.Capture(stats=("max",)))


def main():
    """Compare, and print times and how far the scores are apart."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--like", default="tiny-bert", help="whose vocabulary is taken")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    asked, model = Asked(), base(given.like)
    sentences = itertools.islice(read_sentences([given.trees], BadRows("skip")), given.sentences)
    subjects = [engine.subject_of(sentence) for sentence in sentences]
    slices = [subjects[n :: given.slices] for n in range(given.slices)]
    clocks = {name: Clock() for name in ("ours", "model alone", "maps", "numpy")}
    worst = 0.0
    for number, some in enumerate(slices):
        ours(model, some, asked)  # compiles
        alone(model, some)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            stored(model, some, folder)
            with clocks["ours"]:
                scores = ours(model, some, asked)
            with clocks["model alone"]:
                alone(model, some)
            with clocks["maps"]:
                stored(model, some, folder)
            reads = [
                read
                for i in range(0, len(some), 64)
                for read in engine.read_subjects(model, some[i : i + 64], False, BadRows())
            ]
            with clocks["numpy"]:
                theirs = looped(reads, asked.relations, folder)
        for place, one in enumerate(theirs):
            for role, values in one.items():
                mine = scores.values[Column("score", role)][place]
                worst = max(worst, float(abs(mine - values).max() / scores.lengths[place]))
        told = {name: [round(c.wall, 2), round(c.cpu, 2)] for name, c in clocks.items()}
        print(json.dumps({"slice": number, "wall and cpu": told}), flush=True)
    row = {"sentences": len(subjects), "load": round(os.getloadavg()[0], 2)}
    row |= {"cores": os.cpu_count(), "largest difference of a mass": worst}
    for kind in ("wall", "cpu"):
        t = {name: getattr(clock, kind) for name, clock in clocks.items()}
        extra = max(t["ours"] - t["model alone"], 1e-3)
        row[kind] = {
            "seconds": {name: round(seconds, 2) for name, seconds in t.items()},
            "numpy over what ours adds to the model": round(t["numpy"] / extra, 2),
            "maps and numpy over ours": round((t["maps"] + t["numpy"]) / t["ours"], 2),
        }
    print(json.dumps(row, indent=2))
    if given.out:
        given.out.write_text(json.dumps(row, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
