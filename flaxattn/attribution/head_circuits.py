# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Circuits of heads from weights alone: copying, matching, composition (Elhage et al. 2021).

"A Mathematical Framework for Transformer Circuits" takes a head apart into what it attends to,
`W_E W_Q W_K^T W_E^T`, and what it does to logits with what it attends to, `W_E W_V W_O W_U`, both
`V x V` (vectors are rows here). Their eigenvalues other than 0 are those of the `D x D` matrices
`W_K^T (W_E^T W_E) W_Q` and `W_O (W_U W_E) W_V`, which are the ones that are made. No text is read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from flaxattn.attribution.circuit_weights import CircuitWeights, circuit_weights
from flaxattn.attribution.composition import compositions, random_composition
from flaxattn.attribution.position_preference import position_preference
from flaxattn.attribution.prefix_matching import prefix_scores
from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.circuit_scores import Composition, HeadCircuits
from flaxattn.models.decoder import kinds_of_layers
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.models.modernbert_config import ModernBertConfig
from flaxattn.models.rotary import Rotation, rotate, rotations_at
from flaxattn.pretrained.head_projections import head_projections
from flaxattn.pretrained.nonfinite_error import refusal
from flaxattn.pretrained.pretrained_model import Pretrained

_FEWEST = 2
DISTANCES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64)
"""Distances at which rotary positions are looked at unless others are named."""


@check_arguments()
def head_circuits(
    model: Pretrained,
    *,
    distances: Sequence[int] | None = None,
    positions: int = 256,
    centred: bool = False,
    drawings: int = 20,
    seed: int = 0,
    allow_nonfinite: bool = False,
) -> HeadCircuits:
    """Score the circuits of every head, from weights alone (Elhage et al. 2021).

    Folded into the matrices are the scale of the norm before attention, of the one behind it (Gemma
    2 and 3, OLMo 2), of the final norm, of the norm of the embeddings and of norms of queries and
    keys, and the mean that a LayerNorm takes away. Left out are divisions by standard deviations,
    which are positive numbers for each position, all biases, soft caps, sinks and what
    feed-forward layers do. In models that normalise sums (BERT, Marian), the norms between layers
    cannot be folded and scores are of the weights as they are. An encoder has no unembedding: its
    `W_U` is the transposed word embedding, through its final norm where it has one. Layers that
    share parameters (ALBERT) have the same scores, and compose with each other.

    Cross-attention reads the encoder's output, so its keys' `W_E` is the encoder's embedding: it
    has copying and matching scores where both sides share their vocabulary. Its queries compose
    with heads of the decoder, its keys and values with those of the encoder.

    With rotary positions, `W_Q W_K^T` depends on the distance d of query and key: it is
    `W_Q R_d W_K^T`. `matching` and compositions are those at d = 0.

    Prefix matching always takes the mean over the vocabulary from `W_E`; without, all heads have
    much the same. In tiny-gpt2 its induction heads 3.0 to 3.4 have 0.41 to 0.48 behind head 2.2,
    which attends to the previous token, and all other heads 0.15 at most.

    Costs 3 V E^2 for the products of embeddings, E^3 for each layer, 5 E^3 for each pair of layers
    and an eigenvalue problem of `D x D` for each head and distance, on the host; memory is a
    float32 copy of the attention's parameters, and 2 E^2.

    >>> import flaxattn as fa
    >>> circuits = fa.head_circuits(fa.from_pretrained("tiny-gpt2"), drawings=2)
    >>> circuits.copying["decoder"].shape  # layers, heads; 1 for heads that copy
    (4, 6)
    >>> len(circuits.edges("key", 5))  # strongest K-compositions, as of an induction head
    5

    Args:
        model: Any with multi-head attention.
        distances: Query minus key, of models with rotary positions; below 0 for keys that come
            later, which only encoders see. Default 0 to 8, 16, 32 and 64, as far as texts go.
        positions: Number of positions on which the preference of positions is measured.
        centred: Whether the mean over the vocabulary is taken from `W_E` and `W_U` first. Where all
            embeddings share a large part, its eigenvalue alone decides the scores.
        drawings: Number of pairs of random heads whose mean composition is the expected one.
        seed: Of the random heads.
        allow_nonfinite: Whether scores may be nan where parameters are NaN or infinite; otherwise
            this is an error.

    Returns:
        Scores of every head of `encoder`, `decoder` and `cross`, as many as the model has.

    Raises:
        InputError: If the model has no heads, a number is out of range, or parameters are NaN.
    """
    _check_counts(positions, drawings)
    raw = head_projections(model)
    if not raw:
        raise InputError(
            f"{model.name!r} is a {model.config.architectures[0]}, whose attention has no heads.\n"
            "Circuits are products of the projections of heads.\nName a Transformer."
        )
    broken = [side for side, heads in raw.items() if not all(np.isfinite(a).all() for a in heads)]
    if broken and not allow_nonfinite:
        problem = f"the weights of its {broken[0]} attention are NaN or infinite"
        raise refusal(model.name, model.params, problem)
    chosen = _distances(model, distances) if _has_rotary(model) else ()
    with np.errstate(invalid="ignore", over="ignore"):
        preferences = {s: position_preference(model, s, h, positions) for s, h in raw.items()}
        return _scored(model, preferences, chosen, centred, (drawings, seed))


