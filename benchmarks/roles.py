# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""All numbers of all heads of a BERT-base, beside NumPy over stored maps, in turns, in one run.

    python benchmarks/roles.py en_ewt-ud-dev.conllu --sentences 1000

Random parameters, real sentences. Both sides run the model on the same texts and come to the same
numbers: scores, masses and controls of every role, patterns, strongest keys, statistics. One side
keeps no map and sums on the device. The other writes the maps of a slice of texts as .npy
files, reads them, and goes over texts, layers, heads and queries, as the paper's notebooks do. A
third, `whole`, is NumPy as fast as it gets: all heads of a text at once. The sides take turns slice
by slice, so whatever else the machine does hits all. Each has compiled before it is timed. Maps of
one slice are on the disk at a time; a slice of 250 sentences takes about 130 MB.
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
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import read_sentences
from flaxattn.corpus.texts import annotated_text
from flaxattn.measures.score_source import head_scores
from flaxattn.measures.scores import Scores, dense_values
from flaxattn.measures.specs import WINDOW, ScoreOptions
from flaxattn.measures.terms import terms_of
from flaxattn.models.bert import Bert
from flaxattn.pipeline.tokenize_texts import windows, with_rare
from flaxattn.pretrained.pretrained_encoders import PretrainedBert

# Statistics of queries that the same scores are sums of, in NumPy.
_SOURCES = (
    *("entropy", "distance", "max", "sum_sq", "next", "previous", "own", "local"),
    *("own segment", "block", "other block", "special", "first", "separators"),
    *("same token", "same token elsewhere", "block x entropy", "other block x entropy"),
    *("entropy in block", "argmax next", "argmax previous"),
    *("strongest next", "strongest previous", "strongest rare"),
)


def base(like):
    """A BERT-base at random, with the vocabulary of a small model."""
    tokenizer = fa.from_pretrained(like).tokenizer
    config = fa.BertConfig(vocab_size=tokenizer.vocab_size)
    module = Bert(config, add_pooling=False)
    shapes = jax.eval_shape(module.init, jax.random.key(0), np.ones((1, 2), np.int32))["params"]
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda s: rng.normal(0, 0.02, s.shape).astype(np.float32), shapes)
    return PretrainedBert(module, params, tokenizer, config, "base")


def by_numpy(weights, layout, terms):
    """All numbers `[L, H]` of one text, one map and one query after the other."""
    found = {column: np.zeros(weights.shape[:2]) for column in terms.columns}
    for at in np.ndindex(weights.shape[:2]):
        one = weights[at]
        rows, received = of_queries(one, layout), one.sum(0)
        for (column, source), coefficients in terms.rows.items():
            found[column][at] += rows[source] @ coefficients
        for column, coefficients in terms.keys.items():
            found[column][at] = received @ coefficients
        for column, pairs in terms.pairs.items():
            found[column][at] = sum(one[i, j] * c for i, j, c in pairs)
        for column, hits in terms.hits.items():
            found[column][at] = sum(
                c for i, low, high, c in hits if low <= rows["strongest key"][i] <= high
            )
    return found


def of_queries(one, layout):
    """Statistics of the queries of one map, one query after the other."""
    count, plain = len(one), layout.plain
    place = np.arange(count)
    found = {name: np.zeros(count) for name in (*_SOURCES, "strongest key")}
    for t, row in enumerate(one):
        own, same = layout.segments == layout.segments[t], layout.tokens == layout.tokens[t]
        inside, some = row[own & plain], row[row > 0]
        total = inside.sum()
        shares = inside[inside > 0] / total
        strongest = int(np.where(plain, row, -1).argmax())
        values = {
            "entropy": -(some * np.log(some)).sum(),
            "distance": (row * np.abs(place - t)).sum(),
            "max": row.max(),
            "sum_sq": (row**2).sum(),
            "next": row[t + 1] if t + 1 < count else 0,
            "previous": row[t - 1] if t else 0,
            "own": row[t],
            "local": row[max(0, t - WINDOW) : t + WINDOW + 1].sum(),
            "own segment": row[own].sum(),
            "block": total,
            "other block": row[~own & plain].sum(),
            "special": row[~plain].sum(),
            "first": row[layout.first].sum(),
            "separators": row[layout.separators].sum(),
            "same token": row[same].sum(),
            "same token elsewhere": row[same & ~own].sum(),
            "entropy in block": -(shares * np.log(shares)).sum(),
            "argmax next": row.argmax() == t + 1,
            "argmax previous": row.argmax() == t - 1,
            "strongest next": strongest == t + 1,
            "strongest previous": strongest == t - 1,
            "strongest rare": strongest == layout.rare,
            "strongest key": strongest,
        }
        for block in ("block", "other block"):
            values[f"{block} x entropy"] = values[block] * values["entropy"]
        for name, value in values.items():
            found[name][t] = value
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
    return Scores.joined(list(head_scores(model, subjects, asked)))


