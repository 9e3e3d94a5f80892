# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The neuron level: queries, keys and values of a trace, and what makes weights of their products.

A page multiplies and adds by itself, so that each number on it follows from those beside it; this
file gives it the factor, the mask and the bias, after it has seen that their softmax gives the
weights of the trace. It draws nothing and never imports a model.

With rotary positions, dimensions i and i + P of a head are rotated together by an angle that grows
with the position, so a score is a sum over P pairs, each of which depends on the distance of query
and key, and over the dimensions that are not rotated.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.kernels import reference
from flaxattn.kernels.contract import Capture
from flaxattn.trace.record import FIELDS, AttentionRecord, choose, layer_weights
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import Blocks, characters

VECTORS_BYTES = 32_000_000  # beyond this, beside its weights, a page becomes slow to open
_EXACT_BYTES = 2_000_000  # up to here numbers keep float32; larger ones are halved by float16
# A softmax is that of other terms if a weight is further off than this share of its row's largest.
# Where the factor is unknown, it must differ from terms that give nearly the same weights.
_TOLD, _GUESSED = 0.1, 0.01
_STEP = {"uint8": 1 / 255, "bfloat16": 2.0**-8, "float16": 2.0**-11}  # of weights just below 1
_ROUNDING = 1e-2  # scores of a product whose factors were rounded to bfloat16, as on a TPU
Mask = Literal["none", "causal"]
Projection = Literal["query", "key", "value"]
_PROJECTIONS: tuple[Projection, ...] = ("query", "key", "value")
_UNEXPLAINED = (
    "The weights of this side are not a softmax of scaled products of its queries and keys. "
    "Additive attention, as in the recurrent model, scores pairs with a small network, so it has "
    "no product to show. If these are products with a bias or another mask, capture the scores as "
    "well: Capture(weights=True, scores=True, query=True, key=True)."
)
_NO_NUMBERS = (
    "Some weights of this side are not numbers (NaN), so no product explains them. The head level "
    "drawn as a matrix shows which: they are hatched."
)


@dataclasses.dataclass(frozen=True)
class SoftmaxTerms:
    """Terms between q·k and a weight: softmax(scale q·k + bias), masked.

    Attributes:
        scale: Factor on q·k.
        mask: `causal` where a key after the query is masked.
        bias: One `[H, Q, K]` per layer, -inf where masked; None where the mask says it all.
        error: Largest distance of a weight from the softmax of these terms.
        windows: Positions before and behind a query that it sees, of each layer; None for all.
    """

    scale: float
    mask: Mask = "none"
    bias: Sequence[Float[np.ndarray, "H Q K"]] | None = None
    error: float = 0.0
    windows: Sequence[tuple[int, int]] | None = None


def require_neuron(trace: Trace) -> None:
    """Check that a trace holds what the neuron level multiplies."""
    sides = [record for record in (trace.encoder, trace.decoder, trace.cross) if record is not None]
    if any(record.query is not None and record.key is not None for record in sides):
        return
    held = [n for n in FIELDS if any(getattr(record, n) is not None for record in sides)]
    raise InputError(
        f"The neuron view multiplies queries and keys; this trace holds "
        f"{' and '.join(held) or 'no arrays'}.\n"
        "Capture them: model.trace(text, capture=fa.Capture(weights=True, query=True, key=True, "
        "value=True))."
    )


def shape_neuron(
    record: AttentionRecord,
    one: Trace,
    side: str,
    layers: Sequence[int],
    blocks: Blocks,
    prefix: str,
) -> dict[str, Any] | None:
    """Return the data of the neuron level for one side of one sequence.

    Costs two softmaxes over all pairs of the chosen layers, in NumPy.
    """
    if record.query is None or record.key is None:
        return None
    taken = sum(characters(data) for name, data in blocks.data.items() if _is_vector(name))
    precision = _choose_precision(record, one, side, layers, taken)
    parts: dict[str, Any] = {
        name: _stored(vectors(record, name, layers), precision) for name in _held(record)
    }
    broken = bool(np.isnan(layer_weights(record, layers, allow_nan=True)).any())
    terms = None if broken else explain(record, layers)
    if terms is not None and terms.bias is not None:
        parts["bias"] = _stored(terms.bias, precision)
    if record.rotation is not None:
        parts["rotation"] = _stored(_rotations(record, layers), precision)
    names = {name: _add(blocks, f"{prefix}/{name}", layers, a) for name, a in parts.items()}
    shaped = {
        "depth": parts["query"][0].shape[-1],
        "width": parts["value"][0].shape[-1] if "value" in parts else 0,
        "precision": precision,
        "pairs": parts["rotation"][0].shape[-1] if "rotation" in parts else 0,
        "windows": None if terms is None else terms.windows,
        **{name: names.get(name) for name in (*_PROJECTIONS, "rotation", "bias")},
    }
    if terms is None:
        problem = _NO_NUMBERS if broken else _UNEXPLAINED
        return shaped | {"scale": None, "mask": "none", "error": None, "problem": problem}
    shown = {name: [a.astype(np.float32) for a in arrays] for name, arrays in parts.items()}
    again = dataclasses.replace(terms, bias=shown.get("bias"))
    error = max(
        float(d.max()) for d in _distances(shown["query"], shown["key"], again, record, layers)
    )
    return shaped | {"scale": terms.scale, "mask": terms.mask, "error": error, "problem": ""}


