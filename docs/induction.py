# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Find the induction circuit of a built-in model; writes induction.md, its JSON and its figures.

    python docs/induction.py

All texts are drawn at random from the vocabulary of `tiny-gpt2`, but for one sentence. With
`--pairs-table FILE` the pairs are written as a table for `flaxattn patch`. The prose is in
`docs/induction_page.py`, the tests of these numbers in `tests/test_results_pages.py`.
"""

import argparse
import csv
import datetime
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import induction_measures as measures
import jax
import numpy as np
from induction_page import render
from page_tables import FOLDER, Clock, write_page

import flaxattn as fa
from flaxattn.measures.induction import INDUCTION, PREVIOUS
from flaxattn.views.figures.figure_style import write_title
from flaxattn.views.figures.plot_heads import add_scale, draw_map, write_tokens

MODEL = "tiny-gpt2"
APART = 3  # words between the two that are exchanged, at least


def gathered(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that is on the page.

    Args:
        options: From `parsed`.
    """
    model = fa.from_pretrained(MODEL)
    facts: dict[str, Any] = {
        "flaxattn": fa.__version__,
        "jax": jax.__version__,
        "cores": os.cpu_count(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "settings": {n: v for n, v in vars(options).items() if n != "pairs_table"}
        | {"least": measures.LEAST, "alpha": 0.05, "correction": "bh"},
        "model": {"name": MODEL, "layers": model.counts()[0], "heads": model.counts()[1]},
    }
    words = whole_words(model)
    pairs = word_pairs(words, options.pairs, options.words, options.seed)
    texts = repeated_texts(words, options.texts, options.repeated, options.seed + 1)
    if options.pairs_table is not None:
        write_pairs(pairs, options.pairs_table)
    facts["words"] = len(words)
    facts["seconds"] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        with Clock() as clock:
            yield
        facts["seconds"][name] = clock.told()
        print(name, clock.told(), flush=True)

    seed, sets = options.seed, options.sets
    with timed("detect"):
        found = measures.detected(model, options.sequences, options.length, seed)
        facts["detected"], heads = found, found["heads"]
    with timed("pattern"):
        facts["pattern"] = measures.pattern(model, heads)
    with timed("activation patching"):
        facts["activation"] = measures.activation(model, pairs, sets, seed)
    with timed("path patching"):
        facts["paths"] = measures.paths(model, pairs, heads[INDUCTION], sets, seed)
    with timed("weights"):
        facts["weights"] = measures.composed(model, heads, facts["paths"]["key"]["means"])
    with timed("knockout"):
        facts["knockout"] = measures.knocked_out(model, pairs, seed)
    with timed("direct contributions"):
        facts["contributions"] = measures.contributed(model, texts, heads[INDUCTION], seed)
    with timed("ablation"):
        facts["losses"] = measures.ablated(model, texts, heads, sets, seed)
    return facts


def whole_words(model: Any) -> list[str]:
    """Return the words of lower-case letters that are one token, with the space before them.

    Args:
        model: With a byte-level vocabulary, whose tokens have Ġ for a space.
    """
    tokens = model.tokenizer.convert_ids_to_tokens(range(model.config.vocab_size))
    plain = [t[1:] for t in tokens if t is not None and t.startswith("Ġ") and len(t) > 4]
    return [f" {word}" for word in plain if word.isascii() and word.isalpha() and word.islower()]


def word_pairs(words: Sequence[str], count: int, length: int, seed: int) -> list[fa.TextPair]:
    """Draw texts of different words that end with one of these again.

    The corrupted text has that word and another one exchanged, so that another word followed it.

    Args:
        words: To draw from.
        count: Number of pairs.
        length: Number of words before one is repeated.
        seed: Random seed.
    """
    random, pairs = np.random.default_rng(seed), []
    for _ in range(count):
        clean = random.choice(words, length, replace=False).tolist()
        first = int(random.integers(1, length - 1 - APART))
        second = int(random.integers(first + APART, length - 1))
        asked, other = random.permutation([first, second]).tolist()
        corrupted = list(clean)
        corrupted[asked], corrupted[other] = clean[other], clean[asked]
        last = clean[asked]
        texts = ("".join([*some, last]) for some in (clean, corrupted))
        pairs.append(fa.TextPair(*texts, clean[asked + 1], clean[other + 1]))
    return pairs


def repeated_texts(words: Sequence[str], count: int, length: int, seed: int) -> list[str]:
    """Draw texts of different words, each text twice in a row.

    Args:
        words: To draw from.
        count: Number of texts.
        length: Number of words before they are repeated.
        seed: Random seed.
    """
    random = np.random.default_rng(seed)
    return ["".join(random.choice(words, length, replace=False)) * 2 for _ in range(count)]


def write_pairs(pairs: Sequence[fa.TextPair], path: Path) -> None:
    """Write pairs as a table.

    Args:
        pairs: To be written.
        path: Name of a csv file.
    """
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("clean", "corrupted", "answer", "wrong"))
        rows.writerows(pair[:4] for pair in pairs)


