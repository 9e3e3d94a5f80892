# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn weights`: what keys give to queries beyond attention, per text and head.

Everything heavy is imported when it runs. Maps are made in `flaxattn.attribution.attribution_maps`
and measured in `flaxattn.measures.map_measures`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from flaxattn.commands.head_request import (
    Architecture,
    LabelColumn,
    Model,
    SecondColumn,
    TextColumn,
)
from flaxattn.commands.option_lists import names
from flaxattn.commands.report_files import print_files
from flaxattn.commands.report_layout import figure_file
from flaxattn.commands.report_run import Out, Overwrite, ReportRun
from flaxattn.errors import InputError

if TYPE_CHECKING:
    from flaxattn.attribution.contribution_maps import Maps
    from flaxattn.commands.text_corpus import TextCorpus
    from flaxattn.pipeline.progress_reporter import ProgressReporter, Watch
    from flaxattn.pretrained.pretrained_model import Pretrained
    from flaxattn.trace.trace import Trace

KINDS = ("attention", "norm", "effective", "gradient", "zeroing", "rollout", "flow")
_OF_HEADS = ("norm", "effective", "zeroing")  # not defined for additive attention
_DEFAULT = ",".join(KINDS[:-1])
_WHERE = ("text", "kind", "side", "layer", "head")
_SHOWN = ("first", "special", "own", "previous", "next", "entropy")


def weights(
    context: typer.Context,
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...", help="Texts as for extract; - reads standard input."),
    ],
    out: Out = Path("report-weights"),
    model: Model = "tiny-bert",
    head: Architecture = None,
    kinds: Annotated[
        str, typer.Option(help=f"With commas, of {', '.join(KINDS)}; all but flow by default.")
    ] = _DEFAULT,
    text_column: TextColumn = "text",
    pair_column: SecondColumn = None,
    label_column: LabelColumn = None,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of texts.")] = 20,
    on_error: Annotated[str, typer.Option(help="Rows that cannot be used: fail or skip.")] = "fail",
    seed: Annotated[
        int, typer.Option(help="Random seed of the tokens that a masked model has to predict.")
    ] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Compute attribution maps: norms, gradients, rollout and more.

    Writes weights.json with means over texts and what is not defined for the model, heads.parquet
    with a row for each text, kind, side, layer and head, and weights.png. A head of -1 stands for
    all heads of a layer together, a layer of -1 for all layers.
    """
    from flaxattn.commands.ablate import model_head
    from flaxattn.commands.report_files import write_report
    from flaxattn.commands.text_corpus import read_corpus
    from flaxattn.pretrained.from_pretrained import from_pretrained

    chosen = names(kinds, KINDS, "--kinds")
    run = ReportRun.begin(context, "weights")
    run.progress("reading texts", 0)
    columns = text_column, pair_column, label_column
    corpus = read_corpus(inputs, columns, limit, on_error, run.path)
    run.progress(f"loading {model}", 0)
    loaded = from_pretrained(model, head=model_head(model, head))
    rows, refused = measured(loaded, corpus, chosen, seed, run.progress)
    means = _means(rows)
    said = {
        "model": model,
        "architecture": loaded.config.architectures[0],
        "texts": len(corpus.texts),
        "data": corpus.source,
        "seed": seed,
        "settings": {"kinds": chosen, "limit": limit, "head": head},
        "refused": refused,
        "heads": means,
    }
    files = write_report(run, said, _columns(rows), {figure_file(run.command): _figure(means)})
    _tell(means, refused, files)


def measured(
    model: "Pretrained",
    corpus: "TextCorpus",
    kinds: Sequence[str],
    seed: int,
    progress: "ProgressReporter",
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows of measures, and the reason for every kind that the model or the texts do not have.

    Args:
        model: Any with a tokenizer.
        corpus: The texts.
        kinds: Some of `KINDS`.
        seed: Of the pieces that are masked.
        progress: Shows how far the texts are.

    Raises:
        InputError: If a text cannot be read, or there is no kind left.
    """
    from flaxattn.commands.text_lines import cost
    from flaxattn.pipeline.extraction import extract

    count = len(corpus.texts)
    refused = _refused(model, corpus, kinds, seed)
    computed = [kind for kind in kinds if kind not in refused]
    if not computed:
        raise _none(kinds, refused)
    progress.announce(cost(count, model.name, f"{', '.join(computed)}, of every text"))
    for kind, reason in refused.items():
        progress.announce(f"{kind} is left out: {reason}")
    progress("reading attention", 0)
    traces = extract(model, corpus.texts, corpus.second)
    rows: list[dict[str, Any]] = []
    for kind in computed:
        progress.expect(kind, count)
        try:
            maps = _makers(model, corpus, traces, seed, progress)[kind]()
        except InputError as error:
            refused[kind] = " ".join(str(error).split())
            continue
        progress.expect(f"measuring {kind}", count * len(maps))
        for side, each in maps.items():
            for number, (one, trace) in enumerate(zip(each, traces, strict=True)):
                seen = trace.sides[side]
                layers = seen.layers if len(one) == len(seen.layers) else (-1,)
                heads = seen.heads if one.shape[1] == len(seen.heads) else (-1,)
                rows += _rows((number, kind, side), one, trace, layers, heads)
                progress(f"measuring {kind}", 1)
    if not rows:
        raise _none(kinds, refused)
    return rows, refused


