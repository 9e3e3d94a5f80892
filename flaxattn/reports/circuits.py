# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Report copying, matching and composition of heads, from weights alone: `circuits_report`."""

import dataclasses
import functools
from collections.abc import Sequence

from flaxattn.attribution.head_circuits import head_circuits
from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.circuit_scores import KINDS
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.reports.report import (
    COMPOSED,
    COMPOSITION,
    Report,
    columns_bytes,
    figure_file,
    table_file,
)
from flaxattn.store.plan import model_fingerprint
from flaxattn.views.figures.plot_circuits import plot_circuits, plot_composition


@check_arguments(1)
def circuits_report(
    model: Pretrained,
    *,
    distances: Sequence[int] | None = None,
    positions: int = 256,
    centred: bool = False,
    kind: str = "key",
    edges: int = 24,
    drawings: int = 20,
    seed: int = 0,
    allow_nonfinite: bool = False,
) -> Report:
    """Report scores of copying, matching and composition of heads. No text is read.

    As `flaxattn circuits` does. `head_circuits` returns the numbers alone, and describes them and
    their cost.

    >>> import flaxattn as fa
    >>> report = fa.circuits_report(fa.from_pretrained("tiny-gpt2"), drawings=2)
    >>> report.table.column_names[:4]
    ['side', 'layer', 'head', 'copying']

    Args:
        model: A model; its tokenizer is not needed.
        distances: Distances, query minus key, of rotary positions; default 0 to 8, 16, 32 and 64.
        positions: Number of positions whose preference is measured.
        centred: Whether the mean over the vocabulary is taken from the embeddings first.
        kind: Composition that the figure shows: `query`, `key` or `value`.
        edges: Number of pairs of heads in the figure and in `facts`.
        drawings: Number of pairs of random heads that are compared with.
        seed: Random seed of these.
        allow_nonfinite: Whether weights that are NaN or infinite leave cells blank; otherwise they
            are an error.

    Returns:
        A report with a row for each head, a table of pairs of heads, and one or two figures.
        `result` is the `HeadCircuits`.

    Raises:
        InputError: For an unknown kind, or as `head_circuits`.
    """
    if kind not in KINDS:
        raise InputError(f"kind {kind!r} is unknown\nchoose one of {', '.join(KINDS)}")
    found = head_circuits(
        model,
        distances=distances,
        positions=positions,
        centred=centred,
        drawings=drawings,
        seed=seed,
        allow_nonfinite=allow_nonfinite,
    )
    strongest = {name: found.edges(name, edges) for name in KINDS}
    facts = {
        "model": model.name,
        "architecture": model.config.architectures[0],
        "fingerprint": dataclasses.asdict(model_fingerprint(model)),
        "seed": seed,
        "settings": {
            "distances": list(found.distances),
            "positions": positions,
            "centred": centred,
            "drawings": drawings,
        },
        "random_composition": {"mean": found.expected, "sd": found.expected_sd},
        "composition": strongest,
        "heads": found.rows(),
    }
    figures = {figure_file("circuits"): functools.partial(plot_circuits, found)}
    if strongest[kind]:
        figures[COMPOSED] = functools.partial(plot_composition, found, kind, edges)
    files = {COMPOSITION: columns_bytes(found.edge_columns())}
    table = table_file("circuits")
    return Report("circuits", facts, facts["heads"], figures, files, table_name=table, result=found)
