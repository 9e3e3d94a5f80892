# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Evaluation of linear probes of labels, layer by layer, with selectivity and intervals.

Beside each probe stand one of the control task and one of an untrained model, and two baselines
without vectors: the commonest label, and the commonest label of each word type. Probes are fitted
in `label_probe`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.measures.significance import ratio_interval
from flaxattn.probes.label_probe import PENALTY, LabelProbe, fit_label_probe
from flaxattn.probes.selectivity import check_apart
from flaxattn.probes.word_labels import Labels, control_labels, word_labels
from flaxattn.probes.word_states import WordStates

LEVEL = 0.95
"""Confidence of intervals, which are bootstrapped over sentences."""
_DRAWS = 1000
_HELD_OUT = 10  # one sentence of so many says which hidden state is best


class LabelAccuracy(NamedTuple):
    """Number of words with the right label.

    Attributes:
        right: Words with the right one.
        words: All that have one.
    """

    right: int
    words: int

    @property
    def score(self) -> float:
        """Accuracy, between 0 and 1; nan without words."""
        return self.right / self.words if self.words else float("nan")


class LabelScores(NamedTuple):
    """Scores of the probe of one hidden state; all are shares, nan where vectors are NaN.

    Attributes:
        layer: Number of the hidden state.
        accuracy: Share of words with the right label.
        low: Lower end of its interval.
        high: Upper end of its interval.
        control: Accuracy of a probe of the control task, on that task.
        selectivity: Accuracy minus that of the control task.
        selectivity_low: Lower end of its interval.
        selectivity_high: Upper end of its interval.
        held_out: Accuracy on the sentences of `train` that were held out.
        untrained: Accuracy of a probe of the same hidden state of an untrained model; nan without.
    """

    layer: int
    accuracy: float
    low: float
    high: float
    control: float
    selectivity: float
    selectivity_low: float
    selectivity_high: float
    held_out: float
    untrained: float

    def plain(self) -> dict[str, Any]:
        """Fields by name, with None in place of nan."""
        return {name: None if value != value else value for name, value in self._asdict().items()}


class LabelJudged(NamedTuple):
    """Probes of hidden states, fitted to some sentences and judged on others.

    Attributes:
        what: Kind of the labels.
        probes: One per hidden state; None where vectors are NaN.
        scores: Of each of them.
        best: Place among these of the one with the highest accuracy on held-out sentences.
        words: How many words they were judged on.
        majority: Accuracy of the commonest label.
        by_type: Accuracy of the commonest label of each word type; the commonest of all for others.
    """

    what: str
    probes: list[LabelProbe | None]
    scores: list[LabelScores]
    best: int
    words: int
    majority: float
    by_type: float

    @property
    def probe(self) -> LabelProbe:
        """The one of the best hidden state."""
        best = self.probes[self.best]
        assert best is not None
        return best

    def facts(self) -> dict[str, Any]:
        """Everything but the coefficients, ready for JSON."""
        return {
            "what": self.what,
            "labels": list(self.probe.labels),
            "layer": self.probe.layer,
            "scores": self.scores[self.best].plain(),
            "majority": self.majority,
            "by_type": self.by_type,
            "words": self.words,
            "fitted_to_words": self.probe.words,
            "settled": all(probe.settled for probe in self.probes if probe is not None),
            "level": LEVEL,
            "layers": [one.plain() for one in self.scores],
        }


