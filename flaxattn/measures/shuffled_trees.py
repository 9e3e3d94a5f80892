# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Roles found by chance: tests of the same attention under trees with shuffled words.

The words of each tree are put in another order, so that relations hold between words drawn at
random: what is found then is found by chance. At most a share alpha of such drawings should have
any role beyond position, with a correction for the number of tests. Models without training are
judged in extraction.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from flaxattn.measures.role_tests import Roles, Test, find_roles
from flaxattn.measures.score_sums import dense_values
from flaxattn.measures.score_terms import ScoreOptions
from flaxattn.measures.scores import ScoreAccumulator, gathered
from flaxattn.measures.tree_terms import tree_terms
from flaxattn.pipeline.progress_reporter import Watch, watch_in_notebooks
from flaxattn.text.position_labels import Arc, PositionLabels


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
    asked: ScoreOptions,
    test: Test,
    drawings: int,
    *,
    causal: bool = False,
    watch: Watch = watch_in_notebooks,
) -> Chance:
    """Test syntactic roles under trees whose words are drawn anew."""
    shape = texts[0][0].shape[:2]
    numbers = tuple(range(shape[0])), tuple(range(shape[1]))
    counts = np.zeros((drawings, 3), int)
    for drawing in range(drawings):
        random = np.random.default_rng([asked.seed, drawing])
        drawn = dataclasses.replace(asked, seed=asked.seed + drawing)
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
    apart = [role.beyond for role in roles.roles.values() if role.beyond is not None]
    beyond = sum(int((p < roles.test.alpha).sum()) for p in apart)
    return roles.tests, sum(int(role.found.sum()) for role in roles.roles.values()), beyond


def shuffled(layout: PositionLabels, random: np.random.Generator) -> PositionLabels:
    """The same text under a tree of the same shape and relations, over words in another order."""
    order = random.permutation(len(layout.words)).tolist()
    arcs = [Arc(order[arc.dependent], order[arc.governor], arc.relation) for arc in layout.arcs]
    return dataclasses.replace(layout, arcs=arcs)
