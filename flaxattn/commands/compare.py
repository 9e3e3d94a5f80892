# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn compare`: two models or checkpoints on the same texts, head by head.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from flaxattn.commands.text_lines import progress
from flaxattn.errors import InputError

_WINDOW = 64  # texts whose maps are held at a time


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="Model: name, directory or Hub id.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Model that is compared with it.")],
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="txt, jsonl, csv, tsv, parquet or arrow, also .gz and .zst; patterns; - reads "
            "standard input.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the report.")],
    text_column: Annotated[str, typer.Option(help="Column or key of the text.")] = "text",
    pair_column: Annotated[
        str | None, typer.Option(help="Of the second text, or of a translation's target.")
    ] = None,
    correction: Annotated[
        str, typer.Option(help="For the number of tests: none, bonferroni or bh.")
    ] = "bh",
    alpha: Annotated[float, typer.Option(help="Level of the tests.")] = 0.05,
    tau: Annotated[
        float, typer.Option(help="A role wants a mean score above this; 1 is uniform attention.")
    ] = 3.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Take no more texts than these.")] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut texts that are too long.")
    ] = False,
    on_error: Annotated[str, typer.Option(help="Rows that cannot be used: fail or skip.")] = "fail",
) -> None:
    """Compare the attention of two models: divergence, cosine and paired tests of every head.

    Of two encoders it also tells which heads took up or gave up roles, by layer. The report is a
    folder with compare.json, compare.parquet (a row for each head) and compare.png.
    """
    from flaxattn.commands.compare_roles import RolesOfBoth, lines_of
    from flaxattn.commands.head_report import read_corpus, write_report
    from flaxattn.figures.head_effects import plot_head_values
    from flaxattn.heads.roles import Test
    from flaxattn.heads.significance import CORRECTIONS
    from flaxattn.loading import from_pretrained

    if correction not in CORRECTIONS:
        told = f"choose one of {', '.join(CORRECTIONS)}."
        raise typer.BadParameter(told, param_hint="--correction")
    if not 0 < alpha < 1:
        raise typer.BadParameter("give a number between 0 and 1.", param_hint="--alpha")
    settings = {
        "models": [first, second],
        "columns": [text_column, pair_column],
        "correction": correction,
        "alpha": alpha,
        "tau": tau,
        "limit": limit,
        "truncate": truncate,
        "seed": None,  # nothing is drawn
    }
    test = Test(tau=tau, alpha=alpha, correction=correction)
    corpus = read_corpus(inputs, (text_column, pair_column, None), limit, on_error)
    models = [from_pretrained(name) for name in (first, second)]
    roles = RolesOfBoth(test)
    comparison = _compared(models, corpus, truncate, roles)
    changes = comparison.changes(correction=correction, alpha=alpha)
    layers = {
        side: [dict(zip(("layer", "divergence", "cosine"), row, strict=True)) for row in rows]
        for side, rows in comparison.by_layer().items()
    }
    maps = {f"{side}: divergence": comparison.table(side, "divergence") for side in layers}
    figure = plot_head_values(maps, "Jensen-Shannon divergence, nats", center=None)
    figures = {"compare.png": figure}
    found = {"layers": layers, "roles": roles.facts()}
    write_report(out, "compare", settings, corpus, found, _rows(changes), figures)
    for change in changes[:5]:
        what = ", ".join(change.significant) or "no measure changed significantly"
        typer.echo(
            f"{change.side} {change.layer}.{change.head}  divergence {change.divergence:.4f} ± "
            f"{change.divergence_error:.4f}, cosine {change.cosine:.3f}: {what}"
        )
    for line in lines_of(roles.changes()):
        typer.echo(line)
    typer.echo(f"wrote {out.resolve()}")


def _compared(models: list[Any], corpus: Any, truncate: bool, roles: Any) -> Any:
    """Both models' attention to all texts, taken in a window at a time."""
    from flaxattn.extraction.extract import Options, Texts, extract_shards
    from flaxattn.heads.compare import Comparison
    from flaxattn.kernels.contract import Capture

    pairs = corpus.second
    if pairs is None and any(model.masks().get("cross_attn_head_mask") for model in models):
        raise InputError(
            "Encoder-decoders are compared on texts with targets, received texts alone.\n"
            "Name the column of the targets with --pair-column."
        )
    windows = [
        Texts(corpus.texts[i : i + _WINDOW], None if pairs is None else pairs[i : i + _WINDOW])
        for i in range(0, len(corpus.texts), _WINDOW)
    ]
    options = Options(capture=Capture(weights=True), truncate=truncate)
    streams = [extract_shards([model], windows, options) for model in models]
    comparison = Comparison()
    with progress("comparing", len(corpus.texts)) as seen:
        for (ours,), (theirs,) in zip(*streams, strict=True):
            for one, other in zip(ours.traces, theirs.traces, strict=True):
                comparison.add(one, other)
                roles.add(one, other)
                seen(1)
    return comparison


def _rows(changes: Any) -> list[dict[str, Any]]:
    """A flat row for each head."""
    return [
        {
            "side": change.side,
            "layer": change.layer,
            "head": change.head,
            "divergence": change.divergence,
            "divergence_error": change.divergence_error,
            "cosine": change.cosine,
            **{f"{name}_change": value for name, value in change.changes.items()},
            **{f"{name}_p": value for name, value in change.p.items()},
            "significant": list(change.significant),
            "texts": change.texts,
        }
        for change in changes
    ]
