# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers per head, measured on dense maps: where a head looks, how far, how sharply.

Measures of attention follow Clark et al. (2019), sections 3.1 to 3.3: a mean over the real queries
of each sequence, then over sequences. They describe; they test no hypothesis and name no role for
certain. Attribution maps, whose rows do not sum to one and may be below zero, are measured by the
shares of absolute values. `head_values` gathers one number per head, a measure or a captured
statistic, of a trace or a store. Shares over many texts are scores, see `specs`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.kernels.reductions import entropies
from flaxattn.store.open_store import Store
from flaxattn.trace.record import SIDES, AttentionRecord, without_first
from flaxattn.trace.trace import Trace

# A head is named after what more than half of its attention goes to.
MAJORITY = 0.5
# Clark et al. call heads above 3.8 nats broad, at 128 tokens: 0.78 of the largest entropy there.
_BROAD = 0.78
MAP_MEASURES = ("own", "previous", "next", "first", "special", "strongest", "entropy", "total")
"""Names of the measures of attribution maps."""
FEWEST = 3
"""Queries with an earlier occurrence that a text must have for a share to be known."""
_OFFSETS = {"next": 1, "previous": -1, "own": 0}


@dataclasses.dataclass(frozen=True)
class HeadMeasures:
    """Measures of one head: shares of its attention, between 0 and 1, and two averages.

    Attributes:
        layer: Number of the layer.
        head: Number of the head.
        next: Share on the position after the query.
        previous: Share on the position before the query.
        own: Share on the query's own position.
        first: Share on the first position.
        delimiter: Share on tokens the model adds, `[CLS]` and `[SEP]`; nan if they are not known.
        same_segment: Share on the query's own segment; nan if segments are not known.
        entropy: In nats.
        relative_entropy: Entropy over its largest possible value, log of the length.
        distance: Mean distance between query and key, in positions.
        excludes_first: Whether the first position was left out and rows were renormalised; then
            all of these but `first` are of what was left.
    """

    layer: int
    head: int
    next: float
    previous: float
    own: float
    first: float
    delimiter: float
    same_segment: float
    entropy: float
    relative_entropy: float
    distance: float
    excludes_first: bool = False

    @property
    def does(self) -> str:
        """Name of the keys that get most of the attention; `broad` or `mixed` if none is named."""
        named = {
            "next token": self.next,
            "previous token": self.previous,
            "own token": self.own,
            "delimiters": self.delimiter,
            "first token": 0.0 if self.excludes_first else self.first,
        }
        return _named(named, self.relative_entropy)


@dataclasses.dataclass(frozen=True)
class CrossMeasures:
    """Measures of one head of cross-attention: shares of the source, and an average.

    Attributes:
        layer: Number of the decoder layer.
        head: Number of the head.
        strongest: Share on the source token that gets most: the confidence of Voita et al. 2019,
            who left out the end of the text.
        first: Share on the first source token.
        delimiter: Share on source tokens the model adds; nan if they are not known.
        entropy: In nats.
        relative_entropy: Entropy over its largest possible value, log of the source's length.
        excludes_first: Whether the first source token was left out and rows were renormalised;
            then all of these but `first` are of what was left.
    """

    layer: int
    head: int
    strongest: float
    first: float
    delimiter: float
    entropy: float
    relative_entropy: float
    excludes_first: bool = False

    @property
    def does(self) -> str:
        """Name of the keys that get most of the attention; `broad` or `mixed` if none is named."""
        if self.delimiter > MAJORITY:
            return "delimiters"
        return _named({"one token": self.strongest}, self.relative_entropy)


def _named(named: dict[str, float], relative_entropy: float) -> str:
    best = max(named, key=lambda name: np.nan_to_num(named[name]))
    if named[best] > MAJORITY:
        return best
    return "broad" if relative_entropy > _BROAD else "mixed"


