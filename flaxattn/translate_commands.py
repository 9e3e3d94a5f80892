# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn translate` and `flaxattn evaluate`: they parse, read lines, call and print.

Everything heavy is imported when one of them runs. `flaxattn.cli` registers them.
"""

import contextlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flaxattn.errors import InputError
from flaxattn.files import write_text

if TYPE_CHECKING:
    from flaxattn.seq2seq_handle import PretrainedSeq2Seq

_STDIN = "standard input"
Seen = Callable[[int], object]

Beam = Annotated[int, typer.Option("--beam", help="Hypotheses kept; 1 writes greedily.")]
Batch = Annotated[int, typer.Option(help="Sentences per batch.")]
MaxLength = Annotated[
    int | None, typer.Option(help="Most tokens written; default 50 more than the source.")
]
Penalty = Annotated[
    float | None,
    typer.Option("--length-penalty", help="Exponent of the length; default the model's."),
]
Truncate = Annotated[bool, typer.Option("--truncate", help="Cut sources that are too long.")]


def translate(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Text, a sentence per line; default standard input.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model directory, built-in name, or Hugging Face Hub id.")
    ] = None,
    beam: Beam = 4,
    n_best: Annotated[int, typer.Option(help="Translations per line, with scores.")] = 1,
    batch: Batch = 32,
    max_length: MaxLength = None,
    length_penalty: Penalty = None,
    align: Annotated[
        bool, typer.Option("--align", help="Print Pharaoh alignments i-j behind a tab.")
    ] = False,
    view: Annotated[
        Path | None, typer.Option(help="Page with the attention to the first sentence.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write to.")] = None,
    truncate: Truncate = False,
) -> None:
    """Translate text line by line; as many lines come out as go in, in their order.

    With --n-best above 1 a line is `number ||| translation ||| score`, numbered from 0 as Moses
    does. Alignments are those of words parted by spaces: source word i, written word j.
    """
    _check_counts(beam, batch, max_length, n_best)
    if n_best > beam:
        raise InputError(
            f"--n-best {n_best} needs as many hypotheses\n--beam is {beam}\nraise --beam"
        )
    if align and n_best > 1:
        raise InputError("--align is of the best translation\nleave out --n-best")
    lines = _lines(files or [])
    loaded = _load(model)
    texts = [text for _, text in lines]
    settings = {**_settings(beam, max_length, length_penalty), "num_return_sequences": n_best}
    _tell_empty(lines)
    with _progress("translating", len(lines)) as seen:
        if align:
            written = _aligned(loaded, lines, batch, truncate, seen, settings)
        else:
            written = _translated(loaded, lines, batch, truncate, seen, settings)
    _print(written, out)
    if view is not None:
        _write_view(loaded, texts, view, truncate, settings)


def evaluate(
    model: Annotated[str | None, typer.Option(help="Directory of the model to judge.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Right translations, by line.")] = None,
    source: Annotated[Path | None, typer.Option(help="What --model translates, by line.")] = None,
    hypothesis: Annotated[
        Path | None, typer.Option(help="Translations, by line, instead of --model.")
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="Right alignments, by line: i-j sure, i?j possible.")
    ] = None,
    alignment: Annotated[
        Path | None, typer.Option(help="Found alignments, by line, instead of --model.")
    ] = None,
    beam: Beam = 4,
    batch: Batch = 32,
    max_length: MaxLength = None,
    length_penalty: Penalty = None,
    tokenize: Annotated[str, typer.Option(help="sacrebleu's tokeniser for BLEU.")] = "13a",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="BLEU without case.")] = False,
    truncate: Truncate = False,
    data: Annotated[
        str | None, typer.Option(help="GLUE: folder of the task, or of all of GLUE.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="GLUE: cola sst2 mrpc stsb qqp mnli qnli rte wnli ax.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The metrics as JSON.")] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="GLUE: folder for its files of the test sets.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="GLUE: recipe as YAML.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="GLUE: one setting, such as seed=1; repeat.")
    ] = None,
    on_error: Annotated[
        str | None, typer.Option(help="GLUE: bad rows: fail, skip or quarantine.")
    ] = None,
) -> None:
    """Judge translations (BLEU, chrF), alignments (AER), or a model on a task of GLUE.

    Translations: --reference with --hypothesis, or with --model and --source. Alignments: --gold
    with --alignment, or with --model, --source and --reference, which it then reads. GLUE: --data,
    --task and --model.
    """
    if data is not None or task is not None:
        for name, value in (("--data", data), ("--task", task), ("--model", model)):
            if value is None:
                raise typer.BadParameter("it is missing.", param_hint=name)
        commands = importlib.import_module("flaxattn.train.glue_commands")
        commands.evaluate(data, model, task, out, predictions, config, change, on_error)
        return
    _check_counts(beam, batch, max_length)
    found: dict[str, Any] = {}
    if gold is not None:
        found |= _alignment_error(gold, alignment, model, source, reference, batch)
    if reference is not None and (hypothesis is not None or gold is None):
        settings = _settings(beam, max_length, length_penalty)
        told = _told(hypothesis, model, source, batch, truncate, settings)
        found |= _scores(told, _texts(reference), tokenize, lowercase)
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


def _check_counts(beam: int, batch: int, max_length: int | None, n_best: int = 1) -> None:
    counts = {"--beam": beam, "--batch": batch, "--max-length": max_length, "--n-best": n_best}
    for name, count in counts.items():
        if count is not None and count < 1:
            raise InputError(
                f"{name} is {count}\nit must be at least 1"
                + ("; a beam of 1 writes greedily" if name == "--beam" else "")
            )


def _settings(beam: int, max_length: int | None, penalty: float | None) -> dict[str, Any]:
    """Settings of generation; what was not given is left to the model."""
    given = {"max_new_tokens": max_length, "length_penalty": penalty}
    return {"num_beams": beam, **{name: v for name, v in given.items() if v is not None}}


def _load(name: str | None) -> "PretrainedSeq2Seq":
    if name is None:
        raise typer.BadParameter("it is missing: which model?", param_hint="--model")
    from flaxattn.loading import from_pretrained
    from flaxattn.seq2seq_handle import PretrainedSeq2Seq

    loaded = from_pretrained(name)
    if not isinstance(loaded, PretrainedSeq2Seq):
        raise InputError(
            f"the model {name!r} does not translate: it is a {loaded.config.architectures[0]}\n"
            "name an encoder-decoder, such as one from flaxattn train translation"
        )
    return loaded


def _lines(files: Sequence[Path]) -> list[tuple[str, str]]:
    """Where each line stands, and the line, of all files or of standard input.

    Raises:
        InputError: there is no such file, or a line is not UTF-8.
    """
    found = []
    for path in files or [None]:
        name = _STDIN if path is None else str(path)
        try:
            data = sys.stdin.buffer.read() if path is None else path.read_bytes()
        except OSError as error:
            raise InputError(f"cannot read {name}\n{error.strerror}\nname a text file") from error
        raw = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        for number, line in enumerate(raw[:-1] if raw[-1] == b"" else raw, 1):
            where = f"{name}, line {number}"
            try:
                found.append((where, line.decode("utf-8").removesuffix("\r")))
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{where}: byte {line[error.start]:#04x} at position {error.start + 1} is not "
                    "UTF-8\nconvert the text first, for example: iconv -f latin1 -t utf-8"
                ) from error
    return found


def _texts(path: Path) -> list[str]:
    return [text for _, text in _lines([path])]


def _tell_empty(lines: Sequence[tuple[str, str]]) -> None:
    empty = [where for where, text in lines if not text.strip()]
    if empty:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        typer.echo(f"{empty[0]}{more}: empty, so its translation is empty", err=True)


@contextlib.contextmanager
def _progress(what: str, total: int) -> Iterator[Seen]:
    """A bar on standard error where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        shown = bar.add_task(what, total=total)
        yield lambda count: bar.advance(shown, count)