def _is_vector(block: str) -> bool:
    """Return whether a block was put here, by its name: `0/encoder/query/3`."""
    return block.split("/")[2] in _PROJECTIONS


def _held(record: AttentionRecord) -> list[Projection]:
    return [name for name in _PROJECTIONS if getattr(record, name) is not None]


def _add(blocks: Blocks, prefix: str, layers: Sequence[int], arrays: Any) -> list[str]:
    """Put one block per layer."""
    return [blocks.add(f"{prefix}/{n}", a) for n, a in zip(layers, arrays, strict=True)]


def _stored(layers: Sequence[Float[np.ndarray, "..."]], precision: str) -> list[np.ndarray]:
    """Numbers of every layer as a page holds them, little-endian.

    float16 keeps 11 bits and at most 65,504; infinities stay.
    """
    if precision == "float32":
        return [layer.astype("<f4") for layer in layers]
    bounded = [np.where(np.isfinite(a), np.clip(a, -65504, 65504), a) for a in layers]
    return [layer.astype("<f2") for layer in bounded]


def vectors(
    record: AttentionRecord, name: Projection, layers: Sequence[int]
) -> list[Float[np.ndarray, "H S D"]]:
    """Projections of the first sequence of a record, by layer, in float32."""
    everything = np.asarray(getattr(record, name))
    chosen = [everything[record.layers.index(layer), 0] for layer in layers]
    return [layer.astype(np.float32).swapaxes(0, 1) for layer in chosen]


def _rotations(record: AttentionRecord, layers: Sequence[int]) -> list[Float[np.ndarray, "S 2 P"]]:
    """Cosines and sines of the first sequence, by layer."""
    everything = np.asarray(record.rotation)
    return [everything[record.layers.index(layer), 0].astype(np.float32) for layer in layers]


def explain(record: AttentionRecord, layers: Sequence[int]) -> SoftmaxTerms | None:
    """The terms whose softmax the weights of a record are; None if they cannot be determined.

    A record that holds scores says them all. Without, the factor is the recorded one, or else
    1/sqrt(D), and keys after the query are masked or none, or those outside of a window,
    the record's or the smallest that holds all weights; whichever gives the weights.
    """
    query, key = (vectors(record, name, layers) for name in ("query", "key"))
    scale = query[0].shape[-1] ** -0.5 if record.scale is None else record.scale
    if query[0].shape[-1] != key[0].shape[-1]:
        return None
    assert record.weights is not None
    step = _STEP.get(np.asarray(record.weights[:0]).dtype.name, 0.0)
    share = _GUESSED if record.scale is None else _TOLD
    peaks = [layer.max(-1, keepdims=True) for layer in layer_weights(record, layers)]
    best: SoftmaxTerms | None = None
    for terms in _candidates(record, layers, scale, query, key):
        if terms.windows is not None and best is not None:
            break  # weights that were rounded to 0 are not a window
        distances = _distances(query, key, terms, record, layers)
        error = max(float(layer.max()) for layer in distances)
        pairs = zip(distances, peaks, strict=True)
        fits = all(bool((distance <= step + share * peak).all()) for distance, peak in pairs)
        if fits and (best is None or error < best.error):
            best = dataclasses.replace(terms, error=error)
    return best


def _distances(
    query: Any, key: Any, terms: SoftmaxTerms, record: AttentionRecord, layers: Sequence[int]
) -> list[Float[np.ndarray, "H Q K"]]:
    """Absolute differences between the weights of each layer and those of the terms."""
    made = recomputed(query, key, terms.scale, terms.mask == "causal", terms.bias, terms.windows)
    weights = layer_weights(record, layers)
    return [np.abs(one.weights - held) for one, held in zip(made, weights, strict=True)]


