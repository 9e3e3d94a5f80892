# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The linear probe of labels: can a word's label be read off its hidden state by a linear map?

Labels are parts of speech and morphological features out of treebanks. Multinomial logistic
regression on the vectors of one hidden state is judged layer by layer, with intervals, beside a
control task in which each word type has a label drawn at random (selectivity), an untrained model,
and two baselines without vectors: the commonest label, and that of each word type.
"""

import re
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.measures.significance import ratio_interval
from flaxattn.probes.parsing_probe import check_disjoint
from flaxattn.probes.word_records import WordStates

Labels = Callable[[WordStates], list[str | None]]
"""Labels of the words of a sentence; None for words that have none and are not counted."""

_FEATURE = "feats."
_LABEL_DRAWS = 2**32


def word_labels(what: str) -> Labels:
    """Return the function that gives the labels of a sentence."""
    feature = what.removeprefix(_FEATURE)
    if what not in ("upos", "xpos") and not re.fullmatch(r"feats\.[A-Za-z0-9\[\]]+", what):
        raise InputError(
            f"labels {what!r} are unknown\nexpected upos, xpos or feats.NAME\n"
            "name a feature of the treebank, such as feats.Number"
        )

    def labels(sentence: WordStates) -> list[str | None]:
        if what == "upos":
            return [_filled(word.tag) for word in sentence.words]
        if what == "xpos":
            return [_filled(word.xpos) for word in sentence.words]
        return [_filled(dict(word.feats).get(feature, "")) for word in sentence.words]

    return labels


def _filled(value: str) -> str | None:
    return None if value in ("", "_") else value


def control_labels(train: Sequence[WordStates], labels: Labels, seed: int = 0) -> Labels:
    """Return the control task of labels: each word type has one label, drawn for all sentences.

    Labels are drawn as often as they occur in `train` (Hewitt & Liang 2019), so that a probe can
    only learn them by heart, word by word. A type is a word with the same tokens.
    """
    counts = Counter(label for text in train for label in labels(text) if label is not None)
    names = sorted(counts)
    ends = np.cumsum([counts[name] for name in names]) / max(counts.total(), 1)

    def drawn(sentence: WordStates) -> list[str | None]:
        shares = (zlib.crc32(repr((seed, one)).encode()) / _LABEL_DRAWS for one in sentence.types)
        places = [int(np.searchsorted(ends, share, side="right")) for share in shares]
        return [
            None if label is None else names[min(place, len(names) - 1)]
            for label, place in zip(labels(sentence), places, strict=True)
        ]

    return drawn


_ITERATIONS = 200
PENALTY = 1e-2
"""Default of the penalty: states hold far more numbers than most treebanks have words."""


@dataclass(frozen=True)
class LabelProbe:
    """A fitted probe of one hidden state for C labels.

    Attributes:
        layer: Number of the hidden state: 0 for the embeddings.
        what: Kind of the labels, as `word_labels` takes it.
        labels: Their names.
        coefficients: Coefficients of vectors as the model has them.
        bias: Bias of each label.
        words: Number of words it was fitted to.
        settled: Whether the fit ended before the largest number of iterations.
    """

    layer: int
    what: str
    labels: tuple[str, ...]
    coefficients: Float[np.ndarray, "C E"]
    bias: Float[np.ndarray, " C"]
    words: int
    settled: bool

    def predict(self, sentence: WordStates) -> list[str]:
        """Predict the label of each word."""
        vectors = sentence.of_layer(self.layer)
        if vectors.shape[1] != self.coefficients.shape[1]:
            raise InputError(
                f"This probe reads vectors of {self.coefficients.shape[1]} numbers; "
                f"{sentence.name or 'the sentence'!r} has some of {vectors.shape[1]}.\n"
                "Fit one to sentences of the same model."
            )
        scores = vectors @ self.coefficients.T + self.bias
        return [self.labels[number] for number in scores.argmax(1).tolist()]


def fit_label_probe(
    train: Sequence[WordStates],
    labels: Labels,
    layer: int,
    *,
    what: str = "upos",
    penalty: float = PENALTY,
) -> LabelProbe | None:
    """Fit a probe to one hidden state: the least mean cross-entropy over words plus a penalty.

    Vectors are standardised, dimension by dimension, before the fit, which is scikit-learn's
    logistic regression by L-BFGS; the loss is convex, so there is no seed. Cost: at most 200 passes
    over the vectors, 4 C E multiplications for each word.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if not penalty > 0:
        raise InputError(f"penalty is {penalty:g}\nexpected a number above 0")
    known = [labels(sentence) for sentence in train]
    there = [np.array([one is not None for one in some], bool) for some in known]
    wanted = np.array([one for some in known for one in some if one is not None], object)
    names = tuple(sorted(set(wanted.tolist())))
    if len(names) < 2:
        held = f"only the label {names[0]!r}" if names else "no label"
        raise InputError(
            f"the sentences to learn from have {held} of {what}\nexpected two or more\n"
            "name another kind of labels, or a treebank that has them"
        )
    parts = [s.of_layer(layer)[mask] for s, mask in zip(train, there, strict=True)]
    vectors = np.concatenate(parts)
    if not np.isfinite(vectors).all():
        return None
    mean, spread = vectors.mean(0, dtype=np.float64), vectors.std(0, dtype=np.float64)
    spread[spread == 0] = 1
    standard = ((vectors - mean) / spread).astype(np.float32)
    fitted = LogisticRegression(C=1 / (penalty * len(wanted)), max_iter=_ITERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted.fit(standard, wanted.astype(str))
    weights, bias = (np.asarray(part, np.float64) for part in (fitted.coef_, fitted.intercept_))
    if len(names) == 2:  # scikit-learn keeps the second label's scores alone
        weights, bias = np.concatenate([0 * weights, weights]), np.array([0.0, bias[0]])
    weights = weights / spread
    return LabelProbe(
        layer=layer,
        what=what,
        labels=names,
        coefficients=weights.astype(np.float32),
        bias=(bias - weights @ mean).astype(np.float32),
        words=len(wanted),
        settled=bool(np.max(fitted.n_iter_) < _ITERATIONS),
    )


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
        scores: Scores of each of them.
        best: Place among these of the one with the highest accuracy on held-out sentences.
        words: Number of words they were judged on.
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
    check_disjoint(train, test)
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
