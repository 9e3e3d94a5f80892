# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`AttentionRecord`: what one attention stack recorded, sown by modules and read by `Trace`.

It knows layers, heads and positions, no text: that is beside it in `flaxattn.trace.trace`. Rows
that hold NaN or infinity are counted before anything is reduced or rounded. A row whose scores hold
NaN or +infinity has such an lse too, in every kernel, whatever else is requested. A row without any
key has -infinity, which is right.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture, Intermediates

# Axis, counted in a stacked record, that runs over heads; statistics share the layout of weights.
_HEAD_AXIS = {"weights": 2, "scores": 2, "query": 3, "key": 3, "value": 3, "head_output": 3}
_KEY_NUMBERS = ("stats.argmax", "stats.topk_indices")  # -1 where a row sees no key
SlidingWindow = tuple[int | None, int | None]
_WITHOUT_HEADS = ("hidden", "rotation")  # their axes are layers, sequences, positions, others
FIELDS = (*_HEAD_AXIS, "hidden")
"""Arrays of a record beside its statistics and its rotation."""
ARRAYS = (*FIELDS, "rotation")
"""Arrays of a record beside its statistics."""
SIDES = ("encoder", "decoder", "cross")
"""Attention stacks that a trace may hold, by name."""


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=[*ARRAYS, "stats"],
    meta_fields=[
        "layers",
        "heads",
        "implementation",
        "query_window",
        "key_window",
        "scale",
        "sliding_windows",
    ],
)
@dataclasses.dataclass(frozen=True)
class AttentionRecord:
    """Attention record of one stack: a pytree; fields that were not captured are None.

    The leading axis runs over `layers`. A record sown by a single module has no such axis and an
    empty `layers`.

    Attributes:
        weights: Attention before dropout, in the requested dtype; uint8 holds round(255 p).
        scores: Scaled and biased q k, -inf where masked; float32.
        query: Projected queries.
        key: Projected keys; these and queries are normalised and rotated where the model does so.
        value: Projected values.
        head_output: Weighted sums of values, before the output projection.
        hidden: Outputs of the layers `[L, B, S, E]`, before any normalization that follows the
            last one; of self-attention.
        rotation: Cosines and sines `[L, B, S, 2, P]` of the angles by which P pairs of dimensions
            of queries and keys were rotated at each position; recorded with these, where the model
            has rotary positions.
        stats: Statistics by name, mostly per query and float32; `received` is per key, `topk_*`
            have a last axis R.
        layers: Number of the layer at each index of the leading axis.
        heads: Number of the head at each index of the head axis.
        implementation: Name of the attention kernel that ran.
        query_window: `(start, stop)`, the queries that `weights` and `scores` hold; None for all.
        key_window: `(start, stop)`, the keys that they hold of these; None for all.
        scale: Factor on q·k that the kernel was given; None where scores are not products, as in
            additive attention, or where the record does not say.
        sliding_windows: For each of `layers`, how many positions before and behind itself a query
            may attend to, None for all of them; a layer without window is None. Empty where no
            layer has one, or where the record does not say.
    """

    weights: Array | None = None
    scores: Array | None = None
    query: Array | None = None
    key: Array | None = None
    value: Array | None = None
    head_output: Array | None = None
    hidden: Array | None = None
    rotation: Array | None = None
    stats: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    implementation: str = ""
    query_window: tuple[int, int] | None = None
    key_window: tuple[int, int] | None = None
    scale: float | None = None
    sliding_windows: tuple[SlidingWindow | None, ...] = ()

    def __repr__(self) -> str:
        arrays = {name: getattr(self, name) for name in ARRAYS} | dict(self.stats)
        shapes = [f"{n} {list(a.shape)}" for n, a in arrays.items() if hasattr(a, "shape")]
        return (
            f"AttentionRecord(layers {list(self.layers)}, heads {list(self.heads)}, "
            f"{', '.join(shapes) or 'no arrays'}; {self.implementation or 'given'})"
        )

    @classmethod
    def of(
        cls,
        capture: Capture,
        intermediates: Intermediates,
        scale: float | None = None,
        rotation: Float[Array, "B S 2 P"] | None = None,
        window: SlidingWindow | None = None,
        /,
        **projections: Float[Array, "B S H D"],
    ) -> Self:
        """Join what the kernel handed back with what only the attention module knows.

        Args:
            capture: The request; decides which projections are kept, and of which heads.
            intermediates: What the kernel returned beside the output.
            scale: Factor on q·k; None where scores are not products.
            rotation: By which queries and keys were rotated.
            window: Numbers of positions before and behind itself that a query may attend to.
            **projections: `query`, `key`, `value` and `head_output`, with all heads.

        Returns:
            The record of one layer.
        """
        everything = range(projections["query"].shape[2])
        heads = tuple(everything) if capture.heads is None else capture.heads
        chosen = np.asarray(heads)
        kept = {
            name: as_captured(value if capture.heads is None else value[:, :, chosen], capture)
            for name, value in projections.items()
            if getattr(capture, name)
        }
        made = cls(
            weights=intermediates.weights,
            scores=intermediates.scores,
            stats=intermediates.stats,
            heads=heads,
            implementation=intermediates.implementation,
            query_window=capture.query_window,
            key_window=capture.key_window,
            scale=scale,
            rotation=rotation,
            sliding_windows=() if window is None else (window,),
        )
        return dataclasses.replace(made, **kept)

    @classmethod
    def stack(cls, records: Sequence[Self]) -> Self:
        """Put records of single layers on a leading layer axis, numbered in the given order.

        Args:
            records: At least one, all with the same fields and shapes.

        Returns:
            One record with `layers` 0, 1, ….
        """
        windows = [(*record.sliding_windows, None)[0] for record in records]
        alike = (dataclasses.replace(record, sliding_windows=()) for record in records)
        joined = jax.tree.map(lambda *leaves: jnp.stack(leaves), *alike)
        numbers = tuple(range(len(records)))
        return dataclasses.replace(joined, layers=numbers).with_windows(windows)

    def with_windows(self, windows: Sequence[SlidingWindow | None]) -> Self:
        """A copy that says which layers have a window.

        Args:
            windows: For each of `layers`; see `sliding_windows`.
        """
        some = any(window is not None for window in windows)
        return dataclasses.replace(self, sliding_windows=tuple(windows) if some else ())

    def map(self, change: Any) -> Self:
        """A copy with `change(name, array)` in place of every array that is there.

        Args:
            change: Called with the field's name, or `stats` for a statistic.

        Returns:
            A record with the same layers, heads and implementation.
        """
        fields = {n: change(n, a) for n in ARRAYS if (a := getattr(self, n)) is not None}
        stats = {name: change(f"stats.{name}", array) for name, array in self.stats.items()}
        return dataclasses.replace(self, **fields, stats=stats)

    def with_heads(self, heads: Sequence[int]) -> Self:
        """A copy with some of the heads.

        Args:
            heads: Their numbers.

        Raises:
            InputError: One is not there.
        """
        if missing := sorted(set(heads) - set(self.heads)):
            raise InputError(f"There is no head {missing[0]}.\nThere are {list(self.heads)}.")
        places = np.array([self.heads.index(head) for head in heads], int)

        def chosen(name: str, array: Array) -> Array:
            if name in _WITHOUT_HEADS:
                return array
            return array.take(places, axis=_HEAD_AXIS.get(name, 2))

        return dataclasses.replace(self.map(chosen), heads=tuple(heads))

    def require_whole(self, reader: str) -> None:
        """Check that the weights are those of all positions.

        Args:
            reader: What needs them, as the subject of a sentence.

        Raises:
            InputError: If they are a window.
        """
        if self.query_window is not None or self.key_window is not None:
            held = (f"{n} {w[0]} to {w[1] - 1}" for n, w in self._windows().items() if w)
            raise InputError(
                f"{reader} needs the weights of all positions; this trace holds a window of them: "
                f"{', '.join(held)}.\n"
                "Capture without query_window and key_window, or read the `weights` themselves."
            )

    def _windows(self) -> dict[str, tuple[int, int] | None]:
        return {"queries": self.query_window, "keys": self.key_window}