def draw_pattern(facts: dict[str, Any]) -> Any:
    """Attention of the strongest head of each kind in one text."""
    import matplotlib.pyplot as plt

    trace = fa.from_pretrained(MODEL).trace(facts["pattern"]["text"])
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.6), layout="constrained", sharey=True)
    titles = zip(measures.LEAST, facts["pattern"]["heads"], strict=True)
    for ax, (kind, (layer, head)) in zip(axes, titles, strict=True):
        fa.plot_heads(trace, layers=[layer], heads=[head], ax=ax)
        write_title(ax, f"{kind} head {layer}.{head}")
    axes[1].set_ylabel("")
    axes[1].tick_params(labelleft=False)
    add_scale(axes)
    return figure


def draw_effects(facts: dict[str, Any]) -> Any:
    """Scores, effects of patching and effects of paths of every head."""
    import matplotlib.pyplot as plt

    maps = {
        "previous-token score": facts["detected"]["scores"][PREVIOUS],
        "induction score": facts["detected"]["scores"][INDUCTION],
        "activation patching": facts["activation"],
        "path into the keys of\ninduction heads": facts["paths"]["key"],
        "path to the logits": facts["paths"]["logits"],
    }
    figure, axes = plt.subplots(
        1, len(maps), figsize=(11, 2.0), layout="constrained", sharey=True, squeeze=False
    )
    total = facts["activation"]["total"]
    for ax, (title, values) in zip(axes[0], maps.items(), strict=True):
        causal = None
        if isinstance(values, dict):
            causal, values = values["causal"], np.asarray(values["means"]) / total
        values = np.asarray(values)
        draw_map(ax, values, title, signed=causal is not None, even=True)
        for layer, head in np.argwhere([] if causal is None else causal):
            ax.plot(head, layer, "o", mfc="none", mec="black", markersize=11)
        labels = [[str(n) for n in range(size)] for size in values.shape]
        write_tokens(ax, *labels, rows=ax is axes[0, 0], names=("layer", "head"))
    for part, label in (
        (axes[:, :2], "share of attention"),
        (axes[:, 2:], "share of the difference"),
    ):
        add_scale(part, label)
    return figure


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the options.

    Args:
        arguments: Words of the command line; None for those of the process.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    numbers = {
        "sequences": (16, "repeated sequences of random tokens"),
        "length": (50, "tokens of a sequence before they are repeated"),
        "pairs": (48, "pairs of texts to patch"),
        "words": (20, "words of a pair before one is repeated"),
        "texts": (24, "texts of words that are repeated"),
        "repeated": (25, "words of such a text before they are repeated"),
        "sets": (20, "random sets of heads that are compared with"),
    }
    for name, (default, meaning) in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"Number of {meaning}.")
    parser.add_argument("--seed", type=int, default=0, help="Random seed.")
    parser.add_argument("--pairs-table", type=Path, help="File to write the pairs to, .csv.")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, and write the page, its numbers and its figures."""
    facts = gathered(parsed())
    write_page("induction", facts, render)
    fa.save_figure(draw_pattern(facts), FOLDER / "induction_pattern.png")
    fa.save_figure(draw_effects(facts), FOLDER / "induction.png")


if __name__ == "__main__":
    main()
