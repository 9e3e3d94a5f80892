# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sources of scores: a model with texts, traces with weights, or a store (`store_source`).

Every source hands out scores of the heads of one side, some texts at a time, in order. What is done
with them does not depend on where they come from: see `scored_corpus`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from flaxattn.corpus.texts import Text, plain_texts
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.measures.head_scores import default_side, head_scores
from flaxattn.measures.score_terms import ScoreOptions, ScoreSpec
from flaxattn.measures.scores import Scores, scores_of
from flaxattn.pipeline.extraction import Options, extract_shards
from flaxattn.pipeline.labelled_texts import LONGEST
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.trace.trace import Trace


class ScoredTexts(NamedTuple):
    """Some texts and their scores.

    Attributes:
        scores: Scores of every head.
        numbers: Numbers of the texts, counted from 0 in the order in which they are read.
        texts: The texts.
    """

    scores: Scores
    numbers: Sequence[int]
    texts: Sequence[Text]


@dataclasses.dataclass
class ScoreSource:
    """Scores of texts, and how to trace some of these texts.

    Attributes:
        parts: Scores of all texts, in order.
        facts: Model and data, ready for JSON.
        traces: Traces of texts that `parts` handed out, by number; None where there are none.
        refused: Scores that the source does not tell, with the capture that would record them;
            complete when `parts` has ended.
        model: The model; None for what was recorded.
    """

    parts: Iterator[ScoredTexts]
    facts: dict[str, Any]
    traces: Callable[[Sequence[Text], Sequence[int]], Iterator[Trace]] | None
    refused: dict[ScoreSpec, str] = dataclasses.field(default_factory=dict)
    model: Pretrained | None = None


def model_source(
    model: Pretrained,
    texts: Iterable[Text],
    options: ScoreOptions,
    reading: ReadingOptions = DEFAULTS,
    side: str | None = None,
) -> ScoreSource:
    """Scores of a model's heads on texts, evaluated by the kernel."""
    side, announced = default_side(model, side), list[Sequence[Text]]()
    scored = head_scores(
        model, texts, options, side=side, reading=reading, on_texts=announced.append
    )

    def parts() -> Iterator[ScoredTexts]:
        start = 0
        for scores in scored:
            yield ScoredTexts(scores, range(start, start + len(scores)), announced.pop())
            start += len(scores)

    def traces(subjects: Sequence[Text], numbers: Sequence[int]) -> Iterator[Trace]:
        del numbers
        pairs = [s.text_b for s in subjects if s.text_b is not None]
        texts = [s.text for s in subjects]
        return traces_of(
            model, texts, pairs or None, reading.truncate, allow_nonfinite=reading.allow_nonfinite
        )

    return ScoreSource(parts(), {"model": model.name, "side": side}, traces, model=model)


def trace_source(
    traces: Iterable[Trace], side: str, options: ScoreOptions, reading: ReadingOptions, **facts: Any
) -> ScoreSource:
    """Scores of heads from weights that were traced, one text at a time."""
    if options.annotated or (options.pande_parity and side != "encoder"):
        raise InputError(
            "traces hold no trees, and the notebooks' errors are for an encoder alone\n"
            "leave trees and pande_parity out, or read the texts with the model"
        )
    low, high = reading.lengths or (0, LONGEST)

    def parts() -> Iterator[ScoredTexts]:
        for number, trace in enumerate(itertools.islice(traces, reading.limit)):
            reading.watch("scoring heads", 1)
            if low <= len(trace.tokens[0]) <= high:
                texts = trace.texts[0] if trace.texts else [""]
                found = plain_texts(texts[:1], texts[1:2] or None, number)
                yield ScoredTexts(scores_of([trace], options, side=side), [number], found)

    return ScoreSource(parts(), {**facts, "side": side}, None)


def traces_of(
    model: Pretrained,
    texts: Sequence[str],
    second: Sequence[str] | None,
    truncate: bool,
    *,
    allow_nonfinite: bool = False,
) -> Iterator[Trace]:
    """Trace the weights of a few texts, some at a time, in their order."""
    groups = _small(texts, second)
    every = plain_texts(texts, second)
    shards = [every[i:j] for i, j in groups]
    weights = Capture(weights=True)
    options = Options(capture=weights, truncate=truncate, allow_nonfinite=allow_nonfinite)
    for (found,) in extract_shards([model], shards, options):
        yield from found.traces


_ROOM = 1 << 20  # characters squared of texts whose maps are in memory together


def _small(texts: Sequence[str], second: Sequence[str] | None) -> list[tuple[int, int]]:
    """Ranges of texts that are short together; maps grow with the square of a text."""
    sizes = [len(text) for text in texts]
    if second is not None:
        sizes = [size + len(text) for size, text in zip(sizes, second, strict=True)]
    starts, room = [0], 0
    for place, size in enumerate(sizes):
        room += size * size
        if room > _ROOM and place > starts[-1]:
            starts.append(place)
            room = size * size
    return list(itertools.pairwise([*starts, len(texts)]))
