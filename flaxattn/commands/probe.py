# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn probe`: says which probe is meant, makes its report, saves it, prints the results.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from flaxattn.commands.head_request import (
    KEPT,
    SENTENCES,
    AllowNonfinite,
    AsJson,
    BatchTokens,
    Kept,
    Limit,
    OnError,
    Sentences,
    Truncate,
    WithPage,
)
from flaxattn.commands.options import numbers
from flaxattn.commands.report_run import Out, Overwrite, ReportRun, print_files, print_left_out
from flaxattn.errors import InputError
from flaxattn.reports.report import Report

if TYPE_CHECKING:
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.corpus.dependency_trees import Sentence
    from flaxattn.corpus.mentions import Document, Pronoun
    from flaxattn.pipeline.tokenize_texts import ReadingOptions
    from flaxattn.pretrained.pretrained_model import Pretrained
    from flaxattn.probes.governor_probe import Classifier
    from flaxattn.probes.head_coreference import Resolver
    from flaxattn.probes.label_probe import LabelJudged, LabelScores
    from flaxattn.probes.structural_probe import StructuralJudged
    from flaxattn.reports.evidence import PageOptions


class Files(NamedTuple):
    """Some files, and how many of their sentences are taken.

    Attributes:
        paths: Paths of the files.
        limit: Most sentences; None for all.
    """

    paths: tuple[Path, ...]
    limit: int | None

    def facts(self) -> dict[str, Any]:
        """Describe the input files, ready for JSON."""
        from flaxattn.corpus.input_files import describe_files

        return {"files": describe_files(self.paths), "limit": self.limit}


class TreeSentences:
    """Sentences with trees, which can be read several times; problems are reported the first time.

    Args:
        files: That hold them.
        bad: Receives the sentences that cannot be used.
    """

    def __init__(self, files: Files, bad: "BadRows") -> None:
        self._files, self._bad = files, bad

    def __iter__(self) -> "Iterator[Sentence]":
        from flaxattn.corpus.bad_rows import BadRows
        from flaxattn.corpus.dependency_trees import read_sentences

        bad, self._bad = self._bad, BadRows("skip")
        return itertools.islice(read_sentences(self._files.paths, bad), self._files.limit)


@dataclasses.dataclass(frozen=True)
class ProbeSpec:
    """Options that every kind of probe has.

    Attributes:
        model: As it was named.
        files: Those to judge on, and those to learn from or to choose on.
        run: Folder of the report, and progress.
        bad: Takes what cannot be used.
        truncate: Whether texts over the model's limit are cut.
        batch_tokens: Positions of a batch.
        seed: Seed of everything that is drawn.
        as_json: Whether a program reads what is printed.
        allow_nonfinite: Whether NaN and infinity leave cells blank; otherwise they are an error.
    """

    model: str
    files: tuple[Files, Files]
    run: ReportRun
    bad: "BadRows"
    truncate: bool
    batch_tokens: int | None
    seed: int
    as_json: bool
    allow_nonfinite: bool = False

    def loaded(self) -> "Pretrained":
        """The model."""
        from flaxattn.pretrained.from_pretrained import from_pretrained

        self.run.progress(f"loading {self.model}", 0)
        return from_pretrained(self.model)

    def trees(self, number: int) -> "TreeSentences":
        """Sentences to judge on (0), or to learn from (1)."""
        return TreeSentences(self.files[number], self.bad)

    def data(self) -> list[dict[str, Any]]:
        """Describe the input files, ready for JSON."""
        return [files.facts() for files in self.files]

    def reading(self) -> "ReadingOptions":
        """Return the options with which sentences are read."""
        from flaxattn.pipeline.tokenize_texts import ReadingOptions

        return ReadingOptions(
            self.truncate,
            self.bad,
            self.batch_tokens,
            self.run.progress,
            allow_nonfinite=self.allow_nonfinite,
        )

    def announce(
        self, stage: str, what: str, read: "Callable[[Files, BadRows], Iterable[Any]] | None" = None
    ) -> None:
        """Announce the work. Files are read once before, so that bad rows are refused early."""
        from flaxattn.corpus.bad_rows import BadRows

        bad = BadRows("fail" if self.bad.policy == "fail" else "skip")
        counts = []
        for files in self.files:
            count = 0
            for _ in read(files, bad) if read else TreeSentences(files, bad):
                self.run.progress("reading texts", 1)
                count += 1
            counts.append(count)
        learnt = f" and {counts[1]:,} to learn from" if self.files[1].paths else ""
        self.run.progress.announce(f"{counts[0]:,} texts to judge{learnt}, {self.model}: {what}")
        self.run.progress.expect(stage, sum(counts))


