# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Patching the heads of a BERT-base one by one, beside plain forward passes of it, in turns.

    python benchmarks/patching.py --pairs 100

Random parameters and the vocabulary of a built-in model. The plain pass is the least that an answer
takes: scores at the masked position alone, of one text of each pair of a batch. Patching runs the
same batch with the output of each head from the other text, as one compiled program, which makes
both plain runs first. Batches take turns, so whatever else the machine does hits both. Both
sides have compiled before they are timed. Prints medians over batches, and the ratio that the issue
bounds by 1.3: time of patching over that of as many plain passes as it makes.
"""

import argparse
import functools
import json
import os
import time

import jax
import numpy as np

import flaxattn as fa
from flaxattn.attribution.patch_task import patch_task, scores_at
from flaxattn.attribution.patching import Changes, PatchProgram, Sweep, patch_batch
from flaxattn.models.task_heads import BertForMaskedLM
from flaxattn.pretrained.pretrained_encoders import PretrainedBert


def base(like):
    """A BERT-base with a masked-LM head at random, with the vocabulary of a small model."""
    tokenizer = fa.from_pretrained(like).tokenizer
    config = fa.BertConfig(vocab_size=tokenizer.vocab_size)
    module = BertForMaskedLM(config)
    shapes = jax.eval_shape(module.init, jax.random.key(0), np.ones((1, 2), np.int32))["params"]
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda s: rng.normal(0, 0.02, s.shape).astype(np.float32), shapes)
    return PretrainedBert(module, jax.device_put(params), tokenizer, config, "base")


def pairs_of(model, count):
    """Pairs that differ in a noun, with a mask in its place later on; about 11 tokens each."""
    nouns = [
        word
        for word in "king man boy child woman friend house horse dog night tree ship".split()
        if len(model.tokenizer.ids([word])[0]) == len(model.tokenizer.ids(["man"])[0])
    ]
    rng = np.random.default_rng(0)
    text = "the {} was old , so was the [MASK] ."
    drawn = [rng.permutation(nouns)[:2] for _ in range(count)]
    return [fa.TextPair(text.format(a), text.format(b), str(a), str(b)) for a, b in drawn]


@functools.partial(jax.jit, static_argnums=0)
def plain(module, params, inputs, places):
    """Scores of a batch of texts at their masks."""
    return scores_at(module, {"params": params}, inputs, places)[0]


def seconds(call):
    """Seconds of wall time that a call takes."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def main():
    """Time both, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--heads", type=int, default=144, help="how many are patched")
    parser.add_argument("--like", default="tiny-bert", help="whose vocabulary is taken")
    options = parser.parse_args()
    model = base(options.like)
    task = patch_task(model, pairs_of(model, options.pairs), batch=options.batch)
    sweep = Sweep("encoder", "denoise")
    program = PatchProgram.of(
        model.module, "logit-diff", "head_output", sweeps=(sweep,), sides=("encoder",)
    )
    layers, heads = task.sizes["encoder"]
    masks = np.eye(layers * heads, dtype=bool).reshape(-1, layers, heads, 1)
    changes = (Changes(masks, np.int32(options.heads)),)
    times = {"plain": [], "patching": []}
    for number, (batch, _) in enumerate(task.batches()):
        run = functools.partial(plain, program.module, model.params, batch.corrupted, batch.places)
        patch = functools.partial(patch_batch, program, model.params, batch, changes)
        if not number:  # compiles
            jax.block_until_ready((run(), patch_batch(program, model.params, batch, changes)))
        before = [seconds(run) for _ in range(3)]
        times["patching"].append(seconds(patch))
        times["plain"].append(float(np.median(before + [seconds(run) for _ in range(3)])))
    each = {name: float(np.median(values)) for name, values in times.items()}
    passes = options.heads + 3  # both plain runs, and one beside the changes
    ratios = np.array(times["patching"]) / np.array(times["plain"]) / passes
    row = {
        "pairs": options.pairs,
        "heads": options.heads,
        "batch": list(batch.clean["input_ids"].shape),
        "plain pass, s": round(each["plain"], 4),
        "patching a batch, s": round(each["patching"], 2),
        "passes of a batch": passes,
        "patching over plain passes": round(float(np.median(ratios)), 3),
        "programs": patch_batch._cache_size(),
        "load": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(row, indent=2))


if __name__ == "__main__":
    main()
