# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Agreement of what is known of heads: do heads with a high score also have a large effect?

Numbers come from reports; every two columns are correlated over the heads that have both.
"""

import dataclasses
import fnmatch
import itertools
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata

from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.read_report import (
    Head,
    ReportNumbers,
    check_same_model,
    read_head_numbers,
    report_labels,
)
from flaxattn.measures.significance import CORRECTIONS, adjusted
from flaxattn.trace.result_table import ResultTable

LEVEL = 0.95
"""Confidence of intervals."""
_LEAST = 4  # heads that a correlation is taken over
_MOST = 60  # columns
_SIDES = ("cross", "encoder", "decoder")  # the first that all reports have is the default
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class HeadConcordance(ResultTable):
    """Numbers of every head side by side, and the correlations of their columns.

    Attributes:
        model: Name of the model.
        side: `encoder`, `decoder` or `cross`.
        columns: Names of the columns: that of the report, a colon, and that of the number.
        sources: Number of the report of each column.
        layers: Layer of each head.
        heads: Number of each head in its layer.
        values: Numbers; nan where a report has none.
        counts: Number of heads that have both numbers.
        spearman: Rank correlation; nan where fewer than 4 heads have both numbers, or one does not
            vary among these.
        spearman_low: Lower end of its bootstrap interval over heads.
        spearman_high: Its upper end.
        pearson: Linear correlation.
        pearson_low: Lower end of its bootstrap interval.
        pearson_high: Its upper end.
        p: Share of permutations of heads with as large a rank correlation, two-sided.
        p_within_layers: The same, of permutations of the heads of each layer by themselves, which
            keep what depth explains.
        p_corrected: `p`, corrected for all pairs of columns of different reports; nan for pairs of
            columns of one report.
        left_out: Names of columns that fewer than 4 heads have, or that do not vary.
    """

    model: str
    side: str
    columns: tuple[str, ...]
    sources: tuple[int, ...]
    layers: Int[np.ndarray, " N"]
    heads: Int[np.ndarray, " N"]
    values: Float[np.ndarray, "N C"]
    counts: Int[np.ndarray, "C C"]
    spearman: Float[np.ndarray, "C C"]
    spearman_low: Float[np.ndarray, "C C"]
    spearman_high: Float[np.ndarray, "C C"]
    pearson: Float[np.ndarray, "C C"]
    pearson_low: Float[np.ndarray, "C C"]
    pearson_high: Float[np.ndarray, "C C"]
    p: Float[np.ndarray, "C C"]
    p_within_layers: Float[np.ndarray, "C C"]
    p_corrected: Float[np.ndarray, "C C"]
    left_out: tuple[str, ...] = ()

    def to_columns(self) -> dict[str, Any]:
        """Columns of a table with a row for each head."""
        where = {"side": [self.side] * len(self.heads), "layer": self.layers, "head": self.heads}
        numbers = zip(self.columns, self.values.T, strict=True)
        return {**where, **{name: np.ascontiguousarray(column) for name, column in numbers}}

    def rows(self) -> list[dict[str, Any]]:
        """A row for each pair of columns, the largest rank correlation first.

        Pairs of columns of different reports come before those of one report.
        """
        found = list(self._pairs())
        size = {n: abs(row["spearman"]) for n, row in enumerate(found)}
        order = sorted(
            range(len(found)),
            key=lambda n: (found[n]["same_report"], np.isnan(size[n]), -np.nan_to_num(size[n])),
        )
        return [found[n] for n in order]

    def _pairs(self) -> Iterator[dict[str, Any]]:
        numbers = ("spearman", "spearman_low", "spearman_high", "pearson", "pearson_low")
        numbers += ("pearson_high", "p", "p_within_layers", "p_corrected")
        for i, j in itertools.combinations(range(len(self.columns)), 2):
            yield {
                "first": self.columns[i],
                "second": self.columns[j],
                "same_report": self.sources[i] == self.sources[j],
                "heads": int(self.counts[i, j]),
                **{name: float(getattr(self, name)[i, j]) for name in numbers},
            }


@check_arguments()
def head_concordance(
    reports: Sequence[str | PathLike[str]],
    *,
    columns: Sequence[str] = (),
    side: str | None = None,
    draws: int = 1000,
    correction: str = "bh",
    seed: int = 0,
) -> HeadConcordance:
    """Correlate the numbers that several reports have of the same heads.

    Costs `draws` rank correlations of all columns for intervals, and twice as many for p-values;
    no model is loaded.

    >>> import contextlib, io
    >>> import flaxattn as fa
    >>> from flaxattn.cli import main
    >>> reports = ["SCORES", "OTHERS"]
    >>> with contextlib.redirect_stdout(io.StringIO()):  # `flaxattn circuits` in a shell
    ...     codes = [main(["circuits", "--seed", str(n), "--out", reports[n]]) for n in (0, 1)]
    >>> found = fa.head_concordance(reports, columns=["*: copying"], draws=10)
    >>> len(found.heads), float(found.spearman[0, 1].round(3))
    (24, 1.0)

    Args:
        reports: Two or more folders of reports on one model: those of `flaxattn roles`, `stats`,
            `probe`, `ablate`, `patch`, `circuits` and `weights`.
        columns: Patterns of the columns that are compared, such as `ablate:*`; all by default.
        side: `encoder`, `decoder` or `cross`; by default the first that all reports have of cross,
            encoder and decoder.
        draws: Number of bootstrap samples, and of permutations of either kind.
        correction: For many tests: "bh", "bonferroni", "holm" or "none".
        seed: Random seed of both.

    Returns:
        Numbers of every head side by side, and correlations of every two columns.

    Raises:
        InputError: For reports of different models, without numbers of heads, or without a side in
            common, and for a pattern that no column has.
    """
    if isinstance(reports, str) or len(reports) < 2:
        raise InputError(
            "Columns of two reports or more are compared; received one or none.\n"
            "Give the folders of reports on one model."
        )
    if draws < 1 or correction not in CORRECTIONS:
        raise InputError(
            f"Expected draws of 1 or more and a correction of {', '.join(CORRECTIONS)}; received "
            f"{draws} and {correction!r}."
        )
    read = [read_head_numbers(path) for path in reports]
    for other in read[1:]:
        check_same_model(read[0], other)
    side = _common_side(read, side)
    named = _named(read, side)
    requested = _chosen(list(named), columns)
    chosen = {name: named[name] for name in requested if _varies(named[name][1])}
    if len(chosen) < 2:
        raise InputError(
            f"{len(chosen)} of {len(requested)} columns vary over {_LEAST} heads, expected two.\n"
            "Give reports with numbers of more heads."
        )
    found = _correlated(read[0].model, side, chosen, draws, correction, seed)
    return dataclasses.replace(found, left_out=tuple(n for n in requested if n not in chosen))


def _varies(column: Mapping[Head, float]) -> bool:
    known = np.array([value for value in column.values() if not np.isnan(value)])
    return len(known) >= _LEAST and bool(np.isfinite(_standard(known[:, None])).all())


def _common_side(reports: Sequence[ReportNumbers], side: str | None) -> str:
    """The side that is compared, of which every report has a number."""
    sides = [
        {h[0] for one in r.columns.values() for h, value in one.items() if not np.isnan(value)}
        for r in reports
    ]
    common = set.intersection(*sides)
    if side is None and common:
        return next(name for name in _SIDES if name in common)
    if side is None or side not in common:
        each = "; ".join(
            f"{report.folder} {', '.join(sorted(there))}"
            for report, there in zip(reports, sides, strict=True)
        )
        requested = "No side is in all reports" if side is None else f"Not all reports have {side}"
        raise InputError(f"{requested}.\nThey have these: {each}.\nMake reports of one side.")
    return side


def _named(
    reports: Sequence[ReportNumbers], side: str
) -> dict[str, tuple[int, Mapping[Head, float]]]:
    """Columns of a side by name, each with the number of its report."""
    found = {}
    for number, (report, label) in enumerate(zip(reports, report_labels(reports), strict=True)):
        for name, values in report.columns.items():
            own = {head: value for head, value in values.items() if head[0] == side}
            if own:
                found[f"{label}: {name}"] = number, own
    return found


def _chosen(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Names of the columns that match any pattern, in their order."""
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise InputError(
                f"No column matches {pattern!r}.\nThere are {', '.join(names[:12])}"
                f"{', …' if len(names) > 12 else '.'}"
            )
    found = [n for n in names if not patterns or any(fnmatch.fnmatch(n, p) for p in patterns)]
    if not 2 <= len(found) <= _MOST:
        raise InputError(
            f"{len(found)} columns were chosen, expected 2 to {_MOST}.\n"
            f"Choose with columns, of {', '.join(names[:8])}{', …' if len(names) > 8 else '.'}"
        )
    return found


