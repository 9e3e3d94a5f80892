# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Contract of every attention implementation: letters, layouts, rules and types.

This file computes nothing; the arrays of one call are in call.py, their checks in checks.py.

Dimension letters, the same everywhere::

    B batch   H query head   G key/value head   Q query position   K key position
    D depth of a head   R statistic

Layouts::

    q [B, Q, H, D]     k [B, K, G, D]     v [B, K, G, Dv]     output [B, Q, H, Dv]
    weights, scores [B, H, Q, K]     row statistics [B, H, Q]     received [B, H, K]

H is a multiple of G: query heads ``g * H / G`` to ``(g + 1) * H / G - 1`` share key/value head g.
Captures and statistics are of query heads. Keys count from 0; the query of row r is at position
``r + query_offset`` (a cache holds earlier keys, a prompt comes in chunks).

Scores are ``scale * q·k``, then ``soft_cap * tanh(score / soft_cap)``, then plus ``bias``.

Who may look at whom. A query may attend to a key when *all* of these hold:

* ``mask`` is True there. ``[B, K]`` marks real keys (False = padding); four dimensions broadcast
  to ``[B, H, Q, K]``.
* ``segment_ids`` of query and key are equal (packed sequences).
* with ``causal``, the key position is not after the query position: ``j <= i``, also when Q and K
  differ.
* with ``window = (left, right)``, the key is near: ``i - left <= j <= i + right``; None on a side
  sets no limit there.
* the score itself is above minus infinity (an additive ``bias`` may hold ``-inf``).

A row without any attendable key gives output 0, weights 0, lse ``-inf``, entropy 0, max 0,
argmax -1, distance 0, sum_sq 0, max_score ``-inf`` and masses 0. NaN and infinity in a key or value
reach only the queries that may attend to it, in the results and in the gradients. A NaN in a query
row stays in the results of that row.

``sinks`` are one more logit for every row, the same for all queries of a head: it is in the sum
that weights are divided by and in ``lse``, but it is not a key and has no value. Its weight is the
statistic ``sink``; the weights of the keys then sum to ``1 - sink``.

Statistics, in nats and tokens, from the weights *before* dropout, in float32 (float64 if q is)::

    lse         log of the sum of exp(scores)                                   [B, H, Q]
    entropy     -sum_j p_j log p_j                                              [B, H, Q]
    max         largest weight                                                  [B, H, Q]
    argmax      its key, the first of equals; int32, no gradient                [B, H, Q]
    topk(k)     k <= 8 largest, as "topk_weights" and "topk_indices" (int32)    [B, H, Q, R]
                rows with fewer attendable keys end in weight 0, index -1
    distance    sum_j p_j |i - j|                                               [B, H, Q]
    sum_sq      sum_j p_j^2 (1 / sum_sq is the effective number of keys)        [B, H, Q]
    received    sum of the weights each key gets over the counted queries       [B, H, K]
    max_score   largest score of an attendable key, what QK-Clip watches        [B, H, Q]
    sink        weight of the sink, 0 without ``sinks``                         [B, H, Q]
    pairs       weights of the P (query, key) pairs in ``Labels.pairs``         [B, H, P]
    a Sieve     a statistic of the keys in the sieve, under the sieve's name    [B, H, Q]
