# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""t-tests from running moments, sign-flip tests, bootstrap intervals, and corrections of p-values.

Moments are those of `flaxattn.pipeline.online_moments`. The numbers come as arrays.
"""

import numpy as np
from jaxtyping import Float
from scipy import stats

from flaxattn.errors import InputError
from flaxattn.pipeline.online_moments import Moments

CORRECTIONS = ("none", "bonferroni", "holm", "bh")


_ROUNDING = 1e-12
"""Observations that are equal but for rounding have no deviation to speak of."""
_EXACT = 13
"""Most pairs of which all choices of signs are tried."""
_FLIPS = 8192
"""Choices of signs of more pairs."""


def t_test(
    moments: Moments, bound: float = 0.0, *, two_sided: bool = False, population: bool = False
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """t-test of whether means exceed a bound, elementwise, with n - 1 degrees of freedom.

    Returns:
        t and p. Both are nan with fewer than two observations. Where all are the same, t is
        infinite with the sign of the difference and p is 0, but 1 where a one-sided test finds no
        excess; two-sided, a difference of 0 gives 0 and 1.
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


def sign_flip_test(
    differences: Float[np.ndarray, "T *shape"], seed: int = 0
) -> Float[np.ndarray, "*shape"]:
    """Two-sided test of whether differences of pairs are symmetric around 0, by flipping signs.

    Unlike a t-test it needs no normal distribution, so it holds for few pairs: the smallest p-value
    that T pairs allow is 2 / 2^T. Up to 13 pairs all 2^T choices of signs are tried. With more
    pairs, 8,191 are drawn, and the observed differences count as one more; where none of them
    reaches the observed sum, p is Hoeffding's bound 2 exp(-t^2 / 2) on the share of all 2^T choices
    that do, t being the sum over the root of the sum of squares, if that is smaller.

    Costs 8,192 T multiplications for each test at most.
    """
    count, shape = len(differences), differences.shape[1:]
    if count < 2:
        return np.full(shape, np.nan)
    flat = np.asarray(differences, np.float64).reshape(count, -1)
    norms = np.linalg.norm(flat, axis=0)
    observed = np.abs(flat.sum(0))
    bound = observed - _ROUNDING * np.abs(flat).sum(0)
    is_exact = count <= _EXACT
    if is_exact:
        signs = 1.0 - 2.0 * (np.arange(2**count)[:, None] >> np.arange(count) & 1)
    else:
        drawn = np.random.default_rng(seed).integers(0, 2, (_FLIPS - 1, count))
        signs = np.concatenate([np.ones((1, count)), 1.0 - 2.0 * drawn])
    reached = np.zeros(flat.shape[1])
    for start in range(0, len(signs), 256):  # sums of all choices at once would be too many
        reached += (np.abs(signs[start : start + 256] @ flat) >= bound).sum(0)
    p = reached / len(signs)
    if not is_exact:
        bounds = _hoeffding(observed / np.where(norms > 0, norms, 1))
        p = np.where(reached == 1, np.minimum(p, bounds), p)
    return p.reshape(shape)


def _hoeffding(t: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Largest share of choices of signs whose sum is at least t roots of the sum of squares."""
    return 2 * np.exp(-(t**2) / 2)


def adjusted(
    values: Float[np.ndarray, "*shape"], correction: str = "bh"
) -> Float[np.ndarray, "*shape"]:
    """P-values corrected for being many, so that each is compared with alpha as it is.

    Args:
        values: P-values of the tests; nan where none was made, which does not count.
        correction: `none`, `bonferroni`, `holm` (Holm 1979), which like it bounds the chance of any
            false discovery, or `bh` (Benjamini & Hochberg 1995), which bounds the share of false
            discoveries among those that are made.

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
    elif correction == "holm":
        order = np.argsort(found[made], kind="stable")
        steps = found[made][order] * np.arange(count, 0, -1)
        found[made] = np.minimum(np.maximum.accumulate(steps), 1)[np.argsort(order)]
    elif correction == "bh" and count:
        found[made] = stats.false_discovery_control(found[made], method="bh")
    return found


def ratio_interval(
    parts: Float[np.ndarray, " T"],
    wholes: Float[np.ndarray, " T"],
    level: float,
    draws: int,
    seed: int,
) -> tuple[float, float]:
    """Bootstrap interval of a ratio of sums over texts: percentiles of that of texts drawn anew.

    Returns:
        Lower and upper end; nan where there are fewer than two texts.
    """
    count = len(parts)
    if count < 2:
        return float("nan"), float("nan")
    random = np.random.default_rng(seed)
    times = random.multinomial(count, np.full(count, 1 / count), size=draws)
    sums = times @ wholes
    ratios = (times @ parts)[sums > 0] / sums[sums > 0]
    low, high = np.quantile(ratios, ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


def bootstrap_interval(
    values: Float[np.ndarray, "T *shape"], level: float, draws: int, seed: int
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """Bootstrap interval of means over texts: percentiles of means of texts drawn anew.

    Args:
        values: Values of T texts, all of them numbers.
        level: Level of confidence, between 0 and 1.
        draws: Number of means that are drawn.
        seed: Seed of the draws, which are the same for all columns.

    Returns:
        Lower and upper end; nan where there are fewer than two texts.
    """
    count, shape = len(values), values.shape[1:]
    if count < 2:
        return np.full(shape, np.nan), np.full(shape, np.nan)
    flat = values.reshape(count, -1)
    random = np.random.default_rng(seed)
    means = np.empty((draws, flat.shape[1]))
    for start in range(0, draws, 128):  # counts of all draws at once would take T x draws numbers
        some = min(128, draws - start)
        times = random.multinomial(count, np.full(count, 1 / count), size=some)
        means[start : start + some] = times @ flat / count
    tail = (1 - level) / 2
    low, high = np.quantile(means, (tail, 1 - tail), axis=0)
    return low.reshape(shape), high.reshape(shape)
