# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One number per head, `[L, H]`: a captured statistic or a measure, of a trace or of a store.

It gathers what others computed: statistics come from the kernel, measures from
`flaxattn.measures.head_measures`. Nothing is tested or drawn here.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.measures.head_measures import (
    CrossMeasures,
    HeadMeasures,
    cross_measures,
    head_measures,
)
from flaxattn.store.open_store import Store
from flaxattn.trace.record import SIDES, AttentionRecord
from flaxattn.trace.trace import Trace

_NO_MEAN = ("argmax", "topk_indices", "topk_weights")
_NUMBERS = ("layer", "head", "excludes_first")


@dataclasses.dataclass(frozen=True)
class HeadValues:
    """One number for each layer and head.

    Attributes:
        name: Of the statistic or measure.
        side: `encoder`, `decoder` or `cross`.
        layers: Numbers of the layers.
        heads: Numbers of the heads.
        values: `[L, H]`; NaN where a measure is not known.
    """

    name: str
    side: str
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    values: Float[np.ndarray, "L H"]


def head_values(
    source: Trace | Store, name: str = "entropy", side: str | None = None
) -> HeadValues:
    """A statistic or a measure of every head."""
    if isinstance(source, Store):
        return _of_store(source, name, side)
    held = {n: record for n in SIDES if (record := getattr(source, n)) is not None}
    own = _side(side, list(held))
    record = held[own]
    if name in record.stats and name not in _NO_MEAN:
        values = np.mean([_mean(one, own, name) for one in source], axis=0)
        return HeadValues(name, own, record.layers, record.heads, values)
    kind = CrossMeasures if own == "cross" else HeadMeasures
    known = [f.name for f in dataclasses.fields(kind) if f.name not in _NUMBERS]
    if name not in known or record.weights is None:
        there = [n for n in record.stats if n not in _NO_MEAN]
        there += known if record.weights is not None else []
        raise _unknown(name, own, list(dict.fromkeys(there)))
    measured = _measures(source, own, record)
    values = np.array([getattr(measure, name) for measure in measured], np.float64)
    shape = (len(record.layers), len(record.heads))
    return HeadValues(name, own, record.layers, record.heads, values.reshape(shape))


def _side(requested: str | None, held: Sequence[str]) -> str:
    if not held or (requested is not None and requested not in held):
        raise InputError(
            f"There is no side {requested or 'with attention'!r}.\n"
            f"There is {', '.join(held) or 'none'}."
        )
    return requested or held[0]


def _unknown(name: str, side: str, known: Sequence[str]) -> InputError:
    return InputError(
        f"The {side} has no statistic or measure {name!r}.\nIt has {', '.join(known) or 'none'}."
    )


def _mean(one: Trace, side: str, name: str) -> Float[np.ndarray, "L H"]:
    """Mean over the positions of one text."""
    statistic = np.asarray(getattr(one, side).stats[name])[:, 0]
    return statistic.mean(axis=2, dtype=np.float64)


def _measures(
    trace: Trace, side: str, record: AttentionRecord
) -> Sequence[HeadMeasures] | Sequence[CrossMeasures]:
    if side == "cross":
        return cross_measures(trace)
    if side == "decoder" and trace.decoder_tokens:
        beside: dict[str, Any] = {"mask": trace.decoder_mask, "special": trace.decoder_special}
        return head_measures(Trace(decoder=record, **beside))
    return head_measures(trace)


def _of_store(store: Store, name: str, side: str | None) -> HeadValues:
    table = store.stats()
    sides = table["side"].cast(pa.string())
    own = _side(side, [n for n in SIDES if n in sides.unique().to_pylist()])
    known = [n for n in table.column_names if n not in ("example", "side", "layer", "head")]
    if name not in known or pa.types.is_nested(table.schema.field(name).type):
        raise _unknown(name, own, known)
    rows = table.filter(pa.array(sides.to_numpy() == own)).select(["layer", "head", name])
    means = rows.group_by(["layer", "head"]).aggregate([(name, "mean")]).to_pydict()
    layers, heads = (tuple(sorted(set(means[axis]))) for axis in ("layer", "head"))
    values = np.full((len(layers), len(heads)), np.nan)
    for layer, head, value in zip(
        means["layer"], means["head"], means[f"{name}_mean"], strict=True
    ):
        values[layers.index(layer), heads.index(head)] = np.nan if value is None else value
    return HeadValues(name, own, layers, heads, values)
