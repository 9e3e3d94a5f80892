# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The linear probe of labels: can a word's label be read off its hidden state by a linear map?

Multinomial logistic regression on the vectors of one hidden state. What probes are worth beside a
control task and an untrained model: see `label_scores`.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.probes.word_labels import Labels
from flaxattn.probes.word_states import WordStates

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
        coefficients: Of vectors as the model has them.
        bias: Of each label.
        words: How many words it was fitted to.
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
