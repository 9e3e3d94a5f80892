# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The heads hypothesis: which heads have which roles, tested (Pande et al. 2021).

H0: the mean score over texts is at most tau. A head has a role if a one-sided t-test rejects it.
The scores are defined in `specs` and come as arrays. False positives are counted in untrained
models and under shuffled trees, on a few texts whose maps are held in memory.

Read with care. A score is a lift over uniform attention, so a fixed tau asks for a share of
attention of tau |F| / N, which shrinks as texts grow: counts of heads on texts of other lengths do
not compare. `Reach` says how much that is, next to every result. Relations are mostly between near
words, so local heads have syntactic roles too; `beyond` tests against words as far apart that are
not related.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.measures.scores import ScoreAccumulator, dense_values, gathered, scores_of, side_of
from flaxattn.measures.significance import CORRECTIONS, adjusted, t_test
from flaxattn.measures.specs import WINDOW, ScoreOptions, ScoreSpec
from flaxattn.measures.terms import tree_terms
from flaxattn.pipeline.extraction import extract
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.pipeline.tokenize_texts import DEFAULTS, LabelledText, ReadingOptions, windows
from flaxattn.pretrained.from_pretrained import untrained
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.position_labels import Arc, PositionLabels
from flaxattn.trace.record import layer_weights
from flaxattn.trace.result_table import ResultTable, columns_of
from flaxattn.trace.trace import Trace

_SLACK = 1e-9
_FEW = 0.05  # of the texts: so many may be too short without a word


@dataclasses.dataclass(frozen=True)
class Test:
    """Settings of the role tests.

    Attributes:
        tau: A head must have a higher score on average; 1 is uniform attention, the paper's code
            uses 1 to 3.5.
        alpha: Level of the test.
        correction: For the number of tests, heads times roles: `none` (as the paper), `bonferroni`,
            or `bh` (Benjamini & Hochberg 1995: the share of false ones among roles found).
        pande_parity: Whether the deviation is divided by n in place of n - 1, as in the notebooks.
    """

    __test__ = False  # pytest would take the name for its own

    tau: float = 3.0
    alpha: float = 0.05
    correction: str = "bh"
    pande_parity: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.alpha < 1 and self.tau > 0):
            raise InputError(
                f"tau is {self.tau} and alpha {self.alpha}, expected tau above 0 and alpha between "
                "0 and 1\nthe paper's are 3 and 0.05"
            )
        if self.correction not in CORRECTIONS:
            raise InputError(
                f"correction {self.correction!r} is unknown\nchoose one of {', '.join(CORRECTIONS)}"
            )


class Reach(NamedTuple):
    """Limits that the lengths of texts set on a role.

    Attributes:
        texts: On how many texts the role is defined.
        length: Their mean N.
        keys: |F|, the keys the role names, on average; None for scores times entropy, which are
            no lifts.
        mass: The share of attention that a score of tau takes, the median over texts; above 1 where
            none suffices; None as above.
        highest: The highest score that any text allows.
        out: On how many texts no head can exceed tau.
        needed: The length from which a text allows a score above tau; None where none does.
    """

    texts: int
    length: float
    keys: float | None
    mass: float | None
    highest: float
    out: int
    needed: int | None


@dataclasses.dataclass(frozen=True)
class Role:
    """Test results of one role for every head.

    Attributes:
        name: Name of the role.
        count: Texts with a score.
        score: Mean lift.
        mass: Mean share of attention; nan for `block_entropy`.
        t: Statistic of the test, with count - 1 degrees of freedom.
        p: One-sided p-value; nan with fewer than two texts.
        corrected: The same, corrected for all tests.
        found: Whether the head has the role.
        beyond: Corrected p-value of the test that the score exceeds that of unrelated words as far
            apart; None for roles without a tree.
        reach: What the lengths allow.
    """

    name: str
    count: int
    score: Float[np.ndarray, "L H"]
    mass: Float[np.ndarray, "L H"]
    t: Float[np.ndarray, "L H"]
    p: Float[np.ndarray, "L H"]
    corrected: Float[np.ndarray, "L H"]
    found: Bool[np.ndarray, "L H"]
    beyond: Float[np.ndarray, "L H"] | None
    reach: Reach


