# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Circuits of heads from weights alone: copying, matching, composition (Elhage et al. 2021).

"A Mathematical Framework for Transformer Circuits" takes a head apart into what it attends to,
`W_E W_Q W_K^T W_E^T`, and what it does to logits with what it attends to, `W_E W_V W_O W_U`, both
`V x V` (vectors are rows here). Their eigenvalues other than 0 are those of the `D x D` matrices
`W_K^T (W_E^T W_E) W_Q` and `W_O (W_U W_E) W_V`, which are the ones that are made. No text is read.

Composition is how much of what an earlier head writes a later one reads: with W_OV = W_V W_O of the
earlier head (rows from the left), and of the later one W_Q, W_K and W_V W_O, in Frobenius norms

    Q: ||W_OV W_Q W_K^T|| / (||W_OV|| ||W_Q W_K^T||)
    K: ||W_OV W_K W_Q^T|| / (||W_OV|| ||W_Q W_K^T||)
    V: ||W_OV W_V W_O||   / (||W_OV|| ||W_V W_O||)

With M = W_O W_Q, `D x D`, the first numerator is the root of tr(M^T W_V^T W_V M W_K^T W_K), so no
product is wider than a head but M itself.

Norms are folded into the projections of `CircuitWeights`: the scale of the norm before attention,
of the norm after it (Gemma), of the final norm, of the norm of the embeddings and of the norms of
queries and keys, and the subtraction of the mean by a LayerNorm. Divisions by standard deviations,
biases, soft caps and sinks are left out. LayerNorm is `x C / s * scale + bias`, where
C = I - 1 1^T / E takes the mean away and s is the standard deviation; RMSNorm has no C and no bias.
All but the division by s, one positive number for each position, is linear.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.circuit_scores import KINDS, Composition, HeadCircuits
from flaxattn.models.bert import RelativeBias
from flaxattn.models.decoder import kinds_of_layers
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.models.encoder_config import BertConfig, ModernBertConfig
from flaxattn.models.positions import Rotation, relative_bias, rotate, rotations_at
from flaxattn.models.seq2seq_config import T5Config
from flaxattn.pretrained.head_projections import (
    HeadProjections,
    head_projections,
    layer_parameters,
    parameters_below,
)
from flaxattn.pretrained.nonfinite_error import refusal
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq


class Norm(NamedTuple):
    """Parameters of a norm, in float64.

    Attributes:
        centred: Whether the mean is taken away, as LayerNorm does.
        scale: Factors; of a norm with 1 + parameter, these.
        bias: 0 where there is none.
        epsilon: Added to the variance or the mean square.
    """

    centred: bool
    scale: Float[np.ndarray, " E"]
    bias: Float[np.ndarray, " E"]
    epsilon: float

    def pulled_back(
        self, direction: Float[np.ndarray, "B T E"], x: Float[np.ndarray, "B T E"]
    ) -> Float[np.ndarray, "B T E"]:
        """The direction before the norm of `x` whose product with a vector is that behind it."""
        scaled = direction * self.scale
        if self.centred:
            scaled = scaled - scaled.mean(-1, keepdims=True)
            x = x - x.mean(-1, keepdims=True)
        return scaled / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon)

    def applied(self, x: Float[np.ndarray, "*rows E"]) -> Float[np.ndarray, "*rows E"]:
        """The norm of vectors."""
        x = x - x.mean(-1, keepdims=True) if self.centred else x
        normal = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon)
        return normal * self.scale + self.bias

    def before(self, matrix: Float[np.ndarray, "*heads E D"]) -> Float[np.ndarray, "*heads E D"]:
        """`C diag(scale) matrix`: a matrix that reads what the norm gives, with the norm in it."""
        scaled = self.scale[:, None] * matrix
        return scaled - scaled.mean(-2, keepdims=True) if self.centred else scaled

    def behind(self, matrix: Float[np.ndarray, "*heads D E"]) -> Float[np.ndarray, "*heads D E"]:
        """`matrix C diag(scale)`: a matrix whose output the norm reads, with the norm in it."""
        moved = matrix - matrix.mean(-1, keepdims=True) if self.centred else matrix
        return moved * self.scale


