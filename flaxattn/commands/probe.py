# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn probe`: parses, calls, prints. Everything heavy is imported when it runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from flaxattn.commands.head_request import (
    AsJson,
    BatchTokens,
    Kept,
    Limit,
    Model,
    OnError,
    Sentences,
    Truncate,
    WithPage,
)
from flaxattn.commands.probe_reader import Files, Reader
from flaxattn.errors import InputError

if TYPE_CHECKING:
    from flaxattn.heads.dependency import Classifier, Dependencies
    from flaxattn.heads.selectivity import Judged
    from flaxattn.heads.word_maps import WordMaps

_SHOWN = 12  # relations in the table and in the figure
_CHOSEN = "heads chosen on"


def probe(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="Sentences with trees (.conllu, also .gz and .zst), or see --pronouns.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the report.")] = Path(
        "report"
    ),
    model: Model = "tiny-bert",
    train: Annotated[
        list[Path] | None,
        typer.Option(
            help="Other sentences with trees, to choose heads on and to fit a parser of all heads "
            "to; repeat for several files."
        ),
    ] = None,
    limit: Limit = None,
    train_limit: Annotated[
        int | None, typer.Option(min=1, help="Take no more of the other sentences than these.")
    ] = None,
    pronouns: Annotated[
        str | None,
        typer.Option(
            help="The files hold pronouns, and heads are asked whom they mean: gap, winobias or "
            "winogender."
        ),
    ] = None,
    untrained: Annotated[
        bool,
        typer.Option("--untrained", help="Fit a parser to the model with random parameters too."),
    ] = False,
    penalty: Annotated[float, typer.Option(help="On the parser's coefficients squared.")] = 1e-4,
    truncate: Truncate = False,
    on_error: OnError = "fail",
    seed: Annotated[int, typer.Option(help="Of the control task and of random parameters.")] = 0,
    batch_tokens: BatchTokens = None,
    page: WithPage = True,
    sentences: Sentences = 40,
    evidence: Kept = 5,
    as_json: AsJson = False,
) -> None:
    """Ask every head for the governors of words, and all heads together for trees; or for pronouns.

    Writes probe.json, heads.parquet with every head and relation, evidence.parquet with the
    sentences that show the best heads, probe.png, probe.html, a page with these sentences, and,
    with --train, the fitted parser as probe.safetensors.
    """
    from flaxattn.commands.head_corpus import write_report
    from flaxattn.commands.probe_page import evidence_of
    from flaxattn.commands.pronoun_report import report_pronouns
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.heads.arc_weights import Watched
    from flaxattn.heads.dependency import Dependencies
    from flaxattn.heads.probe_file import to_bytes

    files = Files(tuple(inputs), limit), Files(tuple(train or ()), train_limit)
    _check(files, untrained, pronouns)
    reader = Reader(model, BadRows(on_error, out), truncate, batch_tokens)
    if pronouns is not None:
        report_pronouns(reader, files, pronouns, out, as_json)
        return
    judged, chosen_on, watched = None, None, Watched(evidence)
    if train:
        others, texts = list(reader.maps(files[1])), list(watched(reader.maps(files[0])))
        blind = reader.untrained(seed) if untrained else None
        judged = _judged(others, texts, blind, files, penalty, seed)
        found, chosen_on = Dependencies.of(texts), Dependencies.of(others)
    else:
        found = Dependencies.of(watched(reader.maps(files[0])))
    best = found.best(chosen_on)
    if not best:
        raise InputError("no sentence has a relation to probe\nname files that hold sentences")
    most = sentences if page else None
    shown, beside = evidence_of(reader, files[0], found, best, watched, most)
    said = {
        "model": model,
        "data": [each.facts() for each in files],
        "settings": {"penalty": penalty, "truncate": truncate, "untrained": untrained},
        "seed": seed,
        "left out": reader.left_out,
        _CHOSEN: "other sentences" if train else "the same sentences, which flatters",
        "relations": [one._asdict() | {"lift": one.lift} for one in best],
        "parser": None if judged is None else judged.facts(),
        "evidence": shown,
    }
    if judged is not None:
        notes = {name: said[name] for name in ("model", "data", "settings", "parser")}
        beside["probe.safetensors"] = to_bytes(judged.probe, notes)
    written = write_report(out, "probe", said, _rows(found), _figure(found, best), beside)
    _tell(said, best, written, as_json)