"""

import difflib
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

STATISTICS = (
    *("lse", "entropy", "max", "argmax", "topk(k)", "distance", "sum_sq", "received"),
    *("max_score", "sink", "pairs"),
)
"""Names a request may use; ``topk(k)`` stands for topk(1) to topk(8)."""

MAX_TOPK = 8
VECTOR_DTYPES = ("float32", "bfloat16", "float16")
WEIGHT_DTYPES = (*VECTOR_DTYPES, "uint8")
_TOPK = re.compile(r"topk\((\d+)\)")
_TOPK_KEYS = ("topk_weights", "topk_indices")


SIEVE_STATISTICS = ("mass", "entropy", "argmax")
"""Statistics that a sieve may report of its keys."""


@dataclass(frozen=True)
class Sieve:
    """A set of keys for every query, and the statistic of the attention that falls into it.

    Conditions that are set must all hold (after "The heads hypothesis", Pande et al. 2021, where
    a sieve is the set of tokens a head is expected to look at).

    >>> import jax.numpy as jnp
    >>> from flaxattn.kernels.attention import attention
    >>> q = k = v = jnp.ones((1, 5, 4, 8))
    >>> following = Sieve("following", offsets=(1, 1))
    >>> output, record = attention(q, k, v, capture=Capture(stats=(following,)))
    >>> print(record.stats["following"][0, 0])  # [B, H, Q]; the last query has no next key
    [0.2 0.2 0.2 0.2 0. ]

    Attributes:
        name: Key of the statistic in ``Intermediates.stats``.
        key_class: Bit number, 0 to 31, that must be set in ``Labels.key_class`` of the key.
        offsets: ``(low, high)``, both included, for ``j - i``; the next token is ``(1, 1)``.
        same_segment: True wants equal segments in ``Labels``, False different ones.
        same_token: True wants equal token ids in ``Labels``, False different ones.
        same_label: ``(a, b)`` wants label a of the query equal to label b of the key, see
            ``Labels.query_labels``; a negative label equals nothing.
        statistic: "mass", the sum of the weights in the set; "entropy" in nats of these weights
            scaled to a sum of 1, 0 where they have no mass; "argmax", the key in the set with the
            largest weight, the first of equals, -1 where there is none (int32, no gradient).

    Raises:
        ValueError: Empty or reserved name, no condition, bit or label out of range,
            ``low > high``, an unknown statistic.
    """

    name: str
    key_class: int | None = None
    offsets: tuple[int, int] | None = None
    same_segment: bool | None = None
    same_token: bool | None = None
    same_label: tuple[int, int] | None = None
    statistic: str = "mass"

    def __post_init__(self):
        if not self.name or not isinstance(self.name, str):
            raise ValueError(f"Sieve: name is {self.name!r}, expected a non-empty string.")
        if self.name in STATISTICS + _TOPK_KEYS or _TOPK.fullmatch(self.name):
            raise ValueError(f"Sieve: {self.name!r} is the name of a statistic; use another name.")
        if all(condition is None for condition in self.conditions):
            raise ValueError(
                f"Sieve {self.name!r} has no condition.\n"
                "Fix: set key_class, offsets, same_segment, same_token or same_label."
            )
        if self.statistic not in SIEVE_STATISTICS:
            raise ValueError(
                f"Sieve {self.name!r}: unknown statistic {self.statistic!r}.\n"
                f"Known: {', '.join(SIEVE_STATISTICS)}."
            )
        if self.same_label is not None:
            object.__setattr__(self, "same_label", tuple(self.same_label))
            if len(self.same_label) != 2 or min(self.same_label) < 0:
                raise ValueError(
                    f"Sieve {self.name!r}: same_label is {self.same_label}, expected the index of "
                    "a query label and of a key label, both from 0."
                )
        if self.key_class is not None and not 0 <= self.key_class <= 31:
            raise ValueError(
                f"Sieve {self.name!r}: key_class is {self.key_class}, expected a bit from 0 to 31."
            )
        if self.offsets is not None:
            object.__setattr__(self, "offsets", tuple(self.offsets))
            if len(self.offsets) != 2 or self.offsets[0] > self.offsets[1]:
                raise ValueError(
                    f"Sieve {self.name!r}: offsets are {self.offsets}, expected (low, high) "
                    "with low <= high."
                )

    @property
    def conditions(self) -> tuple[Any, ...]:
        """The conditions on the keys in the set, None for a condition that is not set."""
        return (
            *(self.key_class, self.offsets, self.same_segment, self.same_token),
            self.same_label,
        )


@dataclass(frozen=True)
class Capture:
    """Request for intermediates of a call. Hashable, static under ``jax.jit``.

    Memory for what is requested, per call: ``weights`` B·H·Q·K entries of ``dtype``; ``scores``
    4·B·H·Q·K bytes; each row statistic 4·B·H·Q bytes; what is not asked costs nothing.

    A request never changes the output of an implementation by more than rounding: not by a bit
    where the same blocks are computed ("reference", "tpu", and "xla" except for maps of causal
    calls from 512 queries, there by 2e-6 in float32), and by a unit of the dtype where a Hopper
    kernel takes tiles of another size.

    >>> import jax.numpy as jnp
    >>> from flaxattn.kernels.attention import attention
    >>> q = k = v = jnp.ones((1, 5, 4, 8))
    >>> output, record = attention(q, k, v, capture=Capture(stats=("entropy", "max"), heads=(2,)))
    >>> record.stats["entropy"].shape  # [B, H, Q]
    (1, 1, 5)

    Attributes:
        weights: Attention weights after softmax, before dropout, ``[B, H, Q, K]``.
        scores: Scaled and biased scores, ``-inf`` where masked, float32 ``[B, H, Q, K]``.
        query: Projected queries. This and the next three are recorded by the model, not here.
        key: Projected keys.
        value: Projected values.
        head_output: Output of each head before the output projection.
        hidden: Output of each layer, ``[B, S, E]``, before any normalization that follows the
            last one. Recorded by the model; it is of no head.
        stats: Statistic names (see the table of this module) and sieves.
        layers: Layers to record, all when None. Read by the model.
        heads: Heads to record, in this order, all when None. Everything captured, statistics
            too, then has ``len(heads)`` in place of H.
        dtype: Dtype of ``weights``: float32, bfloat16, float16, or uint8 holding round(255 p).
        query_window: ``(start, stop)``, the queries whose weights and scores are wanted, all when
            None. These then have ``stop - start`` in place of Q, and cost no more memory than that.
            Statistics are of all queries.
        key_window: ``(start, stop)``, the keys that are wanted of these rows, the same way. A
            weight is a share of its whole row, whatever part of the row is wanted.
        vector_dtype: Dtype of ``query``, ``key``, ``value``, ``head_output`` and ``hidden``:
            float32, bfloat16 or float16; None keeps the dtype of the computation.

    Raises:
        ValueError: Unknown or repeated statistic, unknown dtype, negative or repeated number in
            ``layers`` or ``heads``, an empty window, or one without weights and scores.
    """

    weights: bool = False
    scores: bool = False
    query: bool = False
    key: bool = False
    value: bool = False
    head_output: bool = False
    hidden: bool = False
    stats: tuple[str | Sieve, ...] = ()
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    dtype: str = "float32"
    query_window: tuple[int, int] | None = None
    key_window: tuple[int, int] | None = None
    vector_dtype: str | None = None

    def __post_init__(self):
        object.__setattr__(self, "stats", _statistics(self.stats))
        object.__setattr__(self, "layers", _numbers("layers", self.layers))
        object.__setattr__(self, "heads", _numbers("heads", self.heads))
        object.__setattr__(self, "dtype", _dtype("weights", self.dtype, WEIGHT_DTYPES))
        if self.vector_dtype is not None:
            vectors = _dtype("vectors", self.vector_dtype, VECTOR_DTYPES)
            object.__setattr__(self, "vector_dtype", vectors)
        for name in ("query_window", "key_window"):
            object.__setattr__(self, name, _window(name, getattr(self, name)))
        if self.windowed and not (self.weights or self.scores):
            raise ValueError(
                "Capture: a window is a part of weights or scores, and neither is asked.\n"
                "Fix: weights=True; statistics are always of whole rows."
            )

    @property
    def windowed(self) -> bool:
        """Return whether weights and scores of some positions only are requested."""
        return self.query_window is not None or self.key_window is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Plain statistics that were asked, ``topk(k)`` as written."""
        return tuple(item for item in self.stats if isinstance(item, str))

    @property
    def sieves(self) -> tuple[Sieve, ...]:
        """Sieves that were asked."""
        return tuple(item for item in self.stats if isinstance(item, Sieve))

    @property
    def topk(self) -> int:
        """The k of ``topk(k)``, 0 when it was not asked."""
        found = [_TOPK.fullmatch(name) for name in self.names]
        return next((int(match[1]) for match in found if match), 0)

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of ``Intermediates.stats``, in the order asked."""
        keys: list[str] = []
        for item in self.stats:
            name = item.name if isinstance(item, Sieve) else item
            keys += _TOPK_KEYS if _TOPK.fullmatch(name) else (name,)
        return tuple(keys)


def _statistics(stats: Iterable[str | Sieve]) -> tuple[str | Sieve, ...]:
    if isinstance(stats, str | Sieve):
        raise ValueError(f"Capture: stats is {stats!r}, expected a tuple.\nFix: stats=({stats!r},)")
    stats = tuple(stats)
    known: set[str] = set()
    for item in stats:
        name = item.name if isinstance(item, Sieve) else _known(item)
        if name in known:
            raise ValueError(f"Capture: {name!r} is in stats twice; each name may appear once.")
        known.add(name)
    return stats


def _known(name: Any) -> str:
    """The statistic's name, ``topk`` for any k, or an error that offers the nearest one."""
    match = _TOPK.fullmatch(name) if isinstance(name, str) else None
    if match and 1 <= int(match[1]) <= MAX_TOPK:
        return "topk"
    if match:
        raise ValueError(f"Capture: {name!r} is out of range, expected topk(1) to topk({MAX_TOPK})")
    if name in STATISTICS and name != "topk(k)":
        return name
    near = difflib.get_close_matches(str(name), STATISTICS, n=1, cutoff=0.4)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise ValueError(
        f"Capture: unknown statistic {name!r}.\n{hint}Known: {', '.join(STATISTICS)}, or a Sieve."
    )