def norm_of(config: Any, params: Any) -> Norm:
    """A norm of a model."""
    scale = np.asarray(params["scale"], np.float64)
    bias = np.asarray(params["bias"], np.float64) if "bias" in params else np.zeros_like(scale)
    centred = not getattr(config, "root_mean_square", False)
    if isinstance(config, DecoderConfig):
        centred = config.norm == "layer"
        scale = 1 + scale if config.norm == "rms_plus_one" else scale
    names = ("layer_norm_epsilon", "layer_norm_eps", "norm_eps")
    epsilon = next(getattr(config, name) for name in names if hasattr(config, name))
    return Norm(centred, scale, bias, epsilon)


class TokenProducts(NamedTuple):
    """Products of the embeddings that keys and queries read, the mean over tokens taken away.

    Attributes:
        matched: `W_E^T W_E`, of the keys' embedding and the queries'.
        keys: Products of the keys' embedding with itself.
        queries: Products of the queries' embedding with itself.
    """

    matched: Float[np.ndarray, "E E"]
    keys: Float[np.ndarray, "E E"]
    queries: Float[np.ndarray, "E E"]


class CircuitWeights(NamedTuple):
    """Folded weights of one side, and products of its embeddings.

    Attributes:
        heads: Projections with norms folded in.
        matched: `W_E^T W_E`, of the keys' embedding and the queries'; None where queries and keys
            are of different vocabularies.
        written: `W_U W_E`, of the output and the keys' embedding; None for the same reason.
        tokens: Products of centred embeddings; None for the same reason.
    """

    heads: HeadProjections
    matched: Float[np.ndarray, "E E"] | None
    written: Float[np.ndarray, "E E"] | None
    tokens: TokenProducts | None


def circuit_weights(model: Pretrained, centred: bool = False) -> dict[str, CircuitWeights]:
    """Folded weights of every kind of attention of a model, by side."""
    found = {}
    for side, heads in head_projections(model).items():
        _fold(model, side, heads)
        queries, keys = ("decoder", "encoder") if side == "cross" else (side, side)
        matched = written = tokens = None
        if queries == keys or "decoder_words" not in root(model):
            embedding, other = (_embedding(model, stack) for stack in (keys, queries))
            output = _unembedding(model, queries)
            tokens = _token_products(embedding, other, queries == keys)
            if centred:
                embedding, other = (rows - rows.mean(0) for rows in (embedding, other))
                output = output - output.mean(1, keepdims=True)
            matched, written = embedding.T @ other, output @ embedding
        found[side] = CircuitWeights(heads, matched, written, tokens)
    return found


def _token_products(
    keys: Float[np.ndarray, "V E"], queries: Float[np.ndarray, "V E"], same: bool
) -> TokenProducts:
    """Products of centred embeddings of keys and queries, which may be the same."""
    keys, queries = ((rows - rows.mean(0)).astype(np.float64) for rows in (keys, queries))
    matched = keys.T @ queries
    if same:
        return TokenProducts(matched, matched, matched)
    return TokenProducts(matched, keys.T @ keys, queries.T @ queries)


def root(model: Pretrained) -> Any:
    """Parameters of a model without its task head."""
    params = model.params
    return params.get("model") or params.get("bert") or params


def reading_norms(model: Pretrained, side: str) -> list[Norm | None]:
    """The norm through which each layer's queries read the residual stream; None for none."""
    stack = "decoder" if side == "cross" else side
    layers = layer_parameters(model)[stack]
    if "attention_norms" in root(model):  # of a ModernBERT, whose first layer has none
        stacked = {name: np.asarray(a) for name, a in root(model)["attention_norms"].items()}
        rows = [{n: a[i] for n, a in stacked.items()} for i in range(len(layers) - 1)]
        return [None, *(norm_of(model.config, row) for row in rows)]
    if not _reads_normalised(model.config):
        return [None] * len(layers)
    name = "cross_attention_norm" if side == "cross" else "attention_norm"
    return [norm_of(model.config, parameters_below(layer, name)) for layer in layers]


def embedding_norm(model: Pretrained, stack: str) -> Norm | None:
    """The norm of embeddings before the first layer; None for none."""
    inputs = root(model).get("embeddings") or root(model).get(f"{stack}_inputs") or {}
    return norm_of(model.config, inputs["norm"]) if "norm" in inputs else None


def _reads_normalised(config: Any) -> bool:
    """Return whether norms stand before attention."""
    if isinstance(config, BertConfig):
        return config.variant.pre_norm
    if isinstance(config, DecoderConfig):
        return config.norm_places != "after"
    return getattr(config, "norm_first", True)


