# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn ablate`: what each head of a model is worth on texts, and how many can go.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from flaxattn.commands.head_request import (
    KEPT,
    SENTENCES,
    AllowNonfinite,
    Architecture,
    AsJson,
    Kept,
    LabelColumn,
    Limit,
    Model,
    SecondColumn,
    Sentences,
    TextColumn,
    Truncate,
    WithPage,
)
from flaxattn.commands.report_run import Out, Overwrite, ReportRun
from flaxattn.errors import InputError
from flaxattn.store.store_layout import is_store


def ablate(
    context: typer.Context,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="txt, jsonl, csv, tsv, parquet, arrow or conllu, also .gz and .zst; "
            "patterns; - reads standard input.",
        ),
    ],
    out: Out = Path("report-ablate"),
    model: Model = "tiny-bert",
    head: Architecture = None,
    text_column: TextColumn = "text",
    pair_column: SecondColumn = None,
    label_column: LabelColumn = None,
    measure: Annotated[
        str,
        typer.Option(
            help="ablation (the loss without each head), importance (the size of the slope of the "
            "loss, by one backward pass), or both."
        ),
    ] = "both",
    order: Annotated[
        str | None,
        typer.Option(
            help="Order of the pruning curve: importance (default if measured) or ablation."
        ),
    ] = None,
    by_layer: Annotated[
        bool, typer.Option("--by-layer", help="Divide importances by the norm over their layer.")
    ] = False,
    batch: Annotated[
        int, typer.Option("--batch-size", min=1, help="Number of texts per batch.")
    ] = 16,
    limit: Limit = None,
    truncate: Truncate = False,
    on_error: Annotated[str, typer.Option(help="Rows that cannot be used: fail or skip.")] = "fail",
    allow_nonfinite: AllowNonfinite = False,
    seed: Annotated[
        int, typer.Option(help="Random seed of the tokens that a masked model has to predict.")
    ] = 0,
    page: WithPage = True,
    sentences: Sentences = SENTENCES,
    evidence: Kept = KEPT,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Measure the loss without each head, and its importance.

    The report is a folder with ablate.json, ablate.parquet (a row for each head), evidence.parquet
    (the texts that show best what heads are worth), ablate.png, and ablate.html, a page with these
    texts; curve.png is the loss as heads go, the least important first.

    Example: flaxattn ablate corpus.txt --model tiny-bert -o WORTH

    Example: flaxattn ablate dev.csv --model RUN/model --label-column label -o WORTH
    """
    from flaxattn.commands.text_corpus import read_corpus
    from flaxattn.pipeline.tokenize_texts import ReadingOptions
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.reports.ablation import ablation_report
    from flaxattn.reports.evidence import PageOptions

    _check_inputs(inputs)
    measures = _kinds(measure, order)
    run = ReportRun.begin(context, "ablate")
    run.progress("reading texts", 0)
    columns = text_column, pair_column, label_column
    corpus = read_corpus(inputs, columns, limit, on_error, run.path)
    run.progress(f"loading {model}", 0)
    loaded = from_pretrained(model, head=model_head(model, head))
    report = ablation_report(
        loaded,
        corpus.texts,
        corpus.second,
        labels=corpus.labels,
        measures=measures,
        by_layer=by_layer,
        batch=batch,
        seed=seed,
        reading=ReadingOptions(truncate, allow_nonfinite=allow_nonfinite),
        page=PageOptions(evidence, sentences),
        data=corpus.source,
    )
    if run.finish(report, as_json):
        effects, curve = report.result
        _print_result(effects, curve, out)


def _kinds(measure: str, order: str | None) -> list[str]:
    """Return the kinds to measure; the one that orders the pruning curve comes first."""
    choices = {"ablation": ["ablation"], "importance": ["importance"]}
    choices["both"] = ["importance", "ablation"]
    if measure not in choices:
        raise typer.BadParameter(f"choose one of {', '.join(choices)}.", param_hint="--measure")
    kinds = choices[measure]
    if order is not None and order not in kinds:
        message = f"{order!r} is not measured; choose {' or '.join(kinds)}."
        raise typer.BadParameter(message, param_hint="--order")
    return kinds if order is None else sorted(kinds, key=lambda kind: kind != order)


def _check_inputs(inputs: list[str]) -> None:
    """Refuse a measure that a store cannot give: it holds attention, not losses."""
    for name in filter(is_store, inputs):
        from flaxattn.store.open_store import read_plan

        plan, _ = read_plan(Path(name))
        files = " ".join(file["name"] for file in plan["files"]) or "TEXTS"
        raise InputError(
            f"ablation runs a model without some of its heads; {name} is a store, which has none\n"
            "it holds attention, not losses\n"
            f"give the texts and the model: flaxattn ablate {files} --model {plan['model']['name']}"
        )


def model_head(model: str, head: str | None) -> str | None:
    """The head to load: that of a masked language model for the built-in BERT by default."""
    return "BertForMaskedLM" if head is None and model == "tiny-bert" else head


def _print_result(effects: Any, curve: Any, out: Path) -> None:
    if not math.isfinite(curve[0].loss):
        typer.echo("the loss is NaN or infinite, so cells that follow from it are blank")
        typer.echo(f"wrote {out.resolve()}")
        return
    for kind, found in effects.items():
        for (name, layer, head), mean, error in found.ranked()[:3]:
            typer.echo(f"{kind:<10} {name} {layer}.{head}  {mean:+.4f} ± {error:.4f}")
    half = next(point for point in curve if point.share >= 0.5)
    typer.echo(f"loss {curve[0].loss:.4f}, without {half.removed} of the heads {half.loss:.4f}")
    typer.echo(f"wrote {out.resolve()}")
