# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn compare`: two models or checkpoints on the same texts, or two stores, head by head.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from flaxattn.commands.head_request import (
    KEPT,
    SENTENCES,
    AllowNonfinite,
    Alpha,
    AsJson,
    Correction,
    Kept,
    Limit,
    SecondColumn,
    Sentences,
    TextColumn,
    Truncate,
    WithPage,
    check_unread,
)
from flaxattn.commands.report_run import Out, Overwrite, ReportRun
from flaxattn.errors import InputError
from flaxattn.store.store_layout import is_store


def compare(
    context: typer.Context,
    first: Annotated[
        str,
        typer.Argument(metavar="A", help="First model (name, directory or Hub id), or a store."),
    ],
    second: Annotated[str, typer.Argument(metavar="B", help="Second model or store.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT...",
            help="txt, jsonl, csv, tsv, parquet, arrow or conllu, also .gz and .zst; "
            "patterns; - reads standard input. Two stores need none.",
        ),
    ] = None,
    out: Out = Path("report-compare"),
    text_column: TextColumn = "text",
    pair_column: SecondColumn = None,
    correction: Correction = "bh",
    alpha: Alpha = 0.05,
    tau: Annotated[
        float, typer.Option(help="Threshold of a role's mean score; uniform attention scores 1.")
    ] = 3.0,
    seed: Annotated[int, typer.Option(help="Random seed of the bootstrap.")] = 0,
    limit: Limit = None,
    truncate: Truncate = False,
    on_error: Annotated[str, typer.Option(help="Rows that cannot be used: fail or skip.")] = "fail",
    allow_nonfinite: AllowNonfinite = False,
    page: WithPage = True,
    sentences: Sentences = SENTENCES,
    evidence: Kept = KEPT,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compare the attention of two models or stores, head by head.

    Of two encoders it also shows which heads took up or gave up roles, by layer, where both hold
    attention weights. A change is claimed only where its interval over the texts supports it; the
    report and the page say by which rule.

    The report is a folder with compare.json, compare.parquet (a row for each head),
    evidence.parquet (the texts that show each change best), compare.png, and compare.html, a page
    with these texts.

    Example: flaxattn compare tiny-bert RUN/model corpus.txt -o BEFORE-AFTER

    Example: flaxattn compare STORE-A STORE-B --alpha 0.01 -o CHANGES
    """
    from flaxattn.commands.report_run import print_nonfinite
    from flaxattn.commands.text_corpus import read_corpus
    from flaxattn.measures.role_tests import Test
    from flaxattn.pipeline.tokenize_texts import ReadingOptions
    from flaxattn.reports import compare as report_compare
    from flaxattn.reports.evidence import PageOptions

    test = Test(tau=tau, alpha=alpha, correction=correction)
    stores = _stores(first, second, inputs)
    run = ReportRun.begin(context, "compare")
    options: dict[str, Any] = {"truncate": truncate, "allow_nonfinite": allow_nonfinite}
    texts = {}
    if stores:
        columns = {"text_column": text_column, "pair_column": pair_column}
        check_unread(first, {**columns, **options})
    else:
        corpus = read_corpus(
            inputs or [], (text_column, pair_column, None), limit, on_error, run.path
        )
        texts = {"texts": corpus.texts, "text_b": corpus.second, "data": corpus.source}
    report = report_compare.compare(
        first,
        second,
        **texts,
        test=test,
        seed=seed,
        reading=ReadingOptions(limit=limit, **options),
        page=PageOptions(evidence, sentences),
    )
    if run.finish(report, as_json):
        print_nonfinite(report.facts)
        _print_result(report.facts, out)


def _stores(first: str, second: str, inputs: Sequence[str] | None) -> bool:
    """Return whether two stores are compared."""
    found = [is_store(name) for name in (first, second)]
    if any(found) and not all(found):
        store, model = (first, second) if found[0] else (second, first)
        raise InputError(
            f"{store} is a store and {model} is not; a store is compared with a store\n"
            f"extract the same texts with it first: flaxattn extract TEXTS --model {model} -o OTHER"
        )
    if all(found) and inputs:
        raise InputError(
            f"two stores have their texts already, received {inputs[0]} beside them\n"
            "leave the texts out, or name models in place of stores"
        )
    if not any(found) and not inputs:
        raise InputError(
            "two models are compared on texts, and no text was named\n"
            f"name files: flaxattn compare {first} {second} TEXTS -o REPORT"
        )
    return all(found)


def _print_result(facts: Mapping[str, Any], out: Path) -> None:
    from flaxattn.measures.compare_heads import RoleChange, role_lines

    for row in facts["heads"][:5]:
        known = math.isfinite(row["divergence"])
        found = ", ".join(row["significant"]) or "no measure changed significantly"
        found = found if row["changed"] or not known else "no change is claimed"
        alike = ""
        if not facts["refused"]:
            interval = f"[{row['divergence_low']:.3g}, {row['divergence_high']:.3g}]"
            alike = (
                f"divergence {row['divergence']:.4f} {interval}, cosine {row['cosine']:.3f}: "
                if known
                else "attention is NaN or infinite: "
            )
        typer.echo(f"{row['side']} {row['layer']}.{row['head']}  {alike}{found}")
    for line in role_lines([RoleChange(**change) for change in facts["roles"]["changes"]]):
        typer.echo(line)
    for request, names in facts["refused"].items():
        typer.echo(f"not in these stores, {request} would hold it: {', '.join(names)}")
    typer.echo(f"wrote {out.resolve()}")
