# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sums over attention records on the device: the scores of `score_terms`, without maps.

The model hands over queries, keys and lse; the weights of one layer at a time are made of them,
summed in every way that is asked for, and gone. A few numbers per head and text leave the device.
Which texts make a batch is decided elsewhere.

Cost beside the model, per layer and text of N positions: 2 N^2 D operations per head for the
weights, and about ten passes over them. One layer's weights exist at a time, and one array made of
them: 8 B H N^2 bytes.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from flaxattn.kernels.contract import Capture
from flaxattn.measures.score_terms import WINDOW, ScoreName, Terms
from flaxattn.text.position_labels import PositionLabels
from flaxattn.trace.record import AttentionRecord

_SEGMENTS = 2  # a text and the second one of a pair
_TIMES_ENTROPY = " x entropy"
CAPTURE = Capture(query=True, key=True, stats=("lse",))
"""What the model has to record."""
NOTES = (
    *("segment_at", "special_at", "token_at", "rare_at", "row_terms", "key_terms"),
    *("pair_at", "pair_terms", "hit_at", "hit_terms"),
)
"""Arguments of the step that are no model's."""


@dataclasses.dataclass(frozen=True)
class HeadSums:
    """Which sums are made, in which order; hashable, static under jit.

    Attributes:
        rows: Columns and the statistic of queries that each is made of.
        keys: Columns made of what keys receive.
        pairs: Columns made of single weights.
        hits: Columns made of strongest keys.
    """

    rows: tuple[tuple[ScoreName, str], ...]
    keys: tuple[ScoreName, ...]
    pairs: tuple[ScoreName, ...]
    hits: tuple[ScoreName, ...]

    @classmethod
    def of(cls, terms: Sequence[Terms]) -> "HeadSums":
        """All that any of these texts needs.

        Args:
            terms: Of the texts.
        """

        def every(name: str) -> tuple:
            return tuple(dict.fromkeys(key for one in terms for key in getattr(one, name)))

        return cls(every("rows"), every("keys"), every("pairs"), every("hits"))

    def room(self, terms: Sequence[Terms]) -> tuple[int, int]:
        """Single weights and strongest keys of the text that has most of them.

        Args:
            terms: Of the texts.
        """
        pairs = [len(_places(one)) for one in terms]
        hits = [sum(map(len, one.hits.values())) for one in terms]
        return _rounded(max(pairs, default=0)), _rounded(max(hits, default=0))

    def packed(
        self,
        texts: Sequence[tuple[PositionLabels, Terms]],
        rows: int,
        width: int,
        room: tuple[int, int],
    ) -> dict[str, np.ndarray]:
        """Coefficients of a batch as arrays; rows without a text stay 0.

        Args:
            texts: Layout and terms of each.
            rows: Of the batch, at least as many.
            width: N of the longest text, or more.
            room: From `room`, of texts that these are among.
        """
        pairs, hits = room
        segment = np.full((rows, width), -1, np.int32)
        special = np.zeros((rows, width), bool)
        token = np.zeros((rows, width), np.int32)
        row_terms = np.zeros((rows, len(self.rows), width), np.float32)
        key_terms = np.zeros((rows, len(self.keys), width), np.float32)
        pair_at = np.zeros((rows, pairs, 2), np.int32)
        pair_terms = np.zeros((rows, pairs, len(self.pairs)), np.float32)
        hit_at = np.zeros((rows, hits, 3), np.int32)
        hit_terms = np.zeros((rows, hits, len(self.hits)), np.float32)
        for b, (layout, terms) in enumerate(texts):
            segment[b, : len(layout)] = layout.segments
            special[b, : len(layout)] = layout.special
            token[b, : len(layout)] = layout.tokens
            for r, key in enumerate(self.rows):
                if (row := terms.rows.get(key)) is not None:
                    row_terms[b, r, : len(row)] = row
            for r, column in enumerate(self.keys):
                if (row := terms.keys.get(column)) is not None:
                    key_terms[b, r, : len(row)] = row
            places = _places(terms)
            pair_at[b, : len(places)] = list(places) or np.zeros((0, 2))
            for r, column in enumerate(self.pairs):
                for i, j, coefficient in terms.pairs.get(column, ()):
                    pair_terms[b, places[i, j], r] += coefficient
            number = 0
            for r, column in enumerate(self.hits):
                for *at, coefficient in terms.hits.get(column, ()):
                    hit_at[b, number], hit_terms[b, number, r] = at, coefficient
                    number += 1
        terms = (row_terms, key_terms, pair_at, pair_terms, hit_at, hit_terms)
        known = (segment, special, token, _rare(texts, rows))
        return dict(zip(NOTES, (*known, *terms), strict=True))

    def unpacked(
        self, stats: Mapping[str, np.ndarray], terms: Terms
    ) -> dict[ScoreName, Float[np.ndarray, "L H"]]:
        """The numbers of one text by column; those it has no value for are left out.

        Args:
            stats: What `__call__` made, of one row: `[L, H, R]` each.
            terms: Of the text.
        """
        found: dict[ScoreName, np.ndarray] = {}
        for r, (column, source) in enumerate(self.rows):
            if (column, source) in terms.rows:
                found[column] = found.get(column, 0) + stats["rows"][..., r]
        for kind in ("keys", "pairs", "hits"):
            for r, column in enumerate(getattr(self, kind)):
                if column in getattr(terms, kind):
                    found[column] = stats[kind][..., r]
        return found

    def __call__(
        self, sides: Mapping[str, AttentionRecord], notes: Mapping[str, Array]
    ) -> dict[str, AttentionRecord]:
        """The sums, inside the compiled step.

        Args:
            sides: What attention saw, with `CAPTURE`.
            notes: From `packed`.

        Returns:
            An encoder's record whose statistics are `rows`, `keys`, `pairs` and `hits`
            `[L, B, H, R]`.
        """
        seen = sides["encoder"]
        known = {name: notes[name] for name in NOTES}

        def layer(saw: tuple[Array, Array, Array]) -> dict[str, Array]:
            return self._of_layer(_weights(*saw, known["segment_at"]), known)

        found = jax.lax.map(layer, (seen.query, seen.key, seen.stats["lse"]))
        return {"encoder": AttentionRecord(stats=found, layers=seen.layers, heads=seen.heads)}

    def _of_layer(self, weights: "_Weights", notes: Mapping[str, Array]) -> dict[str, Array]:
        """The sums of one layer, `[B, H, R]` each."""
        strongest = _strongest(jnp.where(notes["special_at"][:, None, None], 0, weights.values))
        statistics = _sources(weights, strongest, notes, {source for _, source in self.rows})
        stacked = jnp.stack([statistics[source] for _, source in self.rows], 2)
        received = _product("bhqk,bq->bhk", weights.values, weights.there)
        found = {
            "rows": _product("bhrq,brq->bhr", stacked, notes["row_terms"]),
            "keys": _product("bhk,brk->bhr", received, notes["key_terms"]),
        }
        if self.pairs:
            at = notes["pair_at"]
            flat = (at[..., 0] * weights.values.shape[-1] + at[..., 1])[:, None]
            chosen = jnp.take_along_axis(_flat(weights.values), flat, axis=2)
            found["pairs"] = _product("bhp,bpr->bhr", chosen, notes["pair_terms"])
        if self.hits:
            at, terms = notes["hit_at"][:, None], notes["hit_terms"]
            keys = jnp.take_along_axis(strongest, at[..., 0], axis=2)
            inside = (keys >= at[..., 1]) & (keys <= at[..., 2])
            found["hits"] = _product("bha,bar->bhr", inside.astype(terms.dtype), terms)
        return found


