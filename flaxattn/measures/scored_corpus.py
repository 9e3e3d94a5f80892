# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of a whole corpus, whatever they come from: moments, the best texts, and intervals."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.measures.evidence import Evidence
from flaxattn.measures.score_source import ScoreSource
from flaxattn.measures.score_terms import ScoreSpec
from flaxattn.measures.scores import ScoreAccumulator, Scores
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.trace.trace import Trace

_KEPT = 20_000  # texts whose scores stay in memory, for bootstrap intervals


@dataclasses.dataclass
class ScoredCorpus:
    """Scores of a corpus for the heads of a model.

    Attributes:
        tally: Moments over all texts.
        scores: Scores of every text; None where there were too many to keep.
        facts: Model, texts and data, ready for JSON.
        evidence: The texts with the highest scores.
        lowest: The texts with the lowest scores, with their signs reversed.
        texts: Texts of both, by number.
        traces: Traces of some of them, by number; None where there are none.
        refused: Scores that a store does not tell, with the capture that would record them.
        model: The model; None for what was recorded.
    """

    tally: ScoreAccumulator
    scores: Scores | None
    facts: dict[str, Any]
    evidence: Evidence
    lowest: Evidence
    texts: dict[int, Text]
    traces: Callable[[Sequence[int]], Iterator[Trace]] | None
    refused: dict[ScoreSpec, str]
    model: Pretrained | None


def collect(
    source: ScoreSource,
    kinds: Sequence[str] = ("score",),
    best: int = 5,
    bad: BadRows | None = None,
    lowest: int = 0,
) -> ScoredCorpus:
    """Go through a source once and keep what a report needs."""
    tally, evidence, kept, count = ScoreAccumulator(), Evidence(best), [], 0
    least = Evidence(max(1, lowest))
    texts: dict[int, Text] = {}
    for part in source.parts:
        count += len(part.scores)
        tally.add(part.scores)
        kept.append(part.scores)
        if count > _KEPT:
            kept.clear()
        for column, values in part.scores.values.items():
            if column.kind in kinds:
                evidence.add(column, values, part.numbers)
                if lowest:
                    least.add(column, -values, part.numbers)
        texts |= zip(part.numbers, part.texts, strict=True)
        texts = {number: texts[number] for number in evidence.texts() | least.texts()}
    if not count:
        raise InputError(
            "there is no text to score heads on\ngive texts, or a wider range of lengths"
        )
    facts = source.facts | {
        "texts": count,
        "lengths": _lengths(tally.lengths),
        "left_out": dict(sorted(bad.counts.items())) if bad is not None else {},
        "nonfinite": [
            {"layer": tally.layers[i], "head": tally.heads[j], "texts": int(tally.broken[i, j])}
            for i, j in np.argwhere(tally.broken).tolist()
        ],
    }
    return ScoredCorpus(
        tally,
        Scores.joined(kept) if count <= _KEPT else None,
        facts,
        evidence,
        least,
        texts,
        _traces_of(source, texts),
        {c: reason for c, reason in sorted(source.refused.items()) if c not in tally.moments},
        source.model,
    )


def _traces_of(
    source: ScoreSource, texts: Mapping[int, Text]
) -> Callable[[Sequence[int]], Iterator[Trace]] | None:
    made = source.traces
    if made is None:
        return None
    return lambda numbers: made([texts[number] for number in numbers], numbers)


def _lengths(lengths: np.ndarray) -> dict[str, float]:
    low, middle, high = np.quantile(lengths, (0, 0.5, 1)).tolist()
    return {"mean": round(float(lengths.mean()), 3), "least": low, "median": middle, "most": high}