def _final_norm(model: Pretrained, stack: str) -> Norm | None:
    """The norm behind the last layer."""
    names = ("norm", "final_norm", f"{stack}_norm")
    found = [root(model)[name] for name in names if name in root(model)]
    return norm_of(model.config, found[0]) if found else None


def _words(model: Pretrained, stack: str) -> Float[np.ndarray, "V W"]:
    parameters = root(model)
    if "embeddings" in parameters:
        table = parameters["embeddings"]["word"]
    else:
        separate = stack == "decoder" and "decoder_words" in parameters
        table = parameters["decoder_words" if separate else "words"]
    return np.asarray(table["embedding"], np.float32)


def projected(model: Pretrained, rows: Float[np.ndarray, "N W"]) -> Float[np.ndarray, "N E"]:
    """Rows of embeddings at the width of the layers, without the projection's bias."""
    projection = root(model).get("embedding_projection")
    return rows if projection is None else rows @ np.asarray(projection["kernel"], np.float32)


def _embedding(model: Pretrained, stack: str) -> Float[np.ndarray, "V E"]:
    """W_E: the embedding as the first layer finds it."""
    words, norm = _words(model, stack), embedding_norm(model, stack)
    words = words if norm is None else norm.behind(words).astype(np.float32)
    return projected(model, words)


def _unembedding(model: Pretrained, stack: str) -> Float[np.ndarray, "E V"]:
    """W_U with the final norm in it: of an encoder the transposed word embedding."""
    if stack == "decoder" and "output" in model.params:
        output = np.asarray(model.params["output"], np.float32)
    else:
        output = projected(model, _words(model, stack)).T
    norm = _final_norm(model, stack)
    return output if norm is None else norm.before(output).astype(np.float32)


def _fold(model: Pretrained, side: str, heads: HeadProjections) -> None:
    """Fold the norms of a side into its projections, in place."""
    stack = "decoder" if side == "cross" else side
    layers = layer_parameters(model)[stack]
    norms = reading_norms(model, side)
    of_keys = [_final_norm(model, "encoder")] * len(norms) if side == "cross" else norms
    count = len(heads.query)
    for layer, (read, keys, parameters) in enumerate(
        zip(_spread(norms, count), _spread(of_keys, count), _spread(layers, count), strict=True)
    ):
        if read is not None:
            heads.query[layer] = read.before(heads.query[layer])
        if keys is not None:
            heads.key[layer], heads.value[layer] = (
                keys.before(heads.key[layer]),
                keys.before(heads.value[layer]),
            )
        if after := parameters_below(parameters, "attention_post_norm"):
            heads.output[layer] = norm_of(model.config, after).behind(heads.output[layer])
        if read is not None and read.centred:  # no layer sees the mean of what is written
            heads.output[layer] -= heads.output[layer].mean(-1, keepdims=True)
        for name, kernel in (("query", heads.query), ("key", heads.key)):
            if normed := parameters_below(parameters, f"attention/{name}_norm"):
                scale = norm_of(model.config, normed).scale.astype(np.float32)
                shape = (-1, 1, kernel.shape[-1])  # of every head, or one for all heads
                kernel[layer] *= scale.reshape(shape)


def _spread(rows: Sequence[Any], count: int) -> Sequence[Any]:
    """Rows of L layers, where all may share one."""
    return list(rows) * count if len(rows) == 1 else rows


class _LayerFactors(NamedTuple):
    """Factors of the matrices that the H heads of a layer write with, or read with.

    Attributes:
        inner: `D x D` products of the factor that the other head does not touch.
        outer: The factor that it does, `[H, D, E]`, or `[H, E, D]` of what reads.
        norm: Frobenius norm of both factors together.
    """

    inner: Float[np.ndarray, "H D D"]
    outer: Float[np.ndarray, "H *E"]
    norm: Float[np.ndarray, " H"]


def compositions(sides: dict[str, HeadProjections], expected: float) -> tuple[Composition, ...]:
    """Scores between every head and the heads that read its output.

    Costs a product `[H D, E] [E, H D]` for each kind and pair of layers, in float32, and
    H^2 products of `D x D` for each in float64.
    """
    found = []
    for reader, reads in sides.items():
        for writer, writes in sides.items():
            for kind in KINDS:
                if not _meets(writer, reader, kind):
                    continue
                scores = _between_layers(writer, writes, reader, reads, kind)
                if not np.isnan(scores).all():
                    found.append(Composition(kind, writer, reader, scores, expected))
    return tuple(found)