def stored(model, subjects, folder):
    """The other side's first part: maps to disk."""
    for number, trace in enumerate(fa.extract(model, texts_of(subjects))):
        weights = np.asarray(trace.encoder.weights)[:, 0]
        np.save(folder / f"{number}.npy", weights, allow_pickle=False)


def whole(weights, layout, terms):
    """NumPy as fast as it gets: all heads of a text at once."""
    del layout
    return dense_values(weights, terms)


def looped(how, texts, folder):
    """Its second part: numbers from stored maps, by `by_numpy` or `whole`."""
    found = []
    for number, (layout, terms) in enumerate(texts):
        weights = np.load(folder / f"{number}.npy", allow_pickle=False)
        found.append(how(weights, layout, terms))
    return found


def defined(model, subjects, asked):
    """Where everything is in each text, and which sums are wanted of it."""
    reads = [read for window in windows(model, subjects) for read in window]
    layouts = with_rare([read.layout for read in reads])
    return [(layout, terms_of(layout, asked)) for layout in layouts]


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
    asked, model = ScoreOptions(), base(given.like)
    sentences = itertools.islice(read_sentences([given.trees], BadRows("skip")), given.sentences)
    subjects = [annotated_text(sentence) for sentence in sentences]
    slices = [subjects[n :: given.slices] for n in range(given.slices)]
    clocks = {name: Clock() for name in ("ours", "maps", "loops", "whole", "model alone")}
    first, worst = None, 0.0
    for number, some in enumerate(slices):
        ours(model, some, asked)  # compiles
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            stored(model, some, folder)  # likewise
            with clocks["ours"]:
                scores = ours(model, some, asked)
            with clocks["maps"]:
                stored(model, some, folder)
            if not number:
                first = {kind: getattr(clocks["ours"], kind) for kind in ("wall", "cpu")}
                alone(model, some)
                with clocks["model alone"]:
                    alone(model, some)
            with clocks["loops"]:
                texts = defined(model, some, asked)
                theirs = looped(by_numpy, texts, folder)
            with clocks["whole"]:
                texts = defined(model, some, asked)
                looped(whole, texts, folder)
        for place, values in enumerate(theirs):
            for column, value in values.items():
                apart = abs(scores.values[column][place] - value).max()
                worst = max(worst, float(apart / scores.lengths[place]))
        told = {name: [round(c.wall, 2), round(c.cpu, 2)] for name, c in clocks.items()}
        print(json.dumps({"slice": number, "wall and cpu": told}), flush=True)
    row = {"sentences": len(subjects), "load": round(os.getloadavg()[0], 2)}
    row |= {"cores": os.cpu_count(), "numbers": sum(map(len, theirs)) // len(theirs)}
    row["largest difference, over length"] = worst
    for kind in ("wall", "cpu"):
        t = {name: getattr(clock, kind) for name, clock in clocks.items()}
        both = {how: (t["maps"] + t[how]) / t["ours"] for how in ("loops", "whole")}
        row[kind] = {
            "seconds": {name: round(seconds, 2) for name, seconds in t.items()},
            "maps and loops over ours": round(both["loops"], 2),
            "maps and whole over ours": round(both["whole"], 2),
            "loops alone, maps given, over all of ours": round(t["loops"] / t["ours"], 2),
            "ours over the model alone, first slice": round(first[kind] / t["model alone"], 2),
        }
    print(json.dumps(row, indent=2))
    if given.out:
        given.out.write_text(json.dumps(row, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
