# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn ablate`: what each head of a model is worth on texts, and how many can go.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from flaxattn.commands.text_lines import progress


def ablate(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="txt, jsonl, csv, tsv, parquet or arrow, also .gz and .zst; patterns; - reads "
            "standard input.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the report.")],
    model: Annotated[
        str, typer.Option(help="Built-in name, model directory, or Hugging Face Hub id.")
    ] = "tiny-bert",
    head: Annotated[
        str | None, typer.Option(help="Architecture to load it as, such as BertForMaskedLM.")
    ] = None,
    text_column: Annotated[str, typer.Option(help="Column or key of the text.")] = "text",
    pair_column: Annotated[
        str | None, typer.Option(help="Of the second text, or of a translation's target.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Of the number of the class, for a classifier.")
    ] = None,
    measure: Annotated[
        str,
        typer.Option(
            help="ablation: the loss without each head; importance: |d loss / d factor|, by one "
            "backward pass; both."
        ),
    ] = "both",
    order: Annotated[
        str | None,
        typer.Option(help="Of the pruning curve: importance (default if measured) or ablation."),
    ] = None,
    by_layer: Annotated[
        bool, typer.Option("--by-layer", help="Divide importances by the norm of their layer.")
    ] = False,
    batch: Annotated[int, typer.Option(min=1, help="Texts of a batch.")] = 16,
    limit: Annotated[int | None, typer.Option(min=1, help="Take no more texts than these.")] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut texts that are too long.")
    ] = False,
    on_error: Annotated[str, typer.Option(help="Rows that cannot be used: fail or skip.")] = "fail",
    seed: Annotated[int, typer.Option(help="Of the pieces that a masked model has to guess.")] = 0,
) -> None:
    """Measure what every head is worth: the loss without it, its importance, the pruning curve.

    The report is a folder with ablate.json, ablate.parquet (a row for each head) and ablate.png;
    curve.png is the loss as heads go, the least important first.
    """
    from flaxattn.commands.head_report import read_corpus, write_report
    from flaxattn.figures.head_effects import plot_head_values, plot_pruning_curve
    from flaxattn.head_losses import head_task
    from flaxattn.loading import from_pretrained

    kinds = {"ablation": ["ablation"], "importance": ["importance"]}
    kinds["both"] = ["importance", "ablation"]
    if measure not in kinds:
        raise typer.BadParameter(f"choose one of {', '.join(kinds)}.", param_hint="--measure")
    order = kinds[measure][0] if order is None else order
    if order not in kinds[measure]:
        told = f"{order!r} is not measured; choose {' or '.join(kinds[measure])}."
        raise typer.BadParameter(told, param_hint="--order")
    settings = {
        "model": model,
        "head": head,
        "columns": [text_column, pair_column, label_column],
        "measure": measure,
        "order": order,
        "by_layer": by_layer,
        "batch": batch,
        "limit": limit,
        "truncate": truncate,
        "seed": seed,
    }
    corpus = read_corpus(inputs, (text_column, pair_column, label_column), limit, on_error)
    loaded = from_pretrained(model, head=model_head(model, head))
    task = head_task(
        loaded,
        corpus.texts,
        corpus.second,
        labels=corpus.labels,
        batch=batch,
        truncate=truncate,
        seed=seed,
    )
    effects, curve = _measured(task, kinds[measure], order, by_layer, len(corpus.texts))
    maps = {f"{kind}, {n}": m for kind, e in effects.items() for n, m in e.means.items()}
    figure = plot_head_values(maps, "growth of the loss, or importance")
    results = {
        "architecture": loaded.config.architectures[0],
        "loss": next(iter(effects.values())).loss,
        "curve": [point.__dict__ for point in curve],
    }
    shares, losses, errors = ([getattr(p, n) for p in curve] for n in ("share", "loss", "error"))
    figures = {"ablate.png": figure, "curve.png": plot_pruning_curve(shares, losses, errors)}
    write_report(out, "ablate", settings, corpus, results, _rows(effects), figures)
    _tell(effects, curve, out)


def model_head(model: str, head: str | None) -> str | None:
    """The built-in BERT is judged as a masked language model unless something else is asked for.

    Args:
        model: As it was named.
        head: What was asked for.
    """
    return "BertForMaskedLM" if head is None and model == "tiny-bert" else head


def _measured(task: Any, kinds: list[str], order: str, by_layer: bool, texts: int) -> Any:
    """Effects by kind, and the curve."""
    from flaxattn.ablation import ablate as without_each
    from flaxattn.ablation import head_importance, pruning_curve

    passes = {"importance": head_importance, "ablation": without_each}
    effects = {}
    for kind in kinds:
        with progress(kind, texts) as seen:
            effects[kind] = passes[kind](task, seen)
    if by_layer and "importance" in effects:
        effects["importance"] = effects["importance"].by_layer()
    with progress("pruning", texts) as seen:
        return effects, pruning_curve(task, effects[order], progress=seen)


def _rows(effects: Any) -> list[dict[str, Any]]:
    """A row for each head, with what each kind of effect says of it."""
    rows: dict[tuple[str, int, int], dict[str, Any]] = {}
    for kind, found in effects.items():
        for head, mean, error in found.ranked():
            name, layer, number = head
            row = rows.setdefault(head, {"mask": name, "layer": layer, "head": number})
            row |= {kind: mean, f"{kind}_error": error}
    return list(rows.values())


def _tell(effects: Any, curve: Any, out: Path) -> None:
    for kind, found in effects.items():
        for (name, layer, head), mean, error in found.ranked()[:3]:
            typer.echo(f"{kind:<10} {name} {layer}.{head}  {mean:+.4f} ± {error:.4f}")
    half = next(point for point in curve if point.share >= 0.5)
    typer.echo(f"loss {curve[0].loss:.4f}, without {half.removed} of the heads {half.loss:.4f}")
    typer.echo(f"wrote {out.resolve()}")