def as_captured(vectors: Float[Array, "..."], capture: Capture) -> Float[Array, "..."]:
    """Vectors in the dtype that a request names."""
    return vectors if capture.vector_dtype is None else vectors.astype(capture.vector_dtype)


def with_hidden(records: Any, hidden: Float[Array, "B S E"]) -> Any:
    """A tree of the records of a layer, of which that of self-attention holds its output."""

    def one(path: tuple[Any, ...], leaf: Any) -> Any:
        if not isinstance(leaf, AttentionRecord) or "cross_attention" in jax.tree_util.keystr(path):
            return leaf
        return dataclasses.replace(leaf, hidden=hidden)

    return jax.tree_util.tree_map_with_path(
        one, records, is_leaf=lambda leaf: isinstance(leaf, AttentionRecord)
    )


def windows_from_json(
    windows: Sequence[Sequence[int | None] | None],
) -> tuple[SlidingWindow | None, ...]:
    """`AttentionRecord.sliding_windows` of a file."""
    return tuple(None if window is None else (window[0], window[1]) for window in windows)


def one_sequence(
    record: AttentionRecord, sequence: int, queries: np.ndarray, keys: np.ndarray
) -> AttentionRecord:
    """Cut one sequence and its real positions out of a stacked record, into NumPy arrays.

    A window then counts the positions that are left; one that held padding only is empty.
    """
    rows, query_window = _inside(record.query_window, queries)
    columns, key_window = _inside(record.key_window, keys)
    places = np.full(max(keys, default=0) + 2, -1, np.int32)  # the last one is that of key -1
    places[keys] = np.arange(len(keys))

    def one(name: str, array: Array) -> Any:
        # On the device each length would be a program of its own, so the rest is done by NumPy.
        own: Any = np.asarray(array[:, sequence : sequence + 1])
        if name in ("weights", "scores"):
            return own[:, :, :, rows][..., columns]
        own = _at(name, own, queries, keys)
        if name not in _KEY_NUMBERS or not np.issubdtype(own.dtype, np.integer):
            return own
        return places[own]

    return dataclasses.replace(record.map(one), query_window=query_window, key_window=key_window)


