# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""How far apart the attention of the same head is in two traces, such as of two checkpoints.

Jensen–Shannon divergence in nats, between 0 and log 2, and cosine, both a mean over rows. They
describe one text or a few; tests over many texts are another matter. How alike the heads of one
trace are is in `flaxattn.heads.likeness`.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.records import layer_weights
from flaxattn.seen import Seen
from flaxattn.trace import Trace

_SIDES = ("encoder", "decoder", "cross")


@dataclasses.dataclass(frozen=True)
class HeadDivergence:
    """How far one head's attention differs between two traces.

    Attributes:
        side: `encoder`, `decoder` or `cross`.
        layer: Number of the layer.
        head: Number of the head.
        divergence: Jensen–Shannon, in nats: 0 if equal, log 2 if no key is shared.
        cosine: Between the two rows of weights: 1 if equal up to scale, 0 if no key is shared.
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

    Args:
        first: Rows that sum to one, or to zero where nothing is seen.
        second: As many.

    Returns:
        Nats, between 0 and log 2. float64 inside: differences of close rows would drown otherwise.
    """
    p, q = (np.asarray(rows, np.float64) for rows in (first, second))
    apart = _relative(p, (p + q) / 2) + _relative(q, (p + q) / 2)
    return np.clip(apart / 2, 0, np.log(2))


def _relative(p: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Sum of p log(p / mean) over keys."""
    ratio = np.divide(p, mean, out=np.ones_like(mean), where=p > 0)
    return np.sum(p * np.log(ratio), axis=-1)


def cosine(
    first: Float[np.ndarray, "*heads Q K"], second: Float[np.ndarray, "*heads Q K"]
) -> Float[np.ndarray, "*heads Q"]:
    """Cosine between each two rows; two rows of zeros are alike, one of zeros is like nothing.

    Args:
        first: Rows of weights.
        second: As many.
    """
    p, q = (np.asarray(rows, np.float64) for rows in (first, second))
    lengths = np.linalg.norm(p, axis=-1) * np.linalg.norm(q, axis=-1)
    empty = ~p.any(-1) & ~q.any(-1)
    product = np.sum(p * q, axis=-1)
    return np.minimum(np.divide(product, lengths, out=1.0 * empty, where=lengths > 0), 1)


def compare_traces(first: Trace, second: Trace, *, side: str | None = None) -> list[HeadDivergence]:
    """Compare every head that two traces of the same texts have in common.

    Divergence and cosine are means over the real queries of each text, then over texts.

    Args:
        first: With weights, such as of a model before fine-tuning.
        second: Of the same texts, such as of the model after it.
        side: `encoder`, `decoder` or `cross`; default all that both have.

    Returns:
        The heads, the most different first; equals in the order of layers and heads.

    Raises:
        InputError: If the tokens differ, no side or head is in both, or they hold no attention.
    """
    _check_texts(first, second)
    found = [
        row
        for name in _common(first, second, side)
        for row in _compared(name, _pairs(first, second, name))
    ]
    return sorted(found, key=lambda row: -row.divergence)


def _check_texts(first: Trace, second: Trace) -> None:
    for name in ("tokens", "decoder_tokens"):
        ours, theirs = ([list(row) for row in getattr(t, name)] for t in (first, second))
        if ours == theirs:
            continue
        place = next(
            (b for b, (x, y) in enumerate(zip(ours, theirs, strict=False)) if x != y), None
        )
        if place is None:
            told = f"{len(ours)} and {len(theirs)} sequences"
        else:
            x, y = ours[place], theirs[place]
            at = next((i for i, (s, t) in enumerate(zip(x, y, strict=False)) if s != t), None)
            differ = f"{len(x)} and {len(y)} tokens" if at is None else f"{x[at]!r} and {y[at]!r}"
            told = f"sequence {place}{'' if at is None else f', position {at}'}: {differ}"
        raise InputError(
            f"The {name} of the two traces differ: {told}.\n"
            "Compare traces of the same texts, cut by the same tokenizer."
        )


def _common(first: Trace, second: Trace, side: str | None) -> list[str]:
    """Sides whose weights both traces have."""
    held: Mapping[str, list[Seen | None]] = {
        name: [getattr(trace, name) for trace in (first, second)] for name in _SIDES
    }
    both = [n for n, pair in held.items() if all(s and s.weights is not None for s in pair)]
    if not both or (side is not None and side not in both):
        raise InputError(
            f"The two traces have no weights of {side or 'a side'} in common; both have "
            f"{', '.join(both) or 'none'}.\n"
            "Capture weights in both: capture=fa.Capture(weights=True)."
        )
    return both if side is None else [side]


def _pairs(first: Trace, second: Trace, side: str) -> list[tuple[Seen, Seen]]:
    """The records of a side, text by text, without padding."""
    pairs = [(getattr(a, side), getattr(b, side)) for a, b in zip(first, second, strict=True)]
    for one, other in pairs:
        for record in (one, other):
            record.require_whole("Comparing traces")
    return pairs


def _compared(side: str, pairs: list[tuple[Seen, Seen]]) -> list[HeadDivergence]:
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
    apart, alike = np.zeros((2, len(layers), len(heads)))
    for pair in pairs:
        p, q = (layer_weights(s, layers)[:, [s.heads.index(h) for h in heads]] for s in pair)
        apart += jensen_shannon(p, q).mean(-1) / len(pairs)
        alike += cosine(p, q).mean(-1) / len(pairs)
    return [
        HeadDivergence(side, layer, head, float(apart[i, j]), float(alike[i, j]))
        for i, layer in enumerate(layers)
        for j, head in enumerate(heads)
    ]


def _numbers(seen: Seen, layers: list[int]) -> str:
    return ", ".join(map(str, seen.heads if layers else seen.layers))
