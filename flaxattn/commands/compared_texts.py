# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs of traces for `flaxattn compare`: of two models on texts, or out of two stores.

A window of texts, or a shard, is in memory at a time. What is compared is decided elsewhere.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from flaxattn.commands.text_corpus import TextCorpus, read_corpus
from flaxattn.corpus.texts import Text, plain_texts
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.measures.score_source import traces_of
from flaxattn.pipeline.extraction import Options, extract_shards
from flaxattn.pipeline.tokenize_texts import groups_of
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.store.open_store import Store, open_store
from flaxattn.trace.trace import Trace

_WINDOW = 64  # texts whose maps are held at a time
Pairs = Iterator[tuple[Trace, Trace]]


@dataclasses.dataclass(frozen=True)
class ComparedTraces:
    """Texts that two models, or two stores, saw.

    Attributes:
        corpus: Where they come from.
        count: How many there are.
        traces: What both saw of all of them, in order.
        pairs: What both saw of some, by number; None where there are no maps.
        text: A text by its number.
    """

    corpus: TextCorpus
    count: int
    traces: Callable[[], Pairs]
    pairs: Callable[[Sequence[int]], Pairs] | None
    text: Callable[[int], Text]


def of_models(
    names: tuple[str, str],
    inputs: Sequence[str],
    columns: tuple[str, str | None],
    limit: int | None,
    truncate: bool,
    on_error: str,
    *,
    allow_nonfinite: bool = False,
    folder: Path | None = None,
) -> ComparedTraces:
    """Two models on the same texts."""
    corpus = read_corpus(inputs, (*columns, None), limit, on_error, folder)
    models = [from_pretrained(name) for name in names]
    pairs = corpus.second
    if pairs is None and any(model.masks().get("cross_attn_head_mask") for model in models):
        raise InputError(
            "Encoder-decoders are compared on texts with targets, received texts alone.\n"
            "Name the column of the targets with --pair-column."
        )

    def traces() -> Pairs:
        windows = list(groups_of(plain_texts(corpus.texts, pairs), _WINDOW))
        weights = Capture(weights=True)
        options = Options(capture=weights, truncate=truncate, allow_nonfinite=allow_nonfinite)
        streams = [extract_shards([model], windows, options) for model in models]
        for (ours,), (theirs,) in zip(*streams, strict=True):
            yield from zip(ours.traces, theirs.traces, strict=True)

    def some(numbers: Sequence[int]) -> Pairs:
        chosen = [corpus.texts[n] for n in numbers]
        second = None if pairs is None else [pairs[n] for n in numbers]
        streams: list[Any] = [
            traces_of(m, chosen, second, truncate, allow_nonfinite=allow_nonfinite) for m in models
        ]
        return zip(*streams, strict=True)

    def text(number: int) -> Text:
        second = None if pairs is None else pairs[number]
        return Text(number, str(number), corpus.texts[number], second)

    return ComparedTraces(corpus, len(corpus.texts), traces, some, text)


def of_stores(names: tuple[str, str], limit: int | None) -> ComparedTraces:
    """Two stores of the same texts."""
    one, other = (open_store(name) for name in names)
    least = min(len(one), len(other))
    count = min(len(one), limit or len(one))
    if (limit is None and len(one) != len(other)) or len(other) < count:
        raise InputError(
            f"{one.path} has {len(one):,} texts, {other.path} {len(other):,}\n"
            f"compare stores of the same texts, or the first of both: --limit {least}"
        )

    def traces() -> Pairs:
        pairs = zip(iter(one), iter(other), strict=False)
        for number, (ours, theirs) in enumerate(itertools.islice(pairs, count)):
            _check_text(number, ours, theirs, (one, other))
            yield ours, theirs

    def some(numbers: Sequence[int]) -> Pairs:
        return ((one[number], other[number]) for number in numbers)

    def text(number: int) -> Text:
        metadata = one.shard_of(number)[1].metadata(number)
        texts = metadata.texts[0] if metadata.texts else ("",)
        (found,) = plain_texts(texts[:1], texts[1:2] or None, number)
        return found

    data = [
        {"name": s.path.name, "plan_sha256": s.plan_sha256, "model": s.plan["model"]}
        for s in (one, other)
    ]
    source = {"stores": data, "texts": count, "left_out": {}}
    maps = all(_has_maps(store) for store in (one, other))
    return ComparedTraces(
        TextCorpus([], None, None, source), count, traces, some if maps else None, text
    )


def _has_maps(store: Store) -> bool:
    return any("weights" in side["arrays"] for side in store.shard(0).sides.values())


def _check_text(number: int, one: Trace, other: Trace, stores: tuple[Store, Store]) -> None:
    """Both stores hold the same text at a place."""
    for name in ("tokens", "decoder_tokens"):
        ours, theirs = ([list(row) for row in getattr(t, name)] for t in (one, other))
        if ours == theirs:
            continue
        pairs = itertools.zip_longest(*(rows[0] if rows else [] for rows in (ours, theirs)))
        place, (a, b) = next((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
        raise InputError(
            f"text {number} is not the same in the two stores: token {place} is {a!r} in "
            f"{stores[0].path} and {b!r} in {stores[1].path}\n"
            "compare stores of the same texts in the same order, read by one tokenizer"
        )
