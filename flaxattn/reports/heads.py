# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Report how the numbers of several reports on the same heads agree: `heads_report`."""

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flaxattn.errors import check_arguments
from flaxattn.files import sha256_of
from flaxattn.measures.head_concordance import LEVEL, head_concordance
from flaxattn.reports.report import (
    CORRELATIONS,
    Report,
    columns_bytes,
    facts_file,
    figure_file,
    reports_in,
    without_nan,
)
from flaxattn.views.figures.plot_head_numbers import plot_concordance


@check_arguments(1)
def heads_report(
    reports: Sequence[str | os.PathLike[str]],
    *,
    columns: Sequence[str] = (),
    side: str | None = None,
    draws: int = 1000,
    alpha: float = 0.05,
    correction: str = "bh",
    seed: int = 0,
) -> Report:
    """Report correlations between scores, probes and effects of heads.

    As `flaxattn heads` does. `head_concordance` returns the numbers alone, and describes them and
    their cost.

    >>> import flaxattn as fa
    >>> model, folders = fa.from_pretrained("tiny-gpt2"), ["FIRST", "SECOND"]
    >>> for seed, folder in enumerate(folders):
    ...     _ = fa.circuits_report(model, drawings=2, seed=seed).save(folder)
    >>> report = fa.heads_report(folders, columns=["*: copying"], draws=10)
    >>> report.table.num_rows  # a row for each head
    24

    Args:
        reports: Two or more folders of saved reports on one model: of roles, stats, probe, ablate,
            patch, circuits or weights.
        columns: Patterns of the columns to compare, such as `ablate:*`; default all.
        side: Attention to compare: `encoder`, `decoder` or `cross`; default the first that all
            reports have of cross, encoder and decoder.
        draws: Number of bootstrap samples, and of permutations.
        alpha: Largest corrected p-value of a pair of columns that the figure marks.
        correction: For many tests: `bh`, `bonferroni`, `holm` or `none`.
        seed: Random seed of samples and permutations.

    Returns:
        A report with a row for each head and all numbers side by side, a table of pairs of columns,
        and a figure. `result` is the `HeadConcordance`.

    Raises:
        InputError: As `head_concordance`: for a folder without a report, or reports on several
            models.
    """
    options = {"draws": draws, "correction": correction}
    found = head_concordance(reports, columns=columns, side=side, seed=seed, **options)
    rows = found.rows()
    facts = {
        "model": found.model,
        "seed": seed,
        "data": [_source(Path(folder)) for folder in reports],
        "settings": {**options, "alpha": alpha, "level": LEVEL},
        "side": found.side,
        "columns": list(found.columns),
        "left_out": list(found.left_out),
        "heads": len(found.heads),
        "correlations": rows,
    }
    table = {name: without_nan([row[name] for row in rows]) for name in rows[0]}
    figures = {figure_file("heads"): functools.partial(plot_concordance, found, alpha)}
    files = {CORRELATIONS: columns_bytes(table)}
    return Report("heads", facts, found.to_columns(), figures, files, result=found)


def _source(folder: Path) -> dict[str, Any]:
    """Describe a folder of reports, each by the digest of its JSON file, which names the others."""
    files = [facts_file(name) for name in reports_in(folder)]
    return {"name": folder.name, "files": {file: sha256_of(folder / file) for file in files}}
