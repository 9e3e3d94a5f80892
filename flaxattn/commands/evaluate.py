# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn evaluate`: translations, alignments, and classifiers on GLUE or on own labels.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

import importlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from flaxattn.commands.text_arguments import cost, progress, read_lines, read_texts, report_empty
from flaxattn.commands.translate import (
    Batch,
    Beam,
    MaxLength,
    Penalty,
    Truncate,
    check_counts,
    load,
    settings_of,
    translated,
    translation_cost,
)
from flaxattn.errors import InputError
from flaxattn.files import check_writable, write_text


def evaluate(
    model: Annotated[str | None, typer.Option(help="Directory of the model to evaluate.")] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Reference translations, one per line.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Sources for --model, one per line.")] = None,
    hypothesis: Annotated[
        Path | None, typer.Option(help="Translations, one per line, instead of --model.")
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(help="Reference alignments, one sentence per line: i-j sure, i?j possible."),
    ] = None,
    alignment: Annotated[
        Path | None,
        typer.Option(help="Alignments to evaluate, one sentence per line, instead of --model."),
    ] = None,
    beam: Beam = 4,
    batch: Batch = 32,
    max_length: MaxLength = None,
    length_penalty: Penalty = None,
    tokenize: Annotated[str, typer.Option(help="Tokenizer of sacrebleu for BLEU.")] = "13a",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case in BLEU.")] = False,
    truncate: Truncate = False,
    data: Annotated[
        str | None,
        typer.Option(
            help="File with texts and labels for a classifier; GLUE: folder of the task, or of all."
        ),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(help="Column of the text in --data; default text.")
    ] = None,
    pair_column: Annotated[
        str | None, typer.Option(help="Column of the second text in --data; default none.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of the label in --data; default label.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="GLUE: cola sst2 mrpc stsb qqp mnli qnli rte wnli ax.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", "--out", help="JSON file of the metrics.")
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="GLUE: output folder for predictions on the test sets.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="GLUE: recipe as YAML.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="GLUE: one setting, such as seed=1; repeat.")
    ] = None,
    on_error: Annotated[
        str | None, typer.Option(help="GLUE: bad rows: fail, skip or quarantine.")
    ] = None,
) -> None:
    """Evaluate translations, alignments or a classifier.

    Translations: --reference with --hypothesis, or with --model and --source. Alignments: --gold
    with --alignment, or with --model, --source and --reference, which it then reads. GLUE: --data,
    --task and --model. Your own labels: --data FILE and --model.

    Example: flaxattn evaluate --model RUN/model --task sst2 --data GLUE

    Example: flaxattn evaluate --reference test.en --hypothesis written.en
    """
    if data is not None or task is not None:
        own = data is not None and Path(data).is_file() and task is None
        for name, value in (("--data", data), ("--task", task), ("--model", model)):
            if value is None and not (own and name == "--task"):
                raise typer.BadParameter("it is missing.", param_hint=name)
        named = (("text", text_column), ("pair", pair_column), ("label", label_column))
        columns = {f"{name}_column": column for name, column in named}
        if own and predictions is not None:
            raise InputError(
                "--predictions writes what GLUE's test sets ask for\n"
                f"received the file {data}\nflaxattn classify --file predicts labels of texts"
            )
        commands = importlib.import_module("flaxattn.train.commands")
        commands.evaluate_classifier(
            data, model, task, out, predictions, config, change, on_error, **columns
        )
        return
    check_counts(beam, batch, max_length)
    if out is not None:
        check_writable(out, "the metrics")
    found: dict[str, Any] = {}
    if reference is not None and (hypothesis is not None or gold is None):
        settings = settings_of(beam, max_length, length_penalty)
        references = read_texts(reference)
        translations = _translations(
            hypothesis, model, source, references, batch, truncate, tokenize, settings
        )
        found = _scores(translations, references, tokenize, lowercase)
    if gold is not None:
        found = {**_alignment_error(gold, alignment, model, source, reference, batch), **found}
    if not found:
        raise InputError(
            "there is nothing to judge\n"
            "translations take --reference, alignments --gold, a task of GLUE --data and --task\n"
            "see flaxattn evaluate --help"
        )
    for name, entry in found.items():
        signature = f"  {entry['signature']}" if "signature" in entry else ""
        typer.echo(f"{name} {entry['value']:.{2 if signature else 4}f}{signature}")
    if out is not None:
        write_text(out, json.dumps(found, indent=2) + "\n", "the metrics")
        typer.echo(f"wrote {out.resolve()}")


def _translations(
    hypothesis: Path | None,
    model: str | None,
    source: Path | None,
    references: list[str],
    batch: int,
    truncate: bool,
    tokenize: str,
    settings: dict[str, Any],
) -> list[str]:
    """Translations of a file, or of a model; settings are checked before anything is translated."""
    from flaxattn.measures.translation_quality import check_bleu

    if hypothesis is not None:
        return read_texts(hypothesis)
    if model is None or source is None:
        raise InputError(
            "there are no translations to judge\n"
            "received --reference alone\ngive --hypothesis, or --model and --source"
        )
    lines = read_lines([source])
    check_bleu([text for _, text in lines], references, tokenize)
    report_empty(lines)
    loaded = load(model)
    message = translation_cost(lines, loaded, settings["num_beams"], batch)
    with progress("translating", len(lines), message) as on_done:
        return translated(loaded, lines, batch, truncate, on_done, settings)


def _scores(
    translations: list[str], references: list[str], tokenize: str, lowercase: bool
) -> dict[str, dict[str, Any]]:
    from flaxattn.measures.translation_quality import bleu, chrf

    scores = {
        "BLEU": bleu(translations, references, tokenize=tokenize, lowercase=lowercase),
        "chrF2": chrf(translations, references),
    }
    return {name: score._asdict() for name, score in scores.items()}


def _alignment_error(
    gold: Path,
    alignment: Path | None,
    model: str | None,
    source: Path | None,
    reference: Path | None,
    batch: int,
) -> dict[str, dict[str, Any]]:
    """AER of the alignments of a file, or of those that a model reads off its attention."""
    from flaxattn.measures.word_alignment import alignment_error_rate, read_pharaoh, word_alignment

    right = [read_pharaoh(line) for line in read_texts(gold)]
    if alignment is not None:
        found = [read_pharaoh(line)[0] for line in read_texts(alignment)]
    elif model is not None and source is not None and reference is not None:
        from flaxattn.pretrained.pretrained_seq2seq import traced

        texts, targets = read_texts(source), read_texts(reference)
        if not len(texts) == len(targets) == len(right):
            raise InputError(
                f"{source} has {len(texts)} lines, {reference} has {len(targets)}, {gold} has "
                f"{len(right)}\nline i of all three must belong to one sentence"
            )
        loaded = load(model)
        message = cost(
            len(texts), loaded.name, f"one forward pass over all texts, {batch} at a time"
        )
        with progress("aligning", len(texts), message) as on_done:
            traces = traced(loaded, texts, targets, batch=batch, on_done=on_done)
        found = [set(word_alignment(trace)[0]) for _, trace in traces]
    else:
        raise InputError(
            "there are no alignments to judge\n"
            "received --gold alone\ngive --alignment, or --model, --source and --reference"
        )
    error = alignment_error_rate(found, [sure for sure, _ in right], [p for _, p in right])
    return {"AER": {"value": error}}
