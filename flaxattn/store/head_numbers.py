# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Statistics of heads over a store: means over all texts, and the texts sorted by one of them.

A text's number is the mean of a statistic over the queries of that text, as the table of heads
holds it. That table is read a group of rows at a time, so memory does not grow with the texts.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.store.open_store import Store, Watch, row_groups, texts_with
from flaxattn.store.seals import consistent
from flaxattn.store.shard_tables import NO_MEAN
from flaxattn.store.store_layout import HEADS
from flaxattn.trace.record import SIDES

_KEYS = ["side", "layer", "head"]
_PARTS = 64  # sums of groups of rows that are kept before they are added up


class SideStatistics(NamedTuple):
    """Statistics of the heads of a side of a store.

    Attributes:
        layers: Numbers of its layers.
        heads: Numbers of its heads.
        statistics: Names of those with one number per query.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    statistics: tuple[str, ...]


class HeadNumber(NamedTuple):
    """A number that every text has: the mean of a statistic of a head.

    Attributes:
        side: `encoder`, `decoder` or `cross`.
        layer: Number of the layer.
        head: Number of the head.
        statistic: Name of the statistic.
    """

    side: str
    layer: int
    head: int
    statistic: str


class Ranking(NamedTuple):
    """Texts sorted by a number.

    Attributes:
        examples: Numbers of the first of them.
        values: Their numbers.
        counted: Texts that were sorted, of which these are the first.
        left_out: Texts whose number is missing or not finite.
        low: The smallest number of all texts that were sorted; NaN of none.
        high: The largest.
    """

    examples: Int[np.ndarray, "N"]
    values: Float[np.ndarray, "N"]
    counted: int
    left_out: int
    low: float
    high: float


class CorpusMeans(NamedTuple):
    """Means of statistics over the texts of a store.

    Attributes:
        sides: By side, a row for each head: `layer`, `head`, and the mean of each statistic that
            has one, by its name.
        texts: Number of texts that they are over.
    """

    sides: dict[str, list[dict[str, Any]]]
    texts: int


def side_statistics(store: Store) -> dict[str, SideStatistics]:
    """Sides whose heads have a statistic with one number per query.

    Reads one manifest. Empty if the store has no such statistic.
    """
    found = {}
    if shard := store.first_shard():
        sides: Mapping[str, Any] = shard.sides
        for side in SIDES:
            about = sides.get(side, {"stats": {}})
            names = [n for n, kind in about["stats"].items() if n not in NO_MEAN and len(kind) == 1]
            if names:
                found[side] = SideStatistics(
                    tuple(about["layers"]), tuple(about["heads"]), tuple(names)
                )
    return found


def check_head_number(store: Store, number: HeadNumber) -> None:
    """See that the texts of a store have a number."""
    sides = side_statistics(store)
    if not sides:
        raise no_statistics()
    if number.side not in sides:
        raise InputError(
            f"Side {number.side:.40} has no statistics.\nSides that have: {', '.join(sides)}."
        )
    about = sides[number.side]
    if number.statistic not in about.statistics:
        raise InputError(
            f"This store has no statistic {number.statistic:.40} of {number.side}.\n"
            f"It has {', '.join(about.statistics)}.\n"
            "To have another, extract again with that statistic."
        )
    for name, requested, there in (
        ("layer", number.layer, about.layers),
        ("head", number.head, about.heads),
    ):
        if requested not in there:
            raise InputError(
                f"Side {number.side} has no {name} {requested}.\n"
                f"Its {name}s are {', '.join(map(str, there))}."
            )


def no_statistics() -> InputError:
    """The error of a store without a statistic of heads that has a mean."""
    return InputError(
        "This store holds no statistic that is one number per token.\n"
        "To have one, extract again with statistics, such as entropy and distance."
    )


def rank_texts(
    store: Store,
    number: HeadNumber,
    count: int,
    *,
    descending: bool = True,
    words: str = "",
    watch: Watch | None = None,
) -> Ranking:
    """Sort texts by a number of a head.

    Reads five columns of the table of heads, a group of rows at a time; with `words`, the tables of
    texts too.
    """
    check_head_number(store, number)
    best = Ranking(np.zeros(0, np.int64), np.zeros(0), 0, 0, np.nan, np.nan)
    mask: tuple[int, Bool[np.ndarray, "N"] | None] = (-1, None)  # of the shard that is read
    columns = ["example", *_KEYS, number.statistic]
    for shard, _, table in row_groups(store, HEADS, columns, watch):
        start = shard.manifest.start
        if words and mask[0] != start:
            mask = start, texts_with(shard, words)
        with consistent(shard.folder / HEADS):
            examples, values = _of_head(table, number)
        if mask[1] is not None:
            is_wanted = mask[1][examples - start]
            examples, values = examples[is_wanted], values[is_wanted]
        best = _merge(best, examples, values, count, descending)
    return best


def _of_head(
    table: pa.Table, number: HeadNumber
) -> tuple[Int[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """Texts of a group of rows and their numbers."""
    is_head = table["layer"].to_numpy() == number.layer
    is_head &= table["head"].to_numpy() == number.head
    own = table.take(np.flatnonzero(is_head))
    own = own.take(np.flatnonzero(np.array(own["side"].to_pylist(), object) == number.side))
    values = own[number.statistic].to_numpy().astype(np.float64)  # null is NaN
    return own["example"].to_numpy(), values


def _merge(
    best: Ranking,
    examples: Int[np.ndarray, "N"],
    values: Float[np.ndarray, "N"],
    count: int,
    descending: bool,
) -> Ranking:
    """The first of those that were sorted and of more texts."""
    is_finite = np.isfinite(values)
    left_out = best.left_out + int((~is_finite).sum())
    examples, values = examples[is_finite], values[is_finite]
    if not len(values):
        return best._replace(left_out=left_out)
    low, high = np.fmin(best.low, values.min()), np.fmax(best.high, values.max())
    counted = best.counted + len(values)
    examples = np.concatenate([best.examples, examples])
    values = np.concatenate([best.values, values])
    order = np.lexsort((examples, -values if descending else values))[:count]
    return Ranking(examples[order], values[order], counted, left_out, float(low), float(high))


def corpus_means(store: Store, watch: Watch | None = None) -> CorpusMeans:
    """Means of every statistic with one number per query over all texts, head by head.

    Reads the table of heads, a group of rows at a time; memory does not grow with the texts.
    """
    sides = side_statistics(store)
    names = list(dict.fromkeys(name for about in sides.values() for name in about.statistics))
    if not names:
        raise no_statistics()
    counted: set[int] = set()
    texts = 0
    parts: list[pa.Table] = []
    for shard, _, table in row_groups(store, HEADS, [*_KEYS, *names], watch):
        if shard.manifest.start not in counted:
            counted.add(shard.manifest.start)
            texts += shard.manifest.stop - shard.manifest.start
        with consistent(shard.folder / HEADS):
            parts.append(_sums(table, names))
        if len(parts) == _PARTS:
            parts = [_added(parts, names)]
    if not parts:
        raise no_statistics()
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for row in _rows(_added(parts, names), names):
        found[row.pop("side")].append(row)
    return CorpusMeans(found, texts)


def _sums(table: pa.Table, names: list[str]) -> pa.Table:
    """Sums and counts of a group of rows, by head."""
    side = table["side"].cast(pa.string())
    plain = table.set_column(table.column_names.index("side"), "side", side)
    kinds = ("sum", "count")
    return plain.group_by(_KEYS).aggregate([(name, kind) for name in names for kind in kinds])


def _added(parts: list[pa.Table], names: list[str]) -> pa.Table:
    """Sums of several groups of rows as one table of the same columns."""
    sums = [f"{name}_{kind}" for name in names for kind in ("sum", "count")]
    total = pa.concat_tables(parts).group_by(_KEYS).aggregate([(name, "sum") for name in sums])
    total = total.select([*_KEYS, *(f"{name}_sum" for name in sums)])
    return total.rename_columns([*_KEYS, *sums])


def _rows(table: pa.Table, names: list[str]) -> Iterator[dict[str, Any]]:
    """A row for each head with the means that are there."""
    for row in sorted(table.to_pylist(), key=lambda row: (row["layer"], row["head"])):
        means = {
            name: row[f"{name}_sum"] / row[f"{name}_count"]
            for name in names
            if row[f"{name}_count"]
        }
        yield {key: row[key] for key in _KEYS} | means