def _places(terms: Terms) -> dict[tuple[int, int], int]:
    """Every pair of positions that is needed, each once, with its place."""
    pairs = dict.fromkeys((i, j) for found in terms.pairs.values() for i, j, _ in found)
    return {pair: place for place, pair in enumerate(pairs)}


def _rounded(count: int) -> int:
    return -(-count // 32) * 32


def _rare(texts: Sequence[tuple[PositionLabels, Terms]], rows: int) -> Int[np.ndarray, "B 1"]:
    found = np.full((rows, 1), -1, np.int32)
    found[: len(texts), 0] = [layout.rare for layout, _ in texts]
    return found


def _product(form: str, one: Array, other: Array) -> Array:
    """A product that no accelerator rounds to fewer bits."""
    return jnp.einsum(form, one, other, precision=jax.lax.Precision.HIGHEST)


class _Weights(NamedTuple):
    """The weights of one layer, and what is made of them once.

    Attributes:
        values: 0 at padding.
        times_log: Each times its logarithm.
        there: 1 at positions of the text, 0 at padding.
    """

    values: Float[Array, "B H N N"]
    times_log: Float[Array, "B H N N"]
    there: Float[Array, "B N"]


def _weights(query: Array, key: Array, lse: Array, segment: Int[Array, "B N"]) -> _Weights:
    query = query.astype(lse.dtype) * query.shape[-1] ** -0.5
    logs = _product("bqhd,bkhd->bhqk", query, key.astype(lse.dtype)) - lse[..., None]
    there = segment >= 0
    values = jnp.where(there[:, None, None], jnp.exp(logs), 0)
    # Without the barrier, every sum below would take exponentials anew.
    values, times_log = jax.lax.optimization_barrier((values, values * logs))
    return _Weights(values, times_log, there.astype(lse.dtype))


def _strongest(weights: Float[Array, "B H N N"]) -> Int[Array, "B H N"]:
    """The first of the strongest keys of each query; -1 where none has any weight."""
    most = weights.max(-1, keepdims=True)
    keys = jax.lax.broadcasted_iota(jnp.int32, weights.shape, 3)
    first = jnp.where(weights == most, keys, weights.shape[-1]).min(-1)
    return jnp.where(most[..., 0] > 0, first, -1)


def _sources(
    weights: _Weights,
    strongest: Int[Array, "B H N"],
    notes: Mapping[str, Array],
    wanted: set[str],
) -> dict[str, Float[Array, "B H N"]]:
    """The statistics of each query that `terms.SOURCES` names; what is not used is not compiled."""
    values, times_log, _ = weights
    count, dtype = values.shape[-1], values.dtype
    place = jnp.arange(count, dtype=jnp.int32)
    found = _near(values) | _of_segments(values, times_log, notes)
    largest = _strongest(values)
    for name, step in (("next", 1), ("previous", -1)):
        wished = (place + step)[None, None]
        found[f"argmax {name}"] = (largest == wished).astype(dtype)
        found[f"strongest {name}"] = (strongest == wished).astype(dtype)
    found["strongest rare"] = (strongest == notes["rare_at"][:, None]).astype(dtype)
    apart = jnp.abs(place[:, None] - place[None]).astype(dtype)
    found["distance"] = (values * apart[None, None]).sum(-1)
    found["max"], found["sum_sq"] = values.max(-1), (values**2).sum(-1)
    for name in wanted & {"same token", "same token elsewhere"}:
        same = notes["token_at"][:, :, None] == notes["token_at"][:, None]
        if name == "same token elsewhere":
            same &= notes["segment_at"][:, :, None] != notes["segment_at"][:, None]
        found[name] = jnp.where(same[:, None], values, 0).sum(-1)
    return found


def _near(weights: Float[Array, "B H N N"]) -> dict[str, Float[Array, "B H N"]]:
    """Weights at offsets of a few positions: diagonals, a gather each."""
    count = weights.shape[-1]
    place = np.arange(count)
    diagonals = {}
    for step in range(-WINDOW, WINDOW + 1):
        at = place + step
        inside = (at >= 0) & (at < count)
        flat = jnp.asarray(place * count + np.clip(at, 0, count - 1), jnp.int32)
        diagonals[step] = jnp.where(inside[None, None], _flat(weights)[..., flat], 0)
    near = {"own": diagonals[0], "next": diagonals[1], "previous": diagonals[-1]}
    return near | {"local": sum(diagonals.values(), jnp.zeros_like(diagonals[0]))}


def _of_segments(
    weights: Float[Array, "B H N N"], times_log: Float[Array, "B H N N"], notes: Mapping[str, Array]
) -> dict[str, Float[Array, "B H N"]]:
    """Mass and entropy that fall on the own text of each query, on the other, on its plain part."""
    segment, special, dtype = notes["segment_at"], notes["special_at"], weights.dtype
    number = jnp.arange(_SEGMENTS, dtype=jnp.int32)[None, None]
    member = (segment[..., None] == number).astype(dtype)  # [B, N, segment]
    plain = member * (~special).astype(dtype)[..., None]
    columns = jnp.concatenate([member, plain, special.astype(dtype)[..., None]], -1)
    masses = _product("bhqk,bkr->bhqr", weights, columns)
    logs = _product("bhqk,bkr->bhqr", times_log, jnp.concatenate([member, plain], -1))

    def own(each: Array) -> Array:
        return (each * member[:, None]).sum(-1)

    first, second = slice(0, _SEGMENTS), slice(_SEGMENTS, 2 * _SEGMENTS)
    block, entropy = own(masses[..., second]), -logs[..., first].sum(-1)
    other = masses[..., second].sum(-1) - block
    some = block > 0
    inside = jnp.where(some, block, 1)
    return {
        "own segment": own(masses[..., first]),
        "block": block,
        "other block": other,
        "special": masses[..., -1],
        "entropy": entropy,
        f"block{_TIMES_ENTROPY}": block * entropy,
        f"other block{_TIMES_ENTROPY}": other * entropy,
        "entropy in block": jnp.where(some, jnp.log(inside) - own(logs[..., second]) / inside, 0),
    }


def _flat(weights: Float[Array, "B H N N"]) -> Float[Array, "B H M"]:
    return weights.reshape(*weights.shape[:2], -1)