def _correlated(
    model: str,
    side: str,
    named: Mapping[str, tuple[int, Mapping[Head, float]]],
    draws: int,
    correction: str,
    seed: int,
) -> HeadConcordance:
    """Correlations of all columns."""
    places = sorted({head[1:] for _, column in named.values() for head in column})
    values = np.array(
        [[column.get((side, *place), np.nan) for _, column in named.values()] for place in places]
    )
    layers, heads = np.array(places).T
    sources = tuple(number for number, _ in named.values())
    known = ~np.isnan(values)
    counts = known.astype(int).T @ known.astype(int)
    size = len(sources)
    found: dict[str, Any] = {name: np.full((size, size), np.nan) for name in _NUMBERS}
    groups: dict[bytes, list[tuple[int, int]]] = {}
    for i, j in itertools.combinations_with_replacement(range(size), 2):
        groups.setdefault((known[:, i] & known[:, j]).tobytes(), []).append((i, j))
    for mask, pairs in groups.items():  # columns that the same heads have are taken together
        rows = np.frombuffer(mask, bool)
        if rows.sum() < _LEAST:
            continue
        some = sorted({column for pair in pairs for column in pair})
        numbers = _statistics(values[rows][:, some], layers[rows], draws, seed)
        for i, j in pairs:
            at = some.index(i), some.index(j)
            for name, table in numbers.items():
                found[name][i, j] = found[name][j, i] = table[at]
    found["p_corrected"] = _corrected(found["p"], np.array(sources), correction)
    return HeadConcordance(
        model, side, tuple(named), sources, layers, heads, values, counts, **found
    )


