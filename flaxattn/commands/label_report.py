# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The report of `flaxattn probe --states`: labels of words in hidden states, layer by layer.

Everything heavy is imported when it runs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from flaxattn.commands.probe_reader import ProbeSpec, left_out, tell_rest

if TYPE_CHECKING:
    from flaxattn.probes.label_scores import LabelJudged, LabelScores


def report_labels(
    asked: ProbeSpec,
    what: str,
    layers: Sequence[int] | None,
    untrained: bool,
    penalty: float | None,
) -> None:
    """Fit linear probes, write probe.json, layers.parquet, probe.png and the best probe."""
    from flaxattn.commands.report_files import write_report
    from flaxattn.commands.report_layout import FITTED, LAYERS, figure_file
    from flaxattn.probes.head_probe import label_probe
    from flaxattn.probes.label_probe import PENALTY
    from flaxattn.probes.probe_file import to_bytes
    from flaxattn.probes.word_labels import word_labels
    from flaxattn.views.figures.plot_label_probe import plot_label_probe

    word_labels(what)
    loaded = asked.loaded()
    states = len(layers) if layers is not None else loaded.counts()[0] + 1
    fits = states * (3 if untrained else 2)
    asked.run.progress.expect("fitting", fits)
    asked.announce("reading hidden states", f"one pass over all texts, then {fits} probes fitted")
    strength = PENALTY if penalty is None else penalty
    judged = label_probe(
        loaded,
        asked.files[0].sentences(asked.bad),
        asked.files[1].sentences(asked.bad),
        what,
        layers,
        untrained=untrained,
        penalty=strength,
        seed=asked.seed,
        reading=asked.reading(),
    )
    said = {
        "model": asked.model,
        "data": [each.facts() for each in asked.files],
        "settings": {
            "labels": what,
            "layers": layers,
            "penalty": strength,
            "truncate": asked.truncate,
            "untrained": untrained,
        },
        "seed": asked.seed,
        "left_out": left_out(asked.bad),
        "states": judged.facts(),
    }
    notes = {name: said[name] for name in ("model", "data", "settings", "states")}
    beside = {FITTED: to_bytes(judged.probe, notes)}
    figure = plot_label_probe(judged)
    rows = {name: [one.plain()[name] for one in judged.scores] for name in judged.scores[0]._fields}
    written = write_report(asked.run, said, rows, {figure_file("probe"): figure}, beside, LAYERS)
    if not asked.told_as_json(said):
        _print(judged, untrained)
        tell_rest(said, written)


def _print(judged: "LabelJudged", untrained: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    title = f"{judged.what} in hidden states; the best by held-out sentences is "
    table = Table(title=f"{title}{judged.probe.layer}")
    table.add_column("", no_wrap=True)
    for name in ("accuracy", "95%", "control", "selectivity", "95%"):
        table.add_column(name, justify="right")
    if untrained:
        table.add_column("untrained", justify="right")
    for scores in judged.scores:
        shown = _shown(scores) if scores.accuracy == scores.accuracy else ["NaN", *[""] * 4]
        last = [f"{scores.untrained:.1%}" if scores.untrained == scores.untrained else ""]
        table.add_row(f"hidden state {scores.layer}", *shown, *(last if untrained else []))
    console.print(table)
    console.print(
        f"{judged.words:,} words; the commonest label is right for {judged.majority:.1%}, that of "
        f"each word type for {judged.by_type:.1%}"
    )


def _shown(scores: "LabelScores") -> list[Any]:
    return [
        f"{scores.accuracy:.1%}",
        _range(scores.low, scores.high),
        f"{scores.control:.1%}",
        f"{100 * scores.selectivity:+.1f}",
        _range(scores.selectivity_low, scores.selectivity_high),
    ]


def _range(low: float, high: float) -> str:
    """Ends of an interval in percent; empty where one sentence has none."""
    return "" if low != low else f"{100 * low:.1f} to {100 * high:.1f}"
