# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Composition of heads: how much of what an earlier head writes a later one reads.

Elhage et al. (2021), section "Composition": with W_OV = W_V W_O of the earlier head (rows from the
left), and of the later one W_Q, W_K and W_V W_O,

    Q: ||W_OV W_Q W_K^T|| / (||W_OV|| ||W_Q W_K^T||)
    K: ||W_OV W_K W_Q^T|| / (||W_OV|| ||W_Q W_K^T||)
    V: ||W_OV W_V W_O||   / (||W_OV|| ||W_V W_O||)

in Frobenius norms. With M = W_O W_Q, `D x D`, the first numerator is the root of
tr(M^T W_V^T W_V M W_K^T W_K), so no product is wider than a head but M itself.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from flaxattn.measures.circuit_scores import KINDS, Composition
from flaxattn.pretrained.head_projections import HeadProjections


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
    """Scores between every head and all that read what it writes.

    Costs a product `[H D, E] [E, H D]` for each kind and pair of layers, in float32, and
    H^2 products of `D x D` for each in float64.
    """
    found = []
    for reader, reads in sides.items():
        for writer, writes in sides.items():
            for kind in KINDS:
                if not _meets(writer, reader, kind):
                    continue
                scores = _between(writer, writes, reader, reads, kind)
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


def _between(
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
    value = _gram(_for_queries(heads, heads.value[layer]))
    output = heads.output[layer]
    wide = output.astype(np.float64)
    return _LayerFactors(value, output, _norms(value, wide @ wide.swapaxes(-1, -2)))


def _reading(heads: HeadProjections, layer: int, kind: str) -> _LayerFactors:
    query = heads.query[layer]
    key, value = (_for_queries(heads, part[layer]) for part in (heads.key, heads.value))
    output = heads.output[layer].swapaxes(-1, -2)
    touched, rest = {"query": (query, key), "key": (key, query), "value": (value, output)}[kind]
    inner = _gram(rest)
    return _LayerFactors(inner, touched, _norms(_gram(touched), inner))


def _for_queries(
    heads: HeadProjections, kernels: Float[np.ndarray, "G E D"]
) -> Float[np.ndarray, "H E D"]:
    """Kernels of keys or values, repeated for the query heads that share them."""
    return np.repeat(kernels, heads.query.shape[1] // len(kernels), axis=0)


def _gram(matrices: Float[np.ndarray, "*n E D"]) -> Float[np.ndarray, "*n D D"]:
    """M^T M in float64."""
    wide = matrices.astype(np.float64)
    return wide.swapaxes(-1, -2) @ wide
