# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Distances between the heads of a model: of one text, and over a corpus; groups and a map.

Jensen-Shannon distances as in Clark et al. (2019), section 6, who smooth weights first. The map is
multidimensional scaling. `Pairs` holds running moments of the distance between any two heads over
a corpus, and of their variability with the text.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import pdist, squareform

from flaxattn.corpus.texts import Text
from flaxattn.kernels.contract import Capture
from flaxattn.kernels.reductions import entropies
from flaxattn.measures.score_source import default_side, extents
from flaxattn.measures.scores import moments_of, side_of
from flaxattn.pipeline.batches import Batch, stacked
from flaxattn.pipeline.extraction import with_targets
from flaxattn.pipeline.online_moments import Moments, merged
from flaxattn.pipeline.run import AttentionProgram, ModelRunner, mesh_of
from flaxattn.pipeline.tokenize_texts import DEFAULTS, ReadingOptions, windows
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.trace.record import AttentionRecord, layer_weights
from flaxattn.trace.trace import Trace

# So many terms of entropies are summed at most; of longer texts, queries are taken evenly spaced.
TERMS = 60_000_000
_ORDERED = 400  # heads up to which leaves are put in the best order, which takes their cube


@dataclasses.dataclass(frozen=True)
class Likeness:
    """N heads, in any order, and how far apart they are.

    Attributes:
        distances: Condensed as scipy has it: 0.1, 0.2, …, 1.2, …; between 0 and 1.
        order: Heads in an order that has like ones side by side.
        groups: Group of each head, from 0, numbered as they appear in that order.
    """

    distances: Float[np.ndarray, " P"]
    order: Int[np.ndarray, " N"]
    groups: Int[np.ndarray, " N"]


