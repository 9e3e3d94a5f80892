# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn roles`: parses, calls, prints. Everything heavy is imported when it runs."""

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from flaxattn.heads.roles import Roles

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Sentences with trees (.conllu, also .gz and .zst), other texts as for extract, or "
        "the folder of a store with weights.",
    ),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the report.")]
Model = Annotated[str, typer.Option(help="Built-in name, directory, or Hub id.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Take no more texts than these.")]
Lengths = Annotated[
    str | None,
    typer.Option(help="Only texts of so many positions, such as 20-40: roles depend on length."),
]
TextColumn = Annotated[str, typer.Option(help="Column or key of the text.")]
PairColumn = Annotated[str | None, typer.Option(help="Of the second text.")]
Truncate = Annotated[bool, typer.Option("--truncate", help="Cut texts over the model's limit.")]
OnError = Annotated[str, typer.Option(help="Texts that cannot be used: fail, skip or quarantine.")]
Seed = Annotated[int, typer.Option(help="Of unrelated words and of the bootstrap.")]
BatchTokens = Annotated[
    int | None, typer.Option(min=1, help="Positions of a batch, padding counted.")
]
Side = Annotated[
    str | None,
    typer.Option(
        help="encoder, decoder or cross; default cross-attention where there is any, of other "
        "models the only side."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report's JSON.")]


def roles(
    inputs: Inputs,
    out: Out = Path("report"),
    model: Model = "tiny-bert",
    limit: Limit = None,
    relations: Annotated[
        str | None,
        typer.Option(help="With commas, or all; default nsubj,obj,amod,advmod."),
    ] = None,
    tau: Annotated[float, typer.Option(help="Scores above this; 1 is uniform attention.")] = 3.0,
    alpha: Annotated[float, typer.Option(help="Level of the tests.")] = 0.05,
    correction: Annotated[
        str | None, typer.Option(help="none, bonferroni or bh; default bh.")
    ] = None,
    pande_parity: Annotated[
        bool,
        typer.Option("--pande-parity", help="As the notebooks of the paper, errors included."),
    ] = False,
    lengths: Lengths = None,
    text_column: TextColumn = "text",
    pair_column: PairColumn = None,
    truncate: Truncate = False,
    on_error: OnError = "fail",
    seed: Seed = 0,
    batch_tokens: BatchTokens = None,
    side: Side = None,
    repeats: Annotated[
        int, typer.Option(min=0, help="Random sequences, repeated, that a decoder is shown.")
    ] = 16,
    drawings: Annotated[
        int, typer.Option(min=0, help="Times that false positives are counted with other trees.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Test which heads are local, syntactic, of the own text or of delimiters, and report it.

    Writes roles.json, heads.parquet with every number of every head, and roles.png.
    """
    from flaxattn.commands.head_corpus import Request, gathered, rows_of, write_report
    from flaxattn.commands.role_controls import false_positives, repeated, told
    from flaxattn.figures.roles import plot_roles
    from flaxattn.heads.patterns import labels
    from flaxattn.heads.roles import Test, facts, find_roles
    from flaxattn.heads.terms import PAPER_RELATIONS, Asked, check_relations

    named = relations.split(",") if relations is not None else PAPER_RELATIONS
    chosen = check_relations([name.strip() for name in named])
    correction = correction or ("none" if pande_parity else "bh")
    test = Test(tau=tau, alpha=alpha, correction=correction, pande_parity=pande_parity)
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
    asked = Asked(chosen, request.annotated, seed, pande_parity)
    corpus = gathered(request, asked, Console(stderr=True))
    found = find_roles(corpus.tally, asked, test)
    chance = false_positives(request, asked, test, corpus.tally.side, drawings)
    said = {
        **corpus.facts,
        "settings": {**dataclasses.asdict(asked), **dataclasses.asdict(test), "limit": limit},
        "seed": seed,
        **facts(found),
        "labels": [label._asdict() for label in labels(corpus.tally, alpha=alpha)],
        "false positives": chance,
        "repeated": repeated(request, test, corpus.tally.side, repeats),
    }
    files = write_report(out, "roles", said, rows_of(corpus, found, seed), plot_roles(found))
    tell(said, _table(found), [*found.warnings(), *told(chance)], files, as_json)


def length_range(text: str | None) -> tuple[int, int] | None:
    """The numbers of `20-40`.

    Args:
        text: As it was typed.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)-(\d+)", text, re.ASCII)
    if not found or int(found[1]) > int(found[2]):
        raise typer.BadParameter(f"{text!r} is no range such as 20-40.", param_hint="--lengths")
    return int(found[1]), int(found[2])


def tell(
    said: dict[str, Any], table: Table, warnings: list[str], files: list[Path], as_json: bool
) -> None:
    """Print a report, as JSON or as a table with what to know about it.

    Args:
        said: All of it.
        table: What a person looks at first.
        warnings: What to know before it is believed.
        files: Where it was written.
        as_json: Whether a program reads it.
    """
    if as_json:
        typer.echo(json.dumps(said, indent=2, default=str))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    lengths = said["lengths"]
    console.print(
        f"{said['texts']:,} texts of {lengths['least']:.0f} to {lengths['most']:.0f} positions, "
        f"{lengths['mean']:.1f} on average"
    )
    for count in said["left out"].items():
        console.print("left out: {}: {}".format(*count))
    for warning in warnings:
        console.print(warning, markup=False)
    for path in files:
        console.print(f"wrote {path.resolve()}", markup=False)


def _table(roles: "Roles") -> Table:
    test = roles.test
    title = f"Heads with a mean score above {test.tau:g} (p < {test.alpha:g}, {test.correction})"
    caption = (
        f"share needed: the attention a score of {test.tau:g} takes at these lengths, so counts on "
        "texts of other lengths do not compare"
    )
    table = Table(title=title, caption=caption)
    table.add_column("role", no_wrap=True)
    for name in ("texts", "heads", "beyond position", "by layer", "keys", "share needed"):
        table.add_column(name, justify="right")
    for name, role in roles.roles.items():
        beyond = None if role.beyond is None else ((role.beyond < test.alpha) & role.found).sum()
        table.add_row(
            name,
            str(role.count),
            str(int(role.found.sum())),
            "" if beyond is None else str(int(beyond)),
            " ".join(str(count) for count in role.found.sum(1).tolist()),
            "" if role.reach.keys is None else f"{role.reach.keys:.1f}",
            "" if role.reach.mass is None else f"{role.reach.mass:.0%}",
        )
    return table
