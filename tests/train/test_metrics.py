# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""GLUE's metrics against values worked out by hand, and where they have none."""

import math

import numpy as np
import pytest

from flaxattn.train import glue_model

# Three true positives, one false positive, two false negatives, four true negatives.
TRUE = np.array([1, 1, 1, 0, 1, 1, 0, 0, 0, 0])
PREDICTED = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0])


def test_classification_by_hand() -> None:
    found = glue_model.measure(("accuracy", "f1", "matthews"), PREDICTED, TRUE)
    assert found["accuracy"] == pytest.approx(7 / 10)
    assert found["f1"] == pytest.approx(2 * 3 / (2 * 3 + 1 + 2))
    assert found["matthews"] == pytest.approx((3 * 4 - 1 * 2) / math.sqrt(4 * 5 * 5 * 6))
    assert found["score"] == pytest.approx(np.mean([found[n] for n in METRIC_NAMES]))


METRIC_NAMES = ("accuracy", "f1", "matthews")


def test_f1_is_that_of_label_one() -> None:
    assert glue_model.f1(1 - PREDICTED, 1 - TRUE) == pytest.approx(2 * 4 / (2 * 4 + 2 + 1))


def test_correlations_by_hand() -> None:
    x, y = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 9.0])
    dx, dy = x - x.mean(), y - y.mean()
    by_hand = (dx * dy).sum() / math.sqrt((dx**2).sum() * (dy**2).sum())
    assert glue_model.pearson(x, y) == pytest.approx(by_hand)
    assert glue_model.spearman(x, y) == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert glue_model.spearman(x, y**3) == pytest.approx(glue_model.spearman(x, y))
    tied = np.array([1.0, 1.0, 2.0, 2.0])
    assert glue_model.spearman(tied, y) == pytest.approx(
        glue_model.pearson(tied, np.array([1, 3, 2, 4]))
    )


@pytest.mark.parametrize("name", glue_model.METRICS)
def test_constant_predictions_are_worth_nothing(name: str) -> None:
    """Warnings are errors here, so there is none."""
    label = TRUE.astype(float) if name in ("pearson", "spearman") else TRUE
    value = glue_model.METRICS[name](np.zeros_like(label), label)
    usual = {"accuracy": 0.5, "macro_f1": 1 / 3}  # the F1 of label 0 is 2/3
    assert value == pytest.approx(usual.get(name, 0.0))
    one = glue_model.METRICS[name](label[:1], label[:1])
    assert one == (1.0 if name in ("accuracy", "f1", "macro_f1") else 0.0)


def test_mean_and_deviation() -> None:
    runs = [{"accuracy": 0.5, "f1": 1.0}, {"accuracy": 0.7, "f1": 1.0}]
    found = glue_model.over_seeds(runs)
    assert found["accuracy"]["mean"] == pytest.approx(0.6)
    assert found["accuracy"]["deviation"] == pytest.approx(math.sqrt(2 * 0.1**2))
    assert found["f1"] == {"mean": 1.0, "deviation": 0.0}
    assert glue_model.over_seeds(runs[:1])["f1"] == {"mean": 1.0, "deviation": None}
