# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The structural probe: is a tree a linear map away from hidden states?

After Hewitt and Manning (2019). One map B makes the squared distance |B (h_i - h_j)|² of two words
the number of edges between them, another one makes |B h_i|² the depth of a word. Both are fitted
here, those of all hidden states side by side, and judged beside a chain, the embeddings (hidden
state 0), a control task with a tree that follows from word types, and hidden states of a model
that was never trained.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int
from scipy.stats import rankdata

from flaxattn.errors import InputError
from flaxattn.probes.parsing_probe import check_disjoint
from flaxattn.probes.word_records import (
    TreeMetric,
    WordStates,
    chain_metric,
    control_metric,
    spanning_edges,
)

DISTANCE, DEPTH = "distance", "depth"
Metric = Callable[[WordStates], TreeMetric]
"""The right distances or depths of a sentence."""

_WIDTH = 8  # words of a batch are padded to a multiple of this, so that few shapes are compiled
_WINDOW = 16  # batches whose sentences are sorted by length together
_GAIN = 1e-4  # of the held-out loss, below which an epoch did not help
_PATIENCE = 5  # epochs without one, after which a probe is finished
_SLOWER = 0.1  # times the rate, after each of them
_START = 0.05  # coefficients are drawn between plus and minus this


@dataclasses.dataclass(frozen=True)
class Fitting:
    """Settings for fitting probes; the defaults are those of Hewitt and Manning's code.

    Attributes:
        rank: Rows of B; None for as many as a vector has numbers.
        rate: Learning rate of Adam, divided by ten after every epoch that does not help.
        batch: Sentences of a step.
        epochs: Most passes over all sentences.
        seed: Seed of the first B and of the order of sentences.
    """

    rank: int | None = None
    rate: float = 1e-3
    batch: int = 20
    epochs: int = 40
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class StructuralProbe:
    """A fitted probe of one hidden state; R is its rank.

    Attributes:
        layer: Number of the hidden state: 0 for the embeddings.
        distance: B for distances.
        depth: B for depths.
        losses: Mean absolute errors on held-out sentences, of distance and of depth: per sentence
            over its pairs, or over its words.
        epochs: Passes over all sentences that the two took.
        sentences: Number of sentences, without those held out.
    """

    layer: int
    distance: Float[np.ndarray, "R E"]
    depth: Float[np.ndarray, "R E"]
    losses: tuple[float, float]
    epochs: tuple[int, int]
    sentences: int

    def metric(self, words: WordStates) -> tuple[np.ndarray, np.ndarray]:
        """Predict squared distances `[W W]` and squared norms `[W]` of a sentence."""
        vectors = words.of_layer(self.layer).astype(np.float64)
        if vectors.shape[1] != self.distance.shape[1]:
            raise InputError(
                f"This probe reads vectors of {self.distance.shape[1]} numbers; "
                f"{words.name or 'the sentence'!r} has some of {vectors.shape[1]}.\n"
                "Fit one to sentences of the same model."
            )
        projected = vectors @ self.distance.astype(np.float64).T
        norms = (projected**2).sum(1)
        squared = np.maximum(norms[:, None] + norms - 2 * projected @ projected.T, 0)
        np.fill_diagonal(squared, 0)
        return squared, ((vectors @ self.depth.astype(np.float64).T) ** 2).sum(1)


class StateBatch(NamedTuple):
    """Sentences side by side, padded.

    Attributes:
        vectors: Hidden states of the words.
        wanted: Distances `[B W W]`, or depths `[B W]`.
        sizes: Words of each sentence; 0 where there is none.
    """

    vectors: Float[np.ndarray | Array, "L B W E"]
    wanted: Float[np.ndarray | Array, "B W *W"]
    sizes: Int[np.ndarray | Array, " B"]


def gold_metric(words: WordStates) -> TreeMetric:
    """The tree itself, what a probe should find."""
    return words.tree


def fit_structural_probes(
    train: Sequence[WordStates],
    held_out: Sequence[WordStates],
    fitting: Fitting | None = None,
    *,
    metric: Metric = gold_metric,
    watch: Callable[[int], object] = lambda count: None,
) -> list[StructuralProbe]:
    """Fit a probe to each hidden state that sentences have, by Adam.

    The loss is the mean over sentences of |d - |B (h_i - h_j)|²| over all pairs, and of |d - |B
    h_i|²| over all words. A probe is that of the epoch with the least such error on `held_out`, and
    finished after 5 epochs without a better one. Batches have sentences of like length, unlike in
    Hewitt and Manning's code, in an order that is drawn.

    Cost: per word and epoch 6 L R E multiplications for each of the two, and 3 L W R for distances.
    """
    fitting = fitting or Fitting()
    _check(train, held_out, fitting)
    found = {}
    for kind in (DISTANCE, DEPTH):
        some = [
            [_plain(words, metric(words), kind) for words in texts] for texts in (train, held_out)
        ]
        found[kind] = _fitted(some[0], some[1], fitting, watch)
    probes = []
    for place, layer in enumerate(train[0].layers):
        (one, other) = (found[kind] for kind in (DISTANCE, DEPTH))
        losses = float(one.losses[place]), float(other.losses[place])
        epochs = int(one.epochs[place]), int(other.epochs[place])
        maps = one.maps[place], other.maps[place]
        probes.append(StructuralProbe(layer, *maps, losses, epochs, len(train)))
    return probes


