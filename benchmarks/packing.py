# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Real tokens per second of pretraining, packed and padded, on documents as short as they come.

    python benchmarks/packing.py text/*.txt

Every blank-line separated paragraph of the text is a document. Updates of both alternate; a token
is real if it is no padding. The model has the built-in model's shape and tokenizer, and rows of
the same number and length on both sides.
"""

import argparse
import dataclasses
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from flaxattn.models.parameter_shardings import state_shardings
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.train import bert_mlm
from flaxattn.train.bert_mlm import initial_parameters
from flaxattn.train.corpus import TokenCorpus, build_corpus
from flaxattn.train.loop import compile_update
from flaxattn.train.recipe import PretrainRecipe
from flaxattn.train.state import initial_state, make_mesh, place_batch

BUILT_IN = Path(__file__).resolve().parents[1] / "flaxattn/pretrained/tiny-bert"
TOKENS, UPDATES = 2048, 12


def updates_of(recipe: PretrainRecipe, corpus: TokenCorpus, tokenizer: Tokenizer) -> Callable:
    """A function that does update n and returns its real tokens, positions and seconds."""
    training, heldout = corpus.split(recipe.heldout_fraction)
    module = bert_mlm.build_module(recipe, tokenizer)
    task = bert_mlm.build_task(module, recipe, tokenizer, training, heldout)
    state = initial_state(initial_parameters(module, recipe, training), task.optimizer)
    mesh = make_mesh(recipe)
    update = compile_update(task, recipe, state_shardings(state, mesh), mesh)

    def one(number: int) -> tuple[int, int, float]:
        nonlocal state
        batch = task.feed[number]
        start = time.perf_counter()
        state, metrics = update(state, place_batch(batch, mesh))
        jax.block_until_ready(state)
        seconds = time.perf_counter() - start
        assert np.isfinite(metrics["loss"])
        return int(np.sum(batch.attention_mask)), batch.input_ids.size, seconds

    return one


def main() -> None:
    """Measure and print one row per length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--pack", type=int, default=8)
    given = parser.parse_args()
    tokenizer = Tokenizer.from_dir(BUILT_IN)
    for length in (128, 512):
        padded = PretrainRecipe(
            documents="blank-lines",
            lengths=(length,),
            max_position_embeddings=512,
            batch_size=TOKENS // length,
            warmup_steps=0,
        )
        packed = dataclasses.replace(padded, pack=given.pack)
        with tempfile.TemporaryDirectory() as folder:
            corpus = build_corpus(given.files, tokenizer, padded, Path(folder) / "corpus")
            sides = {"padded": padded, "packed": packed}
            run = {name: updates_of(recipe, corpus, tokenizer) for name, recipe in sides.items()}
            for one in run.values():
                one(0)  # compiles
            found: dict[str, list[tuple[int, int, float]]] = {name: [] for name in run}
            for number in range(1, 1 + UPDATES):
                for name, one in run.items():
                    found[name].append(one(number))
        row: dict[str, object] = {"length": length, "pack": given.pack}
        rates = {}
        for name, updates in found.items():
            real, positions, _ = (sum(column) for column in zip(*updates, strict=True))
            rates[name] = statistics.median(tokens / s for tokens, _, s in updates)
            row[name] = {"real": round(real / positions, 3), "tokens_per_s": round(rates[name])}
        row["ratio"] = round(rates["packed"] / rates["padded"], 2)
        print(json.dumps(row | {"load": round(os.getloadavg()[0], 2), "cores": os.cpu_count()}))


if __name__ == "__main__":
    main()
