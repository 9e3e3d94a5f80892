# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Named inputs for attention, shared by the conformance tests and the benchmarks.

One list, so that what is timed is what is tested. Not a place for expected results.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from flaxattn.kernels.contract import Capture, Dropout, Labels, Sieve

STRONGEST = Sieve("strongest delimiter", key_class=1, statistic="argmax")
SIEVES = (
    Sieve("next", offsets=(1, 1)),
    Sieve("near", offsets=(-2, 2)),
    Sieve("delimiter", key_class=1),
    Sieve("same segment", same_segment=True),
    Sieve("other segment, same token", same_segment=False, same_token=True),
    Sieve("label 1 of the key", same_label=(0, 1), offsets=(-90, -1)),
    Sieve("entropy in segment", same_segment=True, key_class=1, statistic="entropy"),
    STRONGEST,
)
STATISTICS = (
    "lse",
    "entropy",
    "max",
    "argmax",
    "topk(3)",
    "distance",
    "sum_sq",
    "received",
    "max_score",
    "sink",
    "pairs",
    *SIEVES,
)
EVERYTHING = Capture(weights=True, scores=True, stats=STATISTICS)
"""A request for all that a call can return."""


@dataclass(frozen=True)
class Case:
    """One situation, from which arrays of any dtype are drawn.

    Attributes:
        name: unique, shown by tests and benchmarks.
        queries: length Q.
        keys: length K, Q when None.
        batch: B.
        heads: H.
        depth: D.
        padding: masks the keys of the later part of each example but the first.
        causal: keys after the query are masked.
        segments: number of packed sequences, 0 for no segment ids.
        bias: "" or the letters of the dimensions a bias has in full, such as "HQK".
        masked_rows: masks whole rows with a mask of all four dimensions.
        garbage: NaN and infinity in masked keys and values.
        magnitude: standard deviation of the scores.
        dropout: rate.
        groups: key heads G, H when None.
        value_depth: depth of values, D when None.
        window: keys before and after the query that it may attend to.
        soft_cap: limit of the absolute score.
        sinks: gives every head a sink.
        offset: position of the first query.
    """

    name: str
    queries: int
    keys: int | None = None
    batch: int = 2
    heads: int = 3
    depth: int = 32
    padding: bool = False
    causal: bool = False
    segments: int = 0
    bias: str = ""
    masked_rows: bool = False
    garbage: bool = False
    magnitude: float = 2.0
    dropout: float = 0.0
    groups: int | None = None
    value_depth: int | None = None
    window: tuple[int | None, int | None] | None = None
    soft_cap: float | None = None
    sinks: bool = False
    offset: int = 0

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, Q, K)."""
        return self.batch, self.heads, self.queries, self.keys or self.queries

    def arguments(self, dtype: str = "float32", seed: int = 0) -> dict[str, Any]:
        """Keyword arguments of `flaxattn.kernels.attention.attention`, without ``capture``."""
        batch, heads, queries, keys = self.shape
        draw = jax.random.split(jax.random.key(seed), 7)
        q = jax.random.normal(draw[0], (batch, queries, heads, self.depth)) * self.magnitude
        sides = batch, keys, self.groups or heads
        k = jax.random.normal(draw[1], (*sides, self.depth))
        v = jax.random.normal(draw[2], (*sides, self.value_depth or self.depth))
        padding = jnp.arange(keys)[None] < self._lengths()[:, None]
        if self.garbage:
            real = padding[:, :, None, None]
            k, v = jnp.where(real, k, jnp.nan), jnp.where(real, v, jnp.inf)
        arguments: dict[str, Any] = {"q": q, "k": k, "v": v, **self.options()}
        if self.bias:
            arguments["bias"] = jax.random.normal(draw[3], self._bias_shape())
        arguments = {
            name: array.astype(dtype) if name in ("q", "k", "v", "bias") else array
            for name, array in arguments.items()
        }
        if self.sinks:
            arguments["sinks"] = jnp.linspace(-1.0, 2.0, heads).astype(dtype)
        if self.padding:
            arguments["mask"] = padding
        if self.masked_rows:
            arguments["mask"] = jax.random.bernoulli(draw[4], 0.7, self.shape)
            arguments["mask"] &= (jnp.arange(queries) % 5 != 1)[None, None, :, None]
        if self.segments:
            arguments["segment_ids"] = (self._segments(queries), self._segments(keys))
        if self.dropout:
            arguments["dropout"] = Dropout(self.dropout, draw[5])
        return arguments | {"labels": self._labels(draw[6])}

    def options(self) -> dict[str, Any]:
        """Keyword arguments that are no arrays, as far as the case has them."""
        options = {"window": self.window, "soft_cap": self.soft_cap}
        options |= {"query_offset": self.offset or None}
        chosen = {name: value for name, value in options.items() if value is not None}
        return {"causal": self.causal} | chosen

    def _lengths(self) -> Array:
        """Real keys of each example: all in the first, fewer in each of the others."""
        batch, _, _, keys = self.shape
        return jnp.maximum(1, keys - jnp.arange(batch) * (keys // (batch + 1)))

    def _bias_shape(self) -> tuple[int, ...]:
        return tuple(
            size if letter in self.bias else 1
            for letter, size in zip("BHQK", self.shape, strict=True)
        )

    def _segments(self, length: int) -> Array:
        ids = jnp.arange(length) * max(1, self.segments) // length
        return jnp.broadcast_to(ids, (self.batch, length))

    def _labels(self, key: Key[Array, ""]) -> Labels:
        batch, _, queries, keys = self.shape
        tokens = jax.random.randint(key, (batch, max(queries, keys)), 0, 20)
        halves = [
            jnp.broadcast_to(jnp.arange(n) * 2 // n, (batch, n)).astype(jnp.int32)
            for n in (queries, keys)
        ]
        counted = jnp.arange(queries)[None] < jnp.minimum(self._lengths(), queries)[:, None]
        return Labels(
            key_class=jnp.where(tokens[:, :keys] < 3, 2, 1),
            query_segment=halves[0],
            key_segment=halves[1],
            query_token=tokens[:, :queries],
            key_token=tokens[:, :keys],
            query_mask=counted,
            query_labels=tokens[:, None, :queries] - 2,  # negative ones equal nothing
            key_labels=jnp.stack([tokens[:, :keys], jnp.roll(tokens[:, :keys], 1, axis=1) - 2], 1),
            pairs=self._pairs(key),
        )

    def _pairs(self, key: Key[Array, ""]) -> Array:
        """Nine pairs of positions in each example, the last of which is none."""
        batch, _, queries, keys = self.shape
        drawn = jax.random.randint(key, (batch, 9, 2), 0, 10**6)
        pairs = drawn % jnp.array([[[queries, keys]]])
        return jnp.where((jnp.arange(9) == 8)[None, :, None], -1, pairs)


TODAY = (
    Case("grouped", 66, heads=4, depth=16, groups=2, padding=True, bias="BHK"),
    Case("one key head", 65, depth=16, groups=1, causal=True, dropout=0.2),
    Case("window", 140, heads=2, depth=16, window=(9, 4), padding=True),
    Case("window, sinks, groups", 150, None, 1, 4, 16, groups=2, window=(40, 0), sinks=True),
    Case("soft cap", 60, heads=2, depth=16, soft_cap=2.5, bias="HQK"),
    Case("decode", 3, keys=140, depth=16, causal=True, offset=120, groups=1),
    Case("deep values", 33, depth=16, value_depth=24, sinks=True, masked_rows=True),
)
"""What models of today need: shared key heads, windows, soft caps, sinks, offsets."""

CASES = (
    Case("one", 1),
    Case("seven", 7),
    Case("padded 64", 64, padding=True),
    Case("padded 127", 127, padding=True, depth=64),
    Case("causal 128", 128, causal=True, depth=64),
    Case("padded 129", 129, padding=True, bias="BK"),
    Case("causal 512", 512, batch=1, heads=2, causal=True, bias="H"),
    Case("padded 2048", 2048, batch=1, heads=1, padding=True, segments=3, dropout=0.1),
    Case("segments", 130, segments=3),
    Case("segments, causal, padded", 96, segments=2, causal=True, padding=True),
    Case("few queries", 5, keys=140, padding=True),
    Case("few keys", 140, keys=6, causal=True),
    Case("bias of positions", 129, bias="HQK"),
    Case("bias of everything", 66, bias="BHQK", padding=True),
    Case("masked rows", 70, masked_rows=True, bias="HQK"),
    Case("garbage in padding", 131, padding=True, garbage=True),
    Case("huge scores", 65, magnitude=1e4, padding=True),
    Case("dropout", 70, dropout=0.2, padding=True),
    Case("dropout, causal 129", 129, dropout=0.1, causal=True),
    Case("odd heads and depth", 33, batch=3, heads=5, depth=20, causal=True),
    *TODAY,
)
"""Every situation an implementation must get right."""

BENCHMARKS = (
    Case("BERT-base", 512, batch=64, heads=12, depth=64),
    Case("long", 16_384, batch=1, heads=12, depth=64),
    Case("BERT-base, one example", 512, batch=1, heads=12, depth=64),
    Case("short", 128, batch=8, heads=12, depth=64),
    Case("short, padded", 128, batch=8, heads=12, depth=64, padding=True),
    Case("BERT-base, padded", 512, batch=64, heads=12, depth=64, padding=True),
    Case("BERT-base, packed", 512, batch=64, heads=12, depth=64, segments=4),
    Case("long, causal", 16_384, batch=1, heads=12, depth=64, causal=True),
    Case("long, window", 16_384, batch=1, heads=12, depth=64, window=(1023, 0)),
)
"""What is timed; `RESTRICTED` and the first two on accelerators, the others on CPU."""

RESTRICTED = tuple(case.name for case in BENCHMARKS[5:])
"""Names of the cases with masked pairs, where skipping tiles and masking show."""


def case(name: str) -> Case:
    """The case of that name."""
    return {each.name: each for each in CASES + BENCHMARKS}[name]
