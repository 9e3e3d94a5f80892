# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Divergence between the attention of the same heads in two traces, such as of two checkpoints.

Jensen–Shannon divergence in nats, between 0 and log 2, and cosine, both a mean over rows. They
describe; tests over many texts are another matter (`flaxattn.measures.compare_heads`).
`flaxattn.measures.head_similarity` compares the heads of one trace.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError, check_arguments
from flaxattn.store.open_store import Store
from flaxattn.trace.record import SIDES, AttentionRecord, layer_weights
from flaxattn.trace.trace import Trace

_FEW = 5  # texts that are named


@dataclasses.dataclass(frozen=True)
class HeadDivergence:
    """Divergence of one head's attention between two traces.

    Attributes:
        side: `encoder`, `decoder` or `cross`.
        layer: Number of the layer.
        head: Number of the head.
        divergence: Jensen–Shannon, in nats: 0 if equal, log 2 if no key is shared; NaN of a head
            that could not be compared, since a weight of it is.
        cosine: Between the two rows of weights: 1 if equal up to scale, 0 if no key is shared; NaN
            as the divergence.
    """

    side: str
    layer: int
    head: int
    divergence: float
    cosine: float


def jensen_shannon(
    first: Float[np.ndarray, "*heads Q K"], second: Float[np.ndarray, "*heads Q K"]
) -> Float[np.ndarray, "*heads Q"]:
    """Divergence of each two rows: the entropy of their mean, less the mean of their entropies.

    In nats, between 0 and log 2. Computed in float64, because differences of close rows would
    vanish otherwise.
    """
    p, q = (np.asarray(rows, np.float64) for rows in (first, second))
    divergences = _relative(p, (p + q) / 2) + _relative(q, (p + q) / 2)
    return np.clip(divergences / 2, 0, np.log(2))


