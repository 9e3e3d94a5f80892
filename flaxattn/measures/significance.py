# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""t-tests from running moments, and corrections for there being many of them.

Moments are those of `flaxattn.pipeline.online_moments`; no observation is kept. Which numbers are
tested is decided elsewhere.
"""

import numpy as np
from jaxtyping import Float
from scipy import stats

from flaxattn.errors import InputError
from flaxattn.pipeline.online_moments import Moments

CORRECTIONS = ("none", "bonferroni", "bh")


_ROUNDING = 1e-12
"""Observations that are equal but for rounding have no deviation to speak of."""


def t_test(
    moments: Moments, bound: float = 0.0, *, two_sided: bool = False, population: bool = False
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """t-test of whether means exceed a bound, elementwise, with n - 1 degrees of freedom.

    Args:
        moments: Over n observations.
        bound: That of the null hypothesis.
        two_sided: Whether means below the bound count too.
        population: Whether the deviation is divided by n in place of n - 1.

    Returns:
        t and p. Of fewer than two observations both are nan. Where all are the same, t is infinite
        with the sign of the difference and p is 0, but 1 where a one-sided test finds no excess;
        two-sided, a difference of 0 gives 0 and 1.
    """
    count = np.asarray(moments.counts, np.float64)
    freedom = np.maximum(count - 1, 1)
    spread = np.maximum(moments.m2, 0) / np.maximum(count if population else freedom, 1)
    error = np.sqrt(spread / np.maximum(count, 1))
    gap = moments.mean - bound
    same = error <= _ROUNDING * np.maximum(np.abs(moments.mean), np.abs(gap))
    limit = np.where(gap > 0, np.inf, -np.inf)
    if two_sided:
        limit = np.where(gap == 0, 0.0, limit)
    t = np.where(same, limit, gap / np.where(same, 1, error))
    p = 2 * stats.t.sf(np.abs(t), freedom) if two_sided else stats.t.sf(t, freedom)
    return np.where(count > 1, t, np.nan), np.where(count > 1, p, np.nan)


def paired_test(
    differences: Moments,
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """Two-sided t-test of whether differences of pairs are 0 on average.

    Args:
        differences: Moments of second minus first, elementwise.

    Returns:
        t and p, as `t_test`.
    """
    return t_test(differences, two_sided=True)


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