def head_measures(trace: Trace, *, exclude_first: bool = False) -> list[HeadMeasures]:
    """Measure every recorded head of a trace's encoder (or decoder)."""
    attentions = trace.attentions
    rows = [
        _measure_sequence(trace, attentions, b, exclude_first) for b in range(len(attentions[0]))
    ]
    means = {name: np.mean([row[name] for row in rows], axis=0) for name in rows[0]}
    return [
        HeadMeasures(
            layer,
            head,
            **{name: float(m[i, j]) for name, m in means.items()},
            excludes_first=exclude_first,
        )
        for i, layer in enumerate(trace.layers)
        for j, head in enumerate(trace.heads)
    ]


def cross_measures(trace: Trace, *, exclude_first: bool = False) -> list[CrossMeasures]:
    """Measure every recorded head of a trace's cross-attention."""
    attentions = np.stack([np.asarray(layer) for layer in trace.cross_attentions])
    assert trace.cross is not None
    length, width = attentions.shape[3:]
    rows = []
    for b in range(attentions.shape[1]):
        queries = _real(trace.decoder_mask, b, length)
        keys = _real(trace.mask, b, width)
        special = None if trace.special is None else np.asarray(trace.special)[b, keys]
        weights = attentions[:, b][:, :, queries][..., keys]
        rows.append(_measure_cross(weights, special, exclude_first))
    means = {name: np.mean([row[name] for row in rows], axis=0) for name in rows[0]}
    return [
        CrossMeasures(
            layer,
            head,
            **{name: float(m[i, j]) for name, m in means.items()},
            excludes_first=exclude_first,
        )
        for i, layer in enumerate(trace.cross.layers)
        for j, head in enumerate(trace.cross.heads)
    ]


def _measure_cross(
    weights: Float[np.ndarray, "L H T S"],
    special: Bool[np.ndarray, " S"] | None,
    exclude_first: bool,
) -> dict[str, Float[np.ndarray, "L H"]]:
    """Measures of one pair without padding, averaged over what was written."""
    if not weights.size:
        raise InputError("A sequence of the trace is all padding; there is nothing to measure.")
    found = measure(weights, special, square=False, exclude_first=exclude_first)
    names = [field.name for field in dataclasses.fields(CrossMeasures)]
    return {name: array for name, array in found.items() if name in names}


def _real(mask: Bool[np.ndarray, "B S"] | None, b: int, length: int) -> np.ndarray:
    """Positions of a sequence that are not padding."""
    return np.arange(length) if mask is None else np.flatnonzero(mask[b])


def _rows(
    weights: Float[np.ndarray, "*heads Q K"], exclude_first: bool
) -> tuple[Float[np.ndarray, "*heads Q K"], Callable[[np.ndarray], np.ndarray]]:
    """The rows to measure, and the mean over those that have any attention left."""
    if not exclude_first:
        return weights, lambda of_rows: of_rows.mean(-1)
    weights = without_first(weights)
    counted = weights.any(-1)
    count = np.maximum(counted.sum(-1), 1)
    return weights, lambda of_rows: np.sum(of_rows, axis=-1, where=counted) / count


def _measure_sequence(
    trace: Trace, attentions: tuple[np.ndarray, ...], b: int, exclude_first: bool
) -> dict[str, Float[np.ndarray, "L H"]]:
    """Measures of one sequence, each `[L, H]`."""
    length = attentions[0].shape[-1]
    real = _real(trace.mask, b, length)
    if not len(real):
        raise InputError(f"Sequence {b} of the trace is all padding; there is nothing to measure.")
    weights = np.stack([np.asarray(layer)[b][:, real][:, :, real] for layer in attentions])
    special = None if trace.special is None else np.asarray(trace.special)[b, real]
    segments = None if trace.segments is None else np.asarray(trace.segments)[b, real]
    found = measure(weights, special, segments, exclude_first=exclude_first)
    names = [field.name for field in dataclasses.fields(HeadMeasures)]
    return {name: array for name, array in found.items() if name in names}


