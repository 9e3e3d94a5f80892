# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""False positives of the role tests: in untrained models and under shuffled trees.

The maps of a few texts are held in memory; a few texts suffice.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from flaxattn.corpus.texts import Text
from flaxattn.measures.role_tests import Roles, Test, find_roles
from flaxattn.measures.score_sums import dense_values
from flaxattn.measures.score_terms import ScoreOptions
from flaxattn.measures.scores import ScoreAccumulator, gathered, scores_of, side_of
from flaxattn.measures.tree_terms import tree_terms
from flaxattn.pipeline.extraction import extract
from flaxattn.pipeline.labelled_texts import LabelledText, windows
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.untrained import untrained
from flaxattn.text.position_labels import Arc, PositionLabels
from flaxattn.trace.selection import layer_weights
from flaxattn.trace.trace import Trace


def false_positives(
    model: Pretrained,
    texts: Sequence[Text],
    options: ScoreOptions,
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
    before = untrained(model, options.seed)
    traces = _traces(before, reads, reading)
    layouts = [read.layout for read in reads]
    roles = find_roles(
        ScoreAccumulator.of(scores_of(traces, options, layouts, side)), options, test
    )
    found = {name: int(role.found.sum()) for name, role in roles.roles.items()}
    facts["untrained"] = {"tests": roles.tests, "found": sum(found.values()), "by_role": found}
    facts["other_trees"] = None
    if options.annotated and side != "cross" and drawings:
        weights = [_weights(trace, side) for trace in _traces(model, reads, reading)]
        pairs = list(zip(weights, layouts, strict=True))
        chance = found_by_chance(
            pairs, options, test, drawings, causal=side == "decoder", watch=reading.watch
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
    record = side_of(trace, side)
    return layer_weights(record, record.layers, allow_nan=True)


@dataclasses.dataclass(frozen=True)
class Chance:
    """Test results under shuffled trees.

    Attributes:
        drawings: How often trees were drawn.
        tests: How many tests that were, heads times roles times drawings.
        found: How many of them found a role.
        beyond: How many found a role beyond position.
        drawings_found: Drawings with at least one role.
        drawings_beyond: Drawings with at least one role beyond position.
    """

    drawings: int
    tests: int
    found: int
    beyond: int
    drawings_found: int
    drawings_beyond: int


def found_by_chance(
    texts: Sequence[tuple[Float[np.ndarray, "L H N N"], PositionLabels]],
    options: ScoreOptions,
    test: Test,
    drawings: int,
    *,
    causal: bool = False,
    watch: Watch = show_progress,
) -> Chance:
    """Test syntactic roles under trees whose words are drawn anew."""
    shape = texts[0][0].shape[:2]
    numbers = tuple(range(shape[0])), tuple(range(shape[1]))
    counts = np.zeros((drawings, 3), int)
    for drawing in range(drawings):
        random = np.random.default_rng([options.seed, drawing])
        drawn = dataclasses.replace(options, seed=options.seed + drawing)
        found = []
        for weights, layout in texts:
            terms = tree_terms(shuffled(layout, random), drawn, causal=causal)
            found.append((terms, dense_values(weights, terms)))
        scores = gathered(*numbers, found, "decoder" if causal else "encoder")
        watch("shuffling trees", 1)
        counts[drawing] = _counts(find_roles(ScoreAccumulator.of(scores), drawn, test))
    some = (counts > 0).sum(0).tolist()
    tests, roles, beyond = counts.sum(0).tolist()
    return Chance(drawings, tests, roles, beyond, some[1], some[2])


def _counts(roles: Roles) -> tuple[int, int, int]:
    """Tests, roles found, and roles beyond position, whether or not they exceed tau."""
    p_beyond = [role.beyond for role in roles.roles.values() if role.beyond is not None]
    beyond = sum(int((p < roles.test.alpha).sum()) for p in p_beyond)
    return roles.tests, sum(int(role.found.sum()) for role in roles.roles.values()), beyond


def shuffled(layout: PositionLabels, random: np.random.Generator) -> PositionLabels:
    """The same text under a tree of the same shape and relations, over words in another order."""
    order = random.permutation(len(layout.words)).tolist()
    arcs = [Arc(order[arc.dependent], order[arc.governor], arc.relation) for arc in layout.arcs]
    return dataclasses.replace(layout, arcs=arcs)