def _scored(
    model: Pretrained,
    preferences: Mapping[str, Float[np.ndarray, "L H 3"] | None],
    distances: tuple[int, ...],
    centred: bool,
    random: tuple[int, int],
) -> HeadCircuits:
    sides = circuit_weights(model, centred)
    width, depth = next(iter(sides.values())).heads.query.shape[-2:]
    expected, spread = random_composition(width, depth, *random)
    matching = {side: _matching(one) for side, one in sides.items()}
    composed = compositions({s: one.heads for s, one in sides.items()}, expected)
    prefixes = {side: _prefixes(sides, side, composed) for side in sides}
    return HeadCircuits(
        model=model.name,
        copying={side: _copying(one) for side, one in sides.items()},
        matching={side: eigenvalue_score(products) for side, products in matching.items()},
        prefix_matching={side: scores for side, (scores, _) in prefixes.items()},
        prefix_writers={side: writers for side, (_, writers) in prefixes.items()},
        distances=distances,
        rotary_matching=_by_distance(model, matching, distances) if distances else {},
        positions={side: shares for side, shares in preferences.items() if shares is not None},
        compositions=composed,
        expected=expected,
        expected_sd=spread,
        centred=centred,
        drawings=random[0],
        seed=random[1],
    )


def eigenvalue_score(matrices: Float[np.ndarray, "*n D D"]) -> Float[np.ndarray, "*n"]:
    """Sum of the eigenvalues over the sum of their sizes; nan for matrices of 0 or with nan."""
    fit = np.isfinite(matrices).all((-1, -2)) & (matrices != 0).any((-1, -2))
    scores = np.full(fit.shape, np.nan)
    values: Any = np.linalg.eigvals(matrices[fit])
    with np.errstate(divide="ignore", invalid="ignore"):
        scores[fit] = values.sum(-1).real / np.abs(values).sum(-1)
    return scores


def _copying(weights: CircuitWeights) -> Float[np.ndarray, "L H"]:
    heads = weights.heads
    if weights.written is None:
        return np.full(heads.present.shape, np.nan)
    shared = heads.query.shape[1] // heads.value.shape[1]
    rows = []
    for value, output in zip(heads.value, heads.output, strict=True):
        products = output @ weights.written @ np.repeat(value, shared, axis=0)
        rows.append(eigenvalue_score(products.astype(np.float64)))
    return np.stack(rows)


def _matching(weights: CircuitWeights) -> Float[np.ndarray, "L H D D"]:
    """`W_K^T (W_E^T W_E) W_Q` of every head; nan where vocabularies differ."""
    heads = weights.heads
    layers, count, _, depth = heads.query.shape
    if weights.matched is None:
        return np.full((layers, count, depth, depth), np.nan)
    shared = count // heads.key.shape[1]
    rows = []
    for query, key in zip(heads.query, heads.key, strict=True):
        products = key.swapaxes(-1, -2) @ weights.matched
        rows.append((np.repeat(products, shared, axis=0) @ query).astype(np.float64))
    return np.stack(rows)


