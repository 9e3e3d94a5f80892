# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Static plan of a fused kernel, and the arrays of a call packed into a few.

Everything that belongs to a query row travels in two packed arrays, everything that belongs to a
key in two more, so that every kernel has the same inputs whatever was asked. No kernel here.
"""

import math
import numbers
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from flaxattn.kernels import dropout
from flaxattn.kernels.call import Band, Call, PairBias
from flaxattn.kernels.checks import needed_labels
from flaxattn.kernels.contract import Dropout, Sieve
from flaxattn.kernels.masks import restricted, sanitized

LOG2E = math.log2(math.e)
"""Scores inside kernels are in base 2: exp2 is one instruction, and the factor joins the scale."""

HALF = ("bfloat16", "float16")
"""Dtypes of inputs that leave float32 digits to spare; others keep scores in nats."""


@dataclass(frozen=True)
class KernelPlan:
    """The static facts of one call: sizes, what to compute, and which packed row is what.

    Attributes:
        batch: B.
        heads: H.
        queries: Q.
        keys: K.
        depth: D.
        value_depth: Dv.
        key_heads: G.
        dtype: Dtype of q, k, v and the output.
        scale: Factor on q·k.
        soft_cap: Limit of the scores before the bias, in nats; None for none.
        band: Offsets between the position of a key and the row of a query that are allowed.
        offset: Position of the first query; None where each example has its own, as the packed
            row "position". Tiles are then not skipped.
        sinks: Whether a packed row "sink" holds a logit that takes part in the sum.
        block_q: Query rows of a tile; packed rows are padded to a multiple of it.
        block_k: Keys of a tile; packed keys are padded to a multiple of it.
        row_floats: Names along the packed float32 rows.
        row_ints: Names along the packed int32 rows.
        key_floats: Names along the packed float32 keys.
        key_ints: Names along the packed int32 keys.
        results: Names along the packed rows that the forward kernel returns; "lse" is first, those
            of ``topk`` are last.
        sieves: Asked, the n-th is called "sieve n" in ``results``.
        topk: k of ``topk(k)``, 0 when not asked.
        weights: Dtype of the weights to write, None for none.
        scores: Whether to write the scores.
        dropout: Whether ``row_ints`` holds dropout words.
        ranged: Whether padding, segments or offsets of examples, known at run time, may mask whole
            tiles; which, is computed in tiles.py.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    depth: int
    value_depth: int
    key_heads: int
    dtype: str
    scale: float
    soft_cap: float | None
    band: Band
    offset: int | None
    sinks: bool
    block_q: int
    block_k: int
    row_floats: tuple[str, ...] = ()
    row_ints: tuple[str, ...] = ()
    key_floats: tuple[str, ...] = ()
    key_ints: tuple[str, ...] = ()
    results: tuple[str, ...] = ("lse",)
    sieves: tuple[Sieve, ...] = ()
    topk: int = 0
    weights: str | None = None
    scores: bool = False
    dropout: bool = False
    ranged: bool = False

    @property
    def nat(self) -> float:
        """Value of one nat of a score inside kernels: log2(e), or 1 for float32 inputs."""
        return _nat(self.dtype)

    @property
    def group(self) -> int:
        """Number of query heads that share a key head."""
        return self.heads // self.key_heads

    @property
    def skips(self) -> bool:
        """Return whether some tiles may be masked for every query, as known while tracing."""
        return self.offset is not None and not self.band.whole

    def keys_of(self, first: Any, last: Any) -> tuple[Any, Any]:
        """First key that rows ``first`` to ``last`` may attend to, and the one after the last.

        Takes Python integers or values inside a kernel; both ends lie in 0 to the padded keys.
        """
        low, high = self.band if self.skips else (None, None)
        offset, length = self.offset or 0, self.padded_keys
        start = 0 if low is None else jnp.clip(first + (offset + low), 0, length)
        stop = length if high is None else jnp.clip(last + (offset + high + 1), 0, length)
        return start, stop

    def rows_of(self, first: Any, last: Any) -> tuple[Any, Any]:
        """First row that may attend to keys ``first`` to ``last``, and the one after the last."""
        low, high = self.band if self.skips else (None, None)
        offset, length = self.offset or 0, self.padded_queries
        start = 0 if high is None else jnp.clip(first - (offset + high), 0, length)
        stop = length if low is None else jnp.clip(last - (offset + low - 1), 0, length)
        return start, stop

    @property
    def query_blocks(self) -> int:
        """Number of tiles along the queries."""
        return -(-self.queries // self.block_q)

    @property
    def key_blocks(self) -> int:
        """Number of tiles along the keys."""
        return -(-self.keys // self.block_k)

    @property
    def padded_queries(self) -> int:
        """Length of packed rows, Qp."""
        return self.query_blocks * self.block_q

    @property
    def padded_keys(self) -> int:
        """Length of packed keys, Kp."""
        return self.key_blocks * self.block_k


class Operands(NamedTuple):
    """The arrays of one call. A packed dimension of 1 stands for all batches or heads.

    Attributes:
        q: Queries, not padded.
        k: Keys, not padded; garbage in keys that some query may not see is taken out.
        v: Values, the same.
        row_floats: Per query, ``KernelPlan.row_floats``.
        row_ints: Per query, ``KernelPlan.row_ints``.
        key_floats: Per key, ``KernelPlan.key_floats``. "bias" is in the kernels' units: -inf for
            padding and the tail, NaN where a key or value was unusable, plus a bias that is the
            same for all queries.
        key_ints: Per key, ``KernelPlan.key_ints``.
        bias: Per pair, in natural units; masks that differ between queries are -inf in it.
        threshold: Smallest `dropout.pair_bits` that stay.
        keep_scale: 1 / (1 - dropout rate), a factor on the output.
        sinks: Logit of each head, natural units.
    """

    q: Float[Array, "B Q H D"]
    k: Float[Array, "B K G D"]
    v: Float[Array, "B K G Dv"]
    row_floats: Float[Array, "B #H Rf Qp"] | None = None
    row_ints: Int[Array, "B #H Ri Qp"] | None = None
    key_floats: Float[Array, "#B #H Kf Kp"] | None = None
    key_ints: Int[Array, "B 1 Ki Kp"] | None = None
    bias: Float[Array, "#B #H Q K"] | None = None
    threshold: Int[Array, "1"] | None = None
    keep_scale: Float[Array, "1"] | None = None
    sinks: Float[Array, " H"] | None = None


def pack(call: Call, block_q: int, block_k: int) -> tuple[KernelPlan, Operands]:
    """Turns a checked call into what kernels work on.

    Args:
        call: A checked call; ``capture.heads`` and ``received`` are left to the caller.
        block_q: Query rows of a tile.
        block_k: Keys of a tile.

    Returns:
        The plan and its arrays. Costs O(B·H·(Q + K)) memory, more only for masks and biases that
        are per pair already.
    """
    scale, q = _scale(call)
    k, v, poison = call.k, call.v, None
    if restricted(call):
        k, v, poison = sanitized(k, v)
    rows, keys = _label_vectors(call)
    if call.static_offset is None:
        rows["position"] = jnp.broadcast_to(call.query_positions, call.q.shape[:2])[:, None]
    key_bias = _key_bias(call, poison, block_k)
    if call.dropout is not None:
        batch, queries, heads, _ = call.q.shape
        rows |= _dropout_words(call.dropout, (batch, heads, queries))
    capture = call.capture
    plan = KernelPlan(
        batch=call.q.shape[0],
        heads=call.q.shape[2],
        queries=call.q.shape[1],
        keys=call.k.shape[1],
        depth=call.q.shape[3],
        value_depth=call.v.shape[3],
        key_heads=call.k.shape[2],
        dtype=call.q.dtype.name,
        scale=scale,
        soft_cap=None if call.soft_cap is None else float(call.soft_cap),
        band=call.band,
        offset=call.static_offset,
        sinks=call.sinks is not None,
        block_q=block_q,
        block_k=block_k,
        row_ints=tuple(rows),
        key_floats=() if key_bias is None else ("bias",),
        key_ints=tuple(keys),
        results=_results(call),
        sieves=capture.sieves,
        topk=capture.topk,
        weights=capture.dtype if capture.weights else None,
        scores=capture.scores,
        dropout=call.dropout is not None,
        ranged=_ranged(call),
    )
    operands = Operands(
        q,
        k,
        v,
        row_ints=stack(rows, plan.padded_queries),
        key_floats=stack({} if key_bias is None else {"bias": key_bias}, plan.padded_keys, -np.inf),
        key_ints=stack(keys, plan.padded_keys),
        bias=_pair_bias(call),
        sinks=None if call.sinks is None else call.sinks.astype(jnp.float32),
    )
    if call.dropout is None:
        return plan, operands
    rate = jax.lax.stop_gradient(jnp.asarray(call.dropout.rate, jnp.float32))
    return plan, operands._replace(
        threshold=dropout.threshold(rate)[None], keep_scale=(1 / (1 - rate))[None]
    )


def _ranged(call: Call) -> bool:
    """Return whether masks of keys, segments or positions of each example may mask whole tiles."""
    of_keys = (_per_key(_array(call.bias)), _per_key(call.mask))
    moving = call.static_offset is None and not call.band.whole
    return moving or call.segment_ids is not None or any(x is not None for x in of_keys)


def stack(vectors: dict[str, Array], length: int, fill: float = 0) -> Array | None:
    """Packs vectors ``[#B, #H, S]`` of one dtype along a new dimension, padded at the end.

    Args:
        vectors: Vectors by name, in the order of the plan's names.
        length: Padded length.
        fill: Value of the padding.

    Returns:
        ``[#B, #H, n, length]``, None for no vectors.
    """
    if not vectors:
        return None
    shapes = [vector.shape[:2] for vector in vectors.values()]
    leading = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    full = [jnp.broadcast_to(x, (*leading, x.shape[2])) for x in vectors.values()]
    # Some vectors may have their padding already, with a value of their own.
    tails = [[(0, 0), (0, 0), (0, length - x.shape[2])] for x in full]
    padded = [jnp.pad(x, tail, constant_values=fill) for x, tail in zip(full, tails, strict=True)]
    return jnp.stack(padded, axis=2)


def _scale(call: Call) -> tuple[float, Float[Array, "B Q H D"]]:
    """A static scale and the queries; a traced scale goes into the queries instead."""
    factor = call.factor
    if isinstance(factor, numbers.Real):
        return float(factor), call.q
    return 1.0, (call.q.astype(jnp.float32) * factor).astype(call.q.dtype)


def _label_vectors(call: Call) -> tuple[dict[str, Array], dict[str, Array]]:
    """Vectors that masks and sieves compare, int32 ``[B, 1, S]``, of queries and of keys."""
    names = {name for sieve in call.capture.sieves for name in needed_labels(sieve)}
    labels = call.labels._asdict()
    if isinstance(call.segment_ids, tuple):
        names |= {"of_queries", "of_keys"}
        labels |= dict(zip(("of_queries", "of_keys"), call.segment_ids, strict=True))

    def vectors(fields: dict[str, str]) -> dict[str, Array]:
        chosen = {name: labels[field] for name, field in fields.items() if field in names}
        return {name: ids.astype(jnp.int32)[:, None] for name, ids in chosen.items()}

    of_rows = {"segment": "of_queries", "label_segment": "query_segment"}
    of_keys = {"segment": "of_keys", "class": "key_class", "label_segment": "key_segment"}
    compared = [sieve.same_label for sieve in call.capture.sieves if sieve.same_label is not None]

    def numbered(array: Array | None, place: int) -> dict[str, Array]:
        if array is None:
            return {}
        chosen = dict.fromkeys(pair[place] for pair in compared)
        return {f"label {n}": array[:, None, n].astype(jnp.int32) for n in chosen}

    return (
        vectors(of_rows | {"label_token": "query_token"}) | numbered(labels["query_labels"], 0),
        vectors(of_keys | {"label_token": "key_token"}) | numbered(labels["key_labels"], 1),
    )


def _dropout_words(dropped: Dropout, shape: tuple[int, int, int]) -> dict[str, Array]:
    """The bits of every row as int32, [B, H, Q] each."""
    batch, heads, queries = shape
    positions = jnp.arange(queries, dtype=jnp.int32)
    words = dropout.row_words(dropped, batch, heads, positions)
    first, second = jax.lax.bitcast_convert_type(words, jnp.int32)
    return {"word0": first, "word1": second}


def _array(bias: Array | PairBias | None) -> Array | None:
    """The bias, which is an array in every call that a fused kernel takes."""
    assert not callable(bias)
    return bias


def _per_query(array: Array | None) -> Array | None:
    """The array if it differs between queries."""
    return array if array is not None and array.shape[2] > 1 else None


def _per_key(array: Array | None) -> Array | None:
    """The part for keys of an array that is the same for all queries."""
    return array[:, :, 0] if array is not None and array.shape[2] == 1 else None


def _key_bias(call: Call, poison: Array | None, block_k: int) -> Float[Array, "#B #H K"] | None:
    """Bias of each key for all queries, in the kernels' units; None when it is 0."""
    keys = call.k.shape[1]
    bias, mask = _per_key(_array(call.bias)), _per_key(call.mask)
    parts = [] if poison is None else [jnp.repeat(poison[:, :, 0], call.group, axis=1)]
    if bias is not None:
        parts.append(bias.astype(jnp.float32))
    if mask is not None:
        parts.append(jnp.where(mask, jnp.float32(0), -jnp.inf))
    if not parts and keys % block_k == 0:
        return None
    total = jnp.zeros((1, 1, keys), jnp.float32)
    for part in parts:
        # Padding wins over the NaN of an unusable key.
        total = jnp.where(part == -jnp.inf, part, jnp.where(total == -jnp.inf, total, total + part))
    return total * _nat(call.q.dtype.name)


def _nat(dtype: str) -> float:
    return LOG2E if dtype in HALF else 1.0


def _pair_bias(call: Call) -> Float[Array, "#B #H Q K"] | None:
    """A bias and a mask that differ between queries, in one array of full length."""
    bias, mask = _per_query(_array(call.bias)), _per_query(call.mask)
    if mask is not None:
        bias = jnp.where(mask, jnp.zeros((), call.q.dtype) if bias is None else bias, -jnp.inf)
    if bias is None:
        return None
    return jnp.broadcast_to(bias, (*bias.shape[:2], call.q.shape[1], call.k.shape[1]))


def _results(call: Call) -> tuple[str, ...]:
    """Names of the packed rows that the forward kernel returns."""
    capture = call.capture
    names = ["lse"]
    names += [name for name in ("entropy", "max", "argmax") if name in capture.names]
    # With a sink, the largest weight follows from the largest score.
    of_sink = call.sinks is not None and "max" in names
    if of_sink:
        names.remove("max")
    names += ["max_score"] if of_sink or "max_score" in capture.names else []
    names += [name for name in ("distance", "sum_sq") if name in capture.names]
    for number, sieve in enumerate(capture.sieves):
        names += [f"sieve {number}"]
        names += [f"sieve {number} mass"] if sieve.statistic == "entropy" else []
    for part in ("topk weight", "topk index"):
        names += [f"{part} {rank}" for rank in range(capture.topk)]
    return tuple(names)
