# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""SST-2 fine-tuned from the built-in model, beside a bag of words on the same data.

    python benchmarks/sst2.py --data GLUE --out sst2.json

Ends with an error where the built-in model does not beat logistic regression on word counts, or
takes more than 40 minutes. It times nothing else.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.pipeline.allocator import keep_freed_memory
from flaxattn.train.glue import finetune
from flaxattn.train.glue_data import read_parts
from flaxattn.train.glue_tasks import TASKS
from flaxattn.train.recipe import GlueRecipe
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.settings import build

SECONDS = 2400
RECIPE: dict[str, Any] = {
    "task": "sst2",
    "epochs": 4.0,
    "learning_rate": 2e-4,
    "max_length": 64,
    "buckets": [16, 24, 32, 64],
    "seeds": [1],
}


def bag_of_words(data: Path) -> float:
    """Dev accuracy of logistic regression on counts of words."""
    parts = read_parts(TASKS["sst2"], data, GlueRecipe(), BadRows(), ("train", "dev"))
    (train, label), (dev, true) = (
        ([e.first for e in part.examples], [e.label for e in part.examples])
        for part in (parts["train"], parts["dev"])
    )
    words = CountVectorizer()
    model = LogisticRegression(max_iter=1000).fit(words.fit_transform(train), label)
    return float(model.score(words.transform(dev), true))


def main() -> int:
    """Run both and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="tiny-bert")
    given = parser.parse_args()
    keep_freed_memory()  # as the command does
    recipe = build(GlueRecipe, {**RECIPE, "model": given.model})
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        summary = finetune(given.data, RunFolder(Path(folder) / "run"), recipe)
    seconds = time.monotonic() - began
    answer = {
        "model": given.model,
        "accuracy": summary["metrics"]["accuracy"]["mean"],
        "bag_of_words": bag_of_words(given.data),
        "seconds": round(seconds, 1),
        "device": jax.devices()[0].device_kind,
        "run": summary,
    }
    given.out.write_text(json.dumps(answer, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(
        f"{given.model} {answer['accuracy']:.4f}, bag of words {answer['bag_of_words']:.4f}, "
        f"{seconds:.0f} s\n"
    )
    return int(answer["accuracy"] <= answer["bag_of_words"] or seconds > SECONDS)


if __name__ == "__main__":
    sys.exit(main())
