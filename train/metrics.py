# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of GLUE and macro F1, through scikit-learn and SciPy, with their spread over seeds.

Where a metric has no value it is 0, as GLUE counts it: a correlation with something constant, an F1
without a single positive. Nothing here knows how a prediction was made.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

Numbers = Shaped[np.ndarray, " N"]


def matthews(predicted: Int[np.ndarray, " N"], true: Int[np.ndarray, " N"]) -> float:
    """Matthews' correlation of two classifications; 0 where either is constant."""
    from sklearn.metrics import matthews_corrcoef

    if _is_constant(predicted) or _is_constant(true):
        return 0.0
    return float(matthews_corrcoef(true, predicted))


def accuracy(predicted: Int[np.ndarray, " N"], true: Int[np.ndarray, " N"]) -> float:
    """Share of equal labels."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(true, predicted))


def f1(predicted: Int[np.ndarray, " N"], true: Int[np.ndarray, " N"]) -> float:
    """F1 of label 1; 0 where nothing is, or is predicted to be, of that label."""
    from sklearn.metrics import f1_score

    if not ((true == 1) | (predicted == 1)).any():
        return 0.0
    return float(f1_score(true, predicted, labels=[1], average="micro"))


def macro_f1(predicted: Int[np.ndarray, " N"], true: Int[np.ndarray, " N"]) -> float:
    """Mean over labels of the F1 of each, of those that occur or are predicted."""
    from sklearn.metrics import f1_score

    return float(f1_score(true, predicted, average="macro"))


def pearson(predicted: Float[np.ndarray, " N"], true: Float[np.ndarray, " N"]) -> float:
    """Pearson's correlation; 0 where either side is constant."""
    from scipy.stats import pearsonr

    if _is_constant(predicted) or _is_constant(true):
        return 0.0
    found: Any = pearsonr(predicted.astype(np.float64), true)
    return float(found.statistic)


def spearman(predicted: Float[np.ndarray, " N"], true: Float[np.ndarray, " N"]) -> float:
    """Spearman's rank correlation; 0 where either side is constant."""
    from scipy.stats import spearmanr

    if _is_constant(predicted) or _is_constant(true):
        return 0.0
    found: Any = spearmanr(predicted.astype(np.float64), true)
    return float(found.statistic)


METRICS: Mapping[str, Callable[[Numbers, Numbers], float]] = {
    "matthews": matthews,
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "pearson": pearson,
    "spearman": spearman,
}


def measure(names: Sequence[str], predicted: Numbers, true: Numbers) -> dict[str, float]:
    """Some metrics, and `score`, GLUE's score of a task: their mean."""
    values = {name: METRICS[name](predicted, true) for name in names}
    return {**values, "score": float(np.mean(list(values.values())))}


def over_seeds(runs: Sequence[Mapping[str, float]]) -> dict[str, dict[str, Any]]:
    """Mean and deviation of each metric over runs."""
    found = {}
    for name in runs[0]:
        values = [run[name] for run in runs]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        found[name] = {"mean": float(np.mean(values)), "deviation": spread}
    return found


def _is_constant(values: Numbers) -> bool:
    return len(values) < 2 or bool((values == values[0]).all())