def _candidates(
    record: AttentionRecord, layers: Sequence[int], scale: float, query: Any, key: Any
) -> Iterator[SoftmaxTerms]:
    """Terms that may be those of the weights; one alone where scores tell it."""
    plain = [SoftmaxTerms(scale)]
    if record.sliding_windows:
        plain = list(_recorded_windows(record, layers, scale))
    elif query[0].shape[1] == key[0].shape[1]:
        plain.append(SoftmaxTerms(scale, "causal"))
        plain.append(_inferred_windows(record, layers, scale))
    if record.scores is None or record.scale is None:
        yield from plain
        return
    everything = np.asarray(record.scores)
    scores = [everything[record.layers.index(layer), 0].astype(np.float32) for layer in layers]
    for terms in plain:
        made = recomputed(query, key, scale, terms.mask == "causal", windows=terms.windows)
        pairs = [(one.scores, given) for one, given in zip(made, scores, strict=True)]
        if all(np.allclose(one, given, rtol=_ROUNDING, atol=_ROUNDING) for one, given in pairs):
            yield terms
            return
    pairs = zip(recomputed(query, key, scale), scores, strict=True)
    yield SoftmaxTerms(scale, bias=[given - one.scores for one, given in pairs])


def _recorded_windows(
    record: AttentionRecord, layers: Sequence[int], scale: float
) -> Iterator[SoftmaxTerms]:
    """Terms with the windows that a record names, once causal and once not."""
    assert record.key is not None
    length = record.key.shape[2]
    named = [record.sliding_windows[record.layers.index(layer)] or (None, None) for layer in layers]
    left, right = (
        [length - 1 if size is None else size for size in side] for side in zip(*named, strict=True)
    )
    yield SoftmaxTerms(scale, "causal", windows=[(before, 0) for before in left])
    yield SoftmaxTerms(scale, windows=list(zip(left, right, strict=True)))


def _inferred_windows(record: AttentionRecord, layers: Sequence[int], scale: float) -> SoftmaxTerms:
    """Terms with the smallest windows that hold every weight of a layer that is not 0."""
    windows = []
    for weights in layer_weights(record, layers):
        offsets = np.subtract(*np.nonzero((weights > 0).any(0)))
        windows.append((max(0, int(offsets.max(initial=0))), max(0, int(-offsets.min(initial=0)))))
    causal = not any(right for _, right in windows)
    return SoftmaxTerms(scale, "causal" if causal else "none", windows=windows)


def _choose_precision(
    record: AttentionRecord, one: Trace, side: str, layers: Sequence[int], taken: int
) -> str:
    """Choose the precision of stored numbers, given the bytes already taken."""
    counts = {name: int(np.prod(getattr(record, name).shape[2:])) for name in _held(record)}
    each = 8 * sum(counts.values()) // 3  # characters of a layer in float16
    size = each * len(layers)
    if taken + size > VECTORS_BYTES:
        fits = (VECTORS_BYTES - taken) // each
        cure = f"include_layers=[…] with at most {fits}" if fits > 0 else "a shorter text"
        cure = "one text, sequence=0" if taken and fits <= 0 else cure
        raise InputError(
            f"{', '.join(counts)} of the {side} would take {size / 1e6:,.0f} MB of the page; "
            f"{max(0, VECTORS_BYTES - taken) / 1e6:.0f} MB are left for them.\n"
            f"The text has {len(one.tokens[0])} tokens, and {len(layers)} layers are to travel.\n"
            f"Use {cure}, or capture fewer heads, or no values."
        )
    return "float32" if taken + 2 * size <= _EXACT_BYTES else "float16"


_CAPTURE = Capture(weights=True, scores=True)


class Recomputed(NamedTuple):
    """Scores and weights of one layer, `[H, Q, K]`; scores are -inf where masked."""

    scores: Float[np.ndarray, "H Q K"]
    weights: Float[np.ndarray, "H Q K"]


def recomputed(
    query: Sequence[Float[np.ndarray, "H Q D"]],
    key: Sequence[Float[np.ndarray, "H K D"]],
    scale: float,
    causal: bool = False,
    bias: Sequence[Float[np.ndarray, "H Q K"]] | None = None,
    windows: Sequence[tuple[int, int]] | None = None,
) -> Iterator[Recomputed]:
    """Compute attention anew from its terms."""
    for layer, (q, k) in enumerate(zip(query, key, strict=True)):
        offset = np.arange(k.shape[1]) - np.arange(q.shape[1])[:, None]
        before, behind = (None, None) if windows is None else windows[layer]
        allowed = offset <= 0 if causal else np.ones(offset.shape, bool)
        allowed &= True if before is None else offset >= -before
        allowed &= True if behind is None else offset <= behind
        added = None if bias is None else bias[layer]
        scores, weights = _scores_and_weights(q, k, scale, allowed, added)
        yield Recomputed(np.asarray(scores), np.asarray(weights))