def cut(record: AttentionRecord, queries: slice, keys: slice) -> AttentionRecord:
    """Cut a text that shares rows, or padding, off a record; key numbers count from its start."""

    def positions(name: str, array: Array) -> Array:
        if name in ("weights", "scores"):
            return array[..., queries, keys]
        array = _at(name, array, queries, keys)
        if name not in _KEY_NUMBERS or not keys.start:
            return array
        return array - (array >= 0).astype(array.dtype) * keys.start

    return record.map(positions)


def _at(name: str, array: Array, queries: Any, keys: Any) -> Array:
    """A projection or a statistic at some positions."""
    if _HEAD_AXIS.get(name) == 3:
        return array[:, :, keys if name in ("key", "value") else queries]
    if name in _WITHOUT_HEADS:  # of self-attention, whose keys are at the same positions
        return array[:, :, queries]
    return array[:, :, :, keys if name == "stats.received" else queries]


def _inside(
    window: tuple[int, int] | None, places: np.ndarray
) -> tuple[np.ndarray, tuple[int, int] | None]:
    """Return the places where real positions are stored, and the window as it counts them."""
    if window is None:
        return places, None
    chosen = places[(places >= window[0]) & (places < window[1])]
    start = int((places < window[0]).sum())
    return chosen - window[0], (start, start + len(chosen))


def _with_rotations(records: Sequence[AttentionRecord]) -> Sequence[AttentionRecord]:
    """Join records of rotated and unrotated layers; unrotated ones get the angle 0."""
    rotated = next((one.rotation for one in records if one.rotation is not None), None)
    if rotated is None:
        return records
    still = jnp.asarray([1.0, 0.0], rotated.dtype)[:, None]
    return [
        dataclasses.replace(
            one,
            rotation=jnp.broadcast_to(
                still[None, None, None], (len(jax.tree.leaves(one)[0]), *rotated.shape[1:])
            ),
        )
        if one.rotation is None
        else one
        for one in records
    ]


