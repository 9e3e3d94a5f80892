# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A small BERT learns from books, from scratch, in five minutes on two cores.

    python benchmarks/books.py TEXT… --out books.json

Ends with an error where the held-out masked-LM loss is not at least 1.5 nats under that of a model
that knows word frequencies only, or where training took longer.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax

from flaxattn.pipeline.allocator import keep_freed_memory
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.settings import build

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from tiny_bert import SmallBertRecipe, pretrain

SECONDS, NATS = 300, 1.5
RECIPE: dict[str, Any] = {
    "vocab_size": 1000,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_size": 128,
    "intermediate_size": 512,
    "max_position_embeddings": 32,
    "initializer_range": 0.09,
    "position_init": "fourier",
    "word_init": "cooccurrence",
    "unigram_bias": True,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "masked_lm_prob": 0.3,
    "lengths": [8, 16, 32],
    "length_shares": [0.3, 0.4, 0.3],
    "batch_size": 64,
    "steps": 3000,
    "learning_rate": 8e-4,
    "warmup_steps": 50,
    "evaluate_every": 500,
    "checkpoint_every": 1000,
}


def main() -> int:
    """Train and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    keep_freed_memory()  # as the command does
    recipe = build(SmallBertRecipe, RECIPE)
    with tempfile.TemporaryDirectory() as folder:
        summary = pretrain(sorted(given.text), RunFolder(Path(folder) / "run"), recipe)
    loss, without = summary["heldout"][-1]["mlm_loss"], summary["unigram_loss"]
    answer = {
        "gain": without - loss,
        "device": jax.devices()[0].device_kind,
        "recipe": recipe.to_dict(),
        "run": summary,
    }
    given.out.write_text(json.dumps(answer, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(
        f"held-out loss {loss:.3f}, frequencies alone {without:.3f}: {without - loss:.2f} nats"
        f" in {summary['seconds']:.0f} s\n"
    )
    return int(without - loss < NATS or summary["seconds"] > SECONDS)


if __name__ == "__main__":
    sys.exit(main())
