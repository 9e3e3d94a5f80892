# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of every head on every text, and moments of them: `Scores`, `ScoreAccumulator`.

Row statistics become one number per head, text and score. The same sums serve statistics that the
kernel computes on the device, dense weights of a trace or a store, and recorded statistics. `specs`
defines scores and `terms` the coefficients of their sums; `role_tests` and `claims` draw
conclusions from the moments.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.kernels import reductions
from flaxattn.kernels.contract import Capture, Labels
from flaxattn.measures.significance import bootstrap_interval
from flaxattn.measures.specs import (
    ARGMAX,
    PAIRS,
    RECEIVED,
    STRONGEST,
    ScoreOptions,
    ScoreSpec,
    Terms,
    capture_hint,
    parts_of,
    recorded_parts,
    recorded_ranges,
    request_for,
    source_of,
    windows_in,
)
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


NOTES = ("row_terms", "key_terms", "pair_terms", "hit_at", "hit_terms", "rare_at")
"""Arguments of the step that are not model's."""
_Numbers = dict[ScoreSpec, Float[np.ndarray, "*heads"]]


@dataclasses.dataclass(frozen=True)
class ScoreSums:
    """Sums to make, in order; hashable, static under jit.

    Attributes:
        rows: Scores and the row statistic that each is a sum of.
        keys: Scores made of the attention that keys receive.
        pairs: Scores made of single weights.
        hits: Scores made of strongest keys.
        side: `encoder`, `decoder` or `cross`.
    """

    rows: tuple[tuple[ScoreSpec, str], ...]
    keys: tuple[ScoreSpec, ...]
    pairs: tuple[ScoreSpec, ...]
    hits: tuple[ScoreSpec, ...]
    side: str = "encoder"

    @classmethod
    def of(cls, terms: Sequence[Terms], side: str = "encoder") -> "ScoreSums":
        """All sums that any of these texts needs."""

        def every(name: str) -> tuple:
            return tuple(dict.fromkeys(key for one in terms for key in getattr(one, name)))

        rows = tuple(sorted(every("rows"), key=lambda row: row[1]))
        return cls(rows, every("keys"), every("pairs"), every("hits"), side)

    @property
    def parts(self) -> tuple[str, ...]:
        """Statistics of the kernel that the sums are made of."""
        parts = [part for _, source in self.rows for part in parts_of(source)]
        parts += [RECEIVED] if self.keys else []
        parts += [PAIRS] if self.pairs else []
        return tuple(dict.fromkeys([*parts, STRONGEST] if self.hits else parts))

    @property
    def capture(self) -> Capture:
        """The request that records these statistics; of any where no text needs one."""
        return Capture(stats=request_for(self.parts) or ("max",))

    def room(self, terms: Sequence[Terms]) -> tuple[int, int]:
        """Numbers of single weights and of strongest keys of the text that has most of them."""
        pairs = [len(one.places) for one in terms]
        hits = [sum(map(len, one.hits.values())) for one in terms]
        return _rounded(max(pairs, default=0)), _rounded(max(hits, default=0))

    def packed(
        self,
        texts: Sequence[Terms],
        rows: int,
        shape: tuple[int, int],
        room: tuple[int, int],
        dtype: Any = np.float32,
    ) -> tuple[Labels, dict[str, np.ndarray]]:
        """Labels and coefficients of a batch as arrays; rows without a text stay 0."""
        (queries, keys), (pairs, hits) = shape, room
        row_terms = np.zeros((rows, len(self.rows), queries), dtype)
        key_terms = np.zeros((rows, len(self.keys), keys), dtype)
        pair_at = np.full((rows, pairs, 2), -1, np.int32)
        pair_terms = np.zeros((rows, pairs, len(self.pairs)), dtype)
        hit_at = np.zeros((rows, hits, 3), np.int32)
        hit_terms = np.zeros((rows, hits, len(self.hits)), dtype)
        rare_at = np.full((rows, 1), -1, np.int32)
        for b, terms in enumerate(texts):
            rare_at[b] = terms.labels.rare
            for r, key in enumerate(self.rows):
                if (row := terms.rows.get(key)) is not None:
                    row_terms[b, r, : len(row)] = row
            for r, column in enumerate(self.keys):
                if (row := terms.keys.get(column)) is not None:
                    key_terms[b, r, : len(row)] = row
            places = terms.places
            pair_at[b, : len(places)] = list(places) or np.zeros((0, 2))
            for r, column in enumerate(self.pairs):
                if entries := terms.pairs.get(column):
                    at = [places[i, j] for i, j, _ in entries]
                    pair_terms[b, :, r] = np.bincount(at, [c for _, _, c in entries], pairs)
            number = 0
            for r, column in enumerate(self.hits):
                for *at, coefficient in terms.hits.get(column, ()):
                    hit_at[b, number], hit_terms[b, number, r] = at, coefficient
                    number += 1
        labels = _stacked([terms.labels.labels for terms in texts], rows, shape)
        arrays: tuple[np.ndarray, ...]
        arrays = row_terms, key_terms, pair_terms, hit_at, hit_terms, rare_at
        notes: dict[str, np.ndarray] = dict(zip(NOTES, arrays, strict=True))
        return labels._replace(pairs=_as_labels(pair_at) if self.pairs else None), notes

    def unpacked(self, sums: Mapping[str, np.ndarray], terms: Terms) -> _Numbers:
        """The numbers of one text by score; those it has no value for are left out."""
        found: dict[ScoreSpec, np.ndarray] = {}
        for r, (column, source) in enumerate(self.rows):
            if (column, source) in terms.rows:
                found[column] = found.get(column, 0) + sums["rows"][..., r]
        for kind in ("keys", "pairs", "hits"):
            for r, column in enumerate(getattr(self, kind)):
                if column in getattr(terms, kind):
                    found[column] = sums[kind][..., r]
        return found

    def __call__(
        self, sides: Mapping[str, AttentionRecord], notes: Mapping[str, Array]
    ) -> dict[str, AttentionRecord]:
        """Evaluate the sums inside the compiled step."""
        record = sides[self.side]
        sums = self.summed(record.stats, notes, jnp)
        return {self.side: AttentionRecord(stats=sums, layers=record.layers, heads=record.heads)}

    def summed(
        self, stats: Mapping[str, Any], notes: Mapping[str, Any], space: Any = np
    ) -> dict[str, Any]:
        """Sums of row statistics, of attention received, of single weights and of hits."""
        found = {}
        # Products that no accelerator rounds to fewer bits: [L, B, H, x] @ [B, x, R].
        exact = {} if space is np else {"precision": jax.lax.Precision.HIGHEST}
        product = functools.partial(space.matmul, **exact)
        if self.rows:
            # One product for all sources, with zeros where a score is not a sum of a source: as
            # fast as one for each, and a third fewer programs to compile.
            rare = notes["rare_at"][None, :, None]
            names = list(dict.fromkeys(source for _, source in self.rows))
            rows = space.stack([source_of(name, stats, rare, space) for name in names], -2)
            own = np.array([[n == source for _, source in self.rows] for n in names], np.float32)
            terms = space.swapaxes(notes["row_terms"], 1, 2)[:, None] * own[None, :, None]
            rows = rows.reshape(*rows.shape[:3], -1)
            found["rows"] = product(rows, terms.reshape(len(terms), -1, len(own.T)))
        if self.keys:
            found["keys"] = product(stats[RECEIVED], space.swapaxes(notes["key_terms"], 1, 2))
        if self.pairs:
            found["pairs"] = product(stats[PAIRS], notes["pair_terms"])
        if self.hits:
            at, terms = notes["hit_at"][None, :, None], notes["hit_terms"]
            strongest = stats[STRONGEST]
            where = space.broadcast_to(at[..., 0], (*strongest.shape[:3], at.shape[3]))
            keys = space.take_along_axis(strongest, where, axis=3)
            inside = (keys >= at[..., 1]) & (keys <= at[..., 2])
            found["hits"] = product(inside.astype(np.float32), terms)
        return found