def head_distances(weights: Float[np.ndarray, "N Q K"]) -> Float[np.ndarray, " P"]:
    """Distances between heads: the root of the mean, over queries, of their divergence in bits.

    0 where two heads attend alike, 1 where no query has a key that both attend to. It is a metric.
    Takes N² Q K / 2 terms; where these are more than `TERMS`, fewer queries count, evenly spaced.
    """
    count, queries, keys = weights.shape
    kept = int(np.clip(2 * TERMS // max(1, count * count * keys), 1, queries))
    rows = weights[:, np.linspace(0, queries - 1, kept).astype(int)].astype(np.float32)
    own = entropies(rows)
    parts = [
        entropies((rows[i] + rows[i + 1 :]) / 2) - (own[i] + own[i + 1 :]) / 2
        for i in range(count - 1)
    ]
    return distances_of(np.concatenate([part.mean(-1) for part in parts] or [np.zeros(0)]))


def distances_of(divergences: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The metric between 0 and 1 that mean divergences give: the root of what they are in bits."""
    return np.sqrt(np.clip(np.asarray(divergences, np.float64) / np.log(2), 0, 1))


def head_likeness(weights: Float[np.ndarray, "N Q K"], groups: int = 8) -> Likeness:
    """Order heads so that like ones are side by side, and put them into groups.

    By average linkage over `head_distances`.
    """
    return likeness_of(head_distances(weights), len(weights), groups)


def likeness_of(distances: Float[np.ndarray, " P"], count: int, groups: int = 8) -> Likeness:
    """Order and group heads whose distances are known."""
    if count < 2:
        return Likeness(distances, np.zeros(count, int), np.zeros(count, int))
    tree = linkage(distances, "average", optimal_ordering=count <= _ORDERED)
    order = leaves_list(tree)
    found = fcluster(tree, groups, "maxclust")
    names = {group: number for number, group in enumerate(dict.fromkeys(found[order].tolist()))}
    return Likeness(distances, order, np.array([names[group] for group in found.tolist()]))


class MeanDistances:
    """Distances between all heads over several texts, taken in one at a time.

    A mean divergence counts each text once. Texts are taken until their terms reach `TERMS`, the
    first one in any case, so that the cost is bounded; later ones are passed over.

    Attributes:
        texts: Number of texts taken in.
    """

    def __init__(self) -> None:
        self.texts = 0
        self._terms = 0
        self._sum: Float[np.ndarray, " P"] = np.zeros(0)
        self._known: Int[np.ndarray, " P"] = np.zeros(0, int)

    def add(self, weights: Float[np.ndarray, "N Q K"]) -> None:
        """Add a text, unless it would cost too much."""
        count, queries, keys = weights.shape
        terms = count * count * queries * keys // 2
        if self.texts and self._terms + terms > TERMS:
            return
        squares = head_distances(weights) ** 2
        known = np.isfinite(squares)
        self._sum = np.where(known, squares, 0) + (self._sum if self.texts else 0)
        self._known = known + (self._known if self.texts else 0)
        self._terms += terms
        self.texts += 1

    @property
    def distances(self) -> Float[np.ndarray, " P"]:
        """All pairs, condensed as scipy has it; nan where two heads have no text in common."""
        mean = self._sum / np.maximum(self._known, 1)
        return np.sqrt(np.where(self._known > 0, mean, np.nan))


def nearest_heads(
    distances: Float[np.ndarray, " P"], count: int, most: int
) -> list[list[tuple[int, float]]]:
    """List for each head the others that are nearest to it, the nearest first."""
    square = np.full((count, count), np.nan)
    square[np.triu_indices(count, 1)] = distances
    square = np.fmax(square, square.T)
    orders = np.argsort(square, axis=1, kind="stable")  # nan comes last
    return [
        [(int(j), float(row[j])) for j in order[:most] if not np.isnan(row[j])]
        for row, order in zip(square, orders, strict=True)
    ]


_TURNS, _ENOUGH = 300, 1e-9


class HeadMap(NamedTuple):
    """Coordinates of heads in the plane.

    Attributes:
        points: Points of N heads, centred; the first axis has the largest spread.
        stress: Kruskal's stress-1: 0 where the plane shows all distances as they are; above 0.2 a
            map is commonly called poor.
    """

    points: Float[np.ndarray, "N 2"]
    stress: float


def head_map(distances: Float[np.ndarray, " P"]) -> HeadMap:
    """Points of a plane whose distances are as close to the given ones as can be found.

    Costs N³ operations, and N² for each of at most 300 iterations.
    """
    wanted = squareform(np.asarray(distances, np.float64))
    if len(distances) == 0:
        return HeadMap(np.zeros((1, 2)), 0.0)
    points = _classical(wanted)
    best = stress(distances, points)
    for _ in range(_TURNS):
        moved = _majorised(wanted, points)
        now = stress(distances, moved)
        if now > best - _ENOUGH:
            break
        points, best = moved, now
    return HeadMap(_oriented(points), best)


def stress(distances: Float[np.ndarray, " P"], points: Float[np.ndarray, "N 2"]) -> float:
    """Kruskal's stress-1: the root of squared errors of distances over their squares."""
    shown = pdist(points)
    scale = float((shown**2).sum())
    return float(np.sqrt(((shown - distances) ** 2).sum() / scale)) if scale else 0.0


def _classical(wanted: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N 2"]:
    """The two largest axes of the inner products that distances imply."""
    count = len(wanted)
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-centre @ wanted**2 @ centre / 2)
    top = np.argsort(-values)[:2]
    points = np.zeros((count, 2))
    points[:, : len(top)] = vectors[:, top] * np.sqrt(np.maximum(values[top], 0))
    return points


def _majorised(
    wanted: Float[np.ndarray, "N N"], points: Float[np.ndarray, "N 2"]
) -> Float[np.ndarray, "N 2"]:
    """Guttman's transform: points whose raw stress is at most that of these."""
    shown = squareform(pdist(points))
    ratio = np.divide(wanted, shown, out=np.zeros_like(wanted), where=shown > 0)
    return (ratio.sum(1)[:, None] * points - ratio @ points) / len(wanted)


def _oriented(points: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 2"]:
    """Along the axes of largest spread; the point furthest along each one is on its positive side.

    The first of several points that are equally far decides.
    """
    centred = points - points.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    projected = centred @ axes.T
    far = np.abs(projected)
    furthest = np.argmax(far >= far.max(0) * (1 - 1e-9), axis=0)
    signs = np.sign(projected[furthest, [0, 1]])
    return projected * np.where(signs == 0, 1, signs)


BEGINNING = 10
"""Positions of a text that variability looks at, as Vig & Belinkov."""
_STEP = 32


@functools.partial(jax.jit, inline=True)
def pair_divergences(
    weights: Float[Array, "B N Q K"], queries: Float[Array, "B Q"]
) -> Float[Array, "B N N"]:
    """Jensen-Shannon divergence between any two heads on each text, the mean over its queries.

    Costs N² Q K / 2 logarithms per text; B N Q K numbers exist at a time besides the weights.
    """
    count = weights.shape[1]
    share = (queries / jnp.maximum(queries.sum(-1, keepdims=True), 1))[:, None, :]
    own = entropies(weights)

    def divergences_at(step: Array) -> Float[Array, "B N"]:
        """Divergence of every head from the one that many places behind it."""
        other, its = jnp.roll(weights, -step, 1), jnp.roll(own, -step, 1)
        rows = entropies((weights + other) / 2) - (own + its) / 2
        return (rows * share).sum(-1)

    steps = jnp.arange(count // 2 + 1)
    found = jax.lax.map(divergences_at, steps)  # [steps, B, N]
    place = jnp.arange(count)
    gap = (place[None, :] - place[:, None]) % count
    wrapped = gap > count // 2
    step = jnp.where(wrapped, count - gap, gap)
    first = jnp.where(wrapped, place[None, :], place[:, None])
    picked = jnp.moveaxis(found, 1, 0)[:, step, first]
    return jnp.clip(picked, 0, np.log(2))


class Pairs:
    """Moments of divergences between heads over texts, and the beginnings of texts.

    Takes 8 N² + 400 N T bytes for N heads and T texts.

    Attributes:
        layers: Number of the layer of each of N heads.
        heads: Number of each of N heads in its layer.
        moments: Moments of divergences over texts, `[N, N]`, in nats.
        beginnings: Weights between the first positions of each text, `[T, N, P, P]` with P =
            `BEGINNING`; nan where a text has no such position.
    """

    def __init__(self, layers: tuple[int, ...], heads: tuple[int, ...]) -> None:
        self.layers = tuple(layer for layer in layers for _ in heads)
        self.heads = heads * len(layers)
        count = len(self.layers)
        self.moments = Moments(*(np.zeros((count, count)) for _ in range(3)))
        self.beginnings = np.zeros((0, count, BEGINNING, BEGINNING), np.float32)

    @property
    def texts(self) -> int:
        """Number of texts."""
        return len(self.beginnings)

    def add(
        self, divergences: Float[np.ndarray, "T N N"], beginnings: Float[np.ndarray, "T N P P"]
    ) -> None:
        """Add some texts."""
        self._put(moments_of(np.asarray(divergences, np.float64)), np.asarray(beginnings))

    def merge(self, other: Self) -> None:
        """Add everything that another one holds."""
        self._put(other.moments, other.beginnings)

    def _put(self, moments: Moments, beginnings: np.ndarray) -> None:
        self.moments = merged(self.moments, moments)
        self.beginnings = np.concatenate([self.beginnings, beginnings])

    @property
    def distances(self) -> Float[np.ndarray, " P"]:
        """Metric between 0 and 1 that the mean divergences give, condensed as scipy has it."""
        above = np.triu_indices(len(self.layers), 1)
        return distances_of(self.moments.mean[above])

    def by_layer(self) -> dict[str, float | None]:
        """Mean divergence, in nats, between heads of one layer and between those of different ones.

        Clark et al. find heads of a layer close to each other.
        """
        one, other = np.triu_indices(len(self.layers), 1)
        layers, divergences = np.array(self.layers), self.moments.mean[one, other]
        same = layers[one] == layers[other]
        kinds = {"within_layers": divergences[same], "between_layers": divergences[~same]}
        return {name: float(part.mean()) if part.size else None for name, part in kinds.items()}


def blank_pairs(
    divergences: Float[np.ndarray, "1 N N"], broken: Bool[np.ndarray, " N"]
) -> Float[np.ndarray, "1 N N"]:
    """Divergences without those of heads whose attention is NaN or infinite."""
    return np.where(broken[:, None] | broken[None], np.nan, divergences)


def beginning(weights: Float[np.ndarray, "N Q K"]) -> Float[np.ndarray, "N P P"]:
    """Weights between the first positions of a text, with nan where it has none."""
    found = np.full((weights.shape[0], BEGINNING, BEGINNING), np.nan, np.float32)
    part = np.asarray(weights[:, :BEGINNING, :BEGINNING])
    found[:, : part.shape[1], : part.shape[2]] = part
    return found


def variability(
    beginnings: Float[np.ndarray, "T N P P"], *, exclude_first: bool = False
) -> Float[np.ndarray, " N"]:
    """Variability of the attention between the first positions from text to text.

    V = sum |a(x) - ā| / (2 sum a(x)) over texts x and pairs of positions, with ā the mean of a pair
    over the texts that have it: 0 where attention follows position alone, near 1 where every text
    is looked at in another way.
    """
    weights = np.asarray(beginnings, np.float64)[..., int(exclude_first) :]
    moments = moments_of(weights)
    moved = np.nansum(np.abs(weights - moments.mean[None]), axis=(0, 2, 3))
    total = 2 * np.nansum(weights, axis=(0, 2, 3))
    return np.divide(moved, total, out=np.full(len(total), np.nan), where=total > 0)


def variability_interval(
    beginnings: Float[np.ndarray, "T N P P"],
    *,
    level: float = 0.95,
    draws: int = 200,
    seed: int = 0,
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Bootstrap interval of `variability`: percentiles over texts drawn anew.

    Returns:
        Lower and upper end; nan where there are fewer than two texts.
    """
    count, random = len(beginnings), np.random.default_rng(seed)
    if count < 2:
        unknown = np.full(beginnings.shape[1], np.nan)
        return unknown, unknown
    chosen = random.integers(count, size=(draws, count))
    values = np.stack([variability(beginnings[some]) for some in chosen])
    low, high = np.quantile(values, ((1 - level) / 2, (1 + level) / 2), axis=0)
    return low, high


def pairs_of(traces: Iterable[Trace], side: str = "encoder") -> Pairs | None:
    """Divergences between heads, from traces with weights."""
    found: Pairs | None = None
    for trace in traces:
        for one in [trace] if len(trace) == 1 else trace:
            record = side_of(one, side)
            weights = layer_weights(record, record.layers, allow_nan=True)
            flat = weights.reshape(-1, *weights.shape[2:])
            found = Pairs(record.layers, record.heads) if found is None else found
            broken = np.isnan(flat).any((-2, -1))
            found.add(blank_pairs(_divergences(flat), broken), beginning(flat)[None])
    return found


def _divergences(weights: Float[np.ndarray, "N Q K"]) -> Float[np.ndarray, "1 N N"]:
    """Divergences of one text, padded to one of a few lengths so that few programs compile."""
    count, *size = weights.shape
    wide, high = (-(-n // _STEP) * _STEP for n in size)
    padded = np.zeros((1, count, wide, high), np.float32)
    padded[0, :, : size[0], : size[1]] = weights
    real = (np.arange(wide) < size[0]).astype(np.float32)[None]
    return np.asarray(pair_divergences(jnp.asarray(padded), jnp.asarray(real)))


_REAL = "real_queries"
_CAPTURE = Capture(weights=True)


@dataclasses.dataclass(frozen=True)
class PairDivergences:
    """Divergences between heads, made inside the compiled step; hashable, static under jit.

    Attributes:
        side: `encoder`, `decoder` or `cross`.
    """

    side: str

    def __call__(
        self, sides: Mapping[str, AttentionRecord], notes: Mapping[str, Array]
    ) -> dict[str, AttentionRecord]:
        """Compare the heads of a side."""
        record = sides[self.side]
        assert record.weights is not None
        stats = _compared(record.weights.astype(jnp.float32), notes[_REAL])
        return {self.side: AttentionRecord(stats=stats, layers=record.layers, heads=record.heads)}


def _compared(weights: Float[Array, "L B H Q K"], real: Float[Array, "B Q"]) -> dict[str, Array]:
    layers, batch, heads, queries, keys = weights.shape
    flat = jnp.moveaxis(weights, 1, 0).reshape(batch, layers * heads, queries, keys)
    divergences = pair_divergences(flat, real).reshape(batch, layers, heads, layers * heads)
    room = [(0, 0)] * 3 + [(0, max(BEGINNING - n, 0)) for n in (queries, keys)]
    start = jnp.pad(weights[:, :, :, :BEGINNING, :BEGINNING], room)
    return {
        "pairs": jnp.moveaxis(divergences, 0, 1),
        "beginning": start.reshape(layers, batch, heads, -1),
    }


def head_pairs(
    model: Pretrained,
    texts: Iterable[Text],
    *,
    side: str | None = None,
    reading: ReadingOptions = DEFAULTS,
) -> Pairs | None:
    """Divergence between any two heads of a side over texts, and the beginnings of texts."""
    side = default_side(model, side)
    runner = ModelRunner(
        [model],
        AttentionProgram(PairDivergences(side)),
        _CAPTURE,
        mesh=mesh_of(),
        notes=(_REAL,),
        batch_tokens=reading.batch_tokens,
        allow_nonfinite=reading.allow_nonfinite,
        watch=reading.watch,
        stage="comparing heads",
    )
    pairs: Pairs | None = None
    for window in windows(model, texts, reading):
        tokens = runner.budget.tokens
        rows = with_targets([model], [read.reading for read in window], {}, tokens)

        def inputs(batch: Batch, rows: Sequence[TokenizedTexts] = rows) -> dict[str, Any]:
            counts = np.zeros(batch.rows, int)
            sizes = [extents(side, rows[place.text].lengths)[0] for place in batch.places]
            counts[: len(sizes)] = sizes
            real = np.arange(extents(side, batch.widths)[0]) < counts[:, None]
            return {**stacked(rows, batch), _REAL: real.astype(np.float32)}

        for text, _, (output,) in runner.run(rows, [one.text for one in window], inputs=inputs):
            record, nonfinite = (one[side] for one in output)
            pairs = Pairs(record.layers, record.heads) if pairs is None else pairs
            of_text = {name: array[:, 0] for name, array in record.stats.items()}
            divergences, start = _of_text(of_text, extents(side, rows[text].lengths))
            pairs.add(blank_pairs(divergences, nonfinite.counts[:, 0].ravel() > 0), start)
    return pairs


def _of_text(
    stats: Mapping[str, np.ndarray], size: tuple[int, int]
) -> tuple[Float[np.ndarray, "1 N N"], Float[np.ndarray, "1 N P P"]]:
    """Divergences of one text, and its beginning without padding."""
    divergences = stats["pairs"]
    count = divergences.shape[-1]
    start = stats["beginning"].reshape(count, BEGINNING, BEGINNING)
    return divergences.reshape(1, count, count), beginning(start[:, : size[0], : size[1]])[None]