_RELATIONS = 12  # in the table
_COLUMNS = ("uuas", "distance_spearman", "root_accuracy", "norm_spearman")
_SHOWN = (".1%", ".3f", ".1%", ".3f")


def probe_governors(
    spec: ProbeSpec, untrained: bool, penalty: float | None, shown: "PageOptions"
) -> None:
    """Measure how well heads find governors, and fit a parser to all of them."""
    from flaxattn.reports.probes import PARSER_PENALTY, probe_report

    fits = "a parser and its control task" if spec.files[1].paths else "no parser"
    spec.announce("reading heads", f"one pass over all texts, {fits} fitted")
    report = probe_report(
        spec.loaded(),
        spec.trees(0),
        spec.trees(1) if spec.files[1].paths else None,
        untrained=untrained,
        penalty=PARSER_PENALTY if penalty is None else penalty,
        seed=spec.seed,
        reading=spec.reading(),
        page=shown,
        data=spec.data(),
    )
    if files := spec.run.finish(report, spec.as_json):
        _print_governors(report.facts, report.result.best)
        _print_rest(report, files)


def probe_mentions(spec: ProbeSpec, form: str, shown: "PageOptions") -> None:
    """Measure how well every head resolves mentions."""
    from flaxattn.reports.probes import AMONG, coreference_report

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
    from flaxattn.reports.probes import structural_report

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
    from flaxattn.reports.probes import label_report

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
    from flaxattn.reports.probes import applied_probe_report

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
    from flaxattn.corpus.mentions import read_documents, read_pronouns
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


_TREES = "sentences with trees"
# Which options each kind of probe takes besides --train, and what it is for.
_EVIDENCE = ("--no-page", "--sentences", "--evidence")
_KINDS = {
    "": (
        ("--train", "--untrained", "--penalty", "--seed", *_EVIDENCE),
        _TREES,
    ),
    "--structural": (
        ("--train", "--untrained", "--layers", "--rank", "--epochs", "--seed"),
        _TREES,
    ),
    "--states": (
        ("--train", "--untrained", "--layers", "--labels", "--penalty", "--seed"),
        _TREES,
    ),
    "--pronouns": (("--train", *_EVIDENCE), "pronouns"),
    "--coreference": (("--train", *_EVIDENCE), "documents"),
    "--load": ((), _TREES),
}
Layers = Annotated[
    str | None,
    typer.Option(help="Hidden states to probe, such as 0,6,12; default all."),
]
Rank = Annotated[
    int | None, typer.Option(min=1, help="Rank of structural probes; default the size of vectors.")
]
Epochs = Annotated[
    int | None,
    typer.Option(min=1, help="Largest number of epochs of a structural probe; default 40."),
]
_Untrained = Annotated[
    bool,
    typer.Option("--untrained", help="Also fit probes to the model with random parameters."),
]
Pronouns = Annotated[
    str | None,
    typer.Option(
        help="Find antecedents of pronouns with heads; the files are gap, winobias or winogender."
    ),
]
Inputs = Annotated[
    list[Path],
    typer.Argument(
        metavar="INPUT...",
        help="Sentences with trees (.conllu, also .gz and .zst); or see --pronouns, --coreference.",
    ),
]
Model = Annotated[
    str,
    typer.Option(
        help="A BERT, or any for --structural and --states: built-in name, directory, Hub id."
    ),
]
TrainFiles = Annotated[
    list[Path] | None,
    typer.Option(
        help="Sentences with trees to choose heads on and to fit probes to; repeat "
        "for several files."
    ),
]
Structural = Annotated[
    bool,
    typer.Option(
        "--structural", help="Fit structural probes to hidden states instead; needs --train."
    ),
]
States = Annotated[
    bool,
    typer.Option("--states", help="Fit linear probes of labels to hidden states; needs --train."),
]
LabelKind = Annotated[
    str | None,
    typer.Option(
        help="Labels of --states: upos, xpos, or a feature as feats.Number; default upos."
    ),
]
Coreference = Annotated[
    bool,
    typer.Option(
        "--coreference",
        help="Find antecedents with heads; the files hold documents with mentions, "
        "CoNLL-2012 or Entity= in .conllu.",
    ),
]
Loaded = Annotated[Path | None, typer.Option(help="Apply the probe of this file without fitting.")]


