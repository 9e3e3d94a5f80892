# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn probe`: parses and says which probe is meant. Everything heavy is imported later."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

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
from flaxattn.commands.probe_reader import Files, ProbeSpec
from flaxattn.commands.report_run import Out, Overwrite, ReportRun
from flaxattn.errors import InputError

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
    from flaxattn.commands import probe_kinds
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
        probe_kinds.probe_mentions(requested, pronouns or "documents", shown)
    elif structural:
        chosen = numbers(layers, "--layers", negative=True)
        probe_kinds.probe_structure(requested, chosen, rank, epochs, untrained)
    elif states:
        chosen = numbers(layers, "--layers", negative=True)
        probe_kinds.probe_labels(requested, labels or "upos", chosen, untrained, penalty)
    elif load is not None:
        probe_kinds.probe_again(requested, load)
    else:
        probe_kinds.probe_governors(requested, untrained, penalty, shown)


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