def joined_layers(parts: Sequence[AttentionRecord], layers: tuple[int, ...]) -> AttentionRecord:
    """One record of layers in their order; those of different kinds may have had other kernels."""
    counts = [max((len(leaf) for leaf in jax.tree.leaves(part)), default=0) for part in parts]
    windows = [  # a part has one window, or that of each of its layers
        window
        for part, count in zip(parts, counts, strict=True)
        for window in (part.sliding_windows or (None,)) * count
    ]
    ran = ", ".join(dict.fromkeys(part.implementation for part in parts))
    alike = [
        dataclasses.replace(part, implementation=ran, sliding_windows=())
        for part in _with_rotations(parts)
    ]
    if len(alike) > 1:
        alike = [jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *alike)]
    return dataclasses.replace(alike[0], layers=layers).with_windows(windows)


def among_heads(capture: Capture, present: tuple[int, ...]) -> Capture:
    """A request put to attention that has only some of the heads."""
    if capture.heads is None:
        return capture
    places = tuple(present.index(head) for head in capture.heads if head in present)
    return dataclasses.replace(capture, heads=places or (0,))


def with_pruned(
    record: AttentionRecord, present: tuple[int, ...], requested: tuple[int, ...] | None, count: int
) -> AttentionRecord:
    """A record in which heads that were removed have a place too: that of one that sees nothing.

    So layers with different heads go into one record, and numbers mean the same heads as before.
    `flaxattn.kernels.contract` defines the values of a head without any key to attend to.
    """
    heads = tuple(range(count)) if requested is None else requested
    held = [head for head in heads if head in present]
    places = np.array([held.index(head) if head in present else 0 for head in heads])
    there = np.array([head in present for head in heads])

    def spread(name: str, array: Array) -> Array:
        if name in _WITHOUT_HEADS:
            return array
        axis = _HEAD_AXIS.get(name, 2) - 1
        kept = there.reshape([-1 if a == axis else 1 for a in range(array.ndim)])
        return jnp.where(kept, array.take(places, axis), _nothing(name, array))

    return dataclasses.replace(record.map(spread), heads=heads)


def _nothing(name: str, array: Array) -> Array:
    """Value of a field for a head that has no key to attend to."""
    value = 0.0
    if name in ("scores", "stats.lse"):
        value = -jnp.inf
    elif name in ("stats.argmax", "stats.topk_indices"):
        value = -1
    return jnp.asarray(value, array.dtype)


def choose(requested: Sequence[int] | None, known: Sequence[int], what: str) -> list[int]:
    """The numbers requested, each of which must be known; all known ones if None."""
    wanted = list(known if requested is None else requested)
    missing = [number for number in wanted if number not in known]
    if missing or not wanted:
        what_is_wrong = (
            f"There is no {what} {missing[0]}." if missing else f"No {what} was requested."
        )
        raise InputError(f"{what_is_wrong}\nThere are {what}s {', '.join(map(str, known))}.")
    return list(dict.fromkeys(int(number) for number in wanted))


def layer_weights(
    record: AttentionRecord, layers: Sequence[int], sequence: int = 0, *, allow_nan: bool = False
) -> Float[np.ndarray, "L H Q K"]:
    """Weights of one sequence in the chosen layers, as float32 between 0 and 1."""
    assert record.weights is not None
    everything = np.asarray(record.weights)  # on the host once, however many sequences are read
    stored = np.stack([everything[record.layers.index(n), sequence] for n in layers])
    weights = stored.astype(np.float32) / (255 if stored.dtype == np.uint8 else 1)
    known = weights[~np.isnan(weights)] if allow_nan else weights
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    if not (low >= 0 and high <= 1.001):
        raise InputError(
            f"Attention weights lie between 0 and 1; these range from {low:.4g} to {high:.4g}.\n"
            "Apply the softmax over keys first."
        )
    return np.minimum(weights, 1)


