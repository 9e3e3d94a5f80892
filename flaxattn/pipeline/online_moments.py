# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Means over a corpus that keep no map: count, mean and M2 per layer, head and statistic.

`OnlineMoments` adds traces one after the other. Two of them merge to the moments of all their
traces (Chan, Golub & LeVeque 1979), in any order. Float64 on the host; jax is not used.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int

from flaxattn.errors import InputError
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = ("statistics", "offsets")
_INDICES = ("argmax", "topk_indices")  # numbers of keys, of which a mean says nothing
_WEIGHT = "weight"  # what the mean weight per relative position is called
_COLUMNS = ("side", "statistic", "layer", "head", "offset", "count", "mean", "m2")


class Moments(NamedTuple):
    """Counts, means and sums of squared differences from them, elementwise."""

    counts: Int[np.ndarray, "*shape"]
    mean: Float[np.ndarray, "*shape"]
    m2: Float[np.ndarray, "*shape"]


class _Block(NamedTuple):
    """Moments `[L, H, O]` of a statistic, O offsets from `low` on; one, at 0, if it has none."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    low: int
    moments: Moments

    def merged(self, other: "_Block") -> "_Block":
        """Both together, with all layers, heads and offsets of either."""
        width, its = self.moments.counts.shape[2], other.moments.counts.shape[2]
        if (*self[:3], width) != (*other[:3], its):
            layers = tuple(sorted({*self.layers, *other.layers}))
            heads = tuple(sorted({*self.heads, *other.heads}))
            low = min(self.low, other.low)
            high = max(self.low + width, other.low + its)
            return self._wide(layers, heads, low, high)._with(other._wide(layers, heads, low, high))
        return self._with(other)

    def _with(self, other: "_Block") -> "_Block":
        return self._replace(moments=merged(self.moments, other.moments))

    def _wide(
        self, layers: tuple[int, ...], heads: tuple[int, ...], low: int, high: int
    ) -> "_Block":
        """Moments padded to more cells, without observations there."""
        places = np.ix_(
            [layers.index(layer) for layer in self.layers],
            [heads.index(head) for head in self.heads],
            np.arange(self.moments.counts.shape[2]) + self.low - low,
        )

        def widen(part: np.ndarray) -> np.ndarray:
            room = np.zeros((len(layers), len(heads), high - low), part.dtype)
            room[places] = part
            return room

        return _Block(layers, heads, low, Moments(*map(widen, self.moments)))


class OnlineMoments:
    """Moments of what traces hold, per side, statistic, layer and head.

    Memory: a few numbers per head and statistic, and per relative position that occurred.

    >>> import flaxattn as fa
    >>> moments = fa.OnlineMoments("statistics")
    >>> request = fa.Capture(stats=("entropy",))
    >>> trace = fa.from_pretrained("tiny-bert").trace("It sleeps.", capture=request)
    >>> moments.add(trace)
    >>> moments.table().num_rows  # one for each side, statistic, layer and head
    16

    Args:
        kinds: `statistics` covers every statistic of a trace but argmax and topk_indices, one
            observation per real query (`received`: per key); `offsets` covers the weights, one
            observation per query and key, grouped by key position minus query position. A key
            that a causal mask hides counts, with weight 0.

    Raises:
        InputError: For another kind.
    """

    def __init__(self, *kinds: str) -> None:
        unknown = [repr(kind) for kind in kinds if kind not in KINDS]
        if unknown or not kinds:
            raise InputError(
                f"reduce: {', '.join(unknown) or 'nothing'} is not a reduction.\n"
                f"Expected one or more of {', '.join(KINDS)}."
            )
        self.kinds = tuple(kind for kind in KINDS if kind in kinds)
        self._found: dict[tuple[str, str], _Block] = {}  # by side and statistic

    def add(self, trace: Trace) -> None:
        """Add every sequence of a trace, without its padding.

        Args:
            trace: With statistics, weights or both, according to the kinds.

        Raises:
            InputError: If it lacks what a kind needs.
        """
        for one in [trace] if len(trace) == 1 else trace:
            for side, record in one.sides.items():
                if "statistics" in self.kinds:
                    self._add_statistics(side, record)
                if "offsets" in self.kinds:
                    self._add_weights(side, record)

    def merge(self, other: "OnlineMoments") -> None:
        """Add everything that another one holds.

        Args:
            other: Another one, of any kinds; unchanged.
        """
        for key, block in other._found.items():
            self._put(key, block)
        self.kinds = tuple(kind for kind in KINDS if kind in self.kinds + other.kinds)

    def table(self) -> "pa.Table":
        """One row per side, statistic, layer, head and, for weights, offset.

        Returns:
            Columns `side`, `statistic`, `layer`, `head`, `offset` (key minus query position, null
            for statistics), `count`, `mean` and `m2`; the variance is m2 / (count - 1).
        """
        import pyarrow as pa

        rows: list[tuple[Any, ...]] = []
        for (side, name), block in sorted(self._found.items()):
            for place in np.argwhere(block.moments.counts).tolist():
                i, j, k = place
                offset = block.low + k if name == _WEIGHT else None
                numbers = [part[i, j, k].item() for part in block.moments]
                rows.append((side, name, block.layers[i], block.heads[j], offset, *numbers))
        types = [pa.string(), pa.string(), *[pa.int32()] * 3, pa.int64(), *[pa.float64()] * 2]
        columns = zip(*rows, strict=True) if rows else [[] for _ in types]
        arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
        return pa.table(dict(zip(_COLUMNS, arrays, strict=True)))

    @classmethod
    def of_table(cls, table: "pa.Table") -> Self:
        """Rebuild moments from what `table` returned, to merge further.

        Args:
            table: As `table` returns it, or several of them one after the other.

        Raises:
            InputError: If a column is missing.
        """
        if missing := [name for name in _COLUMNS if name not in table.column_names]:
            raise InputError(
                f"a table of reductions has no column {missing[0]!r}\n"
                f"expected {', '.join(_COLUMNS)}, received {', '.join(table.column_names)}"
            )
        found = cls(*KINDS)
        merged = summed(table)
        columns = [merged[name].to_pylist() for name in _COLUMNS]
        rows: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        for side, name, *row in zip(*columns, strict=True):
            rows.setdefault((side, name), []).append(tuple(row))
        found._found = {key: _block(numbers) for key, numbers in rows.items()}
        names = {name for _, name in rows}
        held = {"statistics": bool(names - {_WEIGHT}), "offsets": _WEIGHT in names}
        found.kinds = tuple(kind for kind in KINDS if held[kind])
        return found

    def _add_statistics(self, side: str, record: AttentionRecord) -> None:
        for name, array in record.stats.items():
            if name in _INDICES:
                continue
            values = np.asarray(array, np.float64)[:, 0]  # [L, H, Q], or [L, H, Q, R]
            ranks = {name: values}
            if values.ndim == 4:
                ranks = {f"{name}[{r}]": values[..., r] for r in range(values.shape[3])}
            for label, ranked in ranks.items():
                block = _Block(record.layers, record.heads, 0, _moments(ranked))
                self._put((side, label), block)

    def _add_weights(self, side: str, record: AttentionRecord) -> None:
        if record.weights is None:
            raise InputError(
                "The mean weight per relative position needs weights; this trace holds none.\n"
                "Ask for them: capture=Capture(weights=True)."
            )
        record.require_whole("The mean weight per relative position")
        stored = np.asarray(record.weights)[:, 0]
        one = 255 if stored.dtype == np.uint8 else 1
        # A layer at a time: float64 and the shear take sixteen times the room of bytes.
        layers = [by_offset(layer.astype(np.float64) / one) for layer in stored]
        moments = Moments(*(np.stack(parts) for parts in zip(*layers, strict=True)))
        self._put(
            (side, _WEIGHT), _Block(record.layers, record.heads, 1 - stored.shape[2], moments)
        )

    def _put(self, key: tuple[str, str], block: _Block) -> None:
        before = self._found.get(key)
        self._found[key] = block if before is None else before.merged(block)


def merged(one: Moments, other: Moments) -> Moments:
    """Moments of two sets of observations together."""
    count = one.counts + other.counts
    total = np.maximum(count, 1)
    difference = np.where((one.counts > 0) & (other.counts > 0), other.mean - one.mean, 0.0)
    share = other.counts / total
    mean = np.where(one.counts > 0, one.mean + difference * share, other.mean)
    return Moments(count, mean, one.m2 + other.m2 + difference * difference * one.counts * share)


def summed(table: "pa.Table") -> "pa.Table":
    """Moments of several tables, one after the other, as those of all their observations.

    In two passes rather than pairwise: a difference from the mean of all is exact to rounding,
    however many tables there are.
    """
    import pyarrow as pa

    codes = np.zeros(len(table), np.int64)
    keys = list(_COLUMNS[:5])
    for name in keys:
        column = table[name].combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
    _, first, group = np.unique(codes, return_index=True, return_inverse=True)
    count, mean, m2 = (table[name].to_numpy() for name in _COLUMNS[5:])
    total = np.bincount(group, count)
    means = np.bincount(group, count * mean) / np.maximum(total, 1)
    difference = np.bincount(group, m2 + count * (mean - means[group]) ** 2)
    order = np.argsort(first)
    found = table.select(keys).take(first[order]).combine_chunks()
    for name, values in (("count", total.astype(count.dtype)), ("mean", means), ("m2", difference)):
        found = found.append_column(name, pa.array(values[order]))
    return found


def by_offset(weights: Float[np.ndarray, "*heads Q K"]) -> Moments:
    """Moments of weights per key position minus query position, from 1 - Q to K - 1."""
    *heads, queries, keys = weights.shape
    width = queries + keys - 1
    places = np.arange(width)
    count = np.minimum(np.minimum(places + 1, width - places), min(queries, keys))
    mean = _diagonal_sums(weights) / count
    # Row i of this view are the means at the offsets of query i.
    strides = mean.strides
    fitting = np.lib.stride_tricks.as_strided(
        mean[..., queries - 1 :],
        (*heads, queries, keys),
        (*strides[:-1], -strides[-1], strides[-1]),
        writeable=False,
    )
    m2 = _diagonal_sums((weights - fitting) ** 2)
    return Moments(np.broadcast_to(count, mean.shape).copy(), mean, m2)


def _diagonal_sums(values: Float[np.ndarray, "*heads Q K"]) -> Float[np.ndarray, "*heads O"]:
    """Sums along diagonals, the one at the lower left first: rows are sheared, then added."""
    *heads, queries, keys = values.shape
    room = np.zeros((*heads, queries, queries + keys))
    room[..., :keys] = values[..., ::-1, :]
    flat = room.reshape(*heads, -1)[..., : queries * (queries + keys - 1)]
    return flat.reshape(*heads, queries, queries + keys - 1).sum(-2)


def _moments(values: Float[np.ndarray, "L H Q"]) -> Moments:
    """Moments over queries, `[L, H, 1]`."""
    mean = values.mean(-1, keepdims=True)
    count = np.full(mean.shape, values.shape[-1])
    return Moments(count, mean, ((values - mean) ** 2).sum(-1, keepdims=True))


def _block(rows: Sequence[tuple[Any, ...]]) -> _Block:
    """The block that rows of a table are of: layer, head, offset or None, count, mean, M2."""
    layers = tuple(sorted({row[0] for row in rows}))
    heads = tuple(sorted({row[1] for row in rows}))
    offsets = [row[2] or 0 for row in rows]
    low = min(offsets)
    shape = (len(layers), len(heads), max(offsets) - low + 1)
    room = Moments(np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape))
    for row, offset in zip(rows, offsets, strict=True):
        place = layers.index(row[0]), heads.index(row[1]), offset - low
        for part, number in zip(room, row[3:], strict=True):
            part[place] = number
    return _Block(layers, heads, low, room)