def _check(train: Sequence[WordStates], held_out: Sequence[WordStates], fitting: Fitting) -> None:
    if not train or not held_out:
        raise InputError(
            f"A probe needs sentences to learn from and others that say when to stop; received "
            f"{len(train)} and {len(held_out)}.\nGive more sentences with trees."
        )
    numbers = (fitting.batch, fitting.epochs, fitting.rate, fitting.rank or 1)
    if min(numbers) <= 0 or fitting.rank == 0:
        raise InputError(
            f"A probe cannot be fitted with rank {fitting.rank}, rate {fitting.rate:g}, batches of "
            f"{fitting.batch} and {fitting.epochs} epochs.\nGive numbers above 0."
        )
    shape = train[0].layers, train[0].vectors.shape[2]
    for words in (*train, *held_out):
        if (words.layers, words.vectors.shape[2]) != shape:
            raise InputError(
                f"The sentence {words.name!r} has other hidden states than the first one.\n"
                "Fit probes to one model, with the same layers throughout."
            )


class _Plain(NamedTuple):
    """A sentence, and the numbers that a probe should predict for it."""

    vectors: Float[np.ndarray, "L W E"]
    wanted: np.ndarray


class _Found(NamedTuple):
    """Maps of all hidden states, their errors and how long they took."""

    maps: Float[np.ndarray, "L R E"]
    losses: Float[np.ndarray, " L"]
    epochs: np.ndarray


def _plain(words: WordStates, metric: TreeMetric, kind: str) -> _Plain:
    return _Plain(words.vectors, metric.distances if kind == DISTANCE else metric.depths)


def _fitted(
    train: Sequence[_Plain],
    held_out: Sequence[_Plain],
    fitting: Fitting,
    watch: Callable[[int], object],
) -> _Found:
    rng = np.random.default_rng(fitting.seed)
    count, _, size = train[0].vectors.shape
    shape = (count, fitting.rank or size, size)
    maps = jnp.asarray(rng.uniform(-_START, _START, shape), jnp.float32)
    state: Any = optax.scale_by_adam().init(maps)
    best = _Found(np.asarray(maps), np.full(count, np.inf), np.zeros(count, int))
    rates = np.full(count, fitting.rate, np.float32)
    for epoch in range(1, fitting.epochs + 1):
        for batch in _batches(train, fitting.batch, rng):
            maps, state = _step(maps, state, rates, batch)
        losses = _mean_losses(maps, held_out, fitting.batch)
        watch(1)
        better = (losses < best.losses - _GAIN) & (rates > 0)
        best = _Found(
            np.where(better[:, None, None], np.asarray(maps), best.maps),
            np.where(better, losses, best.losses),
            np.where(better, epoch, best.epochs),
        )
        rates = np.where(better, rates, rates * np.float32(_SLOWER))
        rates[epoch - best.epochs >= _PATIENCE] = 0
        if not rates.any():
            break
    return best


def _batches(
    texts: Sequence[_Plain], size: int, rng: np.random.Generator | None = None
) -> Iterator[StateBatch]:
    """Batches of sentences of like length, in an order that is drawn, or in their own."""
    order = np.arange(len(texts)) if rng is None else rng.permutation(len(texts))
    some = []
    for start in range(0, len(order), _WINDOW * size):
        window = sorted(
            order[start : start + _WINDOW * size].tolist(), key=lambda n: _length(texts[n])
        )
        some += [window[first : first + size] for first in range(0, len(window), size)]
    for place in range(len(some)) if rng is None else rng.permutation(len(some)).tolist():
        yield _batch([texts[number] for number in some[place]], size)


def _length(text: _Plain) -> int:
    return text.vectors.shape[1]


