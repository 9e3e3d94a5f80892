# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Copy and reverse: do both architectures learn it in three minutes, and does attention show how?

    python benchmarks/copy_reverse.py --model transformer
    python benchmarks/copy_reverse.py --model rnn

A source is `copy` or `turn` and 3 to 12 letters; the target is the letters in that order or the
other. Accuracy on sequences that are not in the training set: the share of tokens and of whole
sequences that greedy writing gets right, and the share of written letters whose largest
cross-attention (mean over the heads of a layer) lies on the letter that is written, when the model
reads the right target. The run's time counts from reading the files to the model on disk; beside it
stands the processor time, which other work on the machine does not stretch.
"""

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import flaxattn as fa
from flaxattn.pipeline.allocator import keep_freed_memory
from flaxattn.pretrained.pretrained_seq2seq import translate
from flaxattn.train.recipe import TranslationRecipe
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.settings import build
from flaxattn.train.translation import train_translation

LETTERS, SHORTEST, LONGEST = "abcdefghijklmnop", 3, 12
TRAINING, HELD_OUT = 20000, 500
COMMON: dict[str, Any] = {
    "vocab_size": 100,
    "max_length": 16,
    "buckets": [16],
    "max_position_embeddings": 32,
    "batch_tokens": 1024,
    "dropout": 0.0,
    "label_smoothing": 0.0,
    "schedule": "linear",
    "watch": "loss",
    "bleu_sentences": 0,
    "evaluations": 4,
    "devices": 1,
    "log_every": 100,
}
SHAPES: dict[str, dict[str, Any]] = {
    "transformer": {
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "learning_rate": 3e-3,
        "warmup_steps": 200,
        "steps": 2000,
    },
    "rnn": {
        "shared_vocabulary": False,
        "embedding_size": 32,
        "hidden_size": 64,
        "attention_size": 64,
        "readout_size": 32,
        "learning_rate": 5e-3,
        "warmup_steps": 100,
        "steps": 1500,
    },
}


def pairs(count: int, seed: int, without: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    """Sources and targets; no source twice, and none of `without`."""
    pick = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        letters = pick.choices(LETTERS, k=pick.randint(SHORTEST, LONGEST))
        turn = len(found) % 2
        source = " ".join([("copy", "turn")[turn], *letters])
        if source not in without:
            found[source] = " ".join(letters[:: -1 if turn else 1])
    return list(found.items())


def on_the_diagonal(model: Any, judged: list[tuple[str, str]]) -> dict[str, float]:
    """By layer, the share of written letters whose largest attention is on that letter."""
    hits: dict[int, list[float]] = {}
    for source, target in judged:
        trace = model.trace(source, target)
        size = len(target.split())
        right = 1 + np.arange(size)
        right = right if source.startswith("copy") else right[::-1]
        for layer, weights in zip(trace.cross.layers, trace.cross_attentions, strict=True):
            looked = np.asarray(weights)[0, :, :size].mean(0).argmax(-1)
            hits.setdefault(layer, []).extend(looked == right)
    return {f"layer {layer}": round(float(np.mean(found)), 4) for layer, found in hits.items()}


def main() -> None:
    """Train, judge, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=list(SHAPES), required=True)
    parser.add_argument("--steps", type=int)
    given = parser.parse_args()
    keep_freed_memory()  # as the command does
    shape = SHAPES[given.model] | ({"steps": given.steps} if given.steps else {})
    recipe = build(TranslationRecipe, {**COMMON, **shape, "model_type": given.model})
    learnt = pairs(TRAINING, 1)
    judged = pairs(HELD_OUT, 2, frozenset(source for source, _ in learnt))
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("source", "target")]
        for path, side in zip(files, zip(*learnt, strict=True), strict=True):
            path.write_text("".join(f"{text}\n" for text in side), encoding="utf-8")
        started, worked = time.monotonic(), time.process_time()
        summary = train_translation(files, RunFolder(Path(folder) / "run"), recipe)
        seconds, worked = time.monotonic() - started, time.process_time() - worked
        model = fa.from_pretrained(Path(folder) / "run" / "model")
    told = [one.texts[0] for one in translate(model, [source for source, _ in judged], batch=64)]
    tokens = [
        one == other
        for text, (_, target) in zip(told, judged, strict=True)
        for one, other in zip([*text.split(), "", *"-" * 99], [*target.split(), ""], strict=False)
    ]
    whole = [text == target for text, (_, target) in zip(told, judged, strict=True)]
    row = {
        "model": given.model,
        "parameters": summary["parameters"],
        "steps": summary["steps"],
        "seconds": round(seconds, 1),
        "cpu_seconds": round(worked, 1),
        "tokens_right": round(float(np.mean(tokens)), 4),
        "sequences_right": round(float(np.mean(whole)), 4),
        "on_the_diagonal": on_the_diagonal(model, judged[:100]),
        "load": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
