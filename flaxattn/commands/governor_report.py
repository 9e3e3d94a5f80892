# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The report of `flaxattn probe`: which heads find governors, and what all of them know of trees.

Everything heavy is imported when it runs.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from flaxattn.commands.probe_reader import ProbeSpec, left_out, tell_rest

if TYPE_CHECKING:
    from flaxattn.probes.governor_probe import Classifier, Dependencies

_SHOWN = 12  # relations in the table and in the figure
_CHOSEN = "heads_chosen_on"
_PENALTY = 1e-4


class EvidenceOptions(NamedTuple):
    """Options of the evidence in a report.

    Attributes:
        kept: For each claim.
        most: In the page; None for no page.
    """

    kept: int
    most: int | None


def report_governors(
    asked: ProbeSpec, untrained: bool, penalty: float | None, shown: EvidenceOptions
) -> None:
    """Ask heads, write the report with its page and the fitted parser, and print."""
    from flaxattn.commands.probe_page import evidence_of
    from flaxattn.commands.report_files import write_report
    from flaxattn.commands.report_layout import FITTED, figure_file
    from flaxattn.probes.arc_weights import Watched
    from flaxattn.probes.head_probe import head_probe
    from flaxattn.probes.probe_file import to_bytes

    penalty = _PENALTY if penalty is None else penalty
    fits = "a parser and its control task" if asked.files[1].paths else "no parser"
    asked.announce("reading heads", f"one pass over all texts, {fits} fitted")
    model, passing = asked.loaded(), Watched(shown.kept)
    found, best, judged = head_probe(
        model,
        asked.files[0].sentences(asked.bad),
        asked.files[1].sentences(asked.bad) if asked.files[1].paths else None,
        untrained=untrained,
        penalty=penalty,
        seed=asked.seed,
        passing=passing,
        reading=asked.reading(),
    )
    evidence, beside = evidence_of(asked, model, found, best, passing, shown.most)
    said = {
        "model": asked.model,
        "data": [each.facts() for each in asked.files],
        "settings": {"penalty": penalty, "truncate": asked.truncate, "untrained": untrained},
        "seed": asked.seed,
        "left_out": left_out(asked.bad),
        _CHOSEN: "other sentences" if judged else "the same sentences, which flatters",
        "relations": [one._asdict() | {"lift": one.lift} for one in best],
        "parser": None if judged is None else judged.facts(),
        "evidence": evidence,
    }
    if judged is not None:
        notes = {name: said[name] for name in ("model", "data", "settings", "parser")}
        beside[FITTED] = to_bytes(judged.probe, notes)
    figures = {figure_file("probe"): _figure(found, best)}
    written = write_report(asked.run, said, _rows(found), figures, beside)
    if not asked.told_as_json(said):
        _tell(said, best)
        tell_rest(said, written)


def _rows(found: "Dependencies") -> dict[str, list[Any]]:
    """One row per relation, direction and head: columns of heads.parquet."""
    names = ("relation", "direction", "layer", "head", "count", "accuracy", "offset", "baseline")
    rows: dict[str, list[Any]] = {name: [] for name in names}
    for direction, relation in found.hits:
        shares = found.accuracy(direction, relation)
        count = found.offsets[direction, relation].total()
        offset, baseline = found.baseline(direction, relation)
        for i, j in np.ndindex(shares.shape):
            where = (relation, direction, found.layers[i], found.heads[j], count)
            values = (*where, float(shares[i, j]), offset, baseline)
            for name, value in zip(names, values, strict=True):
                rows[name].append(value)
    return rows


def _figure(found: "Dependencies", best: "list[Classifier]") -> Any:
    from flaxattn.views.figures.plot_roles import plot_head_means

    means = {
        f"{one.relation} ({one.direction})": found.accuracy(one.direction, one.relation)
        for one in best[:_SHOWN]
    }
    return plot_head_means(found.layers, found.heads, means, "share of words it is right for")


def _tell(said: dict[str, Any], best: "list[Classifier]") -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table(title="Heads that find governors best", caption=f"chosen on {said[_CHOSEN]}")
    table.add_column("relation", no_wrap=True)
    for name in ("words", "head", "direction", "right", "offset", "baseline", "lift"):
        table.add_column(name, justify="right")
    for one in best[:_SHOWN]:
        table.add_row(
            one.relation,
            str(one.words),
            f"{one.layer}.{one.head}",
            one.direction,
            f"{one.accuracy:.1%}",
            f"{one.offset:+d}",
            f"{one.baseline:.1%}",
            f"{one.lift:+.1f}",
        )
    console.print(table)
    if said["parser"] is not None:
        scores = said["parser"]["uas"]
        each = ", ".join(f"{name} {score:.1f}" for name, score in scores.items() if name != "tree")
        console.print(
            f"all heads together attach {scores['tree']:.1f}% of words; {each}; "
            f"selectivity {said['parser']['selectivity']:+.1f} points"
        )