def _translated(
    model: "PretrainedSeq2Seq",
    lines: Sequence[tuple[str, str]],
    batch: int,
    truncate: bool,
    seen: Seen,
    settings: dict[str, Any],
) -> list[str]:
    """The lines to print."""
    from flaxattn import translating

    texts = [text for _, text in lines]
    with _named(lines):
        found = translating.translate(
            model, texts, batch=batch, truncate=truncate, seen=seen, **settings
        )
    if settings.get("num_return_sequences", 1) == 1:
        return [one.texts[0] for one in found]
    return [
        f"{number} ||| {text} ||| {score:.4f}"
        for number, one in enumerate(found)
        for text, score in zip(one.texts, one.scores, strict=True)
    ]


def _aligned(
    model: "PretrainedSeq2Seq",
    lines: Sequence[tuple[str, str]],
    batch: int,
    truncate: bool,
    seen: Seen,
    settings: dict[str, Any],
) -> list[str]:
    """The lines to print: a translation, a tab, and its alignment."""
    from flaxattn import translating
    from flaxattn.alignment import pharaoh, word_alignment

    texts = [text for _, text in lines]
    filled = [number for number, text in enumerate(texts) if text.strip()]
    seen(len(texts) - len(filled))
    some = [texts[number] for number in filled]
    with _named(lines):
        translating.encode(model, some, truncate, filled)  # tells which line is too long
        found = translating.traced(
            model, some, batch=batch, truncate=truncate, seen=seen, **settings
        )
    written = ["\t"] * len(texts)
    for number, (text, trace) in zip(filled, found, strict=True):
        written[number] = f"{text}\t{pharaoh(word_alignment(trace)[0])}"
    return written


