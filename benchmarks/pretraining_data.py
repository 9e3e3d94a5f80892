# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Speed of making a corpus, a plan from it, and batches from the plan. No model is involved.

    python benchmarks/pretraining_data.py text/*.txt --workers 2

The tokenizer is the built-in model's. Rates are per second of the clock; "per core" is per second
of processor time, which other work on the machine does not change. Batches have as many tokens as
256 sequences of 128.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grain
from absl import flags

from flaxattn.text.tokenizer import Tokenizer
from flaxattn.train.corpus import TokenCorpus, build_corpus
from flaxattn.train.pretraining_data import PretrainingFeed
from flaxattn.train.recipe import PretrainRecipe

BUILT_IN = Path(__file__).resolve().parents[1] / "flaxattn/pretrained/tiny-bert"
TOKENS, BATCHES, FIRST = 256 * 128, 100, 20


@contextmanager
def timed(what: str, unit: str, here: bool = True) -> Iterator[Callable[[float], None]]:
    """Time a block, which says how much it did, and did it here or in other processes."""
    amounts: list[float] = []
    clock, processor = time.perf_counter(), time.process_time()
    yield amounts.append
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    print(f"{what:34} {sum(amounts) / clock:12,.1f} {unit}/s", end="")
    print(f" {sum(amounts) / processor:12,.1f} per core" if here else "")


def feed_of(corpus: TokenCorpus, tokenizer: Tokenizer, length: int, whole: bool) -> PretrainingFeed:
    recipe = PretrainRecipe(
        steps=10**6,
        batch_size=TOKENS // length,
        lengths=(length,),
        max_position_embeddings=512,
        whole_word_masking=whole,
    )
    return PretrainingFeed(corpus, tokenizer, recipe)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    flags.FLAGS.mark_as_parsed()  # grain reads some
    tokenizer = Tokenizer.from_dir(BUILT_IN)
    with tempfile.TemporaryDirectory() as folder:
        with timed("text to corpus", "MB") as amount:
            store = Path(folder) / "corpus"
            corpus = build_corpus(arguments.files, tokenizer, PretrainRecipe(), store)
            amount(sum(path.stat().st_size for path in arguments.files) / 1e6)
        for length in (128, 512):
            for whole in (False, True):
                feed = feed_of(corpus, tokenizer, length, whole)
                if not whole:
                    with timed(f"plan, length {length}", "pairs") as amount:
                        amount(feed.batches.plans.count(length, 0))
                feed[0]
                words = ", whole words" if whole else ""
                with timed(f"batches, length {length}{words}", "sequences") as amount:
                    amount(sum(len(feed[step].input_ids) for step in range(BATCHES)))
        feed = feed_of(corpus, tokenizer, 128, False)
        data = grain.MapDataset.source(feed).to_iter_dataset(grain.ReadOptions(1, 2))
        data = data.mp_prefetch(grain.MultiprocessingOptions(num_workers=arguments.workers))
        batches = iter(data)
        for _ in range(FIRST):  # the processes start, and fill what lies ahead
            next(batches)
        what = f"batches, length 128, {arguments.workers} processes"
        with timed(what, "sequences", here=False) as amount:
            amount(sum(len(next(batches).input_ids) for _ in range(4 * BATCHES)))


if __name__ == "__main__":
    main()
