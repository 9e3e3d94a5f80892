# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn stats`: parses, calls, prints. Everything heavy is imported when it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from flaxattn.commands.roles import (
    AsJson,
    BatchTokens,
    Inputs,
    Lengths,
    Limit,
    Model,
    OnError,
    Out,
    PairColumn,
    Seed,
    Side,
    TextColumn,
    Truncate,
    length_range,
    tell,
)

if TYPE_CHECKING:
    from flaxattn.heads.scores import Tally

_SHARES = ("next", "previous", "own", "cls", "sep", "punctuation", "own segment", "other segment")
_OTHER_SIDES = ("first", "delimiter", "diagonal", "end", "copy")
_SHOWN = ("next", "previous", "own", "cls", "sep", "punctuation")


def stats(
    inputs: Inputs,
    out: Out = Path("report"),
    model: Model = "tiny-bert",
    limit: Limit = None,
    lengths: Lengths = None,
    text_column: TextColumn = "text",
    pair_column: PairColumn = None,
    truncate: Truncate = False,
    on_error: OnError = "fail",
    seed: Seed = 0,
    batch_tokens: BatchTokens = None,
    side: Side = None,
    compared: Annotated[
        int, typer.Option(min=0, help="Texts on which all heads are compared with each other.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Measure where every head looks: positions, delimiters, punctuation, words, how sharply.

    Writes stats.json, heads.parquet with every number and its interval, and stats.png; of heads
    beside each other likeness.png, a map and their distances, likeness.parquet with places, groups
    and variability, and distances.parquet with the divergence of every two heads.
    """
    from flaxattn.commands.head_corpus import Request, gathered, rows_of, write_report
    from flaxattn.commands.head_likeness import compared_heads
    from flaxattn.figures.roles import plot_head_means
    from flaxattn.heads.patterns import labels
    from flaxattn.heads.terms import Asked, Column

    request = Request(
        tuple(inputs),
        out,
        model,
        (text_column, pair_column),
        limit,
        length_range(lengths),
        truncate,
        on_error,
        batch_tokens,
        side,
    )
    corpus = gathered(request, Asked(annotated=request.annotated, seed=seed), Console(stderr=True))
    tally = corpus.tally
    means = {
        name: tally.moments[Column("mean", name)].mean
        for name in (*_SHARES, *_OTHER_SIDES, "dependency")
        if Column("mean", name) in tally.moments
    }
    likeness = compared_heads(request, tally.side, compared)
    said = {
        **corpus.facts,
        "seed": seed,
        "likeness": likeness.facts,
        "settings": {"limit": limit, "lengths": request.lengths, "annotated": request.annotated},
        "labels": [label._asdict() for label in labels(tally)],
    }
    figure = plot_head_means(tally.layers, tally.heads, means)
    rows = rows_of(corpus, seed=seed)
    files = write_report(out, "stats", said, rows, figure, likeness.files)
    tell(said, _table(tally, said["labels"]), [], files, as_json)


def _table(tally: "Tally", labels: list[dict]) -> Table:
    table = Table(title="Where heads look: shares of attention, mean over texts")
    table.add_column("head", justify="right")
    known = {c.name: m.mean for c, m in tally.moments.items() if c.kind == "mean"}
    shares = [name for name in (*_SHOWN, *_OTHER_SIDES) if name in known]
    shown = [*shares, *(name for name in ("entropy", "distance") if name in known)]
    for name in shown:
        table.add_column(name, justify="right")
    table.add_column("labels")
    names: dict[tuple[int, int], list[str]] = {}
    for label in labels:
        names.setdefault((label["layer"], label["head"]), []).append(label["label"])
    for i, layer in enumerate(tally.layers):
        for j, head in enumerate(tally.heads):
            cells = [
                f"{known[n][i, j]:.0%}" if n in shares else f"{known[n][i, j]:.1f}" for n in shown
            ]
            table.add_row(f"{layer}.{head}", *cells, ", ".join(names.get((layer, head), [])))
    return table