_NUMBERS = (
    *("spearman", "spearman_low", "spearman_high", "pearson", "pearson_low", "pearson_high"),
    *("p", "p_within_layers"),
)


def _statistics(
    values: Float[np.ndarray, "N C"], layers: Int[np.ndarray, " N"], draws: int, seed: int
) -> dict[str, Float[np.ndarray, "C C"]]:
    """Correlations with their intervals and p-values, of columns without gaps."""
    random = np.random.default_rng(seed)
    found: dict[str, Float[np.ndarray, "C C"]] = {}
    samples = [random.integers(len(values), size=len(values)) for _ in range(draws)]
    for name, one in (("spearman", _ranks), ("pearson", np.asarray)):
        found[name] = _correlation(one(values))
        drawn = np.stack([_correlation(one(values[sample])) for sample in samples])
        found[f"{name}_low"], found[f"{name}_high"] = _ends(drawn)
    ranks = _standard(_ranks(values))
    ties = np.abs(found["spearman"]) - _ROUNDING
    for name, strata in (("p", np.zeros_like(layers)), ("p_within_layers", layers)):
        order = np.argsort(strata, kind="stable")
        as_large = np.zeros_like(ties)
        for _ in range(draws):
            shuffled = np.lexsort((random.random(len(layers)), strata))
            moved = np.empty_like(ranks)
            moved[order] = ranks[shuffled]
            as_large += np.abs(moved.T @ ranks) >= ties
        upper = np.triu((1 + as_large) / (1 + draws))
        p = upper + np.triu(upper, 1).T
        found[name] = np.where(np.isnan(found["spearman"]), np.nan, p)
    return found


def _ranks(values: Float[np.ndarray, "N C"]) -> Float[np.ndarray, "N C"]:
    return rankdata(values, axis=0)


def _standard(values: Float[np.ndarray, "N C"]) -> Float[np.ndarray, "N C"]:
    """Columns with mean 0 and length 1; nan where a column does not vary."""
    centred = values - values.mean(0)
    length = np.sqrt((centred**2).sum(0))
    flat = length <= _ROUNDING * np.abs(values).max(0)
    return centred / np.where(flat, np.nan, length)


def _correlation(values: Float[np.ndarray, "N C"]) -> Float[np.ndarray, "C C"]:
    columns = _standard(values)
    return np.clip(columns.T @ columns, -1, 1)


def _ends(drawn: Float[np.ndarray, "R C C"]) -> tuple[Any, Any]:
    """Percentiles of draws; nan where a column never varies."""
    tail = (1 - LEVEL) / 2
    never = np.isnan(drawn).all(0)
    ends = np.nanquantile(np.where(never, 0.0, drawn), (tail, 1 - tail), axis=0)
    low, high = np.where(never, np.nan, ends)
    return low, high


def _corrected(
    p: Float[np.ndarray, "C C"], sources: Int[np.ndarray, " C"], correction: str
) -> Float[np.ndarray, "C C"]:
    """P-values corrected for all pairs of columns of different reports."""
    tested: Bool[np.ndarray, "C C"] = np.triu(sources[:, None] != sources, 1)
    upper = adjusted(np.where(tested, p, np.nan), correction)
    return np.where(np.isnan(upper), upper.T, upper)
