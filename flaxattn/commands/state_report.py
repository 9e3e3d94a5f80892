# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reports of `flaxattn probe` on hidden states: `--structural`, `--states` and `--load`."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from flaxattn.commands.probe_reader import ProbeSpec, left_out, tell_rest

if TYPE_CHECKING:
    from flaxattn.probes.label_scores import LabelJudged, LabelScores
    from flaxattn.probes.structural_scores import StructuralJudged


_COLUMNS = ("uuas", "distance_spearman", "root_accuracy", "norm_spearman")
_SHOWN = (".1%", ".3f", ".1%", ".3f")


def report_structural(
    spec: ProbeSpec,
    layers: Sequence[int] | None,
    rank: int | None,
    epochs: int | None,
    untrained: bool,
) -> None:
    """Fit structural probes, write probe.json, layers.parquet, probe.png and the best probe."""
    import dataclasses

    from flaxattn.probes.head_probe import structural_probe
    from flaxattn.probes.probe_file import to_bytes
    from flaxattn.probes.structural_probe import Fitting
    from flaxattn.reports.report import FITTED, LAYERS, Report, figure_file
    from flaxattn.views.figures.plot_structural import plot_structural

    fitting = Fitting(rank=rank, epochs=epochs or Fitting.epochs, seed=spec.seed)
    fits = 2 * fitting.epochs * (3 if untrained else 2)
    message = f"one pass over all texts, then at most {fits} epochs of fitting"
    spec.run.progress.expect("fitting", fits)
    spec.announce("reading hidden states", message)
    judged = structural_probe(
        spec.loaded(),
        spec.files[0].sentences(spec.bad),
        spec.files[1].sentences(spec.bad),
        layers,
        fitting=fitting,
        untrained=untrained,
        reading=spec.reading(),
    )
    facts = {
        "model": spec.model,
        "data": [each.facts() for each in spec.files],
        "settings": {
            **dataclasses.asdict(fitting),
            "layers": layers,
            "truncate": spec.truncate,
            "untrained": untrained,
        },
        "seed": spec.seed,
        "left_out": left_out(spec.bad),
        "structural": judged.facts(),
    }
    notes = {name: facts[name] for name in ("model", "data", "settings", "structural")}
    beside = {FITTED: to_bytes(judged.probe, notes)}
    figures = {figure_file("probe"): functools.partial(plot_structural, judged)}
    report = Report("probe", facts, _rows(judged), figures, beside, table_name=LAYERS)
    written = spec.run.save(report)
    if not spec.printed_as_json(facts):
        _tell(judged)
        tell_rest(facts, written)


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


def report_labels(
    spec: ProbeSpec,
    what: str,
    layers: Sequence[int] | None,
    untrained: bool,
    penalty: float | None,
) -> None:
    """Fit linear probes, write probe.json, layers.parquet, probe.png and the best probe."""
    from flaxattn.probes.head_probe import label_probe
    from flaxattn.probes.label_probe import PENALTY
    from flaxattn.probes.probe_file import to_bytes
    from flaxattn.probes.word_labels import word_labels
    from flaxattn.reports.report import FITTED, LAYERS, Report, figure_file
    from flaxattn.views.figures.plot_label_probe import plot_label_probe

    word_labels(what)
    loaded = spec.loaded()
    states = len(layers) if layers is not None else loaded.counts()[0] + 1
    fits = states * (3 if untrained else 2)
    spec.run.progress.expect("fitting", fits)
    spec.announce("reading hidden states", f"one pass over all texts, then {fits} probes fitted")
    strength = PENALTY if penalty is None else penalty
    judged = label_probe(
        loaded,
        spec.files[0].sentences(spec.bad),
        spec.files[1].sentences(spec.bad),
        what,
        layers,
        untrained=untrained,
        penalty=strength,
        seed=spec.seed,
        reading=spec.reading(),
    )
    facts = {
        "model": spec.model,
        "data": [each.facts() for each in spec.files],
        "settings": {
            "labels": what,
            "layers": layers,
            "penalty": strength,
            "truncate": spec.truncate,
            "untrained": untrained,
        },
        "seed": spec.seed,
        "left_out": left_out(spec.bad),
        "states": judged.facts(),
    }
    notes = {name: facts[name] for name in ("model", "data", "settings", "states")}
    beside = {FITTED: to_bytes(judged.probe, notes)}
    rows = {name: [one.plain()[name] for one in judged.scores] for name in judged.scores[0]._fields}
    figures = {figure_file("probe"): functools.partial(plot_label_probe, judged)}
    written = spec.run.save(Report("probe", facts, rows, figures, beside, table_name=LAYERS))
    if not spec.printed_as_json(facts):
        _print(judged, untrained)
        tell_rest(facts, written)


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


def report_applied(spec: ProbeSpec, path: Path) -> None:
    """Apply a probe that was fitted before, write probe.json and scores.parquet, and print."""
    from flaxattn.corpus.input_files import describe_files
    from flaxattn.probes.head_probe import apply_probe
    from flaxattn.probes.label_scores import LabelAccuracy
    from flaxattn.probes.probe_file import load_probe
    from flaxattn.probes.selectivity import Attachment
    from flaxattn.probes.structural_scores import plain
    from flaxattn.reports.report import SCORES, Report

    saved = load_probe(path)
    spec.announce("applying the probe", "one pass over all texts")
    found = apply_probe(
        spec.loaded(),
        spec.files[0].sentences(spec.bad),
        saved.probe,
        reading=spec.reading(),
    )
    scores: dict[str, Any]
    if isinstance(found, LabelAccuracy):
        scores = {"accuracy": found.score, "words": found.words}
        message = f"accuracy {found.score:.1%} of the labels of {found.words:,} words"
    elif isinstance(found, Attachment):
        scores = {"uas": 100 * found.score, "words": found.words}
        message = f"all heads together attach {found.score:.1%} of {found.words:,} words"
    else:
        scores = plain(found)
        message = (
            f"UUAS {found.uuas:.1%}, distances {found.distance_spearman:.3f}, "
            f"root {found.root_accuracy:.1%}, depths {found.norm_spearman:.3f} "
            f"in {found.sentences:,} sentences"
        )
    facts = {
        "model": spec.model,
        "data": [spec.files[0].facts()],
        "settings": {"truncate": spec.truncate},
        "left_out": left_out(spec.bad),
        "probe": {**describe_files([path])[0], "notes": saved.notes},
        "scores": scores,
    }
    rows = {name: [value] for name, value in scores.items()}
    written = spec.run.save(Report("probe", facts, rows, {}, table_name=SCORES))
    if not spec.printed_as_json(facts):
        console = Console(highlight=False, soft_wrap=True)
        console.print(message)
        console.print(f"fitted to {saved.notes.get('model', 'an unknown model')}", markup=False)
        tell_rest(facts, written)