def _check(files: tuple[Files, Files], untrained: bool, pronouns: str | None) -> None:
    from flaxattn.corpus.trees import is_annotated

    if untrained and (pronouns is not None or not files[1].paths):
        needs = "is for sentences with trees." if files[1].paths or pronouns else "needs --train."
        raise typer.BadParameter(needs, param_hint="--untrained")
    for path in () if pronouns is not None else (*files[0].paths, *files[1].paths):
        if not is_annotated(path):
            raise InputError(
                f"{path} has no trees by its name, and probes ask for governors\n"
                "give sentences of Universal Dependencies: a file in .conllu"
            )


def _judged(
    others: "list[WordMaps]",
    texts: "list[WordMaps]",
    blind: Reader | None,
    files: tuple[Files, Files],
    penalty: float,
    seed: int,
) -> "Judged":
    from flaxattn.heads.selectivity import judge_parsing

    random = None if blind is None else (list(blind.maps(files[1])), list(blind.maps(files[0])))
    return judge_parsing(others, texts, untrained=random, penalty=penalty, seed=seed)


def _rows(found: "Dependencies") -> dict[str, list[Any]]:
    """One row per relation, direction and head: columns of heads.parquet."""
    names = ("relation", "direction", "layer", "head", "count", "accuracy", "offset", "baseline")
    rows: dict[str, list[Any]] = {name: [] for name in names}
    for direction, relation in found.hits:
        shares = found.accuracy(direction, relation)
        count = found.offsets[direction, relation].total()
        offset, baseline = found.baseline(direction, relation)
        for i, j in np.ndindex(shares.shape):
            where = (relation, direction, found.layers[i], found.heads[j], count)
            values = (*where, float(shares[i, j]), offset, baseline)
            for name, value in zip(names, values, strict=True):
                rows[name].append(value)
    return rows


def _figure(found: "Dependencies", best: "list[Classifier]") -> Any:
    from flaxattn.figures.roles import plot_head_means

    means = {
        f"{one.relation} ({one.direction})": found.accuracy(one.direction, one.relation)
        for one in best[:_SHOWN]
    }
    return plot_head_means(found.layers, found.heads, means, "share of words it is right for")


def _tell(said: dict[str, Any], best: "list[Classifier]", files: list[Path], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(said, indent=2, default=str))
        return
    console = Console(highlight=False, soft_wrap=True)
    table = Table(title="Heads that find governors best", caption=f"chosen on {said[_CHOSEN]}")
    table.add_column("relation", no_wrap=True)
    for name in ("words", "head", "direction", "right", "offset", "baseline", "lift"):
        table.add_column(name, justify="right")
    for one in best[:_SHOWN]:
        table.add_row(
            one.relation,
            str(one.words),
            f"{one.layer}.{one.head}",
            one.direction,
            f"{one.accuracy:.1%}",
            f"{one.offset:+d}",
            f"{one.baseline:.1%}",
            f"{one.lift:+.1f}",
        )
    console.print(table)
    if said["parser"] is not None:
        scores = said["parser"]["uas"]
        each = ", ".join(f"{name} {score:.1f}" for name, score in scores.items() if name != "tree")
        console.print(
            f"all heads together attach {scores['tree']:.1f}% of words; {each}; "
            f"selectivity {said['parser']['selectivity']:+.1f} points"
        )
    for count in said["left out"].items():
        console.print("left out: {}: {}".format(*count))
    for path in files:
        console.print(f"wrote {path.resolve()}", markup=False)