@jax.jit
def _scores_and_weights(
    query: Float[Array, "H Q D"],
    key: Float[Array, "H K D"],
    scale: Float[Array, ""],
    allowed: Bool[Array, "Q K"],
    bias: Float[Array, "H Q K"] | None,
) -> tuple[Float[Array, "H Q K"], Float[Array, "H Q K"]]:
    """Scores and weights of one layer; no values are needed for them."""
    q, k = (array.swapaxes(0, 1)[None] for array in (query, key))
    added = None if bias is None else bias[None]
    options = {"mask": allowed[None, None], "bias": added, "scale": scale, "capture": _CAPTURE}
    captured: Any = reference.attention(q, k, k, **options)[1]
    return captured.scores[0], captured.weights[0]


class RotaryPairs(NamedTuple):
    """Vectors and scores of one query of one head. K keys, D dimensions, P pairs.

    Attributes:
        query: The query before it was rotated.
        keys: The keys before they were rotated.
        rotated_query: The query as it was multiplied.
        rotated_keys: The keys as they were multiplied.
        shares: Part of each scaled score that each pair adds.
        rest: Part that dimensions add which are not rotated.
        weights: Attention; None where the record holds none.
    """

    query: Float[np.ndarray, " D"]
    keys: Float[np.ndarray, "K D"]
    rotated_query: Float[np.ndarray, " D"]
    rotated_keys: Float[np.ndarray, "K D"]
    shares: Float[np.ndarray, "K P"]
    rest: Float[np.ndarray, " K"]
    weights: Float[np.ndarray, " K"] | None

    def deciding(self) -> Int[np.ndarray, " K"]:
        """The pair of each key with the largest share, by size."""
        return np.abs(self.shares).argmax(1)

    def summary(self, keys: int = 5) -> str:
        """Scores of some keys in words, a line for each."""
        order = range(len(self.keys))
        if self.weights is not None:
            order = np.argsort(-self.weights, kind="stable")
        count, pairs = self.shares.shape[1], self.deciding()
        return "\n".join(
            f"key {k}: score {self.shares[k].sum() + self.rest[k]:.2f}; pair {pairs[k]} "
            f"(dimensions {pairs[k]} and {pairs[k] + count}) adds the most, "
            f"{self.shares[k, pairs[k]]:.2f}"
            for k in list(order)[:keys]
        )


def rotary_pairs(record: AttentionRecord, layer: int, head: int, query: int) -> RotaryPairs:
    """Read the pairs of one query of one head."""
    if record.rotation is None or record.query is None or record.key is None:
        raise InputError(
            "This trace holds no rotation of queries and keys.\n"
            "Trace a model with rotary positions, such as a Llama, with "
            "capture=fa.Capture(weights=True, query=True, key=True)."
        )
    at = record.layers.index(choose([layer], record.layers, "layer")[0])
    h = record.heads.index(choose([head], record.heads, "head")[0])
    q, k = (np.asarray(a)[at, 0, :, h].astype(np.float32) for a in (record.query, record.key))
    if not 0 <= query < len(q):
        raise InputError(f"There is no query {query}.\nThere are queries 0 to {len(q) - 1}.")
    rotation = np.asarray(record.rotation)[at, 0].astype(np.float32)
    scale = q.shape[-1] ** -0.5 if record.scale is None else record.scale
    products = scale * q[query] * k
    pairs = rotation.shape[-1]
    weights = None
    if record.weights is not None and record.query_window is None and record.key_window is None:
        weights = np.asarray(record.weights)[at, 0, h, query]
        weights = weights.astype(np.float32) / (255 if weights.dtype == np.uint8 else 1)
    return RotaryPairs(
        before_rotation(q, rotation)[query],
        before_rotation(k, rotation),
        q[query],
        k,
        products[:, :pairs] + products[:, pairs : 2 * pairs],
        products[:, 2 * pairs :].sum(1),
        weights,
    )


def before_rotation(
    vectors: Float[np.ndarray, "*H S D"], rotation: Float[np.ndarray, "S 2 P"]
) -> Float[np.ndarray, "*H S D"]:
    """Queries or keys as they were before they were rotated.

    A factor on rotated vectors, which yarn and longrope have, is taken out as well.
    """
    cos, sin = rotation[:, 0], rotation[:, 1]
    count, size = cos.shape[-1], cos**2 + sin**2
    first, second = vectors[..., :count], vectors[..., count : 2 * count]
    rotated = ((first * cos + second * sin) / size, (second * cos - first * sin) / size)
    return np.concatenate([*rotated, vectors[..., 2 * count :]], -1)
