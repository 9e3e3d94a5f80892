# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Additive attention (Bahdanau et al. 2015): scores from a small network instead of q·k.

The softmax and the average are those of `flaxattn.kernels.attention`, which gets the scores as a
bias. This file knows no recurrent model.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import linen as nn
from flax.linen.dtypes import promote_dtype
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float

from flaxattn.kernels.attention import attention
from flaxattn.kernels.contract import NOTHING, Capture, Intermediates, Labels
from flaxattn.models.layers import Dense, record
from flaxattn.trace.record import AttentionRecord


class Look(NamedTuple):
    """Output of one query of additive attention; R queries, or [R, T, …] of T steps.

    Attributes:
        context: Weighted sum of the values.
        scores: Of the keys, -inf at padding; float32. None where they are not kept.
        query: As it was scored. None where it is not kept.
    """

    context: Float[Array, "R *T C"]
    scores: Float[Array, "R *T K"] | None
    query: Float[Array, "R *T A"] | None


class Alignment(NamedTuple):
    """A source that has been read, for states to look at. Pure functions, for the body of a scan.

    Attributes:
        query: W of the score.
        score: v of the score.
        keys: U h + b of every source position.
        values: h, what is averaged.
        mask: True at real source positions.
        implementation: Name of the attention kernel.
    """

    query: Float[Array, "N A"]
    score: Float[Array, " A"]
    keys: Float[Array, "B K A"]
    values: Float[Array, "B K C"]
    mask: Bool[Array, "B K"] | None
    implementation: str

    def look(self, states: Float[Array, "R N"]) -> Look:
        """Attend from one state of every sequence; R / B sequences in a row share a source."""
        batch, rows = self.keys.shape[0], states.shape[0]
        query = (states @ self.query).reshape(batch, -1, 1, self.query.shape[1])
        hidden = nn.tanh(query + self.keys[:, None])
        exact = jnp.float64 if hidden.dtype == jnp.float64 else jnp.float32
        scores = jnp.einsum("bqka,a->bqk", hidden, self.score, preferred_element_type=exact)
        if self.mask is not None:
            scores = jnp.where(self.mask[:, None], scores, -jnp.inf)
        context, _ = self.weigh(scores)
        return Look(*(part.reshape(rows, -1) for part in (context, scores, query)))

    def weigh(
        self, scores: Float[Array, "B Q K"], **requested: Any
    ) -> tuple[Float[Array, "B Q C"], Intermediates]:
        """Softmax and average. The scores are a bias to queries and keys that are zero."""
        values = self.values[:, :, None]
        zero = jnp.zeros((*scores.shape[:2], *values.shape[2:]), values.dtype)
        output, intermediates = attention(
            zero,
            jnp.zeros_like(values),
            values,
            bias=scores[:, None],
            implementation=self.implementation,
            **requested,
        )
        return output[:, :, 0], intermediates


class AdditiveAttention(nn.Module):
    """Attention by v·tanh(W s + U h + b) instead of q·k, one head (Bahdanau et al. 2015, A.1.2).

    For queries that come one after the other, each from a state that the step before has made: a
    call reads the source, the `Alignment` it returns is looked at step by step, and `keep` records
    what all steps saw. The kernel is "xla" unless another one is named, since no product of q and k
    is left for a fused one.

    Parameters: `query` W, `key` U and b, `score` v. With a `cache_length`, where the collection
    `cache` is mutable, the source is read only once.

    Attributes:
        features: A, width of the scoring layer.
        query_features: N, width of a state.
        dtype: Computation dtype.
        capture: What `keep` records, as `AttentionRecord`.
        implementation: Name of the kernel.
        cache_length: Above 0 for a cache.
    """

    features: int
    query_features: int
    dtype: Dtype = jnp.float32
    capture: Capture = NOTHING
    implementation: str | None = None
    cache_length: int = 0

    @nn.compact
    def __call__(
        self, context: Float[Array, "B K C"], mask: Bool[Array, "B K"] | None = None
    ) -> Alignment:
        """Read the source."""
        init = nn.initializers.lecun_normal()
        query = self.param("query", init, (self.query_features, self.features))
        score = self.param("score", nn.initializers.normal(0.1), (self.features,))
        query, score = promote_dtype(query, score, dtype=self.dtype)
        caching = self.cache_length > 0 and self.is_mutable_collection("cache")
        caching = caching and not self.is_initializing()
        if caching and self.has_variable("cache", "key"):
            keys, values = (self.get_variable("cache", name) for name in ("key", "value"))
        else:
            values = context.astype(self.dtype)
            scale = context.shape[-1] ** -0.5
            keys = Dense(self.features, self.dtype, scale, name="key")(values)
            if caching:
                self.put_variable("cache", "key", keys)
                self.put_variable("cache", "value", values)
        return Alignment(query, score, keys, values, mask, self.implementation or "xla")

    def keep(self, source: Alignment, looks: Look, labels: Labels | None = None) -> None:
        """Record the attention of T steps, a row each.

        Whatever is captured, the scores of all steps are kept: 4 R T K bytes.
        """
        assert looks.scores is not None and looks.query is not None
        batch, length, _ = source.keys.shape
        scores = looks.scores.reshape(batch, -1, length)
        _, intermediates = source.weigh(scores, labels=labels, capture=self.capture)
        of_queries = {"query": looks.query, "head_output": looks.context}
        of_keys = {"key": source.keys, "value": source.values}
        projections = {n: array[:, :, None] for n, array in (of_queries | of_keys).items()}
        record(
            self, "attention_record", AttentionRecord.of(self.capture, intermediates, **projections)
        )