def without_first(weights: Float[np.ndarray, "*heads Q K"]) -> Float[np.ndarray, "*heads Q K"]:
    """Weights without those on the first key, every row scaled up to a sum of one again.

    Many heads of a language model leave most of their attention on the first token, whatever it
    says, when they find nothing to look at (Vig & Belinkov 2019 leave it out as null attention).

    The first column is 0. A row whose weight was all there is 0 throughout; NaN in the rest stays
    NaN.
    """
    rest = weights.copy()
    rest[..., 0] = 0
    total = rest.sum(axis=-1, keepdims=True)
    shares = np.divide(rest, total, out=np.zeros_like(rest), where=total > 0)
    return np.where(np.isnan(total), total, shares)


_OF_QUERIES, _OF_KEYS = ("query", "head_output"), ("key", "value")


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["counts", "first"],
    meta_fields=["layers", "heads"],
)
@dataclasses.dataclass(frozen=True)
class NonFinite:
    """Positions of a side whose attention is NaN or infinite: a pytree, padding not counted.

    Attributes:
        counts: Number of such positions of each head, `[L, B, H]`.
        first: The first of them, `[L, B]`; -1 where there is none.
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
    """

    counts: Int[Array, "L B H"]
    first: Int[Array, "L B"]
    layers: tuple[int, ...]
    heads: tuple[int, ...]


def with_lse(capture: Capture) -> Capture:
    """Add `lse`, in which NaN shows, to a request for attention."""
    attends = capture.weights or capture.scores or capture.stats
    if not attends or "lse" in capture.names:
        return capture
    return dataclasses.replace(capture, stats=(*capture.stats, "lse"))


def without_added_lse(record: AttentionRecord, capture: Capture) -> AttentionRecord:
    """A record made with `with_lse`, without the statistics that the caller did not want."""
    stats = {name: array for name, array in record.stats.items() if name in capture.keys}
    return dataclasses.replace(record, stats=stats)


def count_nonfinite(
    record: AttentionRecord, side: str, inputs: Mapping[str, Int[Array, "B S"]]
) -> NonFinite:
    """Count the positions of a record that hold NaN or infinity."""
    source = inputs.get("attention_mask")
    target = inputs.get("decoder_attention_mask", source)
    of_queries = source if side == "encoder" else target
    of_keys = target if side == "decoder" else source
    broken = [_among(of_queries, jnp.isnan(a) | (a == jnp.inf)) for a in _lse(record)]
    for names, mask in ((_OF_QUERIES, of_queries), (_OF_KEYS, of_keys)):
        arrays = (getattr(record, name) for name in names)
        broken += [_among(mask, _broken_vectors(a)) for a in arrays if a is not None]
    if record.hidden is not None:  # the layer's, so of all of its heads
        rows = ~jnp.isfinite(record.hidden).all(-1)[:, :, None]
        rows = jnp.broadcast_to(rows, (*rows.shape[:2], len(record.heads), rows.shape[3]))
        broken.append(_among(of_queries, rows))
    counts = sum(rows.sum(-1, dtype=jnp.int32) for rows in broken)
    firsts = [_first(rows.any(2)) for rows in broken]
    first = functools.reduce(lambda a, b: jnp.where(a < 0, b, a), firsts)
    return NonFinite(jnp.asarray(counts), first, record.layers, record.heads)


def _lse(record: AttentionRecord) -> list[Float[Array, "L B H Q"]]:
    return [record.stats["lse"]] if "lse" in record.stats else []


def _broken_vectors(array: Float[Array, "L B S H D"]) -> Bool[Array, "L B H S"]:
    return jnp.swapaxes(~jnp.isfinite(array).all(-1), 2, 3)


def _among(mask: Array | None, rows: Bool[Array, "L B H S"]) -> Bool[Array, "L B H S"]:
    """The rows that are not padding."""
    return rows if mask is None else rows & (mask != 0)[None, :, None]


def _first(rows: Bool[Array, "L B S"]) -> Int[Array, "L B"]:
    return jnp.where(rows.any(-1), rows.argmax(-1), -1).astype(jnp.int32)
