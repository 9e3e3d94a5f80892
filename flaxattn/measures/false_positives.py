# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""False positives of the role tests: in a model before training, and under shuffled trees.

A few texts suffice, whose maps are in memory. What is counted is in
`flaxattn.measures.shuffled_trees`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from flaxattn.corpus.texts import Text
from flaxattn.measures.role_tests import Test, find_roles
from flaxattn.measures.score_terms import ScoreOptions
from flaxattn.measures.scores import ScoreAccumulator, scores_of, side_of
from flaxattn.measures.shuffled_trees import found_by_chance
from flaxattn.pipeline.extraction import extract
from flaxattn.pipeline.labelled_texts import LabelledText, windows
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.untrained import untrained
from flaxattn.trace.selection import layer_weights
from flaxattn.trace.trace import Trace


def false_positives(
    model: Pretrained,
    texts: Sequence[Text],
    asked: ScoreOptions,
    test: Test,
    *,
    side: str,
    drawings: int = 20,
    reading: ReadingOptions = DEFAULTS,
) -> dict[str, Any]:
    """Roles that are found where there are none, for a report.

    Costs two passes over the texts, whose maps are held: 4 L H N² bytes each.
    """
    reads = [read for window in windows(model, texts, reading.again) for read in window]
    if not reads:
        return {}
    facts = {"texts": len(reads), "alpha": test.alpha, "correction": test.correction}
    reading.watch("roles before training", 0)
    before = untrained(model, asked.seed)
    traces = _traces(before, reads, reading)
    layouts = [read.layout for read in reads]
    roles = find_roles(ScoreAccumulator.of(scores_of(traces, asked, layouts, side)), asked, test)
    found = {name: int(role.found.sum()) for name, role in roles.roles.items()}
    facts["untrained"] = {"tests": roles.tests, "found": sum(found.values()), "by_role": found}
    facts["other_trees"] = None
    if asked.annotated and side != "cross" and drawings:
        weights = [_weights(trace, side) for trace in _traces(model, reads, reading)]
        pairs = list(zip(weights, layouts, strict=True))
        chance = found_by_chance(
            pairs, asked, test, drawings, causal=side == "decoder", watch=reading.watch
        )
        facts["other_trees"] = dataclasses.asdict(chance)
    return facts


def _traces(
    model: Pretrained, reads: Sequence[LabelledText], reading: ReadingOptions
) -> list[Trace]:
    texts = [read.text.text for read in reads]
    seconds = [read.text.text_b for read in reads if read.text.text_b is not None]
    return extract(
        model,
        texts,
        seconds or None,
        truncate=reading.truncate,
        allow_nonfinite=reading.allow_nonfinite,
    )


def _weights(trace: Trace, side: str) -> np.ndarray:
    seen = side_of(trace, side)
    return layer_weights(seen, seen.layers, allow_nan=True)
