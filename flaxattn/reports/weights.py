# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Measure attribution maps of a model over texts, per text and head: `weights`.

Maps are made in `flaxattn.attribution` and measured in `flaxattn.measures.head_measures`.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from flaxattn.attribution import attribution_maps
from flaxattn.attribution.contributions import TextMaps
from flaxattn.attribution.head_losses import head_task
from flaxattn.attribution.relevance import iterate_chefer, iterate_relevance
from flaxattn.attribution.rollout import attention_flow, rollout
from flaxattn.corpus.input_files import describe_texts
from flaxattn.corpus.texts import Text, plain_texts
from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import Capture
from flaxattn.measures.head_measures import map_measures
from flaxattn.pipeline.batches import TextSize, memory_sentence, raw_bytes, sides
from flaxattn.pipeline.extraction import Options, extract_shards
from flaxattn.pipeline.progress_reporter import ProgressReporter, reporting
from flaxattn.pipeline.tokenize_texts import tokenize
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.reports.report import WEIGHT_KINDS, Report, figure_file
from flaxattn.text.text_lists import some_texts
from flaxattn.trace.record import layer_weights
from flaxattn.trace.result_table import columns_of
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.plot_roles import plot_head_means

DEFAULT_KINDS = WEIGHT_KINDS[:-1]
_OF_LOSS = ("gradient", "relevance", "chefer")
_OF_HEADS = ("norm", "effective", "zeroing")  # not defined for additive attention
_WHERE = ("text", "kind", "side", "layer", "head")
_HELD = 2**28  # bytes of attention that are held at once
_FLOAT, _BETWEEN = 4, 9  # bytes of a number; widths that a layer computes for each position


@check_arguments(1)
def weights(
    model: Pretrained,
    texts: Iterable[str],
    text_b: Iterable[str] | None = None,
    *,
    kinds: Sequence[str] = DEFAULT_KINDS,
    labels: Sequence[int] | None = None,
    seed: int = 0,
    data: Mapping[str, Any] | None = None,
) -> Report:
    """Measure attribution maps over texts, side by side with attention.

    Of each map: shares on the first, special, own, previous and next position, and the entropy of
    its rows. A kind that the model or the texts do not have is left out, with the reason.

    Cost: one pass for attention, norms and rollout; one more with a gradient for `gradient`,
    `relevance` and `chefer` each; one per position for `zeroing`; `flow` solves a maximum flow for
    each pair of positions.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> report = fa.weights(model, ["The cat is very sad."], kinds=("attention", "norm"))
    >>> report.table.column_names[:5]
    ['text', 'kind', 'side', 'layer', 'head']

    Args:
        model: A model with its tokenizer, loaded with a task head for kinds that follow a loss.
        texts: N texts.
        text_b: The second text, or the target, of each.
        kinds: Kinds among `attention`, `norm`, `effective`, `gradient`, `zeroing`, `relevance`,
            `chefer`, `rollout` and `flow`; default all but `flow`.
        labels: Number of the class of each text, for a classifier.
        seed: Random seed of the tokens that a masked model has to predict.
        data: Where the texts come from, kept with the report; default their number and digest.

    Returns:
        A report with a row for each text, kind, side, layer and head, and a figure. A head of -1
        stands for all heads of a layer together, a layer of -1 for all layers.

    Raises:
        InputError: For an unknown kind, texts that cannot be used, or if no kind can be computed.
    """
    if unknown := [kind for kind in kinds if kind not in WEIGHT_KINDS]:
        raise InputError(f"kind {unknown[0]!r} is unknown\nchoose of {', '.join(WEIGHT_KINDS)}")
    first, second = some_texts(texts, text_b)
    corpus = _Texts(first, second, None if labels is None else list(labels))
    with reporting() as shown:
        rows, refused = _measured(model, corpus, kinds, seed, shown)
    means = _means(rows)
    facts = {
        "model": model.name,
        "architecture": model.config.architectures[0],
        "texts": len(first),
        "data": describe_texts(first, second) if data is None else dict(data),
        "seed": seed,
        "settings": {"kinds": list(kinds)},
        "refused": refused,
        "heads": means,
    }
    figures = {figure_file("weights"): functools.partial(_figure, means)}
    return Report("weights", facts, columns_of(rows), figures)


