# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn weights`: what keys give to queries beyond attention, per text and head.

Everything heavy is imported when it runs. Maps are made in `flaxattn.attribution.attribution_maps`
and measured in `flaxattn.measures.map_measures`.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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
from flaxattn.commands.option_lists import named
from flaxattn.commands.report_files import print_files
from flaxattn.commands.report_layout import figure_file
from flaxattn.commands.report_run import Out, Overwrite, ReportRun
from flaxattn.errors import InputError

if TYPE_CHECKING:
    from flaxattn.attribution.contribution_maps import TextMaps
    from flaxattn.commands.text_corpus import TextCorpus
    from flaxattn.corpus.texts import Text
    from flaxattn.pipeline.progress_reporter import ProgressReporter
    from flaxattn.pretrained.pretrained_model import Pretrained
    from flaxattn.trace.trace import Trace

KINDS = (
    "attention",
    "norm",
    "effective",
    "gradient",
    "zeroing",
    "relevance",
    "chefer",
    "rollout",
    "flow",
)
_OF_LOSS = ("gradient", "relevance", "chefer")
_OF_HEADS = ("norm", "effective", "zeroing")  # not defined for additive attention
_DEFAULT = ",".join(KINDS[:-1])
_WHERE = ("text", "kind", "side", "layer", "head")
_SHOWN = ("first", "special", "own", "previous", "next", "entropy")
_HELD = 2**28  # bytes of attention that are held at once
_FLOAT, _BETWEEN = 4, 9  # bytes of a number; widths that a layer computes for each position


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
    """Compute attribution maps: norms, relevance, rollout.

    Writes weights.json with means over texts and what is not defined for the model, heads.parquet
    with a row for each text, kind, side, layer and head, and weights.png. A head of -1 stands for
    all heads of a layer together, a layer of -1 for all layers.

    Example: flaxattn weights corpus.txt --kinds norm,rollout -o WEIGHTS
    """
    from flaxattn.commands.ablate import model_head
    from flaxattn.commands.report_files import write_report
    from flaxattn.commands.text_corpus import read_corpus
    from flaxattn.pretrained.from_pretrained import from_pretrained

    chosen = named(kinds, KINDS, "--kinds")
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
    """Rows of measures, and the reason for every kind that the model or the texts do not have."""
    from flaxattn.commands.text_lines import cost
    from flaxattn.corpus.texts import plain_texts
    from flaxattn.pipeline.memory_estimate import memory_sentence
    from flaxattn.pipeline.tokenize_texts import tokenize

    count = len(corpus.texts)
    refused = _refused(model, corpus, kinds, seed)
    computed = [kind for kind in kinds if kind not in refused]
    if not computed:
        raise _none(kinds, refused)
    texts = plain_texts(corpus.texts, corpus.second)
    sizes = [_sizes(model, row.lengths) for row in tokenize(model, texts, False)]
    parts = _groups([size.attention for size in sizes])
    held = max(sum(size.attention for size in sizes[part]) for part in parts)
    needed = memory_sentence(2 * held + max(size.copies for size in sizes))  # traces, and a batch
    progress.announce(cost(count, model.name, f"{', '.join(computed)}, of every text; {needed}"))
    for kind, reason in refused.items():
        progress.announce(f"{kind} is left out: {reason}")
    progress("reading attention", 0)
    makers = _makers(model, corpus, seed)
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {kind: {} for kind in computed}
    for traces, first in _traces(model, [texts[part] for part in parts]):
        for kind in [kind for kind in computed if kind not in refused]:
            if not first:
                progress.expect(f"measuring {kind}", count)
            try:
                for number, trace in enumerate(traces, first):
                    for side, maps in makers[kind](trace).items():
                        some = _rows((number, kind, side), maps, trace)
                        rows[kind].setdefault(side, []).extend(some)
                    progress(f"measuring {kind}", 1)
            except InputError as error:
                refused[kind] = " ".join(str(error).split())
                rows[kind] = {}
    found = [row for sides in rows.values() for some in sides.values() for row in some]
    if not found:
        raise _none(kinds, refused)
    return found, refused


class _TextBytes(NamedTuple):
    """Bytes of what is held of a text.

    Attributes:
        attention: Of its attention.
        copies: Number of its copies that value zeroing runs at once.
    """

    attention: int
    copies: int


