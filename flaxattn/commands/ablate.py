# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn ablate`: what each head of a model is worth on texts, and how many can go.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    is_store,
)
from flaxattn.commands.report_run import Out, Overwrite, ReportRun
from flaxattn.errors import InputError
from flaxattn.reports.report import CURVE, EVIDENCE, figure_file, table_file

if TYPE_CHECKING:
    from flaxattn.pipeline.progress_reporter import ProgressReporter
    from flaxattn.views.page import Page

_SIDES = {"decoder_head_mask": "decoder", "cross_attn_head_mask": "cross"}
_LABEL = "growth of the loss, or importance"
_SURE = 1.96  # standard errors
_MOST = 10  # heads of a kind that are claimed to matter


def ablate(
    context: typer.Context,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="txt, jsonl, csv, tsv, parquet or arrow, also .gz and .zst; patterns; - reads "
            "standard input.",
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
            help="ablation: the loss without each head; importance: |d loss / d factor|, by one "
            "backward pass; both."
        ),
    ] = "both",
    order: Annotated[
        str | None,
        typer.Option(
            help="Order of the pruning curve: importance (default if measured) or ablation."
        ),
    ] = None,
    by_layer: Annotated[
        bool, typer.Option("--by-layer", help="Divide importances by the norm of their layer.")
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
    """
    from flaxattn.attribution.head_losses import head_task
    from flaxattn.commands.text_corpus import read_corpus
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.reports.evidence import evidence_facts, evidence_table
    from flaxattn.reports.report import Report
    from flaxattn.views.figures.plot_head_effects import plot_head_values, plot_pruning_curve

    _check_inputs(inputs)
    kinds, order = _kinds(measure, order)
    run = ReportRun.begin(context, "ablate")
    columns = text_column, pair_column, label_column
    settings = {
        "model": model,
        "head": head,
        "columns": list(columns),
        "measure": measure,
        "order": order,
        "by_layer": by_layer,
        "batch": batch,
        "limit": limit,
        "truncate": truncate,
        "evidence": evidence,
        "seed": seed,
    }
    run.progress("reading texts", 0)
    corpus = read_corpus(inputs, columns, limit, on_error, run.path)
    run.progress(f"loading {model}", 0)
    loaded = from_pretrained(model, head=model_head(model, head))
    read = {"truncate": truncate, "allow_nonfinite": allow_nonfinite}
    task = head_task(
        loaded,
        corpus.texts,
        corpus.second,
        labels=corpus.labels,
        batch=batch,
        seed=seed,
        **read,
    )
    _announce(run.progress, loaded.masks(), kinds, len(corpus.texts))
    effects, curve = _measured(task, kinds, order, by_layer, run.progress, len(corpus.texts))
    maps = {f"{kind}, {n}": m for kind, e in effects.items() for n, m in e.means.items()}
    claims = _claims(effects, loaded, evidence)
    said = {
        "model": model,
        "settings": settings,
        "data": corpus.source,
        "architecture": loaded.config.architectures[0],
        "loss": next(iter(effects.values())).loss,
        "curve": [point.__dict__ for point in curve],
        "evidence": evidence_facts(claims, _texts(corpus)),
        "heads": _rows(effects, loaded),
    }
    beside = {EVIDENCE: evidence_table(claims)}
    draw = functools.partial(_page, loaded, corpus, effects, claims, read, sentences)
    shares, losses, errors = ([getattr(p, n) for p in curve] for n in ("share", "loss", "error"))
    figures = {
        figure_file(run.command): functools.partial(plot_head_values, maps, _LABEL),
        CURVE: functools.partial(plot_pruning_curve, shares, losses, errors),
    }
    table = table_file(run.command)
    report = Report(run.command, said, said["heads"], figures, beside, draw, table)
    files = run.save(report, page)
    if as_json:
        typer.echo(files[0].read_text(encoding="utf-8"), nl=False)
    else:
        _tell(effects, curve, out)


def _kinds(measure: str, order: str | None) -> tuple[list[str], str]:
    """Return what is measured, and which of it orders the pruning curve."""
    choices = {"ablation": ["ablation"], "importance": ["importance"]}
    choices["both"] = ["importance", "ablation"]
    if measure not in choices:
        raise typer.BadParameter(f"choose one of {', '.join(choices)}.", param_hint="--measure")
    kinds = choices[measure]
    if order is not None and order not in kinds:
        message = f"{order!r} is not measured; choose {' or '.join(kinds)}."
        raise typer.BadParameter(message, param_hint="--order")
    return kinds, order or kinds[0]


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


def _side(loaded: Any, mask: str) -> str:
    """The side whose heads a mask is of."""
    from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

    return "decoder" if isinstance(loaded, PretrainedDecoder) else _SIDES.get(mask, "encoder")


def _texts(corpus: Any) -> dict[int, Any]:
    from flaxattn.corpus.texts import Text

    second = corpus.second or [None] * len(corpus.texts)
    pairs = enumerate(zip(corpus.texts, second, strict=True))
    return {number: Text(number, str(number), text, other) for number, (text, other) in pairs}


def _claims(effects: Any, loaded: Any, keep: int) -> list[Any]:
    """The heads that are worth most, those whose effect is above 0 beyond its error."""
    from flaxattn.measures.claims import Claim
    from flaxattn.measures.evidence import Evidence

    claims, shown = [], Evidence(keep)
    for kind, found in effects.items():
        for mask, values in found.each.items():
            shown.add((kind, mask), values.transpose(2, 0, 1), range(values.shape[2]))
        sure = [row for row in found.ranked() if row[1] > _SURE * (row[2] if row[2] > 0 else 0)]
        for (mask, layer, head), mean, error in sure[:_MOST]:
            texts = shown.of((kind, mask), layer, head)
            message = f"± {error:.2g}"
            claims.append(Claim(kind, layer, head, mean, message, _side(loaded, mask), texts))
    return claims


def _page(
    loaded: Any, corpus: Any, effects: Any, claims: list[Any], read: dict[str, bool], most: int
) -> "Page":
    from flaxattn.measures.score_source import traces_of
    from flaxattn.reports.evidence import report_page
    from flaxattn.views.evidence_page import EvidenceReport, Numbers

    sides: dict[str, dict[str, Any]] = {}
    for kind, found in effects.items():
        for mask, means in found.means.items():
            sides.setdefault(_side(loaded, mask), {})[kind] = means
    numbers = {}
    for side, values in sides.items():
        layers, heads = next(iter(values.values())).shape
        numbers[side] = Numbers(range(layers), range(heads), values)
    loss = next(iter(effects.values())).loss
    about = (
        f"{len(corpus.texts):,} texts, mean loss {loss:.4f}. Ablation is by how much the loss "
        "grows without the head, importance the size of its slope; claimed are the heads with the "
        "most. Attention is that of the text as it stands, with all heads and nothing masked."
    )

    def traces(chosen: Any) -> Any:
        second = None if corpus.second is None else [corpus.second[n] for n in chosen]
        return traces_of(loaded, [corpus.texts[n] for n in chosen], second, **read)

    report = EvidenceReport("What heads are worth", loaded.name, about, numbers)
    return report_page(report, claims, traces, most)


def model_head(model: str, head: str | None) -> str | None:
    """The built-in BERT is judged as a masked language model unless something else is asked for."""
    return "BertForMaskedLM" if head is None and model == "tiny-bert" else head


def _announce(
    progress: "ProgressReporter",
    masks: "Mapping[str, tuple[int, int]]",
    kinds: list[str],
    texts: int,
) -> None:
    """Say what will be computed."""
    heads = sum(layers * count for layers, count in masks.values())
    passes = {
        "importance": "one forward and backward pass over all texts for importance",
        "ablation": f"{heads + 1} forward passes over all texts for ablation",
    }
    message = ", ".join(passes[kind] for kind in kinds)
    progress.announce(f"{texts:,} texts, {heads} heads: {message}, about 11 for the pruning curve")


def _measured(
    task: Any,
    kinds: list[str],
    order: str,
    by_layer: bool,
    progress: "ProgressReporter",
    texts: int,
) -> Any:
    """Effects by kind, and the curve."""
    from flaxattn.attribution.ablation import ablate as without_each
    from flaxattn.attribution.ablation import head_importance, pruning_curve

    passes = {"importance": head_importance, "ablation": without_each}
    effects = {}
    for kind in kinds:
        effects[kind] = passes[kind](task, _stage(kind, progress, texts))
    if by_layer and "importance" in effects:
        effects["importance"] = effects["importance"].by_layer()
    return effects, pruning_curve(task, effects[order], progress=_stage("pruning", progress, texts))


def _stage(name: str, progress: "ProgressReporter", texts: int) -> "Callable[[int], object]":
    progress.expect(name, texts)
    return functools.partial(progress, name)


def _rows(effects: Any, loaded: Any) -> list[dict[str, Any]]:
    """A row for each head, with what each kind of effect says of it."""
    rows: dict[tuple[str, int, int], dict[str, Any]] = {}
    for kind, found in effects.items():
        for head, mean, error in found.ranked():
            name, layer, number = head
            where = {"side": _side(loaded, name), "layer": layer, "head": number}
            row = rows.setdefault(head, where)
            row |= {kind: mean, f"{kind}_error": error}
    return list(rows.values())


def _tell(effects: Any, curve: Any, out: Path) -> None:
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