def blanked(values: _Numbers, broken: Bool[np.ndarray, "*heads"]) -> _Numbers:
    """Scores of a text without those of heads whose attention is NaN or infinite there."""
    if not broken.any():
        return values
    return {column: np.where(broken, np.nan, array) for column, array in values.items()}


def dense_values(weights: Float[np.ndarray, "*heads Q K"], terms: Terms) -> _Numbers:
    """Every number of every head on one text, from dense weights."""
    sums = ScoreSums.of([terms])
    pairs = np.array([*terms.places], int).reshape(-1, 2)
    labels = terms.labels.labels._replace(pairs=_as_labels(pairs))
    values = _of_statistics(sums, reductions.statistics(weights, sums.capture.stats, labels), terms)
    return blanked(values, ~np.isfinite(weights).all((-2, -1)))


def recorded_values(stats: Mapping[str, np.ndarray], capture: Capture, terms: Terms) -> _Numbers:
    """Every number of every head on one text that recorded statistics determine."""
    held = recorded_parts(stats, capture, terms.labels.labels)
    lacking = {c for c, source in terms.rows if not held.keys() >= {*parts_of(source)}}
    terms = dataclasses.replace(
        terms,
        rows={key: row for key, row in terms.rows.items() if key[0] not in lacking},
        keys=terms.keys if RECEIVED in held else {},
        pairs={},
        hits=terms.hits if STRONGEST in held else {},
    )
    values = _of_statistics(ScoreSums.of([terms]), held, terms)
    floats = (a for a in stats.values() if np.issubdtype(np.asarray(a).dtype, np.floating))
    broken = [np.isnan(a).reshape(*a.shape[:2], -1).any(-1) for a in map(np.asarray, floats)]
    return blanked(values, np.logical_or.reduce(broken)) if broken else values