def _relative(p: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Sum of p log(p / mean) over keys."""
    ratio = np.divide(p, mean, out=np.ones_like(mean), where=p > 0)
    return np.sum(p * np.log(ratio), axis=-1)


def cosine(
    first: Float[np.ndarray, "*heads Q K"], second: Float[np.ndarray, "*heads Q K"]
) -> Float[np.ndarray, "*heads Q"]:
    """Cosine between each two rows; two rows of zeros are alike, one of zeros is like nothing.

    A row that holds NaN gives NaN.
    """
    p, q = (np.asarray(rows, np.float64) for rows in (first, second))
    lengths = np.linalg.norm(p, axis=-1) * np.linalg.norm(q, axis=-1)
    empty = ~p.any(-1) & ~q.any(-1)
    product = np.sum(p * q, axis=-1)
    return np.minimum(np.divide(product, lengths, out=1.0 * empty, where=~(lengths <= 0)), 1)


@dataclasses.dataclass(frozen=True)
class StoreDivergence:
    """Divergence of the heads of two stores.

    Attributes:
        heads: The most different first, each a mean over the texts on which it could be compared.
        texts: Number of texts.
        left_out: By side, layer and head, on how many of these a head could not be compared, since
            a weight of it is NaN.
        most: Numbers of the texts whose heads differ most, on average, with that divergence.
    """

    heads: list[HeadDivergence]
    texts: int
    left_out: Mapping[tuple[str, int, int], int]
    most: list[tuple[int, float]]


@check_arguments(2)
def compare_traces(
    first: Trace | Store, second: Trace | Store, *, side: str | None = None
) -> list[HeadDivergence]:
    """Compare every head that two traces, or two stores, of the same texts have in common.

    Divergence and cosine are means over the real queries of each text, then over texts.

    >>> import numpy as np
    >>> import flaxattn as fa
    >>> first = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> uniform = np.full(first.encoder.weights.shape, 1 / 8, np.float32)
    >>> heads = fa.compare_traces(first, fa.Trace.from_arrays(uniform, first.tokens))
    >>> len(heads), 0 < heads[0].divergence < 0.7  # nats; at most log 2
    (16, True)

    Args:
        first: With weights, such as of a model before fine-tuning.
        second: Trace or store of the same texts, such as of the model after it; a store if the
            first is one.
        side: `encoder`, `decoder` or `cross`; default all that both have.

    Returns:
        The heads, the most different first; equals in the order of layers and heads. Those with
        weights that are NaN come last, and have NaN for both numbers.

    Raises:
        InputError: If the tokens differ, no side or head is in both, or they hold no attention.
        StoreError: If a store is damaged.
    """
    if isinstance(first, Store) and isinstance(second, Store):
        return compare_stores(first, second, side=side).heads
    if isinstance(first, Store) or isinstance(second, Store):
        raise InputError(
            "A store is compared with a store, a trace with a trace; received one of each.\n"
            "Take a text of the store: store[0]."
        )
    _check_texts(first, second)
    found = [
        row
        for name in _common(first, second, side)
        for row in _compared(name, _pairs(first, second, name))
    ]
    return ranked(found)


def compare_stores(
    first: Store,
    second: Store,
    *,
    side: str | None = None,
    texts: Sequence[int] | None = None,
) -> StoreDivergence:
    """Compare every head of two stores of the same texts, text by text.

    Memory: the arrays of one shard of each store, or of one text each where `texts` are named, and
    two numbers for every head. Time grows with the weights that both hold.
    """
    if len(first) != len(second) or not len(first):
        raise InputError(
            f"{first.path} has {len(first):,} texts, {second.path} has {len(second):,}.\n"
            "Compare stores of the same texts: extract both from the same input."
        )
    if first.complete and second.complete and first.examples != second.examples:
        raise InputError(
            f"{first.path} and {second.path} left out different rows.\n"
            "Compare stores of the same texts: extract both from the rows that both can read."
        )
    if texts is not None and not len(texts):
        raise InputError("No text was requested.\nLeave `texts` out for all of them.")
    chosen = None if texts is None else [first.shard_of(number)[0] for number in texts]
    pairs = _both(first, second, chosen)
    sums: dict[tuple[str, int, int], np.ndarray] = {}
    each: list[tuple[int, float]] = []
    for number, one, other in pairs:
        try:
            rows = compare_traces(one, other, side=side)
        except InputError as error:
            raise InputError(f"Text {number} of {first.path} and {second.path}: {error}") from error
        known = [row for row in rows if not math.isnan(row.divergence)]
        for row in rows:
            sums.setdefault((row.side, row.layer, row.head), np.zeros(3))
        for row in known:
            sums[row.side, row.layer, row.head] += row.divergence, row.cosine, 1
        each = _most(each, number, [row.divergence for row in known])
    count = len(first.examples) if chosen is None else len(chosen)
    heads = ranked(
        HeadDivergence(*key, *(np.nan if not n else float(x / n) for x in (divergences, alike)))
        for key, (divergences, alike, n) in sorted(sums.items(), key=lambda item: _order(item[0]))
    )
    left_out = {key: count - int(n) for key, (_, _, n) in sums.items() if n < count}
    return StoreDivergence(heads, count, left_out, each)


def _both(
    first: Store, second: Store, chosen: Sequence[int] | None
) -> Iterator[tuple[int, Trace, Trace]]:
    """The texts of both stores with their numbers."""
    if chosen is not None:
        return ((number, first[number], second[number]) for number in chosen)
    pairs = zip(first, second, strict=True)
    return ((number, *pair) for number, pair in zip(first.examples, pairs, strict=True))


def _most(
    found: list[tuple[int, float]], number: int, divergences: Sequence[float]
) -> list[tuple[int, float]]:
    """The few texts that differ most, with one more looked at."""
    if divergences:
        found = [*found, (number, float(np.mean(divergences)))]
    return sorted(found, key=lambda row: (-row[1], row[0]))[:_FEW]


def _order(key: tuple[str, int, int]) -> tuple[int, int, int]:
    side, layer, head = key
    return SIDES.index(side), layer, head


def ranked(rows: Iterable[HeadDivergence]) -> list[HeadDivergence]:
    """Heads, the most different first, those that could not be compared last."""
    return sorted(rows, key=lambda row: (math.isnan(row.divergence), -row.divergence))


def _check_texts(first: Trace, second: Trace) -> None:
    for name in ("tokens", "decoder_tokens"):
        ours, theirs = ([list(row) for row in getattr(t, name)] for t in (first, second))
        if ours == theirs:
            continue
        place = next(
            (b for b, (x, y) in enumerate(zip(ours, theirs, strict=False)) if x != y), None
        )
        if place is None:
            message = f"{len(ours)} and {len(theirs)} sequences"
        else:
            x, y = ours[place], theirs[place]
            at = next((i for i, (s, t) in enumerate(zip(x, y, strict=False)) if s != t), None)
            differ = f"{len(x)} and {len(y)} tokens" if at is None else f"{x[at]!r} and {y[at]!r}"
            message = f"sequence {place}{'' if at is None else f', position {at}'}: {differ}"
        raise InputError(
            f"The {name} of the two traces differ: {message}.\n"
            "Compare traces of the same texts, cut by the same tokenizer."
        )


def _common(first: Trace, second: Trace, side: str | None) -> list[str]:
    """Sides whose weights both traces have."""
    held: Mapping[str, list[AttentionRecord | None]] = {
        name: [getattr(trace, name) for trace in (first, second)] for name in SIDES
    }
    both = [n for n, pair in held.items() if all(s and s.weights is not None for s in pair)]
    if not both or (side is not None and side not in both):
        raise InputError(
            f"The two traces have no weights of {side or 'a side'} in common; both have "
            f"{', '.join(both) or 'none'}.\n"
            "Capture weights in both: capture=fa.Capture(weights=True)."
        )
    return both if side is None else [side]


def _pairs(first: Trace, second: Trace, side: str) -> list[tuple[AttentionRecord, AttentionRecord]]:
    """The records of a side, text by text, without padding."""
    pairs = [(getattr(a, side), getattr(b, side)) for a, b in zip(first, second, strict=True)]
    for one, other in pairs:
        for record in (one, other):
            record.require_whole("Comparing traces")
    return pairs


def _compared(
    side: str, pairs: list[tuple[AttentionRecord, AttentionRecord]]
) -> list[HeadDivergence]:
    """The heads of one side, by layer and head."""
    one, other = pairs[0]
    layers = [n for n in one.layers if n in other.layers]
    heads = [n for n in one.heads if n in other.heads]
    if not layers or not heads:
        raise InputError(
            f"The two traces share no {'heads' if layers else 'layers'} of {side}: "
            f"{_numbers(one, layers)} and {_numbers(other, layers)}.\n"
            "Capture the same layers and heads in both."
        )
    divergences, alike = np.zeros((2, len(layers), len(heads)))
    for pair in pairs:
        p, q = (
            layer_weights(s, layers, allow_nan=True)[:, [s.heads.index(h) for h in heads]]
            for s in pair
        )
        divergences += jensen_shannon(p, q).mean(-1) / len(pairs)
        alike += cosine(p, q).mean(-1) / len(pairs)
    alike[np.isnan(divergences)] = np.nan
    return [
        HeadDivergence(side, layer, head, float(divergences[i, j]), float(alike[i, j]))
        for i, layer in enumerate(layers)
        for j, head in enumerate(heads)
    ]


def _numbers(record: AttentionRecord, layers: list[int]) -> str:
    return ", ".join(map(str, record.heads if layers else record.layers))
