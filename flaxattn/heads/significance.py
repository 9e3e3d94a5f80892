# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Paired tests from running moments, and corrections for there being many of them.

Moments are those of `flaxattn.running`; no observation is kept. Which numbers are tested is decided
elsewhere.
"""

import numpy as np
from jaxtyping import Float
from scipy import stats

from flaxattn.errors import InputError
from flaxattn.running import Moments

CORRECTIONS = ("none", "bonferroni", "bh")


def paired_test(
    differences: Moments,
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """Two-sided t-test of whether differences of pairs are 0 on average.

    Args:
        differences: Moments of second minus first, elementwise.

    Returns:
        t and p. Of fewer than two pairs both are nan; where all differences are the same, p is 1 if
        they are 0, else 0.
    """
    count = np.asarray(differences.counts, np.float64)
    enough = count > 1
    spread = np.sqrt(np.maximum(differences.m2, 0) / np.maximum(count - 1, 1))
    error = spread / np.sqrt(np.maximum(count, 1))
    constant = error == 0
    t = np.divide(differences.mean, error, out=np.zeros_like(error), where=~constant)
    t = np.where(constant & (differences.mean != 0), np.copysign(np.inf, differences.mean), t)
    p = 2 * stats.t.sf(np.abs(t), np.maximum(count - 1, 1))
    return np.where(enough, t, np.nan), np.where(enough, p, np.nan)


def adjusted(
    values: Float[np.ndarray, "*shape"], correction: str = "bh"
) -> Float[np.ndarray, "*shape"]:
    """P-values corrected for being many, so that each is compared with alpha as it is.

    Args:
        values: Of every test that was made; nan where none was, which does not count.
        correction: `none`, `bonferroni`, or `bh` (Benjamini & Hochberg 1995), which bounds the
            share of false discoveries among those that are made.

    Returns:
        The same shape, at most 1, at least what they were.

    Raises:
        InputError: For another correction.
    """
    if correction not in CORRECTIONS:
        raise InputError(
            f"correction {correction!r} is unknown.\nChoose one of {', '.join(CORRECTIONS)}."
        )
    found = np.array(values, np.float64)
    made = ~np.isnan(found)
    count = int(made.sum())
    if correction == "bonferroni":
        found[made] = np.minimum(found[made] * count, 1)
    elif correction == "bh" and count:
        found[made] = stats.false_discovery_control(found[made], method="bh")
    return found