def capture_hints(terms: Terms) -> dict[ScoreSpec, str]:
    """Arguments of `Capture` that would record what each score is made of."""
    found: dict[ScoreSpec, str] = {}
    for column, source in terms.rows:
        parts = parts_of(source)
        found.setdefault(column, capture_hint(parts[0] if len(parts) == 1 else PAIRS))
    found |= dict.fromkeys(terms.keys, capture_hint(RECEIVED))
    found |= dict.fromkeys(terms.hits, capture_hint(STRONGEST))
    return found | dict.fromkeys(terms.pairs, capture_hint(PAIRS))


def _of_statistics(sums: ScoreSums, stats: Mapping[str, np.ndarray], terms: Terms) -> _Numbers:
    """The numbers of one text whose statistics are known."""
    if not sums.parts:
        return {}
    shape = next(iter(stats.values())).shape[:-1]
    size = int(np.prod(shape))
    batch = {}
    for name in sums.parts:
        dtype = np.int32 if name in (ARGMAX, STRONGEST) else np.float64
        batch[name] = np.asarray(stats[name], dtype).reshape(1, 1, size, -1)
    extent = terms.labels.queries, terms.labels.keys
    pairs, hits = len(terms.places), sum(map(len, terms.hits.values()))
    _, notes = sums.packed([terms], 1, extent, (pairs, hits), np.float64)
    found = {n: a.reshape(*shape, -1) for n, a in sums.summed(batch, notes).items()}
    return sums.unpacked(found, terms)


def _rounded(count: int) -> int:
    return -(-count // 32) * 32


def _stacked(texts: Sequence[Labels], rows: int, shape: tuple[int, int]) -> Labels:
    """Labels of a batch; those of padding equal nothing and are of no class."""
    found: dict[str, np.ndarray] = {}
    for name, first in texts[0]._asdict().items():
        if first is None or name == PAIRS:
            continue
        length = shape[0] if name.startswith("query") else shape[1]
        fill = 0 if name == "key_class" else -1
        array = np.full((rows, *np.shape(first)[:-1], length), fill, np.int32)
        for b, labels in enumerate(texts):
            one = np.asarray(getattr(labels, name))
            array[b, ..., : one.shape[-1]] = one
        found[name] = array
    return Labels(**{name: _as_labels(array) for name, array in found.items()})


def blank_labels(labels: Labels, shape: tuple[int, int]) -> Labels:
    """Labels of the same kinds for another side, which equal nothing and are of no class."""
    found: dict[str, np.ndarray] = {}
    for name, array in labels._asdict().items():
        if array is not None:
            length = shape[0] if name.startswith("query") else shape[1]
            size = array.shape if name == PAIRS else (*array.shape[:-1], length)
            found[name] = np.full(size, 0 if name == "key_class" else -1, np.int32)
    return Labels(**{name: _as_labels(array) for name, array in found.items()})


def _as_labels(array: np.ndarray) -> Any:
    """Labels are NumPy arrays until they are given to a device."""
    return array