def _numbers(what: str, numbers: Iterable[int] | None) -> tuple[int, ...] | None:
    if numbers is None:
        return None
    numbers = (numbers,) if isinstance(numbers, int) else tuple(int(n) for n in numbers)
    if not numbers or min(numbers) < 0 or len(set(numbers)) != len(numbers):
        raise ValueError(
            f"Capture: {what} is {numbers}, expected different numbers counted from 0.\n"
            f"Fix: {what}=None records all of them."
        )
    return numbers


def _window(name: str, window: Any) -> tuple[int, int] | None:
    if window is None:
        return None
    try:
        start, stop = (operator.index(end) for end in window)
    except (TypeError, ValueError):
        start, stop = 0, 0
    if not 0 <= start < stop:
        raise ValueError(
            f"Capture: {name} is {window!r}, expected (start, stop) with 0 <= start < stop.\n"
            f"Fix: {name}=None takes all positions."
        )
    return start, stop


def _dtype(what: str, dtype: Any, known: tuple[str, ...]) -> str:
    try:
        name = jnp.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in known:
        raise ValueError(
            f"Capture: dtype of {what} is {name!r}, expected one of {', '.join(known)}."
        )
    return name


NOTHING = Capture()
"""The request of somebody who only wants the output."""


class Labels(NamedTuple):
    """Labels of positions for sieves and ``received``. Leave out those that are not needed.

    >>> import jax.numpy as jnp
    >>> from flaxattn.kernels.attention import attention
    >>> q = k = v = jnp.ones((1, 4, 2, 8))
    >>> words = jnp.array([[7, 8, 7, 7]])
    >>> labels = Labels(query_token=words, key_token=words)
    >>> same = Capture(stats=(Sieve("same", same_token=True),))
    >>> output, record = attention(q, k, v, labels=labels, capture=same)
    >>> print(record.stats["same"][0, 0])  # shares of attention on the same word
    [0.75 0.25 0.75 0.75]

    Attributes:
        key_class: Bitmask of the classes each key belongs to.
        query_segment: Segment of each query, for ``Sieve.same_segment``.
        key_segment: Segment of each key.
        query_token: Token id of each query, for ``Sieve.same_token``.
        key_token: Token id of each key.
        query_mask: True for the queries counted in ``received`` (False for padding).
        query_labels: A integer labels of each query, for ``Sieve.same_label``.
        key_labels: C integer labels of each key.
        pairs: Query and key of the weights that ``pairs`` returns; negative for none.
    """

    key_class: Int[Array, "B K"] | None = None
    query_segment: Int[Array, "B Q"] | None = None
    key_segment: Int[Array, "B K"] | None = None
    query_token: Int[Array, "B Q"] | None = None
    key_token: Int[Array, "B K"] | None = None
    query_mask: Bool[Array, "B Q"] | None = None
    query_labels: Int[Array, "B A Q"] | None = None
    key_labels: Int[Array, "B C K"] | None = None
    pairs: Int[Array, "B P 2"] | None = None


