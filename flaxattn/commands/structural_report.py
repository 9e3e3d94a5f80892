# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The report of `flaxattn probe --structural`: which hidden state has trees in it.

Everything heavy is imported when it runs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from flaxattn.commands.probe_reader import ProbeSpec, left_out, tell_rest

if TYPE_CHECKING:
    from flaxattn.probes.structural_scores import StructuralJudged

_COLUMNS = ("uuas", "distance_spearman", "root_accuracy", "norm_spearman")
_SHOWN = (".1%", ".3f", ".1%", ".3f")


def report_structural(
    asked: ProbeSpec,
    layers: Sequence[int] | None,
    rank: int | None,
    epochs: int | None,
    untrained: bool,
) -> None:
    """Fit structural probes, write probe.json, layers.parquet, probe.png and the best probe."""
    import dataclasses

    from flaxattn.commands.report_files import write_report
    from flaxattn.commands.report_layout import FITTED, LAYERS, figure_file
    from flaxattn.probes.head_probe import structural_probe
    from flaxattn.probes.probe_file import to_bytes
    from flaxattn.probes.structural_probe import Fitting
    from flaxattn.views.figures.plot_structural import plot_structural

    fitting = Fitting(rank=rank, epochs=epochs or Fitting.epochs, seed=asked.seed)
    fits = 2 * fitting.epochs * (3 if untrained else 2)
    message = f"one pass over all texts, then at most {fits} epochs of fitting"
    asked.run.progress.expect("fitting", fits)
    asked.announce("reading hidden states", message)
    judged = structural_probe(
        asked.loaded(),
        asked.files[0].sentences(asked.bad),
        asked.files[1].sentences(asked.bad),
        layers,
        fitting=fitting,
        untrained=untrained,
        reading=asked.reading(),
    )
    said = {
        "model": asked.model,
        "data": [each.facts() for each in asked.files],
        "settings": {
            **dataclasses.asdict(fitting),
            "layers": layers,
            "truncate": asked.truncate,
            "untrained": untrained,
        },
        "seed": asked.seed,
        "left_out": left_out(asked.bad),
        "structural": judged.facts(),
    }
    notes = {name: said[name] for name in ("model", "data", "settings", "structural")}
    beside = {FITTED: to_bytes(judged.probe, notes)}
    figure = plot_structural(judged)
    written = write_report(
        asked.run, said, _rows(judged), {figure_file("probe"): figure}, beside, LAYERS
    )
    if not asked.told_as_json(said):
        _tell(judged)
        tell_rest(said, written)


def _rows(judged: "StructuralJudged") -> dict[str, list[Any]]:
    """One row per hidden state, and one per baseline, whose `layer` is null for a chain."""
    best = judged.probe.layer
    rows: dict[str, list[Any]] = {"what": [], "layer": []}
    named: list[tuple[str, int | None, Any]] = [
        ("probe", probe.layer, scores)
        for probe, scores in zip(judged.probes, judged.scores, strict=True)
    ]
    named += [("chain", None, judged.chain), ("control", best, judged.control)]
    named += [] if judged.untrained is None else [("untrained", best, judged.untrained)]
    for what, layer, scores in named:
        for name, value in {"what": what, "layer": layer, **scores._asdict()}.items():
            rows.setdefault(name, []).append(value)
    return rows


def _tell(judged: "StructuralJudged") -> None:
    console = Console(highlight=False, soft_wrap=True)
    rows = _rows(judged)
    title = f"Trees in hidden states; the best by held-out sentences is {judged.probe.layer}"
    table = Table(title=title)
    table.add_column("", no_wrap=True)
    for name in ("UUAS", "distances", "root", "depths"):
        table.add_column(name, justify="right")
    for place, what in enumerate(rows["what"]):
        layer = rows["layer"][place]
        name = f"hidden state {layer}" if what == "probe" else what
        values = [rows[column][place] for column in _COLUMNS]
        shown = [f"{value:{form}}" for value, form in zip(values, _SHOWN, strict=True)]
        table.add_row(name, *shown)
    console.print(table)
    console.print(f"selectivity {judged.selectivity:+.1f} points of UUAS above the control task")