@dataclasses.dataclass(frozen=True, repr=False)
class Roles(ResultTable):
    """The roles of every head.

    Attributes:
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        roles: By name; those that no text defines are left out.
        test: Settings of the tests.
        tests: Number of tests.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    roles: Mapping[str, Role]
    test: Test
    tests: int

    def to_columns(self) -> dict[str, list[Any]]:
        """A row for each role and head, with its score and the test of it."""
        rows = [
            {
                "role": name,
                "layer": layer,
                "head": head,
                "found": bool(role.found[i, j]),
                "score": float(role.score[i, j]),
                "p_corrected": float(role.corrected[i, j]),
                "p": float(role.p[i, j]),
                "t": float(role.t[i, j]),
                "mass": float(role.mass[i, j]),
                "p_beyond": None if role.beyond is None else float(role.beyond[i, j]),
                "texts": role.count,
            }
            for name, role in self.roles.items()
            for i, layer in enumerate(self.layers)
            for j, head in enumerate(self.heads)
        ]
        return columns_of(rows)

    def of(self, layer: int, head: int) -> list[str]:
        """The roles of a head, by the numbers of its layer and itself."""
        at = self.layers.index(layer), self.heads.index(head)
        return [name for name, role in self.roles.items() if role.found[at]]

    def by_layer(self) -> dict[str, Int[np.ndarray, " L"]]:
        """Number of heads in each layer that have each role."""
        return {name: role.found.sum(1) for name, role in self.roles.items()}

    def overlap(self, one: str, other: str) -> int:
        """Number of heads that have both roles."""
        return int((self.roles[one].found & self.roles[other].found).sum())

    def warnings(self) -> list[str]:
        """Warnings to read before the counts are believed."""
        notes = []
        for name, role in self.roles.items():
            reach, tau = role.reach, self.test.tau
            if reach.out < reach.texts:
                if reach.out > _FEW * reach.texts:
                    notes.append(
                        f"{name}: {reach.out} of {reach.texts} texts are too short for a score "
                        f"above {tau:g}"
                    )
                continue
            longer = (
                "no length would do"
                if reach.needed is None
                else f"texts of {reach.needed} positions would do"
            )
            notes.append(
                f"{name}: no text allows a score above {tau:g}, the highest "
                f"{_highest(reach.highest, tau)}; {longer}"
            )
        return notes


def _highest(highest: float, tau: float) -> str:
    """The highest score in words, with enough digits to differ from tau."""
    if f"{highest:.2f}" != f"{tau:.2f}":
        return f"is {highest:.2f}"
    return "equals it" if math.isclose(highest, tau, rel_tol=1e-6) else f"is {highest:.6g}"


def find_roles(tally: ScoreAccumulator, options: ScoreOptions, test: Test | None = None) -> Roles:
    """Test every role on every head.

    Args:
        tally: Scores of the heads, summed over texts.
        options: Choice of roles.
        test: Settings of the tests; default tau 3, alpha 0.05, Benjamini and Hochberg's correction;
            with `options.pande_parity` as the notebooks, which correct nothing.
    """
    if test is None:
        parity = options.pande_parity
        test = Test(correction="none" if parity else "bh", pande_parity=parity)
    names = [name for name in options.roles if ScoreSpec("score", name) in tally.moments]
    parity = test.pande_parity

    def tested(kind: str, name: str, bound: float) -> tuple[np.ndarray, np.ndarray]:
        return t_test(tally.moments[ScoreSpec(kind, name)], bound, population=parity)

    results = {name: tested("score", name, test.tau) for name in names}
    each = _adjusted([p for _, p in results.values()], test.correction)
    controlled = [name for name in names if ScoreSpec("beyond", name) in tally.moments]
    p_beyond = [tested("beyond", name, 0.0)[1] for name in controlled]
    beyond = dict(zip(controlled, _adjusted(p_beyond, test.correction), strict=True))
    entropic = "block" if options.pande_parity else "block_entropy"
    roles = {}
    for (name, (t, p)), value in zip(results.items(), each, strict=True):
        moments = tally.moments[ScoreSpec("score", name)]
        mass = tally.moments.get(ScoreSpec("mass", name))
        roles[name] = Role(
            name,
            int(moments.counts.max()),
            moments.mean,
            np.full(t.shape, np.nan) if mass is None else mass.mean,
            t,
            p,
            value,
            np.nan_to_num(value, nan=1.0) < test.alpha,
            beyond.get(name),
            _reach(name, tally, test.tau, entropic=name == entropic),
        )
    tests = sum(int((~np.isnan(p)).sum()) for _, p in results.values())
    return Roles(tally.layers, tally.heads, roles, test, tests)


def _adjusted(values: Sequence[Float[np.ndarray, "L H"]], correction: str) -> list[np.ndarray]:
    """P-values of several roles, corrected for all of them."""
    return list(adjusted(np.stack(values), correction)) if values else []


def _reach(name: str, tally: ScoreAccumulator, tau: float, *, entropic: bool) -> Reach:
    """Limits set by the lengths; a score times entropy has no number of keys."""
    lengths, ceilings = tally.lengths, tally.ceilings[name]
    there = ~np.isnan(ceilings)
    lengths, ceilings = lengths[there], ceilings[there]
    keys = mass = None
    if not entropic:
        keys, mass = float((lengths / ceilings).mean()), float(np.median(tau / ceilings))
    highest, out = float(ceilings.max()), int((ceilings <= tau).sum())
    if tally.side == "encoder":
        needed = _needed(name, keys, tau)
    else:
        needed = _extrapolated(lengths, ceilings, tau)
    return Reach(len(lengths), float(lengths.mean()), keys, mass, highest, out, needed)


def _needed(name: str, keys: float | None, tau: float) -> int | None:
    """The length from which a score above tau is possible."""
    if keys is None:
        return math.floor(math.exp(tau)) + 1
    if name == "block":  # it grows with the text
        return None
    if name != "local":
        return math.floor(tau * keys) + 1
    length = 1
    while highest_local(length) <= tau:
        length += 1
    return length


def _extrapolated(
    lengths: Int[np.ndarray, " T"], ceilings: Float[np.ndarray, " T"], tau: float
) -> int:
    """The needed length on other sides, by a straight line through the highest scores of texts.

    The line is exact for positions in a decoder, whose queries see half of the keys on average;
    where texts are of one length, or do not tell, it goes through 0.
    """
    x, y = lengths.astype(np.float64), ceilings.astype(np.float64)
    slope, start = float((y / x).mean()), 0.0
    if np.ptp(x) > 0 and (found := float(np.cov(x, y)[0, 1] / x.var(ddof=1))) > _SLACK:
        slope, start = found, float(y.mean() - found * x.mean())
    return math.floor((tau - start) / slope + _SLACK) + 1


def highest_local(length: int) -> float:
    """The highest local score that a text of a length allows: all attention in the window."""
    place = np.arange(length)
    size = np.minimum(place + WINDOW, length - 1) - np.maximum(0, place - WINDOW) + 1
    return float((1 / size).sum())


def facts(roles: Roles) -> dict[str, Any]:
    """Counts, overlaps and reach, ready for JSON."""
    names = list(roles.roles)
    layers = {name: counts.tolist() for name, counts in roles.by_layer().items()}
    return {
        "tests": roles.tests,
        "heads": len(roles.layers) * len(roles.heads),
        "roles": {
            name: {
                "heads": int(role.found.sum()),
                "by_layer": layers[name],
                "beyond_position": None
                if role.beyond is None
                else int(((role.beyond < roles.test.alpha) & role.found).sum()),
                "lengths": role.reach._asdict(),
            }
            for name, role in roles.roles.items()
        },
        "overlaps": {
            one: {other: roles.overlap(one, other) for other in names if other != one}
            for one in names
        },
        "warnings": roles.warnings(),
    }


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
        drawings: Number of times that trees were drawn.
        tests: Number of tests: heads times roles times drawings.
        found: Number of tests that found a role.
        beyond: Number of tests that found a role beyond position.
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