def judge_labels(
    train: Sequence[WordStates],
    test: Sequence[WordStates],
    what: str = "upos",
    *,
    untrained: tuple[Sequence[WordStates], Sequence[WordStates]] | None = None,
    penalty: float = PENALTY,
    seed: int = 0,
    watch: Callable[[int], object] = lambda count: None,
) -> LabelJudged:
    """Fit a linear probe to each hidden state, judge it on other sentences, and say its worth."""
    check_apart(train, test)
    labels = word_labels(what)
    control = control_labels(train, labels, seed)
    every = min(_HELD_OUT, len(train))
    held = train[every - 1 :: every]

    def fitted(texts: Sequence[WordStates], layer: int, task: Labels = labels) -> LabelProbe | None:
        kept = [one for number, one in enumerate(texts) if (number + 1) % every] or texts
        probe = fit_label_probe(kept, task, layer, what=what, penalty=penalty)
        watch(1)
        return probe

    counts = np.array([sum(one is not None for one in labels(text)) for text in test])
    if not counts.sum():
        raise InputError(
            f"no word to judge on has a label of {what}\nexpected at least one\n"
            "name another kind of labels, or a treebank that has them"
        )
    probes, scores = [], []
    for layer in train[0].layers:
        probe = fitted(train, layer)
        other = fitted(train, layer, control) if probe else None
        probes.append(probe if other else None)
        blind = None
        if untrained is not None and (random := fitted(untrained[0], layer)):
            blind = _accuracy(random, untrained[1], labels)
        if probe is None or other is None:
            scores.append(LabelScores(layer, *[float("nan")] * 9))
            continue
        right, fooled = _right(probe, test, labels), _right(other, test, control)
        accuracy, guessed = right.sum() / counts.sum(), fooled.sum() / counts.sum()
        scores.append(
            LabelScores(
                layer,
                float(accuracy),
                *_interval(right, counts, seed),
                float(guessed),
                float(accuracy - guessed),
                *_interval(right - fooled, counts, seed),
                _accuracy(probe, held, labels),
                float("nan") if blind is None else blind,
            )
        )
    best = _best(scores, probes)
    majority, by_type = _baselines(train, test, labels)
    return LabelJudged(what, probes, scores, best, int(counts.sum()), majority, by_type)


def label_accuracy(probe: LabelProbe, texts: Sequence[WordStates], labels: Labels) -> LabelAccuracy:
    """Count the words whose label a probe predicts."""
    words = sum(one is not None for text in texts for one in labels(text))
    return LabelAccuracy(int(_right(probe, texts, labels).sum()), words)


def _accuracy(probe: LabelProbe, texts: Sequence[WordStates], labels: Labels) -> float:
    return label_accuracy(probe, texts, labels).score


def _right(
    probe: LabelProbe, texts: Sequence[WordStates], labels: Labels
) -> Float[np.ndarray, " T"]:
    """Number of words of each text with the right label."""
    pairs = (zip(probe.predict(text), labels(text), strict=True) for text in texts)
    return np.array([sum(one == other for one, other in some) for some in pairs], np.float64)


def _interval(right: Float[np.ndarray, " T"], counts: np.ndarray, seed: int) -> tuple[float, float]:
    low, high = ratio_interval(right, counts.astype(np.float64), LEVEL, _DRAWS, seed)
    return float(low), float(high)


def _best(scores: Sequence[LabelScores], probes: Sequence[LabelProbe | None]) -> int:
    """Place of the best hidden state; where no sentence has held-out words, the last one."""
    usable = [place for place, probe in enumerate(probes) if probe is not None]
    if not usable:
        raise InputError(
            "every hidden state that was requested is NaN or infinite\n"
            "expected one that a probe can be fitted to\ncompare the checkpoint with the original"
        )
    known = [place for place in usable if scores[place].held_out == scores[place].held_out]
    return max(known, key=lambda place: scores[place].held_out) if known else usable[-1]


def _baselines(
    train: Sequence[WordStates], test: Sequence[WordStates], labels: Labels
) -> tuple[float, float]:
    """Accuracy of the commonest label, and of the commonest label of each word type."""
    pairs = [pair for text in train for pair in zip(text.types, labels(text), strict=True)]
    every = Counter(label for _, label in pairs if label is not None)
    types: dict[tuple[int, ...], Counter[str]] = {}
    for kind, label in pairs:
        if label is not None:
            types.setdefault(kind, Counter())[label] += 1
    common = _commonest(every)
    usual = {kind: _commonest(counts) for kind, counts in types.items()}
    requested = [pair for text in test for pair in zip(text.types, labels(text), strict=True)]
    requested = [pair for pair in requested if pair[1] is not None]
    right = [
        sum(label == guess(kind) for kind, label in requested)
        for guess in (lambda kind: common, lambda kind: usual.get(kind, common))
    ]
    return right[0] / len(requested), right[1] / len(requested)


def _commonest(counts: Counter[str]) -> str:
    return min(counts, key=lambda label: (-counts[label], label))