def _none(kinds: Sequence[str], refused: dict[str, str]) -> InputError:
    first, reason = next(iter(refused.items()))
    return InputError(f"none of {', '.join(kinds)} can be computed here\n{first}: {reason}")


def _refused(
    model: "Pretrained", corpus: "TextCorpus", kinds: Sequence[str], seed: int
) -> dict[str, str]:
    """Reasons that are known before anything is computed, by kind."""
    from flaxattn.attribution.attribution_maps import check_heads
    from flaxattn.attribution.head_losses import head_task

    def check(kind: str) -> None:
        if kind in _OF_HEADS:
            check_heads(model)
        if kind == "gradient":
            head_task(model, corpus.texts, corpus.second, labels=corpus.labels, batch=1, seed=seed)

    refused: dict[str, str] = {}
    for kind in kinds:
        try:
            check(kind)
        except InputError as error:
            refused[kind] = " ".join(str(error).split())
    return refused


def _makers(
    model: "Pretrained", corpus: "TextCorpus", traces: list["Trace"], seed: int, watch: "Watch"
) -> dict[str, Callable[[], "Maps"]]:
    """Return the functions that make maps of each kind, of all texts by side."""
    from flaxattn.attribution import attribution_maps as weighing
    from flaxattn.attribution.rollout import attention_flow, rollout
    from flaxattn.trace.selection import layer_weights

    texts, second = corpus.texts, corpus.second

    def followed(kind: str, make: Callable[["Trace"], np.ndarray]) -> "Maps":
        side = "encoder" if traces[0].encoder is not None else "decoder"
        found = []
        for trace in traces:
            found.append(make(trace))
            watch(kind, 1)
        return {side: found}

    def seen() -> "Maps":
        found: Maps = {}
        for trace in traces:
            for side, record in trace.sides.items():
                found.setdefault(side, []).append(layer_weights(record, record.layers))
        return found

    return {
        "attention": seen,
        "norm": lambda: weighing.attention_norms(model, texts, second, watch=watch),
        "effective": lambda: weighing.effective_attention(model, texts, second, watch=watch),
        "gradient": lambda: weighing.attention_gradients(
            model, texts, second, labels=corpus.labels, seed=seed, watch=watch
        ),
        "zeroing": lambda: weighing.value_zeroing(model, texts, second, watch=watch),
        "rollout": lambda: followed("rollout", lambda trace: rollout(trace)[:, None]),
        "flow": lambda: followed("flow", lambda trace: attention_flow(trace)[None, None]),
    }


def _rows(
    where: tuple[int, str, str],
    maps: np.ndarray,
    trace: "Trace",
    layers: Sequence[int],
    heads: Sequence[int],
) -> list[dict[str, Any]]:
    from flaxattn.measures.map_measures import map_measures

    side = where[2]
    own = trace.decoder_special if side == "decoder" and trace.decoder_tokens else trace.special
    special = None if own is None else np.asarray(own[0], bool)
    found = map_measures(maps, special, square=side != "cross")
    return [
        dict(zip(_WHERE, (*where, layer, head), strict=True))
        | {name: float(values[i, j]) for name, values in found.items()}
        for i, layer in enumerate(layers)
        for j, head in enumerate(heads)
    ]


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over texts that have a value, of every kind, side, layer and head."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in _WHERE[1:]), []).append(row)
    names = [name for name in rows[0] if name not in _WHERE]
    found = []
    for key, members in groups.items():
        mean = {}
        for name in names:
            known = [row[name] for row in members if not np.isnan(row[name])]
            mean[name] = float(np.mean(known)) if known else float("nan")
        found.append({**dict(zip(_WHERE[1:], key, strict=True)), "texts": len(members), **mean})
    return found


def _figure(means: list[dict[str, Any]]) -> Any:
    """Shares on the first position and on special ones, a map for each kind that tells heads."""
    from flaxattn.views.figures.plot_roles import plot_head_means

    side = means[0]["side"]
    own = [row for row in means if row["side"] == side]
    layers, heads = ({row[name] for row in own} - {-1} for name in ("layer", "head"))
    rows, columns = sorted(layers) or [-1], sorted(heads) or [-1]
    found = {}
    for kind in dict.fromkeys(row["kind"] for row in own):
        for name in ("first", "special"):
            grid = np.full((len(rows), len(columns)), np.nan)
            for row in own:
                if row["kind"] == kind and row["layer"] in rows and row["head"] in columns:
                    grid[rows.index(row["layer"]), columns.index(row["head"])] = row[name]
            if not np.isnan(grid).all():
                found[f"{kind}: {name}"] = grid
    return plot_head_means(tuple(rows), tuple(columns), found, "share of what a query is given")


def _cell(name: str, values: list[float]) -> str:
    if not values:
        return ""
    return f"{np.mean(values):.2f}" if name == "entropy" else f"{np.mean(values):.0%}"


def _tell(means: list[dict[str, Any]], refused: dict[str, str], files: list[Path]) -> None:
    table = Table(title="What keys give to queries: means over heads and texts")
    for name in ("kind", "side", *_SHOWN):
        table.add_column(name, justify="left" if name in ("kind", "side") else "right")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in means:
        groups.setdefault((row["kind"], row["side"]), []).append(row)
    for key, members in groups.items():
        known = {n: [r[n] for r in members if not np.isnan(r[n])] for n in _SHOWN}
        table.add_row(*key, *(_cell(name, known[name]) for name in _SHOWN))
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    for kind, reason in refused.items():
        console.print(f"{kind}: {reason}", markup=False)
    print_files(files)
