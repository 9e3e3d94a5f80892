# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Report which attribution ranks the tokens that a prediction depends on: `faithfulness_report`."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flaxattn.attribution.faithfulness import DEFAULT_KINDS, Faithfulness, faithfulness
from flaxattn.corpus.input_files import describe_texts
from flaxattn.errors import check_arguments
from flaxattn.pipeline.progress_reporter import reporting
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.reports.report import Report, figure_file, table_file
from flaxattn.text.text_lists import some_texts
from flaxattn.views.figures.plot_interventions import plot_faithfulness


@check_arguments(1)
def faithfulness_report(
    model: Pretrained,
    texts: Iterable[str],
    text_b: Iterable[str] | None = None,
    *,
    kinds: Sequence[str] = DEFAULT_KINDS,
    labels: Sequence[int] | None = None,
    steps: int = 10,
    scale: str = "probability",
    random_orders: int = 5,
    truncate: bool = False,
    seed: int = 0,
    data: Mapping[str, Any] | None = None,
) -> Report:
    """Report what is predicted as tokens are removed and inserted in the order of attributions.

    As `flaxattn faithfulness` does. `fa.faithfulness` returns the curves alone, and describes the
    kinds and their cost.

    >>> import flaxattn as fa
    >>> model, texts = fa.from_pretrained("tiny-gpt2"), ["The captain saw the"]
    >>> report = fa.faithfulness_report(model, texts, kinds=("attention", "random"), steps=2)
    >>> report.table.column_names[:4]
    ['text', 'kind', 'predicted', 'removable']

    Args:
        model: A model with a head that predicts a class or a token.
        texts: N texts, each with two tokens or more that can be removed.
        text_b: The second text, or the target, of each.
        kinds: Attributions to rank, as of `fa.faithfulness`.
        labels: Number of the class of each text, in place of those that a classifier predicts.
        steps: Number of steps of a curve.
        scale: `probability`, or `log` for log-probabilities.
        random_orders: Number of random orders for each text.
        truncate: Whether a text over the model's limit is cut; otherwise it is an error.
        seed: Random seed of random orders and of the tokens that are predicted.
        data: Where the texts come from, kept with the report; default their number and digest.

    Returns:
        A report with a row for each kind and text (areas under the curves), the ranking of kinds in
        `facts`, and a figure. `result` is the `Faithfulness`.

    Raises:
        InputError: As `fa.faithfulness`.
    """
    first, second = some_texts(texts, text_b)
    settings: dict[str, Any] = {
        "steps": steps,
        "scale": scale,
        "random_orders": random_orders,
        "truncate": truncate,
    }
    with reporting() as shown:
        shown.announce(
            f"{len(first):,} texts, {model.name}: {', '.join(kinds)}, {steps} steps each"
        )
        shown.expect("faithfulness", len(first))
        found = faithfulness(
            model, first, second, kinds=kinds, labels=labels, seed=seed, watch=shown, **settings
        )
    facts = {
        "model": model.name,
        "architecture": model.config.architectures[0],
        "texts": len(first),
        "data": describe_texts(first, second) if data is None else dict(data),
        "seed": seed,
        "settings": {**settings, "kinds": list(kinds)},
        "refused": dict(found.refused),
        "ranking": found.table(seed=seed),
        "curves": _curves(found),
    }
    figures = {figure_file("faithfulness"): functools.partial(plot_faithfulness, found)}
    table = table_file("faithfulness")
    return Report(
        "faithfulness", facts, found.to_columns(), figures, table_name=table, result=found
    )


def _curves(found: Faithfulness) -> list[dict[str, Any]]:
    """Mean curves of each kind."""
    return [
        {
            "kind": kind,
            "shares": found.shares.tolist(),
            "deletion": found.deletion[n].mean(0).tolist(),
            "insertion": found.insertion[n].mean(0).tolist(),
        }
        for n, kind in enumerate(found.kinds)
    ]