def random_composition(
    width: int, depth: int, drawings: int = 20, seed: int = 0
) -> tuple[float, float]:
    """Composition score of Gaussian matrices of a model's shapes: mean and standard deviation.

    It is that of each of the three kinds, near 1 / sqrt(E) where D is much smaller than E.
    """
    rng = np.random.default_rng(seed)
    shape = (drawings, width, depth)
    value, output, read, rest = (rng.normal(size=shape) for _ in range(4))
    inner, outer = _gram(value), output.swapaxes(-1, -2)
    middle, other = outer @ read, _gram(rest)
    numerators = _norms(inner @ middle, middle @ other)
    sizes = _norms(inner, outer @ outer.swapaxes(-1, -2)) * _norms(_gram(read), other)
    scores = numerators / sizes
    return float(scores.mean()), float(scores.std(ddof=1))


def _meets(writer: str, reader: str, kind: str) -> bool:
    """Return whether what a side writes is what another reads for queries, keys or values."""
    source = reader
    if reader == "cross":
        source = "decoder" if kind == "query" else "encoder"
    return source == ("decoder" if writer == "cross" else writer)


def _step(side: str, layer: int) -> int:
    """Place of a layer's attention among those that write to the same stream."""
    return 2 * layer + (side == "cross")


def _between_layers(
    writer: str, writes: HeadProjections, reader: str, reads: HeadProjections, kind: str
) -> Float[np.ndarray, "M N L H"]:
    """Scores of each head that writes with each that reads; nan where it comes later."""
    scores = np.full((*writes.present.shape, *reads.present.shape), np.nan)
    whole = reader == "cross" and kind != "query"  # the encoder has ended
    behind = [_reading(reads, layer, kind) for layer in range(len(reads.query))]
    for first in range(len(writes.query)):
        before = None
        for second, other in enumerate(behind):
            if whole or _step(writer, first) < _step(reader, second):
                before = before or _writing(writes, first)
                scores[first, :, second] = _scores(before, other)
    return scores


def _scores(before: _LayerFactors, behind: _LayerFactors) -> Float[np.ndarray, "N H"]:
    count, depth, width = before.outer.shape
    heads = len(behind.outer)
    flat = np.moveaxis(behind.outer, 1, 0).reshape(width, -1)
    middle = (before.outer.reshape(-1, width) @ flat).astype(np.float64)
    middle = np.moveaxis(middle.reshape(count, depth, heads, -1), 1, 2)
    left = before.inner[:, None] @ middle
    numerators = _norms(left, middle @ behind.inner[None])
    with np.errstate(divide="ignore", invalid="ignore"):
        return numerators / (before.norm[:, None] * behind.norm[None])


def _norms(
    one: Float[np.ndarray, "*n D D"], other: Float[np.ndarray, "*n D D"]
) -> Float[np.ndarray, "*n"]:
    """Roots of traces of one^T other, which are squares of Frobenius norms."""
    return np.sqrt(np.maximum((one * other).sum((-1, -2)), 0))


def _writing(heads: HeadProjections, layer: int) -> _LayerFactors:
    value = _gram(_shared_kernels(heads, heads.value[layer]))
    output = heads.output[layer]
    wide = output.astype(np.float64)
    return _LayerFactors(value, output, _norms(value, wide @ wide.swapaxes(-1, -2)))


def _reading(heads: HeadProjections, layer: int, kind: str) -> _LayerFactors:
    query = heads.query[layer]
    key, value = (_shared_kernels(heads, part[layer]) for part in (heads.key, heads.value))
    output = heads.output[layer].swapaxes(-1, -2)
    touched, rest = {"query": (query, key), "key": (key, query), "value": (value, output)}[kind]
    inner = _gram(rest)
    return _LayerFactors(inner, touched, _norms(_gram(touched), inner))