def measure(
    weights: Float[np.ndarray, "*heads Q K"],
    special: Bool[np.ndarray, " K"] | None = None,
    segments: Int[np.ndarray, " K"] | None = None,
    *,
    square: bool = True,
    exclude_first: bool = False,
) -> dict[str, Float[np.ndarray, "*heads"]]:
    """Measure attention maps of one sequence without padding; of a pair with `square=False`."""
    first = weights[..., 0].mean(-1)
    weights, mean = _rows(weights, exclude_first)
    found = {**_means(weights, mean, special, segments, square), "first": first}
    longest = np.log(max(weights.shape[-1] - exclude_first, 2))
    return {**found, "relative_entropy": found["entropy"] / longest}


def map_measures(
    maps: Float[np.ndarray, "*heads Q K"],
    special: Bool[np.ndarray, " K"] | None,
    *,
    square: bool,
) -> dict[str, Float[np.ndarray, "*heads"]]:
    """Measure attribution maps of one text, by shares of the absolute values of each row.

    Rows of zeros do not count; a map of zeros has no measures but its total.
    """
    maps = np.asarray(maps, np.float64)
    size = np.abs(maps).sum(-1, keepdims=True)
    shares = np.divide(np.abs(maps), size, out=np.zeros_like(maps), where=size > 0)
    counted = size[..., 0] > 0
    count = counted.sum(-1)

    def mean(rows: np.ndarray) -> np.ndarray:
        total = np.sum(rows, axis=-1, where=counted)
        return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)

    found = _means(shares, mean, special, None, square)
    found |= {"special": found["delimiter"], "first": mean(shares[..., 0])}
    found["total"] = maps.sum(-1).mean(-1)
    return {name: found[name] for name in MAP_MEASURES}


def _means(
    shares: Float[np.ndarray, "*heads Q K"],
    mean: Callable[[np.ndarray], np.ndarray],
    special: Bool[np.ndarray, " K"] | None,
    segments: Int[np.ndarray, " K"] | None,
    square: bool,
) -> dict[str, Float[np.ndarray, "*heads"]]:
    """Means over queries; nan where special tokens, segments or offsets are not known."""
    unknown = np.full(shares.shape[:-2], np.nan)
    queries, keys = shares.shape[-2:]
    offset = np.arange(keys) - np.arange(queries)[:, None]
    same = None if segments is None else segments == segments[:, None]
    sets = {
        **{name: offset == step if square else None for name, step in _OFFSETS.items()},
        "delimiter": None if special is None else special[None],
        "same_segment": same,
    }
    found = {
        name: unknown if keys is None else mean(np.sum(shares, axis=-1, where=keys))
        for name, keys in sets.items()
    }
    distance = mean(np.sum(shares * np.abs(offset), axis=-1)) if square else unknown
    return {
        **found,
        "strongest": mean(shares.max(-1)),
        "entropy": mean(entropies(shares)),
        "distance": distance,
    }


def repeated_token_shares(
    weights: Float[np.ndarray, "*heads Q Q"], tokens: Sequence[str]
) -> dict[str, Float[np.ndarray, "*heads"]]:
    """Measure attention on earlier occurrences of the query's token, and on the tokens after them.

    Of causal maps; the heads are those that `detect_heads` scores on repeated random tokens.
    """
    if np.any(np.triu(np.nan_to_num(weights, nan=1), 1)):
        return {}
    ids = np.unique(np.asarray(tokens, object).astype(str), return_inverse=True)[1]
    same = np.tril(ids[:, None] == ids, -1)
    after = np.zeros_like(same)
    after[:, 1:] = same[:, :-1]
    found = {}
    for name, keys in (("duplicate", same), ("induction", np.tril(after, -1))):
        queries = keys.any(-1)
        if queries.sum() >= FEWEST:
            found[name] = np.sum(weights, axis=-1, where=keys)[..., queries].mean(-1)
    return found


_NO_MEAN = ("argmax", "topk_indices", "topk_weights")
_NUMBERS = ("layer", "head", "excludes_first")


@dataclasses.dataclass(frozen=True)
class HeadValues:
    """One number for each layer and head.

    Attributes:
        name: Name of the statistic or measure.
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
