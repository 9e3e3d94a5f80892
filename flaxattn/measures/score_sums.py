# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The evaluator of scores: row statistics become one number per head, text and score.

The same sums serve statistics that the kernel computes on the device, dense weights of a trace or
a store, and recorded statistics. Score definitions are in `specs` and `terms`.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from flaxattn.kernels import dense
from flaxattn.kernels.contract import Capture, Labels
from flaxattn.measures.specs import (
    ARGMAX,
    PAIRS,
    RECEIVED,
    STRONGEST,
    ScoreSpec,
    Terms,
    capture_hint,
    parts_of,
    recorded_parts,
    request_for,
    source_of,
)
from flaxattn.trace.record import AttentionRecord

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
    values = _of_statistics(sums, dense.statistics(weights, sums.capture.stats, labels), terms)
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