def _batch(texts: Sequence[_Plain], size: int) -> StateBatch:
    layers, _, wide = texts[0].vectors.shape
    width = -(-max(map(_length, texts)) // _WIDTH) * _WIDTH
    vectors = np.zeros((layers, size, width, wide), np.float32)
    wanted = np.zeros((size, *[width] * texts[0].wanted.ndim), np.float32)
    sizes = np.zeros(size, np.int32)
    for row, text in enumerate(texts):
        count = _length(text)
        vectors[:, row, :count] = text.vectors
        wanted[(row, *[slice(count)] * text.wanted.ndim)] = text.wanted
        sizes[row] = count
    return StateBatch(vectors, wanted, sizes)


def _errors(
    one: Float[Array, "R E"],
    vectors: Float[Array, "B W E"],
    wanted: Float[Array, "B W *W"],
    sizes: Int[Array, " B"],
) -> Float[Array, " B"]:
    """Mean absolute error of each sentence under a map: of pairs, or of words."""
    there = jnp.arange(vectors.shape[1])[None] < sizes[:, None]
    projected = jnp.einsum("bwe,re->bwr", vectors, one, precision=jax.lax.Precision.HIGHEST)
    predicted = (projected**2).sum(-1)
    if wanted.ndim == 3:
        inner = jnp.einsum(
            "bwr,bvr->bwv", projected, projected, precision=jax.lax.Precision.HIGHEST
        )
        predicted = predicted[:, :, None] + predicted[:, None, :] - 2 * inner
        there = there[:, :, None] & there[:, None, :]
    errors = jnp.where(there, abs(wanted - predicted), 0)
    axes = tuple(range(1, wanted.ndim))
    return errors.sum(axes) / jnp.maximum(there.sum(axes), 1).astype(jnp.float32)


@jax.jit
def _losses(maps: Float[Array, "L R E"], batch: StateBatch) -> Float[Array, " L"]:
    """Mean error over the sentences of a batch, for each map."""
    vectors, wanted, sizes = (jnp.asarray(part) for part in batch)
    errors = jax.vmap(_errors, (0, 0, None, None))(maps, vectors, wanted, sizes)
    return errors.sum(1) / jnp.maximum((sizes > 0).sum(), 1).astype(jnp.float32)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def _step(
    maps: Float[Array, "L R E"], state: Any, rates: Float[Array, " L"], batch: StateBatch
) -> tuple[Float[Array, "L R E"], Any]:
    """A step of Adam; maps do not know of each other, so the sum of losses serves all."""
    slope = jax.grad(lambda some: _losses(some, batch).sum())(maps)
    moves: Any
    with jax.numpy_dtype_promotion("standard"):  # optax multiplies its count with floats
        moves, state = optax.scale_by_adam().update(slope, state)
    return maps - rates[:, None, None] * moves, state


def _mean_losses(
    maps: Float[Array, "L R E"], texts: Sequence[_Plain], size: int
) -> Float[np.ndarray, " L"]:
    total = np.zeros(maps.shape[0])
    for batch in _batches(texts, size):
        total += np.asarray(_losses(maps, batch)) * (batch.sizes > 0).sum()
    return total / len(texts)


LENGTHS = range(5, 51)
"""Words of sentences over which correlations are averaged."""
_HELD_OUT = 10  # one sentence of so many says when to stop
Predict = Callable[[WordStates], tuple[Any, Any]]
"""Distances and depths predicted for a sentence."""


class StructuralScores(NamedTuple):
    """Scores of a structural probe against trees.

    Attributes:
        uuas: Share of undirected edges between words that are not punctuation, that the least
            spanning tree of its distances between these words has too.
        distance_spearman: Correlation of its distances from a word with those of the tree: averaged
            over words, then over lengths of sentences from 5 to 50.
        root_accuracy: Share of sentences whose root has the least depth, punctuation apart.
        norm_spearman: Correlation of its depths with those of the tree, averaged over sentences,
            then over lengths.
        edges: Number of edges that were judged.
        sentences: Number of sentences.
    """

    uuas: float
    distance_spearman: float
    root_accuracy: float
    norm_spearman: float
    edges: int
    sentences: int


class StructuralJudged(NamedTuple):
    """Probes of hidden states, fitted to some sentences and judged on others.

    Attributes:
        probes: One per hidden state.
        scores: Scores of each of them.
        best: Place among these of the one with the least error on held-out sentences.
        fitting: How they were fitted.
        chain: Scores of the words in a row.
        control: Scores on the control task, of a probe of the best hidden state that was fitted to
            it.
        untrained: Scores of one fitted to the same hidden state of an untrained model; None
            without.
    """

    probes: list[StructuralProbe]
    scores: list[StructuralScores]
    best: int
    fitting: Fitting
    chain: StructuralScores
    control: StructuralScores
    untrained: StructuralScores | None

    @property
    def probe(self) -> StructuralProbe:
        """The one of the best hidden state."""
        return self.probes[self.best]

    @property
    def selectivity(self) -> float:
        """Edges of trees found beyond those of the control task, in points."""
        return 100 * (self.scores[self.best].uuas - self.control.uuas)

    def facts(self) -> dict[str, Any]:
        """Everything but the maps, ready for JSON; NaN is None."""
        rows = [
            {"layer": p.layer, **plain(s), "losses": [*p.losses], "epochs": [*p.epochs]}
            for p, s in zip(self.probes, self.scores, strict=True)
        ]
        return {
            "layer": self.probe.layer,
            "scores": plain(self.scores[self.best]),
            "chain": plain(self.chain),
            "control": plain(self.control),
            "untrained": None if self.untrained is None else plain(self.untrained),
            "selectivity": self.selectivity,
            "fitted_to_sentences": self.probe.sentences,
            "layers": rows,
        }


def plain(scores: StructuralScores) -> dict[str, Any]:
    """Scores by name, with None in place of nan."""
    return {name: None if value != value else value for name, value in scores._asdict().items()}


def structural_scores(
    predict: Predict, texts: Sequence[WordStates], metric: Metric = gold_metric
) -> StructuralScores:
    """Compare predictions for sentences with their trees. Cost: W² log W per sentence."""
    right = edges = roots = rooted = 0
    by_length: dict[int, list[tuple[float, float]]] = {}
    for words in texts:
        (distances, depths), wanted = predict(words), metric(words)
        counted = ~words.punctuation
        gold = _edges(wanted.distances, counted)
        right += len(gold & spanning_edges(distances, counted))
        edges += len(gold)
        if (wanted.depths[counted] == 0).any():
            least = np.flatnonzero(counted)[np.argmin(np.asarray(depths)[counted])]
            roots += int(wanted.depths[least] == 0)
            rooted += 1
        if len(words) in LENGTHS:
            rows = _spearman(np.asarray(distances), wanted.distances).mean()
            norms = _spearman(np.asarray(depths)[None], wanted.depths[None])[0]
            by_length.setdefault(len(words), []).append((float(rows), float(norms)))
    means = np.array([np.mean(both, 0) for both in by_length.values()]).reshape(-1, 2)
    distance, norm = means.mean(0).tolist() if len(means) else (np.nan, np.nan)
    return StructuralScores(
        _share(right, edges), distance, _share(roots, rooted), norm, edges, len(texts)
    )


def _edges(
    distances: Int[np.ndarray, "W W"], counted: Bool[np.ndarray, " W"]
) -> set[tuple[int, int]]:
    """Edges of a tree between words that count, the smaller number first."""
    near = np.triu((distances == 1) & counted[:, None] & counted)
    return {(low, high) for low, high in np.argwhere(near).tolist()}


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _spearman(
    one: Float[np.ndarray, "N W"], other: Float[np.ndarray, "N W"]
) -> Float[np.ndarray, " N"]:
    """Rank correlation of each row; 0 where one of the two is the same throughout."""
    ranks = [rankdata(rows, axis=1) for rows in (one, other)]
    a, b = (rows - rows.mean(1, keepdims=True) for rows in ranks)
    norms = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.divide((a * b).sum(1), norms, out=np.zeros(len(norms)), where=norms > 0)


def judge_structural(
    train: Sequence[WordStates],
    test: Sequence[WordStates],
    fitting: Fitting | None = None,
    *,
    untrained: Callable[[int], tuple[Sequence[WordStates], Sequence[WordStates]]] | None = None,
    watch: Callable[[int], object] = lambda count: None,
) -> StructuralJudged:
    """Fit structural probes to some sentences and evaluate them on others."""
    check_disjoint(train, test)
    fitting = fitting or Fitting()

    def fitted(texts: Sequence[WordStates], metric: Metric = gold_metric) -> list[StructuralProbe]:
        kept = [words for number, words in enumerate(texts) if (number + 1) % _every(texts)]
        return fit_structural_probes(
            kept, texts[_every(texts) - 1 :: _every(texts)], fitting, metric=metric, watch=watch
        )

    def control(words: WordStates) -> Any:
        return control_metric(words.types, words.punctuation, fitting.seed)

    probes = fitted(train)
    scores = [structural_scores(probe.metric, test) for probe in probes]
    best = int(np.argmin([probe.losses[0] for probe in probes]))
    layer = probes[best].layer
    (one,) = fitted([_only(words, layer) for words in train], control)
    blind = None
    if untrained is not None:
        others = untrained(layer)
        (random,) = fitted(others[0])
        blind = structural_scores(random.metric, others[1])
    return StructuralJudged(
        probes,
        scores,
        best,
        fitting,
        structural_scores(lambda words: chain_metric(len(words)), test),
        structural_scores(one.metric, test, control),
        blind,
    )


def _every(texts: Sequence[WordStates]) -> int:
    return min(_HELD_OUT, max(len(texts), 1))


def _only(words: WordStates, layer: int) -> WordStates:
    """Sentences with the vectors of one hidden state only."""
    return dataclasses.replace(words, layers=(layer,), vectors=words.of_layer(layer)[None])