class _Texts(NamedTuple):
    """Texts in memory, with second texts and class numbers where there are any."""

    texts: list[str]
    second: list[str] | None
    labels: list[int] | None


def _measured(
    model: Pretrained,
    corpus: _Texts,
    kinds: Sequence[str],
    seed: int,
    progress: ProgressReporter,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows of measures, and the reason for every kind that the model or the texts do not have."""
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
    work = f"{', '.join(computed)}, of every text; {needed}"
    progress.announce(f"{count:,} texts, {model.name}: {work}")
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
    found = [row for maps in rows.values() for some in maps.values() for row in some]
    if not found:
        raise _none(kinds, refused)
    return found, refused


class _TextBytes(NamedTuple):
    """Bytes of what is held of a text.

    Attributes:
        attention: Bytes of its attention.
        copies: Number of its copies that value zeroing runs at once.
    """

    attention: int
    copies: int


def _sizes(model: Pretrained, lengths: tuple[int, ...]) -> _TextBytes:
    which = sides(model.config)
    source, target = lengths[0], lengths[-1] if len(lengths) > 1 else 0
    size = TextSize(source, target, 0, 0, model.limit)
    attention = raw_bytes(Capture(weights=True), which, size)
    positions = source + target
    # Of each position: hidden states of all layers and what a feed-forward layer has in between.
    width = max(side.heads * side.depth for side in which)
    states = _FLOAT * width * (sum(side.layers for side in which) + _BETWEEN)
    return _TextBytes(
        attention, max(attribution_maps.COPIES, positions) * (states + attention // positions)
    )


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
    model: Pretrained, groups: Sequence[Sequence[Text]]
) -> Iterator[tuple[list[Trace], int]]:
    """The traces of each group of texts, and the number of its first text."""
    for group, (shard,) in zip(groups, extract_shards([model], groups, Options()), strict=True):
        yield shard.traces, group[0].index


def _none(kinds: Sequence[str], refused: dict[str, str]) -> InputError:
    first, reason = next(iter(refused.items()))
    return InputError(f"none of {', '.join(kinds)} can be computed here\n{first}: {reason}")


def _refused(model: Pretrained, corpus: _Texts, kinds: Sequence[str], seed: int) -> dict[str, str]:
    """Reasons that are known before anything is computed, by kind."""

    def check(kind: str) -> None:
        if kind in _OF_HEADS:
            attribution_maps.check_heads(model)
        if kind in _OF_LOSS:
            head_task(model, corpus.texts, corpus.second, labels=corpus.labels, batch=1, seed=seed)

    refused: dict[str, str] = {}
    for kind in kinds:
        try:
            check(kind)
        except InputError as error:
            refused[kind] = " ".join(str(error).split())
    return refused


def _makers(model: Pretrained, corpus: _Texts, seed: int) -> dict[str, Callable[[Trace], TextMaps]]:
    """Return the functions that make maps of each kind, by side, called for one text after another.

    Some read the trace of the text, others run the model again.
    """
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

    def recorded(trace: Trace) -> TextMaps:
        return {side: layer_weights(record, record.layers) for side, record in trace.sides.items()}

    def own_side(trace: Trace) -> str:
        return "encoder" if trace.encoder is not None else "decoder"

    return {
        "attention": recorded,
        **{kind: lambda _, maps=maps: next(maps) for kind, maps in each.items()},
        "rollout": lambda trace: {own_side(trace): rollout(trace)[:, None]},
        "flow": lambda trace: {own_side(trace): attention_flow(trace)[None, None]},
    }


def _rows(where: tuple[int, str, str], maps: np.ndarray, trace: Trace) -> list[dict[str, Any]]:
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
    return plot_head_means(tuple(rows), tuple(columns), found, "share of a query's weight")
