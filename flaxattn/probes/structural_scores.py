# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a structural probe: edges and depths it finds, beside baselines without trees.

A chain, the embeddings (hidden state 0), a control task with a tree that follows from word types,
and hidden states of a model that was never trained. Probes are fitted in `structural`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata

from flaxattn.probes.selectivity import check_apart
from flaxattn.probes.structural_probe import (
    Fitting,
    Metric,
    StructuralProbe,
    fit_structural_probes,
    gold_metric,
)
from flaxattn.probes.tree_metrics import chain_metric, control_metric, spanning_edges
from flaxattn.probes.word_states import WordStates

LENGTHS = range(5, 51)
"""Words of sentences over which correlations are averaged."""
_HELD_OUT = 10  # one sentence of so many says when to stop
Said = Callable[[WordStates], tuple[Any, Any]]
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
        sentences: How many sentences there were.
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
        scores: Of each of them.
        best: Place among these of the one with the least error on held-out sentences.
        fitting: How they were fitted.
        chain: Scores of the words in a row.
        control: Of a probe of the best hidden state that was fitted to the control task, on it.
        untrained: Of one fitted to the same hidden state of an untrained model; None without.
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
    said: Said, texts: Sequence[WordStates], metric: Metric = gold_metric
) -> StructuralScores:
    """Compare what is said of sentences with what should be. Cost: W² log W per sentence."""
    right = edges = roots = rooted = 0
    by_length: dict[int, list[tuple[float, float]]] = {}
    for words in texts:
        (distances, depths), wanted = said(words), metric(words)
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
    check_apart(train, test)
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
    """The same with one hidden state."""
    return dataclasses.replace(words, layers=(layer,), vectors=words.of_layer(layer)[None])