def probe(
    context: typer.Context,
    inputs: Inputs,
    out: Out = Path("report-probe"),
    model: Model = "tiny-bert",
    train: TrainFiles = None,
    limit: Limit = None,
    train_limit: Annotated[
        int | None, typer.Option(min=1, help="Largest number of sentences of --train.")
    ] = None,
    structural: Structural = False,
    states: States = False,
    labels: LabelKind = None,
    layers: Layers = None,
    rank: Rank = None,
    epochs: Epochs = None,
    pronouns: Pronouns = None,
    coreference: Coreference = False,
    load: Loaded = None,
    untrained: _Untrained = False,
    penalty: Annotated[
        float | None,
        typer.Option(
            help="Penalty on squared coefficients; default 1e-4 for parsers, 1e-2 for --states."
        ),
    ] = None,
    truncate: Truncate = False,
    on_error: OnError = "fail",
    seed: Annotated[
        int | None,
        typer.Option(help="Random seed of control tasks and of random parameters; default 0."),
    ] = None,
    batch_tokens: BatchTokens = None,
    allow_nonfinite: AllowNonfinite = False,
    page: WithPage = True,
    sentences: Sentences = SENTENCES,
    evidence: Kept = KEPT,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Probe heads and hidden states for grammar and coreference.

    Writes probe.json, a table with every head or hidden state, probe.png, and, with --train, the
    fitted probe as probe.safetensors; for heads also probe.html, a page with the texts that show
    the best ones, and evidence.parquet.

    Example: flaxattn probe test.conllu --train train.conllu -o PROBE

    Example: flaxattn probe test.conllu --train train.conllu --states --labels feats.Number -o PROBE
    """
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.reports.evidence import PageOptions

    kinds = {
        "--structural": structural,
        "--states": states,
        "--pronouns": pronouns,
        "--coreference": coreference,
        "--load": load,
    }
    given = {
        "--train": train or None,
        "--untrained": untrained,
        "--penalty": penalty,
        "--seed": seed,
        "--layers": layers,
        "--labels": labels,
        "--rank": rank,
        "--epochs": epochs,
        "--no-page": not page,
        "--sentences": sentences != SENTENCES and sentences,
        "--evidence": evidence != KEPT and evidence,
    }
    kind = _kind(_named(kinds))
    _check(kind, _named(given))
    files = Files(tuple(inputs), limit), Files(tuple(train or ()), train_limit)
    if kind not in ("--pronouns", "--coreference"):
        _check_trees((*files[0].paths, *files[1].paths))
    run, bad = ReportRun.begin(context, "probe"), BadRows(on_error, out)
    requested = ProbeSpec(
        model, files, run, bad, truncate, batch_tokens, seed or 0, as_json, allow_nonfinite
    )
    shown = PageOptions(evidence, sentences)
    if pronouns is not None or coreference:
        probe_mentions(requested, pronouns or "documents", shown)
    elif structural:
        chosen = numbers(layers, "--layers", negative=True)
        probe_structure(requested, chosen, rank, epochs, untrained)
    elif states:
        chosen = numbers(layers, "--layers", negative=True)
        probe_labels(requested, labels or "upos", chosen, untrained, penalty)
    elif load is not None:
        probe_again(requested, load)
    else:
        probe_governors(requested, untrained, penalty, shown)


def _named(options: Mapping[str, object]) -> list[str]:
    """Return the options that were typed; 0 is one of them."""
    return [name for name, value in options.items() if not any(value is no for no in (None, False))]


def _kind(named: list[str]) -> str:
    if len(named) > 1:
        raise typer.BadParameter("is another kind of probe.", param_hint=" and ".join(named))
    return named[0] if named else ""


def _check(kind: str, given: list[str]) -> None:
    """Refuse options that would be ignored, and those that lack another one."""
    taken, about = _KINDS[kind]
    for name in given:
        if name in taken:
            continue
        homes = [other or "the probes of heads" for other in _KINDS if name in _KINDS[other][0]]
        message = f"is not for {kind or about}, only for {' and '.join(homes)}."
        raise typer.BadParameter(message, param_hint=name)
    for name in ("--untrained", "--structural", "--states"):
        if name in (kind, *given) and "--train" not in given:
            raise typer.BadParameter("needs --train.", param_hint=name)


def _check_trees(paths: tuple[Path, ...]) -> None:
    from flaxattn.corpus.dependency_trees import is_annotated

    for path in paths:
        if not is_annotated(path):
            raise InputError(
                f"{path} has no trees by its name, and probes ask for governors\n"
                "give sentences of Universal Dependencies, a file in .conllu; "
                "or see --pronouns and --coreference"
            )
