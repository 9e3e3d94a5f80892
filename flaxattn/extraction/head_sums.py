# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sums over what attention saw, on the device: the scores of `flaxattn.heads.terms`, without maps.

Statistics of queries come from the kernel; what single pairs of positions need, from queries, keys
and lse of one layer at a time. A few numbers per head and text leave the device. Which texts make a
batch is decided elsewhere.

Cost beside the model, per layer and text of N positions: a pass over N^2 scores for each sieve, and
2 N^2 D operations per head for single weights. One layer's scores exist at a time, 4 B H N^2 bytes.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from flaxattn.heads.layout import Layout
from flaxattn.heads.terms import WINDOW, Column, Terms
from flaxattn.kernels.contract import Capture, Sieve
from flaxattn.kernels.reductions import entropy, exponentiate
from flaxattn.seen import Seen

PLAIN, SPECIAL, FIRST, SEPARATOR = 24, 25, 26, 27
"""Bits of key classes that the sieves look at, above those that models use."""

_TOP = 4  # with at most three delimiters, the strongest plain key is among the first four
_SIEVES = (
    Sieve("next", offsets=(1, 1)),
    Sieve("previous", offsets=(-1, -1)),
    Sieve("own", offsets=(0, 0)),
    Sieve("local", offsets=(-WINDOW, WINDOW)),
    Sieve("own segment", same_segment=True),
    Sieve("block", key_class=PLAIN, same_segment=True),
    Sieve("other block", key_class=PLAIN, same_segment=False),
    Sieve("special", key_class=SPECIAL),
    Sieve("first", key_class=FIRST),
    Sieve("separators", key_class=SEPARATOR),
    Sieve("same token", same_token=True),
    Sieve("same token elsewhere", same_token=True, same_segment=False),
)
_STATISTICS = ("lse", "entropy", "distance", "sum_sq", "received", f"topk({_TOP})")
_TIMES_ENTROPY = " x entropy"
NOTES = (
    *("special_at", "block_at", "rare_at", "row_terms", "key_terms"),
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

    rows: tuple[tuple[Column, str], ...]
    keys: tuple[Column, ...]
    pairs: tuple[Column, ...]
    hits: tuple[Column, ...]

    @classmethod
    def of(cls, terms: Sequence[Terms]) -> "HeadSums":
        """All that any of these texts needs.

        Args:
            terms: Of the texts.
        """

        def every(name: str) -> tuple:
            return tuple(dict.fromkeys(key for one in terms for key in getattr(one, name)))

        return cls(every("rows"), every("keys"), every("pairs"), every("hits"))

    @property
    def capture(self) -> Capture:
        """What the model has to record for it."""
        wanted = {source.removesuffix(_TIMES_ENTROPY) for _, source in self.rows}
        sieves = tuple(sieve for sieve in _SIEVES if sieve.name in wanted)
        return Capture(query=True, key=True, stats=(*_STATISTICS, *sieves))

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
        texts: Sequence[tuple[Layout, Terms]],
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
        special = np.zeros((rows, width), bool)
        block = np.full((rows, width, 2), -1, np.int32)
        row_terms = np.zeros((rows, len(self.rows), width), np.float32)
        key_terms = np.zeros((rows, len(self.keys), width), np.float32)
        pair_at = np.zeros((rows, pairs, 2), np.int32)
        pair_terms = np.zeros((rows, pairs, len(self.pairs)), np.float32)
        hit_at = np.zeros((rows, hits, 3), np.int32)
        hit_terms = np.zeros((rows, hits, len(self.hits)), np.float32)
        for b, (layout, terms) in enumerate(texts):
            special[b, : len(layout)] = layout.special
            block[b, : len(layout), 0] = layout.segments
            block[b, : len(layout), 1] = np.where(layout.plain, layout.segments, -2)
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
        return dict(zip(NOTES, (special, block, _rare(texts, rows), *terms), strict=True))

    def unpacked(
        self, stats: Mapping[str, np.ndarray], terms: Terms
    ) -> dict[Column, Float[np.ndarray, "L H"]]:
        """The numbers of one text by column; those it has no value for are left out.

        Args:
            stats: What `__call__` made, of one row: `[L, H, R]` each.
            terms: Of the text.
        """
        found: dict[Column, np.ndarray] = {}
        for r, (column, source) in enumerate(self.rows):
            if (column, source) in terms.rows:
                found[column] = found.get(column, 0) + stats["rows"][..., r]
        for kind in ("keys", "pairs", "hits"):
            for r, column in enumerate(getattr(self, kind)):
                if column in getattr(terms, kind):
                    found[column] = stats[kind][..., r]
        return found

    def __call__(self, sides: Mapping[str, Seen], notes: Mapping[str, Array]) -> dict[str, Seen]:
        """The sums, inside the compiled step.

        Args:
            sides: What attention saw, with `capture`.
            notes: From `packed`.

        Returns:
            An encoder's record whose statistics are `rows`, `keys`, `pairs` and `hits`
            `[L, B, H, R]`.
        """
        seen = sides["encoder"]
        strongest = _strongest(seen, notes["special_at"])
        statistics = _sources(seen, strongest, notes["rare_at"])
        single, statistics["entropy in block"] = _single(seen, notes)
        stacked = jnp.stack([statistics[source] for _, source in self.rows])
        found = {
            "rows": _product("rlbhq,brq->lbhr", stacked, notes["row_terms"]),
            "keys": _product("lbhk,brk->lbhr", seen.stats["received"], notes["key_terms"]),
        }
        if self.pairs:
            found["pairs"] = single
        if self.hits:
            at = notes["hit_at"]
            keys = jnp.take_along_axis(strongest, at[None, :, None, :, 0], axis=3)
            inside = (keys >= at[None, :, None, :, 1]) & (keys <= at[None, :, None, :, 2])
            terms = notes["hit_terms"]
            found["hits"] = _product("lbha,bar->lbhr", inside.astype(terms.dtype), terms)
        return {"encoder": Seen(stats=found, layers=seen.layers, heads=seen.heads)}


def key_classes(layout: Layout) -> Int[np.ndarray, " N"]:
    """The classes of each position that the sieves look at."""
    members = {
        PLAIN: layout.plain,
        SPECIAL: layout.special,
        FIRST: layout.first,
        SEPARATOR: layout.separators,
    }
    bits = [member.astype(np.int32) << bit for bit, member in members.items()]
    return np.bitwise_or.reduce(bits)


def _places(terms: Terms) -> dict[tuple[int, int], int]:
    """Every pair of positions that is needed, each once, with its place."""
    pairs = dict.fromkeys((i, j) for found in terms.pairs.values() for i, j, _ in found)
    return {pair: place for place, pair in enumerate(pairs)}


def _rounded(count: int) -> int:
    return -(-count // 32) * 32


def _rare(texts: Sequence[tuple[Layout, Terms]], rows: int) -> Int[np.ndarray, "B 1"]:
    found = np.full((rows, 1), -1, np.int32)
    found[: len(texts), 0] = [layout.rare for layout, _ in texts]
    return found


def _product(form: str, one: Array, other: Array) -> Array:
    """A product that no accelerator rounds to fewer bits."""
    return jnp.einsum(form, one, other, precision=jax.lax.Precision.HIGHEST)


def _strongest(seen: Seen, special: Bool[Array, "B K"]) -> Int[Array, "L B H Q"]:
    """The strongest key of each query, delimiters apart; -1 where there is none among the top."""
    keys = seen.stats["topk_indices"]
    taken = jnp.take_along_axis(
        special[None, :, None, None, :], jnp.maximum(keys, 0), axis=4, mode="clip"
    )
    open_ = (keys >= 0) & ~taken
    place = jnp.argmax(open_, axis=-1, keepdims=True)
    found = jnp.take_along_axis(keys, place, axis=-1)[..., 0]
    return jnp.where(open_.any(-1), found, -1)


def _sources(
    seen: Seen, strongest: Int[Array, "L B H Q"], rare: Int[Array, "B 1"]
) -> dict[str, Float[Array, "L B H Q"]]:
    """The statistics of each query that follow from the kernel's."""
    stats = dict(seen.stats)
    largest, stats["max"] = stats["topk_indices"][..., 0], stats["topk_weights"][..., 0]
    dtype, place = stats["max"].dtype, jnp.arange(largest.shape[-1], dtype=jnp.int32)
    for block in ("block", "other block"):
        if block in stats:
            stats[f"{block}{_TIMES_ENTROPY}"] = stats[block] * stats["entropy"]
    for name, step in (("next", 1), ("previous", -1)):
        wished = (place + step)[None, None, None]
        stats[f"argmax {name}"] = (largest == wished).astype(dtype)
        stats[f"strongest {name}"] = (strongest == wished).astype(dtype)
    stats["strongest rare"] = (strongest == rare[None, :, None]).astype(dtype)
    return stats


def _single(
    seen: Seen, notes: Mapping[str, Array]
) -> tuple[Float[Array, "L B H R"], Float[Array, "L B H Q"]]:
    """Sums of single weights, and entropies in the own block, one layer after the other."""
    assert seen.query is not None and seen.key is not None
    at, terms, block = notes["pair_at"], notes["pair_terms"], notes["block_at"]
    flat = at[:, None, :, 0] * seen.key.shape[2] + at[:, None, :, 1]  # [B, 1, P]
    inside = block[:, None, :, None, 0] == block[:, None, None, :, 1]  # [B, 1, Q, K]

    def layer(saw: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        query, key, lse = saw
        query = query.astype(lse.dtype) * query.shape[-1] ** -0.5
        logs = _product("bqhd,bkhd->bhqk", query, key.astype(lse.dtype)) - lse[..., None]
        b, h = logs.shape[:2]
        chosen = jnp.take_along_axis(logs.reshape(b, h, -1), flat, axis=2)
        sums = _product("bhp,bpr->bhr", jnp.exp(chosen), terms)
        rows = exponentiate(jnp.where(inside, logs, -jnp.inf))
        return sums, entropy(rows)

    return jax.lax.map(layer, (seen.query, seen.key, seen.stats["lse"]))
