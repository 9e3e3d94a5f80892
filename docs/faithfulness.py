# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rank all attribution maps by deletion and insertion; writes faithfulness.md, JSON and figures.

    python docs/faithfulness.py

The texts are the sentences of `docs/faithfulness_texts.txt`, written for this page, and for the
encoder-decoder dates in formats of `examples/dates`; `--texts FILE` takes other sentences, a line
each. They are the same for all maps of a model.
"""

import argparse
import datetime
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from page_tables import FOLDER, Clock, table, write_page

import flaxattn as fa
from flaxattn.attribution.faithfulness import KINDS, RANDOM
from flaxattn.files import sha256_of
from flaxattn.measures.significance import adjusted, bootstrap_interval, paired_test
from flaxattn.pipeline.online_moments import Moments

sys.path.append(str(FOLDER.parent / "examples" / "dates"))
from date_formats import formats

MODELS = {
    "tiny-bert": "BERT, which predicts a masked token",
    "tiny-gpt2": "GPT-2, which predicts a token of the second half of the text",
    "tiny-dates": "An encoder-decoder, which predicts the middle of the date that it writes",
}
DATES = "tiny-dates"
NAMES = {
    "attention": "attention, mean over heads of the last layer",
    "rollout": "attention rollout",
    "flow": "attention flow",
    "norm": "norms of weighted values",
    "effective": "effective attention",
    "gradient": "attention times gradient",
    "zeroing": "value zeroing",
    "relevance": "AttnLRP",
    "chefer": "Chefer et al. 2021",
    "input_gradient": "gradient × input",
    "integrated": "integrated gradients",
    RANDOM: "random order",
}
DRAWS = 2000


def gathered(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, fa.Faithfulness]]:
    """Everything that is on the page, and the curves of each model.

    Args:
        options: From `parsed`.
    """
    lines = options.texts.read_text(encoding="utf-8").splitlines()
    sentences = [line for line in lines if line.strip()][: options.limit]
    facts: dict[str, Any] = {
        "flaxattn": fa.__version__,
        "jax": jax.__version__,
        "cores": os.cpu_count(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "settings": {
            **{"steps": options.steps, "random_orders": options.random_orders},
            **{"seed": options.seed, "scale": "probability", "bootstrap_draws": DRAWS},
            **{"correction": "holm", "alpha": 0.05},
        },
        "data": {"file": options.texts.name, "sha256": sha256_of(options.texts)},
        "models": [],
    }
    curves: dict[str, fa.Faithfulness] = {}
    for name in MODELS:
        texts = sentences
        if name == DATES:
            texts = dates(len(sentences), options.seed)
        with Clock() as clock:
            found = fa.faithfulness(
                fa.from_pretrained(name),
                texts,
                kinds=KINDS,
                steps=options.steps,
                random_orders=options.random_orders,
                seed=options.seed,
            )
        curves[name] = found
        facts["models"].append({"model": name, **judged(found, options.seed)})
        facts["models"][-1]["seconds"] = clock.told()
        print(name, clock.told(), flush=True)
    return facts, curves


def dates(count: int, seed: int) -> list[str]:
    """Draw dates in words and figures.

    Args:
        count: Number of dates.
        seed: Random seed.
    """
    random, known = np.random.default_rng(seed), formats()
    first = datetime.date(1970, 1, 1).toordinal()
    written: list[str] = []
    while len(written) < count:
        day = datetime.date.fromordinal(first + int(random.integers(365 * 60)))
        one = known[int(random.integers(len(known)))]
        if one.fits(day) and any(letter.isalpha() for letter in one.render(day)):
            written.append(one.render(day))
    return written


def judged(found: fa.Faithfulness, seed: int) -> dict[str, Any]:
    """Rows of the table of a model, with the difference of each kind from the best."""
    gaps = found.areas()["gap"]
    rows = found.table(draws=DRAWS, seed=seed)
    best = found.kinds.index(rows[0]["kind"])
    behind = gaps[best] - gaps
    low, high = bootstrap_interval(behind.T, 0.95, DRAWS, seed)
    means = behind.mean(1)
    moments = Moments(
        np.full(len(gaps), gaps.shape[1]), means, ((behind - means[:, None]) ** 2).sum(1)
    )
    p = paired_test(moments)[1]
    p[best] = np.nan
    p = adjusted(p, "holm")
    for row in rows:
        n = found.kinds.index(row["kind"])
        row["behind"] = [float(x[n]) for x in (means, low, high)]
        row["behind p"] = float(p[n])
    lengths = np.array(found.removable)
    return {
        "texts": len(found.predicted),
        "predicted": [list(pair) for pair in Counter(found.predicted).most_common(5)],
        "removable": [int(lengths.min()), float(lengths.mean()), int(lengths.max())],
        "probability": float(found.deletion[0, :, 0].mean()),
        "without": float(found.deletion[0, :, -1].mean()),
        "rows": rows,
        "refused": dict(found.refused),
        "alike": alike(found),
    }


def alike(found: fa.Faithfulness) -> list[list[str]]:
    """Pairs of kinds with the same curves on every text, which rank all tokens alike."""
    same = []
    for n, kind in enumerate(found.kinds):
        for m in range(n):
            if np.array_equal(found.deletion[n], found.deletion[m]):
                same.append([found.kinds[m], kind])
    return same


def render(facts: dict[str, Any]) -> str:
    """Write the page.

    Args:
        facts: Everything that is on it.
    """
    settings, data, models = facts["settings"], facts["data"], facts["models"]
    cpu = sum(model["seconds"]["cpu"] for model in models)
    parts = [
        "# Which attribution maps are faithful",
        "`python docs/faithfulness.py` writes this page, its figures and `faithfulness.json`. "
        f"flaxattn {facts['flaxattn']}, jax {facts['jax']}, {facts['date']}, seed "
        f"{settings['seed']}; {cpu:.0f} seconds of processor time.",
        "An attribution map ranks the tokens of a text by what they matter to a prediction. If it "
        "is right, the probability of what is predicted falls fast as the tokens that it ranks "
        "first are removed (*deletion*, a small area is good), and rises fast as they alone are "
        "added (*insertion*, a large area is good). The *gap* is insertion minus deletion, 0 on "
        "average for an order at random. A removed token is masked from attention in all layers; "
        f"curves have {settings['steps']} steps, and the random order is the mean of "
        f"{settings['random_orders']}. Maps are judged on the same predictions of the same texts; "
        "maps of heads are brought down to tokens as `fa.token_scores` does.",
        f"Sentences: `{data['file']}` (SHA-256 `{data['sha256'][:16]}`), written for this page. "
        "The encoder-decoder reads dates, so its texts are as many dates, drawn with the seed "
        "above.",
        "```python\nimport flaxattn as fa\n\n"
        'model = fa.from_pretrained("tiny-gpt2")\n'
        'texts = ["The old clock in the hall stopped at midnight, and nobody noticed."]\n'
        "found = fa.faithfulness(model, texts)\nfound.table()\n"
        "fa.plot_faithfulness(found)\n```",
        "```sh\nflaxattn faithfulness docs/faithfulness_texts.txt --model tiny-gpt2 "
        "--out FAITHFULNESS\n```",
        "## All maps, all families",
        "Gap, with its rank in each model; the best mean rank, over the models that a map is "
        "defined for, comes first. Bold gaps differ from those of random order (paired t-test over "
        f"texts, p at most {settings['alpha']:g} after Holm's correction for the maps of the "
        "model).",
        _overview(models, settings["alpha"]),
        *_findings(models, settings["alpha"]),
    ]
    for model in models:
        parts += _model(model, settings["alpha"])
    return "\n\n".join([*parts, *LIMITS]) + "\n"


LIMITS = (
    "## What is not shown",
    "* These are three small models that ship with the library, each with one task. A rank here "
    "is no rank for other models; `fa.faithfulness` makes the table of yours.\n"
    "* To mask a token takes the model to inputs that it was not trained on. A map may be called "
    "unfaithful because the model reacts to that.\n"
    "* Deletion and insertion judge the order of tokens, not the sizes of scores.\n"
    "* Effective attention takes away what cannot change a head's output, which there is only in "
    "texts that are longer than a head is deep. All of these are shorter.\n"
    "* What the encoder-decoder predicts here is the first digit of the month, which is 0 in nine "
    "months of twelve, whatever the source says. That leaves less to attribute to the source.\n"
    "* Intervals are over texts. Predictions, and positions that are predicted, were drawn once.",
)


def _overview(models: list[dict[str, Any]], alpha: float) -> str:
    ranks: dict[str, list[int]] = {}
    cells: dict[str, dict[str, str]] = {}
    for model in models:
        for row in model["rows"]:
            clear = row["p"] is not None and row["p"] <= alpha
            gap = f"**{row['gap']:+.3f}**" if clear else f"{row['gap']:+.3f}"
            ranks.setdefault(row["kind"], []).append(row["rank"])
            cells.setdefault(row["kind"], {})[model["model"]] = f"{gap} ({row['rank']})"
    names = [model["model"] for model in models]
    order = sorted(ranks, key=lambda kind: float(np.mean(ranks[kind])))
    return table(
        ["map", *names, "mean rank"],
        [
            [NAMES[kind], *(cells[kind].get(n, "–") for n in names), f"{np.mean(ranks[kind]):.1f}"]
            for kind in order
        ],
    )


def _findings(models: list[dict[str, Any]], alpha: float) -> Iterator[str]:
    for model in models:
        best, *others = model["rows"]
        close = [NAMES[r["kind"]] for r in others if r["behind p"] is None or r["behind p"] > alpha]
        none = [
            NAMES[r["kind"]]
            for r in model["rows"]
            if r["kind"] != RANDOM and (r["p"] is None or r["p"] > alpha or r["difference"] <= 0)
        ]
        yield (
            f"* **{model['model']}**: {NAMES[best['kind']]} has the largest gap, "
            f"{best['gap']:.3f} [{best['low']:.3f}, {best['high']:.3f}]. "
            + (
                f"Not clearly behind it: {'; '.join(close)}. "
                if close
                else "All others are clearly behind it. "
            )
            + (
                f"No better than random order, as far as these texts tell: {'; '.join(none)}."
                if none
                else "Every map is better than random order."
            )
        )


def _model(model: dict[str, Any], alpha: float) -> Iterator[str]:
    least, mean, most = model["removable"]
    yield f"## {model['model']}"
    yield (
        f"{MODELS[model['model']]}. {model['texts']} texts with {least} to {most} tokens that can "
        f"be removed ({mean:.1f} on average). The probability of what is predicted is "
        f"{model['probability']:.3f} with all of them and {model['without']:.3f} with none. Most "
        "often predicted: "
        + ", ".join(f"`{token.strip() or '↵'}` ({count})" for token, count in model["predicted"])
        + "."
    )
    yield f"![Curves of {model['model']}](faithfulness_{model['model']}.png)"
    yield table(
        ["map", "deletion", "insertion", "gap [95% interval]", "over random", "p", "behind best"],
        [_row(row) for row in model["rows"]],
    )
    if model["alike"]:
        pairs = "; ".join(f"{NAMES[one]} and {NAMES[other]}" for one, other in model["alike"])
        yield f"These rank all tokens alike in every text: {pairs}."
    if model["refused"]:
        kinds = "; ".join(NAMES[kind] for kind in model["refused"])
        yield f"Not defined for this model: {kinds}."


def _row(row: dict[str, Any]) -> list[Any]:
    behind, low, high = row["behind"]
    p = row["p"]
    return [
        NAMES[row["kind"]],
        *(f"{row[name]:.3f}" for name in ("deletion", "insertion")),
        f"{row['gap']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]",
        None if p is None else f"{row['difference']:+.3f}",
        None if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}",
        None if row["rank"] == 1 else f"{behind:.3f} [{low:.3f}, {high:.3f}]",
    ]


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the options.

    Args:
        arguments: Words of the command line; None for those of the process.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    texts = FOLDER / "faithfulness_texts.txt"
    parser.add_argument("--texts", type=Path, default=texts, help="Sentences, a line each.")
    parser.add_argument("--limit", type=int, default=60, help="Largest number of texts.")
    parser.add_argument("--steps", type=int, default=10, help="Number of steps of a curve.")
    parser.add_argument("--random-orders", type=int, default=5, help="Number for each text.")
    parser.add_argument("--seed", type=int, default=0, help="Random seed.")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, and write the page, its numbers and its figures."""
    facts, curves = gathered(parsed())
    write_page("faithfulness", facts, render)
    for name, found in curves.items():
        fa.save_figure(fa.plot_faithfulness(found), FOLDER / f"faithfulness_{name}.png", dpi=120)


if __name__ == "__main__":
    main()
