# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One call of attention, in the form that implementations work on; nothing is computed here.

The rules are in contract.py; checks.py brings a call into this form.
"""

import numbers
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels.contract import NOTHING, Capture, Dropout, Edits, Labels

PairBias = Callable[[Int[Array, "Q 1"], Int[Array, "1 K"]], Float[Array, "#H #Q #K"]]
"""A bias as a function of positions of queries and keys, such as ALiBi or relative positions."""


class Band(NamedTuple):
    """Offsets ``j - i`` between key and query position that causality and a window allow.

    Attributes:
        low: Smallest offset, None for no limit.
        high: Largest offset, None for no limit.
    """

    low: int | None = None
    high: int | None = None

    @property
    def whole(self) -> bool:
        """Return whether every offset is allowed."""
        return self.low is None and self.high is None


class Call(NamedTuple):
    """One checked call.

    Attributes:
        q: Queries.
        k: Keys, same dtype; heads divide those of q.
        v: Values, same dtype; their depth may differ.
        mask: Four dimensions, each full or 1.
        bias: Four dimensions, each full or 1; or a function of positions, see `PairBias`.
        segment_ids: Segment ids of queries and of keys.
        causal: Keys after the query are masked.
        scale: Factor on q·k, see ``factor``.
        dropout: None when nothing is dropped.
        labels: Labels that the sieves read.
        capture: Fields to return beside the output.
        window: Keys to the left and to the right of the query that it may attend to.
        soft_cap: Limit of the absolute score before the bias is added.
        sinks: Logit of the sink of each query head.
        query_offset: Position of the first query, one for all examples or one for each.
        edits: Functions that change scores or weights; None for none.
    """

    q: Float[Array, "B Q H D"]
    k: Float[Array, "B K G D"]
    v: Float[Array, "B K G Dv"]
    mask: Bool[Array, "#B #H #Q #K"] | None = None
    bias: Float[Array, "#B #H #Q #K"] | PairBias | None = None
    segment_ids: Int[Array, "B S"] | tuple[Int[Array, "B Q"], Int[Array, "B K"]] | None = None
    causal: bool = False
    scale: float | Float[Array, ""] | None = None
    dropout: Dropout | None = None
    labels: Labels = Labels()
    capture: Capture = NOTHING
    window: int | tuple[int | None, int | None] | None = None
    soft_cap: float | None = None
    sinks: Float[Array, " H"] | None = None
    query_offset: int | Int[Array, ""] | Int[Array, " B"] = 0
    edits: Edits | None = None

    @property
    def factor(self) -> float | Float[Array, ""]:
        """Factor on q·k: ``scale``, or 1/sqrt(D) when it is None."""
        return self.q.shape[-1] ** -0.5 if self.scale is None else self.scale

    @property
    def dtype(self) -> jnp.dtype:
        """Dtype of scores and statistics: float32, or float64 for float64 inputs."""
        return jnp.dtype(jnp.float64 if self.q.dtype == jnp.float64 else jnp.float32)

    @property
    def group(self) -> int:
        """Number of query heads that share a key/value head."""
        return self.q.shape[2] // self.k.shape[2]

    @property
    def band(self) -> Band:
        """Offsets between key and query position that ``causal`` and ``window`` allow."""
        left, right = self.window if isinstance(self.window, tuple) else (None, None)
        if self.causal:
            right = 0 if right is None else min(right, 0)
        return Band(None if left is None else -left, right)

    @property
    def static_offset(self) -> int | None:
        """The position of the first query, None when it is known at run time only."""
        offset = self.query_offset
        return int(offset) if isinstance(offset, numbers.Integral) else None

    @property
    def query_positions(self) -> Int[Array, "#B Q"]:
        """Positions of the queries, in a row for each example or in one for all."""
        first = jnp.asarray(self.query_offset, jnp.int32).reshape(-1, 1)
        return first + jnp.arange(self.q.shape[1], dtype=jnp.int32)[None]


def some_heads(call: Call, heads: tuple[int, ...]) -> Call:
    """The part of a call that belongs to some heads.

    Args:
        call: A checked call.
        heads: Their numbers.

    Returns:
        A call with ``len(heads)`` heads and the same request.
    """
    index = jnp.asarray(heads)

    def of_heads(array: Array | None) -> Array | None:
        return array if array is None or array.shape[1] == 1 else array[:, index]

    q = call.q[:, :, index]
    k, v = (array[:, :, index // call.group] for array in (call.k, call.v))
    dropout = call.dropout
    if dropout is not None:  # the same weights are dropped as in the whole call
        dropout = dropout._replace(heads=index if dropout.heads is None else dropout.heads[index])
    bias = call.bias
    if callable(bias):
        pair_bias = bias

        def of_some(rows: Array, columns: Array) -> Array:
            found = pair_bias(rows, columns)
            return found if found.shape[0] == 1 else found[index]

        bias = of_some
    else:
        bias = of_heads(bias)
    sinks = None if call.sinks is None else call.sinks[index]
    mask = of_heads(call.mask)
    return call._replace(q=q, k=k, v=v, mask=mask, bias=bias, dropout=dropout, sinks=sinks)


def without_pairs(call: Call) -> Call:
    """Return the call without its pairs, whose weights are computed beside it from its lse.

    Args:
        call: A checked call.

    Returns:
        The call itself when it asks for no pairs.
    """
    stats = call.capture.stats
    if "pairs" not in stats:
        return call
    rest = tuple(item for item in stats if item != "pairs")
    rest += () if "lse" in rest else ("lse",)
    labels = call.labels._replace(pairs=None)
    return call._replace(capture=replace(call.capture, stats=rest), labels=labels)


def without_window(call: Call) -> Call:
    """Return the call without its window, whose weights and scores are computed beside it.

    Args:
        call: A checked call.

    Returns:
        The call itself when it asks for no window.
    """
    if not call.capture.windowed:
        return call
    rest = replace(call.capture, weights=False, scores=False, query_window=None, key_window=None)
    return call._replace(capture=rest)