def _sizes(model: "Pretrained", lengths: tuple[int, ...]) -> _TextBytes:
    from flaxattn.attribution.attribution_maps import COPIES
    from flaxattn.kernels.contract import Capture
    from flaxattn.pipeline.text_sizes import TextSize, raw_bytes, sides

    which = sides(model.config)
    source, target = lengths[0], lengths[-1] if len(lengths) > 1 else 0
    size = TextSize(source, target, 0, 0, model.limit)
    attention = raw_bytes(Capture(weights=True), which, size)
    positions = source + target
    # Of each position: hidden states of all layers and what a feed-forward layer has in between.
    width = max(side.heads * side.depth for side in which)
    states = _FLOAT * width * (sum(side.layers for side in which) + _BETWEEN)
    return _TextBytes(attention, max(COPIES, positions) * (states + attention // positions))


def _groups(sizes: Sequence[int]) -> list[slice]:
    """Consecutive texts whose attention is held together: as many as fit, at least one."""
    starts, held = [0], 0
    for number, size in enumerate(sizes):
        if number > starts[-1] and held + size > _HELD:
            starts.append(number)
            held = 0
        held += size
    return [slice(*ends) for ends in itertools.pairwise([*starts, len(sizes)])]


def _traces(
    model: "Pretrained", groups: "Sequence[Sequence[Text]]"
) -> "Iterator[tuple[list[Trace], int]]":
    """The traces of each group of texts, and the number of its first text."""
    from flaxattn.pipeline.extraction import Options, extract_shards

    for group, (shard,) in zip(groups, extract_shards([model], groups, Options()), strict=True):
        yield shard.traces, group[0].index


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
        if kind in _OF_LOSS:
            head_task(model, corpus.texts, corpus.second, labels=corpus.labels, batch=1, seed=seed)

    refused: dict[str, str] = {}
    for kind in kinds:
        try:
            check(kind)
        except InputError as error:
            refused[kind] = " ".join(str(error).split())
    return refused


def _makers(
    model: "Pretrained", corpus: "TextCorpus", seed: int
) -> "dict[str, Callable[[Trace], TextMaps]]":
    """Return the functions that make maps of each kind, by side, called for one text after another.

    Some read the trace of the text, others run the model again.
    """
    from flaxattn.attribution import attribution_maps
    from flaxattn.attribution.relevance import iterate_chefer, iterate_relevance
    from flaxattn.attribution.rollout import attention_flow, rollout
    from flaxattn.trace.selection import layer_weights

    texts, second = corpus.texts, corpus.second
    judged = {"labels": corpus.labels, "seed": seed}
    each = {
        "norm": attribution_maps.iterate_norms(model, texts, second),
        "effective": attribution_maps.iterate_effective(model, texts, second),
        "gradient": attribution_maps.iterate_gradients(model, texts, second, **judged),
        "zeroing": attribution_maps.iterate_zeroing(model, texts, second),
        "relevance": iterate_relevance(model, texts, second, **judged),
        "chefer": iterate_chefer(model, texts, second, **judged),
    }

    def recorded(trace: "Trace") -> "TextMaps":
        return {side: layer_weights(record, record.layers) for side, record in trace.sides.items()}

    def own_side(trace: "Trace") -> str:
        return "encoder" if trace.encoder is not None else "decoder"

    return {
        "attention": recorded,
        **{kind: lambda _, maps=maps: next(maps) for kind, maps in each.items()},
        "rollout": lambda trace: {own_side(trace): rollout(trace)[:, None]},
        "flow": lambda trace: {own_side(trace): attention_flow(trace)[None, None]},
    }


def _rows(where: tuple[int, str, str], maps: np.ndarray, trace: "Trace") -> list[dict[str, Any]]:
    from flaxattn.measures.map_measures import map_measures

    side = where[2]
    record = trace.sides[side]
    layers = record.layers if len(maps) == len(record.layers) else (-1,)
    heads = record.heads if maps.shape[1] == len(record.heads) else (-1,)
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
    measured = [name for name in rows[0] if name not in _WHERE]
    found = []
    for key, members in groups.items():
        mean = {}
        for name in measured:
            known = [row[name] for row in members if not np.isnan(row[name])]
            mean[name] = float(np.mean(known)) if known else float("nan")
        found.append({**dict(zip(_WHERE[1:], key, strict=True)), "texts": len(members), **mean})
    return found


def _figure(means: list[dict[str, Any]]) -> Any:
    """Shares on the first position and on special ones, for kinds with a map per head."""
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
