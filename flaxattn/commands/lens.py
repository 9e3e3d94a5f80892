# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn lens`: the tokens that each layer of a language model predicts.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flaxattn import __version__
from flaxattn.commands.head_request import (
    AllowNonfinite,
    Architecture,
    Model,
    SecondColumn,
    TextColumn,
    Truncate,
)
from flaxattn.commands.report_run import cell
from flaxattn.errors import InputError
from flaxattn.files import check_writable, write_text
from flaxattn.reports.report import json_text

if TYPE_CHECKING:
    from flaxattn.trace.token_predictions import LogitLens

_PLAIN = ("layer", "position", "token", "target", "follows", "probability", "rank")


def lens(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="txt, jsonl, csv, tsv, parquet, arrow or conllu, also .gz and .zst; patterns.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--output", "-o", "--out", help="Output file, .csv or .json.")
    ] = Path("lens.csv"),
    model: Model = "tiny-gpt2",
    head: Architecture = None,
    k: Annotated[int, typer.Option(min=1, help="Number of likeliest tokens of a cell.")] = 5,
    figure: Annotated[
        Path | None, typer.Option(help="Figure of one text, .png, .svg or .pdf.")
    ] = None,
    figure_text: Annotated[
        int, typer.Option(min=0, help="Number of the text in the figure, from 0.")
    ] = 0,
    text_column: TextColumn = "text",
    pair_column: SecondColumn = None,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of texts.")] = 20,
    truncate: Truncate = False,
    on_error: Annotated[str, typer.Option(help="Rows that cannot be used: fail or skip.")] = "fail",
    allow_nonfinite: AllowNonfinite = False,
) -> None:
    """Predict tokens from every layer (logit lens).

    The file has a row for each text, layer and position: the likeliest tokens, and probability and
    rank of the true one. Layer -1 is the embeddings, the last is the model's own prediction.

    Example: flaxattn lens novels.txt --model tiny-gpt2 -o lens.csv

    Example: flaxattn lens novels.txt --limit 1 --figure lens.png
    """
    import dataclasses

    from flaxattn.attribution.logit_lens import iterate_lenses
    from flaxattn.commands.ablate import model_head
    from flaxattn.commands.text_arguments import cost, progress
    from flaxattn.commands.text_corpus import read_corpus
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.store.plan import model_fingerprint

    _check_places(out, figure)
    corpus = read_corpus(inputs, (text_column, pair_column, None), limit, on_error)
    if figure is not None and figure_text >= len(corpus.texts):
        message = f"there is no text {figure_text} of {len(corpus.texts)}, counted from 0."
        raise typer.BadParameter(message, param_hint="--figure-text")
    loaded = from_pretrained(model, head=model_head(model, head))
    options = {"k": k, "truncate": truncate, "allow_nonfinite": allow_nonfinite}
    found: list[LogitLens] = []
    work = cost(len(corpus.texts), loaded.name, "one forward pass, and the head on every layer")
    with progress("reading states", len(corpus.texts), work) as on_done:
        for one in iterate_lenses(loaded, corpus.texts, corpus.second, **options):
            found.append(one)
            on_done(1)
    facts = {
        "flaxattn": __version__,
        "model": model,
        "architecture": loaded.config.architectures[0],
        "fingerprint": dataclasses.asdict(model_fingerprint(loaded)),
        "settings": {"head": head, "k": k, "limit": limit, "truncate": truncate},
        "data": corpus.source,
    }
    written = _as_csv(found, k) if out.suffix.lower() == ".csv" else _as_json(facts, found, corpus)
    write_text(out, written, "the predictions")
    typer.echo(f"wrote {out.resolve()}", err=True)
    if figure is not None:
        _draw(found[figure_text], figure)


def _check_places(out: Path, figure: Path | None) -> None:
    """Refuse places before anything is computed."""
    if out.suffix.lower() not in (".csv", ".json"):
        raise InputError(
            f"the predictions are written as .csv or .json; {str(out)!r} names neither\n"
            "change the ending after --out"
        )
    check_writable(out, "the predictions")
    if figure is not None:
        check_writable(figure, "the figure")


def _as_csv(found: "Sequence[LogitLens]", k: int) -> str:
    """A row for each text, layer and position; numbers that are not finite are blank."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = [f"{name}_{n}" for n in range(1, k + 1) for name in ("token", "probability")]
    writer.writerow(["text", *_PLAIN, *names])
    for number, one in enumerate(found):
        for row in one.rows():
            shares = [cell(share, ".6g") for share in row["probabilities"]]
            pairs = zip(row["tokens"], shares, strict=True)
            plain = [row[name] for name in _PLAIN]
            plain[_PLAIN.index("probability")] = cell(row["probability"], ".6g")
            writer.writerow([number, *plain, *(part for pair in pairs for part in pair)])
    return file.getvalue()


def _as_json(facts: Mapping[str, Any], found: "Sequence[LogitLens]", corpus: Any) -> str:
    texts = [
        {"text": text, "states": one.rows()} for text, one in zip(corpus.texts, found, strict=True)
    ]
    return json_text({**facts, "texts": texts}) + "\n"


def _draw(one: "LogitLens", path: Path) -> None:
    import matplotlib.pyplot as plt

    from flaxattn.views.figures.figure_style import save_figure
    from flaxattn.views.figures.plot_predictions import plot_logit_lens

    drawn = plot_logit_lens(one)
    save_figure(drawn, path)
    plt.close(drawn)
    typer.echo(f"wrote {path.resolve()}", err=True)
