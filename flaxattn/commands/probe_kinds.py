# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The kinds of `flaxattn probe`: each makes its report, saves it, and prints the results."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from flaxattn.commands.probe_reader import Files, ProbeSpec
from flaxattn.commands.report_run import print_files, print_left_out
from flaxattn.reports.evidence import PageOptions
from flaxattn.reports.report import Report

if TYPE_CHECKING:
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.corpus.coreference_documents import Document
    from flaxattn.corpus.pronouns import Pronoun
    from flaxattn.probes.governor_probe import Classifier
    from flaxattn.probes.label_probe import LabelJudged, LabelScores
    from flaxattn.probes.mention_resolution import Resolver
    from flaxattn.probes.structural_probe import StructuralJudged

_RELATIONS = 12  # in the table
_COLUMNS = ("uuas", "distance_spearman", "root_accuracy", "norm_spearman")
_SHOWN = (".1%", ".3f", ".1%", ".3f")


def probe_governors(
    spec: ProbeSpec, untrained: bool, penalty: float | None, shown: PageOptions
) -> None:
    """Measure how well heads find governors, and fit a parser to all of them."""
    from flaxattn.reports.probed_heads import PENALTY, probe_report

    fits = "a parser and its control task" if spec.files[1].paths else "no parser"
    spec.announce("reading heads", f"one pass over all texts, {fits} fitted")
    report = probe_report(
        spec.loaded(),
        spec.trees(0),
        spec.trees(1) if spec.files[1].paths else None,
        untrained=untrained,
        penalty=PENALTY if penalty is None else penalty,
        seed=spec.seed,
        reading=spec.reading(),
        page=shown,
        data=spec.data(),
    )
    if files := spec.run.finish(report, spec.as_json):
        _print_governors(report.facts, report.result.best)
        _print_rest(report, files)


def probe_mentions(spec: ProbeSpec, form: str, shown: PageOptions) -> None:
    """Measure how well every head resolves mentions."""
    from flaxattn.reports.probed_heads import AMONG, coreference_report

    spec.announce(
        "reading heads", "one pass over all texts", lambda files, bad: _mentions(files, form, bad)
    )
    report = coreference_report(
        spec.loaded(),
        _mentions(spec.files[0], form, spec.bad),
        form,
        _mentions(spec.files[1], form, spec.bad) if spec.files[1].paths else None,
        reading=spec.reading(),
        page=shown,
        data=spec.data(),
    )
    if files := spec.run.finish(report, spec.as_json):
        _print_mentions(report.facts, report.result.best, "Whom mentions mean")
        if report.facts[AMONG]:
            _print_mentions(report.facts, report.result.best_among_words, "Among all words")
        _print_rest(report, files)


def probe_structure(
    spec: ProbeSpec,
    layers: Sequence[int] | None,
    rank: int | None,
    epochs: int | None,
    untrained: bool,
) -> None:
    """Fit structural probes to hidden states."""
    from flaxattn.probes.structural_probe import Fitting
    from flaxattn.reports.probed_states import structural_report

    fitting = Fitting(rank=rank, epochs=epochs or Fitting.epochs, seed=spec.seed)
    fits = 2 * fitting.epochs * (3 if untrained else 2)
    spec.run.progress.expect("fitting", fits)
    message = f"one pass over all texts, then at most {fits} epochs of fitting"
    spec.announce("reading hidden states", message)
    report = structural_report(
        spec.loaded(),
        spec.trees(0),
        spec.trees(1),
        layers,
        fitting=fitting,
        untrained=untrained,
        reading=spec.reading(),
        data=spec.data(),
    )
    if files := spec.run.finish(report, spec.as_json):
        _print_structural(report.result, report.to_columns())
        _print_rest(report, files)


def probe_labels(
    spec: ProbeSpec,
    labels: str,
    layers: Sequence[int] | None,
    untrained: bool,
    penalty: float | None,
) -> None:
    """Fit linear probes of labels to hidden states."""
    from flaxattn.probes.label_probe import PENALTY, word_labels
    from flaxattn.reports.probed_states import label_report

    word_labels(labels)
    model = spec.loaded()
    states = len(layers) if layers is not None else model.counts()[0] + 1
    fits = states * (3 if untrained else 2)
    spec.run.progress.expect("fitting", fits)
    spec.announce("reading hidden states", f"one pass over all texts, then {fits} probes fitted")
    report = label_report(
        model,
        spec.trees(0),
        spec.trees(1),
        labels,
        layers,
        untrained=untrained,
        penalty=PENALTY if penalty is None else penalty,
        seed=spec.seed,
        reading=spec.reading(),
        data=spec.data(),
    )
    if files := spec.run.finish(report, spec.as_json):
        _print_labels(report.result, untrained)
        _print_rest(report, files)