def _shared_kernels(
    heads: HeadProjections, kernels: Float[np.ndarray, "G E D"]
) -> Float[np.ndarray, "H E D"]:
    """Kernels of keys or values, repeated for the query heads that share them."""
    return np.repeat(kernels, heads.query.shape[1] // len(kernels), axis=0)


def _gram(matrices: Float[np.ndarray, "*n E D"]) -> Float[np.ndarray, "*n D D"]:
    """M^T M in float64."""
    wide = matrices.astype(np.float64)
    return wide.swapaxes(-1, -2) @ wide


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

    The matrices include the scale of the norm before attention, of the norm after it (Gemma 2 and
    3, OLMo 2), of the final norm, of the norm of the embeddings and of the norms of queries and
    keys, and the subtraction of the mean by a LayerNorm. They leave out divisions by standard
    deviations, which are positive numbers for each position, all biases, soft caps, sinks and
    feed-forward layers. In models that normalise sums (BERT, Marian), the norms between layers
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
        seed: Seed of the random heads.
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
    """Matching scores with the queries rotated by each distance; nan where a window ends before."""
    config: Any = model.config
    turns = rotations_at(config, jnp.asarray([distances]))
    found = {}
    for side, products in matching.items():
        scores = np.full((*products.shape[:2], len(distances)), np.nan)
        for layer, (kind, left, right) in enumerate(_kinds(config)):
            unseen = [d > left or -d > right for d in distances]
            turn = None if kind is None else turns[kind]
            for head, product in enumerate(products[layer]):
                scores[layer, head] = eigenvalue_score(_rotated(product, turn, len(distances)))
            scores[layer, :, unseen] = np.nan
        found[side] = scores
    return found


def _rotated(
    product: Float[np.ndarray, "D D"], turn: Rotation | None, count: int
) -> Float[np.ndarray, "N D D"]:
    """The product behind which queries are rotated by N angles."""
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


def position_preference(
    model: Pretrained, side: str, heads: HeadProjections, count: int = 256
) -> Float[np.ndarray, "L H 3"] | None:
    """Mean attention on the positions at -1, 0 and +1 of a query that reads positions alone.

    Costs a square of `count` positions for each head.

    A head reads rows of the table of positions in place of the residual stream, through its norms,
    and the scores go through a softmax. A bias by distance (T5, MPNet) takes part; T5 has nothing
    else. None where the model has neither.
    """
    if side == "cross":
        return None
    table = _table(model, side)
    count = count if table is None else min(count, len(table))
    biases = _biases(model, side, count)
    if table is None and biases is None:
        return None
    shares = np.full((*heads.present.shape, 3), np.nan)
    norms = reading_norms(model, side)
    norms = norms * len(shares) if len(norms) == 1 else norms
    shared = heads.query.shape[1] // heads.key.shape[1]
    for layer, head in np.argwhere(heads.present).tolist():
        scores = 0.0 if biases is None else biases[min(layer, len(biases) - 1), head]
        if table is not None:
            norm, group = norms[layer], head // shared
            x = table[:count] if norm is None else norm.applied(table[:count])
            query = x @ heads.query[layer, head] + heads.query_bias[layer, head]
            key = x @ heads.key[layer, group] + heads.key_bias[layer, group]
            scores = scores + query @ key.T * _scale(model, heads)
        shares[layer, head] = _near(np.asarray(scores), causal=side == "decoder")
    return shares


def _near(scores: Float[np.ndarray, "N N"], causal: bool) -> list[float]:
    """Mean share of the softmax below, on and above the diagonal."""
    if causal:
        scores = np.where(np.tri(len(scores), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    diagonals = [np.diagonal(weights, offset) for offset in (-1, 0, 1)]
    present = [a.size > 0 and not (causal and n == 2) for n, a in enumerate(diagonals)]
    return [float(a.mean()) if s else math.nan for a, s in zip(diagonals, present, strict=True)]


def _scale(model: Pretrained, heads: HeadProjections) -> float:
    """Factor on the product of query and key."""
    stated = getattr(model.config, "score_scale", None)
    return heads.query.shape[-1] ** -0.5 if stated is None else stated


def _table(model: Pretrained, side: str) -> Float[np.ndarray, "N E"] | None:
    """Positions as the first layer finds them where there is no word; None for none."""
    if not hasattr(model, "positions"):
        return None
    try:
        own = isinstance(model, PretrainedSeq2Seq)
        table = model.positions(side) if own else model.positions()  # type: ignore - of some
    except InputError:
        return None
    norm = embedding_norm(model, side)
    rows = np.asarray(table, np.float64)
    rows = projected(model, rows if norm is None else norm.applied(rows))
    projection = root(model).get("embedding_projection")
    return rows if projection is None else rows + np.asarray(projection["bias"])


def _biases(model: Pretrained, side: str, count: int) -> Float[np.ndarray, "L H N N"] | None:
    """Biases of scores by distance: of every layer, or one for all."""
    config, parameters = model.config, root(model)
    if isinstance(config, T5Config):
        far, both = config.relative_attention_max_distance, side == "encoder"
        table = jnp.asarray(parameters[f"{side}_bias"]["embedding"])
        functions = [relative_bias(one, far, both) for one in table.reshape(-1, *table.shape[-2:])]
    elif isinstance(config, BertConfig) and config.variant.relative:
        function: Any = RelativeBias(config).apply({"params": parameters["relative_bias"]})
        functions = [function]
    else:
        return None
    places = jnp.arange(count)
    biases = [function(places[:, None], places[None]) for function in functions]
    return np.asarray(jnp.stack(biases), np.float64)


class _Writes(NamedTuple):
    """Factors of what the H heads of an earlier layer write: values, outputs and tokens' size."""

    value: Float[np.ndarray, "H E D"]
    output: Float[np.ndarray, "H D E"]
    size: Float[np.ndarray, "H D D"]


class _Reads(NamedTuple):
    """Factors of what the H heads of a later layer read: keys, queries' tokens and their size."""

    key: Float[np.ndarray, "H E D"]
    query: Float[np.ndarray, "H E D"]
    size: Float[np.ndarray, "H D D"]


def prefix_scores(
    writer: CircuitWeights, reader: CircuitWeights, earlier: Bool[np.ndarray, "M N L H"]
) -> Float[np.ndarray, "M N L H"]:
    """Score of each head behind each earlier one; nan for other pairs, and where all is 0.

    Costs two products `[H D, E] [E, H D]` for each pair of layers, in float64.

    `M = W_E W_Q W_K^T W_O'^T W_V'^T W_E^T` (Elhage et al. 2021) has tokens of queries as rows and
    the tokens that the earlier head moved to the keys as columns; an induction head behind a
    previous-token head has its largest numbers on the diagonal. The share of positive eigenvalues
    does not show that: it is near 1 for almost every pair of heads where all embeddings share a
    direction. So the mean over tokens is subtracted from both embeddings, and the score is `tr(M) /
    (sqrt(D) ||M||)` in the Frobenius norm: 1 where M is the identity on D directions, about 0 at
    random.
    """
    scores = np.full(earlier.shape, np.nan)
    tokens = reader.tokens
    if tokens is None:
        return scores
    reads = []
    for layer in range(len(reader.heads.query)):
        query = reader.heads.query[layer].astype(np.float64)
        size = query.swapaxes(-1, -2) @ tokens.queries @ query
        key = _for_queries(reader.heads, reader.heads.key[layer])
        reads.append(_Reads(key, tokens.matched @ query, size))
    for first in range(len(writer.heads.value)):
        if not earlier[first].any():
            continue
        value = _for_queries(writer.heads, writer.heads.value[first])
        size = value.swapaxes(-1, -2) @ tokens.keys @ value
        writes = _Writes(value, writer.heads.output[first].astype(np.float64), size)
        for second, read in enumerate(reads):
            if earlier[first, :, second].any():
                scores[first, :, second] = _between(writes, read)
    return np.where(earlier, scores, np.nan)


def _between(writes: _Writes, reads: _Reads) -> Float[np.ndarray, "N H"]:
    """Scores of the heads of a layer behind those of an earlier one."""
    depth = writes.output.shape[1]
    composed = _products(writes.output, reads.key)  # W_O' W_K
    matched = _products(writes.value.swapaxes(-1, -2), reads.query)  # W_V'^T W_E^T W_E W_Q
    traces = (composed * matched).sum((-1, -2))
    left = writes.size[:, None] @ composed
    squares = (left * (composed @ reads.size[None])).sum((-1, -2))
    with np.errstate(divide="ignore", invalid="ignore"):
        return traces / np.sqrt(depth * np.maximum(squares, 0))


def _products(
    left: Float[np.ndarray, "N D E"], right: Float[np.ndarray, "H E C"]
) -> Float[np.ndarray, "N H D C"]:
    """Products of every matrix on the left with every one on the right, as one product."""
    count, depth, width = left.shape
    flat = np.moveaxis(right, 1, 0).reshape(width, -1)
    both = (left.reshape(-1, width) @ flat).reshape(count, depth, len(right), -1)
    return np.moveaxis(both, 1, 2)


def _for_queries(
    heads: HeadProjections, kernels: Float[np.ndarray, "G E D"]
) -> Float[np.ndarray, "H E D"]:
    """Kernels of keys or values in float64, repeated for the query heads that share them."""
    shared = heads.query.shape[1] // len(kernels)
    return np.repeat(kernels.astype(np.float64), shared, axis=0)