@contextlib.contextmanager
def _named(lines: Sequence[tuple[str, str]]) -> Iterator[None]:
    """Call a source that cannot be read by its file and line."""
    from flaxattn.tokenizing import shortened
    from flaxattn.translating import SourceError

    try:
        yield
    except SourceError as error:
        where, text = lines[error.number]
        first, *others = error.problem.splitlines()
        received = (
            [] if len(others) > 1 else [f"received: {shortened(text)}"]
        )  # three lines at most
        raise InputError("\n".join([f"{where} {first}", *received, *others])) from error


def _print(written: Sequence[str], out: Path | None) -> None:
    text = "".join(f"{line}\n" for line in written)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text, "the translations")
        typer.echo(f"wrote {out.resolve()}", err=True)


def _write_view(
    model: "PretrainedSeq2Seq",
    texts: Sequence[str],
    path: Path,
    truncate: bool,
    settings: dict[str, Any],
) -> None:
    from flaxattn.views.head import head_view

    first = next((text for text in texts if text.strip()), None)
    if first is None:
        raise InputError("every line is empty\n--view shows the first that is not")
    best = {**settings, "num_return_sequences": 1}
    _, trace = model.generate([first], trace=True, truncate=truncate, **best)
    head_view(trace).save(path)
    typer.echo(f"wrote {path.resolve()}", err=True)


def _told(
    hypothesis: Path | None,
    model: str | None,
    source: Path | None,
    batch: int,
    truncate: bool,
    settings: dict[str, Any],
) -> list[str]:
    """Translations of a file, or of a model."""
    if hypothesis is not None:
        return _texts(hypothesis)
    if model is None or source is None:
        raise InputError(
            "there are no translations to judge\n"
            "received --reference alone\ngive --hypothesis, or --model and --source"
        )
    lines = _lines([source])
    _tell_empty(lines)
    with _progress("translating", len(lines)) as seen:
        return _translated(_load(model), lines, batch, truncate, seen, settings)


def _scores(
    told: list[str], references: list[str], tokenize: str, lowercase: bool
) -> dict[str, dict[str, Any]]:
    from flaxattn.bleu import bleu, chrf

    scores = {
        "BLEU": bleu(told, references, tokenize=tokenize, lowercase=lowercase),
        "chrF2": chrf(told, references),
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
    from flaxattn.alignment import alignment_error_rate, read_pharaoh, word_alignment

    right = [read_pharaoh(line) for line in _texts(gold)]
    if alignment is not None:
        found = [read_pharaoh(line)[0] for line in _texts(alignment)]
    elif model is not None and source is not None and reference is not None:
        from flaxattn.translating import traced

        texts, targets = _texts(source), _texts(reference)
        if not len(texts) == len(targets) == len(right):
            raise InputError(
                f"{source} has {len(texts)} lines, {reference} has {len(targets)}, {gold} has "
                f"{len(right)}\nline i of all three must belong to one sentence"
            )
        with _progress("aligning", len(texts)) as seen:
            traces = traced(_load(model), texts, targets, batch=batch, seen=seen)
        found = [set(word_alignment(trace)[0]) for _, trace in traces]
    else:
        raise InputError(
            "there are no alignments to judge\n"
            "received --gold alone\ngive --alignment, or --model, --source and --reference"
        )
    error = alignment_error_rate(found, [sure for sure, _ in right], [p for _, p in right])
    return {"AER": {"value": error}}