def probe_again(spec: ProbeSpec, path: Path) -> None:
    """Apply a probe that was fitted before."""
    from flaxattn.reports.probed_states import applied_probe_report

    spec.announce("applying the probe", "one pass over all texts")
    model, data = spec.loaded(), spec.data()[:1]
    report = applied_probe_report(model, spec.trees(0), path, reading=spec.reading(), data=data)
    if files := spec.run.finish(report, spec.as_json):
        notes = report.facts["probe"]["notes"]
        typer.echo(_applied(report.facts["scores"]))
        typer.echo(f"fitted to {notes.get('model', 'an unknown model')}")
        _print_rest(report, files)


def _mentions(files: Files, form: str, bad: "BadRows") -> "Iterator[Pronoun | Document]":
    """Pronouns, or documents with mentions."""
    from flaxattn.corpus.coreference_documents import read_documents
    from flaxattn.corpus.pronouns import read_pronouns
    from flaxattn.probes.head_coreference import DOCUMENTS

    if form == DOCUMENTS:
        return itertools.islice(read_documents(files.paths, bad), files.limit)
    return itertools.islice(read_pronouns(files.paths, form, bad), files.limit)


def _print_rest(report: Report, files: Sequence[Path]) -> None:
    """Print the number of texts left out and the files written."""
    print_left_out(report.facts)
    print_files(files)


def _applied(scores: Mapping[str, Any]) -> str:
    """Sentence with the scores of a probe that was applied."""
    if "accuracy" in scores:
        return f"accuracy {scores['accuracy']:.1%} of the labels of {scores['words']:,} words"
    if "uas" in scores:
        return f"all heads together attach {scores['uas']:.1f}% of {scores['words']:,} words"
    return (
        f"UUAS {scores['uuas']:.1%}, distances {scores['distance_spearman']:.3f}, "
        f"root {scores['root_accuracy']:.1%}, depths {scores['norm_spearman']:.3f} "
        f"in {scores['sentences']:,} sentences"
    )


def _print_governors(facts: Mapping[str, Any], best: "Sequence[Classifier]") -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table(
        title="Heads that find governors best", caption=f"chosen on {facts['heads_chosen_on']}"
    )
    table.add_column("relation", no_wrap=True)
    for name in ("words", "head", "direction", "right", "offset", "baseline", "lift"):
        table.add_column(name, justify="right")
    for one in best[:_RELATIONS]:
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
    if facts["parser"] is not None:
        scores = facts["parser"]["uas"]
        each = ", ".join(f"{name} {score:.1f}" for name, score in scores.items() if name != "tree")
        console.print(
            f"all heads together attach {scores['tree']:.1f}% of words; {each}; "
            f"selectivity {facts['parser']['selectivity']:+.1f} points"
        )


def _print_mentions(facts: Mapping[str, Any], best: "Sequence[Resolver]", what: str) -> None:
    console = Console(highlight=False, soft_wrap=True)
    one = best[0]
    title = f"{what} by head {one.layer}.{one.head}, {one.direction}"
    caption = f"chosen on {facts['heads_chosen_on']}"
    if len({one.baseline for one in best}) > 1:
        caption += (
            "; the baseline of each row is the simple rule that is right most often in its group"
        )
    table = Table(title=title, caption=caption)
    table.add_column("group", no_wrap=True)
    for name in ("mentions", "right", "baseline", "lift"):
        table.add_column(name, justify="right")
    for one in best:
        baseline = f"{one.baseline} {one.baseline_accuracy:.1%}"
        name = one.group or "all"
        table.add_row(name, str(one.mentions), f"{one.accuracy:.1%}", baseline, f"{one.lift:+.1f}")
    console.print(table)


def _print_structural(judged: "StructuralJudged", rows: Mapping[str, Sequence[Any]]) -> None:
    console = Console(highlight=False, soft_wrap=True)
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


def _print_labels(judged: "LabelJudged", untrained: bool) -> None:
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