def _prefixes(
    sides: Mapping[str, CircuitWeights], reader: str, composed: Sequence[Composition]
) -> tuple[Float[np.ndarray, "L H"], Int[np.ndarray, "L H 2"]]:
    """Prefix matching of each head behind the earlier head it is best with, and that head."""
    sizes = sides[reader].heads.present.shape
    scores, writers = np.full(sizes, np.nan), np.full((*sizes, 2), -1)
    writer = "encoder" if reader == "cross" else reader
    for one in composed:
        if (one.writer, one.reader, one.kind) == (writer, reader, "key"):
            each = prefix_scores(sides[writer], sides[reader], ~np.isnan(one.scores))
            flat = each.reshape(-1, *sizes)
            scored = ~np.isnan(flat).all(0)
            best = np.where(np.isnan(flat), -np.inf, flat).argmax(0)
            scores[scored] = np.take_along_axis(flat, best[None], 0)[0][scored]
            writers[scored] = np.stack(np.unravel_index(best, each.shape[:2]), -1)[scored]
    return scores, writers


def _has_rotary(model: Pretrained) -> bool:
    return getattr(model.config, "rotary", None) is not None


def _by_distance(
    model: Pretrained, matching: Mapping[str, Float[np.ndarray, "L H D D"]], distances: Any
) -> dict[str, Float[np.ndarray, "L H N"]]:
    """Matching scores with the queries turned by each distance; nan where a window ends before."""
    config: Any = model.config
    turns = rotations_at(config, jnp.asarray([distances]))
    found = {}
    for side, products in matching.items():
        scores = np.full((*products.shape[:2], len(distances)), np.nan)
        for layer, (kind, left, right) in enumerate(_kinds(config)):
            unseen = [d > left or -d > right for d in distances]
            turn = None if kind is None else turns[kind]
            for head, product in enumerate(products[layer]):
                scores[layer, head] = eigenvalue_score(_turned(product, turn, len(distances)))
            scores[layer, :, unseen] = np.nan
        found[side] = scores
    return found


def _turned(
    product: Float[np.ndarray, "D D"], turn: Rotation | None, count: int
) -> Float[np.ndarray, "N D D"]:
    """The product behind which queries are turned by N angles."""
    each = np.broadcast_to(product, (count, *product.shape))
    if turn is None:
        return each
    return np.asarray(rotate(jnp.asarray(each)[None], turn)[0], np.float64)


def _kinds(config: Any) -> list[tuple[str | None, float, float]]:
    """Rotary positions of each layer, and how far back and ahead of a query its window reaches."""
    if isinstance(config, DecoderConfig):
        return [
            (kind["positions"], np.inf if kind["window"] is None else kind["window"] - 1, 0)
            for kind in kinds_of_layers(config)
        ]
    if isinstance(config, ModernBertConfig):
        return [
            ("global", np.inf, np.inf) if window is None else ("local", *window)
            for window in config.windows
        ]
    return [("global", np.inf, np.inf)] * config.num_hidden_layers


def _check_counts(positions: int, drawings: int) -> None:
    for name, value in (("positions", positions), ("drawings", drawings)):
        if isinstance(value, bool) or not isinstance(value, int) or value < _FEWEST:
            raise InputError(
                f"{name}: expected a whole number from {_FEWEST}, received {value!r}.\n"
                "Leave it out for the default."
            )


def _distances(model: Pretrained, distances: Sequence[int] | None) -> tuple[int, ...]:
    """Distances that a text of the model may have."""
    if distances is None:
        return tuple(distance for distance in DISTANCES if distance < model.limit)
    least = 0 if isinstance(model.config, DecoderConfig) else 1 - model.limit
    whole = all(isinstance(d, int) and not isinstance(d, bool) for d in distances)
    if not whole or not distances or not all(least <= d < model.limit for d in distances):
        raise InputError(
            f"distances: expected whole numbers from {least} to {model.limit - 1}, query minus "
            f"key, received {list(distances)!r}.\nLeave them out for the default."
        )
    return tuple(distances)