class Dropout(NamedTuple):
    """Dropout on the weights that make the output; captured weights are those before it.

    >>> from flaxattn.kernels.attention import attention
    >>> q = k = v = jax.numpy.ones((1, 5, 4, 8))
    >>> output, record = attention(q, k, v, dropout=Dropout(0.5, jax.random.key(0)))
    >>> output.shape
    (1, 5, 4, 8)

    Attributes:
        rate: Probability that a weight is dropped, 0 <= rate < 1. Kept ones grow by 1/(1-rate).
        key: A PRNG key. The mask is a function of (key, batch, head, query, key position), the
            same in every implementation, forward and backward. Positions are counted inside the
            call, so under ``shard_map`` fold the index of the shard into the key.
        heads: Numbers of the heads of the call, of which the mask is a function; None counts them
            from 0.
    """

    rate: float | Float[Array, ""]
    key: Key[Array, ""] | Shaped[Array, "2"]
    heads: Int[Array, " H"] | None = None


class Edits(NamedTuple):
    """Functions that change attention while it is computed; only "reference" runs them.

    Captured scores and weights are those after the edits. With an edit of weights, statistics are
    those of the edited weights, whose logarithms stand for scores; a weight that is not above 0
    counts as masked there. Gradients flow through both functions.

    >>> from flaxattn.kernels.attention import attention
    >>> q = k = v = jax.numpy.ones((1, 5, 4, 8))
    >>> silent = Edits(weights=lambda weights: weights.at[:, 2].set(0.0))
    >>> float(attention(q, k, v, edits=silent)[0][:, :, 2].max())
    0.0

    Attributes:
        scores: Maps scaled, biased scores ``[B, H, Q, K]``, ``-inf`` where masked, to new ones.
        weights: Maps the weights ``[B, H, Q, K]`` before dropout to new ones, which need not sum
            to one.
    """

    scores: Callable[[Float[Array, "B H Q K"]], Float[Array, "B H Q K"]] | None = None
    weights: Callable[[Float[Array, "B H Q K"]], Float[Array, "B H Q K"]] | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Intermediates:
    """Intermediates of one call of attention. Fields that were not captured are None.

    >>> from flaxattn.kernels.attention import attention
    >>> q = k = v = jax.numpy.ones((1, 5, 4, 8))
    >>> output, record = attention(q, k, v, capture=Capture(weights=True))
    >>> record.weights.shape, record.scores is None
    ((1, 4, 5, 5), True)

    Attributes:
        weights: Weights before dropout, in the requested dtype; of the window where one was
            requested.
        scores: Scaled and biased, ``-inf`` where masked, float32; of the window, too.
        stats: The statistics by name, see the table of this module.
        implementation: The one that ran.
    """

    weights: Shaped[Array, "B H Q K"] | None = None
    scores: Float[Array, "B H Q K"] | None = None
    stats: dict[str, Array] = field(default_factory=dict)
    implementation: str = field(default="", metadata={"static": True})
