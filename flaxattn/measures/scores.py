# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of every head on every text, and moments of them: `Scores`, `ScoreAccumulator`.

They are read off traces here; extraction makes the same of texts without keeping a map.
`role_tests` and `patterns` draw conclusions from them.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.measures.score_sums import dense_values
from flaxattn.measures.significance import bootstrap_interval
from flaxattn.measures.specs import ScoreOptions, ScoreSpec, Terms, recorded_ranges, windows_in
from flaxattn.measures.terms import by_layer, terms_for
from flaxattn.pipeline.online_moments import Moments, merged
from flaxattn.text.position_labels import PositionLabels, labels_of
from flaxattn.trace.record import SIDES, AttentionRecord, layer_weights
from flaxattn.trace.result_table import ResultTable
from flaxattn.trace.trace import Trace


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores of every head on some texts.

    Attributes:
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        values: Per column `[texts, L, H]`, nan for texts that have no such words.
        lengths: N of each text.
        ceilings: The highest score a head could have on each text, by role; nan as above.
        counts: Related pairs of words of each text, by syntactic role.
        offsets: Frequency of each distance between related words, by syntactic role.
        side: `encoder`, `decoder` or `cross`.
        broken: Whether the attention of a head is NaN or infinite on a text, which then has no
            score of it; None where no attention is.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    values: Mapping[ScoreSpec, Float[np.ndarray, "T L H"]]
    lengths: Int[np.ndarray, " T"]
    ceilings: Mapping[str, Float[np.ndarray, " T"]]
    counts: Mapping[str, Int[np.ndarray, " T"]]
    offsets: Mapping[str, Counter[int]]
    side: str = "encoder"
    broken: Bool[np.ndarray, "T L H"] | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Several of one model, one after the other.

        Args:
            parts: At least one.
        """
        columns = dict.fromkeys(column for part in parts for column in part.values)
        roles = dict.fromkeys(role for part in parts for role in part.ceilings)
        shape = len(parts[0].layers), len(parts[0].heads)
        offsets: dict[str, Counter[int]] = {}
        for part in parts:
            for role, counter in part.offsets.items():
                offsets.setdefault(role, Counter()).update(counter)
        return cls(
            parts[0].layers,
            parts[0].heads,
            {
                c: np.concatenate([p.values.get(c, _gap(len(p), *shape)) for p in parts])
                for c in columns
            },
            np.concatenate([part.lengths for part in parts]),
            {r: np.concatenate([p.ceilings.get(r, _gap(len(p))) for p in parts]) for r in roles},
            {
                role: np.concatenate([p.counts.get(role, np.zeros(len(p), int)) for p in parts])
                for role in offsets
            },
            offsets,
            parts[0].side,
            None
            if all(part.broken is None for part in parts)
            else np.concatenate([part.broken_heads for part in parts]),
        )

    @property
    def broken_heads(self) -> Bool[np.ndarray, "T L H"]:
        """`broken`, in any case."""
        shape = len(self), len(self.layers), len(self.heads)
        return np.zeros(shape, bool) if self.broken is None else self.broken

    def __getitem__(self, chosen: np.ndarray | slice) -> "Scores":
        """Some of the texts; offsets stay those of all."""
        return dataclasses.replace(
            self,
            values={column: values[chosen] for column, values in self.values.items()},
            lengths=self.lengths[chosen],
            ceilings={role: values[chosen] for role, values in self.ceilings.items()},
            counts={role: values[chosen] for role, values in self.counts.items()},
            broken=None if self.broken is None else self.broken[chosen],
        )


def _gap(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


def gathered(
    layers: tuple[int, ...],
    heads: tuple[int, ...],
    found: Sequence[tuple[Terms, Mapping[ScoreSpec, Float[np.ndarray, "L H"]]]],
    side: str = "encoder",
) -> Scores:
    """Scores of texts whose numbers are known."""
    columns = dict.fromkeys(column for _, values in found for column in values)
    values = {column: _gap(len(found), len(layers), len(heads)) for column in columns}
    roles = dict.fromkeys(role for terms, _ in found for role in terms.ceilings)
    ceilings = {role: _gap(len(found)) for role in roles}
    pairs = dict.fromkeys(role for terms, _ in found for role in terms.counts)
    counts = {role: np.zeros(len(found), int) for role in pairs}
    offsets: dict[str, Counter[int]] = {role: Counter() for role in pairs}
    for place, (terms, numbers) in enumerate(found):
        for column, number in numbers.items():
            values[column][place] = number
        for role, ceiling in terms.ceilings.items():
            ceilings[role][place] = ceiling
        for role, count in terms.counts.items():
            counts[role][place] = count
            offsets[role].update(terms.offsets[role])
    lengths = np.array([len(terms) for terms, _ in found], int)
    own = values.get(ScoreSpec("mean", "own segment"))
    if own is not None:
        values[ScoreSpec("mean", "other segment")] = 1 - own
    for role in roles:
        score, control = (values.get(ScoreSpec(kind, role)) for kind in ("score", "control"))
        if score is not None and control is not None:
            values[ScoreSpec("beyond", role)] = score - control
    broken = np.array([_broken(numbers, len(layers), len(heads)) for _, numbers in found])
    some = broken if broken.any() else None
    return Scores(layers, heads, values, lengths, ceilings, counts, offsets, side, some)


def _broken(
    numbers: Mapping[ScoreSpec, Float[np.ndarray, "L H"]], layers: int, heads: int
) -> Bool[np.ndarray, "L H"]:
    """Heads without any of the scores that a text has."""
    if not numbers:
        return np.zeros((layers, heads), bool)
    return np.logical_and.reduce([np.isnan(values) for values in numbers.values()])


def scores_of(
    traces: Iterable[Trace],
    options: ScoreOptions,
    layouts: Iterable[PositionLabels] | None = None,
    side: str = "encoder",
) -> Scores:
    """Score every head from traces with weights.

    An encoder without a decoder has roles of its own; see `terms`.
    """
    given = None if layouts is None else iter(layouts)
    found, layers, heads = [], (), ()
    for trace in traces:
        for one in [trace] if len(trace) == 1 else trace:
            record = side_of(one, side)
            layers, heads = record.layers, record.heads
            layout = labels_of(one) if given is None else next(given)
            alone = one.decoder is None and one.cross is None
            ranges = recorded_ranges(record, side)
            windows = windows_in(ranges)
            terms = terms_for(one, layout, side, options, alone=alone, windows=windows)
            values = dense_values(layer_weights(record, layers, allow_nan=True), terms)
            found.append((terms, by_layer(values, ranges, windows)))
    if not found:
        raise InputError("There is no text to score heads on.\nGive at least one.")
    return gathered(layers, heads, found, side)


def side_of(trace: Trace, side: str) -> AttentionRecord:
    """The record of a side, with weights of all positions."""
    record = getattr(trace, side) if side in SIDES else None
    if record is None or record.weights is None:
        there = [name for name in SIDES if (s := getattr(trace, name)) and s.weights is not None]
        raise InputError(
            f"Scores of heads are read off weights; this trace has none of side {side!r}.\n"
            f"It has weights of {', '.join(there) or 'no side'}; ask for more: "
            "capture=Capture(weights=True)."
        )
    record.require_whole("A score of a head")
    return record


class ScoreAccumulator(ResultTable):
    """Moments of scores over many texts, merged in any order.

    Attributes:
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        moments: By column, `[L, H]` each, float64.
        lengths: N of each text.
        ceilings: The highest score a head could have on each text, by role; nan where a text has no
            such words.
        hits: Related words that are strongest keys, `[L, H]`, and how many there are, by role.
        offsets: Frequency of each distance between related words, by role.
        side: `encoder`, `decoder` or `cross`.
        broken: Number of texts on which the attention of each head is NaN or infinite, `[L, H]`.
    """

    def __init__(self) -> None:
        self.side = "encoder"
        self.broken = np.zeros((0, 0), int)
        self.layers: tuple[int, ...] = ()
        self.heads: tuple[int, ...] = ()
        self.moments: dict[ScoreSpec, Moments] = {}
        self.lengths = np.zeros(0, int)
        self.ceilings: dict[str, np.ndarray] = {}
        self.hits: dict[str, tuple[np.ndarray, int]] = {}
        self.offsets: dict[str, Counter[int]] = {}

    def to_columns(self) -> dict[str, np.ndarray]:
        """A row for each score and head: mean and standard deviation over texts."""
        specs = sorted(self.moments)
        layers, heads = np.meshgrid(self.layers, self.heads, indexing="ij")
        every = [self.moments[spec] for spec in specs]
        shape = (len(specs), *layers.shape)
        counts = np.array([m.counts for m in every], int).reshape(shape)
        spread = np.sqrt(np.array([m.m2 for m in every]).reshape(shape) / np.maximum(counts - 1, 1))
        return {
            "layer": np.tile(layers.ravel(), len(specs)),
            "head": np.tile(heads.ravel(), len(specs)),
            "kind": np.repeat(np.array([spec.kind for spec in specs], object), layers.size),
            "name": np.repeat(np.array([spec.name for spec in specs], object), layers.size),
            "texts": counts.ravel(),
            "mean": np.array([m.mean for m in every], float).ravel(),
            "sd": np.where(counts > 1, spread, np.nan).ravel(),
        }

    @classmethod
    def of(cls, *parts: Scores) -> Self:
        """The tally of some scores of one model.

        Args:
            *parts: The scores.
        """
        tally = cls()
        for part in parts:
            tally.add(part)
        return tally

    def add(self, scores: Scores) -> None:
        """Add some texts.

        Args:
            scores: Scores of the same model.
        """
        one = type(self)()
        one.layers, one.heads, one.lengths = scores.layers, scores.heads, scores.lengths
        one.side, one.broken = scores.side, scores.broken_heads.sum(0)
        one.moments = {column: moments_of(values) for column, values in scores.values.items()}
        one.ceilings = dict(scores.ceilings)
        one.offsets = {role: Counter(offsets) for role, offsets in scores.offsets.items()}
        for role, counts in scores.counts.items():
            if ScoreSpec("hit", role) not in scores.values:
                continue  # statistics without the strongest keys
            shares = scores.values[ScoreSpec("hit", role)].astype(np.float64)
            shares[counts == 0] = 0  # texts without such words, not heads without a number
            one.hits[role] = np.tensordot(counts.astype(np.float64), shares, 1), int(counts.sum())
        self.merge(one)

    def merge(self, other: Self) -> None:
        """Add everything that another tally holds.

        Args:
            other: Another one of the same model; unchanged.
        """
        self.layers, self.heads = other.layers or self.layers, other.heads or self.heads
        self.side = other.side if other.layers else self.side
        self.broken = self.broken + other.broken if self.broken.size else other.broken
        for column, moments in other.moments.items():
            before = self.moments.get(column)
            self.moments[column] = moments if before is None else merged(before, moments)
        for role in {**self.ceilings, **other.ceilings}:
            parts = [t.ceilings.get(role, _gap(len(t.lengths))) for t in (self, other)]
            self.ceilings[role] = np.concatenate(parts)
        self.lengths = np.concatenate([self.lengths, other.lengths])
        for role, (hits, count) in other.hits.items():
            mine, number = self.hits.get(role, (np.zeros_like(hits), 0))
            self.hits[role] = mine + hits, number + count
        for role, offsets in other.offsets.items():
            self.offsets[role] = self.offsets.get(role, Counter()) + offsets


def moments_of(values: Float[np.ndarray, "T *shape"]) -> Moments:
    """Moments over texts of those that have a value, that is, are not nan."""
    there = ~np.isnan(values)
    count = there.sum(0)
    known = np.where(there, values, 0).astype(np.float64)
    mean = known.sum(0) / np.maximum(count, 1)
    m2 = np.where(there, known - mean[None], 0) ** 2
    return Moments(count, np.where(count > 0, mean, np.nan), m2.sum(0))


def intervals(
    scores: Scores, *, level: float = 0.95, draws: int = 1000, seed: int = 0
) -> dict[ScoreSpec, tuple[Float[np.ndarray, "L H"], Float[np.ndarray, "L H"]]]:
    """Bootstrap intervals of the means over texts: percentiles of means of texts drawn anew.

    The same draws serve all heads and all columns that have values for the same texts, so that a
    matrix product gives their means at once; `scipy.stats.bootstrap` gives the same interval one
    head at a time. Cost: `draws` times the number of values.

    Args:
        scores: Scores of T texts.
        level: Level of confidence.
        draws: Number of means that are drawn.
        seed: Seed of the draws.

    Returns:
        Lower and upper end by column; nan where there are fewer than two texts.
    """
    alike: dict[bytes, list[ScoreSpec]] = {}
    for column, values in scores.values.items():
        alike.setdefault((~np.isnan(values).any((1, 2))).tobytes(), []).append(column)
    found = {}
    for there, columns in alike.items():
        rows = np.frombuffer(there, bool)
        for start in range(0, len(columns), 16):  # 16 T L H numbers at a time
            some = columns[start : start + 16]
            values = np.stack([scores.values[column][rows] for column in some], 1)
            low, high = bootstrap_interval(values.astype(np.float64), level, draws, seed)
            found |= {column: (low[i], high[i]) for i, column in enumerate(some)}
    return found
